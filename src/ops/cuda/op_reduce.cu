/* ops/cuda/op_reduce.cu: sum and mean over some axes.  Backward spreads dy. */
#include "ops/cuda/reduce.h"

EBB__FORMULA(plain, 1, a)
EBB__FORMULA(scaled, 1, a *p)

/* `small` (out or dout) with the summed dims put back as 1; strides kept. */
static ebb_arg expanded(const ebb_call *call, const ebb_arg *small)
{
    const ebb__reduce_attrs *attrs = EBB_ATTRS(call, const ebb__reduce_attrs);
    ebb_arg wide = *small;
    wide.ndim = call->in[0].ndim;
    for (int d = 0, from = 0; d < wide.ndim; d++) {
        bool summed = attrs->mask >> d & 1u, present = !summed || attrs->keep_dims;
        wide.dims[d] = present ? small->dims[from] : 1;
        wide.strides[d] = present ? small->strides[from] : 1;
        from += present;
    }
    return wide;
}

/* How many elements make one sum. */
static double count(const ebb_call *call)
{
    double n = 1;
    for (int d = 0; d < call->in[0].ndim; d++)
        if (EBB_ATTRS(call, const ebb__reduce_attrs)->mask >> d & 1u) n *= (double)call->in[0].dims[d];
    return n;
}

static ebb_status forward(void *self, const ebb_call *call, double scale)
{
    ebb_arg out = expanded(call, &call->out[0]);
    return ebb__cuda_run_reduction<plain>((ebb__cuda *)self, call,
                                          { &call->in[0], &out, false, scale, { &call->in[0] } });
}

static ebb_status backward(void *self, const ebb_call *call, double scale)
{
    if (!call->din[0].data) return EBB_OK;
    ebb_arg dy = expanded(call, &call->dout[0]);
    return ebb__cuda_run_elementwise<scaled>((ebb__cuda *)self,
                                             { &call->din[0], call->accumulate[0], { &dy }, scale });
}

/* The mean of nothing is 0 * inf = NaN; its gradient has no elements. */
static ebb_status sum_forward(void *self, const ebb_call *call) { return forward(self, call, 1); }
static ebb_status sum_backward(void *self, const ebb_call *call) { return backward(self, call, 1); }
static ebb_status mean_forward(void *self, const ebb_call *call) { return forward(self, call, 1 / count(call)); }
static ebb_status mean_backward(void *self, const ebb_call *call) { return backward(self, call, 1 / count(call)); }

extern "C" const ebb__accel_op ebb_cuda_sum = { "sum", sum_forward, sum_backward };
extern "C" const ebb__accel_op ebb_cuda_mean = { "mean", mean_forward, mean_backward };
