/* chain.c: the dynamic program.  cost[first, last][m] is the least time of stages [first, last], forward
 * and extra, in m units above: what the step holds anyway, the first one's input, and the parameter
 * gradients of the stages behind `last`.  The gradient of the last one's output is in m: when a segment
 * is run again it is there already. */
#include "checkpoint/chain.h"

#include <math.h>
#include <string.h>

#include "core/mem.h"

enum { MOST_COSTS = 1 << 26 };

/* To the nearest, so that errors cancel over a chain; what is small still counts. */
static int units(const ebb__chain_table *t, size_t bytes)
{
    size_t n = bytes / t->unit + (bytes % t->unit >= (t->unit + 1) / 2);
    if (n == 0 && bytes > 0) n = 1;
    return n > (size_t)t->steps + 1 ? t->steps + 1 : (int)n;
}

static size_t input_of(const ebb__chain *c, int stage) { return stage < c->n ? c->stages[stage].input : 0; }

static size_t gradients(const ebb__chain_table *t, int first, int last)
{
    return first > last ? 0 : t->gradient_sum[last + 1] - t->gradient_sum[first];
}

static int most(int a, int b) { return a > b ? a : b; }

/* Of the stage behind `first`, with what `o` leaves to it; how that one is run is not known yet, so the least. */
static size_t backward_behind(const ebb__chain *c, const ebb__choice *o, int first)
{
    const ebb__stage *next = &c->stages[first + 1];
    size_t least = SIZE_MAX;
    for (int k = 0; k < next->n_choices; k++)
        if (next->choices[k].backward < least) least = next->choices[k].backward;
    return least + o->owed;
}

/* Stretches that do not reach the chain's end lie in a segment. */
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
    if (o->owed > 0 && !alone)
        backward = most(backward, way->rest + units(t, backward_behind(c, o, first) + gradients(t, first + 2, last)));
    way->need = o->host && last < c->n - 1 ? t->steps + 1 : most(way->rest, most(forward, backward));
    way->cost = (float)((alone ? s->replay_ns : s->forward_ns) + o->extra_ns + (last == c->n - 1 ? o->copy_ns : 0));
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

static double off(size_t bytes, size_t unit)
{
    size_t rest = bytes % unit;
    return (double)(rest < unit - rest ? rest : unit - rest);
}

/* Bytes by which rounding to units errs, over all that plans add up. */
static double lost_by_rounding(const ebb__chain *c, size_t unit)
{
    double lost = 0;
    for (int i = 1; i < c->n; i++) {
        const ebb__stage *s = &c->stages[i];
        lost += off(s->input, unit);
        for (int k = 0; k < s->n_choices; k++)
            lost += off(s->choices[k].keep + input_of(c, i + 1), unit) / s->n_choices;
    }
    return lost;
}

/* Blocks of a model are alike, so that a unit that divides the sizes of one nearly divides them all. */
static size_t choose_unit(const ebb__chain *c, size_t max_bytes, int n_steps)
{
    enum { TRIED = 512 };
    size_t low = max_bytes / (2 * (size_t)n_steps), high = max_bytes / (size_t)n_steps, best = high;
    if (high < 1) return 1;
    if (low < 1) low = 1;
    double least = INFINITY;
    for (size_t k = 0; k <= TRIED; k++) {
        size_t unit = low + (high - low) * k / TRIED;
        double lost = lost_by_rounding(c, unit);
        if (lost > least) continue;
        least = lost;
        best = unit;
    }
    for (size_t k = c->stages[1].input / high + 1; k <= c->stages[1].input / low; k++) {
        size_t unit = (c->stages[1].input + k - 1) / k;
        double lost = unit >= low && unit <= high ? lost_by_rounding(c, unit) : INFINITY;
        if (lost > least) continue;
        least = lost;
        best = unit;
    }
    return best;
}

/* Stages [first, last] are as [first + 1, last + 1] are, so that their rows are one. */
static bool is_repeated(const ebb__chain_table *t, int first, int last)
{
    const ebb__chain *c = t->chain;
    if (last + 1 >= c->n - 1 || !is_needed(c, first + 1, last + 1)) return false;
    return t->alike_sum[last + 1] - t->alike_sum[first] == last - first + 1 &&
           input_of(c, last + 1) == input_of(c, last + 2);
}

static void sum_up(ebb__chain_table *t)
{
    const ebb__chain *c = t->chain;
    for (int i = 0; i < c->n; i++) {
        bool alike = i + 1 < c->n && memcmp(&c->stages[i], &c->stages[i + 1], sizeof(c->stages[i])) == 0;
        t->forward_sum[i + 1] = t->forward_sum[i] + c->stages[i].forward_ns;
        t->gradient_sum[i + 1] = t->gradient_sum[i] + c->stages[i].gradients;
        t->alike_sum[i + 1] = t->alike_sum[i] + alike;
    }
}

static ebb_status make_rows(ebb__chain_table *t)
{
    const ebb__chain *c = t->chain;
    size_t n = (size_t)c->n, rows = 0;
    t->cost = ebb__calloc(n * n, sizeof(*t->cost));
    t->forward_sum = ebb__calloc(n + 1, sizeof(*t->forward_sum));
    t->gradient_sum = ebb__calloc(n + 1, sizeof(*t->gradient_sum));
    t->alike_sum = ebb__calloc(n + 1, sizeof(*t->alike_sum));
    if (!t->cost || !t->forward_sum || !t->gradient_sum || !t->alike_sum) return EBB_ENOMEM;
    sum_up(t);
    for (int first = 0; first < c->n; first++)
        for (int last = first; last < c->n; last++) rows += is_needed(c, first, last) && !is_repeated(t, first, last);
    /* Hundreds of stages, all different: a coarser grid rather than gigabytes. */
    for (; rows * (size_t)t->steps > MOST_COSTS && t->steps > 256; t->unit *= 2) t->steps /= 2;
    t->rows = ebb__malloc(rows * ((size_t)t->steps + 1) * sizeof(*t->rows));
    return t->rows ? EBB_OK : EBB_ENOMEM;
}

/* Longer stretches are made of those that begin later, or end earlier. */
static void fill_rows(ebb__chain_table *t)
{
    const ebb__chain *c = t->chain;
    float *row = t->rows;
    for (int first = c->n - 1; first >= 0; first--)
        for (int last = first; last < c->n; last++) {
            float **at = &t->cost[first * c->n + last];
            if (!is_needed(c, first, last)) continue;
            if (is_repeated(t, first, last)) {
                *at = t->cost[(first + 1) * c->n + last + 1];
                continue;
            }
            *at = row;
            row += t->steps + 1;
            fill_row(t, first, last);
        }
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
    fill_rows(t);
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
    ebb__free(t->alike_sum);
    ebb__free(t);
}
