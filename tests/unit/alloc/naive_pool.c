#include "naive_pool.h"

#include <string.h>

#include "support/support.h"

static const size_t mib = (size_t)1 << 20, reserved_addresses = (size_t)1 << 40;

naive_sums naive_count(const naive_pool *pool)
{
    naive_sums sums = { 0 };
    for (int i = 0; i < pool->n; i++) {
        const naive_piece *p = &pool->pieces[i];
        bool split = (i > 0 && p[-1].segment == p->segment) ||
                     (i + 1 < pool->n && p[1].segment == p->segment);
        if (!p->unmapped) sums.reserved += p->bytes;
        if (!p->used && split && !pool->options.expandable_segments)
            sums.inactive_split += p->bytes;
        if (!p->used) continue;
        sums.active += p->bytes;
        if (p->released) continue;
        sums.allocated += p->bytes;
        sums.requested += p->requested;
        sums.by_category[p->category] += p->bytes;
    }
    return sums;
}

/* ---- pieces ------------------------------------------------------------------------------ */

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

static int find(const naive_pool *pool, uint64_t segment, size_t offset)
{
    for (int i = 0; i < pool->n; i++)
        if (pool->pieces[i].segment == segment && pool->pieces[i].offset == offset) return i;
    cr_assert(false, "the naive pool has no such piece");
    return -1;
}

static bool is_same_segment(const naive_pool *pool, int a, int b)
{
    return a >= 0 && b >= 0 && a < pool->n && b < pool->n &&
           pool->pieces[a].segment == pool->pieces[b].segment;
}

static bool is_whole(const naive_pool *pool, int i)
{
    return !is_same_segment(pool, i, i - 1) && !is_same_segment(pool, i, i + 1);
}

/* The piece becomes two; the second one is returned. */
static int cut(naive_pool *pool, int at, size_t bytes)
{
    naive_piece rest = pool->pieces[at];
    rest.offset += bytes;
    rest.bytes -= bytes;
    pool->pieces[at].bytes = bytes;
    insert_piece(pool, at + 1, rest);
    return at + 1;
}

static bool merge_next(naive_pool *pool, int at)
{
    naive_piece *a = &pool->pieces[at], *b = a + 1;
    if (!is_same_segment(pool, at, at + 1) || a->used || b->used || a->unmapped != b->unmapped)
        return false;
    a->bytes += b->bytes;
    remove_piece(pool, at + 1);
    return true;
}

/* The piece is free from now on; returns where it, or what it became a part of, is. */
static int make_free(naive_pool *pool, int at)
{
    pool->pieces[at].used = pool->pieces[at].released = false;
    merge_next(pool, at);
    if (at > 0 && merge_next(pool, at - 1)) at--;
    pool->pieces[at].free_since = pool->n_searches;
    return at;
}

/* ---- releases ---------------------------------------------------------------------------- */

static void flush_deferred(naive_pool *pool)
{
    for (int i = 0; i < pool->n_deferred; i++)
        make_free(pool, find(pool, pool->deferred[i].segment, pool->deferred[i].offset));
    pool->n_deferred = 0;
}

static void poll(naive_pool *pool)
{
    int kept = 0, n = pool->n_waits;
    for (int i = 0; i < n; i++) {
        naive_wait w = pool->waits[i];
        if (!fake_is_done(&pool->fences, w.stream, w.ticket)) {
            pool->waits[kept++] = w;
            continue;
        }
        int at = find(pool, w.segment, w.offset);
        pool->pieces[at].uses &= ~(1u << w.stream);
        if (pool->pieces[at].uses == 0) make_free(pool, at);
    }
    pool->n_waits = kept;
}

static void wait_for_streams(naive_pool *pool)
{
    for (int i = 0; i < pool->n_waits; i++)
        fake_wait(&pool->fences, pool->waits[i].stream, pool->waits[i].ticket);
    poll(pool);
}

static void defer(naive_pool *pool, const naive_piece *p)
{
    size_t bytes = 0;
    cr_assert(pool->n_deferred < NAIVE_MAX_WAITS);
    pool->deferred[pool->n_deferred++] = (naive_wait){ .segment = p->segment, .offset = p->offset };
    for (int i = 0; i < pool->n_deferred; i++)
        bytes +=
            pool->pieces[find(pool, pool->deferred[i].segment, pool->deferred[i].offset)].bytes;
    if (bytes > pool->options.deferred_release_bytes) flush_deferred(pool);
}

