/* alloc/plan.h: the offset plan.  A dry run's trace of allocations and frees is packed into one arena;
 * a run that asks for the same blocks in the same order gets them at those offsets, and the arena is
 * hardly larger than the largest sum of live bytes.  A request that leaves the trace, or whose place
 * is still taken, is served by the pool as always: a plan never decides whether a run is right.
 *
 * Runs repeat themselves: UNIT marks (trace.h) cut a trace into units, each of some kind.  The n-th
 * unit of a kind follows the n-th that was recorded, or the last one. */
#ifndef EBB_ALLOC_PLAN_H
#define EBB_ALLOC_PLAN_H

#include "alloc/pool.h"

struct ebb__request;

typedef struct ebb__plan ebb__plan;

typedef struct ebb__planned {
    size_t bytes, offset;
    size_t begin, end; /* lives during [begin, end) of the trace's events; SIZE_MAX: to the end */
} ebb__planned;

/* Reads the trace that `pool` keeps.  Owner: *out is the caller's; ebb__plan_free().
 * Errors: ENOMEM; ESTATE: there is no trace, or it has dropped events. */
EBB_NODISCARD ebb_status ebb__plan_from_trace(ebb__plan **out, const ebb__pool *pool);
void ebb__plan_free(ebb__plan *plan);
size_t ebb__plan_bytes(const ebb__plan *plan);      /* of the arena */
size_t ebb__plan_live_bytes(const ebb__plan *plan); /* the largest sum of blocks alive together */

/* Makes the arena.  The pool must be new.  Owner: the pool takes the plan, also on an error.
 * Errors: ENOMEM. */
EBB_NODISCARD ebb_status ebb__pool_follow_plan(ebb__pool *pool, ebb__plan *plan);
/* Requests that were placed by the plan, and those that were not. */
void ebb__pool_plan_use(const ebb__pool *pool, uint64_t *followed, uint64_t *left);

/* plan_pack.c: gives every block an offset, so that blocks alive together do not overlap, in *bytes
 * bytes; live_bytes, the largest sum alive together, is the least that can be.  Errors: ENOMEM. */
EBB_NODISCARD ebb_status ebb__plan_pack(ebb__planned *blocks, size_t n, size_t live_bytes,
                                        size_t *bytes);

/* ---- for the pool, with the lock held ---------------------------------------------------- */
/* A free block of the arena, out of its tree, at the planned offset; NULL: none.  Uses a spare struct. */
ebb__block *ebb__plan_take(ebb__pool *pool, const struct ebb__request *request);
/* What decides how coming units are placed: which of the recorded ones they will follow. */
uint64_t ebb__plan_position(const ebb__pool *pool);
void ebb__plan_unit(ebb__pool *pool, const char *kind);
void ebb__plan_end(ebb__pool *pool);

#endif
