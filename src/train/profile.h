/* train/profile.h: what each block of a config's model costs, from dry steps: time forward, time recomputed,
 * bytes kept under each choice of ops to recompute, on the device or in host memory, and transient bytes. */
#ifndef EBB_TRAIN_PROFILE_H
#define EBB_TRAIN_PROFILE_H

#include "checkpoint/chain.h"
#include "checkpoint/plan.h"
#include "train/rates.h"
#include "train/run.h"

typedef struct ebb__profile {
    ebb__chain chain;           /* stage 0 enters, stage i is block i - 1, the last one leaves */
    uint32_t (*ops)[EBB__MAX_CHOICES]; /* per stage and choice: the mask over plan's names */
    ebb_plan *plan;             /* no segments, no recipes, nothing offloaded, but the names */
    size_t base_bytes;          /* what a step holds anyway while it runs forward */
} ebb__profile;

/* Runs dry steps of `config` (whose own checkpointing is not looked at).  On errors too,
 * ebb__profile_deinit() must follow. */
EBB_NODISCARD ebb_status ebb__profile_init(ebb__profile *out, const ebb_config *config,
                                           const ebb_train_options *options, const char *device,
                                           const ebb__rates *rates);
void ebb__profile_deinit(ebb__profile *profile);

/* A config that runs under `plan`, which must outlive it, without limits. */
ebb_config ebb__config_under(const ebb_config *config, const ebb_plan *plan);

#endif
