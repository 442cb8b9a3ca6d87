/* The fastest plan within a budget.  The dynamic program (checkpoint/chain.h) proposes on its model of
 * allocated bytes; a dry run of the whole training disposes, with exact peaks.  The program's budget is
 * found by halving intervals whose ends do not depend on the budget asked for, so that a larger budget
 * never gets a slower plan. */
#include <stdio.h>
#include <string.h>

#include "core/mem.h"
#include "train/planner.h"
#include "train/price.h"
#include "train/profile.h"

enum { GRID_STEPS = 2000, HALVINGS = 10 };

typedef struct planner {
    const ebb_config *config;
    ebb_train_options options;
    char device[EBB__DEVICE_NAME_BYTES]; /* dry */
    char sha256[65];
    bool allocated;  /* which peak counts */
    ebb__rates rates;
    ebb__profile profile;
    ebb__chain_table *table;
    size_t table_bytes;
    double none_ns; /* a step that keeps everything */
    ebb_plan **tried; /* [0] keeps everything */
    size_t n_tried, cap_tried;
} planner;

/* ---- confirming ----------------------------------------------------------------------------- */

static size_t peak_of(const planner *p, const ebb_plan *plan)
{
    return p->allocated ? plan->info.peak_allocated_bytes : plan->info.peak_reserved_bytes;
}

/* Within memory.host_limit too. */
static bool fits(const planner *p, const ebb_plan *plan, size_t budget)
{
    size_t host = p->config->memory.host_limit_bytes;
    return peak_of(p, plan) <= budget && (host == 0 || plan->info.peak_host_bytes <= host);
}

static ebb_status confirm(planner *p, ebb_plan *plan)
{
    ebb_config config = ebb__config_under(p->config, plan);
    ebb_train_result *result = ebb__malloc(sizeof(*result));
    if (!result) return EBB_ENOMEM;
    double ns = 0;
    ebb_status st = ebb__price(result, &ns, &config, &p->options, p->device, &p->rates);
    if (st == EBB_OK) {
        if (p->none_ns == 0) p->none_ns = ns;
        plan->info = (ebb_plan_info){ .peak_reserved_bytes = result->memory.peak_reserved_bytes,
                                      .peak_allocated_bytes = result->memory.peak_allocated_bytes,
                                      .peak_host_bytes = result->host_memory.peak_reserved_bytes,
                                      .overhead = ns / p->none_ns - 1,
                                      .recompute_flops = result->recompute_flops,
                                      .memory = result->memory };
        memcpy(plan->config_sha256, p->sha256, sizeof(plan->config_sha256));
    }
    ebb__free(result);
    return st;
}

/* Takes `plan` over, on errors too.  *out is borrowed; it may have been tried before. */
static ebb_status try_plan(planner *p, ebb_plan *plan, const ebb_plan **out)
{
    ebb_status st = ebb__grow(&p->tried, &p->cap_tried, p->n_tried + 1, sizeof(*p->tried));
    for (size_t i = 0; i < p->n_tried && st == EBB_OK; i++)
        if (ebb__plan_same(p->tried[i], plan)) {
            ebb_plan_free(plan);
            *out = p->tried[i];
            return EBB_OK;
        }
    if (st == EBB_OK) st = confirm(p, plan);
    if (st == EBB_OK) *out = p->tried[p->n_tried++] = plan;
    else ebb_plan_free(plan);
    return st;
}

/* ---- proposing ------------------------------------------------------------------------------ */

static size_t chain_bytes(const ebb__chain *c)
{
    size_t sum = 0, peak = 0;
    for (int i = 0; i < c->n; i++) {
        const ebb__choice *keep = &c->stages[i].choices[0];
        size_t here = keep->forward > keep->backward ? keep->forward : keep->backward;
        if (here > peak) peak = here;
        sum += keep->keep + c->stages[i].input + c->stages[i].gradients;
    }
    return sum + peak + peak / 2;
}

