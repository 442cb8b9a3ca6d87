/* ops/op_reduce.c: sum and mean over some axes.  Backward spreads dy; it reads nothing saved. */
#include "ops/attrs.h"
#include "ops/cuda/reduce_plan.h"
#include "ops/kernels.h"
#include "ops/reduce.h"
#include "ops/table.h"
#include "ops/walk.h"
#include <ebb/ops.h>

/* Given: the axes as the caller wrote them.  After infer(): bit d of `mask` is axis d, and nothing
 * else counts. */
static const ebb__reduce_attrs *attrs_of(const ebb_call *call)
{
    return (const ebb__reduce_attrs *)(const void *)call->attrs;
}

static ebb_status find_mask(ebb_call *call)
{
    ebb__reduce_attrs *attrs = EBB_ATTRS(call, ebb__reduce_attrs);
    int ndim = call->in[0].ndim;
    attrs->mask = 0;
    if (attrs->n_axes < 0 || attrs->n_axes > EBB_MAX_DIMS) {
        return ebb_fail(EBB_EINVAL, "%s: %d axes; allowed are 0 (all) to %d", call->op->name,
                        attrs->n_axes, ndim);
    }
    if (attrs->n_axes == 0) attrs->mask = (1u << ndim) - 1;
    for (int i = 0; i < attrs->n_axes; i++) {
        int64_t axis = attrs->axes[i];
        ebb_status st = ebb__resolve_axis(call, &axis);
        if (st != EBB_OK) return st;
        if (attrs->mask & (1u << axis)) {
            return ebb_fail(EBB_EINVAL, "%s: axis %lld is given twice", call->op->name,
                            (long long)axis);
        }
        attrs->mask |= 1u << axis;
    }
    return EBB_OK;
}

static ebb_status infer(ebb_call *call)
{
    ebb_status st = ebb__require_float(call);
    if (st == EBB_OK) st = find_mask(call);
    if (st != EBB_OK) return st;
    const ebb__reduce_attrs *attrs = attrs_of(call);
    const ebb_arg *x = &call->in[0];
    int64_t dims[EBB_MAX_DIMS];
    int ndim = 0;
    for (int d = 0; d < x->ndim; d++) {
        bool summed = attrs->mask >> d & 1u;
        if (!summed || attrs->keep_dims) dims[ndim++] = summed ? 1 : x->dims[d];
    }
    return ebb_arg_set(&call->out[0], x->dtype, ndim, dims);
}

