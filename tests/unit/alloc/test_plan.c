/* The offset plan: packing, and pools that follow it. */
#include <string.h>

#include "alloc/plan.h"
#include "core/rng.h"
#include "pool_rig.h"

static uint32_t draw(uint64_t seed, uint64_t step)
{
    uint32_t word[4];
    ebb__philox(seed, step, word);
    return word[0];
}

static size_t largest_live(const ebb__planned *blocks, size_t n)
{
    size_t most = 0;
    for (size_t i = 0; i < n; i++) {
        size_t sum = 0;
        for (size_t k = 0; k < n; k++)
            if (blocks[k].begin <= blocks[i].begin && blocks[i].begin < blocks[k].end)
                sum += blocks[k].bytes;
        if (sum > most) most = sum;
    }
    return most;
}

static void check_apart(const ebb__planned *blocks, size_t n, size_t bytes)
{
    for (size_t i = 0; i < n; i++) {
        cr_assert(blocks[i].offset + blocks[i].bytes <= bytes);
        for (size_t k = 0; k < i; k++) {
            bool together = blocks[i].begin < blocks[k].end && blocks[k].begin < blocks[i].end;
            bool overlap = blocks[i].offset < blocks[k].offset + blocks[k].bytes &&
                           blocks[k].offset < blocks[i].offset + blocks[i].bytes;
            cr_assert_not(together && overlap, "blocks %zu and %zu", k, i);
        }
    }
}

Test(plan, blocks_alive_together_never_overlap_and_little_is_wasted)
{
    enum { N = 300 };
    static ebb__planned blocks[N];
    for (uint64_t seed = 1; seed <= 5; seed++) {
        size_t bytes = 0;
        for (size_t i = 0; i < N; i++) {
            size_t life = 1 + draw(seed, 2 * i) % (i % 5 ? 10 : 200);
            blocks[i] = (ebb__planned){ .bytes = 512 * (1 + (size_t)draw(seed, 2 * i + 1) % 400),
                                        .begin = i,
                                        .end = i % 50 == 0 ? SIZE_MAX : i + life };
        }
        size_t live = largest_live(blocks, N);
        check_ok(ebb__plan_pack(blocks, N, live, &bytes));
        check_apart(blocks, N, bytes);
        cr_assert(bytes >= live && (double)bytes <= 1.06 * (double)live, "%zu for %zu", bytes,
                  live);
    }
    size_t bytes = 1;
    check_ok(ebb__plan_pack(blocks, 0, 0, &bytes));
    cr_assert(bytes == 0);
}

/* ---- following --------------------------------------------------------------------------- */

static void unit(pool_rig *rig, const char *kind)
{
    ebb__trace_mark(rig->pool, EBB__ACT_UNIT, &(ebb__owner){ .op = kind });
}

/* Like a step: what forward keeps goes in reverse order; sizes that a pool packs badly. */
static void step(pool_rig *rig, size_t scale)
{
    ebb__block *kept[20];
    unit(rig, "group");
    for (size_t i = 0; i < 20; i++) {
        kept[i] = rig_take(rig, scale * (i + 1) * 90 * KIB);
        rig_give(rig, rig_take(rig, scale * (i % 3 + 1) * 700 * KIB));
    }
    for (size_t i = 20; i-- > 0;) rig_give(rig, kept[i]);
}

static int64_t plan_blocks; /* host blocks of the plan that was recorded last */

static ebb__plan *record(pool_rig *rig, int n_steps)
{
    ebb__plan *plan = NULL;
    rig_init(rig, RIG_DRY, 0, 1);
    check_ok(ebb__trace_start(rig->pool, 10000));
    ebb__block *weight = rig_take(rig, 3 * MIB);
    for (int i = 0; i < n_steps; i++) step(rig, 1);
    rig_give(rig, weight);
    int64_t before = ebb_host_live_blocks();
    check_ok(ebb__plan_from_trace(&plan, rig->pool));
    plan_blocks = ebb_host_live_blocks() - before;
    rig->live_blocks += plan_blocks;
    rig_end(rig);
    return plan;
}

/* The pool takes the plan, whatever comes of it. */
static ebb_status follow(pool_rig *rig, ebb__plan *plan)
{
    rig->live_blocks -= plan_blocks;
    return ebb__pool_follow_plan(rig->pool, plan);
}

