/* Plans: peaks as predicted, to the byte, never above the budget; gradients as without checkpointing, bit for
 * bit; the frontier goes down; larger budgets are never slower. */
#include <ebb/plan.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "checkpoint/plan.h"
#include "core/rng.h"
#include "support/cases.h"
#include "support/training.h"
#include "train/planner.h"
#include "train/profile.h"

static const char gpt[] =
    "{\"seed\":3,\"model\":{\"type\":\"gpt\",\"layers\":7,\"heads\":2,\"width\":32,\"context\":32,"
    "\"vocab\":64,\"dropout\":0.1},"
    "\"data\":{\"type\":\"synthetic\",\"kind\":\"tokens\",\"items\":21,\"eval_items\":5,\"seed\":1},"
    "\"train\":{\"steps\":3,\"batch\":16,\"clip_norm\":1.0,\"eval_every\":3,"
    "\"optimizer\":{\"type\":\"adamw\",\"lr\":3e-3,\"weight_decay\":0.1}}}";

static const char llama[] =
    "{\"seed\":5,\"model\":{\"type\":\"gpt\",\"layers\":5,\"heads\":4,\"kv_heads\":2,\"width\":32,"
    "\"ffn_width\":96,\"context\":16,\"vocab\":30,\"norm\":\"rmsnorm\",\"activation\":\"swiglu\","
    "\"position\":\"rope\",\"bias\":false,\"tie_embeddings\":false,\"frozen\":[\"blocks.0.*\"]},"
    "\"data\":{\"type\":\"synthetic\",\"kind\":\"tokens\",\"items\":64,\"eval_items\":0,\"seed\":1},"
    "\"train\":{\"steps\":2,\"batch\":16,\"accumulate\":2,\"optimizer\":{\"type\":\"adamw\",\"lr\":3e-3}}}";

static const char mlp[] =
    "{\"seed\":7,\"model\":{\"type\":\"mlp\",\"input\":12,\"hidden\":[80,20,125,90,60,200,40],\"output\":6,"
    "\"activation\":\"gelu_erf\",\"dropout\":0.2},"
    "\"data\":{\"type\":\"synthetic\",\"kind\":\"samples\",\"items\":1500,\"eval_items\":9,\"seed\":1},"
    "\"train\":{\"steps\":3,\"batch\":700,\"optimizer\":{\"type\":\"sgd\",\"lr\":0.1,\"momentum\":0.9}}}";

static const char *const texts[] = { gpt, llama, mlp };
enum { N_TEXTS = sizeof(texts) / sizeof(texts[0]), MAX_POINTS = 48 };

static const char *const no_sets[4] = { NULL };

typedef struct dice { uint64_t counter; uint32_t seed; } dice;

static uint32_t draw(dice *d, uint32_t below)
{
    uint32_t words[4];
    ebb__philox(d->seed, d->counter++, words);
    return words[0] % below;
}

/* The config under a plan, by way of its file. */
static ebb_train_result train_under(const char *text, const ebb_plan *plan)
{
    temp_folder folder = temp_folder_make();
    char set[320];
    check_ok(ebb_plan_save(plan, temp_path(&folder, "plan.json")));
    snprintf(set, sizeof(set), "memory.checkpoint=plan:%s", temp_path(&folder, "plan.json"));
    ebb_config *config = config_of(text, (const char *const[4]){ set });
    ebb_train_result result = train_config(config, 2, NULL);
    ebb_config_free(config);
    temp_folder_remove(&folder);
    return result;
}

static void check_measured(const char *text, const ebb_plan *plan, const char *sha256)
{
    ebb_plan_info info = ebb_plan_info_get(plan);
    ebb_train_result r = train_under(text, plan);
    cr_assert_eq(r.memory.peak_allocated_bytes, info.peak_allocated_bytes);
    cr_assert_eq(r.memory.peak_reserved_bytes, info.peak_reserved_bytes);
    cr_assert_str_eq(r.gradients_sha256, sha256);
    cr_assert_eq(r.host_memory.peak_reserved_bytes, info.peak_host_bytes);
    cr_assert_float_eq(r.recompute_flops, info.recompute_flops, 1);
}

