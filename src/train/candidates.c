#include "train/candidates.h"

#include <math.h>

#include "core/mem.h"

enum { GRID_STEPS = 2000 };

/* Rungs: more where dry runs are short, for there plans differ much. */
static int per_octave(int blocks)
{
    enum { LEAST = 12, MOST = 60, FEW = 24 };
    int n = LEAST * (1 + FEW / blocks);
    return n < MOST ? n : MOST;
}

/* A plan's place on the model's scales. */
static void weigh(ebb__candidate *out, const ebb__candidates *c, const int *choice, const ebb_block_range *stages)
{
    ebb__chain_figures f = ebb__chain_run(&c->profile->chain, choice, stages, out->plan->n_segments);
    out->bytes = c->profile->base_bytes + f.bytes;
    out->ns = (f.ns - c->none_ns) * c->micro_batches;
}

/* Takes the plan over, on errors too. */
static ebb_status add(ebb__candidates *c, const ebb__candidate *candidate)
{
    for (size_t i = 0; i < c->n; i++)
        if (ebb__plan_same(c->list[i].plan, candidate->plan)) {
            ebb_plan_free(candidate->plan);
            return EBB_OK;
        }
    ebb_status st = ebb__grow(&c->list, &c->cap, c->n + 1, sizeof(*c->list));
    if (st == EBB_OK) c->list[c->n++] = *candidate;
    else ebb_plan_free(candidate->plan);
    return st;
}

/* ---- uniform segments ----------------------------------------------------------------------- */

/* choice, ranges: of stages, which are blocks + 1; room for the chain. */
static ebb_status add_uniform(ebb__candidates *c, int length, const int *choice, ebb_block_range *ranges)
{
    ebb__candidate u = { 0 };
    EBB_TRY(ebb__plan_copy(&u.plan, c->profile->plan));
    int blocks = u.plan->n_blocks;
    for (int first = 0; first < blocks; first += length) {
        int last = first + length < blocks ? first + length - 1 : blocks - 1;
        ranges[u.plan->n_segments] = (ebb_block_range){ first + 1, last + 1 };
        u.plan->segments[u.plan->n_segments++] = (ebb_block_range){ first, last };
    }
    weigh(&u, c, choice, ranges);
    return add(c, &u);
}

static ebb_status add_all_uniform(ebb__candidates *c)
{
    size_t n = (size_t)c->profile->chain.n;
    int *keep_all = ebb__calloc(n, sizeof(*keep_all));
    ebb_block_range *ranges = ebb__calloc(n, sizeof(*ranges));
    ebb_status st = keep_all && ranges ? EBB_OK : EBB_ENOMEM;
    if (st == EBB_OK) c->none_ns = ebb__chain_run(&c->profile->chain, keep_all, NULL, 0).ns;
    for (int length = 1; length <= c->profile->plan->n_blocks && st == EBB_OK; length++)
        st = add_uniform(c, length, keep_all, ranges);
    ebb__free(keep_all);
    ebb__free(ranges);
    return st;
}

/* ---- the program's plans -------------------------------------------------------------------- */

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

static ebb_status trace(ebb__candidate *out, const ebb__candidates *c, int *choice)
{
    const ebb__chain *chain = &c->profile->chain;
    EBB_TRY(ebb__plan_copy(&out->plan, c->profile->plan));
    ebb_plan *plan = out->plan;
    if (!ebb__chain_plan(c->table, out->asked, choice, plan->segments, &plan->n_segments)) {
        ebb_plan_free(plan);
        out->plan = NULL;
        return EBB_OK;
    }
    weigh(out, c, choice, plan->segments);
    for (int b = 0; b < plan->n_blocks; b++) {
        plan->ops[b] = c->profile->ops[b + 1][choice[b + 1]];
        plan->offload[b] = chain->stages[b + 1].choices[choice[b + 1]].host > 0;
    }
    for (int i = 0; i < plan->n_segments; i++) { /* stages are blocks + 1 */
        plan->segments[i].first--;
        plan->segments[i].last--;
    }
    return EBB_OK;
}

