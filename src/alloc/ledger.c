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
    if (owner->scope) snprintf(buf, buf_bytes, "%s (%s)", what, owner->scope);
    else snprintf(buf, buf_bytes, "%s", what);
    return buf;
}

void ebb__ledger_take(ebb_memory_stats *stats, const ebb__block *block)
{
    stats->n_allocs++;
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
}

void ebb__ledger_release(ebb_memory_stats *stats, const ebb__block *block)
{
    stats->n_frees++;
    stats->allocated_bytes -= block->bytes;
    stats->requested_bytes -= block->requested;
    stats->by_category[block->owner.category] -= block->bytes;
}

void ebb__ledger_segment_new(ebb_memory_stats *stats, size_t bytes)
{
    stats->n_segment_allocs++;
    stats->reserved_bytes += bytes;
    if (stats->reserved_bytes > stats->peak_reserved_bytes)
        stats->peak_reserved_bytes = stats->reserved_bytes;
}

void ebb__ledger_segment_end(ebb_memory_stats *stats, size_t bytes)
{
    stats->n_segment_frees++;
    stats->reserved_bytes -= bytes;
}

void ebb__block_set_category(ebb__pool *pool, ebb__block *block, ebb_category category)
{
    EBB_ASSERT((unsigned)category < EBB_N_CATEGORIES);
    ebb__pool_lock(pool);
    EBB_ASSERT(block->used);
    pool->stats.by_category[block->owner.category] -= block->bytes;
    pool->stats.by_category[category] += block->bytes;
    block->owner.category = category;
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
    ebb__pool_unlock(pool);
}

void ebb__pool_each_live(const ebb__pool *pool, void (*emit)(void *user, const ebb__block *block),
                         void *user)
{
    ebb__pool_lock(pool);
    for (const ebb__segment *s = pool->first_segment; s; s = s->next)
        for (const ebb__block *b = s->first; b; b = b->next)
            if (b->used) emit(user, b);
    for (const ebb__block *b = pool->first_empty; b; b = b->next) emit(user, b);
    ebb__pool_unlock(pool);
}
