/* property/planner_check.h: what must hold between the frontier, budgets and uniform segments of one config. */
#ifndef EBB_TESTS_PLANNER_CHECK_H
#define EBB_TESTS_PLANNER_CHECK_H

#include <ebb/plan.h>

/* At budgets of all that is known to fit (points of the frontier, every:K for all K), and of a byte less: the plan fits,
 * is not slower than anything known that fits, nor than that of a smaller budget; where nothing is found nothing known
 * fits.  `name` starts messages. */
void planner_check(const char *name, const ebb_config *config, int threads, bool allocated);

#endif
