/* A small traced training run for the tests of reports. */
#ifndef EBB_TESTS_TRACE_RIG_H
#define EBB_TESTS_TRACE_RIG_H

#include <ebb/ebb.h>

/* A two-layer mlp on synthetic data.  Owner: the caller. */
ebb_config *rig_config(void);
/* Traces steps [first, steps] on `device`. */
ebb_status rig_trace(ebb_trace **out, const ebb_config *config, const char *device, int64_t first,
                     int64_t steps, size_t max_events);

#endif
