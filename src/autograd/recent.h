/* autograd/recent.h: the latest steps of a figure, looked at in windows of 16, 32, 64, ... steps.
 *
 * Each level keeps the latest EBB__RECENT_SAMPLES samples of 2^level steps, so that a leak that begins at any
 * step is found by a window about as long as it needs, however long the run is.  Every level speaks only of
 * what is above the highest level of all steps before its window: what fills up again after it was emptied
 * is none, once it was full.  Two verdicts, by how much was seen:
 *   steady: in 16 samples nothing falls, each pair's lowest is above that of the pair before, and where a
 *           sample is one step, each rises, all by the same.  For what is counted: a step leaves so and so many.
 *   sure:   in 32 samples each four's lowest is above that of the four before, and the rise is far from what a
 *           figure that wanders comes to: (sum of the rises of the lows)^2 >= 24 * sum of their squares.  Of
 *           steps that go up or down by chance with the same likelihood one in 10^5 does (the bound is
 *           exp(-24 / 2)); a rise that is the same each time comes to 31. */
#ifndef EBB_AUTOGRAD_RECENT_H
#define EBB_AUTOGRAD_RECENT_H

#include <ebb/types.h>

enum { EBB__RECENT_SAMPLES = 32, EBB__RECENT_LEVELS = 40, EBB__RECENT_STEADY = 16 };

typedef struct ebb__recent_level {
    size_t low[EBB__RECENT_SAMPLES], high[EBB__RECENT_SAMPLES]; /* sample i at i % EBB__RECENT_SAMPLES */
    int64_t n;             /* samples so far */
    size_t before;         /* the highest level of those that are no longer kept */
    bool steady, sure;     /* when the latest sample was full, and nothing fell below the floor since */
    size_t steady_floor, sure_floor;
} ebb__recent_level;

/* Zeroed to begin. */
typedef struct ebb__recent { ebb__recent_level levels[EBB__RECENT_LEVELS]; } ebb__recent;

void ebb__recent_add(ebb__recent *recent, size_t level);
bool ebb__recent_steady(const ebb__recent *recent);
bool ebb__recent_sure(const ebb__recent *recent);

#endif
