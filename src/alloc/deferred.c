/* alloc/deferred.c: releases that are put off until their bytes pass a bound, or a request finds no
 * block: fewer merges for more memory in use. */
#include "alloc/pool_state.h"

bool ebb__deferred_take(ebb__pool *pool, ebb__block *block)
{
    ebb__deferred *d = &pool->deferred;
    if (pool->options.deferred_release_bytes == 0) return false;
    block->child[1] = NULL;
    if (d->last)
        d->last->child[1] = block;
    else
        d->first = block;
    d->last = block;
    d->bytes += block->bytes;
    if (d->bytes > pool->options.deferred_release_bytes) ebb__deferred_flush(pool);
    return true;
}

bool ebb__deferred_flush(ebb__pool *pool)
{
    ebb__block *block = pool->deferred.first;
    if (!block) return false;
    pool->deferred = (ebb__deferred){ 0 };
    for (ebb__block *next; block; block = next) {
        next = block->child[1];
        ebb__pool_complete(pool, block);
    }
    return true;
}
