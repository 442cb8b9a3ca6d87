/* The rules of layout: rounding, pools, segments, splitting, merging, best fit, cache, limit. */
#include <signal.h>
#include <stdio.h>

#include "pool_rig.h"

/* ---- sizes ------------------------------------------------------------------------------- */

typedef struct size_row {
    size_t requested, charged, reserved;
} size_row;

/* charged: the block's bytes; reserved: the segment that an empty pool gets for it. */
static const size_row size_rows[] = {
    { 1, 512, 2 * MIB },
    { 512, 512, 2 * MIB },
    { 513, 1024, 2 * MIB },
    { MIB, MIB, 2 * MIB },
    { MIB + 1, MIB + 512, 20 * MIB },
    { 10 * MIB - 512, 10 * MIB - 512, 20 * MIB },
    { 10 * MIB, 10 * MIB, 10 * MIB },
    { 10 * MIB + 1, 10 * MIB + 512, 12 * MIB },
    { 11 * MIB - 512, 11 * MIB - 512, 12 * MIB }, /* a rest of more than 1 MiB is split off */
    { 11 * MIB, 12 * MIB, 12 * MIB },             /* one of exactly 1 MiB is not */
    { 64 * MIB + 1, 64 * MIB + 512, 66 * MIB },
};

Test(pool, sizes_are_rounded_and_segments_chosen_as_pytorch_does)
{
    for (size_t i = 0; i < sizeof size_rows / sizeof *size_rows; i++) {
        const size_row *row = &size_rows[i];
        pool_rig rig;
        rig_init(&rig, RIG_DRY, 0, 3);
        ebb__block *block = rig_take(&rig, row->requested);
        cr_expect(ebb__block_bytes(block) == row->charged, "%zu is charged %zu", row->requested,
                  ebb__block_bytes(block));
        cr_expect(rig_stats(&rig).reserved_bytes == row->reserved, "%zu reserves %zu",
                  row->requested, rig_stats(&rig).reserved_bytes);
        rig_give(&rig, block);
        rig_end(&rig);
    }
}

Test(pool, a_request_of_0_bytes_gives_a_valid_block_without_memory)
{
    pool_rig rig;
    rig_init(&rig, RIG_DRY, 0, 3);
    ebb__block *a = rig_take(&rig, 0), *b = rig_take(&rig, 0), *c = rig_take(&rig, 0);
    cr_assert(a != b && b != c);
    cr_assert(ebb__block_data(a) == NULL && ebb__block_bytes(a) == 0);
    ebb_memory_stats stats = rig_stats(&rig);
    cr_assert(stats.allocated_bytes == 0 && stats.reserved_bytes == 0 && stats.n_allocs == 3);
    rig_give(&rig, b);
    rig_give(&rig, a);
    rig_give(&rig, c);
    rig_end(&rig);
}

Test(pool, data_is_aligned_to_512_bytes)
{
    pool_rig rig;
    rig_init(&rig, RIG_HOST, 0, 3);
    ebb__block *blocks[20];
    for (int i = 0; i < 20; i++) {
        blocks[i] = rig_take(&rig, 1 + (size_t)i * 37777);
        cr_assert((uintptr_t)ebb__block_data(blocks[i]) % 512 == 0);
    }
    for (int i = 0; i < 20; i++) rig_give(&rig, blocks[i]);
    rig_end(&rig);
}

/* ---- splitting and merging --------------------------------------------------------------- */

Test(pool, blocks_are_cut_from_the_front_of_one_segment)
{
    pool_rig rig;
    rig_init(&rig, RIG_DRY, 0, 3);
    ebb__block *a = rig_take(&rig, 1000), *b = rig_take(&rig, 5000), *c = rig_take(&rig, MIB);
    cr_assert((char *)ebb__block_data(b) == (char *)ebb__block_data(a) + 1024);
    cr_assert((char *)ebb__block_data(c) == (char *)ebb__block_data(b) + 5120);
    cr_assert(rig.n_given == 1);
    rig_give(&rig, a);
    rig_give(&rig, b);
    rig_give(&rig, c);
    rig_end(&rig);
}

/* Frees three neighbours in the order of the digits of `order`; one free block must remain. */
static void check_merging(const int order[3])
{
    pool_rig rig;
    rig_init(&rig, RIG_DRY, 0, 3);
    ebb__block *blocks[3];
    for (int i = 0; i < 3; i++) blocks[i] = rig_take(&rig, 100 * KIB);
    for (int i = 0; i < 3; i++) rig_give(&rig, blocks[order[i]]);
    const ebb__free_tree *tree = &rig.pool->free[EBB__POOL_SMALL];
    cr_assert(tree->n_blocks == 1 && ebb__free_tree_first(tree)->bytes == 2 * MIB);
    rig_end(&rig);
}

