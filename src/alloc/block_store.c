/* alloc/block_store.c: recycled block structs. */
#include "alloc/pool_state.h"
#include "core/assert.h"
#include "core/mem.h"

void ebb__block_store_give(ebb__block_store *store, ebb__block *block)
{
    block->used = false;
    block->next = store->spare;
    store->spare = block;
    store->n_spare++;
}

static ebb_status add_slab(ebb__block_store *store)
{
    ebb__block_slab *slab = ebb__calloc(1, sizeof *slab);
    if (!slab) return EBB_ENOMEM;
    slab->next = store->slabs;
    store->slabs = slab;
    store->n_structs += EBB__BLOCKS_PER_SLAB;
    size_t align = _Alignof(ebb__block), before = align - (uintptr_t)slab->room % align;
    ebb__block *blocks = (void *)(slab->room + before);
    for (int i = EBB__BLOCKS_PER_SLAB; i-- > 0;) ebb__block_store_give(store, &blocks[i]);
    return EBB_OK;
}

ebb_status ebb__block_store_reserve(ebb__block_store *store, size_t n)
{
    while (store->n_spare < n) {
        ebb_status status = add_slab(store);
        if (status != EBB_OK) return status;
    }
    return EBB_OK;
}

ebb__block *ebb__block_store_take(ebb__block_store *store)
{
    EBB_ASSERT(store->spare);
    ebb__block *block = store->spare;
    store->spare = block->next;
    store->n_spare--;
    return block;
}

void ebb__block_store_deinit(ebb__block_store *store)
{
    while (store->slabs) {
        ebb__block_slab *slab = store->slabs;
        store->slabs = slab->next;
        ebb__free(slab);
    }
    *store = (ebb__block_store){ 0 };
}