void naive_give(naive_pool *pool, uint64_t segment, size_t offset)
{
    int at = find(pool, segment, offset);
    naive_piece *p = &pool->pieces[at];
    p->released = true;
    for (int stream = FAKE_STREAMS; stream-- > 0;) {
        if (!(p->uses >> stream & 1)) continue;
        cr_assert(pool->n_waits < NAIVE_MAX_WAITS);
        pool->waits[pool->n_waits++] = (naive_wait){ .segment = segment,
                                                     .offset = offset,
                                                     .stream = stream,
                                                     .ticket = fake_record(&pool->fences, stream) };
    }
    if (p->uses) return;
    if (pool->options.deferred_release_bytes)
        defer(pool, p);
    else
        make_free(pool, at);
}

void naive_record_stream(naive_pool *pool, uint64_t segment, size_t offset, int stream)
{
    naive_piece *p = &pool->pieces[find(pool, segment, offset)];
    if (stream != p->stream) p->uses |= 1u << stream;
}

void naive_set_category(naive_pool *pool, uint64_t segment, size_t offset, int category)
{
    pool->pieces[find(pool, segment, offset)].category = category;
}

/* ---- sizes ------------------------------------------------------------------------------- */

static size_t round_size(const naive_pool *pool, size_t bytes)
{
    size_t power = 1;
    int interval = 0;
    while (2 * power <= bytes) power *= 2;
    for (size_t from = 2 * mib; from <= bytes && interval < 15; from *= 2) interval++;
    size_t divisions = pool->options.roundup_power2_divisions[interval], unit = 512;
    if (divisions > 1 && bytes > 512 * divisions) unit = power / divisions;
    return (bytes + unit - 1) / unit * unit;
}

static bool suits(const naive_pool *pool, const naive_piece *p, size_t bytes, bool small)
{
    size_t max_split = pool->options.max_split_bytes;
    if (!max_split || small) return true;
    if (bytes < max_split) return p->bytes < max_split;
    return p->bytes < bytes + pool->options.max_non_split_rounding_bytes;
}

/* The array's order makes the first among equal sizes the one of the oldest segment. */
static int best_fit(naive_pool *pool, size_t bytes, int stream, bool small)
{
    int best = -1;
    pool->n_searches++;
    for (int i = 0; i < pool->n; i++) {
        const naive_piece *p = &pool->pieces[i];
        if (p->used || p->unmapped || p->stream != stream || p->small != small || p->bytes < bytes)
            continue;
        if (best < 0 || p->bytes < pool->pieces[best].bytes) best = i;
    }
    return best >= 0 && suits(pool, &pool->pieces[best], bytes, small) ? best : -1;
}

/* ---- expandable segments ----------------------------------------------------------------- */

/* Page `page` of a free piece gets or loses its memory; the piece where it is then is returned. */
static int change_page(naive_pool *pool, uint64_t segment, size_t page)
{
    int at = 0;
    while (pool->pieces[at].segment != segment ||
           pool->pieces[at].offset + pool->pieces[at].bytes <= page)
        at++;
    if (pool->pieces[at].offset < page) at = cut(pool, at, page - pool->pieces[at].offset);
    if (pool->pieces[at].bytes > 2 * mib) cut(pool, at, 2 * mib);
    naive_piece *p = &pool->pieces[at];
    pool->reserved += p->unmapped ? p->bytes : (size_t)0 - p->bytes;
    p->unmapped = !p->unmapped;
    return make_free(pool, at);
}

static bool last_whole_page(const naive_piece *p, size_t *page)
{
    size_t end = (p->offset + p->bytes) / (2 * mib) * (2 * mib);
    *page = end - 2 * mib;
    return !p->used && !p->unmapped && end >= p->offset + 2 * mib;
}

/* The whole free page with the highest address of the newest segment that has one, outside a range. */
static bool find_spare_page(const naive_pool *pool, int stream, uint64_t keep, size_t low,
                            size_t high, uint64_t *segment, size_t *page)
{
    for (int i = pool->n; i-- > 0;) {
        const naive_piece *p = &pool->pieces[i];
        bool inside = p->segment == keep && p->offset < high && p->offset + p->bytes > low;
        if (p->stream != stream || inside || !last_whole_page(p, page)) continue;
        *segment = p->segment;
        return true;
    }
    return false;
}

static size_t mapped_in(const naive_pool *pool, uint64_t segment)
{
    size_t bytes = 0;
    for (int i = 0; i < pool->n; i++)
        if (pool->pieces[i].segment == segment && !pool->pieces[i].unmapped)
            bytes += pool->pieces[i].bytes;
    return bytes;
}

