/* alloc/pool_state.h: what the files of alloc/ share about a pool.  Nobody else includes it, but
 * for the tests of alloc/.
 *
 *   segment  |  used  | free | used |      free      |     blocks tile their segment, in order;
 *            0                                   bytes     two free neighbours never exist
 *
 *   A free block of an expandable segment may be unmapped: addresses without memory.  Of two free
 *   neighbours then one is mapped and the other not.
 *   Every mapped free block is in free[its kind]; every struct is live, free or spare.
 *   A released block that waits (for a stream, or deferred) is used and released: it is active, but
 *   allocated no more. */
#ifndef EBB_ALLOC_POOL_STATE_H
#define EBB_ALLOC_POOL_STATE_H

#include <pthread.h>

#include "alloc/counters.h"
#include "alloc/free_tree.h"
#include "alloc/pool.h"
#include "alloc/trace.h"

enum {
    EBB__ROUND_BYTES = 512,         /* every block's size is a multiple of it */
    EBB__SMALL_MAX_BYTES = 1 << 20, /* larger (rounded) requests use the large pool */
    EBB__SMALL_SEGMENT_BYTES = 2 << 20,
    EBB__LARGE_SEGMENT_BYTES = 20 << 20,
    EBB__LARGE_SEGMENT_BELOW = 10 << 20, /* requests below it get EBB__LARGE_SEGMENT_BYTES */
    EBB__SEGMENT_ROUND_BYTES = 2 << 20,
    EBB__LARGE_SPLIT_ABOVE = 1 << 20, /* a large block's rest must be larger to be split off */
    EBB__PAGE_BYTES = 2 << 20,        /* of expandable segments; PyTorch: 20 MiB for large blocks,
                                              which wastes 5 to 7% of a step with checkpoints */
    EBB__EXACT_ROUND_BYTES = 4096,    /* pools of exact sizes */
    EBB__BLOCKS_PER_SLAB = 64
};

#define EBB__EXPANDABLE_BYTES ((size_t)1 << 40) /* addresses of an expandable segment */

/* Blocks of a plan's arena are in a tree of their own, since only planned requests may use them. */
typedef enum ebb__pool_kind {
    EBB__POOL_SMALL,
    EBB__POOL_LARGE,
    EBB__POOL_PLAN,
    EBB__N_POOL_KINDS
} ebb__pool_kind;

/* A stream other than its own that works with a block. */
typedef struct ebb__stream_use {
    struct ebb__stream_use *next;
    ebb__block *block;
    int stream;
    uint64_t ticket; /* recorded at the block's release */
} ebb__stream_use;

typedef struct ebb__segment ebb__segment;

/* The first 64 bytes are what walking a tree reads. */
struct ebb__block {
    _Alignas(64) ebb__block *child[2]; /* in the free tree */
    ebb__block *parent;
    size_t bytes;            /* extent in the segment; 0 for a request of 0 bytes */
    uint64_t segment_number; /* copy of segment->number: part of the order */
    size_t offset;           /* from the segment's base */
    int stream;
    short height;
    bool by_end; /* of a plan's arena: its tree is ordered by where blocks end */
    bool used;   /* not free: allocated, or released and waiting */
    bool released;
    bool unmapped;           /* a free block without memory */
    int n_waits;             /* streams that a released block waits for */
    ebb__segment *segment;   /* NULL for a request of 0 bytes */
    ebb__block *prev, *next; /* neighbours in the segment, or in the list of empty blocks */
    size_t requested;
    ebb__stream_use *uses; /* until the release */
    uint64_t free_since;   /* count of searches when it became free: its age */
    ebb__owner owner;      /* meaningful while used */
};

struct ebb__segment {
    ebb__pool *pool;
    uint64_t number; /* counts up from 1 over the pool's life; never used again */
    unsigned char *base;
    size_t bytes;        /* of addresses; all have memory unless expandable */
    size_t mapped_bytes; /* expandable: of memory */
    int stream;
    ebb__pool_kind kind;
    bool expandable;
    bool held; /* a captured graph works in it: it stays */
    ebb__block *first;
    ebb__segment *prev, *next; /* in the order of their numbers */
};

/* Block structs are recycled, never freed one by one: a steady state allocates nothing, and a
 * second release of a block still finds a struct that says it is not in use. */
typedef struct ebb__block_slab {
    struct ebb__block_slab *next;
    unsigned char room[(EBB__BLOCKS_PER_SLAB + 1) * sizeof(ebb__block)]; /* aligned within */
} ebb__block_slab;

