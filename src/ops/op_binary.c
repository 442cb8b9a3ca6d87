/* ops/op_binary.c: add sub mul div of tensors that broadcast as NumPy does.
 * The gradient of a broadcast operand is summed to the operand's shape. */
#include "ops/cuda/reduce_plan.h"
#include "ops/kernels.h"
#include "ops/reduce.h"
#include "ops/table.h"
#include "ops/walk.h"
#include <ebb/ops.h>

/* ---- shapes ------------------------------------------------------------------------------ */

static int64_t dim_from_right(const ebb_arg *arg, int from_right)
{
    return from_right < arg->ndim ? arg->dims[arg->ndim - 1 - from_right] : 1;
}

static ebb_status infer(ebb_call *call)
{
    ebb_status st = ebb__require_float(call);
    if (st != EBB_OK) return st;
    const ebb_arg *a = &call->in[0], *b = &call->in[1];
    int ndim = a->ndim > b->ndim ? a->ndim : b->ndim;
    int64_t dims[EBB_MAX_DIMS];
    for (int d = 0; d < ndim; d++) {
        int64_t m = dim_from_right(a, d), n = dim_from_right(b, d);
        if (m != n && m != 1 && n != 1) {
            char text[2][128];
            return ebb_fail(EBB_ESHAPE,
                            "%s: %s and %s do not broadcast: axis -%d is %lld and %lld; "
                            "they must be equal, or one of them 1",
                            call->op->name, ebb_arg_describe(a, text[0], sizeof text[0]),
                            ebb_arg_describe(b, text[1], sizeof text[1]), d + 1, (long long)m,
                            (long long)n);
        }
        dims[ndim - 1 - d] = m == 1 ? n : m;
    }
    return ebb_arg_set(&call->out[0], a->dtype, ndim, dims);
}

/* ---- forward ----------------------------------------------------------------------------- */

EBB__LANES_FN_2(add_f32, float, a + b)
EBB__LANES_FN_2(add_f64, double, a + b)
EBB__LANES_FN_2(sub_f32, float, a - b)
EBB__LANES_FN_2(sub_f64, double, a - b)
EBB__LANES_FN_2(mul_f32, float, a *b)
EBB__LANES_FN_2(mul_f64, double, a *b)
EBB__LANES_FN_2(div_f32, float, a / b)
EBB__LANES_FN_2(div_f64, double, a / b)

static ebb_status forward(const ebb_call *call, ebb__lanes_fn *f32, ebb__lanes_fn *f64)
{
    ebb__elementwise job = { .out = &call->out[0],
                             .n_in = 2,
                             .in = { &call->in[0], &call->in[1] },
                             .f32 = f32,
                             .f64 = f64 };
    ebb__run_elementwise(call, &job);
    return EBB_OK;
}

static ebb_status add_forward(const ebb_call *call) { return forward(call, add_f32, add_f64); }
static ebb_status sub_forward(const ebb_call *call) { return forward(call, sub_f32, sub_f64); }
static ebb_status mul_forward(const ebb_call *call) { return forward(call, mul_f32, mul_f64); }
static ebb_status div_forward(const ebb_call *call) { return forward(call, div_f32, div_f64); }

/* ---- backward ---------------------------------------------------------------------------- */

/* One operand's gradient on lanes: scale * f(dy, ...); no f: scale * dy. */
typedef struct gradient {
    double scale;
    int n_in;
    const ebb_arg *in[3];
    ebb__lanes_fn *f32, *f64;
} gradient;

/* Forward's shape and operand i's gradient agree in all but broadcast dims. */
static ebb_status backward(const ebb_call *call, int i, const gradient *g)
{
    const ebb_arg *dx = &call->din[i], *dy = &call->dout[0];
    if (dx->elems == dy->elems) { /* no sum; at most dims of 1 were put in front */
        ebb_arg flat = *dy;       /* dx with dy's shape, so that both walk alike */
        ebb_status st = ebb_arg_set(&flat, dx->dtype, dy->ndim, dy->dims);
        if (st != EBB_OK) return st;
        flat.data = dx->data;
        ebb__elementwise job = { .out = &flat,
                                 .accumulate = call->accumulate[i],
                                 .n_in = g->n_in,
                                 .in = { g->in[0], g->in[1], g->in[2] },
                                 .f32 = g->f32,
                                 .f64 = g->f64,
                                 .params = &g->scale };
        ebb__run_elementwise(call, &job);
        return EBB_OK;
    }
    ebb__reduction job = { .space = dy,
                           .out = *dx,
                           .accumulate = call->accumulate[i],
                           .scale = g->scale,
                           .n_in = g->n_in,
                           .in = { g->in[0], g->in[1], g->in[2] } };
    if (g->n_in > 1) {
        job.f32 = g->f32;
        job.f64 = g->f64;
    }
    ebb__run_reduction(call, &job);
    return EBB_OK;
}

