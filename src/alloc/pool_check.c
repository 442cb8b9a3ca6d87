/* alloc/pool_check.c: everything that must hold of a pool, walked. */
#include "alloc/pool_state.h"
#include "core/assert.h"

/* What a walk over the segments counts anew. */
typedef struct recount {
    size_t allocated_bytes, requested_bytes, reserved_bytes, active_bytes, inactive_split_bytes;
    size_t by_category[EBB_N_CATEGORIES];
    size_t n_waiting, n_unmapped;
    uint64_t n_live, n_segments;
    size_t n_free[EBB__N_POOL_KINDS];
} recount;

static bool broken(const char *what, uint64_t segment, size_t offset)
{
    (void)ebb_fail(EBB_ESTATE, "pool: %s (segment %llu, offset %zu)", what,
                   (unsigned long long)segment, offset);
    return false;
}

static bool disagree(const char *what, uint64_t kept, uint64_t counted)
{
    if (kept == counted) return true;
    (void)ebb_fail(EBB_ESTATE, "pool: %s: %llu kept, %llu counted", what, (unsigned long long)kept,
                   (unsigned long long)counted);
    return false;
}

static void count_live(recount *r, const ebb__block *block)
{
    r->active_bytes += block->bytes;
    if (block->released) {
        r->n_waiting++;
        return;
    }
    r->n_live++;
    r->allocated_bytes += block->bytes;
    r->requested_bytes += block->requested;
    r->by_category[block->owner.category] += block->bytes;
}

/* NULL where the block is right, else what is wrong; `offset` is where it must begin. */
static const char *block_fault(const ebb__segment *s, const ebb__block *b, size_t offset)
{
    if (b->segment != s || b->segment_number != s->number) return "block of another segment";
    if (b->stream != s->stream) return "block of another stream";
    if (b->offset != offset) return "blocks do not tile";
    if (b->bytes == 0 || b->bytes % EBB__ROUND_BYTES != 0) return "block size is not rounded";
    if (b->bytes > s->bytes - offset) return "block reaches over its segment's end";
    if (b->next && b->next->prev != b) return "neighbours are not linked both ways";
    if (b->used && (b->requested == 0 || b->requested > b->bytes)) return "wrong requested size";
    if (b->used && (unsigned)b->owner.category >= EBB_N_CATEGORIES) return "no such category";
    if (!b->used && b->next && !b->next->used && b->unmapped == b->next->unmapped)
        return "free neighbours are not merged";
    if (b->unmapped && (b->used || !s->expandable)) return "block in use without memory";
    if (b->released && (!b->used || b->uses)) return "block waits that is not released";
    return NULL;
}

static bool check_segment(recount *r, const ebb__pool *pool, const ebb__segment *s)
{
    bool by_page = pool->exact || s->kind == EBB__POOL_PLAN;
    size_t round = by_page ? EBB__EXACT_ROUND_BYTES : EBB__SEGMENT_ROUND_BYTES, mapped = 0;
    if (s->pool != pool || s->bytes == 0 || s->bytes % round != 0)
        return broken("segment is not sound", s->number, 0);
    if (s->next ? s->next->prev != s || s->next->number <= s->number : pool->last_segment != s)
        return broken("segments are not in order", s->number, 0);
    if (!s->first || s->first->prev) return broken("first block is not first", s->number, 0);
    size_t offset = 0;
    for (const ebb__block *b = s->first; b; b = b->next) {
        const char *fault = block_fault(s, b, offset);
        if (fault) return broken(fault, s->number, b->offset);
        if (b->used)
            count_live(r, b);
        else if (b->unmapped)
            r->n_unmapped++;
        else
            r->n_free[s->kind]++;
        if (!b->used && !s->expandable && ebb__block_is_split(b))
            r->inactive_split_bytes += b->bytes;
        if (!b->unmapped) mapped += b->bytes;
        offset += b->bytes;
    }
    if (offset != s->bytes) return broken("blocks do not fill the segment", s->number, offset);
    if (s->expandable && mapped != s->mapped_bytes)
        return broken("mapped bytes are counted wrongly", s->number, s->mapped_bytes);
    r->n_segments++;
    r->reserved_bytes += mapped;
    return true;
}

static bool check_empty_blocks(recount *r, const ebb__pool *pool)
{
    for (const ebb__block *b = pool->first_empty; b; b = b->next) {
        if (!b->used || b->segment || b->bytes || b->requested || (b->next && b->next->prev != b))
            return broken("block of 0 bytes is not sound", 0, 0);
        count_live(r, b);
    }
    return true;
}

/* As many free blocks in the tree as in segments of its kind, each of them free and of the kind:
 * then the two sets are the same. */
