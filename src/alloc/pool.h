/* alloc/pool.h: the caching allocator.  It knows no devices: segments come from a provider, and
 * whether another stream is done with a block is asked of the device's fences.
 *
 * Semantics follow PyTorch's CUDACachingAllocator: sizes are rounded to 512 bytes; up to 1 MiB
 * comes from the small pool's 2 MiB segments, larger from the large pool's (20 MiB below 10 MiB,
 * else rounded to 2 MiB); best fit by (stream, size, segment number, offset), so that addresses
 * decide nothing and made-up ones give the same layout; split (small pool: remainder >= 512;
 * large: > 1 MiB; a rest that stays is charged to its block, as in PyTorch), coalesce with free
 * neighbours, empty_cache, limit.  A request is served by the first of these that has room:
 *   1. blocks whose other streams are done are freed; the best fit among the free ones
 *   2. deferred blocks are freed; the best fit again
 *   3. garbage collection (a limit and a threshold are set); a new segment, or a grown one
 *   4. max_split: unsplit oversize blocks are returned; a new segment
 *   5. all streams are waited for, all whole cached segments returned; a new segment (num_alloc_retries)
 *
 * Thread: all calls are safe from any thread. */
#ifndef EBB_ALLOC_POOL_H
#define EBB_ALLOC_POOL_H

#include <ebb/memory.h>

#include "alloc/options.h"

typedef enum ebb__phase {
    EBB__PHASE_NONE,
    EBB__PHASE_FORWARD,
    EBB__PHASE_BACKWARD,
    EBB__PHASE_RECOMPUTE,
    EBB__PHASE_OPTIMIZER,
    EBB__PHASE_EVAL,
    EBB__N_PHASES
} ebb__phase;

/* Who asked for a block.  The engine passes it down; nothing is guessed later. */
typedef struct ebb__owner {
    ebb_category category;
    const char *op;    /* "gelu"; NULL: none */
    const char *scope; /* "blocks.3"; NULL: none */
    uint64_t node;     /* seq of the node; 0: none */
    uint64_t segment;  /* checkpoint segment; 0: none */
    ebb__phase phase;
    const char *file; /* the user's line */
    int line;
} ebb__owner;

/* Where segments come from.  `alloc` gives `bytes` (a multiple of 2 MiB) or NULL.  The others serve
 * expandable segments: addresses are reserved first and get memory page by page (pages of 2 MiB
 * or a multiple); all NULL where the provider has none. */
typedef struct ebb__provider {
    void *(*alloc)(void *self, size_t bytes);
    void (*free)(void *self, void *p, size_t bytes);
    void *self;
    bool touchable; /* memory can be read and written by the host (poison, guards) */
    void *(*reserve)(void *self, size_t bytes);
    void (*unreserve)(void *self, void *p, size_t bytes); /* decommits what is left */
    bool (*commit)(void *self, void *p, size_t bytes);    /* false: no memory; nothing changed */
    void (*decommit)(void *self, void *p, size_t bytes);
    bool (*remap)(void *self, void *from, void *to, size_t bytes); /* moves memory, not contents */
} ebb__provider;

/* mmap with MADV_HUGEPAGE, 2 MiB aligned. */
ebb__provider ebb__host_provider(void);
/* mmap of exactly what is asked for, in pages of 4 KiB: for pools of exact sizes. */
ebb__provider ebb__page_provider(void);
/* Made-up addresses, never touched.  Free with ebb__dry_provider_free(). */
EBB_NODISCARD ebb_status ebb__dry_provider_new(ebb__provider *out);
void ebb__dry_provider_free(ebb__provider *provider);

/* The device's streams, as the pool sees them.  A ticket stands for all work given to a stream so
 * far; tickets of a stream grow.  Called with the pool locked: they must not call it. */
typedef struct ebb__fences {
    uint64_t (*record)(void *self, int stream);
    bool (*is_done)(void *self, int stream, uint64_t ticket);
    void (*wait)(void *self, int stream, uint64_t ticket);
    void *self;
} ebb__fences;

typedef struct ebb__pool ebb__pool;
typedef struct ebb__block ebb__block;

typedef struct ebb__pool_options {
    size_t limit_bytes;              /* of reserved bytes; 0: none */
    int checks;                      /* as ebb_context_options.checks */
    const ebb__alloc_options *alloc; /* NULL: the defaults */
    ebb__fences fences;              /* all NULL: no stream but those that are always done */
    bool exact; /* pinned memory: sizes are rounded to 4 KiB, each block is a segment, and
                                a free one serves only its own size */
} ebb__pool_options;

/* options NULL: no limit, the build's checks.  Errors: ENOMEM; EUNSUPPORTED: expandable segments with
 * a provider that cannot. */
