/* alloc/blocks.c: cutting and merging blocks, and the trees of the free ones. */
#include "alloc/pool_state.h"

static void count_inactive(ebb__pool *pool, const ebb__block *block, bool added)
{
    if (!ebb__block_is_split(block) || block->segment->expandable) return;
    bool small = block->segment->kind == EBB__POOL_SMALL;
    void (*count)(ebb__counters *, bool, ebb__counted, uint64_t) =
        added ? ebb__counters_add : ebb__counters_take;
    count(&pool->counters, small, EBB__COUNT_INACTIVE_SPLIT, 1);
    count(&pool->counters, small, EBB__COUNT_INACTIVE_SPLIT_BYTES, block->bytes);
}

void ebb__block_to_tree(ebb__pool *pool, ebb__block *block)
{
    block->free_since = pool->n_searches;
    ebb__free_tree_insert(&pool->free[block->segment->kind], block);
    count_inactive(pool, block, true);
}

void ebb__block_from_tree(ebb__pool *pool, ebb__block *block)
{
    ebb__free_tree_remove(&pool->free[block->segment->kind], block);
    count_inactive(pool, block, false);
}

ebb__block *ebb__block_cut(ebb__pool *pool, ebb__block *block, size_t bytes)
{
    ebb__block *rest = ebb__block_store_take(&pool->store);
    *rest = (ebb__block){ .stream = block->stream,
                          .bytes = block->bytes - bytes,
                          .segment = block->segment,
                          .segment_number = block->segment_number,
                          .offset = block->offset + bytes,
                          .unmapped = block->unmapped,
                          .by_end = block->by_end,
                          .prev = block,
                          .next = block->next };
    if (rest->next) rest->next->prev = rest;
    block->next = rest;
    block->bytes = bytes;
    return rest;
}

/* Appends b, the next neighbour, to a; b's struct becomes spare. */
static void absorb_next(ebb__pool *pool, ebb__block *a, ebb__block *b)
{
    a->bytes += b->bytes;
    a->next = b->next;
    if (a->next) a->next->prev = a;
    ebb__block_store_give(&pool->store, b);
}

static bool merges(const ebb__block *a, const ebb__block *b)
{
    return b && !b->used && b->unmapped == a->unmapped;
}

ebb__block *ebb__block_make_free(ebb__pool *pool, ebb__block *block)
{
    block->used = block->released = false;
    block->requested = 0;
    ebb__block *prev = block->prev, *next = block->next;
    if (merges(block, next)) {
        if (!next->unmapped) ebb__block_from_tree(pool, next);
        absorb_next(pool, block, next);
    }
    if (merges(block, prev)) {
        if (!prev->unmapped) ebb__block_from_tree(pool, prev);
        absorb_next(pool, prev, block);
        block = prev;
    }
    if (!block->unmapped) ebb__block_to_tree(pool, block);
    return block;
}