/* A table whose grid is fine enough for budgets up to `bytes`: the chain's own bytes, halved as long as
 * they are not needed. */
static ebb_status solve(planner *p, size_t bytes)
{
    size_t all = chain_bytes(&p->profile.chain);
    while (all / 2 >= bytes) all /= 2;
    if (p->table && p->table_bytes == all) return EBB_OK;
    ebb__chain_table_free(p->table);
    p->table = NULL;
    p->table_bytes = all;
    return ebb__chain_solve(&p->table, &p->profile.chain, all, GRID_STEPS);
}

/* The program's best plan in `bytes`; *out NULL: none. */
static ebb_status propose(planner *p, size_t bytes, const ebb_plan **out)
{
    const ebb__chain *c = &p->profile.chain;
    int *choice = ebb__calloc((size_t)c->n, sizeof(*choice));
    ebb_plan *plan = NULL;
    *out = NULL;
    if (!choice) return EBB_ENOMEM;
    ebb_status st = ebb__plan_copy(&plan, p->profile.plan);
    if (st == EBB_OK && ebb__chain_plan(p->table, bytes, choice, plan->segments, &plan->n_segments)) {
        for (int b = 0; b < plan->n_blocks; b++) {
            plan->ops[b] = p->profile.ops[b + 1][choice[b + 1]];
            plan->offload[b] = c->stages[b + 1].choices[choice[b + 1]].host > 0;
        }
        for (int i = 0; i < plan->n_segments; i++) { /* stages are blocks + 1 */
            plan->segments[i].first--;
            plan->segments[i].last--;
        }
        st = try_plan(p, plan, out);
    } else {
        ebb_plan_free(plan);
    }
    ebb__free(choice);
    return st;
}

/* ---- lifetime ------------------------------------------------------------------------------- */

/* What keeps everything is tried: overheads are over its time. */
static ebb_status planner_init(planner *p, const ebb_config *config, const ebb_train_options *options, bool allocated)
{
    *p = (planner){ .config = config, .allocated = allocated };
    EBB_TRY(ebb__check_options(options));
    ebb__device_dry_name(p->device, options->device);
    p->options = (ebb_train_options){ .struct_bytes = sizeof(p->options), .threads = options->threads,
                                      .steps = options->steps };
    EBB_TRY(ebb__config_sha256(p->sha256, config));
    EBB_TRY(ebb__rates_load(&p->rates));
    ebb_plan *none = NULL;
    const ebb_plan *tried = NULL;
    EBB_TRY(ebb__plan_new(&none, config->model.blocks));
    return try_plan(p, none, &tried);
}

static ebb_status planner_profile(planner *p)
{
    return ebb__profile_init(&p->profile, p->config, &p->options, p->device, &p->rates);
}

static void planner_deinit(planner *p)
{
    for (size_t i = 0; i < p->n_tried; i++) ebb_plan_free(p->tried[i]);
    ebb__free(p->tried);
    ebb__chain_table_free(p->table);
    ebb__profile_deinit(&p->profile);
}

ebb_status ebb__plan_predict(ebb_plan *plan, const ebb_config *config, const ebb_train_options *options)
{
    planner p;
    ebb_status st = planner_init(&p, config, options, false);
    if (st == EBB_OK) st = confirm(&p, plan);
    planner_deinit(&p);
    return st;
}

/* ---- one budget ----------------------------------------------------------------------------- */

static const ebb_plan *fastest_within(const planner *p, size_t budget)
{
    const ebb_plan *best = NULL;
    for (size_t i = 0; i < p->n_tried; i++) {
        const ebb_plan *plan = p->tried[i];
        if (!fits(p, plan, budget)) continue;
        if (!best || plan->info.overhead < best->info.overhead ||
            (plan->info.overhead == best->info.overhead && peak_of(p, plan) < peak_of(p, best)))
            best = plan;
    }
    return best;
}

