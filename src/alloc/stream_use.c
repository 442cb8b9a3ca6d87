/* alloc/stream_use.c: blocks that streams other than their own work with. */
#include "alloc/pool_state.h"
#include "core/assert.h"
#include "core/mem.h"

ebb_status ebb__pool_record_stream(ebb__pool *pool, ebb__block *block, int stream)
{
    if (stream == block->stream || !block->segment) return EBB_OK;
    ebb__stream_use *use = ebb__malloc(sizeof *use);
    if (!use) return EBB_ENOMEM;
    ebb__pool_lock(pool);
    EBB_ASSERT(pool->fences.record && block->used && !block->released);
    pool->inexact_layout = true;
    const ebb__stream_use *known = block->uses;
    while (known && known->stream != stream) known = known->next;
    if (!known) {
        *use = (ebb__stream_use){ .next = block->uses, .block = block, .stream = stream };
        block->uses = use;
    }
    ebb__pool_unlock(pool);
    if (known) ebb__free(use);
    return EBB_OK;
}

bool ebb__pool_is_exact(const ebb__pool *pool)
{
    ebb__pool_lock(pool);
    bool exact = !pool->inexact_layout;
    ebb__pool_unlock(pool);
    return exact;
}

bool ebb__stream_uses_take(ebb__pool *pool, ebb__block *block)
{
    if (!block->uses) return false;
    for (ebb__stream_use *use = block->uses, *next; use; use = next) {
        next = use->next;
        use->next = NULL;
        use->ticket = pool->fences.record(pool->fences.self, use->stream);
        if (pool->last_wait)
            pool->last_wait->next = use;
        else
            pool->first_wait = use;
        pool->last_wait = use;
        block->n_waits++;
    }
    block->uses = NULL;
    return true;
}

static void end_wait(ebb__pool *pool, ebb__stream_use *use)
{
    ebb__block *block = use->block;
    ebb__free(use);
    if (--block->n_waits == 0) ebb__pool_complete(pool, block);
}

/* Tickets of one stream grow along the list: asking all of them frees the same blocks as asking each
 * stream's first ones only. */
void ebb__stream_uses_poll(ebb__pool *pool)
{
    ebb__stream_use *use = pool->first_wait;
    pool->first_wait = pool->last_wait = NULL;
    for (ebb__stream_use *next; use; use = next) {
        next = use->next;
        if (pool->fences.is_done(pool->fences.self, use->stream, use->ticket)) {
            end_wait(pool, use);
            continue;
        }
        use->next = NULL;
        if (pool->last_wait)
            pool->last_wait->next = use;
        else
            pool->first_wait = use;
        pool->last_wait = use;
    }
}

void ebb__stream_uses_wait(ebb__pool *pool)
{
    if (!pool->first_wait) return;
    pool->counters.n_sync_all_streams++;
    for (const ebb__stream_use *use = pool->first_wait; use; use = use->next)
        pool->fences.wait(pool->fences.self, use->stream, use->ticket);
    ebb__stream_uses_poll(pool);
    EBB_ASSERT(pool->first_wait == NULL);
}
