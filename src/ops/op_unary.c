/* ops/op_unary.c: y = f(x), elementwise: scale neg exp tanh sigmoid relu silu gelu.
 * Halves are computed in f32.  Where f' can be had from y, backward reads y: what follows usually
 * keeps y anyway, and x need not live. */
#include "ops/attrs.h"
#include "ops/kernels.h"
#include "ops/table.h"
#include "ops/vmath.h"
#include "ops/walk.h"
#include <ebb/ops.h>

/* ---- formulas ---------------------------------------------------------------------------- */

static inline float silu_f32(float x) { return x * ebb__sigmoidf(x); }
static inline double silu_f64(double x) { return x * ebb__sigmoid(x); }
/* s + x s (1 - s), s = sigmoid(x) */
static inline float silu_slope_f32(float x)
{
    float s = ebb__sigmoidf(x);
    return s * (1.0f + x * (1.0f - s));
}
static inline double silu_slope_f64(double x)
{
    double s = ebb__sigmoid(x);
    return s * (1.0 + x * (1.0 - s));
}

#define SQRT_HALF   0.70710678118654752440   /* sqrt(1/2) */
#define NORMAL_PEAK 0.39894228040143267794   /* 1 / sqrt(2 pi) */
#define GELU_A 0.79788456080286535588        /* sqrt(2 / pi) */
#define GELU_B 0.044715

/* x Phi(x); its slope is Phi(x) + x phi(x) */
static inline float gelu_erf_f32(float x)
{
    return 0.5f * x * (1.0f + ebb__erff(x * (float)SQRT_HALF));
}
static inline double gelu_erf_f64(double x) { return 0.5 * x * (1.0 + ebb__erf(x * SQRT_HALF)); }
static inline float gelu_erf_slope_f32(float x)
{
    float cdf = 0.5f * (1.0f + ebb__erff(x * (float)SQRT_HALF));
    return cdf + x * (float)NORMAL_PEAK * ebb__expf(-0.5f * x * x);
}
static inline double gelu_erf_slope_f64(double x)
{
    double cdf = 0.5 * (1.0 + ebb__erf(x * SQRT_HALF));
    return cdf + x * NORMAL_PEAK * ebb__exp(-0.5 * x * x);
}

/* 0.5 x (1 + t), t = tanh(a (x + b x^3)); slope 0.5 (1 + t) + 0.5 x (1 - t^2) a (1 + 3 b x^2) */
static inline float gelu_tanh_f32(float x)
{
    float t = ebb__tanhf((float)GELU_A * (x + (float)GELU_B * x * x * x));
    return 0.5f * x * (1.0f + t);
}
static inline double gelu_tanh_f64(double x)
{
    double t = ebb__tanh(GELU_A * (x + GELU_B * x * x * x));
    return 0.5 * x * (1.0 + t);
}
static inline float gelu_tanh_slope_f32(float x)
{
    /* Beyond 16 1 - t^2 is 0, but x^2 could overflow. */
    float c = x > 16.0f ? 16.0f : (x < -16.0f ? -16.0f : x);
    float t = ebb__tanhf((float)GELU_A * (c + (float)GELU_B * c * c * c));
    float rise = (float)GELU_A * (1.0f + 3.0f * (float)GELU_B * c * c);
    return 0.5f * (1.0f + t) + 0.5f * c * (1.0f - t) * (1.0f + t) * rise;
}
static inline double gelu_tanh_slope_f64(double x)
{
    double c = x > 16.0 ? 16.0 : (x < -16.0 ? -16.0 : x);
    double t = ebb__tanh(GELU_A * (c + GELU_B * c * c * c));
    double rise = GELU_A * (1.0 + 3.0 * GELU_B * c * c);
    return 0.5 * (1.0 + t) + 0.5 * c * (1.0 - t) * (1.0 + t) * rise;
}