Test(pool, free_neighbours_are_merged_in_every_order)
{
    static const int orders[6][3] = { { 0, 1, 2 }, { 0, 2, 1 }, { 1, 0, 2 },
                                      { 1, 2, 0 }, { 2, 0, 1 }, { 2, 1, 0 } };
    for (int i = 0; i < 6; i++) check_merging(orders[i]);
}

Test(pool, a_hole_made_by_two_neighbours_serves_a_larger_request)
{
    pool_rig rig;
    rig_init(&rig, RIG_DRY, 2 * MIB, 3);
    ebb__block *blocks[4];
    for (int i = 0; i < 4; i++) blocks[i] = rig_take(&rig, 512 * KIB);
    void *second = ebb__block_data(blocks[1]);
    rig_give(&rig, blocks[1]);
    rig_give(&rig, blocks[2]);
    ebb__block *wide = rig_take(&rig, MIB);
    cr_assert(ebb__block_data(wide) == second);
    rig_give(&rig, blocks[0]);
    rig_give(&rig, wide);
    rig_give(&rig, blocks[3]);
    rig_end(&rig);
}

Test(pool, fragments_that_do_not_touch_do_not_serve_a_larger_request)
{
    pool_rig rig;
    rig_init(&rig, RIG_DRY, 2 * MIB, 3);
    ebb__block *blocks[4], *wide = NULL;
    for (int i = 0; i < 4; i++) blocks[i] = rig_take(&rig, 512 * KIB);
    rig_give(&rig, blocks[0]);
    rig_give(&rig, blocks[2]);
    check_fails(ebb__pool_alloc(rig.pool, &wide, MIB, 0, NULL), EBB_ENOMEM);
    cr_assert(wide == NULL, "a failed request must leave the variable alone");
    rig_give(&rig, blocks[1]);
    rig_give(&rig, blocks[3]);
    rig_end(&rig);
}

/* ---- best fit ---------------------------------------------------------------------------- */

Test(pool, the_smallest_block_that_fits_is_taken)
{
    pool_rig rig;
    rig_init(&rig, RIG_DRY, 0, 3);
    ebb__block *wide = rig_take(&rig, 300 * KIB), *wall1 = rig_take(&rig, 512);
    ebb__block *narrow = rig_take(&rig, 200 * KIB), *wall2 = rig_take(&rig, 512);
    void *narrow_data = ebb__block_data(narrow);
    rig_give(&rig, wide);
    rig_give(&rig, narrow);
    ebb__block *fit = rig_take(&rig, 150 * KIB);
    cr_assert(ebb__block_data(fit) == narrow_data);
    rig_give(&rig, fit);
    rig_give(&rig, wall1);
    rig_give(&rig, wall2);
    rig_end(&rig);
}

Test(pool, among_equal_sizes_the_oldest_segment_and_then_the_lowest_offset_is_taken)
{
    pool_rig rig;
    rig_init(&rig, RIG_DRY, 0, 3);
    ebb__block *blocks[8]; /* two segments of four */
    void *data[8];
    for (int i = 0; i < 8; i++) {
        blocks[i] = rig_take(&rig, 512 * KIB);
        data[i] = ebb__block_data(blocks[i]);
    }
    static const int freed[] = { 6, 2, 4, 0 };
    for (int i = 0; i < 4; i++) rig_give(&rig, blocks[freed[i]]);
    for (int i = 0; i < 8; i += 2) {
        blocks[i] = rig_take(&rig, 512 * KIB);
        cr_assert(ebb__block_data(blocks[i]) == data[i], "request %d went elsewhere", i);
    }
    for (int i = 0; i < 8; i++) rig_give(&rig, blocks[i]);
    rig_end(&rig);
}

Test(pool, streams_and_pools_do_not_share_segments)
{
    pool_rig rig;
    rig_init(&rig, RIG_DRY, 0, 3);
    rig_give(&rig, rig_take_on(&rig, 1000, 0));
    rig_give(&rig, rig_take_on(&rig, 15 * MIB, 0));
    cr_assert(rig.n_given == 2);
    rig_give(&rig, rig_take_on(&rig, 1000, 1));
    cr_assert(rig.n_given == 3, "stream 1 took memory of stream 0");
    rig_give(&rig, rig_take_on(&rig, 2 * MIB, 0));
    cr_assert(rig.n_given == 3, "the large pool's cache was not used");
    rig_give(&rig, rig_take_on(&rig, 1000, -1));
    cr_assert(rig.n_given == 4, "stream -1 took memory of another");
    rig_end(&rig);
}

