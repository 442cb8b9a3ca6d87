#include "autograd/recent.h"

static size_t lower(size_t a, size_t b) { return a < b ? a : b; }
static size_t higher(size_t a, size_t b) { return a > b ? a : b; }

/* The sample that `back` newer ones follow. */
static int at(const ebb__recent_level *l, int64_t back) { return (int)((l->n - 1 - back) % EBB__RECENT_SAMPLES); }

/* The lowest of the n samples that `back` newer ones follow. */
static size_t low_of(const ebb__recent_level *l, int back, int n)
{
    size_t low = l->low[at(l, back)];
    for (int i = 1; i < n; i++) low = lower(low, l->low[at(l, back + i)]);
    return low;
}

/* The highest of all steps but those of the latest `but` samples. */
static size_t high_before(const ebb__recent_level *l, int but)
{
    size_t high = l->before;
    const int64_t kept = l->n < EBB__RECENT_SAMPLES ? l->n : EBB__RECENT_SAMPLES;
    for (int i = but; i < kept; i++) high = higher(high, l->high[at(l, i)]);
    return high;
}

enum { WINDOWS = 8 };

/* The latest n samples in eight windows, each lowest above the one before, and the last quarter above all else
 * that ever was but the two quarters next to it. */
static bool rises(const ebb__recent_level *l, int n)
{
    const int each = n / WINDOWS;
    if (l->n < n) return false;
    for (int i = 0; i + 1 < WINDOWS; i++)
        if (low_of(l, i * each, each) <= low_of(l, (i + 1) * each, each)) return false;
    return low_of(l, 0, n / 4) > high_before(l, n / 2);
}

static bool is_steady(const ebb__recent_level *l, bool of_one_step)
{
    if (!rises(l, EBB__RECENT_STEADY)) return false;
    size_t rise = 0;
    for (int i = 0; i + 1 < EBB__RECENT_STEADY; i++) {
        const size_t low = l->low[at(l, i)], before = l->high[at(l, i + 1)];
        if (low < before || (of_one_step && low == before)) return false;
        if (!of_one_step) continue;
        if (rise && low - before != rise) return false;
        rise = low - before;
    }
    return true;
}

static bool is_sure(const ebb__recent_level *l)
{
    if (!rises(l, EBB__RECENT_SAMPLES)) return false;
    double sum = 0, squares = 0;
    for (int i = 0; i + 1 < EBB__RECENT_SAMPLES; i++) {
        const double rise = (double)l->low[at(l, i)] - (double)l->low[at(l, i + 1)];
        sum += rise;
        squares += rise * rise;
    }
    return sum * sum >= 24 * squares;
}

static void push(ebb__recent_level *l, size_t low, size_t high, bool of_one_step)
{
    const int slot = (int)(l->n % EBB__RECENT_SAMPLES);
    if (l->n >= EBB__RECENT_SAMPLES) l->before = higher(l->before, l->high[slot]);
    l->low[slot] = low;
    l->high[slot] = high;
    l->n++;
    l->steady = is_steady(l, of_one_step);
    l->sure = is_sure(l);
    l->steady_floor = low;
    l->sure_floor = l->sure ? low_of(l, EBB__RECENT_SAMPLES / 4, EBB__RECENT_SAMPLES / 4) : 0;
}

/* A verdict does not outlive the rise that it speaks of, though its level's next sample be far. */
static void look_at_falls(ebb__recent *r, size_t level)
{
    for (int i = 0; i < EBB__RECENT_LEVELS; i++) {
        ebb__recent_level *l = &r->levels[i];
        l->steady = l->steady && level >= l->steady_floor;
        l->sure = l->sure && level > l->sure_floor;
    }
}

void ebb__recent_add(ebb__recent *r, size_t level)
{
    size_t low = level, high = level;
    look_at_falls(r, level);
    for (int i = 0; i < EBB__RECENT_LEVELS; i++) {
        ebb__recent_level *l = &r->levels[i];
        push(l, low, high, i == 0);
        if (l->n % 2) return;
        low = lower(low, l->low[at(l, 1)]);
        high = higher(high, l->high[at(l, 1)]);
    }
}

bool ebb__recent_steady(const ebb__recent *r)
{
    for (int i = 0; i < EBB__RECENT_LEVELS; i++)
        if (r->levels[i].steady) return true;
    return false;
}

bool ebb__recent_sure(const ebb__recent *r)
{
    for (int i = 0; i < EBB__RECENT_LEVELS; i++)
        if (r->levels[i].sure) return true;
    return false;
}