/* Forward: a is x.  Backward: a is dy, b the saved x or y.  p: the attribute. */
EBB__LANES_FN_1(scale_lanes_f32, float, a * p)
EBB__LANES_FN_1(scale_lanes_f64, double, a * p)
EBB__LANES_FN_1(neg_lanes_f32, float, -a)
EBB__LANES_FN_1(neg_lanes_f64, double, -a)
EBB__LANES_FN_1(exp_lanes_f32, float, ebb__expf(a))
EBB__LANES_FN_1(exp_lanes_f64, double, ebb__exp(a))
EBB__LANES_FN_2(exp_grad_f32, float, a * b)
EBB__LANES_FN_2(exp_grad_f64, double, a * b)
EBB__LANES_FN_1(tanh_lanes_f32, float, ebb__tanhf(a))
EBB__LANES_FN_1(tanh_lanes_f64, double, ebb__tanh(a))
EBB__LANES_FN_2(tanh_grad_f32, float, a * ((1.0f - b) * (1.0f + b)))
EBB__LANES_FN_2(tanh_grad_f64, double, a * ((1.0 - b) * (1.0 + b)))
EBB__LANES_FN_1(sigmoid_lanes_f32, float, ebb__sigmoidf(a))
EBB__LANES_FN_1(sigmoid_lanes_f64, double, ebb__sigmoid(a))
EBB__LANES_FN_2(sigmoid_grad_f32, float, a * (b * (1.0f - b)))
EBB__LANES_FN_2(sigmoid_grad_f64, double, a * (b * (1.0 - b)))
/* Comparisons are turned so that NaN goes through, and so that dy = inf gives no inf * 0. */
EBB__LANES_FN_1(relu_lanes_f32, float, a <= 0.0f ? 0.0f : a)
EBB__LANES_FN_1(relu_lanes_f64, double, a <= 0.0 ? 0.0 : a)
EBB__LANES_FN_2(relu_grad_f32, float, b <= 0.0f ? 0.0f : a)
EBB__LANES_FN_2(relu_grad_f64, double, b <= 0.0 ? 0.0 : a)
EBB__LANES_FN_1(silu_lanes_f32, float, silu_f32(a))
EBB__LANES_FN_1(silu_lanes_f64, double, silu_f64(a))
EBB__LANES_FN_2(silu_grad_f32, float, a * silu_slope_f32(b))
EBB__LANES_FN_2(silu_grad_f64, double, a * silu_slope_f64(b))
EBB__LANES_FN_1(gelu_erf_lanes_f32, float, gelu_erf_f32(a))
EBB__LANES_FN_1(gelu_erf_lanes_f64, double, gelu_erf_f64(a))
EBB__LANES_FN_2(gelu_erf_grad_f32, float, a * gelu_erf_slope_f32(b))
EBB__LANES_FN_2(gelu_erf_grad_f64, double, a * gelu_erf_slope_f64(b))
EBB__LANES_FN_1(gelu_tanh_lanes_f32, float, gelu_tanh_f32(a))
EBB__LANES_FN_1(gelu_tanh_lanes_f64, double, gelu_tanh_f64(a))
EBB__LANES_FN_2(gelu_tanh_grad_f32, float, a * gelu_tanh_slope_f32(b))
EBB__LANES_FN_2(gelu_tanh_grad_f64, double, a * gelu_tanh_slope_f64(b))

/* ---- running them ------------------------------------------------------------------------ */

static ebb_status infer(ebb_call *call)
{
    ebb_status st = ebb__require_float(call);
    return st == EBB_OK ? ebb__infer_like_first(call) : st;
}

/* The formulas' p is the op's attribute where it is a double; no other formula uses p. */
static ebb_status forward(const ebb_call *call, ebb__lanes_fn *f32, ebb__lanes_fn *f64)
{
    ebb__elementwise job = { .out = &call->out[0], .n_in = 1, .in = { &call->in[0] },
                             .f32 = f32, .f64 = f64, .params = call->attrs };
    ebb__run_elementwise(call, &job);
    return EBB_OK;
}

/* saved: what `needs` names, or NULL. */
static ebb_status backward(const ebb_call *call, const ebb_arg *saved, ebb__lanes_fn *f32,
                           ebb__lanes_fn *f64)
{
    if (!call->din[0].data) return EBB_OK;
    ebb__elementwise job = { .out = &call->din[0], .accumulate = call->accumulate[0],
                             .n_in = saved ? 2 : 1, .in = { &call->dout[0], saved },
                             .f32 = f32, .f64 = f64, .params = call->attrs };
    ebb__run_elementwise(call, &job);
    return EBB_OK;
}