Test(plan, a_run_that_repeats_the_trace_needs_hardly_more_than_its_live_bytes)
{
    pool_rig rig;
    ebb__plan *plan = record(&rig, 2);
    size_t live = ebb__plan_live_bytes(plan);
    cr_assert(ebb__plan_bytes(plan) <= live + live / 50, "%zu for %zu", ebb__plan_bytes(plan),
              live);
    rig_init(&rig, RIG_HOST, 0, 3);
    check_ok(follow(&rig, plan));
    ebb__block *weight = rig_take(&rig, 3 * MIB);
    for (int i = 0; i < 5; i++) step(&rig, 1); /* more steps than were recorded */
    cr_assert(rig_stats(&rig).n_segment_allocs == 1);
    cr_assert(rig_stats(&rig).peak_reserved_bytes <= live + live / 50 + 4096);
    cr_assert(rig_stats(&rig).peak_allocated_bytes == live);
    uint64_t followed, left;
    ebb__pool_plan_use(rig.pool, &followed, &left);
    cr_assert(followed == 1 + 5 * 40 && left == 0, "%llu followed, %llu left",
              (unsigned long long)followed, (unsigned long long)left);
    rig_give(&rig, weight);
    rig_end(&rig);
}

Test(plan, requests_that_leave_the_trace_come_from_the_pool)
{
    pool_rig rig;
    uint64_t followed, left;
    ebb__plan *plan = record(&rig, 2);
    rig_init(&rig, RIG_HOST, 0, 3);
    check_ok(follow(&rig, plan));
    ebb__block *weight = rig_take(&rig, 3 * MIB);
    step(&rig, 1);
    step(&rig, 2);                                 /* other sizes */
    ebb__block *extra = rig_take(&rig, 777 * KIB); /* one too many */
    step(&rig, 1);
    unit(&rig, "unheard of");
    ebb__block *more = rig_take(&rig, 90 * KIB), *other = rig_take_on(&rig, 90 * KIB, 1);
    step(&rig, 1);
    ebb__pool_plan_use(rig.pool, &followed, &left);
    cr_assert(followed >= 1 + 3 * 40 && left >= 3, "%llu followed, %llu left",
              (unsigned long long)followed, (unsigned long long)left);
    rig_give(&rig, weight);
    rig_give(&rig, extra);
    rig_give(&rig, more);
    rig_give(&rig, other);
    rig_end(&rig);
}

Test(plan, a_place_that_is_still_taken_is_not_given_twice)
{
    pool_rig rig;
    ebb__plan *plan = record(&rig, 2);
    rig_init(&rig, RIG_HOST, 0, 3);
    check_ok(follow(&rig, plan));
    ebb__block *weight = rig_take(&rig, 3 * MIB);
    unit(&rig, "group");
    ebb__block *kept = rig_take(&rig, 90 * KIB); /* as planned, but it outlives its unit */
    memset(ebb__block_data(kept), 9, 90 * KIB);
    step(&rig, 1);
    const unsigned char *data = ebb__block_data(kept);
    cr_assert(data[0] == 9 && data[90 * KIB - 1] == 9);
    rig_give(&rig, kept);
    rig_give(&rig, weight);
    rig_end(&rig);
}

Test(plan, a_plan_needs_a_whole_trace_and_a_new_pool_with_room)
{
    pool_rig rig;
    ebb__plan *plan = NULL;
    rig_init(&rig, RIG_DRY, 0, 3);
    check_fails(ebb__plan_from_trace(&plan, rig.pool), EBB_ESTATE);
    check_message("no trace");
    check_ok(ebb__trace_start(rig.pool, 2));
    rig_give(&rig, rig_take(&rig, 100));
    check_fails(ebb__plan_from_trace(&plan, rig.pool), EBB_ESTATE);
    check_message("dropped 2 events");
    rig_end(&rig);
    plan = record(&rig, 1);
    rig_init(&rig, RIG_DRY, 4 * MIB, 3);
    check_fails(follow(&rig, plan), EBB_ENOMEM);
    rig_end(&rig);
    plan = record(&rig, 1);
    rig_init(&rig, RIG_DRY, 0, 3);
    ebb__block *a = rig_take(&rig, 100);
    check_fails(follow(&rig, plan), EBB_ESTATE);
    rig_give(&rig, a);
    rig_end(&rig);
}
