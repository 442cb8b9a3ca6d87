/* ops/cuda/op_binary.cu: add sub mul div of tensors that broadcast as NumPy does.  The gradient of a
 * broadcast operand is summed to the operand's shape. */
#include "ops/cuda/reduce.h"

EBB__FORMULA(sum_of, 2, a + b *p) /* p: 1, or -1 for a difference */
EBB__FORMULA(product, 2, a *b)
EBB__FORMULA(quotient, 2, a / b)

/* Gradients on elements; p is their scale where they read dy alone. */
EBB__FORMULA(scaled, 1, a *p)
EBB__FORMULA(divisor_grad, 3, -(a / c) * (b / c)) /* dy, x, divisor: c * c could overflow */
/* The same under a sum, which is scaled itself. */
EBB__FORMULA(plain, 1, a)

template <class F>
static ebb_status forward(void *self, const ebb_call *call, double p)
{
    return ebb__cuda_run_elementwise<F>((ebb__cuda *)self, { &call->out[0], false, { &call->in[0], &call->in[1] }, p });
}

static ebb_status add_forward(void *self, const ebb_call *call) { return forward<sum_of>(self, call, 1); }
static ebb_status sub_forward(void *self, const ebb_call *call) { return forward<sum_of>(self, call, -1); }
static ebb_status mul_forward(void *self, const ebb_call *call) { return forward<product>(self, call, 0); }
static ebb_status div_forward(void *self, const ebb_call *call) { return forward<quotient>(self, call, 0); }

/* Operand i's gradient, scale * f(dy, ...).  Elementwise: f where shapes agree but for dims of 1 in front;
 * Summed: f under a sum. */
template <class Elementwise, class Summed>
static ebb_status gradient(void *self, const ebb_call *call, int i, double scale, const ebb_arg *second,
                           const ebb_arg *third)
{
    ebb__cuda *cuda = (ebb__cuda *)self;
    const ebb_arg *dx = &call->din[i], *dy = &call->dout[0];
    if (!dx->data) return EBB_OK;
    if (dx->elems != dy->elems)
        return ebb__cuda_run_reduction<Summed>(cuda, call,
                                               { dy, dx, call->accumulate[i], scale, { dy, second, third } });
    ebb_arg flat = *dy; /* dx, contiguous, with dy's shape, so that both walk alike */
    flat.data = dx->data;
    for (int64_t d = flat.ndim - 1, span = 1; d >= 0; span *= flat.dims[d--]) flat.strides[d] = span;
    return ebb__cuda_run_elementwise<Elementwise>(cuda, { &flat, call->accumulate[i], { dy, second, third }, scale });
}

static ebb_status linear_backward(void *self, const ebb_call *call, double sign_of_1)
{
    ebb_status st = gradient<scaled, plain>(self, call, 1, sign_of_1, NULL, NULL);
    return st == EBB_OK ? gradient<scaled, plain>(self, call, 0, 1, NULL, NULL) : st;
}

static ebb_status add_backward(void *self, const ebb_call *call) { return linear_backward(self, call, 1); }
static ebb_status sub_backward(void *self, const ebb_call *call) { return linear_backward(self, call, -1); }

static ebb_status mul_backward(void *self, const ebb_call *call)
{
    ebb_status st = gradient<product, product>(self, call, 1, 1, &call->in[0], NULL);
    return st == EBB_OK ? gradient<product, product>(self, call, 0, 1, &call->in[1], NULL) : st;
}

static ebb_status div_backward(void *self, const ebb_call *call)
{
    ebb_status st = gradient<divisor_grad, divisor_grad>(self, call, 1, 1, &call->in[0], &call->in[1]);
    return st == EBB_OK ? gradient<quotient, quotient>(self, call, 0, 1, &call->in[1], NULL) : st;
}

extern "C" const ebb__accel_op ebb_cuda_add = { "add", add_forward, add_backward };
extern "C" const ebb__accel_op ebb_cuda_sub = { "sub", sub_forward, sub_backward };
extern "C" const ebb__accel_op ebb_cuda_mul = { "mul", mul_forward, mul_backward };
extern "C" const ebb__accel_op ebb_cuda_div = { "div", div_forward, div_backward };
