/* alloc/expandable.c: segments that grow.  Addresses are reserved once, memory is mapped page by page.
 *
 *   | used | free | unmapped | used | free |         unmapped ...         |    before
 *   | used | unmapped        | used | free, mapped on |  unmapped ...      |    after a large request:
 *                                                      the whole free pages were moved, then new
 *                                                      ones added
 *
 * A hole that is too small for any request thus costs addresses, but no memory.  Pages move between
 * the small and the large segment of a stream as well. */
#include "alloc/guard.h"
#include "alloc/pool_state.h"
#include "core/mem.h"

static size_t page_down(size_t bytes) { return bytes / EBB__PAGE_BYTES * EBB__PAGE_BYTES; }
static size_t page_up(size_t bytes) { return page_down(bytes + EBB__PAGE_BYTES - 1); }

/* ---- mapping ----------------------------------------------------------------------------- */

/* [from, from + bytes) of a free block, which is in no tree, gets or loses its memory; all of it is
 * made free again.  Uses up to two spare structs.  Returns the changed part, merged. */
static ebb__block *change_part(ebb__pool *pool, ebb__block *block, size_t from, size_t bytes)
{
    ebb__block *before = NULL, *after = NULL;
    if (from > block->offset) {
        before = block;
        block = ebb__block_cut(pool, before, from - before->offset);
    }
    if (bytes < block->bytes) after = ebb__block_cut(pool, block, bytes);
    block->unmapped = !block->unmapped;
    if (before && !before->unmapped) ebb__block_to_tree(pool, before);
    if (after && !after->unmapped) ebb__block_to_tree(pool, after);
    return ebb__block_make_free(pool, block);
}

static void count_change(ebb__pool *pool, ebb__segment *s, size_t offset, size_t bytes, bool mapped)
{
    s->mapped_bytes += mapped ? bytes : (size_t)0 - bytes;
    ebb__ledger_memory(pool, s, bytes, mapped);
    EBB__TRACE(pool, memory, mapped ? EBB__ACT_SEGMENT_MAP : EBB__ACT_SEGMENT_UNMAP, s, offset,
               bytes);
    if (mapped && pool->watched) ebb__guard_memory_new(pool, s->base + offset, bytes);
}

/* Takes the memory's watch off before it goes. */
static void before_unmap(ebb__pool *pool, ebb__segment *s, size_t offset, size_t bytes)
{
    if (pool->watched) ebb__guard_memory_end(s->base + offset, bytes);
}

/* The whole pages of a free block that has memory; 0: there are none. */
static size_t whole_pages(const ebb__block *b, size_t *from)
{
    size_t end = page_down(b->offset + b->bytes);
    *from = page_up(b->offset);
    return end > *from ? end - *from : 0;
}

/* ---- growing ----------------------------------------------------------------------------- */

static bool grows(const ebb__segment *s, const ebb__request *request)
{
    return s->expandable && s->kind == request->kind && s->stream == request->stream;
}

/* The lowest run of free blocks, one of them unmapped, that has room; NULL: none. */
static ebb__block *find_run(const ebb__pool *pool, const ebb__request *request)
{
    for (const ebb__segment *s = pool->first_segment; s; s = s->next) {
        if (!grows(s, request)) continue;
        ebb__block *start = s->first;
        size_t bytes = 0;
        for (ebb__block *b = s->first; b; b = b->next) {
            if (b->used) {
                start = b->next;
                bytes = 0;
                continue;
            }
            bytes += b->bytes;
            if (bytes >= request->rounded) return start;
        }
    }
    return NULL;
}

/* Addresses for a segment.  Where the system restricts them (ulimit -v, valgrind), fewer will do. */
static void *reserve(ebb__pool *pool, size_t least, size_t *bytes)
{
    for (*bytes = EBB__EXPANDABLE_BYTES; *bytes > least; *bytes /= 2) {
        void *base = pool->provider.reserve(pool->provider.self, *bytes);
        if (base) return base;
    }
    *bytes = least;
    return pool->provider.reserve(pool->provider.self, least);
}

static ebb_status new_segment(ebb__pool *pool, ebb__block **out, const ebb__request *request)
{
    size_t bytes;
    ebb__segment *s = ebb__malloc(sizeof *s);
    if (!s) return EBB_ENOMEM;
    void *base = reserve(pool, page_up(request->rounded), &bytes);
    if (!base) {
        ebb__free(s);
        return EBB_OK;
    }
    *s = (ebb__segment){ .pool = pool,
                         .number = ++pool->last_number,
                         .base = base,
                         .bytes = bytes,
                         .stream = request->stream,
                         .kind = request->kind,
                         .expandable = true };
    *out = ebb__block_store_take(&pool->store);
    ebb__segment_link(pool, s, *out);
    ebb__ledger_memory(pool, s, 0, true);
    EBB__TRACE(pool, memory, EBB__ACT_SEGMENT_ALLOC, s, 0, 0);
    return EBB_OK;
}

