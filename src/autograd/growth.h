/* autograd/growth.h: does a figure that is told once a step go on growing?
 *
 * The steps so far are cut into EBB__GROWTH_WINDOWS windows of the same length.  Growth is found where the
 * lowest level of each window in the second half is above that of the window before, and the lowest of the
 * last quarter is above the highest of the second quarter; in the first EBB__GROWTH_SAMPLES steps, where all
 * quarters rise by about the same, too.  From then on it goes on as long as the highest
 * level of the last quarter is above that of the third.  So what is made once, or now and then, is none;
 * what fills up and then stays (a list of the last ten losses) is none from a third more steps on; what
 * comes and goes is none.  One leak in k steps is found after 12 k steps at the latest.
 *
 * That is one look, at the whole run: it is late where a leak begins late, and a figure that wanders can look
 * like growth for a while.  So verdicts need two things more: recent windows (recent.h), and evidence that the
 * figure does not wander.  Of a count, rises that are the same each time are enough; of a size they are not. */
#ifndef EBB_AUTOGRAD_GROWTH_H
#define EBB_AUTOGRAD_GROWTH_H

#include <ebb/types.h>

#include "autograd/recent.h"

enum { EBB__GROWTH_WINDOWS = 8, EBB__GROWTH_SAMPLES = 128 };

/* Zeroed to begin.  Invariant: all samples but the last are of steps_each steps.  When there is no room
 * two become one, so a run of any length takes the same memory, and a window's edges are right within a
 * sixty-fourth of the run. */
typedef struct ebb__growth {
    size_t low[EBB__GROWTH_SAMPLES], high[EBB__GROWTH_SAMPLES]; /* the lowest and highest level in each sample */
    int n;              /* samples, with the one that is being filled */
    int64_t steps_each; /* 0 before the first */
    int64_t in_last;    /* steps in the last sample */
    bool goes_on;
    ebb__recent recent;
} ebb__growth;

void ebb__growth_add(ebb__growth *g, size_t level);
/* At the step that was added last.  False with fewer than EBB_LEAK_STEPS (ebb/leak.h) steps, too. */
bool ebb__growth_goes_on(const ebb__growth *g);
/* The verdicts (what each promises: ebb/leak.h). */
bool ebb__growth_of_count(const ebb__growth *g);
bool ebb__growth_of_size(const ebb__growth *g);

#endif
