/* ops/cuda/op_unary.cu: y = f(x), elementwise: scale neg exp tanh sigmoid relu silu gelu.
 * Formulas as in ops/op_unary.c, where those say why; backward reads y where f' can be had from it. */
#include "ops/cuda/elementwise.h"
#include "ops/cuda/formulas.h"

#include <ebb/ops.h>

/* Forward: a is x.  Backward: a is dy, b the saved x or y.  p: the attribute. */
EBB__FORMULA(scale, 1, a *p)
EBB__FORMULA(exponential, 1, ebb__exp(a))
EBB__FORMULA(exponential_grad, 2, a *b)
EBB__FORMULA(tangent, 1, ebb__tanh(a))
EBB__FORMULA(tangent_grad, 2, a *((C(1) - b) * (C(1) + b)))
EBB__FORMULA(sigmoid, 1, ebb__sigmoid(a))
EBB__FORMULA(sigmoid_grad, 2, a *(b * (C(1) - b)))
/* Comparisons are turned so that NaN goes through, and so that dy = inf gives no inf * 0. */
EBB__FORMULA(relu, 1, a <= C(0) ? C(0) : a)
EBB__FORMULA(relu_grad, 2, b <= C(0) ? C(0) : a)
EBB__FORMULA(silu, 1, a *ebb__sigmoid(a))
EBB__FORMULA(silu_grad, 2, a *ebb__silu_slope(b))
EBB__FORMULA(gelu_erf, 1, ebb__gelu_erf(a))
EBB__FORMULA(gelu_erf_grad, 2, a *ebb__gelu_erf_slope(b))
EBB__FORMULA(gelu_tanh, 1, ebb__gelu_tanh(a))
EBB__FORMULA(gelu_tanh_grad, 2, a *ebb__gelu_tanh_slope(b))

/* ---- running them ------------------------------------------------------------------------ */

template <class F>
static ebb_status forward(void *self, const ebb_call *call, double p)
{
    return ebb__cuda_run_elementwise<F>((ebb__cuda *)self, { &call->out[0], false, { &call->in[0] }, p });
}

/* saved: what the op's `needs` names, or NULL. */
template <class F>
static ebb_status backward(void *self, const ebb_call *call, const ebb_arg *saved, double p)
{
    if (!call->din[0].data) return EBB_OK;
    return ebb__cuda_run_elementwise<F>(
        (ebb__cuda *)self, { &call->din[0], call->accumulate[0], { &call->dout[0], saved }, p });
}

/* An op without attributes: <id>_forward, <id>_backward and the op's row. */
#define EBB__UNARY(id, formula, gradient, saved)                                         \
    static ebb_status id##_forward(void *self, const ebb_call *call)                     \
    {                                                                                    \
        return forward<formula>(self, call, 0);                                          \
    }                                                                                    \
    static ebb_status id##_backward(void *self, const ebb_call *call)                    \
    {                                                                                    \
        return backward<gradient>(self, call, saved, 0);                                 \
    }                                                                                    \
    extern "C" const ebb__accel_op ebb_cuda_##id = { #id, id##_forward, id##_backward };

EBB__UNARY(exp, exponential, exponential_grad, &call->out[0])
EBB__UNARY(tanh, tangent, tangent_grad, &call->out[0])
EBB__UNARY(sigmoid, sigmoid, sigmoid_grad, &call->out[0])
EBB__UNARY(relu, relu, relu_grad, &call->out[0])
EBB__UNARY(silu, silu, silu_grad, &call->in[0])

static ebb_status scale_forward(void *self, const ebb_call *call)
{
    return forward<scale>(self, call, EBB_ATTRS(call, const ebb__scale_attrs)->factor);
}

static ebb_status scale_backward(void *self, const ebb_call *call)
{
    return backward<scale>(self, call, NULL, EBB_ATTRS(call, const ebb__scale_attrs)->factor);
}

static ebb_status neg_forward(void *self, const ebb_call *call) { return forward<scale>(self, call, -1); }
static ebb_status neg_backward(void *self, const ebb_call *call) { return backward<scale>(self, call, NULL, -1); }

static bool is_erf(const ebb_call *call) { return EBB_ATTRS(call, const ebb__gelu_attrs)->kind == EBB_GELU_ERF; }

static ebb_status gelu_forward(void *self, const ebb_call *call)
{
    return is_erf(call) ? forward<gelu_erf>(self, call, 0) : forward<gelu_tanh>(self, call, 0);
}

static ebb_status gelu_backward(void *self, const ebb_call *call)
{
    const ebb_arg *x = &call->in[0];
    return is_erf(call) ? backward<gelu_erf_grad>(self, call, x, 0) : backward<gelu_tanh_grad>(self, call, x, 0);
}

extern "C" const ebb__accel_op ebb_cuda_scale = { "scale", scale_forward, scale_backward };
extern "C" const ebb__accel_op ebb_cuda_neg = { "neg", neg_forward, neg_backward };
extern "C" const ebb__accel_op ebb_cuda_gelu = { "gelu", gelu_forward, gelu_backward };