static void end_if_empty(naive_pool *pool, uint64_t segment)
{
    if (mapped_in(pool, segment) == 0) remove_piece(pool, find(pool, segment, 0));
}

/* Start of the lowest run of free pieces with room, in the oldest segment. */
static int find_run(const naive_pool *pool, size_t bytes, int stream, bool small)
{
    size_t run = 0;
    int start = -1;
    for (int i = 0; i < pool->n; i++) {
        const naive_piece *p = &pool->pieces[i];
        if (!is_same_segment(pool, i, i - 1)) start = -1;
        if (p->used || p->stream != stream || p->small != small) {
            start = -1;
            continue;
        }
        if (start < 0) start = i, run = 0;
        run += p->bytes;
        if (run >= bytes) return start;
    }
    return -1;
}

static bool has_room(const naive_pool *pool, size_t bytes)
{
    return !pool->limit_bytes || pool->reserved + bytes <= pool->limit_bytes;
}

/* All missing pages of the piece's part below `high`; false: no room. */
static bool map_piece(naive_pool *pool, int at, int stream, size_t low, size_t high)
{
    naive_piece p = pool->pieces[at];
    size_t missing = (high - p.offset + 2 * mib - 1) / (2 * mib) * (2 * mib), page = p.offset;
    if (missing > p.bytes) missing = p.bytes;
    for (; missing > 0; page += 2 * mib, missing -= 2 * mib) {
        uint64_t segment;
        size_t spare;
        if (find_spare_page(pool, stream, p.segment, low, high, &segment, &spare))
            change_page(pool, segment, spare);
        else if (!has_room(pool, missing))
            return false;
        change_page(pool, p.segment, page);
    }
    return true;
}

static int grow(naive_pool *pool, size_t bytes, int stream, bool small)
{
    int start = find_run(pool, bytes, stream, small);
    if (start < 0) {
        insert_piece(pool, pool->n,
                     (naive_piece){ .segment = ++pool->last_segment,
                                    .bytes = reserved_addresses,
                                    .stream = stream,
                                    .small = small,
                                    .unmapped = true });
        start = pool->n - 1;
    }
    uint64_t segment = pool->pieces[start].segment;
    size_t low = pool->pieces[start].offset, high = low + bytes;
    for (int i = 0; i < pool->n; i++) {
        naive_piece *p = &pool->pieces[i];
        if (p->segment != segment || !p->unmapped || p->offset + p->bytes <= low ||
            p->offset >= high)
            continue;
        if (!map_piece(pool, i, stream, low, high)) {
            end_if_empty(pool, segment);
            return -1;
        }
        i = -1; /* the array has changed */
    }
    if (pool->reserved > pool->peak_reserved) pool->peak_reserved = pool->reserved;
    return find(pool, segment, low);
}

static void unmap_all(naive_pool *pool)
{
    size_t page;
    for (int i = 0; i < pool->n; i++)
        while (i >= 0 && last_whole_page(&pool->pieces[i], &page)) {
            uint64_t segment = pool->pieces[i].segment;
            change_page(pool, segment, page);
            i = -1;
        }
    for (int i = 0; i < pool->n; i++)
        if (is_whole(pool, i) && pool->pieces[i].unmapped) remove_piece(pool, i--);
}

/* ---- segments ---------------------------------------------------------------------------- */

static void return_piece(naive_pool *pool, int at)
{
    pool->reserved -= pool->pieces[at].bytes;
    remove_piece(pool, at);
}

static void return_cached(naive_pool *pool)
{
    if (pool->options.expandable_segments) {
        unmap_all(pool);
        return;
    }
    for (int i = pool->n - 1; i >= 0; i--)
        if (is_whole(pool, i) && !pool->pieces[i].used) return_piece(pool, i);
}

void naive_empty_cache(naive_pool *pool)
{
    wait_for_streams(pool);
    flush_deferred(pool);
    return_cached(pool);
}

static int new_memory(naive_pool *pool, size_t bytes, int stream, bool small)
{
    if (pool->options.expandable_segments) return grow(pool, bytes, stream, small);
    size_t size = (bytes + 2 * mib - 1) / (2 * mib) * (2 * mib);
    if (small)
        size = 2 * mib;
    else if (bytes < 10 * mib)
        size = 20 * mib;
    if (!has_room(pool, size)) return -1;
    pool->reserved += size;
    if (pool->reserved > pool->peak_reserved) pool->peak_reserved = pool->reserved;
    insert_piece(
        pool, pool->n,
        (naive_piece){
            .segment = ++pool->last_segment, .bytes = size, .stream = stream, .small = small });
    return pool->n - 1;
}