static size_t workspace(const ebb_call *call, int pass, int threads)
{
    size_t most = 0;
    for (int i = 0; i < 2 && pass == EBB_BACKWARD; i++) {
        if (!call->want[i] || call->in[i].elems == call->out[0].elems) continue;
        size_t bytes = ebb__reduction_workspace(&call->in[i], &call->out[0], threads);
        if (bytes > most) most = bytes;
    }
    return most;
}

static size_t cuda_workspace(const ebb_call *call, int pass)
{
    size_t most = 0;
    for (int i = 0; i < 2 && pass == EBB_BACKWARD; i++) {
        if (!call->want[i] || call->in[i].elems == call->out[0].elems) continue;
        size_t bytes = ebb__cuda_reduce_bytes(&call->in[i], &call->out[0]);
        if (bytes > most) most = bytes;
    }
    return most;
}

EBB__LANES_FN_1(times_p_f32, float, a *p)
EBB__LANES_FN_1(times_p_f64, double, a *p)
EBB__LANES_FN_3(div_grad_1_f32, float,
                -(a / c) * (b / c)) /* dy, x, divisor: c * c could overflow */
EBB__LANES_FN_3(div_grad_1_f64, double, -(a / c) * (b / c))

static ebb_status linear_backward(const ebb_call *call, double sign_of_1)
{
    for (int i = 1; i >= 0; i--) {
        if (!call->din[i].data) continue;
        gradient g = { i ? sign_of_1 : 1.0, 1, { &call->dout[0] }, times_p_f32, times_p_f64 };
        ebb_status st = backward(call, i, &g);
        if (st != EBB_OK) return st;
    }
    return EBB_OK;
}

static ebb_status add_backward(const ebb_call *call) { return linear_backward(call, 1.0); }
static ebb_status sub_backward(const ebb_call *call) { return linear_backward(call, -1.0); }

static ebb_status mul_backward(const ebb_call *call)
{
    for (int i = 1; i >= 0; i--) {
        if (!call->din[i].data) continue;
        gradient g = { 1.0, 2, { &call->dout[0], &call->in[1 - i] }, mul_f32, mul_f64 };
        ebb_status st = backward(call, i, &g);
        if (st != EBB_OK) return st;
    }
    return EBB_OK;
}

static ebb_status div_backward(const ebb_call *call)
{
    ebb_status st = EBB_OK;
    if (call->din[1].data) {
        gradient g = {
            1.0, 3, { &call->dout[0], &call->in[0], &call->in[1] }, div_grad_1_f32, div_grad_1_f64
        };
        st = backward(call, 1, &g);
    }
    if (st == EBB_OK && call->din[0].data) {
        gradient g = { 1.0, 2, { &call->dout[0], &call->in[1] }, div_f32, div_f64 };
        st = backward(call, 0, &g);
    }
    return st;
}

static void cost(const ebb_call *call, ebb_cost *cost) { ebb__cost_elementwise(call, cost, 1, 2); }
static void cost_div(const ebb_call *call, ebb_cost *cost)
{
    ebb__cost_elementwise(call, cost, 1, 4);
}

/* ---- cases ------------------------------------------------------------------------------- */

#define NORMAL(...) {__VA_ARGS__, EBB_CASE_NORMAL, 0, false, false}
#define STRIDED(...) {__VA_ARGS__, EBB_CASE_NORMAL, 0, true, false}
#define FIXED(...) {__VA_ARGS__, EBB_CASE_NORMAL, 0, false, true} /* needs no gradient */
#define DIVISOR(...) {__VA_ARGS__, EBB_CASE_POSITIVE, 0, false, false}
#define STRIDED_DIVISOR(...) {__VA_ARGS__, EBB_CASE_POSITIVE, 0, true, false}
#define INDEX(...) {__VA_ARGS__, EBB_CASE_INDEX, 4, false, false}

