/* alloc/pool.c: requests and releases. */
#include "alloc/pool.h"

#include "alloc/guard.h"
#include "alloc/plan.h"
#include "alloc/pool_state.h"
#include "core/assert.h"
#include "core/mem.h"

ebb__block *ebb__pool_find_free(ebb__pool *pool, const ebb__request *request)
{
    pool->n_searches++;
    ebb__block *block =
        ebb__free_tree_find(&pool->free[request->kind], request->stream, request->rounded);
    if (!block || !ebb__block_suits(pool, block, request)) return NULL;
    ebb__block_from_tree(pool, block);
    return block;
}

static ebb_status take_block(ebb__pool *pool, ebb__block **out, const ebb__request *request)
{
    if (request->rounded == 0) return ebb__pool_oom(pool, request);
    ebb_status status =
        ebb__block_store_reserve(&pool->store, 2); /* of a planned block or a split */
    if (status != EBB_OK) return status;
    if (pool->first_wait && !pool->capture) ebb__stream_uses_poll(pool);
    ebb__block *block = pool->plan ? ebb__plan_take(pool, request) : NULL;
    if (!block) block = ebb__pool_find_free(pool, request);
    if (!block && ebb__deferred_flush(pool)) block = ebb__pool_find_free(pool, request);
    if (!block) status = ebb__segment_for(pool, &block, request);
    if (status != EBB_OK) return status;
    if (ebb__block_splits(pool, block, request))
        ebb__block_to_tree(pool, ebb__block_cut(pool, block, request->rounded));
    *out = block;
    return EBB_OK;
}

/* A block of 0 bytes is in no segment, but in a list, so that it is found among the live ones. */
static ebb_status take_empty(ebb__pool *pool, ebb__block **out, int stream)
{
    ebb_status status = ebb__block_store_reserve(&pool->store, 1);
    if (status != EBB_OK) return status;
    ebb__block *block = ebb__block_store_take(&pool->store);
    *block = (ebb__block){ .stream = stream, .next = pool->first_empty };
    if (block->next) block->next->prev = block;
    pool->first_empty = block;
    *out = block;
    return EBB_OK;
}

static void release_empty(ebb__pool *pool, ebb__block *block)
{
    if (block->prev)
        block->prev->next = block->next;
    else
        pool->first_empty = block->next;
    if (block->next) block->next->prev = block->prev;
    ebb__block_store_give(&pool->store, block);
}

ebb_status ebb__pool_alloc(ebb__pool *pool, ebb__block **out, size_t bytes, int stream,
                           const ebb__owner *owner)
{
    if (ebb__fault()) return EBB_ENOMEM;
    ebb__block *block = NULL;
    ebb__pool_lock(pool);
    if (stream == 0) stream = pool->capture;
    ebb__request request = ebb__request_make(pool, bytes, stream, owner);
    EBB_ASSERT((unsigned)request.owner->category < EBB_N_CATEGORIES);
    ebb_status status =
        bytes > 0 ? take_block(pool, &block, &request) : take_empty(pool, &block, stream);
    if (status == EBB_OK) {
        block->requested = bytes;
        block->used = true;
        block->owner = *request.owner;
        ebb__ledger_take(pool, block);
        if (bytes) EBB__TRACE(pool, block, EBB__ACT_ALLOC, block);
        if (pool->watched && bytes) ebb__guard_take(pool, block);
        *out = block;
    }
    if (pool->checks >= 3) ebb__pool_assert_sound(pool);
    ebb__pool_unlock(pool);
    return status;
}

void ebb__pool_complete(ebb__pool *pool, ebb__block *block)
{
    ebb__counters *c = &pool->counters;
    bool small = block->segment->kind == EBB__POOL_SMALL;
    ebb__counters_take(c, small, EBB__COUNT_ACTIVE, 1);
    ebb__counters_take(c, small, EBB__COUNT_ACTIVE_BYTES, block->bytes);
    ebb__counters_take(c, small, EBB__COUNT_REQUESTED_BYTES, block->requested);
    EBB__TRACE(pool, block, EBB__ACT_FREE_COMPLETED, block);
    if (pool->watched) ebb__guard_free(pool, block);
    ebb__block_make_free(pool, block);
}

