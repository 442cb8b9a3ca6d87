/* The dynamic program: optimal in its class of plans, and close to itself on a finer grid. */
#include <math.h>
#include <string.h>

#include "chain_plans.h"
#include "core/rng.h"
#include "support/support.h"

typedef struct dice { uint64_t counter; uint32_t seed; } dice;

static uint32_t draw(dice *d, uint32_t below)
{
    uint32_t words[4];
    ebb__philox(d->seed, d->counter++, words);
    return words[0] % below;
}

/* Whole numbers small enough for a float to add up exactly.  A direct forward is never smaller than what it
 * keeps, nor a backward than what comes in. */
static void draw_chain(ebb__chain *chain, ebb__stage *stages, dice *d, int n, uint32_t scale, int max_choices)
{
    memset(stages, 0, (size_t)n * sizeof(*stages));
    *chain = (ebb__chain){ n, stages };
    for (int i = 1; i < n; i++) stages[i].input = 1 + draw(d, scale);
    for (int i = 0; i < n; i++) {
        ebb__stage *s = &stages[i];
        size_t output = i + 1 < n ? stages[i + 1].input : 0;
        s->divisible = i > 0 && i < n - 1;
        s->replay = output + draw(d, draw(d, 2) ? scale : 8 * scale); /* sometimes what decides */
        s->gradients = draw(d, 3) ? draw(d, scale) : 0;
        s->forward_ns = 1 + draw(d, 50);
        s->replay_ns = s->divisible ? s->forward_ns - draw(d, 1 + (uint32_t)s->forward_ns / 2) : s->forward_ns;
        s->n_choices = s->divisible ? 1 + (int)draw(d, (uint32_t)max_choices) : 1;
        for (int k = 0; k < s->n_choices; k++) {
            size_t keep = draw(d, 4 * scale);
            s->choices[k] = (ebb__choice){ .keep = keep, .forward = keep + output + draw(d, scale),
                                           .backward = keep + output + s->gradients + draw(d, 2 * scale),
                                           .host = k > 0 && draw(d, 3) == 0, .extra_ns = k ? draw(d, 20) : 0,
                                           .copy_ns = draw(d, 2) ? draw(d, 20) : 0 };
        }
    }
}

static size_t all_bytes(const ebb__chain *c)
{
    size_t sum = 0;
    for (int i = 0; i < c->n; i++) {
        const ebb__choice *o = &c->stages[i].choices[0];
        sum += c->stages[i].input + o->keep + c->stages[i].gradients + o->backward + o->forward;
    }
    return sum;
}

enum { N_BUDGETS = 12 };

/* A unit of one byte: no rounding.  `budget` may lie anywhere. */
static void check_optimal_of(const ebb__chain *of, uint32_t seed)
{
    ebb__chain chain = *of;
    ebb__chain_table *table = NULL;
    size_t budgets[N_BUDGETS], all = all_bytes(&chain);
    double least[N_BUDGETS];
    for (int i = 0; i < N_BUDGETS; i++) budgets[i] = all * (size_t)(i + 1) / (2 * N_BUDGETS);
    chain_try_all(&chain, budgets, least, N_BUDGETS);
    check_ok(ebb__chain_solve(&table, &chain, all, (int)all));
    cr_assert_eq(table->unit, 1);
    for (int i = 0; i < N_BUDGETS; i++) {
        chain_plan plan = { .n_segments = 0 };
        double cost = ebb__chain_cost(table, budgets[i]);
        cr_assert(cost == least[i], "seed %u, %d stages, budget %zu: %g, all plans say %g", seed, chain.n, budgets[i], cost,
                  least[i]);
        bool found = ebb__chain_plan(table, budgets[i], plan.choice, plan.segments, &plan.n_segments);
        cr_assert_eq(found, least[i] < INFINITY);
        if (!found) continue;
        chain_cost run = chain_run(&chain, &plan);
        cr_assert(run.ns == cost, "seed %u: the plan takes %g, the table says %g", seed, run.ns, cost);
        cr_assert_leq(run.peak, budgets[i]);
        ebb__chain_figures account = ebb__chain_run(&chain, plan.choice, plan.segments, plan.n_segments);
        cr_assert(account.ns == run.ns && account.bytes >= run.peak && account.bytes <= budgets[i],
                  "seed %u: the account says %g in %zu bytes, the run %g in %zu", seed, account.ns, account.bytes, run.ns,
                  run.peak);
    }
    ebb__chain_table_free(table);
}

