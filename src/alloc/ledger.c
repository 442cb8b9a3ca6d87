/* alloc/ledger.c: whose the bytes are, now and at the peak. */
#include <stdio.h>
#include <string.h>

#include "alloc/pool_state.h"
#include "core/assert.h"

/* The keys of every report's "memory" object. */
static const char *const category_names[EBB_N_CATEGORIES] = {
    [EBB_CAT_PARAMETER] = "parameters",   [EBB_CAT_OPTIMIZER] = "optimizer",
    [EBB_CAT_GRADIENT] = "gradients",     [EBB_CAT_INPUT] = "input",
    [EBB_CAT_ACTIVATION] = "activations", [EBB_CAT_RECOMPUTED] = "recomputed",
    [EBB_CAT_WORKSPACE] = "workspace",    [EBB_CAT_TEMPORARY] = "temporary",
};

const char *ebb_category_name(ebb_category category)
{
    unsigned index = (unsigned)category;
    return index < EBB_N_CATEGORIES ? category_names[index] : "unknown";
}

char *ebb__owner_describe(const ebb__owner *owner, char *buf, size_t buf_bytes)
{
    const char *what = owner->op ? owner->op : ebb_category_name(owner->category);
    if (owner->scope)
        snprintf(buf, buf_bytes, "%s (%s)", what, owner->scope);
    else
        snprintf(buf, buf_bytes, "%s", what);
    return buf;
}

/* Each byte has one owner: in checked builds that is verified at every event. */
static void check_sum(const ebb__pool *pool)
{
    size_t sum = 0;
    if (pool->checks < 2) return;
    for (int i = 0; i < EBB_N_CATEGORIES; i++) sum += pool->stats.by_category[i];
    EBB_ASSERT(sum == pool->stats.allocated_bytes);
}

static bool is_oversize(const ebb__pool *pool, size_t bytes)
{
    return pool->options.max_split_bytes && bytes >= pool->options.max_split_bytes;
}

static void count_take(ebb__pool *pool, const ebb__block *block)
{
    ebb__counters *c = &pool->counters;
    bool small = block->segment->kind == EBB__POOL_SMALL;
    ebb__counters_add(c, small, EBB__COUNT_ALLOCATION, 1);
    ebb__counters_add(c, small, EBB__COUNT_ALLOCATED_BYTES, block->bytes);
    ebb__counters_add(c, small, EBB__COUNT_ACTIVE, 1);
    ebb__counters_add(c, small, EBB__COUNT_ACTIVE_BYTES, block->bytes);
    ebb__counters_add(c, small, EBB__COUNT_REQUESTED_BYTES, block->requested);
    if (is_oversize(pool, block->bytes)) ebb__counter_add(&c->oversize_allocations, 1);
}

void ebb__ledger_take(ebb__pool *pool, const ebb__block *block)
{
    ebb_memory_stats *stats = &pool->stats;
    stats->n_allocs++;
    if (!block->segment) return; /* 0 bytes */
    stats->allocated_bytes += block->bytes;
    stats->requested_bytes += block->requested;
    stats->by_category[block->owner.category] += block->bytes;
    if (stats->requested_bytes > stats->peak_requested_bytes)
        stats->peak_requested_bytes = stats->requested_bytes;
    /* Strictly more: the snapshot is of the first instant of the peak. */
    if (stats->allocated_bytes > stats->peak_allocated_bytes) {
        stats->peak_allocated_bytes = stats->allocated_bytes;
        memcpy(stats->by_category_at_peak, stats->by_category, sizeof stats->by_category);
    }
    count_take(pool, block);
    check_sum(pool);
}