static bool check_tree(const recount *r, const ebb__pool *pool, ebb__pool_kind kind)
{
    const ebb__free_tree *tree = &pool->free[kind];
    if (!ebb__free_tree_is_valid(tree)) return broken("free tree is not in order", 0, 0);
    for (const ebb__block *b = ebb__free_tree_first(tree); b; b = ebb__free_tree_next(tree, b))
        if (b->used || b->unmapped || !b->segment || b->segment->kind != kind)
            return broken("block in the wrong free tree", b->segment_number, b->offset);
    return disagree("free blocks", tree->n_blocks, r->n_free[kind]);
}

static bool check_peaks(const ebb_memory_stats *stats)
{
    size_t sum = 0;
    for (int i = 0; i < EBB_N_CATEGORIES; i++) sum += stats->by_category_at_peak[i];
    if (stats->peak_allocated_bytes < stats->allocated_bytes ||
        stats->peak_requested_bytes < stats->requested_bytes ||
        stats->peak_reserved_bytes < stats->reserved_bytes)
        return broken("a peak lies below the present", 0, 0);
    return disagree("sum of categories at the peak", stats->peak_allocated_bytes, sum);
}

/* The parts sum to the whole, and the whole is what was counted. */
static bool check_counters(const recount *r, const ebb__pool *pool)
{
    const ebb__counter(*of)[EBB__N_COUNTED] = pool->counters.of;
    for (int what = 0; what < EBB__N_COUNTED; what++) {
        uint64_t small = of[EBB__OF_SMALL][what].current, large = of[EBB__OF_LARGE][what].current;
        if (!disagree("counters of small and large", of[EBB__OF_ALL][what].current, small + large))
            return false;
        if (of[EBB__OF_ALL][what].peak < of[EBB__OF_ALL][what].current)
            return broken("a counter's peak lies below the present", 0, (size_t)what);
    }
    const ebb__counter *all = of[EBB__OF_ALL];
    return disagree("allocated_bytes.all", all[EBB__COUNT_ALLOCATED_BYTES].current,
                    r->allocated_bytes) &&
           disagree("active_bytes.all", all[EBB__COUNT_ACTIVE_BYTES].current, r->active_bytes) &&
           disagree("reserved_bytes.all", all[EBB__COUNT_RESERVED_BYTES].current,
                    r->reserved_bytes) &&
           disagree("inactive_split_bytes.all", all[EBB__COUNT_INACTIVE_SPLIT_BYTES].current,
                    r->inactive_split_bytes) &&
           disagree("segment.all", all[EBB__COUNT_SEGMENT].current, r->n_segments);
}

static bool check_stats(const recount *r, const ebb__pool *pool)
{
    const ebb_memory_stats *stats = &pool->stats;
    for (int i = 0; i < EBB_N_CATEGORIES; i++)
        if (!disagree(ebb_category_name((ebb_category)i), stats->by_category[i], r->by_category[i]))
            return false;
    uint64_t n_free = r->n_unmapped;
    for (int kind = 0; kind < EBB__N_POOL_KINDS; kind++) n_free += r->n_free[kind];
    return disagree("allocated bytes", stats->allocated_bytes, r->allocated_bytes) &&
           disagree("requested bytes", stats->requested_bytes, r->requested_bytes) &&
           disagree("reserved bytes", stats->reserved_bytes, r->reserved_bytes) &&
           disagree("live blocks", stats->n_allocs - stats->n_frees, r->n_live) &&
           disagree("segments", stats->n_segment_allocs - stats->n_segment_frees, r->n_segments) &&
           disagree("block structs", pool->store.n_structs,
                    r->n_live + r->n_waiting + n_free + pool->store.n_spare) &&
           check_peaks(stats) && check_counters(r, pool);
}

bool ebb__pool_check_locked(const ebb__pool *pool)
{
    recount r = { 0 };
    for (const ebb__segment *s = pool->first_segment; s; s = s->next)
        if (!check_segment(&r, pool, s)) return false;
    if (!check_empty_blocks(&r, pool)) return false;
    for (int kind = 0; kind < EBB__N_POOL_KINDS; kind++)
        if (!check_tree(&r, pool, (ebb__pool_kind)kind)) return false;
    return check_stats(&r, pool);
}

void ebb__pool_assert_sound(const ebb__pool *pool)
{
    if (!ebb__pool_check_locked(pool)) ebb__assert_failed(ebb_message(), __FILE__, __LINE__);
}

bool ebb__pool_check(const ebb__pool *pool)
{
    ebb__pool_lock(pool);
    bool sound = ebb__pool_check_locked(pool);
    ebb__pool_unlock(pool);
    return sound;
}
