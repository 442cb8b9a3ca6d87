/* What each option does, case by case; the random tests cover their mixtures. */
#include <stdio.h>
#include <string.h>

#include "pool_rig.h"

Test(pool_options, sizes_are_rounded_to_divisions_of_a_power_of_two)
{
    pool_rig rig;
    rig_init_conf(&rig, RIG_DRY, 0, 3, "roundup_power2_divisions:4");
    static const size_t sizes[][2] = {
        /* asked for, got */
        { 600, 1024 },  { 2048, 2048 },   { 2049, 2560 },   { 2600, 3072 },
        { 5000, 5120 }, { 65536, 65536 }, { 65537, 81920 }, { 100000, 114688 },
    };
    for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++) {
        ebb__block *b = rig_take(&rig, sizes[i][0]);
        cr_assert(ebb__block_bytes(b) == sizes[i][1], "%zu became %zu", sizes[i][0],
                  ebb__block_bytes(b));
        rig_give(&rig, b);
    }
    rig_end(&rig);
}

Test(pool_options, divisions_hold_for_their_interval_only)
{
    pool_rig rig;
    rig_init_conf(&rig, RIG_DRY, 0, 3, "roundup_power2_divisions:[2:1,4:2,>:1]");
    ebb__block *a = rig_take(&rig, 5 * MIB), *b = rig_take(&rig, 17 * MIB + 1);
    cr_assert(ebb__block_bytes(a) == 6 * MIB, "%zu", ebb__block_bytes(a));
    rig_give(&rig, a);
    rig_give(&rig, b);
    rig_end(&rig);
}

Test(pool_options, a_block_above_max_split_is_neither_split_nor_given_to_a_small_request)
{
    pool_rig rig;
    rig_init_conf(&rig, RIG_DRY, 0, 3, "max_split_size_mb:32,max_non_split_rounding_mb:8");
    ebb__block *a = rig_take(&rig, 40 * MIB);
    cr_assert(rig_stat(&rig, "oversize_allocations.current") == 1 &&
              rig_stat(&rig, "oversize_segments.current") == 1);
    rig_give(&rig, a);
    ebb__block *b = rig_take(&rig, 31 * MIB); /* below max_split: a segment of its own */
    cr_assert(rig_stats(&rig).reserved_bytes == 40 * MIB + 32 * MIB);
    ebb__block *c =
        rig_take(&rig, 33 * MIB); /* oversize, 7 MiB less than what is there: taken whole */
    cr_assert(ebb__block_bytes(c) == 40 * MIB && rig_stats(&rig).reserved_bytes == 72 * MIB);
    rig_give(&rig, c);
    ebb__block *d = rig_take(&rig, 32 * MIB); /* 8 MiB less: too much would be lost */
    cr_assert(ebb__block_bytes(d) == 32 * MIB && rig_stats(&rig).reserved_bytes == 104 * MIB);
    rig_give(&rig, b);
    rig_give(&rig, d);
    rig_end(&rig);
}

Test(pool_options, oversize_segments_are_given_up_before_the_rest_of_the_cache)
{
    pool_rig rig;
    rig_init_conf(&rig, RIG_DRY, 100 * MIB, 3, "max_split_size_mb:21,max_non_split_rounding_mb:1");
    ebb__block *small = rig_take(&rig, 15 * MIB), *a = rig_take(&rig, 30 * MIB),
               *b = rig_take(&rig, 40 * MIB);
    rig_give(&rig, small);
    rig_give(&rig, a);
    rig_give(&rig, b);
    ebb__block *c = rig_take(&rig, 50 * MIB); /* no single one is large enough: 40 and 30 go */
    cr_assert(rig_stats(&rig).reserved_bytes == 16 * MIB + 50 * MIB, "%zu",
              rig_stats(&rig).reserved_bytes);
    cr_assert(rig_stats(&rig).n_alloc_retries == 0);
    ebb__block *d = rig_take(&rig, 15 * MIB); /* still cached */
    cr_assert(rig_stats(&rig).reserved_bytes == 66 * MIB);
    rig_give(&rig, c);
    ebb__block *e = rig_take(&rig, 21 * MIB); /* the limit has room: nothing is given up */
    cr_assert(rig_stats(&rig).reserved_bytes == 88 * MIB);
    ebb__block *f =
        rig_take(&rig, 23 * MIB); /* one that is larger than max_split and enough goes */
    cr_assert(rig_stats(&rig).reserved_bytes == 16 * MIB + 22 * MIB + 24 * MIB);
    rig_give(&rig, d);
    rig_give(&rig, e);
    rig_give(&rig, f);
    rig_end(&rig);
}

Test(pool_options, garbage_collection_returns_what_lay_unused_longest)
{
    pool_rig rig;
    rig_init_conf(&rig, RIG_DRY, 200 * MIB, 3, "garbage_collection_threshold:0.4");
    ebb__block *old = rig_take(&rig, 30 * MIB), *young = rig_take(&rig, 40 * MIB),
               *used = rig_take(&rig, 20 * MIB);
    rig_give(&rig, old);
    for (int i = 0; i < 10; i++) rig_give(&rig, rig_take(&rig, 1000)); /* time passes */
    rig_give(&rig, young);
    ebb__block *b = rig_take(&rig, 60 * MIB); /* 92 MiB is above 80 */
    cr_assert(rig_stats(&rig).reserved_bytes == (40 + 20 + 2 + 60) * MIB, "%zu",
              rig_stats(&rig).reserved_bytes);
    cr_assert(rig_stats(&rig).n_alloc_retries == 0);
    rig_give(&rig, b);
    rig_give(&rig, used);
    rig_end(&rig);
}