EBB_NODISCARD ebb_status ebb__pool_new(ebb__pool **out, ebb__provider provider,
                                       const ebb__pool_options *options);
void ebb__pool_free(ebb__pool *pool); /* every block must be free; returns all segments */

/* bytes may be 0 (a valid block of 0 bytes, no memory).  stream: whose blocks are looked at; 0 is
 * the compute stream.
 * Errors: ENOMEM (a sentence with requested, allocated, reserved, limit, largest free block,
 * fragmentation, largest owners); *out stays.  A fault tick (core/mem.h) is counted per call.
 * owner NULL: a temporary of nobody. */
EBB_NODISCARD ebb_status ebb__pool_alloc(ebb__pool *pool, ebb__block **out, size_t bytes,
                                         int stream, const ebb__owner *owner);
/* Never fails; NULL is a no-op; a second release is an assert.  The memory is used again once every
 * stream that was recorded has done what it was given up to now. */
void ebb__pool_release(ebb__pool *pool, ebb__block *block);
/* Says that a stream other than the block's own works with it.  After the first such call layouts
 * depend on time: ebb__pool_is_exact() says so.  Errors: ENOMEM. */
EBB_NODISCARD ebb_status ebb__pool_record_stream(ebb__pool *pool, ebb__block *block, int stream);
bool ebb__pool_is_exact(const ebb__pool *pool);

void *ebb__block_data(const ebb__block *block);   /* 512-byte aligned; NULL for 0 bytes */
size_t ebb__block_bytes(const ebb__block *block); /* its extent: what it is charged with */
size_t ebb__block_requested(const ebb__block *block);
const ebb__owner *ebb__block_owner(const ebb__block *block);
/* Moves the block's bytes to another category; the rest of the owner stays. */
void ebb__block_set_category(ebb__pool *pool, ebb__block *block, ebb_category category);

void ebb__pool_stats(const ebb__pool *pool, ebb_memory_stats *stats);
void ebb__pool_reset_peak(ebb__pool *pool);
void ebb__pool_empty_cache(ebb__pool *pool);
void ebb__pool_set_limit(ebb__pool *pool, size_t limit_bytes);

/* ---- captured graphs --------------------------------------------------------------------- */
/* A graph's launches use the addresses that its capture used.  So what compute asks for while one is captured
 * has segments of its own, as if it had a stream of its own, *number; they stay until release().  Between
 * begin() and end() nothing is given back to the provider and no stream asked or waited for: a request that
 * finds no memory fails.  Errors: ESTATE: a capture runs. */
EBB_NODISCARD ebb_status ebb__pool_capture_begin(ebb__pool *pool, int *number);
void ebb__pool_capture_end(ebb__pool *pool);
/* The graph is gone: its segments are like any others. */
void ebb__pool_capture_release(ebb__pool *pool, int number);

/* Adds its advice (what to checkpoint) to an out-of-memory message: writes a sentence without a full
 * stop into buf, or leaves it empty.  The pool is locked meanwhile: it must not call it. */
typedef void ebb__adviser(void *self, size_t wanted_bytes, char *buf, size_t buf_bytes);
void ebb__pool_set_adviser(ebb__pool *pool, ebb__adviser *adviser, void *self);

/* ---- statistics under PyTorch's names ---------------------------------------------------- */
/* "allocated_bytes.all.peak" and so on, then the scalars ("num_alloc_retries"). */
void ebb__pool_each_stat(const ebb__pool *pool,
                         void (*emit)(void *user, const char *key, uint64_t value), void *user);
void ebb__pool_reset_accumulated(ebb__pool *pool); /* every .allocated, .freed and scalar: 0 */

/* A hash of the layout: segments in order, blocks with their sizes, and of those in use the
 * requested size and category.  Two equal hashes at step starts mean that the next step will
 * allocate alike.  Addresses do not enter. */
uint64_t ebb__pool_fingerprint(const ebb__pool *pool);

/* Calls emit for every live block, in the order of segments and offsets, those of 0 bytes last.
 * The pool is locked meanwhile: emit must not call it. */
void ebb__pool_each_live(const ebb__pool *pool, void (*emit)(void *user, const ebb__block *block),
                         void *user);

/* Walks everything and asserts the invariants (blocks tile segments, free neighbours are merged,
 * statistics equal a recount).  Returns false and sets the message instead of asserting. */
bool ebb__pool_check(const ebb__pool *pool);

/* The address of the start of a block's segment, and the segment's number: a stable name. */
uint64_t ebb__block_segment(const ebb__block *block);
size_t ebb__block_offset(const ebb__block *block);

/* Bytes of segments that were really touched (host): reserved as the system sees it. */
size_t ebb__pool_resident_bytes(const ebb__pool *pool);

#endif
