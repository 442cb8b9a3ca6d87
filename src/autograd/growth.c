#include "autograd/growth.h"

#include <ebb/leak.h>

static size_t lower(size_t a, size_t b) { return a < b ? a : b; }
static size_t higher(size_t a, size_t b) { return a > b ? a : b; }

static void halve(ebb__growth *g)
{
    g->n /= 2;
    g->steps_each *= 2;
    for (int i = 0; i < g->n; i++) {
        g->low[i] = lower(g->low[2 * i], g->low[2 * i + 1]);
        g->high[i] = higher(g->high[2 * i], g->high[2 * i + 1]);
    }
}

enum { QUARTER = EBB__GROWTH_WINDOWS / 4 };

typedef struct window { size_t low, high; } window;

/* Windows [i, i + n). */
static window windows(const ebb__growth *g, int i, int n)
{
    int from = i * g->n / EBB__GROWTH_WINDOWS, to = (i + n) * g->n / EBB__GROWTH_WINDOWS;
    window w = { g->low[from], g->high[from] };
    while (++from < to) w = (window){ lower(w.low, g->low[from]), higher(w.high, g->high[from]) };
    return w;
}

/* As long as each sample is one step: the quarters of the run rise by the same, within one rise.  A short list
 * that fills up somewhere in a short run does not. */
static bool is_even(const ebb__growth *g)
{
    size_t least = SIZE_MAX, most = 0, once = 0;
    if (g->steps_each > 1) return true;
    for (int i = 1; i < g->n; i++)
        if (g->low[i] > g->low[i - 1]) once = higher(once, g->low[i] - g->low[i - 1]);
    for (int q = 0; q < 4; q++) {
        const int to = (q + 1) * g->n / 4;
        const size_t begin = g->low[q * g->n / 4], end = g->low[to < g->n ? to : g->n - 1];
        const size_t rise = end > begin ? end - begin : 0;
        least = lower(least, rise);
        most = higher(most, rise);
    }
    return most - least <= once;
}

static bool found(const ebb__growth *g)
{
    if (!is_even(g)) return false;
    for (int i = EBB__GROWTH_WINDOWS / 2; i < EBB__GROWTH_WINDOWS; i++)
        if (windows(g, i, 1).low <= windows(g, i - 1, 1).low) return false;
    return windows(g, 3 * QUARTER, QUARTER).low > windows(g, QUARTER, QUARTER).high;
}

static bool has_stopped(const ebb__growth *g)
{
    return windows(g, 3 * QUARTER, QUARTER).high <= windows(g, 2 * QUARTER, QUARTER).high;
}

/* In the second half nothing falls and, as long as each sample is one step, all rises are the same: steps leave
 * so and so many.  What only wanders up (a list whose entries differ) does not look like that. */
static bool is_steady(const ebb__growth *g)
{
    size_t rise = 0;
    for (int i = g->n / 2; i < g->n; i++) {
        if (g->low[i] < g->high[i - 1]) return false;
        if (g->steps_each > 1 || g->low[i] == g->high[i - 1]) continue;
        if (rise && g->low[i] - g->high[i - 1] != rise) return false;
        rise = g->low[i] - g->high[i - 1];
    }
    return true;
}

static void append(ebb__growth *g, size_t level)
{
    if (g->n == EBB__GROWTH_SAMPLES) halve(g);
    g->low[g->n] = g->high[g->n] = level;
    g->n++;
    g->in_last = 1;
}

void ebb__growth_add(ebb__growth *g, size_t level)
{
    if (g->steps_each == 0) g->steps_each = g->in_last = 1; /* as if a sample before the first were full */
    if (g->in_last == g->steps_each) append(g, level);
    else {
        g->low[g->n - 1] = lower(g->low[g->n - 1], level);
        g->high[g->n - 1] = higher(g->high[g->n - 1], level);
        g->in_last++;
    }
    if (g->n >= EBB_LEAK_STEPS) g->goes_on = g->goes_on ? !has_stopped(g) : found(g);
    ebb__recent_add(&g->recent, level);
}

bool ebb__growth_goes_on(const ebb__growth *g) { return g->goes_on; }

bool ebb__growth_of_count(const ebb__growth *g)
{
    return (g->goes_on && is_steady(g)) || ebb__recent_steady(&g->recent) || ebb__recent_sure(&g->recent);
}

bool ebb__growth_of_size(const ebb__growth *g) { return ebb__recent_sure(&g->recent); }