static size_t peak_of(const ebb_plan *plan, bool allocated)
{
    ebb_plan_info info = ebb_plan_info_get(plan);
    return allocated ? info.peak_allocated_bytes : info.peak_reserved_bytes;
}

static void check_frontier(const ebb_config *config, const char *text, bool allocated, int least_points)
{
    ebb_plan *plans[MAX_POINTS];
    int n = 0;
    ebb_train_options options = train_options(2);
    ebb_train_result none = train_config(config, 2, NULL);
    check_ok(ebb_plan_frontier(plans, MAX_POINTS, &n, config, &options, allocated));
    cr_assert_geq(n, least_points, "%s: %d points", text, n);
    for (int i = 0; i < n; i++) {
        ebb_plan_info info = ebb_plan_info_get(plans[i]);
        if (i > 0) {
            cr_assert_lt(peak_of(plans[i], allocated), peak_of(plans[i - 1], allocated));
            cr_assert_gt(info.overhead, ebb_plan_info_get(plans[i - 1]).overhead);
        } else {
            cr_assert_eq(info.peak_allocated_bytes, none.memory.peak_allocated_bytes);
            cr_assert_eq(info.overhead, 0);
        }
        if (i % CASES(1, 4) == 0 || i == n - 1) check_measured(text, plans[i], none.gradients_sha256);
    }
    for (int i = 0; i < n; i++) ebb_plan_free(plans[i]);
}

Test(planner, the_frontier_goes_down_and_is_what_runs_measure)
{
    for (int t = 0; t < N_TEXTS; t++) {
        ebb_config *config = config_of(texts[t], no_sets);
        check_frontier(config, texts[t], true, 5);
        check_frontier(config, texts[t], false, 2);
        ebb_config_free(config);
    }
    check_no_live_blocks();
}

Test(planner, so_does_the_frontier_with_offload)
{
    for (int t = 0; t < N_TEXTS; t++) {
        ebb_config *config = config_of(texts[t], (const char *const[4]){ "memory.offload=auto" });
        check_frontier(config, texts[t], true, 5);
        ebb_config_free(config);
    }
    check_no_live_blocks();
}

enum { N_BUDGETS = CASES(25, 6) };

/* Budgets between the smallest and all: within it, as predicted, never slower with more. */
static void check_budgets(const char *text, bool allocated)
{
    ebb_plan *plans[MAX_POINTS];
    int n = 0;
    ebb_train_options options = train_options(2);
    ebb_config *config = config_of(text, no_sets);
    ebb_train_result none = train_config(config, 2, NULL);
    check_ok(ebb_plan_frontier(plans, MAX_POINTS, &n, config, &options, allocated));
    size_t least = peak_of(plans[n - 1], allocated), all = peak_of(plans[0], allocated), measured = 0;
    for (int i = 0; i < n; i++) ebb_plan_free(plans[i]);
    double before = 1e9;
    for (int i = 0; i < N_BUDGETS; i++) {
        size_t budget = least + (all - least) * (size_t)i / (N_BUDGETS - 1);
        ebb_plan *plan = NULL;
        check_ok(ebb_plan_make(&plan, config, &options, budget, allocated));
        ebb_plan_info info = ebb_plan_info_get(plan);
        cr_assert_leq(peak_of(plan, allocated), budget);
        cr_assert_leq(info.overhead, before + 1e-9, "%s, budget %d: %g after %g", text, i, info.overhead, before);
        bool is_new = info.overhead < before || info.peak_allocated_bytes != measured;
        if (is_new) check_measured(text, plan, none.gradients_sha256);
        before = info.overhead;
        measured = info.peak_allocated_bytes;
        ebb_plan_free(plan);
    }
    cr_assert_eq(before, 0);
    ebb_config_free(config);
}

Test(planner, budgets_of_allocated_bytes_are_kept)
{
    for (int t = 0; t < N_TEXTS; t++) check_budgets(texts[t], true);
    check_no_live_blocks();
}

