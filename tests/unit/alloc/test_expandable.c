/* Segments that grow. */
#include <string.h>

#include "pool_rig.h"

static const char conf[] = "expandable_segments:True";

Test(expandable, one_segment_grows_by_pages_and_large_blocks_lie_side_by_side)
{
    pool_rig rig;
    rig_init_conf(&rig, RIG_DRY, 0, 3, conf);
    ebb__block *a = rig_take(&rig, 5 * MIB), *b = rig_take(&rig, 30 * MIB),
               *c = rig_take(&rig, 2 * MIB);
    cr_assert(rig_stats(&rig).reserved_bytes == 38 * MIB, "%zu", rig_stats(&rig).reserved_bytes);
    cr_assert(rig.n_given == 1);
    cr_assert(ebb__block_segment(a) == ebb__block_segment(c) && ebb__block_offset(b) == 5 * MIB);
    cr_assert(ebb__block_offset(c) == 35 * MIB);
    rig_give(&rig, a);
    rig_give(&rig, b);
    rig_give(&rig, c);
    ebb__pool_empty_cache(rig.pool);
    cr_assert(rig_stats(&rig).reserved_bytes == 0 && rig.n_returned == 1,
              "the segment did not end");
    rig_end(&rig);
}

Test(expandable, whole_free_pages_are_moved_before_memory_is_added)
{
    pool_rig rig;
    rig_init_conf(&rig, RIG_DRY, 0, 3, conf);
    ebb__block *a = rig_take(&rig, 10 * MIB), *b = rig_take(&rig, 4 * MIB),
               *c = rig_take(&rig, 10 * MIB);
    ebb__block *d = rig_take(&rig, 4 * MIB);
    cr_assert(rig_stats(&rig).reserved_bytes == 28 * MIB);
    rig_give(&rig, a);
    rig_give(&rig, c);
    ebb__block *e = rig_take(&rig, 20 * MIB); /* fits no hole, but the pages of both */
    cr_assert(rig_stats(&rig).reserved_bytes == 28 * MIB, "%zu", rig_stats(&rig).reserved_bytes);
    cr_assert(rig.n_moves > 0 && ebb__block_offset(e) == 28 * MIB);
    ebb__block *f = rig_take(&rig, 3 * MIB); /* into the hole's addresses, with new memory */
    cr_assert(ebb__block_offset(f) == 0 && rig_stats(&rig).reserved_bytes == 32 * MIB);
    rig_give(&rig, b);
    rig_give(&rig, d);
    rig_give(&rig, e);
    rig_give(&rig, f);
    rig_end(&rig);
}

Test(expandable, pages_move_from_small_blocks_to_large_ones)
{
    pool_rig rig;
    rig_init_conf(&rig, RIG_DRY, 0, 3, conf);
    ebb__block *small[12];
    for (int i = 0; i < 12; i++) small[i] = rig_take(&rig, MIB);
    for (int i = 0; i < 12; i++) rig_give(&rig, small[i]);
    cr_assert(rig_stats(&rig).reserved_bytes == 12 * MIB &&
              rig_stat(&rig, "reserved_bytes.small_pool.current") == 12 * MIB);
    ebb__block *large = rig_take(&rig, 12 * MIB);
    cr_assert(rig_stats(&rig).reserved_bytes == 12 * MIB &&
              rig_stat(&rig, "reserved_bytes.large_pool.current") == 12 * MIB);
    rig_give(&rig, large);
    rig_end(&rig);
}

Test(expandable, streams_have_their_own_segments_and_share_no_page)
{
    pool_rig rig;
    rig_init_conf(&rig, RIG_DRY, 0, 3, conf);
    rig_give(&rig, rig_take_on(&rig, 8 * MIB, 1));
    ebb__block *b = rig_take(&rig, 8 * MIB);
    cr_assert(rig_stats(&rig).reserved_bytes == 16 * MIB && rig.n_given == 2 && rig.n_moves == 0);
    rig_give(&rig, b);
    rig_end(&rig);
}

