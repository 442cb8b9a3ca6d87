/* Random operations: the pool against a naive one, overlap in real memory, dry against host. */
#include <stdlib.h>
#include <string.h>

#include "random_run.h"

Test(pool_random, places_blocks_where_a_naive_pool_places_them)
{
    compare_with_naive(0, 100000, 1, "", 0);
}

Test(pool_random, places_blocks_where_a_naive_pool_places_them_under_a_limit)
{
    compare_with_naive(200 * MIB, 100000, 2, "", 0);
}

Test(pool_random,
     places_blocks_where_a_naive_pool_places_them_with_every_option_and_several_streams)
{
    for (int i = 0; i < n_random_cases; i++) {
        const random_case *c = &random_cases[i];
        compare_with_naive(c->limit_mib * MIB, 12000, 100 + (uint64_t)i, c->conf, c->n_streams);
    }
}

Test(pool_random, blocks_never_overlap_and_keep_what_is_written)
{
    static const char *const confs[] = { "", "expandable_segments:True", "deferred_release_mb:4" };
    for (size_t i = 0; i < sizeof confs / sizeof *confs; i++) {
        random_run *run = random_run_new(RIG_HOST, 100 * MIB, 1, 3, confs[i]);
        run->fill = true;
        for (int k = 0; k < 4000; k++) random_step(run);
        cr_assert(ebb__pool_check(run->rig.pool), "%s", ebb_message());
        cr_assert(i != 1 || run->rig.n_moves > 0, "no page was moved");
        random_run_end(run);
    }
}

Test(pool_random, every_invariant_holds_after_every_call)
{
    for (int i = 0; i < n_random_cases; i++) { /* level 3 walks everything each time */
        const random_case *c = &random_cases[i];
        random_run *run = random_run_new(RIG_DRY, c->limit_mib * MIB, 3, 4, c->conf);
        run->n_streams = c->n_streams;
        for (int k = 0; k < 2500; k++) random_step(run);
        cr_assert(rig_stats(&run->rig).n_allocs > 800);
        random_run_end(run);
    }
}

Test(pool_random, guards_and_fills_stand_random_use)
{
    static const char *const confs[] = { "", "expandable_segments:True" };
    for (size_t i = 0; i < sizeof confs / sizeof *confs; i++) {
        random_run *run = random_run_new(RIG_HOST, 30 * MIB, 3, 5, confs[i]);
        run->fill = true;
        for (int k = 0; k < 1000; k++) random_step(run);
        cr_assert(rig_stats(&run->rig).n_frees > 200);
        random_run_end(run);
    }
}

enum { N_LAYOUTS = 700, STEPS_PER_LAYOUT = 8 };

static void record_layouts(rig_kind kind, const char *conf, uint64_t hashes[N_LAYOUTS],
                           ebb_memory_stats *stats)
{
    random_run *run = random_run_new(kind, 250 * MIB, 1, 6, conf);
    for (int i = 0; i < N_LAYOUTS; i++) {
        for (int k = 0; k < STEPS_PER_LAYOUT; k++) random_step(run);
        hashes[i] = ebb__pool_fingerprint(run->rig.pool);
    }
    *stats = rig_stats(&run->rig);
    random_run_end(run);
}

Test(pool_random, dry_and_host_pools_have_the_same_layout_at_every_step)
{
    static uint64_t dry[N_LAYOUTS], host[N_LAYOUTS];
    ebb_memory_stats dry_stats, host_stats;
    for (int c = 0; c < n_random_cases; c++) {
        if (random_cases[c].n_streams) continue;
        record_layouts(RIG_DRY, random_cases[c].conf, dry, &dry_stats);
        record_layouts(RIG_HOST, random_cases[c].conf, host, &host_stats);
        for (int i = 0; i < N_LAYOUTS; i++) cr_assert(dry[i] == host[i], "layout %d differs", i);
        cr_assert(memcmp(&dry_stats, &host_stats, sizeof dry_stats) == 0, "the statistics differ");
    }
}

Test(pool_random, a_repeated_step_reaches_a_layout_that_repeats)
{
    pool_rig rig;
    rig_init(&rig, RIG_DRY, 0, 1);
    ebb__block *parameter = rig_take(&rig, 3 * MIB);
    uint64_t last = 0;
    int n_equal = 0;
    for (int step = 0; step < 6; step++) {
        uint64_t hash = ebb__pool_fingerprint(rig.pool);
        n_equal += hash == last;
        last = hash;
        ebb__block *blocks[40];
        for (size_t i = 0; i < 40; i++) blocks[i] = rig_take(&rig, 1000 + i * i * 4000);
        for (int i = 40; i-- > 0;) rig_give(&rig, blocks[i]);
    }
    cr_assert(n_equal == 4, "the layout repeated %d times", n_equal);
    rig_give(&rig, parameter);
    rig_end(&rig);
}