Test(planner, budgets_of_reserved_bytes_are_kept)
{
    for (int t = 0; t < N_TEXTS; t++) check_budgets(texts[t], false);
    check_no_live_blocks();
}

/* A calibration file of random speeds, which plans then follow. */
static void draw_rates(dice *d, const char *path)
{
    FILE *file = fopen(path, "w");
    cr_assert_not_null(file);
    fprintf(file, "{\"schema\":2,\"copy_gb_s\":%u,\"update_gb_s\":%u,\"ops\":{", 1 + draw(d, 20), 1 + draw(d, 5));
    for (int i = 0; i < ebb_op_count(); i++) {
        fprintf(file, "%s\"%s\":[", i ? "," : "", ebb_op_at(i)->name);
        for (int k = 0; k < 4; k++) fprintf(file, "%s%g", k ? "," : "", 0.1 + draw(d, 1000) * 0.002);
        fprintf(file, "]");
    }
    fprintf(file, "}}\n");
    cr_assert_eq(fclose(file), 0);
}

static void check_against_uniform(const ebb_config *config, int k, bool allocated)
{
    char set[64];
    const char *sets[] = { set };
    ebb_train_options options = train_options(2);
    ebb_config *uniform = NULL;
    ebb_plan *as_plan = NULL, *plan = NULL;
    if (k == 0) snprintf(set, sizeof(set), "memory.checkpoint=sqrt");
    else snprintf(set, sizeof(set), "memory.checkpoint=every:%d", k);
    check_ok(ebb_config_copy(&uniform, config, sets, 1));
    check_ok(ebb__plan_new(&as_plan, uniform->model.blocks));
    as_plan->n_segments = uniform->n_ranges;
    memcpy(as_plan->segments, uniform->ranges, (size_t)uniform->n_ranges * sizeof(*uniform->ranges));
    check_ok(ebb__plan_predict(as_plan, config, &options));
    check_ok(ebb_plan_make(&plan, config, &options, peak_of(as_plan, allocated), allocated));
    cr_assert_leq(ebb_plan_info_get(plan).overhead, ebb_plan_info_get(as_plan).overhead + 1e-6, "%s, %s", set,
                  allocated ? "allocated" : "reserved");
    ebb_plan_free(as_plan);
    ebb_plan_free(plan);
    ebb_config_free(uniform);
}

Test(planner, uniform_segments_are_never_faster_whatever_ops_take)
{
    temp_folder folder = temp_folder_make();
    char path[300];
    snprintf(path, sizeof(path), "%s", temp_path(&folder, "rates.json"));
    for (uint32_t seed = 0; seed < CASES(3, 2); seed++) {
        dice d = { 0, seed };
        if (seed > 0) draw_rates(&d, path);
        setenv("EBB_CALIBRATION", path, 1); /* of seed 0: none, the built-in figures */
        for (int t = 0; t < N_TEXTS; t++) {
            ebb_config *config = config_of(texts[t], no_sets);
            for (int k = 0; k <= config->model.blocks; k += CASES(1, 3))
                check_against_uniform(config, k, (k + (int)seed) % 2);
            ebb_config_free(config);
        }
    }
    unsetenv("EBB_CALIBRATION");
    temp_folder_remove(&folder);
    check_no_live_blocks();
}

