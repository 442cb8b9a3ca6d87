/* alloc/segments.c: memory from the provider and back, and what is given up when there is none. */
#include "alloc/guard.h"
#include "alloc/pool_state.h"
#include "core/assert.h"
#include "core/mem.h"

void ebb__segment_link(ebb__pool *pool, ebb__segment *segment, ebb__block *block)
{
    *block = (ebb__block){ .stream = segment->stream,
                           .bytes = segment->bytes,
                           .segment = segment,
                           .segment_number = segment->number,
                           .unmapped = segment->expandable,
                           .by_end = segment->kind == EBB__POOL_PLAN };
    segment->first = block;
    segment->prev = pool->last_segment;
    segment->next = NULL;
    if (pool->last_segment)
        pool->last_segment->next = segment;
    else
        pool->first_segment = segment;
    pool->last_segment = segment;
}

void ebb__segment_unlink(ebb__pool *pool, ebb__segment *segment)
{
    EBB_ASSERT(ebb__segment_is_whole_free(segment));
    ebb__block_store_give(&pool->store, segment->first);
    if (segment->prev)
        segment->prev->next = segment->next;
    else
        pool->first_segment = segment->next;
    if (segment->next)
        segment->next->prev = segment->prev;
    else
        pool->last_segment = segment->prev;
    ebb__free(segment);
}

static void return_segment(ebb__pool *pool, ebb__segment *segment)
{
    ebb__block_from_tree(pool, segment->first);
    if (pool->watched) ebb__guard_memory_end(segment->base, segment->bytes);
    pool->provider.free(pool->provider.self, segment->base, segment->bytes);
    ebb__ledger_memory(pool, segment, segment->bytes, false);
    EBB__TRACE(pool, memory, EBB__ACT_SEGMENT_FREE, segment, 0, segment->bytes);
    ebb__segment_unlink(pool, segment);
}

size_t ebb__pool_return_cached(ebb__pool *pool)
{
    size_t before = pool->stats.reserved_bytes;
    for (ebb__segment *s = pool->first_segment, *next; s; s = next) {
        next = s->next;
        if (s->kind == EBB__POOL_PLAN || s->held) continue;
        if (s->expandable)
            ebb__expandable_return(pool, s);
        else if (ebb__segment_is_whole_free(s))
            return_segment(pool, s);
    }
    return before - pool->stats.reserved_bytes;
}

ebb_status ebb__segment_add(ebb__pool *pool, ebb__block **out, const ebb__request *request)
{
    size_t bytes = request->segment_bytes;
    *out = NULL;
    if (!ebb__pool_has_room(pool, bytes)) return EBB_OK;
    ebb__segment *segment = ebb__malloc(sizeof *segment);
    if (!segment) return EBB_ENOMEM;
    void *base = pool->provider.alloc(pool->provider.self, bytes);
    if (!base) {
        ebb__free(segment);
        return EBB_OK;
    }
    *segment = (ebb__segment){ .pool = pool,
                               .number = ++pool->last_number,
                               .base = base,
                               .bytes = bytes,
                               .stream = request->stream,
                               .kind = request->kind,
                               .held = pool->capture && request->stream == pool->capture };
    *out = ebb__block_store_take(&pool->store);
    ebb__segment_link(pool, segment, *out);
    ebb__ledger_memory(pool, segment, bytes, true);
    EBB__TRACE(pool, memory, EBB__ACT_SEGMENT_ALLOC, segment, 0, bytes);
    if (pool->watched) ebb__guard_memory_new(pool, segment->base, bytes);
    return EBB_OK;
}

/* ---- giving up --------------------------------------------------------------------------- */

static bool is_collectable(const ebb__block *block)
{
    return !block->segment->expandable && !block->segment->held && !ebb__block_is_split(block);
}

/* Returns whole large segments that have lain unused for at least the mean of such segments' times,
 * again and again, until reserved is down to the threshold. */
