/* ops/cuda/op_swiglu.cu: y = silu(gate) * up, elementwise, same shape. */
#include "ops/cuda/elementwise.h"
#include "ops/cuda/formulas.h"

/* forward: gate, up; gradient of up: dy, gate; of gate: dy, gate, up */
EBB__FORMULA(swiglu, 2, a *ebb__sigmoid(a) * b)
EBB__FORMULA(up_grad, 2, a *(b * ebb__sigmoid(b)))
EBB__FORMULA(gate_grad, 3, a *c *ebb__silu_slope(b))

static ebb_status forward(void *self, const ebb_call *call)
{
    return ebb__cuda_run_elementwise<swiglu>((ebb__cuda *)self,
                                             { &call->out[0], false, { &call->in[0], &call->in[1] }, 0 });
}

/* up first: gate's gradient may be written over dy. */
static ebb_status backward(void *self, const ebb_call *call)
{
    ebb__cuda *cuda = (ebb__cuda *)self;
    const ebb_arg *dy = &call->dout[0], *gate = &call->in[0], *up = &call->in[1];
    ebb_status st = EBB_OK;
    if (call->din[1].data)
        st = ebb__cuda_run_elementwise<up_grad>(cuda, { &call->din[1], call->accumulate[1], { dy, gate }, 0 });
    if (st == EBB_OK && call->din[0].data)
        st = ebb__cuda_run_elementwise<gate_grad>(cuda, { &call->din[0], call->accumulate[0], { dy, gate, up }, 0 });
    return st;
}

extern "C" const ebb__accel_op ebb_cuda_swiglu = { "swiglu", forward, backward };
