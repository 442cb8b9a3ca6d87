/* ops/reduce.h: sums of an elementwise formula over some dims; the sum op and the gradients of
 * broadcast operands are both this.  Sums are f64, in an order that depends only on the shape and
 * the thread count. */
#ifndef EBB_OPS_REDUCE_H
#define EBB_OPS_REDUCE_H

#include "ops/walk.h"

typedef struct ebb__reduction {
    const ebb_arg *space; /* gives the shape that is summed over */
    ebb_arg out;          /* contiguous; has space's ndim or less, and 1 in each summed dim */
    bool accumulate;
    double scale; /* out (+)= scale * sum */
    int n_in;     /* 1 to 3, broadcast to `space` */
    const ebb_arg *in[EBB__WALK_OPERANDS - 1];
    ebb__lanes_fn *f32, *f64; /* NULL: the elements of in[0] themselves */
    const void *params;
} ebb__reduction;

void ebb__run_reduction(const ebb_call *call, const ebb__reduction *job);
/* The scratch that ebb__run_reduction() wants for these shapes, in bytes. */
size_t ebb__reduction_workspace(const ebb_arg *out, const ebb_arg *space, int threads);

#endif
