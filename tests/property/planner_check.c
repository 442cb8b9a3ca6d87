#include "planner_check.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "checkpoint/plan.h"
#include "support/training.h"
#include "train/planner.h"

enum { MAX_POINTS = 48, MAX_KNOWN = 128 };

typedef struct known_plans {
    const char *name;
    const ebb_config *config;
    ebb_train_options options;
    bool allocated;
    ebb_plan_info info[MAX_KNOWN];
    int n;
} known_plans;

static size_t peak_of(const known_plans *k, const ebb_plan_info *info)
{
    return k->allocated ? info->peak_allocated_bytes : info->peak_reserved_bytes;
}

static bool fits(const known_plans *k, const ebb_plan_info *info, size_t budget)
{
    size_t host = k->config->memory.host_limit_bytes;
    return peak_of(k, info) <= budget && (host == 0 || info->peak_host_bytes <= host);
}

/* A plan's own figures are those of an estimate under it. */
static void check_exact(const known_plans *k, const ebb_plan *plan)
{
    ebb_config under = *k->config;
    ebb_plan_info info = ebb_plan_info_get(plan);
    ebb_train_result r;
    under.plan = plan;
    under.budget_bytes = 0;
    check_ok(ebb_estimate(&r, &under, &k->options));
    cr_assert_eq(r.memory.peak_reserved_bytes, info.peak_reserved_bytes, "%s", k->name);
    cr_assert_eq(r.memory.peak_allocated_bytes, info.peak_allocated_bytes, "%s", k->name);
}

/* The last point is the smallest: a byte less has no plan. */
static void add_frontier(known_plans *k)
{
    ebb_plan *plans[MAX_POINTS], *less = NULL;
    int n = 0;
    check_ok(ebb_plan_frontier(plans, MAX_POINTS, &n, k->config, &k->options, k->allocated));
    cr_assert_geq(n, 1);
    for (int i = 0; i < n; i++) {
        ebb_plan_info info = k->info[k->n++] = ebb_plan_info_get(plans[i]);
        if (i == 0) continue;
        cr_assert_lt(peak_of(k, &info), peak_of(k, &k->info[k->n - 2]), "%s, point %d", k->name, i);
        cr_assert_gt(info.overhead, k->info[k->n - 2].overhead, "%s, point %d", k->name, i);
    }
    check_exact(k, plans[n - 1]);
    size_t least = peak_of(k, &k->info[k->n - 1]);
    check_fails(ebb_plan_make(&less, k->config, &k->options, least - 1, k->allocated), EBB_EBUDGET);
    const char *told = strstr(ebb_message(), "(");
    cr_assert(told && strtoull(told + 1, NULL, 10) == least, "%s: the frontier ends at %zu: %s", k->name, least, ebb_message());
    for (int i = 0; i < n; i++) ebb_plan_free(plans[i]);
}

static void add_uniform(known_plans *k)
{
    int blocks = k->config->model.blocks;
    for (int length = 1; length <= blocks; length++) {
        ebb_plan *plan = NULL;
        check_ok(ebb__plan_new(&plan, blocks));
        for (int first = 0; first < blocks; first += length)
            plan->segments[plan->n_segments++] =
                (ebb_block_range){ first, first + length < blocks ? first + length - 1 : blocks - 1 };
        check_ok(ebb__plan_predict(plan, k->config, &k->options));
        k->info[k->n++] = plan->info;
        ebb_plan_free(plan);
    }
}

static int by_size(const void *a, const void *b)
{
    size_t x = *(const size_t *)a, y = *(const size_t *)b;
    return x < y ? -1 : x > y;
}

static void check_budget(const known_plans *k, size_t budget, double *before)
{
    double least = INFINITY;
    for (int i = 0; i < k->n; i++)
        if (fits(k, &k->info[i], budget) && k->info[i].overhead < least) least = k->info[i].overhead;
    ebb_plan *plan = NULL;
    ebb_status st = ebb_plan_make(&plan, k->config, &k->options, budget, k->allocated);
    if (st == EBB_EBUDGET) {
        cr_assert(!(least < INFINITY), "%s: %zu has a plan of %+g: %s", k->name, budget, least, ebb_message());
        return;
    }
    check_ok(st);
    ebb_plan_info info = ebb_plan_info_get(plan);
    cr_assert(fits(k, &info, budget), "%s, budget %zu", k->name, budget);
    cr_assert_leq(info.overhead, least + 1e-9, "%s, budget %zu: %+g, and %+g is known", k->name, budget, info.overhead, least);
    cr_assert_leq(info.overhead, *before + 1e-9, "%s, budget %zu: %+g, a smaller one has %+g", k->name, budget, info.overhead,
                  *before);
    *before = info.overhead;
    ebb_plan_free(plan);
}

void planner_check(const char *name, const ebb_config *config, int threads, bool allocated)
{
    known_plans k = { .name = name, .config = config, .options = train_options(threads), .allocated = allocated };
    size_t budgets[2 * MAX_KNOWN];
    double before = INFINITY;
    int n = 0;
    add_frontier(&k);
    add_uniform(&k);
    for (int i = 0; i < k.n; i++) {
        budgets[n++] = peak_of(&k, &k.info[i]) - 1;
        budgets[n++] = peak_of(&k, &k.info[i]);
    }
    qsort(budgets, (size_t)n, sizeof(*budgets), by_size);
    for (int i = 0; i < n; i++)
        if (i == 0 || budgets[i] != budgets[i - 1]) check_budget(&k, budgets[i], &before);
}
