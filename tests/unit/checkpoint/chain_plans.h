/* chain_plans.h: every plan of a small chain, and what a plan costs, found without the dynamic program. */
#ifndef CHAIN_PLANS_H
#define CHAIN_PLANS_H

#include "checkpoint/chain.h"

enum { MAX_STAGES = 10, MAX_SEGMENTS = 2 * MAX_STAGES };

typedef struct chain_plan {
    int choice[MAX_STAGES];
    ebb_block_range segments[MAX_SEGMENTS]; /* outer first */
    int n_segments;
} chain_plan;

typedef struct chain_cost {
    double ns;    /* all forwards and all that is recomputed */
    size_t peak;
} chain_cost;

/* Runs the plan step by step and counts. */
chain_cost chain_run(const ebb__chain *chain, const chain_plan *plan);

/* The least time of all plans whose peak is at most budgets[i], into least[i]. */
void chain_try_all(const ebb__chain *chain, const size_t *budgets, double *least, int n);

#endif
