/* ops/op_swiglu.c: y = silu(gate) * up, elementwise, same shape.  Shazeer, arXiv 2002.05202.
 * One op rather than two: silu(gate) is never kept. */
#include "ops/kernels.h"
#include "ops/table.h"
#include "ops/vmath.h"
#include "ops/walk.h"
#include <ebb/ops.h>

static ebb_status infer(ebb_call *call)
{
    ebb_status st = ebb__require_float(call);
    if (st != EBB_OK) return st;
    const ebb_arg *gate = &call->in[0], *up = &call->in[1];
    bool same = gate->ndim == up->ndim;
    for (int d = 0; same && d < gate->ndim; d++) same = gate->dims[d] == up->dims[d];
    if (!same) {
        char text[2][128];
        return ebb_fail(EBB_ESHAPE, "swiglu: gate is %s, up is %s; they must have one shape",
                        ebb_arg_describe(gate, text[0], sizeof text[0]),
                        ebb_arg_describe(up, text[1], sizeof text[1]));
    }
    return ebb__infer_like_first(call);
}

static inline float silu_f32(float x) { return x * ebb__sigmoidf(x); }
static inline double silu_f64(double x) { return x * ebb__sigmoid(x); }
static inline float slope_f32(float x)
{
    float s = ebb__sigmoidf(x);
    return s * (1.0f + x * (1.0f - s));
}
static inline double slope_f64(double x)
{
    double s = ebb__sigmoid(x);
    return s * (1.0 + x * (1.0 - s));
}

/* forward: gate, up; gradient of up: dy, gate; of gate: dy, gate, up */
EBB__LANES_FN_2(forward_f32, float, silu_f32(a) * b)
EBB__LANES_FN_2(forward_f64, double, silu_f64(a) * b)
EBB__LANES_FN_2(up_grad_f32, float, a *silu_f32(b))
EBB__LANES_FN_2(up_grad_f64, double, a *silu_f64(b))
EBB__LANES_FN_3(gate_grad_f32, float, a *c *slope_f32(b))
EBB__LANES_FN_3(gate_grad_f64, double, a *c *slope_f64(b))

static ebb_status forward(const ebb_call *call)
{
    ebb__elementwise job = { .out = &call->out[0],
                             .n_in = 2,
                             .in = { &call->in[0], &call->in[1] },
                             .f32 = forward_f32,
                             .f64 = forward_f64 };
    ebb__run_elementwise(call, &job);
    return EBB_OK;
}

static ebb_status backward(const ebb_call *call)
{
    if (call->din[1].data) {
        ebb__elementwise job = { .out = &call->din[1],
                                 .accumulate = call->accumulate[1],
                                 .n_in = 2,
                                 .in = { &call->dout[0], &call->in[0] },
                                 .f32 = up_grad_f32,
                                 .f64 = up_grad_f64 };
        ebb__run_elementwise(call, &job);
    }
    if (call->din[0].data) {
        ebb__elementwise job = { .out = &call->din[0],
                                 .accumulate = call->accumulate[0],
                                 .n_in = 3,
                                 .in = { &call->dout[0], &call->in[0], &call->in[1] },
                                 .f32 = gate_grad_f32,
                                 .f64 = gate_grad_f64 };
        ebb__run_elementwise(call, &job);
    }
    return EBB_OK;
}

static void cost(const ebb_call *call, ebb_cost *cost)
{
    ebb__cost_elementwise(call, cost, 20, 46);
}

#define NORMAL(...) {__VA_ARGS__, EBB_CASE_NORMAL, 0, false, false}
#define STRIDED(...) {__VA_ARGS__, EBB_CASE_NORMAL, 0, true, false}
#define FIXED(...) {__VA_ARGS__, EBB_CASE_NORMAL, 0, false, true}
#define INDEX(...) {__VA_ARGS__, EBB_CASE_INDEX, 4, false, false}
static const ebb_op_case cases[] = {
    {"rows of 17", 2, {NORMAL(2, {3, 17}), NORMAL(2, {3, 17})}, NULL, 0, EBB_OK},
    {"one element", 2, {NORMAL(1, {1}), NORMAL(1, {1})}, NULL, 0, EBB_OK},
    {"scalars", 2, {NORMAL(0, {0}), NORMAL(0, {0})}, NULL, 0, EBB_OK},
    {"no elements", 2, {NORMAL(2, {0, 8}), NORMAL(2, {0, 8})}, NULL, 0, EBB_OK},
    {"B T F", 2, {NORMAL(3, {2, 3, 33}), NORMAL(3, {2, 3, 33})}, NULL, 0, EBB_OK},
    {"strided views", 2, {STRIDED(3, {2, 3, 5}), STRIDED(3, {2, 3, 5})}, NULL, 0, EBB_OK},
    {"only up's gradient", 2, {FIXED(1, {9}), NORMAL(1, {9})}, NULL, 0, EBB_OK},
    {"only gate's gradient", 2, {NORMAL(1, {9}), FIXED(1, {9})}, NULL, 0, EBB_OK},
    {"shapes that differ", 2, {NORMAL(2, {2, 3}), NORMAL(1, {3})}, NULL, 0, EBB_ESHAPE},
    {"indices are refused", 2, {NORMAL(1, {3}), INDEX(1, {3})}, NULL, 0, EBB_EDTYPE},
};

const ebb_op ebb_op_swiglu = {
    .name = "swiglu", .min_in = 2, .max_in = 2, .n_out = 1,
    .flags = EBB_OP_INPLACE_OK | EBB_OP_GRAD_OVER_DOUT | EBB_OP_CHEAP | EBB_OP_STRIDED,
    .needs = {EBB_IN(0) | EBB_IN(1), EBB_IN(0)},
    .infer = infer, .cost = cost, .cpu = {forward, backward, NULL},
    .cases = cases, .n_cases = (int)(sizeof cases / sizeof cases[0]),
};

ebb_status ebb_swiglu(ebb_tensor **out, ebb_tensor *gate, ebb_tensor *up)
{
    ebb_tensor *ins[2] = { gate, up };
    return ebb__apply_one(&ebb_op_swiglu, out, ins, 2, NULL, 0);
}
