/* alloc/pool_state.h: what the files of alloc/ share about a pool.  Nobody else includes it, but
 * for the tests of alloc/.
 *
 *   segment  |  used  | free | used |      free      |     blocks tile their segment, in order;
 *            0                                   bytes     two free neighbours never exist
 *
 *   every free block is in free[its kind]; every struct is live, free or spare. */
#ifndef EBB_ALLOC_POOL_STATE_H
#define EBB_ALLOC_POOL_STATE_H

#include <pthread.h>

#include "alloc/free_tree.h"
#include "alloc/pool.h"

enum {
    EBB__ROUND_BYTES = 512,                /* every block's size is a multiple of it */
    EBB__SMALL_MAX_BYTES = 1 << 20,        /* larger (rounded) requests use the large pool */
    EBB__SMALL_SEGMENT_BYTES = 2 << 20,
    EBB__LARGE_SEGMENT_BYTES = 20 << 20,
    EBB__LARGE_SEGMENT_BELOW = 10 << 20,   /* requests below it get EBB__LARGE_SEGMENT_BYTES */
    EBB__SEGMENT_ROUND_BYTES = 2 << 20,
    EBB__LARGE_SPLIT_ABOVE = 1 << 20,      /* a large block's rest must be larger to be split off */
    EBB__BLOCKS_PER_SLAB = 64
};

typedef enum ebb__pool_kind { EBB__POOL_SMALL, EBB__POOL_LARGE, EBB__N_POOL_KINDS } ebb__pool_kind;

typedef struct ebb__segment ebb__segment;

struct ebb__block {
    ebb__block *child[2], *parent; /* in the free tree */
    int height;
    int stream;
    size_t bytes;                  /* extent in the segment; 0 for a request of 0 bytes */
    uint64_t segment_number;       /* copy of segment->number: part of the order */
    size_t offset;                 /* from the segment's base */
    ebb__segment *segment;         /* NULL for a request of 0 bytes */
    ebb__block *prev, *next;       /* neighbours in the segment, or in the list of empty blocks */
    size_t requested;
    bool used;
    ebb__owner owner;              /* meaningful while used */
};

struct ebb__segment {
    ebb__pool *pool;
    uint64_t number;               /* counts up from 1 over the pool's life; never used again */
    unsigned char *base;
    size_t bytes;
    int stream;
    ebb__pool_kind kind;
    ebb__block *first;
    ebb__segment *prev, *next;     /* in the order of their numbers */
};

/* Block structs are recycled, never freed one by one: a steady state allocates nothing, and a
 * second release of a block still finds a struct that says it is not in use. */
typedef struct ebb__block_slab {
    struct ebb__block_slab *next;
    ebb__block blocks[EBB__BLOCKS_PER_SLAB];
} ebb__block_slab;

typedef struct ebb__block_store {
    ebb__block_slab *slabs;
    ebb__block *spare;             /* linked by next */
    size_t n_spare, n_structs;
} ebb__block_store;

struct ebb__pool {
    pthread_mutex_t lock;
    ebb__provider provider;
    size_t limit_bytes;            /* 0: none */
    int checks;
    bool watched;                  /* memory is filled, guarded or poisoned (guard.h) */
    ebb__free_tree free[EBB__N_POOL_KINDS];
    ebb__segment *first_segment, *last_segment;
    uint64_t last_number;
    ebb__block *first_empty;       /* live blocks of 0 bytes */
    ebb__block_store store;
    ebb_memory_stats stats;
};

/* A request on its way through the pool. */
typedef struct ebb__request {
    size_t requested;
    size_t rounded;                /* to EBB__ROUND_BYTES; 0 where that overflows */
    size_t segment_bytes;          /* of the segment that a miss would need; 0 likewise */
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

/* ---- block_store.c ----------------------------------------------------------------------- */
/* Makes n spare structs sure, so that n takes cannot fail.  Errors: ENOMEM. */
EBB_NODISCARD ebb_status ebb__block_store_reserve(ebb__block_store *store, size_t n);
ebb__block *ebb__block_store_take(ebb__block_store *store);
void ebb__block_store_give(ebb__block_store *store, ebb__block *block);
void ebb__block_store_deinit(ebb__block_store *store);

/* ---- ledger.c: call with the lock held --------------------------------------------------- */
void ebb__ledger_take(ebb_memory_stats *stats, const ebb__block *block);
void ebb__ledger_release(ebb_memory_stats *stats, const ebb__block *block);
void ebb__ledger_segment_new(ebb_memory_stats *stats, size_t bytes);
void ebb__ledger_segment_end(ebb_memory_stats *stats, size_t bytes);
/* "linear (blocks.3)"; the category's name where there is no op.  Returns buf. */
char *ebb__owner_describe(const ebb__owner *owner, char *buf, size_t buf_bytes);

/* ---- oom.c, pool_check.c: call with the lock held ----------------------------------------- */
/* Sets the message and returns EBB_ENOMEM.  Allocates nothing. */
ebb_status ebb__pool_oom(const ebb__pool *pool, const ebb__request *request);
bool ebb__pool_check_locked(const ebb__pool *pool);
void ebb__pool_assert_sound(const ebb__pool *pool); /* walks everything: checks >= 3 */

/* Whether a segment of so many bytes stays within the limit. */
static inline bool ebb__pool_has_room(const ebb__pool *pool, size_t segment_bytes)
{
    size_t reserved = pool->stats.reserved_bytes, limit = pool->limit_bytes;
    return limit == 0 || (reserved <= limit && segment_bytes <= limit - reserved);
}

#endif
