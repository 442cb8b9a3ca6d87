/* property/estimate_check.h: a dry run against the run. */
#ifndef EBB_TESTS_ESTIMATE_CHECK_H
#define EBB_TESTS_ESTIMATE_CHECK_H

#include <ebb/train.h>

/* Runs both: peaks and their categories are equal to the byte, and so is the work.  `out_dir` may be
 * NULL; `what` is shown on failure. */
void check_estimate(const ebb_config *config, int threads, const char *out_dir, const char *what);
/* Configs first..first + n - 1. */
void check_drawn_estimates(uint64_t first, int n);

#endif