/* The program on blocks as they are, in a step three times as long as its forward. */
Test(planner, a_grid_twice_as_fine_changes_time_by_half_a_percent_at_most)
{
    for (int t = 0; t < N_TEXTS; t++) {
        ebb_config *config = config_of(texts[t], (const char *const[4]){ "memory.offload=auto" });
        ebb_train_options options = train_options(2);
        ebb__rates rates;
        ebb__profile profile;
        ebb__chain_table *coarse = NULL, *fine = NULL;
        check_ok(ebb__rates_load(&rates));
        check_ok(ebb__profile_init(&profile, config, &options, "dry:cpu", &rates));
        double step = 0;
        size_t all = 0;
        for (int i = 0; i < profile.chain.n; i++) {
            const ebb__stage *s = &profile.chain.stages[i];
            step += 3 * s->forward_ns;
            all += s->choices[0].keep + s->input + s->gradients;
        }
        all += all / 4;
        check_ok(ebb__chain_solve(&coarse, &profile.chain, all, 2000));
        check_ok(ebb__chain_solve(&fine, &profile.chain, all, 4000));
        size_t least = ebb__chain_smallest(coarse);
        for (size_t i = 1; i <= 40; i++) {
            size_t bytes = least + (all - least) * i / 40;
            double a = ebb__chain_cost(coarse, bytes), b = ebb__chain_cost(fine, bytes);
            cr_assert(a - b <= 0.005 * step && b - a <= 0.005 * step, "config %d, %zu bytes: %g and %g of %g", t, bytes,
                      a, b, step);
        }
        ebb__chain_table_free(coarse);
        ebb__chain_table_free(fine);
        ebb__profile_deinit(&profile);
        ebb_config_free(config);
    }
    check_no_live_blocks();
}

/* What splitting free blocks leaves over (1 MiB at most) makes equal blocks hold differently many bytes: they share their
 * rows all the same, or planning would take ten times as long. */
Test(planner, equal_blocks_have_equal_figures_wherever_they_lie)
{
    ebb_config *config = config_of(
        "{\"model\":{\"type\":\"gpt\",\"layers\":48,\"heads\":4,\"width\":128,\"context\":128,\"vocab\":64},"
        "\"data\":{\"type\":\"synthetic\",\"kind\":\"tokens\",\"items\":8,\"eval_items\":0},\"train\":{\"batch\":8}}",
        (const char *const[4]){ NULL });
    ebb_train_options options = train_options(2);
    ebb__rates rates;
    ebb__profile profile;
    check_ok(ebb__rates_load(&rates));
    check_ok(ebb__profile_init(&profile, config, &options, "dry:cpu", &rates));
    const ebb__stage *stages = profile.chain.stages;
    int changes = 0;
    for (int i = 2; i < profile.chain.n - 1; i++) changes += memcmp(&stages[i], &stages[i - 1], sizeof(stages[i])) != 0;
    cr_assert(changes <= 2, "%d changes along 48 blocks", changes); /* the first and the last */
    ebb__profile_deinit(&profile);
    ebb_config_free(config);
    check_no_live_blocks();
}

Test(planner, a_host_limit_holds_and_a_smaller_one_offloads_less)
{
    size_t before = SIZE_MAX;
    static const char *const limits[] = { "memory.host_limit=null", "memory.host_limit=5MiB", "memory.host_limit=2MiB",
                                          "memory.host_limit=1" };
    static const size_t bytes[] = { SIZE_MAX, 5u << 20, 2u << 20, 1 };
    for (int i = 0; i < 4; i++) {
        ebb_config *config = config_of(gpt, (const char *const[4]){ "memory.offload=auto", limits[i] });
        ebb_train_options options = train_options(2);
        ebb_plan *plans[MAX_POINTS];
        int n = 0;
        size_t most = 0;
        check_ok(ebb_plan_frontier(plans, MAX_POINTS, &n, config, &options, true));
        for (int k = 0; k < n; k++) {
            size_t host = ebb_plan_info_get(plans[k]).peak_host_bytes;
            if (host > most) most = host;
            ebb_plan_free(plans[k]);
        }
        cr_assert_leq(most, bytes[i]);
        cr_assert_leq(most, before);
        if (i == 0) cr_assert_gt(most, bytes[1]); /* the limits are some */
        before = most;
        ebb_config_free(config);
    }
    check_no_live_blocks();
}

