/* PyTorch's names and what they count. */
#include <string.h>

#include "pool_rig.h"

static void count_key(void *user, const char *key, uint64_t value)
{
    (void)value;
    int *n = user;
    n[0]++;
    n[1] += strncmp(key, "oversize_", 9) == 0;
    n[2] += strncmp(key, "num_", 4) == 0;
}

Test(counters, every_key_is_there_once)
{
    pool_rig rig;
    int n[3] = { 0 };
    rig_init(&rig, RIG_DRY, 0, 3);
    ebb__pool_each_stat(rig.pool, count_key, n);
    cr_assert(n[0] == 9 * 3 * 4 + 2 * 4 + 6 && n[1] == 8 && n[2] == 5, "%d keys", n[0]);
    cr_assert(rig_stat(&rig, "max_split_size") == UINT64_MAX);
    rig_end(&rig);
}

Test(counters, a_small_and_a_large_block_are_counted_apart_and_together)
{
    pool_rig rig;
    rig_init(&rig, RIG_DRY, 0, 3);
    ebb__block *a = rig_take(&rig, 1000), *b = rig_take(&rig, 3 * MIB);
    static const struct {
        const char *key;
        uint64_t value;
    } expected[] = {
        { "allocation.all.current", 2 },
        { "allocation.small_pool.current", 1 },
        { "allocated_bytes.small_pool.current", 1024 },
        { "allocated_bytes.large_pool.current", 3 << 20 },
        { "allocated_bytes.all.current", (3 << 20) + 1024 },
        { "requested_bytes.all.current", (3 << 20) + 1000 },
        { "active.large_pool.allocated", 1 },
        { "segment.all.current", 2 },
        { "reserved_bytes.all.current", 22 << 20 },
        { "reserved_bytes.small_pool.peak", 2 << 20 },
        { "inactive_split.all.current", 2 },
        { "inactive_split_bytes.small_pool.current", (2 << 20) - 1024 },
        { "num_device_alloc", 2 },
        { "num_device_free", 0 },
    };
    for (size_t i = 0; i < sizeof expected / sizeof *expected; i++)
        cr_assert(rig_stat(&rig, expected[i].key) == expected[i].value, "%s: %llu", expected[i].key,
                  (unsigned long long)rig_stat(&rig, expected[i].key));
    rig_give(&rig, a);
    rig_give(&rig, b);
    cr_assert(rig_stat(&rig, "allocation.all.current") == 0 &&
              rig_stat(&rig, "allocation.all.peak") == 2);
    cr_assert(rig_stat(&rig, "allocation.all.freed") == 2 &&
              rig_stat(&rig, "inactive_split.all.current") == 0);
    rig_end(&rig);
}

Test(counters, peaks_and_sums_are_reset_apart)
{
    pool_rig rig;
    rig_init(&rig, RIG_DRY, 0, 3);
    ebb__block *a = rig_take(&rig, 3 * MIB);
    rig_give(&rig, rig_take(&rig, 5 * MIB));
    ebb__pool_reset_peak(rig.pool);
    cr_assert(rig_stat(&rig, "allocated_bytes.all.peak") == 3 * MIB);
    cr_assert(rig_stat(&rig, "allocated_bytes.all.allocated") == 8 * MIB);
    ebb__pool_reset_accumulated(rig.pool);
    cr_assert(rig_stat(&rig, "allocated_bytes.all.allocated") == 0 &&
              rig_stat(&rig, "num_device_alloc") == 0);
    cr_assert(rig_stat(&rig, "allocated_bytes.all.current") == 3 * MIB);
    rig_give(&rig, a);
    cr_assert(rig_stat(&rig, "allocated_bytes.all.freed") == 3 * MIB);
    rig_end(&rig);
}
