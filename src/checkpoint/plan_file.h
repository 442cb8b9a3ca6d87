/* checkpoint/plan_file.h: plans as JSON that a person can read and edit. */
#ifndef EBB_CHECKPOINT_PLAN_FILE_H
#define EBB_CHECKPOINT_PLAN_FILE_H

#include "checkpoint/plan.h"

/* A plan for `blocks` blocks and the config of that hash.  Errors: EIO, EFORMAT (the file's path, and the
 * JSON path in it), EINVAL (a plan for another config; segments that do not nest). */
EBB_NODISCARD ebb_status ebb__plan_load(ebb_plan **out, const char *path, int blocks, const char *sha256);

#endif