static void end_segment(ebb__pool *pool, ebb__segment *s)
{
    pool->provider.unreserve(pool->provider.self, s->base, s->bytes);
    ebb__ledger_memory(pool, s, 0, false);
    EBB__TRACE(pool, memory, EBB__ACT_SEGMENT_FREE, s, 0, 0);
    ebb__segment_unlink(pool, s);
}

/* The last free block with whole pages outside [low, high) of segment `keep`, from the newest segment
 * and the highest addresses on, so that what is in use gathers below. */
static ebb__block *find_spare_pages(const ebb__pool *pool, const ebb__request *request,
                                    const ebb__segment *keep, size_t low, size_t high)
{
    for (const ebb__segment *s = pool->last_segment; s; s = s->prev) {
        ebb__block *found = NULL;
        size_t from;
        if (!s->expandable || s->stream != request->stream) continue;
        for (ebb__block *b = s->first; b; b = b->next) {
            bool apart = s != keep || b->offset + b->bytes <= low || b->offset >= high;
            if (apart && !b->used && !b->unmapped && whole_pages(b, &from) > 0) found = b;
        }
        if (found) return found;
    }
    return NULL;
}

/* Moves memory from a free block's last whole pages to the start of an unmapped block. */
static ebb__block *move_pages(ebb__pool *pool, ebb__block *source, ebb__block *target, size_t bytes)
{
    ebb__segment *s = source->segment, *t = target->segment;
    size_t from, have = whole_pages(source, &from), to = target->offset;
    if (bytes > have) bytes = have;
    from += have - bytes;
    before_unmap(pool, s, from, bytes);
    if (!pool->provider.remap(pool->provider.self, s->base + from, t->base + to, bytes)) {
        if (pool->watched) ebb__guard_memory_new(pool, s->base + from, bytes);
        return NULL;
    }
    ebb__block_from_tree(pool, source);
    change_part(pool, source, from, bytes);
    count_change(pool, s, from, bytes, false);
    ebb__block *grown = change_part(pool, target, to, bytes);
    count_change(pool, t, to, bytes, true);
    return grown;
}

static ebb__block *add_pages(ebb__pool *pool, ebb__block *target, size_t bytes)
{
    ebb__segment *s = target->segment;
    size_t to = target->offset;
    if (!ebb__pool_has_room(pool, bytes)) return NULL;
    if (!pool->provider.commit(pool->provider.self, s->base + to, bytes)) return NULL;
    ebb__block *grown = change_part(pool, target, to, bytes);
    count_change(pool, s, to, bytes, true);
    return grown;
}

/* Maps what is missing of [start, start + rounded).  NULL: no memory; what was mapped stays. */
static ebb_status map_run(ebb__pool *pool, ebb__block **out, const ebb__request *request)
{
    ebb__segment *s = (*out)->segment;
    ebb__block *at = *out;
    size_t low = at->offset, high = low + request->rounded;
    while (at && at->offset < high) {
        if (!at->unmapped) {
            at = at->offset + at->bytes < high ? at->next : NULL;
            continue;
        }
        size_t missing = page_up(high - at->offset);
        if (missing > at->bytes) missing = at->bytes;
        ebb_status status = ebb__block_store_reserve(&pool->store, 4);
        if (status != EBB_OK) return status;
        ebb__block *spare = find_spare_pages(pool, request, s, low, high);
        at = spare ? move_pages(pool, spare, at, missing) : add_pages(pool, at, missing);
        *out = at;
        if (!at) return EBB_OK;
        at = at->offset + at->bytes < high ? at->next : NULL;
    }
    return EBB_OK;
}

ebb_status ebb__expandable_grow(ebb__pool *pool, ebb__block **out, const ebb__request *request)
{
    ebb__block *block = find_run(pool, request);
    *out = NULL;
    if (!block) {
        ebb_status status = new_segment(pool, &block, request);
        if (status != EBB_OK || !block) return status;
    }
    ebb__segment *s = block->segment;
    ebb_status status = map_run(pool, &block, request);
    if (status == EBB_OK && block) {
        ebb__block_from_tree(pool, block);
        *out = block;
    } else if (s->mapped_bytes == 0) {
        end_segment(pool, s);
    }
    return status;
}

/* ---- returning --------------------------------------------------------------------------- */

size_t ebb__expandable_return(ebb__pool *pool, ebb__segment *s)
{
    size_t before = s->mapped_bytes;
    ebb__block *next;
    for (ebb__block *b = s->first; b; b = next) {
        size_t from, bytes;
        next = b->next;
        if (b->used || b->unmapped || (bytes = whole_pages(b, &from)) == 0) continue;
        if (ebb__block_store_reserve(&pool->store, 2) != EBB_OK) break; /* the rest stays cached */
        before_unmap(pool, s, from, bytes);
        pool->provider.decommit(pool->provider.self, s->base + from, bytes);
        ebb__block_from_tree(pool, b);
        b = change_part(pool, b, from, bytes);
        next = b->next;
        count_change(pool, s, from, bytes, false);
    }
    size_t returned = before - s->mapped_bytes;
    if (s->mapped_bytes == 0) end_segment(pool, s);
    return returned;
}