static void collect_garbage(ebb__pool *pool)
{
    ebb__free_tree *large = &pool->free[EBB__POOL_LARGE];
    size_t keep = (size_t)(pool->options.garbage_collection_threshold * (double)pool->limit_bytes);
    double total_age = 0;
    size_t n = 0;
    if (pool->stats.reserved_bytes <= keep) return;
    for (ebb__block *b = ebb__free_tree_first(large); b; b = ebb__free_tree_next(large, b)) {
        if (!is_collectable(b)) continue;
        total_age += (double)(pool->n_searches - b->free_since);
        n++;
    }
    bool freed = true;
    while (freed && n > 0 && pool->stats.reserved_bytes > keep) {
        double mean_age = total_age / (double)n;
        freed = false;
        for (ebb__block *b = ebb__free_tree_first(large), *next; b; b = next) {
            next = ebb__free_tree_next(large, b);
            double age = (double)(pool->n_searches - b->free_since);
            if (!is_collectable(b) || age < mean_age) continue;
            return_segment(pool, b->segment);
            total_age -= age;
            n--;
            freed = true;
        }
    }
}

static ebb__block *last_of_stream(const ebb__free_tree *tree, int stream)
{
    ebb__block *last = NULL;
    for (ebb__block *b = ebb__free_tree_first(tree); b; b = ebb__free_tree_next(tree, b))
        if (b->stream == stream) last = b;
    return last;
}

/* With max_split set: returns one oversize segment that is large enough, or else the largest ones
 * until they are together.  False: that was not enough. */
static bool return_oversize(ebb__pool *pool, const ebb__request *request)
{
    const ebb__free_tree *large = &pool->free[EBB__POOL_LARGE];
    size_t max_split = pool->options.max_split_bytes, total = 0;
    size_t want = request->rounded < max_split ? max_split : request->rounded;
    if (max_split == 0) return false;
    ebb__block *block = ebb__free_tree_find(large, request->stream, want);
    if (block && is_collectable(block)) {
        return_segment(pool, block->segment);
        return true;
    }
    while (total < want) {
        block = last_of_stream(large, request->stream);
        if (!block || block->bytes < max_split || !is_collectable(block)) return false;
        total += block->bytes;
        return_segment(pool, block->segment);
    }
    return true;
}

/* ---- the order of trying ----------------------------------------------------------------- */

static ebb_status new_memory(ebb__pool *pool, ebb__block **out, const ebb__request *request)
{
    /* At most a grown segment's cuts, a new segment's block and the rest of a split. */
    ebb_status status = ebb__block_store_reserve(&pool->store, 4);
    if (status != EBB_OK) return status;
    /* Mapping pages waits for the device, which would spoil a capture. */
    bool expandable = pool->options.expandable_segments && !pool->capture;
    return expandable ? ebb__expandable_grow(pool, out, request)
                                             : ebb__segment_add(pool, out, request);
}

ebb_status ebb__segment_for(ebb__pool *pool, ebb__block **out, const ebb__request *request)
{
    if (pool->capture) {
        ebb_status only = new_memory(pool, out, request);
        return only != EBB_OK || *out ? only : ebb__pool_oom(pool, request);
    }
    if (pool->limit_bytes && pool->options.garbage_collection_threshold > 0) collect_garbage(pool);
    ebb_status status = new_memory(pool, out, request);
    if (status == EBB_OK && !*out && return_oversize(pool, request))
        status = new_memory(pool, out, request);
    if (status != EBB_OK || *out) return status;
    ebb__stream_uses_wait(pool);
    *out = ebb__pool_find_free(pool, request); /* what streams held back may do */
    if (*out) return EBB_OK;
    pool->stats.n_alloc_retries++;
    pool->counters.n_retries++;
    (void)ebb__pool_return_cached(pool);
    status = new_memory(pool, out, request); /* giving up oversize segments may have made room as well */
    if (status != EBB_OK || *out) return status;
    return ebb__pool_oom(pool, request);
}