Test(pool_options, deferred_blocks_are_freed_together_or_when_they_are_needed)
{
    pool_rig rig;
    rig_init_conf(&rig, RIG_DRY, 0, 3, "deferred_release_mb:9");
    ebb__block *a = rig_take(&rig, 4 * MIB), *b = rig_take(&rig, 4 * MIB),
               *c = rig_take(&rig, 4 * MIB);
    rig_give(&rig, a);
    rig_give(&rig, b);
    cr_assert(rig_stats(&rig).allocated_bytes == 4 * MIB);
    cr_assert(rig_stat(&rig, "active_bytes.all.current") == 12 * MIB);
    ebb__block *d =
        rig_take(&rig, 6 * MIB); /* fits the hole of the segment: nothing is freed for it */
    cr_assert(rig_stat(&rig, "active_bytes.all.current") == 18 * MIB);
    ebb__block *e = rig_take(&rig, 6 * MIB); /* fits nowhere: a and b become one hole */
    cr_assert(rig_stat(&rig, "active_bytes.all.current") == 16 * MIB);
    cr_assert(rig_stats(&rig).reserved_bytes == 20 * MIB);
    rig_give(&rig, c);
    rig_give(&rig, d); /* 10 MiB: more than the bound */
    cr_assert(rig_stat(&rig, "active_bytes.all.current") == 6 * MIB);
    rig_give(&rig, e);
    rig_end(&rig);
}

/* Case B42. */
Test(pool_options, a_cached_large_block_is_not_spent_on_a_small_request)
{
    pool_rig rig;
    rig_init(&rig, RIG_DRY, 0, 3);
    rig_give(&rig, rig_take(&rig, 64 * MIB));
    ebb__block *t2 = rig_take(&rig, 10 * KIB), *t3 = rig_take(&rig, 64 * MIB);
    cr_assert(rig_stats(&rig).reserved_bytes <= 66 * MIB, "%zu", rig_stats(&rig).reserved_bytes);
    cr_assert(rig_stats(&rig).allocated_bytes == 64 * MIB + 10 * KIB);
    size_t before = rig_stats(&rig).reserved_bytes;
    ebb__block *t4 = rig_take(&rig, 64 * MIB + 1);
    cr_assert(rig_stats(&rig).reserved_bytes - before == 66 * MIB);
    rig_give(&rig, t2);
    rig_give(&rig, t3);
    rig_give(&rig, t4);
    rig_end(&rig);
}

Test(pool_options, pinned_sizes_are_exact_to_a_page)
{
    pool_rig rig;
    rig_init_with(&rig, RIG_HOST, &(ebb__pool_options){ .checks = 3, .exact = true });
    ebb__block *a = rig_take(&rig, 64 * MIB + 1), *b = rig_take(&rig, 100);
    cr_assert(ebb__block_bytes(a) == 64 * MIB + 4096 &&
              rig_stats(&rig).reserved_bytes == 64 * MIB + 2 * 4096);
    memset(ebb__block_data(a), 1, ebb__block_requested(a));
    rig_give(&rig, a);
    ebb__block *c = rig_take(&rig, 64 * MIB); /* a page less: not the same size */
    cr_assert(rig_stats(&rig).reserved_bytes == 128 * MIB + 2 * 4096);
    ebb__block *d = rig_take(&rig, 64 * MIB + 4000);
    cr_assert(rig_stats(&rig).reserved_bytes == 128 * MIB + 2 * 4096,
              "the cached block was not used");
    rig_give(&rig, b);
    rig_give(&rig, c);
    rig_give(&rig, d);
    ebb__pool_empty_cache(rig.pool);
    cr_assert(rig_stats(&rig).reserved_bytes == 0);
    rig_end(&rig);
}

static void advise(void *self, size_t wanted_bytes, char *buf, size_t buf_bytes)
{
    snprintf(buf, buf_bytes, "%s would free %zu bytes", (const char *)self, wanted_bytes);
}

Test(pool_options, an_adviser_adds_to_the_message_and_other_streams_memory_is_named)
{
    pool_rig rig;
    char name[] = "checkpointing blocks.3";
    rig_init(&rig, RIG_DRY, 30 * MIB, 3);
    ebb__pool_set_adviser(rig.pool, advise, name);
    ebb__block *a = rig_take_on(&rig, MIB, 2), *b = rig_take_on(&rig, 3 * MIB, 2), *none = NULL;
    check_fails(ebb__pool_alloc(rig.pool, &none, 20 * MIB, 0, NULL), EBB_ENOMEM);
    check_message("free 18.00 MiB that only stream 2 may use");
    check_message("; checkpointing blocks.3 would free 20971520 bytes");
    rig_give(&rig, a);
    rig_give(&rig, b);
    rig_end(&rig);
}

Test(pool_options, room_made_by_giving_up_oversize_segments_is_used)
{
    pool_rig rig;
    rig_init_conf(&rig, RIG_DRY, 180 * MIB, 3, "max_split_size_mb:32");
    rig_give(&rig, rig_take(&rig, 100 * MIB));
    ebb__block *b = rig_take(&rig, 150 * MIB); /* 100 given up is less than asked for, but room enough */
    cr_assert(ebb__block_bytes(b) == 150 * MIB);
    rig_give(&rig, b);
    rig_end(&rig);
}