/* ---- cache ------------------------------------------------------------------------------- */

Test(pool, freed_memory_stays_reserved_and_is_used_again)
{
    pool_rig rig;
    rig_init(&rig, RIG_DRY, 0, 3);
    ebb__block *a = rig_take(&rig, 30 * MIB);
    void *data = ebb__block_data(a);
    rig_give(&rig, a);
    ebb_memory_stats stats = rig_stats(&rig);
    cr_assert(stats.allocated_bytes == 0 && stats.reserved_bytes == 30 * MIB);
    ebb__block *b = rig_take(&rig, 30 * MIB);
    cr_assert(ebb__block_data(b) == data && rig.n_given == 1);
    rig_give(&rig, b);
    rig_end(&rig);
}

Test(pool, empty_cache_returns_whole_free_segments_only)
{
    pool_rig rig;
    rig_init(&rig, RIG_DRY, 0, 3);
    ebb__block *kept = rig_take(&rig, 3 * MIB), *gone = rig_take(&rig, 3 * MIB);
    ebb__block *whole = rig_take(&rig, 40 * MIB), *small = rig_take(&rig, 100);
    rig_give(&rig, gone);
    rig_give(&rig, whole);
    rig_give(&rig, small);
    cr_assert(rig_stats(&rig).reserved_bytes == 62 * MIB);
    ebb__pool_empty_cache(rig.pool);
    ebb_memory_stats stats = rig_stats(&rig);
    cr_assert(stats.reserved_bytes == 20 * MIB && stats.allocated_bytes == 3 * MIB);
    cr_assert(stats.n_segment_allocs == 3 && stats.n_segment_frees == 2 && rig.n_returned == 2);
    rig_give(&rig, kept);
    ebb__pool_empty_cache(rig.pool);
    cr_assert(rig_stats(&rig).reserved_bytes == 0 && rig.bytes_out == 0);
    rig_end(&rig);
}

/* Field case B42 (pytorch/pytorch#95827): small requests must not occupy large cached blocks, and
 * sizes must not be rounded to powers of two. */
Test(pool, a_small_request_does_not_occupy_a_large_cached_block)
{
    pool_rig rig;
    rig_init(&rig, RIG_DRY, 0, 3);
    rig_give(&rig, rig_take(&rig, 64 * MIB));
    ebb__block *small = rig_take(&rig, 10 * KIB), *large = rig_take(&rig, 64 * MIB);
    ebb_memory_stats stats = rig_stats(&rig);
    cr_assert(stats.reserved_bytes == 66 * MIB, "%zu reserved", stats.reserved_bytes);
    cr_assert(stats.allocated_bytes == 64 * MIB + 10 * KIB);
    ebb__block *odd = rig_take(&rig, 64 * MIB + 1);
    cr_assert(rig_stats(&rig).reserved_bytes == 132 * MIB);
    rig_give(&rig, small);
    rig_give(&rig, large);
    rig_give(&rig, odd);
    rig_end(&rig);
}

/* ---- limit and refusal ------------------------------------------------------------------- */

Test(pool, the_limit_is_tested_before_the_provider_is_asked)
{
    pool_rig rig;
    rig_init(&rig, RIG_DRY, 22 * MIB, 3);
    ebb__block *a = rig_take(&rig, 20 * MIB), *b = NULL;
    check_fails(ebb__pool_alloc(rig.pool, &b, 20 * MIB, 0, NULL), EBB_ENOMEM);
    cr_assert(rig.n_given == 1 && b == NULL);
    ebb__block *c = rig_take(&rig, 100); /* exactly at the limit */
    ebb_memory_stats stats = rig_stats(&rig);
    cr_assert(stats.reserved_bytes == 22 * MIB && stats.n_ooms == 1 && stats.n_alloc_retries == 1);
    rig_give(&rig, a);
    rig_give(&rig, c);
    rig_end(&rig);
}

Test(pool, cached_segments_are_given_up_when_the_limit_is_reached)
{
    pool_rig rig;
    rig_init(&rig, RIG_DRY, 30 * MIB, 3);
    rig_give(&rig, rig_take(&rig, 20 * MIB));
    ebb__block *b = rig_take(&rig, 24 * MIB);
    ebb_memory_stats stats = rig_stats(&rig);
    cr_assert(stats.reserved_bytes == 24 * MIB && stats.peak_reserved_bytes == 24 * MIB);
    cr_assert(stats.n_alloc_retries == 1 && stats.n_ooms == 0 && rig.n_returned == 1);
    rig_give(&rig, b);
    rig_end(&rig);
}

