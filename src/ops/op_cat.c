/* ops/op_cat.c: tensors joined along an axis.  Backward hands each input its part of dy. */
#include "ops/attrs.h"
#include "ops/kernels.h"
#include "ops/table.h"
#include "ops/walk.h"
#include <ebb/ops.h>

static int64_t axis_of(const ebb_call *call)
{
    return ((const ebb__cat_attrs *)(const void *)call->attrs)->axis;
}

/* Input i must be like input 0 but for the size of the axis. */
static ebb_status check_input(const ebb_call *call, int i, int64_t axis)
{
    const ebb_arg *first = &call->in[0], *x = &call->in[i];
    bool fits = x->ndim == first->ndim;
    for (int d = 0; fits && d < x->ndim; d++) fits = d == axis || x->dims[d] == first->dims[d];
    if (fits) return EBB_OK;
    char text[2][128];
    return ebb_fail(EBB_ESHAPE,
                    "cat: input 0 is %s, input %d is %s; they may differ on axis %lld only",
                    ebb_arg_describe(first, text[0], sizeof text[0]), i,
                    ebb_arg_describe(x, text[1], sizeof text[1]), (long long)axis);
}

static ebb_status infer(ebb_call *call)
{
    ebb_status st = ebb__require_same_dtype(call);
    int64_t *axis = &EBB_ATTRS(call, ebb__cat_attrs)->axis;
    if (st == EBB_OK && call->in[0].ndim == 0)
        return ebb_fail(EBB_ESHAPE, "cat: scalars have no axis");
    if (st == EBB_OK) st = ebb__resolve_axis(call, axis);
    if (st != EBB_OK) return st;
    const ebb_arg *first = &call->in[0];
    int64_t dims[EBB_MAX_DIMS];
    for (int d = 0; d < first->ndim; d++) dims[d] = first->dims[d];
    for (int i = 1; i < call->n_in; i++) {
        st = check_input(call, i, *axis);
        if (st != EBB_OK) return st;
        if (__builtin_add_overflow(dims[*axis], call->in[i].dims[*axis], &dims[*axis])) {
            return ebb_fail(EBB_ESHAPE, "cat: the sizes on axis %lld overflow", (long long)*axis);
        }
    }
    return ebb_arg_set(&call->out[0], first->dtype, first->ndim, dims);
}

/* The part of `whole` (out or dout) that belongs to input i. */
static ebb_arg part(const ebb_call *call, const ebb_arg *whole, int i)
{
    int64_t axis = axis_of(call), begin = 0;
    for (int k = 0; k < i; k++) begin += call->in[k].dims[axis];
    ebb_arg p = *whole;
    p.dims[axis] = call->in[i].dims[axis];
    p.elems = call->in[i].elems;
    p.data = (char *)whole->data +
             (size_t)(begin * whole->strides[axis]) * ebb_dtype_bytes(whole->dtype);
    return p;
}

static ebb_status forward(const ebb_call *call)
{
    for (int i = 0; i < call->n_in; i++) {
        if (call->in[i].elems == 0) continue;
        ebb_arg to = part(call, &call->out[0], i);
        ebb__copy_or_add(call, &to, &call->in[i], false);
    }
    return EBB_OK;
}

static ebb_status backward(const ebb_call *call)
{
    for (int i = call->n_in - 1; i >= 0; i--) {
        if (!call->din[i].data || call->in[i].elems == 0) continue;
        ebb_arg from = part(call, &call->dout[0], i);
        ebb__copy_or_add(call, &call->din[i], &from, call->accumulate[i]);
    }
    return EBB_OK;
}

static void cost(const ebb_call *call, ebb_cost *cost)
{
    double bytes = 2 * (double)ebb_dtype_bytes(call->out[0].dtype) * (double)call->out[0].elems;
    *cost = (ebb_cost){ .fwd_bytes = bytes, .bwd_bytes = bytes };
}

static const ebb__cat_attrs first = {0}, last = {-1}, outside = {2};
#define NORMAL(...) {__VA_ARGS__, EBB_CASE_NORMAL, 0, false, false}
#define STRIDED(...) {__VA_ARGS__, EBB_CASE_NORMAL, 0, true, false}
#define FIXED(...) {__VA_ARGS__, EBB_CASE_NORMAL, 0, false, true}
#define INDEX(...) {__VA_ARGS__, EBB_CASE_INDEX, 9, false, false}
#define ATTRS(name) &name, sizeof name
static const ebb_op_case cases[] = {
    {"one input", 1, {NORMAL(2, {3, 5})}, ATTRS(first), EBB_OK},
    {"rows", 2, {NORMAL(2, {3, 5}), NORMAL(2, {2, 5})}, ATTRS(first), EBB_OK},
    {"columns", 3, {NORMAL(2, {3, 5}), NORMAL(2, {3, 1}), NORMAL(2, {3, 17})}, ATTRS(last), EBB_OK},
    {"eight vectors", 8, {NORMAL(1, {1}), NORMAL(1, {2}), NORMAL(1, {3}), NORMAL(1, {4}),
                          NORMAL(1, {1}), NORMAL(1, {2}), NORMAL(1, {3}), NORMAL(1, {33})},
     ATTRS(first), EBB_OK},
    {"one is empty", 3, {NORMAL(2, {3, 2}), NORMAL(2, {3, 0}), NORMAL(2, {3, 4})},
     ATTRS(last), EBB_OK},
    {"all are empty", 2, {NORMAL(2, {0, 3}), NORMAL(2, {0, 3})}, ATTRS(first), EBB_OK},
    {"strided", 2, {STRIDED(3, {2, 3, 4}), STRIDED(3, {2, 3, 5})}, ATTRS(last), EBB_OK},
    {"six dims", 2, {NORMAL(6, {1, 2, 1, 3, 2, 2}), NORMAL(6, {3, 2, 1, 3, 2, 2})},
     ATTRS(first), EBB_OK},
    {"only the second's gradient", 2, {FIXED(1, {4}), NORMAL(1, {5})}, ATTRS(first), EBB_OK},
    {"other sizes", 2, {NORMAL(2, {3, 5}), NORMAL(2, {2, 4})}, ATTRS(first), EBB_ESHAPE},
    {"other dims", 2, {NORMAL(2, {3, 5}), NORMAL(1, {5})}, ATTRS(first), EBB_ESHAPE},
    {"scalars", 2, {NORMAL(0, {0}), NORMAL(0, {0})}, ATTRS(first), EBB_ESHAPE},
    {"axis outside", 2, {NORMAL(2, {3, 5}), NORMAL(2, {3, 5})}, ATTRS(outside), EBB_EINVAL},
    {"two dtypes", 2, {NORMAL(1, {3}), INDEX(1, {3})}, ATTRS(first), EBB_EDTYPE},
};

const ebb_op ebb_op_cat = {
    .name = "cat", .min_in = 1, .max_in = EBB_MAX_IN, .n_out = 1,
    .flags = EBB_OP_CHEAP | EBB_OP_STRIDED,
    .infer = infer, .cost = cost, .cpu = {forward, backward, NULL},
    .cases = cases, .n_cases = (int)(sizeof cases / sizeof cases[0]),
};

ebb_status ebb_cat(ebb_tensor **out, int n, ebb_tensor *const xs[], int axis)
{
    ebb__cat_attrs attrs = { axis };
    return ebb__apply_one(&ebb_op_cat, out, xs, n, &attrs, sizeof attrs);
}
