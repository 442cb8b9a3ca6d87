/* alloc/plan_pack.c: offsets for blocks with known lives.
 * The problem (dynamic storage allocation) is NP-hard; blocks are placed one by one at the lowest
 * offset that is free all their life, in several orders.  Then whatever stuck out at the top is placed
 * first, again and again, while that helps and the work is bounded. */
#include <stdlib.h>
#include <string.h>

#include "alloc/plan.h"
#include "core/mem.h"

enum { MAX_ROUNDS = 200 };
static const double max_steps = 6e8; /* comparisons: below a second */

static bool lives_together(const ebb__planned *a, const ebb__planned *b)
{
    return a->begin < b->end && b->begin < a->end;
}

/* placed[0 .. n): indices by offset.  Finds the lowest gap and returns its offset. */
static size_t lowest_gap(const ebb__planned *blocks, const size_t *placed, size_t n,
                         const ebb__planned *block)
{
    size_t offset = 0;
    for (size_t i = 0; i < n; i++) {
        const ebb__planned *other = &blocks[placed[i]];
        if (!lives_together(block, other)) continue;
        if (other->offset >= offset + block->bytes) break;
        if (other->offset + other->bytes > offset) offset = other->offset + other->bytes;
    }
    return offset;
}

static size_t place_all(ebb__planned *blocks, size_t n, const size_t *order, size_t *placed)
{
    size_t top = 0;
    for (size_t i = 0; i < n; i++) {
        ebb__planned *block = &blocks[order[i]];
        block->offset = lowest_gap(blocks, placed, i, block);
        size_t low = 0, high = i;
        while (low < high) {
            size_t middle = (low + high) / 2;
            if (blocks[placed[middle]].offset <= block->offset)
                low = middle + 1;
            else
                high = middle;
        }
        memmove(&placed[low + 1], &placed[low], (i - low) * sizeof *placed);
        placed[low] = order[i];
        if (block->offset + block->bytes > top) top = block->offset + block->bytes;
    }
    return top;
}

/* ---- orders ------------------------------------------------------------------------------ */

static double life(const ebb__planned *b)
{
    return b->end == SIZE_MAX ? 1e18 : (double)(b->end - b->begin);
}
static double size_of(const ebb__planned *b)
{
    return (b->end == SIZE_MAX ? 1e18 : 0) + (double)b->bytes;
}
static double area(const ebb__planned *b) { return life(b) * (double)b->bytes; }

typedef double weight_fn(const ebb__planned *block);
static weight_fn *const weights[] = { size_of, area, life };
enum { N_WEIGHTS = sizeof weights / sizeof *weights };

typedef struct ranking {
    const ebb__planned *blocks;
    weight_fn *weight;
} ranking;

/* Heaviest first; equal ones as they came, so that a plan is the same everywhere. */
static int heavier_first(const void *a, const void *b, void *user)
{
    const ranking *r = user;
    size_t i = *(const size_t *)a, j = *(const size_t *)b;
    double x = r->weight(&r->blocks[i]), y = r->weight(&r->blocks[j]);
    if (x != y) return x < y ? 1 : -1;
    return i < j ? -1 : i > j;
}

/* Blocks that end in the uppermost part go to the front.  `scratch`: n. */
static void promote_top(const ebb__planned *blocks, size_t n, size_t *order, size_t *scratch,
                        size_t above)
{
    size_t front = 0, back = 0;
    for (size_t i = 0; i < n; i++) {
        const ebb__planned *b = &blocks[order[i]];
        if (b->offset + b->bytes > above)
            order[front++] = order[i];
        else
            scratch[back++] = order[i];
    }
    /* Those that were promoted stand at order[0 .. front) already, in their old order. */
    memcpy(&order[front], scratch, back * sizeof *order);
}

/* Keeps the offsets if they need less than the best so far. */
static void keep_better(const ebb__planned *blocks, size_t n, size_t top, size_t *best_top,
                        size_t *best)
{
    if (top >= *best_top) return;
    *best_top = top;
    for (size_t i = 0; i < n; i++) best[i] = blocks[i].offset;
}

/* scratch: 3 n. */
static size_t pack(ebb__planned *blocks, size_t n, size_t live_bytes, size_t *scratch)
{
    size_t *order = scratch, *placed = scratch + n, *best = scratch + 2 * n, best_top = SIZE_MAX;
    double steps = 0, per_round = (double)n * (double)n / 2;
    for (int w = 0; w < N_WEIGHTS && best_top > live_bytes && (w == 0 || steps < max_steps); w++) {
        for (size_t i = 0; i < n; i++) order[i] = i;
        ranking ranked = { blocks, weights[w] };
        qsort_r(order, n, sizeof *order, heavier_first, &ranked);
        size_t last_top = SIZE_MAX;
        for (int round = 0; round < MAX_ROUNDS && best_top > live_bytes;
             round++, steps += per_round) {
            if (round > 0 && steps > max_steps * (w + 1) / N_WEIGHTS) break;
            size_t top = place_all(blocks, n, order, placed);
            keep_better(blocks, n, top, &best_top, best);
            if (top == last_top && round > MAX_ROUNDS / 4) break;
            last_top = top;
            promote_top(blocks, n, order, placed, live_bytes);
        }
    }
    for (size_t i = 0; i < n; i++) blocks[i].offset = best[i];
    return best_top;
}

ebb_status ebb__plan_pack(ebb__planned *blocks, size_t n, size_t live_bytes, size_t *bytes)
{
    *bytes = 0;
    if (n == 0) return EBB_OK;
    size_t *scratch = ebb__calloc(n, 3 * sizeof *scratch);
    if (!scratch) return EBB_ENOMEM;
    *bytes = pack(blocks, n, live_bytes, scratch);
    ebb__free(scratch);
    return EBB_OK;
}
