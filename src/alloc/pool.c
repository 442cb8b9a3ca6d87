/* alloc/pool.c: requests, splitting, merging, segments. */
#include "alloc/pool.h"

#include "alloc/guard.h"
#include "alloc/pool_state.h"
#include "core/assert.h"
#include "core/mem.h"

/* ---- sizes ------------------------------------------------------------------------------- */

/* to: a power of two; bytes + to must not overflow. */
static size_t round_up(size_t bytes, size_t to)
{
    return (bytes + to - 1) & ~(to - 1);
}

static size_t segment_bytes_for(size_t rounded)
{
    if (rounded <= EBB__SMALL_MAX_BYTES) return EBB__SMALL_SEGMENT_BYTES;
    if (rounded < EBB__LARGE_SEGMENT_BELOW) return EBB__LARGE_SEGMENT_BYTES;
    return round_up(rounded, EBB__SEGMENT_ROUND_BYTES);
}

static const ebb__owner nobody = { .category = EBB_CAT_TEMPORARY };

static ebb__request request_make(size_t bytes, int stream, const ebb__owner *owner)
{
    ebb__request request = { .requested = bytes, .stream = stream };
    request.owner = owner ? owner : &nobody;
    if (bytes > PTRDIFF_MAX - (size_t)EBB__SEGMENT_ROUND_BYTES) return request;
    request.rounded = round_up(bytes, EBB__ROUND_BYTES);
    request.segment_bytes = segment_bytes_for(request.rounded);
    request.kind = request.rounded <= EBB__SMALL_MAX_BYTES ? EBB__POOL_SMALL : EBB__POOL_LARGE;
    return request;
}

static bool is_worth_splitting(const ebb__block *block, const ebb__request *request)
{
    size_t rest = block->bytes - request->rounded;
    if (request->kind == EBB__POOL_SMALL) return rest >= EBB__ROUND_BYTES;
    return rest > EBB__LARGE_SPLIT_ABOVE;
}

/* ---- segments ---------------------------------------------------------------------------- */

static bool is_whole_free(const ebb__segment *segment)
{
    return !segment->first->used && !segment->first->next;
}

static void link_segment(ebb__pool *pool, ebb__segment *segment)
{
    segment->prev = pool->last_segment;
    segment->next = NULL;
    if (pool->last_segment) pool->last_segment->next = segment;
    else pool->first_segment = segment;
    pool->last_segment = segment;
}

static void unlink_segment(ebb__pool *pool, ebb__segment *segment)
{
    if (segment->prev) segment->prev->next = segment->next;
    else pool->first_segment = segment->next;
    if (segment->next) segment->next->prev = segment->prev;
    else pool->last_segment = segment->prev;
}

static void return_segment(ebb__pool *pool, ebb__segment *segment)
{
    ebb__free_tree_remove(&pool->free[segment->kind], segment->first);
    ebb__block_store_give(&pool->store, segment->first);
    unlink_segment(pool, segment);
    if (pool->watched) ebb__guard_segment_end(pool, segment);
    pool->provider.free(pool->provider.self, segment->base, segment->bytes);
    ebb__ledger_segment_end(&pool->stats, segment->bytes);
    ebb__free(segment);
}

/* Returns whole free segments to the provider; how many. */
static size_t return_cached(ebb__pool *pool)
{
    size_t n = 0;
    for (ebb__segment *s = pool->first_segment, *next; s; s = next) {
        next = s->next;
        if (!is_whole_free(s)) continue;
        return_segment(pool, s);
        n++;
    }
    return n;
}

static void *ask_provider(ebb__pool *pool, size_t bytes)
{
    if (!ebb__pool_has_room(pool, bytes)) return NULL;
    return pool->provider.alloc(pool->provider.self, bytes);
}

/* Memory for a new segment; on failure the cache is given up for a second try. */
static void *segment_memory(ebb__pool *pool, size_t bytes)
{
    void *base = ask_provider(pool, bytes);
    if (base) return base;
    pool->stats.n_alloc_retries++;
    return return_cached(pool) > 0 ? ask_provider(pool, bytes) : NULL;
}

/* A new segment of one block, which is in no tree yet.  Uses one spare struct. */
static ebb_status add_segment(ebb__pool *pool, ebb__block **out, const ebb__request *request)
{
    ebb__segment *segment = ebb__malloc(sizeof *segment);
    if (!segment) return EBB_ENOMEM;
    void *base = segment_memory(pool, request->segment_bytes);
    if (!base) {
        ebb__free(segment);
        pool->stats.n_ooms++;
        return ebb__pool_oom(pool, request);
    }
    ebb__block *block = ebb__block_store_take(&pool->store);
    *segment = (ebb__segment){ .pool = pool, .number = ++pool->last_number, .base = base,
                               .bytes = request->segment_bytes, .stream = request->stream,
                               .kind = request->kind, .first = block };
    *block = (ebb__block){ .stream = segment->stream, .bytes = segment->bytes, .segment = segment,
                           .segment_number = segment->number };
    link_segment(pool, segment);
    ebb__ledger_segment_new(&pool->stats, segment->bytes);
    if (pool->watched) ebb__guard_segment_new(pool, segment);
    *out = block;
    return EBB_OK;
}

/* ---- blocks ------------------------------------------------------------------------------ */

/* Cuts block down to `bytes`; what is left becomes a free block.  Uses one spare struct. */
static void split(ebb__pool *pool, ebb__block *block, size_t bytes)
{
    ebb__block *rest = ebb__block_store_take(&pool->store);
    rest->stream = block->stream;
    rest->bytes = block->bytes - bytes;
    rest->segment = block->segment;
    rest->segment_number = block->segment_number;
    rest->offset = block->offset + bytes;
    rest->requested = 0;
    rest->prev = block;
    rest->next = block->next;
    if (rest->next) rest->next->prev = rest;
    block->next = rest;
    block->bytes = bytes;
    ebb__free_tree_insert(&pool->free[block->segment->kind], rest);
}

