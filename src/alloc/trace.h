/* alloc/trace.h: what happened in a pool, event by event, in a ring of fixed size.
 * Off, it costs one comparison per call.  Full, it forgets the oldest events and counts them. */
#ifndef EBB_ALLOC_TRACE_H
#define EBB_ALLOC_TRACE_H

#include "alloc/pool.h"

typedef enum ebb__action {
    EBB__ACT_ALLOC,
    EBB__ACT_FREE_REQUESTED, /* released: allocated no more */
    EBB__ACT_FREE_COMPLETED, /* free: active no more */
    EBB__ACT_SEGMENT_ALLOC,
    EBB__ACT_SEGMENT_FREE,
    EBB__ACT_SEGMENT_MAP,
    EBB__ACT_SEGMENT_UNMAP,
    EBB__ACT_OOM,      /* requested: what could not be had */
    EBB__ACT_CATEGORY, /* a live block was moved to owner.category */
    EBB__ACT_PHASE,    /* owner.phase begins */
    EBB__ACT_NODE,     /* backward of node owner.node (owner.op, owner.scope) begins */
    EBB__ACT_UNIT,     /* a unit of a training run begins: owner.op names its kind */
    EBB__N_ACTIONS
} ebb__action;

typedef struct ebb__event {
    uint64_t time_ns; /* CLOCK_MONOTONIC */
    uint64_t segment; /* number; 0: none */
    size_t offset;    /* in the segment; (segment, offset) names a block on every run */
    uint64_t address; /* made up on a dry device */
    size_t bytes, requested;
    int stream;
    ebb__action action;
    ebb__owner owner; /* its strings are borrowed: read the trace while the model lives */
} ebb__event;

typedef struct ebb__trace {
    ebb__event *ring; /* NULL: off */
    size_t capacity;
    uint64_t n; /* events since the start, those that were dropped included */
    uint64_t n_there; /* of those, the first ones: what was there already */
} ebb__trace;

/* Begins a trace that keeps the last `capacity` events.  Segments and live blocks that are there
 * already come first, as if they had just been made.  Errors: ENOMEM; ESTATE: one runs already. */
EBB_NODISCARD ebb_status ebb__trace_start(ebb__pool *pool, size_t capacity);
void ebb__trace_stop(ebb__pool *pool); /* forgets the events; none running is fine */

const char *
ebb__action_name(ebb__action action); /* PyTorch's: "free_requested"; our own: "phase" */
/* Events that are there, and those that were dropped. */
size_t ebb__trace_count(const ebb__pool *pool, uint64_t *dropped);
/* The i-th event that is there, oldest first; copied, so that the pool may go on. */
bool ebb__trace_get(const ebb__pool *pool, size_t i, ebb__event *out);

/* A mark: `action` is PHASE, NODE or UNIT; what it means stands in owner. */
void ebb__trace_mark(ebb__pool *pool, ebb__action action, const ebb__owner *owner);

#endif
