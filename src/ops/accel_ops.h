/* ops/accel_ops.h: an op's kernels on an accelerator, which are in its plugin. */
#ifndef EBB_OPS_ACCEL_OPS_H
#define EBB_OPS_ACCEL_OPS_H

#include "tensor/context.h"

/* Runs the plugin's kernel for a pass of the call; nothing on a dry accelerator.
 * Errors: EUNSUPPORTED (the plugin has none), ENOMEM, the kernel's, with scope, op, pass, node and line of `owner`
 * before it: "blocks.3: gelu backward #17 (model.c:40): cuda:0: ...". */
EBB_NODISCARD ebb_status ebb__accel_run(const ebb_call *call, int pass, const ebb__owner *owner);
/* Bytes of scratch that it wants, the same on a dry accelerator.
 * Errors: EUNSUPPORTED, on a dry one where the op is not of ebb's own. */
EBB_NODISCARD ebb_status ebb__accel_workspace(size_t *bytes, const ebb_call *call, int pass);

#endif
