/* alloc/resident.c: how much of the reserved memory the system has really given. */
#include <sys/mman.h>
#include <unistd.h>

#include "alloc/pool_state.h"

enum { PAGES_PER_CALL = 4096 };

/* Adds the bytes of the range's pages that are in memory; false where the system cannot tell. */
static bool add_resident(size_t *total, unsigned char *base, size_t bytes, size_t page_bytes)
{
    unsigned char in_memory[PAGES_PER_CALL];
    while (bytes > 0) {
        size_t chunk = PAGES_PER_CALL * page_bytes;
        if (chunk > bytes) chunk = bytes;
        if (mincore(base, chunk, in_memory) != 0) return false;
        size_t n_pages = (chunk + page_bytes - 1) / page_bytes;
        for (size_t i = 0; i < n_pages; i++) *total += (in_memory[i] & 1) * page_bytes;
        base += chunk;
        bytes -= chunk;
    }
    return true;
}

/* Runs of blocks that have memory. */
static bool add_mapped(size_t *total, const ebb__segment *s, size_t page_bytes)
{
    for (const ebb__block *b = s->first; b;) {
        size_t from = b->offset;
        if (b->unmapped) {
            b = b->next;
            continue;
        }
        while (b && !b->unmapped) b = b->next;
        size_t to = b ? b->offset : s->bytes;
        if (!add_resident(total, s->base + from, to - from, page_bytes)) return false;
    }
    return true;
}

size_t ebb__pool_resident_bytes(const ebb__pool *pool)
{
    if (!pool->provider.touchable) return 0;
    long page_bytes = sysconf(_SC_PAGESIZE);
    size_t total = 0;
    bool known = page_bytes > 0;
    ebb__pool_lock(pool);
    for (const ebb__segment *s = pool->first_segment; s && known; s = s->next)
        known = s->expandable ? add_mapped(&total, s, (size_t)page_bytes)
                              : add_resident(&total, s->base, s->bytes, (size_t)page_bytes);
    if (!known) total = pool->stats.reserved_bytes;
    ebb__pool_unlock(pool);
    return total;
}