/* Offloading is in every plan: what a small limit refuses is the host's bytes. */
Test(planner, a_host_limit_below_all_plans_is_named)
{
    ebb_config *config = config_of(gpt, (const char *const[4]){ "memory.offload=all", "memory.host_limit=1" });
    ebb_train_options options = train_options(2);
    ebb_plan *plan = NULL, *plans[MAX_POINTS];
    int n = 1;
    check_fails(ebb_plan_make(&plan, config, &options, SIZE_MAX, true), EBB_EBUDGET);
    cr_assert_not_null(strstr(ebb_message(), "memory.host_limit"), "%s", ebb_message());
    check_fails(ebb_plan_frontier(plans, MAX_POINTS, &n, config, &options, true), EBB_EBUDGET);
    cr_assert_eq(n, 0);
    cr_assert_not_null(strstr(ebb_message(), "memory.host_limit"), "%s", ebb_message());
    ebb_config_free(config);
    check_no_live_blocks();
}

/* A step offloads half of what another does: the plans between them are refused by their host bytes alone. */
Test(planner, a_budget_stays_within_the_host_limit)
{
    static const char *const limits[] = { "memory.host_limit=null", "memory.host_limit=2MiB" };
    size_t host[2];
    for (int i = 0; i < 2; i++) {
        ebb_config *config = config_of(gpt, (const char *const[4]){ "memory.offload=all", limits[i] });
        ebb_train_options options = train_options(2);
        ebb_plan *plan = NULL;
        check_ok(ebb_plan_make(&plan, config, &options, SIZE_MAX, true));
        host[i] = ebb_plan_info_get(plan).peak_host_bytes;
        ebb_plan_free(plan);
        ebb_config_free(config);
    }
    cr_assert_gt(host[0], 2u << 20);
    cr_assert_leq(host[1], 2u << 20);
    check_no_live_blocks();
}

Test(planner, the_configs_own_limit_is_a_budget_too)
{
    ebb_train_options options = train_options(2);
    ebb_config *config = config_of(gpt, no_sets);
    ebb_plan *plan = NULL;
    check_ok(ebb_plan_make(&plan, config, &options, SIZE_MAX, false));
    size_t all = ebb_plan_info_get(plan).peak_reserved_bytes, limit = all - (2u << 20);
    ebb_plan_free(plan);
    ebb_config_free(config);
    char set[64];
    snprintf(set, sizeof(set), "memory.limit=%zu", limit);
    config = config_of(gpt, (const char *const[4]){ set });
    for (int allocated = 0; allocated < 2; allocated++) {
        check_ok(ebb_plan_make(&plan, config, &options, SIZE_MAX, allocated));
        cr_assert_leq(ebb_plan_info_get(plan).peak_reserved_bytes, limit);
        ebb_plan_free(plan);
    }
    ebb_config_free(config);
    config = config_of(gpt, (const char *const[4]){ "memory.limit=100000" });
    check_fails(ebb_plan_make(&plan, config, &options, SIZE_MAX, false), EBB_EBUDGET);
    cr_assert_not_null(strstr(ebb_message(), "memory.limit"), "%s", ebb_message());
    ebb_config_free(config);
    check_no_live_blocks();
}

Test(planner, a_budget_in_a_config_trains_within_it)
{
    ebb_config *config = config_of(gpt, no_sets);
    ebb_train_result none = train_config(config, 2, NULL), predicted;
    ebb_config_free(config);
    char set[64];
    snprintf(set, sizeof(set), "memory.checkpoint=budget:%zu", none.memory.peak_reserved_bytes - (1u << 20));
    config = config_of(gpt, (const char *const[4]){ set });
    ebb_train_options options = train_options(2);
    check_ok(ebb_estimate(&predicted, config, &options));
    ebb_train_result r = train_config(config, 2, NULL);
    cr_assert_lt(r.memory.peak_reserved_bytes, none.memory.peak_reserved_bytes);
    cr_assert_eq(r.memory.peak_reserved_bytes, predicted.memory.peak_reserved_bytes);
    cr_assert_str_eq(r.gradients_sha256, none.gradients_sha256);
    ebb_config_free(config);
    check_no_live_blocks();
}