static const ebb_plan *smallest(const planner *p)
{
    const ebb_plan *best = p->tried[0];
    for (size_t i = 1; i < p->n_tried; i++)
        if (fits(p, p->tried[i], SIZE_MAX) && peak_of(p, p->tried[i]) < peak_of(p, best)) best = p->tried[i];
    return best;
}

static ebb_status nothing_fits(const planner *p, size_t budget)
{
    const ebb_plan *least = smallest(p);
    const ebb_memory_stats *m = &least->info.memory;
    int first = 0, second = 1;
    for (int k = 0; k < EBB_N_CATEGORIES; k++)
        if (m->by_category_at_peak[k] > m->by_category_at_peak[first]) first = k;
    second = first == 0 ? 1 : 0;
    for (int k = 0; k < EBB_N_CATEGORIES; k++)
        if (k != first && m->by_category_at_peak[k] > m->by_category_at_peak[second]) second = k;
    char asked[32], needed[32], a[32], b[32], all[32];
    return ebb_fail(EBB_EBUDGET, "plan: nothing fits %s of %s bytes; the smallest plan needs %s (%zu bytes). Of its %s "
                    "allocated at the peak, %s are %s and %s %s", ebb_size_format(budget, asked, sizeof(asked)),
                    p->allocated ? "allocated" : "reserved", ebb_size_format(peak_of(p, least), needed, sizeof(needed)),
                    peak_of(p, least), ebb_size_format(m->peak_allocated_bytes, all, sizeof(all)),
                    ebb_size_format(m->by_category_at_peak[first], a, sizeof(a)), ebb_category_name((ebb_category)first),
                    ebb_size_format(m->by_category_at_peak[second], b, sizeof(b)), ebb_category_name((ebb_category)second));
}

/* Uniform segments are plans of the program's class; where rounding hides one that is faster than what
 * was found, it is tried too. */
static ebb_status try_uniform(planner *p, size_t budget)
{
    const ebb__chain *c = &p->profile.chain;
    int blocks = p->profile.plan->n_blocks;
    for (int k = 1; k <= blocks; k++) {
        double extra = 0;
        for (int b = 0; b < blocks; b++) {
            bool last = b % k == k - 1 || b == blocks - 1;
            extra += last ? c->stages[b + 1].replay_ns : c->stages[b + 1].forward_ns;
        }
        const ebb_plan *best = fastest_within(p, budget), *tried = NULL;
        double n = (double)p->config->train.accumulate;
        if (best && extra * n >= best->info.overhead * p->none_ns) continue;
        ebb_plan *plan = NULL;
        EBB_TRY(ebb__plan_copy(&plan, p->profile.plan));
        for (int first = 0; first < blocks; first += k)
            plan->segments[plan->n_segments++] =
                (ebb_block_range){ first, first + k - 1 < blocks ? first + k - 1 : blocks - 1 };
        EBB_TRY(try_plan(p, plan, &tried));
    }
    return EBB_OK;
}

/* Tries plans near the program's smallest budget, on a grid that is fine there; what fragments least is
 * not always what allocates least. */
static ebb_status try_smallest(planner *p)
{
    static const double factors[] = { 1, 1.02, 1.05, 1.1, 1.2, 1.4 };
    const ebb_plan *plan = NULL;
    size_t least = SIZE_MAX, bytes = chain_bytes(&p->profile.chain);
    do {
        EBB_TRY(solve(p, bytes));
        if (ebb__chain_smallest(p->table) == SIZE_MAX) break;
        least = ebb__chain_smallest(p->table);
        bytes = 2 * least;
    } while (p->table_bytes / 2 >= bytes);
    for (size_t i = 0; i < sizeof(factors) / sizeof(factors[0]) && least != SIZE_MAX; i++)
        EBB_TRY(propose(p, (size_t)((double)least * factors[i]), &plan));
    return EBB_OK;
}

