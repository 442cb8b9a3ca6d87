/* chain.c: the dynamic program.  cost[first, last][m] is the least time of stages [first, last], forward
 * and extra, in m units above: what the step holds anyway, the first one's input, and the parameter
 * gradients of the stages behind `last`.  The gradient of the last one's output is in m: when a segment
 * is run again it is there already. */
#include "checkpoint/chain.h"

#include <math.h>
#include <string.h>

#include "core/mem.h"

static int units(const ebb__chain_table *t, size_t bytes)
{
    size_t n = bytes / t->unit + (bytes % t->unit != 0);
    return n > (size_t)t->steps + 1 ? t->steps + 1 : (int)n;
}

static size_t input_of(const ebb__chain *c, int stage) { return stage < c->n ? c->stages[stage].input : 0; }

static size_t gradients(const ebb__chain_table *t, int first, int last)
{
    return first > last ? 0 : t->gradient_sum[last + 1] - t->gradient_sum[first];
}

static int most(int a, int b) { return a > b ? a : b; }

bool ebb__chain_way_direct(ebb__way *way, const ebb__chain_table *t, int first, int last, int choice)
{
    const ebb__chain *c = t->chain;
    const ebb__stage *s = &c->stages[first];
    if (choice >= s->n_choices) return false;
    const ebb__choice *o = &s->choices[choice];
    bool alone = first == last;
    *way = (ebb__way){ .choice = choice };
    way->rest = alone ? 0 : units(t, o->keep + input_of(c, first + 1));
    int forward = units(t, o->forward + (alone ? 0 : input_of(c, last + 1)));
    int backward = units(t, o->backward + gradients(t, first + 1, last));
    way->need = most(way->rest, most(forward, backward));
    way->cost = (float)((alone ? s->replay_ns : s->forward_ns) + o->extra_ns);
    return true;
}

bool ebb__chain_way_segment(ebb__way *way, const ebb__chain_table *t, int first, int last, int length)
{
    const ebb__chain *c = t->chain;
    int next = first + length;
    if (next > last) return false;
    size_t peak = 0;
    for (int i = first; i < next; i++) {
        if (!c->stages[i].divisible) return false;
        size_t here = (i > first ? c->stages[i].input : 0) + c->stages[i].replay;
        if (here > peak) peak = here;
    }
    *way = (ebb__way){ .length = length };
    way->rest = units(t, input_of(c, next));
    way->inner = units(t, gradients(t, next, last));
    way->need = most(units(t, peak + input_of(c, last + 1)), most(way->rest, way->inner));
    way->cost = (float)(t->forward_sum[next] - t->forward_sum[first]);
    return true;
}

void ebb__chain_way_rows(const float **rest, const float **inner, const ebb__chain_table *t, const ebb__way *way,
                         int first, int last)
{
    int n = t->chain->n, next = first + (way->length ? way->length : 1);
    *rest = next <= last ? t->cost[next * n + last] : NULL;
    *inner = way->length ? t->cost[first * n + next - 1] : NULL;
}

static void relax(float *restrict row, const ebb__chain_table *t, const ebb__way *way, int first, int last)
{
    const float *rest, *inner;
    ebb__chain_way_rows(&rest, &inner, t, way, first, last);
    int count = t->steps + 1 - way->need;
    if (count <= 0) return;
    float cost = way->cost;
    float *restrict to = row + way->need;
    if (!rest) {
        for (int m = 0; m < count; m++) to[m] = cost < to[m] ? cost : to[m];
        return;
    }
    const float *restrict a = rest + way->need - way->rest;
    if (!inner) {
        for (int m = 0; m < count; m++) {
            float v = cost + a[m];
            to[m] = v < to[m] ? v : to[m];
        }
        return;
    }
    const float *restrict b = inner + way->need - way->inner;
    for (int m = 0; m < count; m++) {
        float v = cost + a[m] + b[m];
        to[m] = v < to[m] ? v : to[m];
    }
}

/* The ways of a segment share a growing peak, but asking for each anew costs less than its row. */
static void fill_row(ebb__chain_table *t, int first, int last)
{
    float *row = t->cost[first * t->chain->n + last];
    ebb__way way;
    for (int m = 0; m <= t->steps; m++) row[m] = INFINITY;
    for (int k = 0; ebb__chain_way_direct(&way, t, first, last, k); k++) relax(row, t, &way, first, last);
    for (int length = 1; ebb__chain_way_segment(&way, t, first, last, length); length++)
        relax(row, t, &way, first, last);
}