Test(planner, what_nothing_fits_is_told_with_the_smallest_that_does)
{
    ebb_config *config = config_of(gpt, no_sets);
    ebb_train_options options = train_options(2);
    ebb_plan *plan = NULL;
    check_fails(ebb_plan_make(&plan, config, &options, 100000, true), EBB_EBUDGET);
    cr_assert_null(plan);
    const char *at = strstr(ebb_message(), "(");
    cr_assert_not_null(at);
    size_t needed = (size_t)strtoull(at + 1, NULL, 10);
    check_ok(ebb_plan_make(&plan, config, &options, needed, true));
    cr_assert_eq(ebb_plan_info_get(plan).peak_allocated_bytes, needed);
    ebb_plan_free(plan);
    ebb_config_free(config);
    check_no_live_blocks();
}

/* Of chains too long to try all plans of: budgets far below, and just below, name where the frontier ends. */
Test(planner, the_smallest_of_a_deep_model_is_where_its_frontier_ends)
{
    ebb_config *config = config_of(gpt, (const char *const[4]){ "model.layers=30", "train.eval_every=0" });
    ebb_train_options options = train_options(2);
    for (int allocated = 0; allocated < 2; allocated++) {
        ebb_plan *plans[MAX_POINTS], *plan = NULL;
        int n = 0;
        check_ok(ebb_plan_frontier(plans, MAX_POINTS, &n, config, &options, allocated));
        size_t end = peak_of(plans[n - 1], allocated), budgets[] = { 1, end - 1 };
        for (int i = 0; i < 2; i++) {
            check_fails(ebb_plan_make(&plan, config, &options, budgets[i], allocated), EBB_EBUDGET);
            const char *told = strstr(ebb_message(), "(");
            cr_assert(told && strtoull(told + 1, NULL, 10) == end, "%zu: %s", end, ebb_message());
        }
        check_ok(ebb_plan_make(&plan, config, &options, end, allocated));
        cr_assert_leq(ebb_plan_info_get(plan).overhead, ebb_plan_info_get(plans[n - 1]).overhead + 1e-9);
        ebb_plan_free(plan);
        for (int i = 0; i < n; i++) ebb_plan_free(plans[i]);
    }
    ebb_config_free(config);
    check_no_live_blocks();
}

Test(planner, failing_allocations_are_told_and_leak_nothing)
{
    ebb_config *config = config_of(gpt, (const char *const[4]){ "model.layers=2", "memory.offload=auto" });
    ebb_train_options options = train_options(2);
    ebb_train_result none = train_config(config, 2, NULL);
    size_t budget = none.memory.peak_allocated_bytes - 1; /* a plan is looked for */
    int64_t live = ebb_host_live_blocks();
    for (uint64_t n = 1;; n += 1 + n / 7) {
        ebb_plan *plan = NULL;
        ebb_fault_arm(n);
        ebb_status st = ebb_plan_make(&plan, config, &options, budget, true);
        bool fired = ebb_fault_fired();
        ebb_fault_arm(0);
        cr_assert_eq(st, fired ? EBB_ENOMEM : EBB_OK, "allocation %llu: %s", (unsigned long long)n, ebb_message());
        ebb_plan_free(plan);
        cr_assert_eq(ebb_host_live_blocks(), live, "allocation %llu leaks", (unsigned long long)n);
        if (!fired) break;
    }
    ebb_config_free(config);
    check_no_live_blocks();
}

/* ---- the largest batch --------------------------------------------------------------------------- */

Test(planner, the_largest_batch_fits_and_the_next_does_not)
{
    ebb_config *config = config_of(gpt, (const char *const[4]){ "data.items=200" });
    ebb_train_options options = train_options(2);
    ebb_max_batch_result r;
    size_t limit = (size_t)24 << 20;
    check_ok(ebb_max_batch(&r, config, &options, limit));
    cr_assert_geq(r.batch, 2);
    cr_assert_leq(r.peak_reserved_bytes, limit);
    cr_assert_gt(r.next_batch_peak_reserved_bytes, limit);
    for (int more = 0; more < 2; more++) {
        char set[48];
        const char *sets[] = { set };
        ebb_config *one = NULL;
        ebb_train_result e;
        snprintf(set, sizeof(set), "train.batch=%lld", (long long)r.batch + more);
        check_ok(ebb_config_copy(&one, config, sets, 1));
        check_ok(ebb_estimate(&e, one, &options));
        cr_assert_eq(e.memory.peak_reserved_bytes, more ? r.next_batch_peak_reserved_bytes : r.peak_reserved_bytes);
        ebb_config_free(one);
    }
    cr_assert_eq(r.stopped_by, EBB_BATCH_LIMIT);
    check_fails(ebb_max_batch(&r, config, &options, 1000), EBB_EBUDGET);
    cr_assert_eq(r.batch, 0);
    ebb_config_free(config);
    check_no_live_blocks();
}

