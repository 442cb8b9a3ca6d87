/* train/planner.h: what any plan costs. */
#ifndef EBB_TRAIN_PLANNER_H
#define EBB_TRAIN_PLANNER_H

#include "checkpoint/plan.h"
#include "train/config.h"

/* Fills plan->info from a dry run of `config` under it; the overhead is over keeping everything. */
EBB_NODISCARD ebb_status ebb__plan_predict(ebb_plan *plan, const ebb_config *config, const ebb_train_options *options);

#endif
