/* autograd/saver.h: what the recorder and the slots ask of the savers (checkpoint), which stand
 * above them: declared here, defined in checkpoint/. */
#ifndef EBB_AUTOGRAD_SAVER_H
#define EBB_AUTOGRAD_SAVER_H

#include "autograd/node.h"

/* Before the call: room in the active segments, the policy's answer, the op recipe, packs. */
EBB_NODISCARD ebb_status ebb__saver_begin(ebb__recording *r, const ebb_call *call, ebb_tensor *const ins[]);
/* What the call makes now will be recomputed, not kept (as the policy said in begin). */
bool ebb__saver_recomputes_outputs(const ebb_context *ctx);
/* After the call, before the node's slots are saved: never fails. */
void ebb__saver_commit(ebb__recording *r, ebb_tensor *const ins[], ebb_tensor *const outs[]);
void ebb__saver_end(ebb__recording *r); /* after commit and saving, or instead: what was reserved and not used goes */
/* Every call's outputs, recorded or not: they are kept so wherever a node saves them. */
void ebb__saver_mark(const ebb_call *call, ebb_tensor *const outs[]);
/* Where the bytes of `t` can be made again; segment NULL: nowhere. */
ebb__promise ebb__saver_promise(const ebb_tensor *t);
/* The promise for output `out` of the call just committed. */
ebb__promise ebb__saver_output_promise(const ebb_context *ctx, int out);

/* Links the slot; retains.  storage: the bytes that are not kept; NULL: forward made none. */
void ebb__promise_take(ebb__slot *slot, ebb__promise promise, ebb_storage *storage);
void ebb__promise_drop(ebb__slot *slot);                        /* unlinks; releases */
EBB_NODISCARD ebb_status ebb__promise_fill(ebb__slot *slot);    /* PROMISED -> REFILLED */
bool ebb__promise_repeatable(const ebb__slot *slot);            /* what is refilled can be refilled again */
void ebb__saver_backward_end(ebb_context *ctx);

bool ebb__pack_take(ebb__slot *slot, ebb_storage *storage); /* -> PACKED; false: the storage is not to be packed */
EBB_NODISCARD ebb_status ebb__pack_open(ebb__slot *slot);   /* PACKED -> UNPACKED */
void ebb__pack_shut(ebb__slot *slot);                       /* UNPACKED -> PACKED */
void ebb__pack_drop(ebb__slot *slot);                       /* the slot needs it no more */

#endif
