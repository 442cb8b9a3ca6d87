/* alloc/fingerprint.c: a hash of a pool's layout. */
#include "alloc/plan.h"
#include "alloc/pool_state.h"

static uint64_t mix(uint64_t hash, uint64_t word)
{
    hash = (hash ^ word) * 0x9E3779B97F4A7C15u;
    return hash ^ (hash >> 29);
}

/* Segment numbers and addresses stay out: only their order decides where later blocks go.  What
 * live blocks were asked for enters, so that equal hashes mean equal coming peaks as well. */
uint64_t ebb__pool_fingerprint(const ebb__pool *pool)
{
    uint64_t hash = 0x243F6A8885A308D3u;
    ebb__pool_lock(pool);
    for (const ebb__segment *s = pool->first_segment; s; s = s->next) {
        hash = mix(mix(mix(hash, s->bytes), (uint64_t)(uint32_t)s->stream), (uint64_t)s->kind);
        for (const ebb__block *b = s->first; b; b = b->next) {
            hash = mix(hash, b->bytes | (uint64_t)b->used | (uint64_t)b->unmapped << 1 |
                                 (uint64_t)b->released << 2);
            if (b->used) hash = mix(mix(hash, b->requested), (uint64_t)b->owner.category);
        }
    }
    hash = mix(hash, ebb__plan_position(pool));
    ebb__pool_unlock(pool);
    return hash;
}
