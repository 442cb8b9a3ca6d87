/* ops/record.h: what dispatch tells the recorder (autograd), which stands above it: declared here,
 * defined in autograd/record.c.  begin -> (kernel) -> commit, or abort where something failed. */
#ifndef EBB_OPS_RECORD_H
#define EBB_OPS_RECORD_H

#include "tensor/tensor.h"

struct ebb__record;

typedef struct ebb__recording {
    ebb_node *node;              /* NULL: nothing to differentiate */
    struct ebb__record *record;  /* the replayable call; NULL: nobody needs it */
    struct ebb__segment *recipe; /* op recipe of out 0; NULL: none */
    struct ebb__pack *packs[EBB_MAX_IN + EBB_MAX_OUT]; /* for what this call makes a node hold; NULL: none */
    bool in_segment;
    unsigned keep_out;           /* EBB_OUT mask of auxiliary outputs whose bytes will be kept */
} ebb__recording;

/* Everything that can fail.  `call` is inferred; no data is needed. */
EBB_NODISCARD ebb_status ebb__record_begin(ebb__recording *r, const ebb_call *call, ebb_tensor *const ins[]);
/* Never fails.  outs: all n_out tensors, auxiliary ones included (NULL where not allocated). */
void ebb__record_commit(ebb__recording *r, const ebb_call *call, ebb_tensor *const ins[], ebb_tensor *const outs[]);
void ebb__record_abort(ebb__recording *r);

/* Runs a kernel of `call` with its workspace (allocated and released here); counts its FLOPs.
 * Defined in dispatch.c; backward and recompute call it too. */
EBB_NODISCARD ebb_status ebb__run_kernel(ebb_call *call, int pass, const ebb__owner *owner, double *flops);
/* Like an op call, but nothing is recorded: for gradients. */
EBB_NODISCARD ebb_status ebb__contiguous_now(ebb_tensor **t, const ebb__owner *owner);

#endif
