/* train/candidates.h: the plans of a config that are worth a dry run.  They depend on the config alone, never on
 * a budget, so that whoever selects among them for one budget or for the whole frontier sees the same ones. */
#ifndef EBB_TRAIN_CANDIDATES_H
#define EBB_TRAIN_CANDIDATES_H

#include "train/profile.h"

typedef struct ebb__candidate {
    ebb_plan *plan;
    size_t bytes;    /* modelled peak of allocated bytes */
    double ns;       /* modelled time of a step, above that of keeping everything */
    size_t asked;    /* the program's budget; 0: uniform segments */
} ebb__candidate;

typedef struct ebb__candidates {
    const ebb__profile *profile; /* borrowed */
    double micro_batches;
    double none_ns;              /* of the chain */
    ebb__chain flat;             /* the chain without its parameters' gradients; stages owned */
    bool is_flat, skips;         /* the level reached is of that one; the next one shall be */
    ebb__chain_table *table;     /* of the level reached */
    size_t table_bytes;
    size_t least;                /* the smallest budget of that level's table */
    ebb__candidate *list;
    size_t n, cap;
    size_t level;                /* list[level, n) are of the level reached, from large to small */
} ebb__candidates;

/* Uniform segments of every length are there at once.  On errors too, ebb__candidates_deinit() must follow. */
EBB_NODISCARD ebb_status ebb__candidates_init(ebb__candidates *out, const ebb__profile *profile, int accumulate);
/* Adds the plans of the next level, from large to small: the program's, in budgets that are less than 6 % apart, on a
 * grid of that level's own.  The last grid is dense towards the smallest.  Behind it comes one level more, of small
 * budgets for a chain without gradients: those bound what is alive early in backward, when there are few gradients,
 * and so fragment less.  False in *more: there was none. */
EBB_NODISCARD ebb_status ebb__candidates_next(ebb__candidates *c, bool *more);
/* That last level at once: those between are not wanted. */
void ebb__candidates_skip(ebb__candidates *c);
/* The program's plan in a budget of the level reached; out->plan NULL: none, else the caller's. */
EBB_NODISCARD ebb_status ebb__candidates_within(ebb__candidate *out, const ebb__candidates *c, size_t asked);
void ebb__candidates_deinit(ebb__candidates *c);

#endif