/* Stretches that a plan can hold: those up to the end, and those within the divisible stages. */
static bool is_needed(const ebb__chain *c, int first, int last)
{
    if (last == c->n - 1) return true;
    return c->stages[first].divisible && c->stages[last].divisible;
}

static double lost_by_rounding(const ebb__chain *c, size_t unit)
{
    double lost = 0;
    for (int i = 1; i < c->n; i++) {
        const ebb__stage *s = &c->stages[i];
        size_t sizes[2] = { s->input, s->choices[0].keep + input_of(c, i + 1) };
        for (int k = 0; k < 2; k++) lost += (double)((unit - sizes[k] % unit) % unit);
    }
    return lost;
}

/* Blocks are multiples of 512 bytes. */
static size_t choose_unit(const ebb__chain *c, size_t max_bytes, int n_steps)
{
    size_t low = max_bytes / (2 * (size_t)n_steps), high = max_bytes / (size_t)n_steps, best = high;
    if (high < 1) return 1;
    if (low < 1) low = 1;
    double least = INFINITY;
    for (int k = 0; k <= 64; k++) {
        size_t unit = low + (high - low) * (size_t)k / 64;
        double lost = lost_by_rounding(c, unit);
        if (lost <= least) {
            least = lost;
            best = unit;
        }
    }
    for (int i = 1; i < c->n; i++)
        for (size_t k = c->stages[i].input / high + 1; k <= c->stages[i].input / low; k++) {
            size_t unit = (c->stages[i].input + k - 1) / k;
            double lost = unit >= low && unit <= high ? lost_by_rounding(c, unit) : INFINITY;
            if (lost > least) continue;
            least = lost;
            best = unit;
        }
    return best;
}

static ebb_status make_rows(ebb__chain_table *t)
{
    const ebb__chain *c = t->chain;
    size_t n = (size_t)c->n, rows = 0, row = (size_t)t->steps + 1;
    for (int first = 0; first < c->n; first++)
        for (int last = first; last < c->n; last++) rows += is_needed(c, first, last);
    t->cost = ebb__calloc(n * n, sizeof(*t->cost));
    t->rows = ebb__malloc(rows * row * sizeof(*t->rows));
    t->forward_sum = ebb__calloc(n + 1, sizeof(*t->forward_sum));
    t->gradient_sum = ebb__calloc(n + 1, sizeof(*t->gradient_sum));
    if (!t->cost || !t->rows || !t->forward_sum || !t->gradient_sum) return EBB_ENOMEM;
    float *at = t->rows;
    for (size_t i = 0; i < n * n; i++)
        if (i / n <= i % n && is_needed(c, (int)(i / n), (int)(i % n))) {
            t->cost[i] = at;
            at += row;
        }
    for (size_t i = 0; i < n; i++) {
        t->forward_sum[i + 1] = t->forward_sum[i] + c->stages[i].forward_ns;
        t->gradient_sum[i + 1] = t->gradient_sum[i] + c->stages[i].gradients;
    }
    return EBB_OK;
}

ebb_status ebb__chain_solve(ebb__chain_table **out, const ebb__chain *chain, size_t max_bytes, int n_steps)
{
    ebb__chain_table *t = ebb__calloc(1, sizeof(*t));
    if (!t) return EBB_ENOMEM;
    t->chain = chain;
    t->unit = choose_unit(chain, max_bytes, n_steps);
    t->steps = (int)(max_bytes / t->unit);
    ebb_status st = make_rows(t);
    if (st != EBB_OK) {
        ebb__chain_table_free(t);
        return st;
    }
    for (int first = chain->n - 1; first >= 0; first--)
        for (int last = first; last < chain->n; last++)
            if (t->cost[first * chain->n + last]) fill_row(t, first, last);
    *out = t;
    return EBB_OK;
}

void ebb__chain_table_free(ebb__chain_table *t)
{
    if (!t) return;
    ebb__free(t->cost);
    ebb__free(t->rows);
    ebb__free(t->forward_sum);
    ebb__free(t->gradient_sum);
    ebb__free(t);
}