/* OTHER, OTHER_STRIDED: how the second operand is made. */
#define CASES(OTHER, OTHER_STRIDED)                                                                \
    {"same shape", 2, {NORMAL(2, {5, 17}), OTHER(2, {5, 17})}, NULL, 0, EBB_OK},                   \
    {"scalars", 2, {NORMAL(0, {0}), OTHER(0, {0})}, NULL, 0, EBB_OK},                              \
    {"scalar and vector", 2, {NORMAL(0, {0}), OTHER(1, {33})}, NULL, 0, EBB_OK},                   \
    {"vector and scalar", 2, {NORMAL(1, {33}), OTHER(0, {0})}, NULL, 0, EBB_OK},                   \
    {"rows and a row", 2, {NORMAL(2, {7, 33}), OTHER(1, {33})}, NULL, 0, EBB_OK},                  \
    {"a row and rows", 2, {NORMAL(1, {33}), OTHER(2, {7, 33})}, NULL, 0, EBB_OK},                  \
    {"rows and a column", 2, {NORMAL(2, {7, 33}), OTHER(2, {7, 1})}, NULL, 0, EBB_OK},             \
    {"a column and a row", 2, {NORMAL(2, {4, 1}), OTHER(2, {1, 5})}, NULL, 0, EBB_OK},             \
    {"both broadcast", 2, {NORMAL(3, {4, 1, 3}), OTHER(3, {1, 5, 3})}, NULL, 0, EBB_OK},           \
    {"middle axis", 2, {NORMAL(4, {2, 3, 4, 5}), OTHER(3, {3, 1, 5})}, NULL, 0, EBB_OK},           \
    {"six dims", 2, {NORMAL(6, {2, 1, 3, 1, 2, 2}), OTHER(5, {2, 1, 3, 1, 2})}, NULL, 0, EBB_OK},  \
    {"leading ones", 2, {NORMAL(1, {3}), OTHER(3, {1, 1, 3})}, NULL, 0, EBB_OK},                   \
    {"no elements", 2, {NORMAL(2, {4, 0}), OTHER(2, {4, 1})}, NULL, 0, EBB_OK},                    \
    {"no rows", 2, {NORMAL(2, {0, 3}), OTHER(1, {3})}, NULL, 0, EBB_OK},                           \
    {"strided", 2, {STRIDED(3, {3, 4, 5}), OTHER_STRIDED(3, {3, 4, 5})}, NULL, 0, EBB_OK},         \
    {"strided, broadcast", 2, {STRIDED(3, {3, 4, 5}), OTHER_STRIDED(2, {4, 1})}, NULL, 0, EBB_OK}, \
    {"only b's gradient", 2, {FIXED(2, {3, 4}), OTHER(1, {4})}, NULL, 0, EBB_OK},                  \
    {"shapes that differ", 2, {NORMAL(2, {2, 3}), OTHER(2, {3, 2})}, NULL, 0, EBB_ESHAPE},         \
    {"a size that is not 1", 2, {NORMAL(1, {3}), OTHER(1, {2})}, NULL, 0, EBB_ESHAPE},             \
    {"indices are refused", 2, {NORMAL(1, {3}), INDEX(1, {3})}, NULL, 0, EBB_EDTYPE}

static const ebb_op_case cases[] = {CASES(NORMAL, STRIDED)};
static const ebb_op_case div_cases[] = {CASES(DIVISOR, STRIDED_DIVISOR)};

/* ---- descriptors and verbs --------------------------------------------------------------- */

#define COUNT(table) ((int)(sizeof(table) / sizeof(table)[0]))
#define ELEMENTWISE (EBB_OP_INPLACE_OK | EBB_OP_GRAD_OVER_DOUT | EBB_OP_CHEAP | EBB_OP_STRIDED)

const ebb_op ebb_op_add = {
    .name = "add", .min_in = 2, .max_in = 2, .n_out = 1, .flags = ELEMENTWISE,
    .pass = EBB_PASS(0) | EBB_PASS(1),
    .infer = infer, .cost = cost, .cpu = {add_forward, add_backward, workspace},
    .cuda_workspace = cuda_workspace,
    .cases = cases, .n_cases = COUNT(cases),
};
const ebb_op ebb_op_sub = {
    .name = "sub", .min_in = 2, .max_in = 2, .n_out = 1, .flags = ELEMENTWISE,
    .pass = EBB_PASS(0),
    .infer = infer, .cost = cost, .cpu = {sub_forward, sub_backward, workspace},
    .cuda_workspace = cuda_workspace,
    .cases = cases, .n_cases = COUNT(cases),
};
const ebb_op ebb_op_mul = {
    .name = "mul", .min_in = 2, .max_in = 2, .n_out = 1, .flags = ELEMENTWISE,
    .needs = {EBB_IN(1), EBB_IN(0)},
    .infer = infer, .cost = cost, .cpu = {mul_forward, mul_backward, workspace},
    .cuda_workspace = cuda_workspace,
    .cases = cases, .n_cases = COUNT(cases),
};
/* The divisor's gradient could read the quotient instead of the dividend, but the quotient is at
 * least as large. */
const ebb_op ebb_op_div = {
    .name = "div", .min_in = 2, .max_in = 2, .n_out = 1, .flags = ELEMENTWISE,
    .needs = {EBB_IN(1), EBB_IN(0) | EBB_IN(1)},
    .infer = infer, .cost = cost_div, .cpu = {div_forward, div_backward, workspace},
    .cuda_workspace = cuda_workspace,
    .cases = div_cases, .n_cases = COUNT(div_cases),
};

static ebb_status apply(const ebb_op *op, ebb_tensor **out, ebb_tensor *a, ebb_tensor *b)
{
    ebb_tensor *ins[2] = { a, b };
    return ebb__apply_one(op, out, ins, 2, NULL, 0);
}

ebb_status ebb_add(ebb_tensor **out, ebb_tensor *a, ebb_tensor *b)
{
    return apply(&ebb_op_add, out, a, b);
}
ebb_status ebb_sub(ebb_tensor **out, ebb_tensor *a, ebb_tensor *b)
{
    return apply(&ebb_op_sub, out, a, b);
}
ebb_status ebb_mul(ebb_tensor **out, ebb_tensor *a, ebb_tensor *b)
{
    return apply(&ebb_op_mul, out, a, b);
}
ebb_status ebb_div(ebb_tensor **out, ebb_tensor *a, ebb_tensor *b)
{
    return apply(&ebb_op_div, out, a, b);
}