Test(expandable, only_whole_free_pages_go_back)
{
    pool_rig rig;
    rig_init_conf(&rig, RIG_HOST, 0, 3, conf);
    ebb__block *a = rig_take(&rig, 7 * MIB), *b = rig_take(&rig, 2 * MIB),
               *c = rig_take(&rig, 9 * MIB);
    memset(ebb__block_data(b), 7, 2 * MIB);
    rig_give(&rig, a);
    rig_give(&rig, c);
    ebb__pool_empty_cache(rig.pool); /* b lies in [7, 9) MiB: the pages of [6, 10) stay */
    cr_assert(rig_stats(&rig).reserved_bytes == 4 * MIB, "%zu", rig_stats(&rig).reserved_bytes);
    const unsigned char *data = ebb__block_data(b);
    cr_assert(data[0] == 7 && data[2 * MIB - 1] == 7);
    cr_assert(ebb__pool_resident_bytes(rig.pool) == 4 * MIB);
    ebb__block *d = rig_take(&rig, 6 * MIB);
    memset(ebb__block_data(d), 1, 6 * MIB);
    cr_assert(rig_stats(&rig).reserved_bytes == 10 * MIB);
    rig_give(&rig, b);
    rig_give(&rig, d);
    rig_end(&rig);
}

Test(expandable, the_limit_is_of_memory_not_of_addresses)
{
    pool_rig rig;
    rig_init_conf(&rig, RIG_DRY, 20 * MIB, 3, conf);
    ebb__block *a = rig_take(&rig, 9 * MIB), *b = rig_take(&rig, 9 * MIB), *none = NULL;
    check_fails(ebb__pool_alloc(rig.pool, &none, 4 * MIB, 0, NULL), EBB_ENOMEM);
    rig_give(&rig, a);
    ebb__block *c = rig_take(&rig, 10 * MIB); /* 8 of a's pages move, 2 are added */
    cr_assert(rig_stats(&rig).reserved_bytes == 20 * MIB);
    rig_give(&rig, b);
    rig_give(&rig, c);
    rig_end(&rig);
}

Test(expandable, a_refused_page_leaves_the_pool_sound)
{
    pool_rig rig;
    rig_init_conf(&rig, RIG_DRY, 0, 3, conf);
    ebb__block *a = rig_take(&rig, 6 * MIB), *b = rig_take(&rig, 2 * MIB), *none = NULL;
    rig_give(&rig, a);
    rig.n_refusals = 2;
    check_fails(ebb__pool_alloc(rig.pool, &none, 12 * MIB, 0, NULL), EBB_ENOMEM);
    check_message("out of memory");
    rig.n_refusals = 0;
    ebb__block *c = rig_take(&rig, 12 * MIB);
    rig_give(&rig, b);
    rig_give(&rig, c);
    rig_end(&rig);
}

Test(expandable, a_provider_without_pages_is_refused)
{
    ebb__provider host = ebb__page_provider();
    ebb__alloc_options alloc = ebb__alloc_options_default();
    ebb__pool *pool = NULL;
    alloc.expandable_segments = true;
    check_fails(ebb__pool_new(&pool, host, &(ebb__pool_options){ .alloc = &alloc }),
                EBB_EUNSUPPORTED);
    check_no_live_blocks();
}

static void *reserve_little(void *self, size_t bytes)
{
    ebb__provider host = ebb__host_provider();
    (void)self;
    return bytes <= 64 * MIB ? host.reserve(host.self, bytes) : NULL;
}

Test(expandable, where_addresses_are_scarce_there_are_more_segments)
{
    ebb__provider provider = ebb__host_provider();
    ebb__alloc_options alloc = ebb__alloc_options_default();
    ebb__pool *pool = NULL;
    ebb__block *blocks[10];
    ebb_memory_stats stats;
    provider.reserve = reserve_little;
    alloc.expandable_segments = true;
    check_ok(ebb__pool_new(&pool, provider, &(ebb__pool_options){ .checks = 3, .alloc = &alloc }));
    for (int i = 0; i < 10; i++) check_ok(ebb__pool_alloc(pool, &blocks[i], 30 * MIB, 0, NULL));
    ebb__pool_stats(pool, &stats);
    cr_assert(stats.n_segment_allocs == 5 && stats.reserved_bytes == 300 * MIB);
    for (int i = 0; i < 10; i++) ebb__pool_release(pool, blocks[i]);
    ebb__pool_free(pool);
    check_no_live_blocks();
}