typedef struct ebb__block_store {
    ebb__block_slab *slabs;
    ebb__block *spare; /* linked by next */
    size_t n_spare, n_structs;
} ebb__block_store;

/* Blocks that were released and wait, oldest first; linked by child[1], which a used block has no
 * other use for. */
typedef struct ebb__deferred {
    ebb__block *first, *last;
    size_t bytes;
} ebb__deferred;

struct ebb__pool {
    pthread_mutex_t lock;
    ebb__provider provider;
    ebb__fences fences;
    ebb__alloc_options options;
    size_t limit_bytes; /* 0: none */
    int checks;
    bool watched;        /* memory is filled, guarded or poisoned (guard.h) */
    bool exact;          /* sizes are (pinned memory) */
    bool inexact_layout; /* a stream was recorded: layouts depend on time */
    ebb__free_tree free[EBB__N_POOL_KINDS];
    ebb__segment *first_segment, *last_segment;
    uint64_t last_number;
    uint64_t n_searches;                     /* for free blocks: the clock of their ages */
    ebb__block *first_empty;                 /* live blocks of 0 bytes */
    ebb__stream_use *first_wait, *last_wait; /* of released blocks, in order of release */
    ebb__deferred deferred;
    ebb__block_store store;
    ebb_memory_stats stats;
    ebb__counters counters;
    ebb__trace trace;
    struct ebb__plan_state *plan; /* NULL: none */
    int capture, last_capture;    /* capture.c: the stream that requests have now, below 0, or 0; the last one */
    ebb__adviser *adviser;
    void *adviser_self;
};

/* A request on its way through the pool. */
typedef struct ebb__request {
    size_t requested;
    size_t rounded;       /* to EBB__ROUND_BYTES; 0 where that overflows */
    size_t segment_bytes; /* of the segment that a miss would need; 0 likewise */
    int stream;
    ebb__pool_kind kind;
    const ebb__owner *owner;
} ebb__request;

/* Reading calls take a const pool and lock it too; no pool is ever a const object. */
static inline void ebb__pool_lock(const ebb__pool *pool)
{
    pthread_mutex_lock((pthread_mutex_t *)&pool->lock);
}

static inline void ebb__pool_unlock(const ebb__pool *pool)
{
    pthread_mutex_unlock((pthread_mutex_t *)&pool->lock);
}

/* Everything below: call with the lock held. */

/* ---- block_store.c ----------------------------------------------------------------------- */
/* Makes n spare structs sure, so that n takes cannot fail.  Errors: ENOMEM. */
EBB_NODISCARD ebb_status ebb__block_store_reserve(ebb__block_store *store, size_t n);
ebb__block *ebb__block_store_take(ebb__block_store *store);
void ebb__block_store_give(ebb__block_store *store, ebb__block *block);
void ebb__block_store_deinit(ebb__block_store *store);

/* ---- sizes.c ----------------------------------------------------------------------------- */
/* rounded and segment_bytes are 0 where they overflow.  owner NULL: nobody. */
ebb__request ebb__request_make(const ebb__pool *pool, size_t bytes, int stream,
                               const ebb__owner *owner);
/* Whether a free block may serve the request, and whether its rest is then split off. */
bool ebb__block_suits(const ebb__pool *pool, const ebb__block *block, const ebb__request *request);
bool ebb__block_splits(const ebb__pool *pool, const ebb__block *block, const ebb__request *request);

/* ---- blocks.c ---------------------------------------------------------------------------- */
/* Into and out of the free tree of the block's segment; statistics follow. */
void ebb__block_to_tree(ebb__pool *pool, ebb__block *block);
void ebb__block_from_tree(ebb__pool *pool, ebb__block *block);
/* Cuts block, which is in no tree, down to `bytes`; what is left becomes its next neighbour, which is
 * in no tree either, and is returned.  Uses one spare struct. */
ebb__block *ebb__block_cut(ebb__pool *pool, ebb__block *block, size_t bytes);
/* Merges a block that is no longer used, or has changed its mapping, with its free neighbours and
 * puts it into the tree if it has memory.  Returns the block that it became a part of. */
ebb__block *ebb__block_make_free(ebb__pool *pool, ebb__block *block);

/* pool.c: the best free block for the request, taken out of the free tree; NULL: none suits. */
ebb__block *ebb__pool_find_free(ebb__pool *pool, const ebb__request *request);