static void check_release(const ebb__pool *pool, const ebb__block *block)
{
    if (!block->used || block->released)
        ebb__assert_failed("pool: a block was released twice", __FILE__, __LINE__);
    if (block->segment && block->segment->pool != pool)
        ebb__assert_failed("pool: a block was released to another pool", __FILE__, __LINE__);
}

void ebb__pool_release(ebb__pool *pool, ebb__block *block)
{
    if (!block) return;
    ebb__pool_lock(pool);
    check_release(pool, block);
    ebb__ledger_release(pool, block);
    if (block->segment) {
        EBB__TRACE(pool, block, EBB__ACT_FREE_REQUESTED, block);
        if (pool->watched) ebb__guard_release(pool, block);
        block->released = true;
        if (!ebb__stream_uses_take(pool, block) && !ebb__deferred_take(pool, block))
            ebb__pool_complete(pool, block);
    } else {
        release_empty(pool, block);
    }
    if (pool->checks >= 3) ebb__pool_assert_sound(pool);
    ebb__pool_unlock(pool);
}

void *ebb__block_data(const ebb__block *block)
{
    return block->segment ? block->segment->base + block->offset : NULL;
}

size_t ebb__block_bytes(const ebb__block *block) { return block->bytes; }

size_t ebb__block_requested(const ebb__block *block) { return block->requested; }

const ebb__owner *ebb__block_owner(const ebb__block *block) { return &block->owner; }

uint64_t ebb__block_segment(const ebb__block *block) { return block->segment_number; }

size_t ebb__block_offset(const ebb__block *block) { return block->offset; }

/* ---- the pool ---------------------------------------------------------------------------- */

ebb_status ebb__pool_new(ebb__pool **out, ebb__provider provider, const ebb__pool_options *options)
{
    ebb__alloc_options alloc =
        options && options->alloc ? *options->alloc : ebb__alloc_options_default();
    if (alloc.expandable_segments && !provider.reserve)
        return ebb_fail(EBB_EUNSUPPORTED,
                        "pool: expandable_segments: this device cannot map pages");
    ebb__pool *pool = ebb__calloc(1, sizeof *pool);
    if (!pool) return EBB_ENOMEM;
    if (pthread_mutex_init(&pool->lock, NULL) != 0) {
        ebb__free(pool);
        return ebb_fail(EBB_ENOMEM, "pool: the system has no mutex left");
    }
    pool->provider = provider;
    pool->options = alloc;
    pool->checks = options && options->checks >= 0 ? options->checks : EBB_CHECKS;
    pool->watched = ebb__guard_is_needed(&provider, pool->checks);
    if (options) {
        pool->limit_bytes = options->limit_bytes;
        pool->fences = options->fences;
        pool->exact = options->exact;
    }
    *out = pool;
    return EBB_OK;
}

void ebb__pool_free(ebb__pool *pool)
{
    if (!pool) return;
    if (pool->stats.n_allocs != pool->stats.n_frees)
        ebb__assert_failed("pool: freed while blocks are in use", __FILE__, __LINE__);
    ebb__plan_end(pool);
    ebb__stream_uses_wait(pool);
    ebb__deferred_flush(pool);
    ebb__pool_return_cached(pool);
    EBB_ASSERT(pool->first_segment == NULL);
    ebb__free(pool->trace.ring);
    ebb__block_store_deinit(&pool->store);
    pthread_mutex_destroy(&pool->lock);
    ebb__free(pool);
}

void ebb__pool_empty_cache(ebb__pool *pool)
{
    ebb__pool_lock(pool);
    if (!pool->capture) {
        ebb__stream_uses_wait(pool);
        ebb__deferred_flush(pool);
        ebb__pool_return_cached(pool);
    }
    if (pool->checks >= 3) ebb__pool_assert_sound(pool);
    ebb__pool_unlock(pool);
}

void ebb__pool_set_limit(ebb__pool *pool, size_t limit_bytes)
{
    ebb__pool_lock(pool);
    pool->limit_bytes = limit_bytes;
    ebb__pool_unlock(pool);
}

void ebb__pool_set_adviser(ebb__pool *pool, ebb__adviser *adviser, void *self)
{
    ebb__pool_lock(pool);
    pool->adviser = adviser;
    pool->adviser_self = self;
    ebb__pool_unlock(pool);
}