Test(pool, cached_segments_are_given_up_when_the_provider_refuses)
{
    pool_rig rig;
    rig_init(&rig, RIG_DRY, 0, 3);
    rig_give(&rig, rig_take(&rig, 20 * MIB));
    rig.n_refusals = 1;
    ebb__block *b = rig_take(&rig, 24 * MIB);
    cr_assert(rig_stats(&rig).n_alloc_retries == 1 && rig.n_returned == 1);
    rig_give(&rig, b);
    rig_end(&rig);
}

Test(pool, a_limit_below_what_is_reserved_stops_growth_but_not_reuse)
{
    pool_rig rig;
    rig_init(&rig, RIG_DRY, 0, 3);
    ebb__block *a = rig_take(&rig, 12 * MIB), *b = rig_take(&rig, 5 * MIB), *none = NULL;
    ebb__pool_set_limit(rig.pool, 4 * MIB);
    check_fails(ebb__pool_alloc(rig.pool, &none, 64, 0, NULL), EBB_ENOMEM);
    ebb__block *c = rig_take(&rig, 5 * MIB);
    ebb__pool_set_limit(rig.pool, 0);
    ebb__block *d = rig_take(&rig, 64);
    rig_give(&rig, a);
    rig_give(&rig, b);
    rig_give(&rig, c);
    rig_give(&rig, d);
    rig_end(&rig);
}

Test(pool, a_size_that_cannot_be_rounded_is_out_of_memory)
{
    static const size_t sizes[] = { SIZE_MAX, SIZE_MAX - 511, SIZE_MAX / 2, SIZE_MAX / 2 + 1 };
    pool_rig rig;
    rig_init(&rig, RIG_DRY, 0, 3);
    for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++) {
        ebb__block *block = NULL;
        char text[32];
        snprintf(text, sizeof text, "%zu bytes", sizes[i]);
        check_fails(ebb__pool_alloc(rig.pool, &block, sizes[i], 0, NULL), EBB_ENOMEM);
        check_message(text);
        cr_assert(block == NULL);
    }
    cr_assert(rig_stats(&rig).n_ooms == 4 && rig.n_given == 0);
    rig_end(&rig);
}

/* ---- misuse ------------------------------------------------------------------------------ */

Test(pool, releasing_NULL_does_nothing)
{
    pool_rig rig;
    rig_init(&rig, RIG_DRY, 0, 3);
    ebb__pool_release(rig.pool, NULL);
    ebb__pool_free(NULL);
    cr_assert(rig_stats(&rig).n_frees == 0);
    rig_end(&rig);
}

Test(pool, a_second_release_stops_the_program, .signal = SIGABRT)
{
    pool_rig rig;
    rig_init(&rig, RIG_DRY, 0, 1);
    ebb__block *a = rig_take(&rig, 1000);
    rig_give(&rig, a);
    rig_give(&rig, a);
}

Test(pool, a_second_release_of_a_block_that_was_merged_away_stops_the_program, .signal = SIGABRT)
{
    pool_rig rig;
    rig_init(&rig, RIG_DRY, 0, 1);
    ebb__block *a = rig_take(&rig, 1000), *b = rig_take(&rig, 1000);
    rig_give(&rig, a);
    rig_give(&rig, b);
    rig_give(&rig, b);
}

Test(pool, a_second_release_of_a_block_of_0_bytes_stops_the_program, .signal = SIGABRT)
{
    pool_rig rig;
    rig_init(&rig, RIG_DRY, 0, 1);
    ebb__block *a = rig_take(&rig, 0);
    rig_give(&rig, a);
    rig_give(&rig, a);
}

Test(pool, a_release_to_another_pool_stops_the_program, .signal = SIGABRT)
{
    pool_rig ours, other;
    rig_init(&ours, RIG_DRY, 0, 1);
    rig_init(&other, RIG_DRY, 0, 1);
    ebb__pool_release(other.pool, rig_take(&ours, 1000));
}

Test(pool, freeing_a_pool_with_live_blocks_stops_the_program, .signal = SIGABRT)
{
    pool_rig rig;
    rig_init(&rig, RIG_DRY, 0, 1);
    (void)rig_take(&rig, 1000);
    ebb__pool_free(rig.pool);
}