/* ---- segments.c -------------------------------------------------------------------------- */
/* A new segment of one block, which is in no tree yet.  NULL: no memory, or no room below the limit.
 * Uses one spare struct. */
EBB_NODISCARD ebb_status ebb__segment_add(ebb__pool *pool, ebb__block **out,
                                          const ebb__request *request);
/* The same, giving up cached memory in the order of pool.h.  Errors: ENOMEM, with the message. */
EBB_NODISCARD ebb_status ebb__segment_for(ebb__pool *pool, ebb__block **out,
                                          const ebb__request *request);
void ebb__segment_link(ebb__pool *pool, ebb__segment *segment, ebb__block *block);
/* Unlinks a segment of one free block, which is in no tree, and gives both structs back. */
void ebb__segment_unlink(ebb__pool *pool, ebb__segment *segment);
/* Returns whole free segments and pages to the provider; how many bytes. */
size_t ebb__pool_return_cached(ebb__pool *pool);

/* ---- expandable.c ------------------------------------------------------------------------ */
/* Finds or makes a free block for the request by mapping pages, first those of whole free pages
 * elsewhere.  *out stays NULL where memory or room is missing.  Errors: ENOMEM (host memory). */
EBB_NODISCARD ebb_status ebb__expandable_grow(ebb__pool *pool, ebb__block **out,
                                              const ebb__request *request);
/* Unmaps whole free pages of the segment, and ends it where nothing is left.  How many bytes. */
size_t ebb__expandable_return(ebb__pool *pool, ebb__segment *segment);

/* ---- stream_use.c, deferred.c ------------------------------------------------------------ */
/* The last step of every release: the block is free. */
void ebb__pool_complete(ebb__pool *pool, ebb__block *block);
/* Takes a released block that other streams work with; false: none does. */
bool ebb__stream_uses_take(ebb__pool *pool, ebb__block *block);
void ebb__stream_uses_poll(ebb__pool *pool); /* frees what is done */
void ebb__stream_uses_wait(ebb__pool *pool); /* until all of it is */
/* Takes a released block; frees all that are deferred when the bound is passed.  False: none defers. */
bool ebb__deferred_take(ebb__pool *pool, ebb__block *block);
bool ebb__deferred_flush(ebb__pool *pool); /* false: there were none */

/* ---- trace.c ----------------------------------------------------------------------------- */
void ebb__trace_block_event(ebb__pool *pool, ebb__action action, const ebb__block *block);
void ebb__trace_memory_event(ebb__pool *pool, ebb__action action, const ebb__segment *segment,
                             size_t offset, size_t bytes);
void ebb__trace_oom_event(ebb__pool *pool, size_t requested, int stream, const ebb__owner *owner);

/* EBB__TRACE(pool, block, action, block): nothing but a comparison where no trace is kept. */
#define EBB__TRACE(pool, what, ...)                                                                \
    ((pool)->trace.ring ? ebb__trace_##what##_event((pool), __VA_ARGS__) : (void)0)

/* ---- ledger.c ---------------------------------------------------------------------------- */
void ebb__ledger_take(ebb__pool *pool, const ebb__block *block);
void ebb__ledger_release(ebb__pool *pool, const ebb__block *block);
void ebb__ledger_memory(ebb__pool *pool, const ebb__segment *segment, size_t bytes, bool added);
/* "linear (blocks.3)"; the category's name where there is no op.  Returns buf. */
char *ebb__owner_describe(const ebb__owner *owner, char *buf, size_t buf_bytes);

/* ---- oom.c, pool_check.c ------------------------------------------------------------------ */
/* Sets the message and returns EBB_ENOMEM.  Allocates nothing. */
ebb_status ebb__pool_oom(ebb__pool *pool, const ebb__request *request);
bool ebb__pool_check_locked(const ebb__pool *pool);
void ebb__pool_assert_sound(const ebb__pool *pool); /* walks everything: checks >= 3 */

/* Whether so many more bytes stay within the limit. */
static inline bool ebb__pool_has_room(const ebb__pool *pool, size_t bytes)
{
    size_t reserved = pool->stats.reserved_bytes, limit = pool->limit_bytes;
    return limit == 0 || (reserved <= limit && bytes <= limit - reserved);
}

static inline bool ebb__block_is_split(const ebb__block *block)
{
    return block->prev || block->next;
}

static inline bool ebb__segment_is_whole_free(const ebb__segment *segment)
{
    return !segment->first->used && !segment->first->next;
}

#endif