/* Appends b, the next neighbour, to a; b's struct becomes spare. */
static void absorb_next(ebb__pool *pool, ebb__block *a, ebb__block *b)
{
    a->bytes += b->bytes;
    a->next = b->next;
    if (a->next) a->next->prev = a;
    ebb__block_store_give(&pool->store, b);
}

/* Merges a block that is no longer used with its free neighbours and puts it into the tree. */
static void make_free(ebb__pool *pool, ebb__block *block)
{
    ebb__free_tree *tree = &pool->free[block->segment->kind];
    block->used = false;
    block->requested = 0;
    ebb__block *prev = block->prev, *next = block->next;
    if (next && !next->used) {
        ebb__free_tree_remove(tree, next);
        absorb_next(pool, block, next);
    }
    if (prev && !prev->used) {
        ebb__free_tree_remove(tree, prev);
        absorb_next(pool, prev, block);
        block = prev;
    }
    ebb__free_tree_insert(tree, block);
}

static ebb_status take_block(ebb__pool *pool, ebb__block **out, const ebb__request *request)
{
    if (request->rounded == 0) {
        pool->stats.n_ooms++;
        return ebb__pool_oom(pool, request);
    }
    /* At most a new segment's block and the rest of a split. */
    ebb_status status = ebb__block_store_reserve(&pool->store, 2);
    if (status != EBB_OK) return status;
    ebb__free_tree *tree = &pool->free[request->kind];
    ebb__block *block = ebb__free_tree_find(tree, request->stream, request->rounded);
    if (block) ebb__free_tree_remove(tree, block);
    else status = add_segment(pool, &block, request);
    if (status != EBB_OK) return status;
    if (is_worth_splitting(block, request)) split(pool, block, request->rounded);
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
    if (block->prev) block->prev->next = block->next;
    else pool->first_empty = block->next;
    if (block->next) block->next->prev = block->prev;
    ebb__block_store_give(&pool->store, block);
}

ebb_status ebb__pool_alloc(ebb__pool *pool, ebb__block **out, size_t bytes, int stream,
                           const ebb__owner *owner)
{
    if (ebb__fault()) return EBB_ENOMEM;
    ebb__request request = request_make(bytes, stream, owner);
    EBB_ASSERT((unsigned)request.owner->category < EBB_N_CATEGORIES);
    ebb__block *block = NULL;
    ebb__pool_lock(pool);
    ebb_status status = bytes > 0 ? take_block(pool, &block, &request)
                                  : take_empty(pool, &block, stream);
    if (status == EBB_OK) {
        block->requested = bytes;
        block->used = true;
        block->owner = *request.owner;
        ebb__ledger_take(&pool->stats, block);
        if (pool->watched && bytes) ebb__guard_take(pool, block);
        *out = block;
    }
    if (pool->checks >= 3) ebb__pool_assert_sound(pool);
    ebb__pool_unlock(pool);
    return status;
}

void ebb__pool_release(ebb__pool *pool, ebb__block *block)
{
    if (!block) return;
    ebb__pool_lock(pool);
    if (!block->used) ebb__assert_failed("pool: a block was released twice", __FILE__, __LINE__);
    if (block->segment && block->segment->pool != pool)
        ebb__assert_failed("pool: a block was released to another pool", __FILE__, __LINE__);
    ebb__ledger_release(&pool->stats, block);
    if (block->segment) {
        if (pool->watched) ebb__guard_release(pool, block);
        make_free(pool, block);
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

size_t ebb__block_bytes(const ebb__block *block)
{
    return block->bytes;
}

size_t ebb__block_requested(const ebb__block *block)
{
    return block->requested;
}

const ebb__owner *ebb__block_owner(const ebb__block *block)
{
    return &block->owner;
}

/* ---- the pool ---------------------------------------------------------------------------- */

ebb_status ebb__pool_new(ebb__pool **out, ebb__provider provider, const ebb__pool_options *options)
{
    ebb__pool *pool = ebb__calloc(1, sizeof *pool);
    if (!pool) return EBB_ENOMEM;
    if (pthread_mutex_init(&pool->lock, NULL) != 0) {
        ebb__free(pool);
        return ebb_fail(EBB_ENOMEM, "pool: the system has no mutex left");
    }
    pool->provider = provider;
    pool->checks = options && options->checks >= 0 ? options->checks : EBB_CHECKS;
    pool->limit_bytes = options ? options->limit_bytes : 0;
    pool->watched = ebb__guard_is_needed(&provider, pool->checks);
    *out = pool;
    return EBB_OK;
}

void ebb__pool_free(ebb__pool *pool)
{
    if (!pool) return;
    if (pool->stats.n_allocs != pool->stats.n_frees)
        ebb__assert_failed("pool: freed while blocks are in use", __FILE__, __LINE__);
    return_cached(pool);
    EBB_ASSERT(pool->first_segment == NULL);
    ebb__block_store_deinit(&pool->store);
    pthread_mutex_destroy(&pool->lock);
    ebb__free(pool);
}

void ebb__pool_empty_cache(ebb__pool *pool)
{
    ebb__pool_lock(pool);
    return_cached(pool);
    if (pool->checks >= 3) ebb__pool_assert_sound(pool);
    ebb__pool_unlock(pool);
}

void ebb__pool_set_limit(ebb__pool *pool, size_t limit_bytes)
{
    ebb__pool_lock(pool);
    pool->limit_bytes = limit_bytes;
    ebb__pool_unlock(pool);
}
