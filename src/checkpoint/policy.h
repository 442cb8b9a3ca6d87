/* checkpoint/policy.h: which saver. */
#ifndef EBB_CHECKPOINT_POLICY_H
#define EBB_CHECKPOINT_POLICY_H

#include "checkpoint/segment.h"

/* Sets segment->saver for the call.  Errors: EINVAL (an answer that is none). */
EBB_NODISCARD ebb_status ebb__segment_ask(ebb__segment *segment, const ebb_call *call);
/* Packs for the storages that this call makes a node or segment hold.  Errors: ENOMEM. */
EBB_NODISCARD ebb_status ebb__policy_reserve(ebb__recording *r, const ebb_call *call, ebb_tensor *const ins[]);
void ebb__policy_attach(ebb__recording *r, ebb_tensor *const outs[]);
/* Nodes to come keep the bytes of `t` as they are, unless one has packed them already. */
void ebb__keep_unpacked(ebb_tensor *t);
/* Errors: EINVAL (`what`: no op "...", and the nearest). */
EBB_NODISCARD ebb_status ebb__op_find_named(const ebb_op **out, const char *name, const char *what);

#endif
