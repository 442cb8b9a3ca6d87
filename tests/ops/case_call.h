/* ops/case_call.h: a call made by hand from an op's case, and run without the dispatcher.
 * Kernels see exactly what the contract promises: contiguous inputs unless the op reads strides,
 * NULL for what `needs` does not name, garbage in gradients that are not accumulated, workspace of
 * the asked size with a guard behind it. */
#ifndef EBB_TESTS_OPS_CASE_CALL_H
#define EBB_TESTS_OPS_CASE_CALL_H

#include <ebb/op.h>

typedef struct case_buffer {
    void *base;  /* malloc */
    ebb_arg arg; /* data points into base */
} case_buffer;

typedef struct case_call {
    ebb_call call;
    const ebb_op_case *c;
    case_buffer in[EBB_MAX_IN], out[EBB_MAX_OUT], dout[EBB_MAX_OUT];
} case_call;

/* Makes the inputs (the same values for each dtype, but for rounding) and runs infer(); returns what
 * infer() says. */
ebb_status case_make(case_call *t, const ebb_op *op, const ebb_op_case *c, ebb_dtype dtype,
                     ebb_context *ctx);
/* Runs forward into t->out, which it makes. */
void case_forward(case_call *t);
/* Makes dL/dout for each output that has a gradient. */
void case_make_douts(case_call *t);
/* Whether input i can be asked for its gradient. */
bool case_has_gradient(const case_call *t, int i);
/* The gradient of input i, contiguous.  accumulate: added onto `start` (elems values). */
case_buffer case_backward(case_call *t, int i, bool accumulate, double start);
/* sum(dout * out) over all outputs, forward run anew. */
double case_loss(case_call *t);
void case_free(case_call *t);
void case_buffer_free(case_buffer *b);

/* Element i in row-major order. */
double case_get(const ebb_arg *arg, int64_t i);
void case_set(const ebb_arg *arg, int64_t i, double value);

/* Runs the forward kernel with out[0] over a copy of in[0]; false: not a case for it. */
bool case_forward_in_place(case_call *t, case_buffer *result);
/* Gradient of input 0 written over a copy of dout[0]; false: not a case for it. */
bool case_backward_over_dout(case_call *t, case_buffer *result);

#endif
