/* Every allocation that the pool makes fails once; nothing leaks and nothing changes. */
#include <string.h>

#include "alloc/plan.h"
#include "pool_rig.h"

enum { N_TAKES = 70 }; /* more than one slab of block structs */

static size_t nth_bytes(int i)
{
    static const size_t sizes[] = { 100, 0, 3 * MIB, 40 * KIB, 21 * MIB, 700 * KIB, 900 * KIB };
    return sizes[i % (int)(sizeof sizes / sizeof *sizes)];
}

/* Takes a block; a failure must leave the pool as it was, and the next try must succeed.  But an
 * expandable segment may have grown by some cached pages, and deferred blocks may have been freed. */
static ebb__block *take_twice(ebb__pool *pool, size_t bytes)
{
    bool exact = !pool->options.expandable_segments && !pool->options.deferred_release_bytes;
    ebb__block *block = NULL;
    ebb_memory_stats before, after;
    uint64_t hash = ebb__pool_fingerprint(pool);
    ebb__pool_stats(pool, &before);
    for (int attempt = 0; attempt < 2; attempt++) {
        ebb_status status = ebb__pool_alloc(pool, &block, bytes, 0, NULL);
        if (status == EBB_OK) return block;
        cr_assert(status == EBB_ENOMEM && block == NULL && ebb_fault_fired());
        check_message("made to fail");
        ebb__pool_stats(pool, &after);
        cr_assert(!exact || memcmp(&before, &after, sizeof after) == 0,
                  "a failure changed the statistics");
        cr_assert(!exact || ebb__pool_fingerprint(pool) == hash, "a failure changed the layout");
        cr_assert(after.allocated_bytes == before.allocated_bytes);
        cr_assert(ebb__pool_check(pool), "%s", ebb_message());
    }
    cr_assert(false, "one fault failed two requests");
    return NULL;
}

static uint64_t play_on(ebb__pool *pool)
{
    ebb__block *blocks[N_TAKES];
    for (int i = 0; i < N_TAKES; i++) blocks[i] = take_twice(pool, nth_bytes(i));
    for (int i = 0; i < N_TAKES; i += 2) ebb__pool_release(pool, blocks[i]);
    for (int i = 0; i < N_TAKES; i += 2) blocks[i] = take_twice(pool, nth_bytes(i) + 3000);
    uint64_t hash = ebb__pool_fingerprint(pool);
    for (int i = 0; i < N_TAKES; i++) ebb__pool_release(pool, blocks[i]);
    return hash;
}

/* The layout's hash at the end, or 0 where provider or pool could not be made. */
static uint64_t play(const char *conf)
{
    ebb__alloc_options alloc = ebb__alloc_options_default();
    ebb__provider provider;
    check_ok(ebb__alloc_options_parse(&alloc, conf, "test"));
    ebb__pool *pool = NULL;
    uint64_t hash = 0;
    ebb_status status = ebb__dry_provider_new(&provider);
    if (status == EBB_OK) {
        status =
            ebb__pool_new(&pool, provider, &(ebb__pool_options){ .checks = 1, .alloc = &alloc });
        if (status == EBB_OK) hash = play_on(pool);
        ebb__pool_free(pool);
        ebb__dry_provider_free(&provider);
    }
    cr_assert(hash != 0 || (status == EBB_ENOMEM && pool == NULL));
    check_no_live_blocks();
    return hash;
}

static void check_every_fault(const char *conf, bool same_layout)
{
    ebb_fault_arm(0);
    uint64_t expected = play(conf);
    uint64_t n_total = ebb_fault_count();
    cr_assert(n_total > 2 + N_TAKES * 3 / 2, "%llu allocations", (unsigned long long)n_total);
    for (uint64_t n = 1; n <= n_total; n++) {
        ebb_fault_arm(n);
        uint64_t hash = play(conf);
        cr_assert(ebb_fault_fired(), "allocation %llu did not fail", (unsigned long long)n);
        cr_assert(n <= 2 ? hash == 0 : !same_layout || hash == expected,
                  "another layout after fault %llu", (unsigned long long)n);
    }
    ebb_fault_arm(0);
}

Test(pool_faults, any_one_failing_allocation_leaves_the_pool_as_it_was)
{
    check_every_fault("", true);
    check_every_fault("max_split_size_mb:21,roundup_power2_divisions:4", true);
    check_every_fault("deferred_release_mb:8", false);
    check_every_fault("expandable_segments:True", false);
}

/* A run with a trace, a plan made from it, and a pool that follows it; the status of what failed. */
static ebb_status trace_and_follow(void)
{
    ebb__provider provider;
    ebb__pool *pool = NULL, *planned = NULL;
    ebb__plan *plan = NULL;
    ebb__block *block = NULL;
    ebb_status status = ebb__dry_provider_new(&provider);
    if (status != EBB_OK) return status;
    status = ebb__pool_new(&pool, provider, NULL);
    if (status == EBB_OK) status = ebb__trace_start(pool, 100);
    if (status == EBB_OK) status = ebb__pool_alloc(pool, &block, 5000, 0, NULL);
    if (status == EBB_OK) status = ebb__pool_record_stream(pool, block, 0);
    if (block) ebb__pool_release(pool, block);
    block = NULL;
    if (status == EBB_OK) status = ebb__plan_from_trace(&plan, pool);
    if (status == EBB_OK) status = ebb__pool_new(&planned, provider, NULL);
    if (status == EBB_OK) {
        status = ebb__pool_follow_plan(planned, plan);
        plan = NULL;
    }
    if (status == EBB_OK) status = ebb__pool_alloc(planned, &block, 5000, 0, NULL);
    if (block) ebb__pool_release(planned, block);
    ebb__plan_free(plan);
    ebb__pool_free(planned);
    ebb__pool_free(pool);
    ebb__dry_provider_free(&provider);
    return status;
}

Test(pool_faults, a_trace_or_a_plan_that_finds_no_memory_leaves_nothing_behind)
{
    uint64_t n = 0;
    ebb_status status = EBB_ENOMEM;
    while (status != EBB_OK && n < 100) {
        ebb_fault_arm(++n);
        status = trace_and_follow();
        ebb_fault_arm(0);
        cr_assert(status == EBB_OK || status == EBB_ENOMEM, "%s", ebb_message());
        check_no_live_blocks();
    }
    cr_assert(status == EBB_OK && n > 12, "%llu allocations", (unsigned long long)n);
}

Test(pool_faults, every_request_counts_one_tick_and_a_steady_state_no_more)
{
    pool_rig rig;
    rig_init(&rig, RIG_DRY, 0, 1);
    ebb__block *kept = rig_take(&rig, 1000);
    rig_give(&rig, rig_take(&rig, 5000));
    ebb_fault_arm(0);
    for (int i = 0; i < 100; i++) rig_give(&rig, rig_take(&rig, 5000));
    cr_assert(ebb_fault_count() == 100, "%llu ticks", (unsigned long long)ebb_fault_count());
    rig_give(&rig, kept);
    rig_end(&rig);
}
