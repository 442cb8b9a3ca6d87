/* chain_plan.c: from the table of costs back to a plan: the way taken is the one whose cost is there. */
#include <math.h>

#include "checkpoint/chain.h"

static int step_of(const ebb__chain_table *t, size_t bytes)
{
    size_t m = bytes / t->unit;
    return m > (size_t)t->steps ? t->steps : (int)m;
}

double ebb__chain_cost(const ebb__chain_table *t, size_t bytes) { return t->cost[t->chain->n - 1][step_of(t, bytes)]; }

size_t ebb__chain_smallest(const ebb__chain_table *t)
{
    const float *row = t->cost[t->chain->n - 1];
    for (int m = 0; m <= t->steps; m++)
        if (row[m] < INFINITY) return (size_t)m * t->unit;
    return SIZE_MAX;
}

typedef struct tracing {
    const ebb__chain_table *table;
    int *choice;
    ebb_block_range *segments;
    int n_segments;
} tracing;

static float cost_at(const ebb__chain_table *t, const ebb__way *way, int first, int last, int m)
{
    const float *rest, *inner;
    if (m < way->need) return INFINITY;
    ebb__chain_way_rows(&rest, &inner, t, way, first, last);
    return way->cost + (rest ? rest[m - way->rest] : 0) + (inner ? inner[m - way->inner] : 0);
}

/* The same additions in the same order as in the table, so that the values are equal. */
static ebb__way way_taken(const ebb__chain_table *t, int first, int last, int m)
{
    ebb__way way, best = { .choice = -1 };
    float least = INFINITY;
    for (int k = 0; ebb__chain_way_direct(&way, t, first, last, k); k++)
        if (cost_at(t, &way, first, last, m) < least) {
            least = cost_at(t, &way, first, last, m);
            best = way;
        }
    for (int length = 1; ebb__chain_way_segment(&way, t, first, last, length); length++)
        if (cost_at(t, &way, first, last, m) < least) {
            least = cost_at(t, &way, first, last, m);
            best = way;
        }
    return best;
}

static void trace(tracing *r, int first, int last, int m)
{
    while (first <= last) {
        ebb__way way = way_taken(r->table, first, last, m);
        if (way.length) {
            r->segments[r->n_segments++] = (ebb_block_range){ first, first + way.length - 1 };
            trace(r, first, first + way.length - 1, m - way.inner);
            first += way.length;
        } else {
            r->choice[first++] = way.choice;
        }
        m -= way.rest;
    }
}

bool ebb__chain_plan(const ebb__chain_table *t, size_t bytes, int *choice, ebb_block_range *segments, int *n_segments)
{
    int m = step_of(t, bytes);
    *n_segments = 0;
    if (!(t->cost[t->chain->n - 1][m] < INFINITY)) return false;
    tracing r = { t, choice, segments, 0 };
    trace(&r, 0, t->chain->n - 1, m);
    *n_segments = r.n_segments;
    return true;
}
