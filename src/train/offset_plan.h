/* train/offset_plan.h: the offset plan of a training run, made from its own dry run. */
#ifndef EBB_TRAIN_OFFSET_PLAN_H
#define EBB_TRAIN_OFFSET_PLAN_H

#include "train/run.h"

enum { EBB__PLAN_EVENTS = 1 << 20 }; /* kept by the dry run's trace */

/* By memory.offset_plan, or offset_plan among the allocator's options. */
bool ebb__offset_plan_wanted(const ebb__run *run);
/* Where one is wanted: trains dry, packs what was asked for, and lets the run's new pool follow it. */
EBB_NODISCARD ebb_status ebb__offset_plan_follow(ebb__run *run, const char *device);

#endif
