/* alloc/counters.c: PyTorch's names for the counters. */
#include "alloc/counters.h"

#include <stdio.h>
#include <string.h>

#include "alloc/pool_state.h"

static const char *const counted_names[EBB__N_COUNTED] = {
    [EBB__COUNT_ALLOCATION] = "allocation",
    [EBB__COUNT_ALLOCATED_BYTES] = "allocated_bytes",
    [EBB__COUNT_SEGMENT] = "segment",
    [EBB__COUNT_RESERVED_BYTES] = "reserved_bytes",
    [EBB__COUNT_ACTIVE] = "active",
    [EBB__COUNT_ACTIVE_BYTES] = "active_bytes",
    [EBB__COUNT_INACTIVE_SPLIT] = "inactive_split",
    [EBB__COUNT_INACTIVE_SPLIT_BYTES] = "inactive_split_bytes",
    [EBB__COUNT_REQUESTED_BYTES] = "requested_bytes",
};

static const char *const of_names[EBB__N_COUNTED_OF] = {
    [EBB__OF_ALL] = "all",
    [EBB__OF_LARGE] = "large_pool",
    [EBB__OF_SMALL] = "small_pool",
};

static void reset_peak(ebb__counter *counter) { counter->peak = counter->current; }

static void reset_accumulated(ebb__counter *counter) { counter->allocated = counter->freed = 0; }

static void for_each(ebb__counters *c, void (*reset)(ebb__counter *counter))
{
    for (int of = 0; of < EBB__N_COUNTED_OF; of++)
        for (int what = 0; what < EBB__N_COUNTED; what++) reset(&c->of[of][what]);
    reset(&c->oversize_allocations);
    reset(&c->oversize_segments);
}

void ebb__counters_reset_peak(ebb__counters *counters) { for_each(counters, reset_peak); }

void ebb__counters_reset_accumulated(ebb__counters *counters)
{
    for_each(counters, reset_accumulated);
    counters->n_retries = counters->n_ooms = counters->n_sync_all_streams = 0;
    counters->n_device_alloc = counters->n_device_free = 0;
}

typedef struct emitter {
    void (*emit)(void *user, const char *key, uint64_t value);
    void *user;
} emitter;

static void emit_counter(const emitter *e, const char *name, const char *of, const ebb__counter *c)
{
    const struct {
        const char *name;
        uint64_t value;
    } values[] = {
        { "current", c->current },
        { "peak", c->peak },
        { "allocated", c->allocated },
        { "freed", c->freed },
    };
    for (size_t i = 0; i < sizeof values / sizeof *values; i++) {
        char key[96];
        snprintf(key, sizeof key, "%s%s%s.%s", name, of ? "." : "", of ? of : "", values[i].name);
        e->emit(e->user, key, values[i].value);
    }
}

void ebb__pool_each_stat(const ebb__pool *pool,
                         void (*emit)(void *user, const char *key, uint64_t value), void *user)
{
    ebb__pool_lock(pool);
    ebb__counters c = pool->counters;
    uint64_t max_split = pool->options.max_split_bytes ? pool->options.max_split_bytes : UINT64_MAX;
    ebb__pool_unlock(pool);
    emitter e = { emit, user };
    for (int what = 0; what < EBB__N_COUNTED; what++)
        for (int of = 0; of < EBB__N_COUNTED_OF; of++)
            emit_counter(&e, counted_names[what], of_names[of], &c.of[of][what]);
    emit_counter(&e, "oversize_allocations", NULL, &c.oversize_allocations);
    emit_counter(&e, "oversize_segments", NULL, &c.oversize_segments);
    const struct {
        const char *key;
        uint64_t value;
    } scalars[] = {
        { "num_alloc_retries", c.n_retries },
        { "num_ooms", c.n_ooms },
        { "num_sync_all_streams", c.n_sync_all_streams },
        { "num_device_alloc", c.n_device_alloc },
        { "num_device_free", c.n_device_free },
        { "max_split_size", max_split },
    };
    for (size_t i = 0; i < sizeof scalars / sizeof *scalars; i++)
        emit(user, scalars[i].key, scalars[i].value);
}

void ebb__pool_reset_accumulated(ebb__pool *pool)
{
    ebb__pool_lock(pool);
    ebb__counters_reset_accumulated(&pool->counters);
    ebb__pool_unlock(pool);
}