/* `small` (out or dout) with the summed dims put back as 1; strides kept. */
static ebb_arg expanded(const ebb_call *call, const ebb_arg *small)
{
    const ebb__reduce_attrs *attrs = attrs_of(call);
    ebb_arg wide = *small;
    wide.ndim = call->in[0].ndim;
    int from = 0;
    for (int d = 0; d < wide.ndim; d++) {
        bool summed = attrs->mask >> d & 1u;
        bool present = !summed || attrs->keep_dims;
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
    for (int d = 0; d < call->in[0].ndim; d++) {
        if (attrs_of(call)->mask >> d & 1u) n *= (double)call->in[0].dims[d];
    }
    return n;
}

static ebb_status forward(const ebb_call *call, double scale)
{
    ebb__reduction job = { .space = &call->in[0],
                           .out = expanded(call, &call->out[0]),
                           .scale = scale,
                           .n_in = 1,
                           .in = { &call->in[0] } };
    ebb__run_reduction(call, &job);
    return EBB_OK;
}

EBB__LANES_FN_1(times_p_f32, float, a *p)
EBB__LANES_FN_1(times_p_f64, double, a *p)

static ebb_status backward(const ebb_call *call, double scale)
{
    if (!call->din[0].data) return EBB_OK;
    ebb_arg dy = expanded(call, &call->dout[0]);
    ebb__elementwise job = { .out = &call->din[0],
                             .accumulate = call->accumulate[0],
                             .n_in = 1,
                             .in = { &dy },
                             .f32 = times_p_f32,
                             .f64 = times_p_f64,
                             .params = &scale };
    ebb__run_elementwise(call, &job);
    return EBB_OK;
}

/* The mean of nothing is 0 * inf = NaN; its gradient has no elements. */
static ebb_status sum_forward(const ebb_call *call) { return forward(call, 1.0); }
static ebb_status sum_backward(const ebb_call *call) { return backward(call, 1.0); }
static ebb_status mean_forward(const ebb_call *call) { return forward(call, 1.0 / count(call)); }
static ebb_status mean_backward(const ebb_call *call) { return backward(call, 1.0 / count(call)); }

static size_t workspace(const ebb_call *call, int pass, int threads)
{
    if (pass == EBB_BACKWARD) return 0;
    ebb_arg out = expanded(call, &call->out[0]);
    return ebb__reduction_workspace(&out, &call->in[0], threads);
}

static size_t cuda_workspace(const ebb_call *call, int pass)
{
    if (pass == EBB_BACKWARD) return 0;
    ebb_arg out = expanded(call, &call->out[0]);
    return ebb__cuda_reduce_bytes(&out, &call->in[0]);
}

static void cost(const ebb_call *call, ebb_cost *cost)
{
    const ebb_arg *x = &call->in[0];
    double n = (double)x->elems;
    double bytes = (double)ebb_dtype_bytes(x->dtype) * (n + (double)call->out[0].elems);
    *cost = (ebb_cost){ .fwd_flops = n, .bwd_flops = n, .fwd_bytes = bytes, .bwd_bytes = bytes };
}

/* ---- cases ------------------------------------------------------------------------------- */

static const ebb__reduce_attrs all = {0}, all_kept = {.keep_dims = 1}, first = {1, {0}, 0, 0},
                          last = {1, {-1}, 0, 0},
                          middle_kept = {1, {1}, 1, 0}, outer = {2, {0, -1}, 0, 0},
                          beyond = {1, {3}, 0, 0},
                          twice = {2, {0, -2}, 0, 0}, too_many = {7, {0}, 0, 0};
#define NORMAL(...) {{__VA_ARGS__, EBB_CASE_NORMAL, 0, false, false}}
#define STRIDED(...) {{__VA_ARGS__, EBB_CASE_NORMAL, 0, true, false}}
#define INDEX(...) {{__VA_ARGS__, EBB_CASE_INDEX, 9, false, false}}
#define ATTRS(name) &name, sizeof name
static const ebb_op_case cases[] = {
    {"all of a vector", 1, NORMAL(1, {33}), ATTRS(all), EBB_OK},
    {"all of a matrix", 1, NORMAL(2, {5, 17}), ATTRS(all), EBB_OK},
    {"all, kept as ones", 1, NORMAL(2, {5, 17}), ATTRS(all_kept), EBB_OK},
    {"a scalar", 1, NORMAL(0, {0}), ATTRS(all), EBB_OK},
    {"first axis", 1, NORMAL(2, {17, 5}), ATTRS(first), EBB_OK},
    {"last axis", 1, NORMAL(2, {5, 17}), ATTRS(last), EBB_OK},
    {"middle axis, kept", 1, NORMAL(3, {3, 4, 5}), ATTRS(middle_kept), EBB_OK},
    {"outer axes", 1, NORMAL(3, {3, 4, 5}), ATTRS(outer), EBB_OK},
    {"six dims", 1, NORMAL(6, {2, 3, 1, 2, 2, 3}), ATTRS(outer), EBB_OK},
    {"strided", 1, STRIDED(3, {3, 4, 5}), ATTRS(middle_kept), EBB_OK},
    {"strided, last axis", 1, STRIDED(3, {3, 4, 5}), ATTRS(last), EBB_OK},
    {"no sums", 1, NORMAL(2, {0, 3}), ATTRS(last), EBB_OK},
    {"one element", 1, NORMAL(2, {1, 1}), ATTRS(last), EBB_OK},
    {"axis outside", 1, NORMAL(2, {2, 3}), ATTRS(beyond), EBB_EINVAL},
    {"an axis twice", 1, NORMAL(2, {2, 3}), ATTRS(twice), EBB_EINVAL},
    {"too many axes", 1, NORMAL(2, {2, 3}), ATTRS(too_many), EBB_EINVAL},
    {"indices are refused", 1, INDEX(1, {3}), ATTRS(all), EBB_EDTYPE},
    {"sums of nothing", 1, NORMAL(2, {3, 0}), ATTRS(last), EBB_OK},
};

const ebb_op ebb_op_sum = {
    .name = "sum", .min_in = 1, .max_in = 1, .n_out = 1, .flags = EBB_OP_CHEAP | EBB_OP_STRIDED,
    .infer = infer, .cost = cost, .cpu = {sum_forward, sum_backward, workspace},
    .cuda_workspace = cuda_workspace,
    .cases = cases, .n_cases = (int)(sizeof cases / sizeof cases[0]),
    .autocast = EBB_AUTOCAST_F32,
};
const ebb_op ebb_op_mean = {
    .name = "mean", .min_in = 1, .max_in = 1, .n_out = 1, .flags = EBB_OP_CHEAP | EBB_OP_STRIDED,
    .infer = infer, .cost = cost, .cpu = {mean_forward, mean_backward, workspace},
    .cuda_workspace = cuda_workspace,
    .cases = cases, .n_cases = (int)(sizeof cases / sizeof cases[0]),
    .autocast = EBB_AUTOCAST_F32,
};

static ebb_status apply(const ebb_op *op, ebb_tensor **out, ebb_tensor *x, int n_axes,
                        const int *axes, bool keep_dims)
{
    ebb__reduce_attrs attrs = { .n_axes = n_axes, .keep_dims = keep_dims };
    for (int i = 0; i < n_axes && i < EBB_MAX_DIMS; i++) attrs.axes[i] = axes[i];
    return ebb__apply_one(op, out, &x, 1, &attrs, sizeof attrs);
}

ebb_status ebb_sum(ebb_tensor **out, ebb_tensor *x, int n_axes, const int *axes, bool keep_dims)
{
    return apply(&ebb_op_sum, out, x, n_axes, axes, keep_dims);
}
ebb_status ebb_mean(ebb_tensor **out, ebb_tensor *x, int n_axes, const int *axes, bool keep_dims)
{
    return apply(&ebb_op_mean, out, x, n_axes, axes, keep_dims);
}
