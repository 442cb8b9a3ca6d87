/* checkpoint/plan_file.h: plans as JSON that a person can read and edit. */
#ifndef EBB_CHECKPOINT_PLAN_FILE_H
#define EBB_CHECKPOINT_PLAN_FILE_H

#include "checkpoint/plan.h"

/* A plan for `blocks` blocks and the config of that hash.  Every message begins with the
 * file's path.  Errors: EIO, EFORMAT (with the JSON path in it), EINVAL (a key that is unknown, missing or of the wrong
 * type; a plan for another config; segments that do not nest). */
EBB_NODISCARD ebb_status ebb__plan_load(ebb_plan **out, const char *path, int blocks, const char *sha256);

#endif