static void check_optimal(uint32_t seed, int n, int max_choices)
{
    ebb__stage stages[MAX_STAGES];
    ebb__chain chain;
    dice d = { 0, seed };
    draw_chain(&chain, stages, &d, n, 6, max_choices);
    check_optimal_of(&chain, seed);
}

/* Choices whose outputs are made again in the backward behind them. */
static void draw_owed(ebb__chain *chain, dice *d)
{
    for (int i = 1; i < chain->n - 1; i++)
        for (int k = 1; k < chain->stages[i].n_choices; k++) chain->stages[i].choices[k].owed = draw(d, 12);
}

/* The program asks for the least that the stage behind may need.  Where its choices need the same, and it is in no
 * segment, that is what it needs. */
Test(chain, what_a_stage_owes_is_taken_from_the_backward_behind_it)
{
    for (uint32_t seed = 0; seed < 200; seed++) {
        ebb__stage stages[MAX_STAGES];
        ebb__chain chain;
        dice d = { 0, 7000 + seed };
        draw_chain(&chain, stages, &d, 3 + (int)(seed % 5), 6, 3);
        draw_owed(&chain, &d);
        for (int i = 0; i < chain.n; i++) {
            stages[i].divisible = false;
            stages[i].replay_ns = stages[i].forward_ns;
            for (int k = 1; k < stages[i].n_choices; k++) stages[i].choices[k].backward = stages[i].choices[0].backward;
        }
        check_optimal_of(&chain, seed);
    }
    check_no_live_blocks();
}

/* Elsewhere it may propose a plan that needs more, but misses none that fits. */
Test(chain, what_is_owed_makes_the_program_miss_no_plan)
{
    int dearer = 0;
    for (uint32_t seed = 0; seed < 200; seed++) {
        ebb__stage stages[MAX_STAGES];
        ebb__chain chain;
        ebb__chain_table *table = NULL, *without = NULL;
        dice d = { 0, 8000 + seed };
        double least[N_BUDGETS], free[N_BUDGETS];
        size_t budgets[N_BUDGETS];
        draw_chain(&chain, stages, &d, 3 + (int)(seed % 4), 6, 3);
        size_t all = all_bytes(&chain);
        for (int i = 0; i < N_BUDGETS; i++) budgets[i] = all * (size_t)(i + 1) / (2 * N_BUDGETS);
        check_ok(ebb__chain_solve(&without, &chain, all, (int)all));
        for (int i = 0; i < N_BUDGETS; i++) free[i] = ebb__chain_cost(without, budgets[i]);
        ebb__chain_table_free(without);
        draw_owed(&chain, &d);
        check_ok(ebb__chain_solve(&table, &chain, all, (int)all));
        chain_try_all(&chain, budgets, least, N_BUDGETS);
        for (int i = 0; i < N_BUDGETS; i++) {
            double cost = ebb__chain_cost(table, budgets[i]);
            cr_assert(cost <= least[i], "seed %u, budget %zu: %g, a plan takes %g", seed, budgets[i], cost, least[i]);
            dearer += cost > free[i];
        }
        ebb__chain_table_free(table);
    }
    cr_assert(dearer > 20, "%d budgets are dearer than where nothing is owed", dearer);
    check_no_live_blocks();
}

Test(chain, equals_all_plans_of_short_chains)
{
    for (uint32_t seed = 0; seed < 300; seed++) check_optimal(seed, 2 + (int)(seed % 5), 3);
    check_no_live_blocks();
}

Test(chain, equals_all_plans_of_chains_of_8_blocks)
{
    for (uint32_t seed = 1000; seed < 1006; seed++) check_optimal(seed, 10, 1);
    for (uint32_t seed = 2000; seed < 2020; seed++) check_optimal(seed, 8, 2);
    for (uint32_t seed = 3000; seed < 3100; seed++) check_optimal(seed, 7, 2);
    check_no_live_blocks();
}

enum { LONG = 42 };

