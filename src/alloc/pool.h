/* alloc/pool.h: the caching allocator.  It knows no devices: segments come from a provider.
 *
 * Semantics follow PyTorch's CUDACachingAllocator: sizes are rounded to 512 bytes; up to 1 MiB
 * comes from the small pool's 2 MiB segments, larger from the large pool's (20 MiB below 10 MiB,
 * else rounded to 2 MiB); best fit by (stream, size, segment number, offset), so that addresses
 * decide nothing and made-up ones give the same layout; split (small pool: remainder >= 512;
 * large: > 1 MiB; a rest that stays is charged to its block, as in PyTorch), coalesce with free
 * neighbours, empty_cache, limit.  On failure: free whole cached segments, retry.
 *
 * Thread: all calls are safe from any thread. */
#ifndef EBB_ALLOC_POOL_H
#define EBB_ALLOC_POOL_H

#include <ebb/memory.h>

typedef enum ebb__phase {
    EBB__PHASE_NONE, EBB__PHASE_FORWARD, EBB__PHASE_BACKWARD, EBB__PHASE_RECOMPUTE,
    EBB__PHASE_OPTIMIZER, EBB__PHASE_EVAL, EBB__N_PHASES
} ebb__phase;

/* Who asked for a block.  The engine passes it down; nothing is guessed later. */
typedef struct ebb__owner {
    ebb_category category;
    const char *op;      /* "gelu"; NULL: none */
    const char *scope;   /* "blocks.3"; NULL: none */
    uint64_t node;       /* seq of the node; 0: none */
    uint64_t segment;    /* checkpoint segment; 0: none */
    ebb__phase phase;
    const char *file;    /* the user's line */
    int line;
} ebb__owner;

/* Where segments come from.  `alloc` gives `bytes` (a multiple of 2 MiB) or NULL. */
typedef struct ebb__provider {
    void *(*alloc)(void *self, size_t bytes);
    void (*free)(void *self, void *p, size_t bytes);
    void *self;
    bool touchable;      /* memory can be read and written by the host (poison, guards) */
} ebb__provider;

/* mmap with MADV_HUGEPAGE, 2 MiB aligned. */
ebb__provider ebb__host_provider(void);
/* Made-up addresses, never touched.  Free with ebb__dry_provider_free(). */
EBB_NODISCARD ebb_status ebb__dry_provider_new(ebb__provider *out);
void ebb__dry_provider_free(ebb__provider *provider);

typedef struct ebb__pool ebb__pool;
typedef struct ebb__block ebb__block;

typedef struct ebb__pool_options {
    size_t limit_bytes;      /* of reserved bytes; 0: none */
    int checks;              /* as ebb_context_options.checks */
} ebb__pool_options;

/* options NULL: no limit, the build's checks.  Errors: ENOMEM. */
EBB_NODISCARD ebb_status ebb__pool_new(ebb__pool **out, ebb__provider provider,
                                       const ebb__pool_options *options);
void ebb__pool_free(ebb__pool *pool); /* every block must be free; returns all segments */

/* bytes may be 0 (a valid block of 0 bytes, no memory).  stream: 0 today.
 * Errors: ENOMEM (a sentence with requested, allocated, reserved, limit, largest free block,
 * fragmentation, largest owners); *out stays.  A fault tick (core/mem.h) is counted per call.
 * owner NULL: a temporary of nobody. */
EBB_NODISCARD ebb_status ebb__pool_alloc(ebb__pool *pool, ebb__block **out, size_t bytes,
                                         int stream, const ebb__owner *owner);
/* Never fails; NULL is a no-op; a second release is an assert. */
void ebb__pool_release(ebb__pool *pool, ebb__block *block);

void *ebb__block_data(const ebb__block *block);        /* 512-byte aligned; NULL for 0 bytes */
size_t ebb__block_bytes(const ebb__block *block);      /* its extent: what it is charged with */
size_t ebb__block_requested(const ebb__block *block);
const ebb__owner *ebb__block_owner(const ebb__block *block);
/* Moves the block's bytes to another category; the rest of the owner stays. */
void ebb__block_set_category(ebb__pool *pool, ebb__block *block, ebb_category category);

void ebb__pool_stats(const ebb__pool *pool, ebb_memory_stats *stats);
void ebb__pool_reset_peak(ebb__pool *pool);
void ebb__pool_empty_cache(ebb__pool *pool);
void ebb__pool_set_limit(ebb__pool *pool, size_t limit_bytes);

/* A hash of the layout: segments in order, blocks with their sizes, and of those in use the
 * requested size and category.  Two equal hashes at step starts mean that the next step will
 * allocate alike.  Addresses do not enter. */
uint64_t ebb__pool_fingerprint(const ebb__pool *pool);

/* Calls emit for every live block, in the order of segments and offsets, those of 0 bytes last.
 * The pool is locked meanwhile: emit must not call it. */
void ebb__pool_each_live(const ebb__pool *pool,
                         void (*emit)(void *user, const ebb__block *block), void *user);

/* Walks everything and asserts the invariants (blocks tile segments, free neighbours are merged,
 * statistics equal a recount).  Returns false and sets the message instead of asserting. */
bool ebb__pool_check(const ebb__pool *pool);

/* Bytes of segments that were really touched (host): reserved as the system sees it. */
size_t ebb__pool_resident_bytes(const ebb__pool *pool);

#endif
