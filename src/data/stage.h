/* data/stage.h: a batch on its way to a device whose memory host code cannot touch: pinned host memory that
 * a worker fills, and the copy of it.
 *   free -> filled by a worker -> sent -> joined by the computation -> free again
 * Thread: all but inputs() and targets() are the compute thread's. */
#ifndef EBB_DATA_STAGE_H
#define EBB_DATA_STAGE_H

#include "tensor/tensor.h"

typedef struct ebb__stage {
    void *memory;       /* inputs, then targets; NULL: workers write to the tensors themselves */
    size_t input_bytes; /* rounded up to what targets are aligned to */
    size_t bytes;
    bool sent;
    uint64_t ticket;    /* of the copies, once sent */
    ebb__piece pieces[2];
} ebb__stage;

/* Errors: ENOMEM. */
EBB_NODISCARD ebb_status ebb__stage_open(ebb__stage *stage, const ebb_context *ctx, const ebb_tensor *inputs,
                                         const ebb_tensor *targets);
void ebb__stage_close(ebb__stage *stage, const ebb_context *ctx, ebb__stream *copies);

/* Where a worker writes. */
void *ebb__stage_inputs(const ebb__stage *stage, const ebb_tensor *inputs);
void *ebb__stage_targets(const ebb__stage *stage, const ebb_tensor *targets);

/* Starts the copies, after what is computed so far: that may still read the batch before.  Once until
 * reuse(). */
void ebb__stage_send(ebb__stage *stage, const ebb_tensor *inputs, const ebb_tensor *targets, ebb__stream *copies);
void ebb__stage_join(const ebb__stage *stage, ebb__stream *copies); /* the computation goes on after them */
void ebb__stage_reuse(ebb__stage *stage, ebb__stream *copies);      /* waits: workers may write again */

#endif
