/* alloc/capture.c: memory of captured graphs. */
#include "alloc/pool_state.h"
#include "core/assert.h"

ebb_status ebb__pool_capture_begin(ebb__pool *pool, int *number)
{
    ebb__pool_lock(pool);
    bool runs = pool->capture != 0;
    if (!runs) *number = pool->capture = --pool->last_capture;
    ebb__pool_unlock(pool);
    return runs ? ebb_fail(EBB_ESTATE, "capture: one runs already") : EBB_OK;
}

void ebb__pool_capture_end(ebb__pool *pool)
{
    ebb__pool_lock(pool);
    EBB_ASSERT(pool->capture != 0);
    pool->capture = 0;
    ebb__pool_unlock(pool);
}

static bool is_in_tree(const ebb__block *block) { return !block->used && !block->unmapped; }

/* Free blocks are sorted by stream, so they leave the tree meanwhile. */
static void make_ordinary(ebb__pool *pool, ebb__segment *s)
{
    for (ebb__block *b = s->first; b; b = b->next)
        if (is_in_tree(b)) ebb__block_from_tree(pool, b);
    s->held = false;
    s->stream = 0;
    for (ebb__block *b = s->first; b; b = b->next) {
        b->stream = 0;
        if (is_in_tree(b)) ebb__block_to_tree(pool, b);
    }
}

void ebb__pool_capture_release(ebb__pool *pool, int number)
{
    ebb__pool_lock(pool);
    EBB_ASSERT(pool->capture != number);
    for (ebb__segment *s = pool->first_segment; s; s = s->next)
        if (s->stream == number) make_ordinary(pool, s);
    for (ebb__block *b = pool->first_empty; b; b = b->next)
        if (b->stream == number) b->stream = 0;
    if (pool->checks >= 3) ebb__pool_assert_sound(pool);
    ebb__pool_unlock(pool);
}
