/* naive_pool.h: the allocator's rules once more, as plainly as possible: all pieces of all segments
 * in one array, searched from end to end.  The random tests compare the pool with it. */
#ifndef EBB_TESTS_NAIVE_POOL_H
#define EBB_TESTS_NAIVE_POOL_H

#include "alloc/options.h"
#include "fake_fences.h"

enum { NAIVE_MAX_PIECES = 4096, NAIVE_MAX_WAITS = 4096 };

typedef struct naive_piece {
    uint64_t segment; /* counts up from 1 */
    size_t offset, bytes, requested;
    int stream, category;
    bool small, used;
    bool released; /* used, but only until its streams are done or deferred pieces are freed */
    bool unmapped; /* free, without memory */
    uint64_t free_since;
    unsigned uses; /* a bit per stream that works with it */
} naive_piece;

typedef struct naive_wait {
    uint64_t segment, ticket;
    size_t offset;
    int stream;
} naive_wait;

typedef struct naive_pool {
    naive_piece pieces[NAIVE_MAX_PIECES]; /* ordered by (segment, offset) */
    int n;
    uint64_t last_segment, n_searches;
    size_t limit_bytes; /* 0: none */
    size_t peak_allocated, peak_requested, peak_reserved, peak_active;
    size_t reserved; /* kept, since it is asked for often */
    ebb__alloc_options options;
    fake_fences fences;
    naive_wait waits[NAIVE_MAX_WAITS]; /* in order of release */
    int n_waits;
    naive_wait deferred[NAIVE_MAX_WAITS];
    int n_deferred;
} naive_pool;

/* Where the block goes; NULL: out of memory.  Valid until the next call. */
const naive_piece *naive_take(naive_pool *pool, size_t bytes, int stream, int category);
void naive_give(naive_pool *pool, uint64_t segment, size_t offset);
void naive_set_category(naive_pool *pool, uint64_t segment, size_t offset, int category);
void naive_record_stream(naive_pool *pool, uint64_t segment, size_t offset, int stream);
void naive_empty_cache(naive_pool *pool);

typedef struct naive_sums {
    size_t allocated, requested, active, reserved, inactive_split, by_category[8];
} naive_sums;
naive_sums naive_count(const naive_pool *pool);

#endif