Test(chain, is_never_slower_than_uniform_segments)
{
    for (uint32_t seed = 0; seed < 3; seed++) {
        ebb__stage stages[MAX_STAGES];
        ebb__chain chain;
        ebb__chain_table *table = NULL;
        dice d = { 0, seed };
        draw_chain(&chain, stages, &d, MAX_STAGES, 9, 2);
        size_t all = all_bytes(&chain);
        check_ok(ebb__chain_solve(&table, &chain, all, (int)all));
        for (int k = 0; k <= MAX_STAGES - 2; k++) {
            chain_plan plan = { .n_segments = 0 };
            for (int first = 1; k > 0 && first < MAX_STAGES - 1; first += k)
                plan.segments[plan.n_segments++] =
                    (ebb_block_range){ first, first + k - 1 < MAX_STAGES - 2 ? first + k - 1 : MAX_STAGES - 2 };
            chain_cost uniform = chain_run(&chain, &plan);
            cr_assert_leq(ebb__chain_cost(table, uniform.peak), uniform.ns, "seed %u, every:%d", seed, k);
        }
        ebb__chain_table_free(table);
    }
    check_no_live_blocks();
}

/* Sizes as a real step has them: many units each.  The program says itself when a budget is too close to the
 * smallest for the grid. */
Test(chain, a_grid_twice_as_fine_changes_time_by_half_a_percent_at_most)
{
    for (uint32_t seed = 0; seed < 4; seed++) {
        static ebb__stage stages[LONG];
        ebb__chain chain;
        dice d = { 0, seed };
        bool alike = seed % 2; /* equal blocks, as in a transformer */
        draw_chain(&chain, stages, &d, LONG, 1u << 20, 3);
        for (int i = 2; alike && i < LONG - 1; i++) stages[i] = stages[1];
        size_t all = all_bytes(&chain) / 2;
        for (size_t part = 1; part <= 8; part *= 2) {
            ebb__chain_table *coarse = NULL, *fine = NULL;
            check_ok(ebb__chain_solve(&coarse, &chain, all / part, 2000));
            check_ok(ebb__chain_solve(&fine, &chain, all / part, 4000));
            for (int i = 10; i <= 20; i++) {
                size_t bytes = all / part / 20 * (size_t)i;
                double a = ebb__chain_cost(coarse, bytes), b = ebb__chain_cost(fine, bytes);
                double base = 0;
                for (int s = 0; s < LONG; s++) base += 3 * stages[s].forward_ns; /* a step: backward is twice forward */
                if (a < INFINITY) cr_assert_leq(fabs(a - b), 0.005 * base, "seed %u, part %zu, %d: %g, %g", seed, part, i, a, b);
            }
            ebb__chain_table_free(coarse);
            ebb__chain_table_free(fine);
        }
    }
    check_no_live_blocks();
}

Test(chain, a_budget_that_nothing_fits_has_no_plan)
{
    ebb__stage stages[MAX_STAGES];
    ebb__chain chain;
    ebb__chain_table *table = NULL;
    dice d = { 0, 5 };
    chain_plan plan;
    draw_chain(&chain, stages, &d, 6, 9, 1);
    check_ok(ebb__chain_solve(&table, &chain, all_bytes(&chain), (int)all_bytes(&chain)));
    size_t least = ebb__chain_smallest(table);
    cr_assert(least > 0);
    cr_assert(ebb__chain_plan(table, least, plan.choice, plan.segments, &plan.n_segments));
    cr_assert_not(ebb__chain_plan(table, least - 1, plan.choice, plan.segments, &plan.n_segments));
    cr_assert(ebb__chain_cost(table, least - 1) == INFINITY);
    ebb__chain_table_free(table);
}

Test(chain, every_failing_allocation_is_told_and_leaks_nothing)
{
    ebb__stage stages[MAX_STAGES];
    ebb__chain chain;
    dice d = { 0, 6 };
    draw_chain(&chain, stages, &d, 6, 9, 1);
    for (uint64_t n = 1;; n++) {
        ebb__chain_table *table = NULL;
        ebb_fault_arm(n);
        ebb_status st = ebb__chain_solve(&table, &chain, 1000, 100);
        bool fired = ebb_fault_fired();
        ebb_fault_arm(0);
        if (!fired) check_ok(st);
        else cr_assert_eq(st, EBB_ENOMEM);
        ebb__chain_table_free(table);
        check_no_live_blocks();
        if (!fired) break;
    }
}