ebb_status ebb__candidates_within(ebb__candidate *out, const ebb__candidates *c, size_t asked)
{
    *out = (ebb__candidate){ .asked = asked };
    int *choice = ebb__calloc((size_t)c->profile->chain.n, sizeof(*choice));
    if (!choice) return EBB_ENOMEM;
    ebb_status st = trace(out, c, choice);
    ebb__free(choice);
    return st;
}

static ebb_status add_rung(ebb__candidates *c, size_t asked)
{
    ebb__candidate rung;
    EBB_TRY(ebb__candidates_within(&rung, c, asked));
    return rung.plan ? add(c, &rung) : EBB_OK;
}

/* Below this the grid is too coarse. */
static bool is_last_grid(const ebb__candidates *c) { return c->is_flat || c->table_bytes / 4 < c->least; }

static ebb_status solve(ebb__candidates *c, const ebb__chain *chain)
{
    ebb__chain_table_free(c->table);
    c->table = NULL;
    c->level = c->n;
    EBB_TRY(ebb__chain_solve(&c->table, chain, c->table_bytes, GRID_STEPS));
    c->least = ebb__chain_smallest(c->table);
    return EBB_OK;
}

/* Twice to four times its smallest budget. */
static ebb_status solve_flat(ebb__candidates *c)
{
    c->is_flat = true;
    c->table_bytes = chain_bytes(&c->flat);
    EBB_TRY(solve(c, &c->flat));
    if (c->least < SIZE_MAX && c->table_bytes / 4 >= c->least) {
        c->table_bytes = 2 * c->least;
        EBB_TRY(solve(c, &c->flat));
    }
    return EBB_OK;
}

static ebb_status add_rungs(ebb__candidates *c)
{
    static const double near_least[] = { 1.04, 1.02, 1.01, 1.005, 1.002, 1 };
    size_t end = is_last_grid(c) ? c->least + c->least / 20 : c->table_bytes / 2;
    for (int i = 0;; i++) {
        size_t asked = (size_t)((double)c->table_bytes * exp2(-(double)i / per_octave(c->profile->plan->n_blocks)));
        if (asked <= end) break;
        EBB_TRY(add_rung(c, asked));
    }
    for (size_t i = 0; is_last_grid(c) && i < sizeof(near_least) / sizeof(near_least[0]); i++)
        EBB_TRY(add_rung(c, (size_t)((double)c->least * near_least[i])));
    return EBB_OK;
}

ebb_status ebb__candidates_next(ebb__candidates *c, bool *more)
{
    *more = !c->is_flat;
    if (!*more) return EBB_OK;
    if (c->skips || (c->table && is_last_grid(c))) {
        EBB_TRY(solve_flat(c));
    } else {
        c->table_bytes = c->table ? c->table_bytes / 2 : chain_bytes(&c->profile->chain);
        EBB_TRY(solve(c, &c->profile->chain));
    }
    return c->least < SIZE_MAX ? add_rungs(c) : EBB_OK;
}

void ebb__candidates_skip(ebb__candidates *c) { c->skips = true; }

/* ---- lifetime ------------------------------------------------------------------------------- */

ebb_status ebb__candidates_init(ebb__candidates *out, const ebb__profile *profile, int accumulate)
{
    size_t n = (size_t)profile->chain.n;
    *out = (ebb__candidates){ .profile = profile, .micro_batches = accumulate, .flat.n = profile->chain.n };
    out->flat.stages = ebb__calloc(n, sizeof(*out->flat.stages));
    if (!out->flat.stages) return EBB_ENOMEM;
    for (size_t i = 0; i < n; i++) {
        out->flat.stages[i] = profile->chain.stages[i];
        out->flat.stages[i].gradients = 0;
    }
    return add_all_uniform(out);
}

void ebb__candidates_deinit(ebb__candidates *c)
{
    for (size_t i = 0; i < c->n; i++) ebb_plan_free(c->list[i].plan);
    ebb__free(c->list);
    ebb__free(c->flat.stages);
    ebb__chain_table_free(c->table);
    *c = (ebb__candidates){ 0 };
}