/* <name>_forward and <name>_backward from the formulas; the gradient reads *saved. */
#define KERNELS(name, gradient, saved)                                                             \
    static ebb_status name##_forward(const ebb_call *call)                                         \
    {                                                                                              \
        return forward(call, name##_lanes_f32, name##_lanes_f64);                                  \
    }                                                                                              \
    static ebb_status name##_backward(const ebb_call *call)                                        \
    {                                                                                              \
        return backward(call, saved, gradient##_f32, gradient##_f64);                              \
    }
KERNELS(scale, scale_lanes, NULL)
KERNELS(neg, neg_lanes, NULL)
KERNELS(exp, exp_grad, &call->out[0])
KERNELS(tanh, tanh_grad, &call->out[0])
KERNELS(sigmoid, sigmoid_grad, &call->out[0])
KERNELS(relu, relu_grad, &call->out[0])
KERNELS(silu, silu_grad, &call->in[0])
KERNELS(gelu_erf, gelu_erf_grad, &call->in[0])
KERNELS(gelu_tanh, gelu_tanh_grad, &call->in[0])

static bool is_erf(const ebb_call *call)
{
    return ((const ebb__gelu_attrs *)(const void *)call->attrs)->kind == EBB_GELU_ERF;
}

static ebb_status gelu_infer(ebb_call *call)
{
    int kind = EBB_ATTRS(call, ebb__gelu_attrs)->kind;
    if (kind != EBB_GELU_ERF && kind != EBB_GELU_TANH) {
        return ebb_fail(EBB_EINVAL, "gelu: kind %d; allowed are EBB_GELU_ERF and EBB_GELU_TANH",
                        kind);
    }
    return infer(call);
}

static ebb_status gelu_forward(const ebb_call *call)
{
    return is_erf(call) ? gelu_erf_forward(call) : gelu_tanh_forward(call);
}

static ebb_status gelu_backward(const ebb_call *call)
{
    return is_erf(call) ? gelu_erf_backward(call) : gelu_tanh_backward(call);
}

/* FLOPs per element, forward and backward; a transcendental counts as its polynomial. */
#define COST(name, fwd, bwd)                                                                       \
    static void name(const ebb_call *call, ebb_cost *cost)                                         \
    {                                                                                              \
        ebb__cost_elementwise(call, cost, fwd, bwd);                                               \
    }
COST(cost_simple, 1, 1)
COST(cost_exp, 16, 1)
COST(cost_tanh, 20, 4)
COST(cost_sigmoid, 18, 3)
COST(cost_silu, 19, 23)
COST(cost_gelu, 28, 38)

/* ---- cases ------------------------------------------------------------------------------- */

/* Every unary op is tried on these shapes; `kind` differs. */
#define SHAPES(kind_, attrs_)                                                                      \
    { "a vector of 17", 1, { { 1, { 17 }, kind_, 0, false, false } }, attrs_, EBB_OK },            \
    { "a scalar", 1, { { 0, { 0 }, kind_, 0, false, false } }, attrs_, EBB_OK },                   \
    { "one element", 1, { { 2, { 1, 1 }, kind_, 0, false, false } }, attrs_, EBB_OK },             \
    { "no elements", 1, { { 3, { 2, 0, 3 }, kind_, 0, false, false } }, attrs_, EBB_OK },          \
    { "rows of 33", 1, { { 2, { 5, 33 }, kind_, 0, false, false } }, attrs_, EBB_OK },             \
    { "a strided view", 1, { { 3, { 3, 4, 5 }, kind_, 0, true, false } }, attrs_, EBB_OK },        \
    { "six dims", 1, { { 6, { 2, 1, 3, 2, 1, 2 }, kind_, 0, false, false } }, attrs_, EBB_OK },    \
    { "indices are refused", 1, { { 1, { 3 }, EBB_CASE_INDEX, 5, false, false } },                 \
      attrs_, EBB_EDTYPE }
#define NO_ATTRS NULL, 0

static const ebb_op_case smooth_cases[] = {SHAPES(EBB_CASE_NORMAL, NO_ATTRS)};
static const ebb_op_case kink_cases[] = {SHAPES(EBB_CASE_AWAY, NO_ATTRS)};

static const ebb__scale_attrs factor = {-1.75}, zero_factor = {0.0};
#define FACTOR &factor, sizeof factor
static const ebb_op_case scale_cases[] = {
    SHAPES(EBB_CASE_NORMAL, FACTOR),
    { "factor 0", 1, { { 1, { 5 }, EBB_CASE_NORMAL, 0, false, false } },
      &zero_factor, sizeof zero_factor, EBB_OK },
};

static const ebb__gelu_attrs by_erf = {EBB_GELU_ERF}, by_tanh = {EBB_GELU_TANH}, by_none = {7};
#define BY_ERF &by_erf, sizeof by_erf
#define BY_TANH &by_tanh, sizeof by_tanh
static const ebb_op_case gelu_cases[] = {
    SHAPES(EBB_CASE_NORMAL, BY_ERF),
    SHAPES(EBB_CASE_NORMAL, BY_TANH),
    { "unknown kind", 1, { { 1, { 3 }, EBB_CASE_NORMAL, 0, false, false } },
      &by_none, sizeof by_none, EBB_EINVAL },
};

/* ---- descriptors ------------------------------------------------------------------------- */

#define COUNT(table) ((int)(sizeof(table) / sizeof(table)[0]))
#define ELEMENTWISE (EBB_OP_INPLACE_OK | EBB_OP_GRAD_OVER_DOUT | EBB_OP_CHEAP | EBB_OP_STRIDED)

const ebb_op ebb_op_scale = {
    .name = "scale", .min_in = 1, .max_in = 1, .n_out = 1, .flags = ELEMENTWISE,
    .infer = infer, .cost = cost_simple, .cpu = {scale_forward, scale_backward, NULL},
    .cases = scale_cases, .n_cases = COUNT(scale_cases),
};
const ebb_op ebb_op_neg = {
    .name = "neg", .min_in = 1, .max_in = 1, .n_out = 1, .flags = ELEMENTWISE,
    .infer = infer, .cost = cost_simple, .cpu = {neg_forward, neg_backward, NULL},
    .cases = smooth_cases, .n_cases = COUNT(smooth_cases),
};
const ebb_op ebb_op_exp = {
    .name = "exp", .min_in = 1, .max_in = 1, .n_out = 1, .flags = ELEMENTWISE,
    .needs = { EBB_OUT(0) },
    .infer = infer, .cost = cost_exp, .cpu = {exp_forward, exp_backward, NULL},
    .cases = smooth_cases, .n_cases = COUNT(smooth_cases),
    .autocast = EBB_AUTOCAST_F32,
};
const ebb_op ebb_op_tanh = {
    .name = "tanh", .min_in = 1, .max_in = 1, .n_out = 1, .flags = ELEMENTWISE,
    .needs = { EBB_OUT(0) },
    .infer = infer, .cost = cost_tanh, .cpu = {tanh_forward, tanh_backward, NULL},
    .cases = smooth_cases, .n_cases = COUNT(smooth_cases),
};
const ebb_op ebb_op_sigmoid = {
    .name = "sigmoid", .min_in = 1, .max_in = 1, .n_out = 1, .flags = ELEMENTWISE,
    .needs = { EBB_OUT(0) },
    .infer = infer, .cost = cost_sigmoid, .cpu = {sigmoid_forward, sigmoid_backward, NULL},
    .cases = smooth_cases, .n_cases = COUNT(smooth_cases),
};
const ebb_op ebb_op_relu = {
    .name = "relu", .min_in = 1, .max_in = 1, .n_out = 1, .flags = ELEMENTWISE,
    .needs = { EBB_OUT(0) },
    .infer = infer, .cost = cost_simple, .cpu = {relu_forward, relu_backward, NULL},
    .cases = kink_cases, .n_cases = COUNT(kink_cases),
};
const ebb_op ebb_op_silu = {
    .name = "silu", .min_in = 1, .max_in = 1, .n_out = 1, .flags = ELEMENTWISE,
    .needs = { EBB_IN(0) },
    .infer = infer, .cost = cost_silu, .cpu = {silu_forward, silu_backward, NULL},
    .cases = smooth_cases, .n_cases = COUNT(smooth_cases),
};
const ebb_op ebb_op_gelu = {
    .name = "gelu", .min_in = 1, .max_in = 1, .n_out = 1, .flags = ELEMENTWISE,
    .needs = { EBB_IN(0) },
    .infer = gelu_infer, .cost = cost_gelu, .cpu = {gelu_forward, gelu_backward, NULL},
    .cases = gelu_cases, .n_cases = COUNT(gelu_cases),
};

/* ---- verbs ------------------------------------------------------------------------------- */

ebb_status ebb_scale(ebb_tensor **out, ebb_tensor *x, double scale)
{
    ebb__scale_attrs attrs = { scale };
    return ebb__apply_one(&ebb_op_scale, out, &x, 1, &attrs, sizeof attrs);
}
ebb_status ebb_gelu(ebb_tensor **out, ebb_tensor *x, ebb_gelu_kind kind)
{
    ebb__gelu_attrs attrs = { (int)kind };
    return ebb__apply_one(&ebb_op_gelu, out, &x, 1, &attrs, sizeof attrs);
}
#define VERB(name)                                                                                 \
    ebb_status ebb_##name(ebb_tensor **out, ebb_tensor *x)                                         \
    {                                                                                              \
        return ebb__apply_one(&ebb_op_##name, out, &x, 1, NULL, 0);                                \
    }
VERB(neg)
VERB(exp)
VERB(tanh)
VERB(sigmoid)
VERB(relu)
VERB(silu)