static ebb_status halve(planner *p, size_t budget)
{
    const ebb_plan *plan = NULL;
    size_t low = ebb__chain_smallest(p->table), high = p->table_bytes;
    for (int i = 0; i < HALVINGS && low < high; i++) {
        size_t middle = low + (high - low) / 2;
        EBB_TRY(propose(p, middle, &plan));
        if (plan && fits(p, plan, budget)) low = middle;
        else high = middle;
    }
    return EBB_OK;
}

/* On the grid of the budget, and on the one that a smaller budget would get. */
static ebb_status search(planner *p, size_t budget)
{
    const ebb_plan *plan = NULL;
    if (fits(p, p->tried[0], budget)) return EBB_OK; /* keeping everything does */
    EBB_TRY(planner_profile(p));
    size_t base = p->profile.base_bytes, left = budget > base ? budget - base : 1;
    EBB_TRY(solve(p, left));
    size_t low = ebb__chain_smallest(p->table);
    if (low != SIZE_MAX) EBB_TRY(propose(p, low, &plan));
    if (!plan || !fits(p, plan, budget)) EBB_TRY(try_smallest(p));
    if (!fastest_within(p, budget)) return EBB_OK;
    EBB_TRY(halve(p, budget));
    EBB_TRY(solve(p, left / 2));
    EBB_TRY(halve(p, budget));
    return try_uniform(p, budget);
}

ebb_status ebb_plan_make(ebb_plan **out, const ebb_config *config, const ebb_train_options *options, size_t budget_bytes,
                         bool allocated)
{
    planner *p = ebb__calloc(1, sizeof(*p));
    if (!p) return EBB_ENOMEM;
    ebb_status st = planner_init(p, config, options, allocated);
    if (st == EBB_OK) st = search(p, budget_bytes);
    if (st == EBB_OK) {
        const ebb_plan *best = fastest_within(p, budget_bytes);
        st = best ? ebb__plan_copy(out, best) : nothing_fits(p, budget_bytes);
    }
    planner_deinit(p);
    ebb__free(p);
    return st;
}

/* ---- the frontier --------------------------------------------------------------------------- */

/* A point is worth its time where it saves a 200th at least. */
enum { FRONTIER_POINTS = 32, LEAST_STEP = 200 };

/* Budgets from all to the smallest, denser towards it, each on a grid that is fine enough for it. */
static ebb_status walk_frontier(planner *p)
{
    const ebb_plan *plan = NULL;
    EBB_TRY(try_smallest(p));
    size_t all = chain_bytes(&p->profile.chain), low = ebb__chain_smallest(p->table);
    if (low == SIZE_MAX) return EBB_OK;
    for (int i = FRONTIER_POINTS - 1; i > 0; i--) {
        double part = (double)i / FRONTIER_POINTS;
        size_t bytes = low + (size_t)((double)(all - low) * part * part);
        EBB_TRY(solve(p, bytes));
        EBB_TRY(propose(p, bytes, &plan));
    }
    return EBB_OK;
}

ebb_status ebb_plan_frontier(ebb_plan *plans[], int max, int *n, const ebb_config *config,
                             const ebb_train_options *options, bool allocated)
{
    planner *p = ebb__calloc(1, sizeof(*p));
    if (!p) return EBB_ENOMEM;
    *n = 0;
    ebb_status st = planner_init(p, config, options, allocated);
    if (st == EBB_OK) st = planner_profile(p);
    if (st == EBB_OK) st = walk_frontier(p);
    size_t budget = SIZE_MAX;
    while (st == EBB_OK && *n < max) {
        const ebb_plan *best = fastest_within(p, budget);
        if (!best) break;
        st = ebb__plan_copy(&plans[*n], best);
        if (st == EBB_OK) ++*n;
        budget = peak_of(p, best) - peak_of(p, best) / LEAST_STEP;
    }
    for (; st != EBB_OK && *n > 0; --*n) ebb_plan_free(plans[*n - 1]);
    planner_deinit(p);
    ebb__free(p);
    return st;
}
