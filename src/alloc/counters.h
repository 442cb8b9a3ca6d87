/* alloc/counters.h: what PyTorch's memory_stats() counts, for the pool as a whole and for its small
 * and large part. */
#ifndef EBB_ALLOC_COUNTERS_H
#define EBB_ALLOC_COUNTERS_H

#include <ebb/types.h>

typedef enum ebb__counted {
    EBB__COUNT_ALLOCATION,
    EBB__COUNT_ALLOCATED_BYTES,
    EBB__COUNT_SEGMENT,
    EBB__COUNT_RESERVED_BYTES,
    EBB__COUNT_ACTIVE,
    EBB__COUNT_ACTIVE_BYTES,
    EBB__COUNT_INACTIVE_SPLIT,
    EBB__COUNT_INACTIVE_SPLIT_BYTES,
    EBB__COUNT_REQUESTED_BYTES,
    EBB__N_COUNTED
} ebb__counted;

typedef enum ebb__counted_of {
    EBB__OF_ALL,
    EBB__OF_LARGE,
    EBB__OF_SMALL,
    EBB__N_COUNTED_OF
} ebb__counted_of;

typedef struct ebb__counter {
    uint64_t current, peak, allocated, freed;
} ebb__counter;

typedef struct ebb__counters {
    ebb__counter of[EBB__N_COUNTED_OF][EBB__N_COUNTED];
    ebb__counter oversize_allocations, oversize_segments; /* of at least max_split */
    uint64_t n_retries, n_ooms, n_sync_all_streams, n_device_alloc, n_device_free;
} ebb__counters;

static inline void ebb__counter_add(ebb__counter *counter, uint64_t n)
{
    counter->current += n;
    counter->allocated += n;
    if (counter->current > counter->peak) counter->peak = counter->current;
}

static inline void ebb__counter_take(ebb__counter *counter, uint64_t n)
{
    counter->current -= n;
    counter->freed += n;
}

static inline void ebb__counters_add(ebb__counters *c, bool small, ebb__counted what, uint64_t n)
{
    ebb__counter_add(&c->of[EBB__OF_ALL][what], n);
    ebb__counter_add(&c->of[small ? EBB__OF_SMALL : EBB__OF_LARGE][what], n);
}

static inline void ebb__counters_take(ebb__counters *c, bool small, ebb__counted what, uint64_t n)
{
    ebb__counter_take(&c->of[EBB__OF_ALL][what], n);
    ebb__counter_take(&c->of[small ? EBB__OF_SMALL : EBB__OF_LARGE][what], n);
}

void ebb__counters_reset_peak(ebb__counters *counters);
void ebb__counters_reset_accumulated(ebb__counters *counters);

#endif