void ebb__ledger_release(ebb__pool *pool, const ebb__block *block)
{
    ebb_memory_stats *stats = &pool->stats;
    stats->n_frees++;
    if (!block->segment) return;
    stats->allocated_bytes -= block->bytes;
    stats->requested_bytes -= block->requested;
    stats->by_category[block->owner.category] -= block->bytes;
    bool small = block->segment->kind == EBB__POOL_SMALL;
    ebb__counters_take(&pool->counters, small, EBB__COUNT_ALLOCATION, 1);
    ebb__counters_take(&pool->counters, small, EBB__COUNT_ALLOCATED_BYTES, block->bytes);
    if (is_oversize(pool, block->bytes)) ebb__counter_take(&pool->counters.oversize_allocations, 1);
    check_sum(pool);
}

/* Memory of a segment comes or goes: all of it at once, or an expandable one's pages.  An expandable
 * segment itself begins and ends with 0 bytes. */
void ebb__ledger_memory(ebb__pool *pool, const ebb__segment *segment, size_t bytes, bool added)
{
    ebb_memory_stats *stats = &pool->stats;
    ebb__counters *c = &pool->counters;
    bool small = segment->kind == EBB__POOL_SMALL, whole = !segment->expandable || bytes == 0;
    bool oversize = whole && is_oversize(pool, bytes);
    if (added) {
        stats->n_segment_allocs += whole;
        stats->reserved_bytes += bytes;
        c->n_device_alloc += bytes > 0;
        ebb__counters_add(c, small, EBB__COUNT_SEGMENT, whole);
        ebb__counters_add(c, small, EBB__COUNT_RESERVED_BYTES, bytes);
        if (oversize) ebb__counter_add(&c->oversize_segments, 1);
    } else {
        stats->n_segment_frees += whole;
        stats->reserved_bytes -= bytes;
        c->n_device_free += bytes > 0;
        ebb__counters_take(c, small, EBB__COUNT_SEGMENT, whole);
        ebb__counters_take(c, small, EBB__COUNT_RESERVED_BYTES, bytes);
        if (oversize) ebb__counter_take(&c->oversize_segments, 1);
    }
    if (stats->reserved_bytes > stats->peak_reserved_bytes)
        stats->peak_reserved_bytes = stats->reserved_bytes;
}

void ebb__block_set_category(ebb__pool *pool, ebb__block *block, ebb_category category)
{
    EBB_ASSERT((unsigned)category < EBB_N_CATEGORIES);
    ebb__pool_lock(pool);
    EBB_ASSERT(block->used);
    pool->stats.by_category[block->owner.category] -= block->bytes;
    pool->stats.by_category[category] += block->bytes;
    block->owner.category = category;
    if (block->segment) EBB__TRACE(pool, block, EBB__ACT_CATEGORY, block);
    if (pool->checks >= 3) ebb__pool_assert_sound(pool);
    ebb__pool_unlock(pool);
}

void ebb__pool_stats(const ebb__pool *pool, ebb_memory_stats *stats)
{
    ebb__pool_lock(pool);
    *stats = pool->stats;
    ebb__pool_unlock(pool);
}

void ebb__pool_reset_peak(ebb__pool *pool)
{
    ebb__pool_lock(pool);
    ebb_memory_stats *stats = &pool->stats;
    stats->peak_allocated_bytes = stats->allocated_bytes;
    stats->peak_reserved_bytes = stats->reserved_bytes;
    stats->peak_requested_bytes = stats->requested_bytes;
    memcpy(stats->by_category_at_peak, stats->by_category, sizeof stats->by_category);
    ebb__counters_reset_peak(&pool->counters);
    ebb__pool_unlock(pool);
}

void ebb__pool_each_live(const ebb__pool *pool, void (*emit)(void *user, const ebb__block *block),
                         void *user)
{
    ebb__pool_lock(pool);
    for (const ebb__segment *s = pool->first_segment; s; s = s->next)
        for (const ebb__block *b = s->first; b; b = b->next)
            if (b->used && !b->released) emit(user, b);
    for (const ebb__block *b = pool->first_empty; b; b = b->next) emit(user, b);
    ebb__pool_unlock(pool);
}