/* What training says of that batch, by its dry run with the same limits. */
static void check_one_more_does_not_run(const ebb_config *config, const ebb_train_options *options, int64_t batch, size_t i)
{
    for (int more = 0; more < 2; more++) {
        char set[48];
        const char *sets[] = { set };
        ebb_config *one = NULL;
        static ebb_train_result e;
        snprintf(set, sizeof(set), "train.batch=%lld", (long long)batch + more);
        check_ok(ebb_config_copy(&one, config, sets, 1));
        ebb_status st = ebb_estimate(&e, one, options);
        cr_assert_eq(st == EBB_OK, more == 0, "case %zu, batch %lld: %s", i, (long long)batch + more, ebb_message());
        ebb_config_free(one);
    }
}

Test(planner, what_stops_the_largest_batch_is_told)
{
    static const struct {
        const char *sets[4];
        ebb_batch_stop stop;
    } cases[] = {
        { { "data.items=50" }, EBB_BATCH_DATA },
        { { "data.items=100000", "model.layers=2", "memory.checkpoint=budget:4MiB" }, EBB_BATCH_BUDGET },
        { { "data.items=100000", "model.layers=2", "memory.offload=all", "memory.host_limit=4MiB" }, EBB_BATCH_HOST },
        { { "data.items=100000", "model.layers=2", "memory.limit=8MiB" }, EBB_BATCH_MEMORY },
        { { "data.items=100000", "model.layers=2", "memory.limit=8MiB", "memory.allocator.offset_plan=true" }, EBB_BATCH_MEMORY },
        { { "data.items=100000", "model.layers=2", "memory.limit=8MiB",
            "memory.allocator.garbage_collection_threshold=0.8" }, EBB_BATCH_MEMORY },
        { { "data.items=100000", "model.layers=2", "memory.limit=4MiB", "memory.checkpoint=budget:8MiB" }, EBB_BATCH_MEMORY },
    };
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        ebb_config *config = config_of(gpt, cases[i].sets);
        ebb_train_options options = train_options(2);
        ebb_max_batch_result r;
        check_ok(ebb_max_batch(&r, config, &options, (size_t)1 << 40));
        cr_assert_eq(r.stopped_by, cases[i].stop, "case %zu: %s", i, ebb_batch_stop_text(r.stopped_by));
        cr_assert_eq(r.next_batch_peak_reserved_bytes, 0);
        if (i == 0) cr_assert_eq(r.batch, 50);
        else check_one_more_does_not_run(config, &options, r.batch, i);
        ebb_config_free(config);
    }
    check_no_live_blocks();
}

Test(planner, the_largest_batch_is_not_found_by_running_out_of_host_memory)
{
    ebb_config *config = config_of(gpt, (const char *const[4]){ "model.layers=1" });
    ebb_train_options options = train_options(2);
    for (uint64_t n = 1;; n += 1 + n / 5) {
        ebb_max_batch_result r;
        ebb_fault_arm(n);
        ebb_status st = ebb_max_batch(&r, config, &options, (size_t)24 << 20);
        bool fired = ebb_fault_fired();
        ebb_fault_arm(0);
        cr_assert_eq(st, fired ? EBB_ENOMEM : EBB_OK, "allocation %llu: %s", (unsigned long long)n, ebb_message());
        if (!fired) break;
    }
    ebb_config_free(config);
    check_no_live_blocks();
}
