/* alloc/trace.c: the ring of events. */
#include "alloc/trace.h"

#include <time.h>

#include "alloc/plan.h"
#include "alloc/pool_state.h"
#include "core/mem.h"

static const char *const action_names[EBB__N_ACTIONS] = {
    [EBB__ACT_ALLOC] = "alloc",
    [EBB__ACT_FREE_REQUESTED] = "free_requested",
    [EBB__ACT_FREE_COMPLETED] = "free_completed",
    [EBB__ACT_SEGMENT_ALLOC] = "segment_alloc",
    [EBB__ACT_SEGMENT_FREE] = "segment_free",
    [EBB__ACT_SEGMENT_MAP] = "segment_map",
    [EBB__ACT_SEGMENT_UNMAP] = "segment_unmap",
    [EBB__ACT_OOM] = "oom",
    [EBB__ACT_CATEGORY] = "category",
    [EBB__ACT_PHASE] = "phase",
    [EBB__ACT_NODE] = "node",
    [EBB__ACT_UNIT] = "unit",
};

const char *ebb__action_name(ebb__action action)
{
    return (unsigned)action < EBB__N_ACTIONS ? action_names[action] : "unknown";
}

static uint64_t now_ns(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (uint64_t)t.tv_sec * 1000000000u + (uint64_t)t.tv_nsec;
}

static ebb__event *next_event(ebb__trace *trace, ebb__action action)
{
    ebb__event *event = &trace->ring[trace->n++ % trace->capacity];
    event->time_ns = now_ns();
    event->action = action;
    return event;
}

void ebb__trace_block_event(ebb__pool *pool, ebb__action action, const ebb__block *block)
{
    ebb__event *e = next_event(&pool->trace, action);
    e->segment = block->segment_number;
    e->offset = block->offset;
    e->address = block->segment ? (uintptr_t)block->segment->base + block->offset : 0;
    e->bytes = block->bytes;
    e->requested = block->requested;
    e->stream = block->stream;
    e->owner = block->owner;
}

void ebb__trace_memory_event(ebb__pool *pool, ebb__action action, const ebb__segment *segment,
                             size_t offset, size_t bytes)
{
    ebb__event *e = next_event(&pool->trace, action);
    e->segment = segment->number;
    e->offset = offset;
    e->address = (uintptr_t)segment->base + offset;
    e->bytes = e->requested = bytes;
    e->stream = segment->stream;
    e->owner = (ebb__owner){ .category = EBB_CAT_TEMPORARY };
}

void ebb__trace_oom_event(ebb__pool *pool, size_t requested, int stream, const ebb__owner *owner)
{
    ebb__event *e = next_event(&pool->trace, EBB__ACT_OOM);
    e->segment = 0;
    e->offset = e->address = 0;
    e->bytes = e->requested = requested;
    e->stream = stream;
    e->owner = *owner;
}

void ebb__trace_mark(ebb__pool *pool, ebb__action action, const ebb__owner *owner)
{
    ebb__pool_lock(pool);
    if (pool->trace.ring) {
        ebb__event *e = next_event(&pool->trace, action);
        *e = (ebb__event){ .time_ns = e->time_ns, .action = action, .owner = *owner };
    }
    if (action == EBB__ACT_UNIT && pool->plan) ebb__plan_unit(pool, owner->op);
    ebb__pool_unlock(pool);
}

static void add_what_is_there(ebb__pool *pool)
{
    for (const ebb__segment *s = pool->first_segment; s; s = s->next) {
        ebb__trace_memory_event(pool, EBB__ACT_SEGMENT_ALLOC, s, 0, s->expandable ? 0 : s->bytes);
        for (const ebb__block *b = s->first; b; b = b->next) {
            if (s->expandable && !b->unmapped)
                ebb__trace_memory_event(pool, EBB__ACT_SEGMENT_MAP, s, b->offset, b->bytes);
            if (b->used) ebb__trace_block_event(pool, EBB__ACT_ALLOC, b);
            if (b->used && b->released) ebb__trace_block_event(pool, EBB__ACT_FREE_REQUESTED, b);
        }
    }
}

ebb_status ebb__trace_start(ebb__pool *pool, size_t capacity)
{
    size_t bytes;
    if (capacity == 0 || !ebb__mul_size(&bytes, capacity, sizeof(ebb__event)))
        return ebb_fail(EBB_EINVAL, "trace: a capacity of %zu events", capacity);
    ebb__event *ring = ebb__malloc(bytes);
    if (!ring) return EBB_ENOMEM;
    ebb__pool_lock(pool);
    bool runs = pool->trace.ring != NULL;
    if (!runs) {
        pool->trace = (ebb__trace){ .ring = ring, .capacity = capacity };
        add_what_is_there(pool);
        pool->trace.n_there = pool->trace.n;
    }
    ebb__pool_unlock(pool);
    if (!runs) return EBB_OK;
    ebb__free(ring);
    return ebb_fail(EBB_ESTATE, "trace: one runs already");
}

void ebb__trace_stop(ebb__pool *pool)
{
    ebb__pool_lock(pool);
    ebb__free(pool->trace.ring);
    pool->trace = (ebb__trace){ 0 };
    ebb__pool_unlock(pool);
}

static size_t kept(const ebb__trace *trace)
{
    return trace->n < trace->capacity ? (size_t)trace->n : trace->capacity;
}

size_t ebb__trace_count(const ebb__pool *pool, uint64_t *dropped)
{
    ebb__pool_lock(pool);
    size_t n = kept(&pool->trace);
    if (dropped) *dropped = pool->trace.n - n;
    ebb__pool_unlock(pool);
    return n;
}

bool ebb__trace_get(const ebb__pool *pool, size_t i, ebb__event *out)
{
    ebb__pool_lock(pool);
    const ebb__trace *trace = &pool->trace;
    size_t n = kept(trace);
    if (i < n) *out = trace->ring[(trace->n - n + i) % trace->capacity];
    ebb__pool_unlock(pool);
    return i < n;
}
