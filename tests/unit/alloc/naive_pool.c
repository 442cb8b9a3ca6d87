#include "naive_pool.h"

#include <string.h>

#include "support/support.h"

static const size_t mib = (size_t)1 << 20;

naive_sums naive_count(const naive_pool *pool)
{
    naive_sums sums = {0};
    for (int i = 0; i < pool->n; i++) {
        const naive_piece *p = &pool->pieces[i];
        sums.reserved += p->bytes;
        if (!p->used) continue;
        sums.allocated += p->bytes;
        sums.requested += p->requested;
        sums.by_category[p->category] += p->bytes;
    }
    return sums;
}

static void insert_piece(naive_pool *pool, int at, naive_piece piece)
{
    cr_assert(pool->n < NAIVE_MAX_PIECES, "the naive pool is full");
    memmove(&pool->pieces[at + 1], &pool->pieces[at], (size_t)(pool->n - at) * sizeof piece);
    pool->pieces[at] = piece;
    pool->n++;
}

static void remove_piece(naive_pool *pool, int at)
{
    pool->n--;
    naive_piece *p = &pool->pieces[at];
    memmove(p, p + 1, (size_t)(pool->n - at) * sizeof *p);
}

/* The array's order makes the first among equal sizes the one of the oldest segment. */
static int best_fit(const naive_pool *pool, size_t bytes, int stream, bool small)
{
    int best = -1;
    for (int i = 0; i < pool->n; i++) {
        const naive_piece *p = &pool->pieces[i];
        if (p->used || p->stream != stream || p->small != small || p->bytes < bytes) continue;
        if (best < 0 || p->bytes < pool->pieces[best].bytes) best = i;
    }
    return best;
}

static bool is_same_segment(const naive_pool *pool, int a, int b)
{
    return a >= 0 && b >= 0 && a < pool->n && b < pool->n &&
           pool->pieces[a].segment == pool->pieces[b].segment;
}

void naive_empty_cache(naive_pool *pool)
{
    for (int i = pool->n - 1; i >= 0; i--) {
        bool whole = !is_same_segment(pool, i, i - 1) && !is_same_segment(pool, i, i + 1);
        if (whole && !pool->pieces[i].used) remove_piece(pool, i);
    }
}

static int new_segment(naive_pool *pool, size_t bytes, int stream, bool small)
{
    size_t size = (bytes + 2 * mib - 1) / (2 * mib) * (2 * mib);
    if (small) size = 2 * mib;
    else if (bytes < 10 * mib) size = 20 * mib;
    if (pool->limit_bytes && naive_count(pool).reserved + size > pool->limit_bytes)
        naive_empty_cache(pool);
    size_t reserved = naive_count(pool).reserved + size;
    if (pool->limit_bytes && reserved > pool->limit_bytes) return -1;
    if (reserved > pool->peak_reserved) pool->peak_reserved = reserved;
    insert_piece(pool, pool->n, (naive_piece){ .segment = ++pool->last_segment, .bytes = size,
                                               .stream = stream, .small = small });
    return pool->n - 1;
}

const naive_piece *naive_take(naive_pool *pool, size_t requested, int stream, int category)
{
    size_t bytes = (requested + 511) / 512 * 512;
    bool small = bytes <= mib;
    int at = best_fit(pool, bytes, stream, small);
    if (at < 0) at = new_segment(pool, bytes, stream, small);
    if (at < 0) return NULL;
    size_t rest = pool->pieces[at].bytes - bytes;
    if (small ? rest >= 512 : rest > mib) {
        naive_piece tail = pool->pieces[at];
        tail.offset += bytes;
        tail.bytes = rest;
        pool->pieces[at].bytes = bytes;
        insert_piece(pool, at + 1, tail);
    }
    naive_piece *p = &pool->pieces[at];
    p->used = true;
    p->requested = requested;
    p->category = category;
    naive_sums sums = naive_count(pool);
    if (sums.allocated > pool->peak_allocated) pool->peak_allocated = sums.allocated;
    if (sums.requested > pool->peak_requested) pool->peak_requested = sums.requested;
    return p;
}

static int find(const naive_pool *pool, uint64_t segment, size_t offset)
{
    for (int i = 0; i < pool->n; i++)
        if (pool->pieces[i].segment == segment && pool->pieces[i].offset == offset) return i;
    cr_assert(false, "the naive pool has no such piece");
    return -1;
}

void naive_set_category(naive_pool *pool, uint64_t segment, size_t offset, int category)
{
    pool->pieces[find(pool, segment, offset)].category = category;
}

static void merge_next(naive_pool *pool, int at)
{
    naive_piece *a = &pool->pieces[at], *b = a + 1;
    if (!is_same_segment(pool, at, at + 1) || a->used || b->used) return;
    a->bytes += b->bytes;
    remove_piece(pool, at + 1);
}

void naive_give(naive_pool *pool, uint64_t segment, size_t offset)
{
    int at = find(pool, segment, offset);
    pool->pieces[at].used = false;
    merge_next(pool, at);
    if (at > 0) merge_next(pool, at - 1);
}