static bool is_collectable(const naive_pool *pool, int i)
{
    return !pool->pieces[i].used && !pool->pieces[i].small && is_whole(pool, i);
}

static void collect_garbage(naive_pool *pool)
{
    size_t keep = (size_t)(pool->options.garbage_collection_threshold * (double)pool->limit_bytes);
    double total = 0;
    int n = 0;
    if (pool->options.expandable_segments) return;
    for (int i = 0; i < pool->n; i++)
        if (is_collectable(pool, i))
            total += (double)(pool->n_searches - pool->pieces[i].free_since), n++;
    bool freed = true;
    if (pool->reserved <= keep) return;
    while (freed && n > 0 && pool->reserved > keep) {
        double mean = total / n;
        freed = false;
        for (int i = 0; i < pool->n; i++) {
            double age = (double)(pool->n_searches - pool->pieces[i].free_since);
            if (!is_collectable(pool, i) || age < mean) continue;
            return_piece(pool, i--);
            total -= age;
            n--;
            freed = true;
        }
    }
}

/* The last of the stream's free large pieces in order of (size, age of the segment). */
static int largest_free(const naive_pool *pool, int stream)
{
    int best = -1;
    for (int i = 0; i < pool->n; i++) {
        const naive_piece *p = &pool->pieces[i];
        if (p->used || p->unmapped || p->small || p->stream != stream) continue;
        if (best < 0 || p->bytes >= pool->pieces[best].bytes) best = i;
    }
    return best;
}

static bool return_oversize(naive_pool *pool, size_t bytes, int stream)
{
    size_t max_split = pool->options.max_split_bytes, want = bytes < max_split ? max_split : bytes,
           total = 0;
    if (!max_split) return false;
    int at = -1;
    for (int i = 0; i < pool->n; i++) {
        const naive_piece *p = &pool->pieces[i];
        if (p->used || p->unmapped || p->small || p->stream != stream || p->bytes < want) continue;
        if (at < 0 || p->bytes < pool->pieces[at].bytes) at = i;
    }
    if (at >= 0 && !pool->options.expandable_segments && is_collectable(pool, at)) {
        return_piece(pool, at);
        return true;
    }
    while (total < want) {
        at = largest_free(pool, stream);
        if (at < 0 || pool->pieces[at].bytes < max_split) return false;
        if (pool->options.expandable_segments || !is_collectable(pool, at)) return false;
        total += pool->pieces[at].bytes;
        return_piece(pool, at);
    }
    return true;
}

static int find_memory(naive_pool *pool, size_t bytes, int stream, bool small)
{
    if (pool->limit_bytes && pool->options.garbage_collection_threshold > 0) collect_garbage(pool);
    int at = new_memory(pool, bytes, stream, small);
    if (at < 0 && return_oversize(pool, bytes, stream)) at = new_memory(pool, bytes, stream, small);
    if (at >= 0) return at;
    wait_for_streams(pool);
    at = best_fit(pool, bytes, stream, small);
    if (at >= 0) return at;
    return_cached(pool);
    return new_memory(pool, bytes, stream, small);
}

const naive_piece *naive_take(naive_pool *pool, size_t requested, int stream, int category)
{
    size_t bytes = round_size(pool, requested), max_split = pool->options.max_split_bytes;
    bool small = bytes <= mib;
    poll(pool);
    int at = best_fit(pool, bytes, stream, small);
    if (at < 0 && pool->n_deferred) {
        flush_deferred(pool);
        at = best_fit(pool, bytes, stream, small);
    }
    if (at < 0) at = find_memory(pool, bytes, stream, small);
    if (at < 0) return NULL;
    size_t rest = pool->pieces[at].bytes - bytes;
    bool splits = rest > mib && (!max_split || bytes < max_split);
    if (small || pool->options.expandable_segments) splits = rest >= 512;
    if (splits) pool->pieces[cut(pool, at, bytes)].free_since = pool->n_searches;
    naive_piece *p = &pool->pieces[at];
    p->used = true;
    p->requested = requested;
    p->category = category;
    p->uses = 0;
    naive_sums sums = naive_count(pool);
    if (sums.allocated > pool->peak_allocated) pool->peak_allocated = sums.allocated;
    if (sums.requested > pool->peak_requested) pool->peak_requested = sums.requested;
    if (sums.active > pool->peak_active) pool->peak_active = sums.active;
    return p;
}
