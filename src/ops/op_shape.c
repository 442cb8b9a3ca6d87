/* ops/op_shape.c: reshape permute narrow detach (views share storage) and contiguous (a copy).
 * Backward reads nothing saved. */
#include "ops/attrs.h"
#include "ops/kernels.h"
#include "ops/table.h"
#include "ops/walk.h"
#include <ebb/ops.h>
#include <string.h>

static void cost_view(const ebb_call *call, ebb_cost *cost)
{
    double bytes = (double)ebb_dtype_bytes(call->out[0].dtype) * (double)call->out[0].elems;
    *cost = (ebb_cost){ .bwd_bytes = 2 * bytes };
}

/* ---- reshape ----------------------------------------------------------------------------- */

/* Replaces a -1 by what is left. */
static ebb_status resolve_dims(const ebb_call *call, ebb__reshape_attrs *attrs)
{
    int unknown = -1;
    int64_t known = 1;
    for (int d = 0; d < attrs->ndim; d++) {
        int64_t n = attrs->dims[d];
        if (n < -1)
            return ebb_fail(EBB_EINVAL, "reshape: dim %d is %lld; allowed are -1 and up", d,
                            (long long)n);
        if (n == -1 && unknown >= 0) {
            return ebb_fail(EBB_EINVAL, "reshape: dims %d and %d are both -1; one may be", unknown,
                            d);
        }
        if (n == -1)
            unknown = d;
        else if (__builtin_mul_overflow(known, n, &known))
            return ebb_fail(EBB_ESHAPE, "reshape: too many elements");
    }
    const ebb_arg *x = &call->in[0];
    char text[128];
    if (unknown >= 0) {
        if (known == 0 || x->elems % known != 0) {
            return ebb_fail(
                EBB_ESHAPE,
                "reshape: %s has %lld elements; dim -1 with %lld for the others does not fit",
                ebb_arg_describe(x, text, sizeof text), (long long)x->elems, (long long)known);
        }
        attrs->dims[unknown] = x->elems / known;
    } else if (known != x->elems) {
        return ebb_fail(EBB_ESHAPE, "reshape: %s has %lld elements, the new shape %lld",
                        ebb_arg_describe(x, text, sizeof text), (long long)x->elems,
                        (long long)known);
    }
    return EBB_OK;
}

static ebb_status reshape_infer(ebb_call *call)
{
    ebb__reshape_attrs *attrs = EBB_ATTRS(call, ebb__reshape_attrs);
    if (attrs->ndim < 0 || attrs->ndim > EBB_MAX_DIMS) {
        return ebb_fail(EBB_ESHAPE, "reshape: %d dims; allowed are 0 to %d", attrs->ndim,
                        EBB_MAX_DIMS);
    }
    ebb_status st = resolve_dims(call, attrs);
    if (st != EBB_OK) return st;
    call->view_offset = 0;
    return ebb_arg_set(&call->out[0], call->in[0].dtype, attrs->ndim, attrs->dims);
}

static ebb_status reshape_backward(const ebb_call *call)
{
    if (!call->din[0].data) return EBB_OK;
    ebb_arg dy = call->din[0]; /* dout is contiguous: the same elements in the old shape */
    dy.data = call->dout[0].data;
    ebb__copy_or_add(call, &call->din[0], &dy, call->accumulate[0]);
    return EBB_OK;
}

/* ---- permute ----------------------------------------------------------------------------- */

static ebb_status permute_infer(ebb_call *call)
{
    ebb__permute_attrs *attrs = EBB_ATTRS(call, ebb__permute_attrs);
    const ebb_arg *x = &call->in[0];
    ebb_arg *y = &call->out[0];
    if (attrs->n != x->ndim) {
        return ebb_fail(EBB_EINVAL, "permute: %d axes for a tensor with %d dims", attrs->n,
                        x->ndim);
    }
    unsigned seen = 0;
    for (int d = 0; d < x->ndim; d++) {
        int64_t axis = attrs->axes[d];
        ebb_status st = ebb__resolve_axis(call, &axis);
        if (st != EBB_OK) return st;
        if (seen & (1u << axis))
            return ebb_fail(EBB_EINVAL, "permute: axis %lld is given twice", (long long)axis);
        seen |= 1u << axis;
        attrs->axes[d] = (int)axis;
    }
    y->dtype = x->dtype;
    y->ndim = x->ndim;
    y->elems = x->elems;
    for (int d = 0; d < x->ndim; d++) {
        y->dims[d] = x->dims[attrs->axes[d]];
        y->strides[d] = x->strides[attrs->axes[d]];
    }
    call->view_offset = 0;
    return EBB_OK;
}

static ebb_status permute_backward(const ebb_call *call)
{
    if (!call->din[0].data) return EBB_OK;
    const ebb__permute_attrs *attrs = (const ebb__permute_attrs *)(const void *)call->attrs;
    ebb_arg dy = call->dout[0]; /* permuted back */
    for (int d = 0; d < dy.ndim; d++) {
        dy.dims[attrs->axes[d]] = call->dout[0].dims[d];
        dy.strides[attrs->axes[d]] = call->dout[0].strides[d];
    }
    ebb__copy_or_add(call, &call->din[0], &dy, call->accumulate[0]);
    return EBB_OK;
}

/* ---- narrow ------------------------------------------------------------------------------ */

static ebb_status narrow_infer(ebb_call *call)
{
    ebb__narrow_attrs *attrs = EBB_ATTRS(call, ebb__narrow_attrs);
    ebb_status st = ebb__resolve_axis(call, &attrs->axis);
    if (st != EBB_OK) return st;
    const ebb_arg *x = &call->in[0];
    int64_t size = x->dims[attrs->axis];
    if (attrs->start < 0 || attrs->length < 0 || attrs->start > size ||
        attrs->length > size - attrs->start) {
        return ebb_fail(EBB_EINVAL,
                        "narrow: start %lld, length %lld on axis %lld, whose size is %lld",
                        (long long)attrs->start, (long long)attrs->length, (long long)attrs->axis,
                        (long long)size);
    }
    ebb_arg y = *x;
    y.dims[attrs->axis] = attrs->length;
    y.elems = 1;
    for (int d = 0; d < y.ndim; d++) y.elems *= y.dims[d];
    y.data = call->out[0].data;
    call->out[0] = y;
    call->view_offset = y.elems ? attrs->start * x->strides[attrs->axis] : 0;
    return EBB_OK;
}

static ebb_status narrow_backward(const ebb_call *call)
{
    const ebb_arg *dx = &call->din[0];
    if (!dx->data) return EBB_OK;
    const ebb__narrow_attrs *attrs = (const ebb__narrow_attrs *)(const void *)call->attrs;
    size_t bytes = ebb_dtype_bytes(dx->dtype);
    if (!call->accumulate[0])
        memset(dx->data, 0, (size_t)dx->elems * bytes); /* all-zero bits are 0.0 */
    if (call->dout[0].elems == 0) return EBB_OK;
    ebb_arg slice = *dx;
    slice.dims[attrs->axis] = attrs->length;
    slice.elems = call->dout[0].elems;
    slice.data = (char *)dx->data + (size_t)(attrs->start * dx->strides[attrs->axis]) * bytes;
    ebb__copy_or_add(call, &slice, &call->dout[0], call->accumulate[0]);
    return EBB_OK;
}

/* ---- detach and contiguous --------------------------------------------------------------- */

static ebb_status detach_infer(ebb_call *call)
{
    void *data = call->out[0].data;
    call->out[0] = call->in[0];
    call->out[0].data = data;
    call->view_offset = 0;
    return EBB_OK;
}

static ebb_status contiguous_forward(const ebb_call *call)
{
    ebb__copy_or_add(call, &call->out[0], &call->in[0], false);
    return EBB_OK;
}

static ebb_status contiguous_backward(const ebb_call *call)
{
    if (call->din[0].data)
        ebb__copy_or_add(call, &call->din[0], &call->dout[0], call->accumulate[0]);
    return EBB_OK;
}

static void cost_copy(const ebb_call *call, ebb_cost *cost)
{
    ebb__cost_elementwise(call, cost, 0, 0);
}
static void cost_nothing(const ebb_call *call, ebb_cost *cost)
{
    (void)call;
    *cost = (ebb_cost){ 0 };
}

/* ---- cases ------------------------------------------------------------------------------- */

#define NORMAL(...) {{__VA_ARGS__, EBB_CASE_NORMAL, 0, false, false}}
#define STRIDED(...) {{__VA_ARGS__, EBB_CASE_NORMAL, 0, true, false}}
#define ATTRS(name) &name, sizeof name
#define COUNT(table) ((int)(sizeof(table) / sizeof(table)[0]))

static const ebb__reshape_attrs flat = {1, {-1}}, six_two = {2, {6, 2}}, split = {3, {3, -1, 2}},
                           scalar = {0, {0}},
                           six = {6, {1, 2, 1, 3, 2, 1}}, empty = {2, {5, 0}},
                           two_unknown = {2, {-1, -1}},
                           below = {1, {-2}}, wrong = {2, {5, 2}}, unclear = {2, {0, -1}},
                           seven = {7, {0}};
static const ebb_op_case reshape_cases[] = {
    {"to a vector", 1, NORMAL(2, {3, 4}), ATTRS(flat), EBB_OK},
    {"to a matrix", 1, NORMAL(3, {2, 3, 2}), ATTRS(six_two), EBB_OK},
    {"one dim left open", 1, NORMAL(2, {3, 8}), ATTRS(split), EBB_OK},
    {"to a scalar", 1, NORMAL(2, {1, 1}), ATTRS(scalar), EBB_OK},
    {"a scalar to a vector", 1, NORMAL(0, {0}), ATTRS(flat), EBB_OK},
    {"to six dims", 1, NORMAL(1, {12}), ATTRS(six), EBB_OK},
    {"no elements", 1, NORMAL(3, {2, 0, 3}), ATTRS(empty), EBB_OK},
    {"a strided view", 1, STRIDED(3, {2, 3, 2}), ATTRS(six_two), EBB_OK},
    {"two open dims", 1, NORMAL(1, {4}), ATTRS(two_unknown), EBB_EINVAL},
    {"a dim of -2", 1, NORMAL(1, {4}), ATTRS(below), EBB_EINVAL},
    {"another number of elements", 1, NORMAL(2, {3, 4}), ATTRS(wrong), EBB_ESHAPE},
    {"open dim of nothing", 1, NORMAL(2, {0, 4}), ATTRS(unclear), EBB_ESHAPE},
    {"seven dims", 1, NORMAL(1, {4}), ATTRS(seven), EBB_ESHAPE},
};

static const ebb__permute_attrs swap = {2, {1, 0}}, rotate = {3, {2, 0, 1}},
                           from_end = {3, {-1, -3, -2}},
                           nothing = {0, {0}}, turn = {6, {5, 4, 3, 2, 1, 0}},
                           repeated = {2, {1, 1}},
                           outside = {2, {0, 2}};
static const ebb_op_case permute_cases[] = {
    {"a matrix", 1, NORMAL(2, {17, 5}), ATTRS(swap), EBB_OK},
    {"three axes", 1, NORMAL(3, {3, 4, 5}), ATTRS(rotate), EBB_OK},
    {"axes from the end", 1, NORMAL(3, {3, 4, 5}), ATTRS(from_end), EBB_OK},
    {"a scalar", 1, NORMAL(0, {0}), ATTRS(nothing), EBB_OK},
    {"six axes", 1, NORMAL(6, {2, 3, 1, 2, 2, 3}), ATTRS(turn), EBB_OK},
    {"one element", 1, NORMAL(2, {1, 1}), ATTRS(swap), EBB_OK},
    {"no elements", 1, NORMAL(2, {0, 3}), ATTRS(swap), EBB_OK},
    {"a strided view", 1, STRIDED(3, {3, 4, 5}), ATTRS(rotate), EBB_OK},
    {"an axis twice", 1, NORMAL(2, {2, 3}), ATTRS(repeated), EBB_EINVAL},
    {"an axis outside", 1, NORMAL(2, {2, 3}), ATTRS(outside), EBB_EINVAL},
    {"too few axes", 1, NORMAL(3, {2, 3, 4}), ATTRS(swap), EBB_EINVAL},
};

static const ebb__narrow_attrs rows = {0, 1, 2}, columns = {-1, 2, 3}, column = {1, 2, 1},
                          whole = {0, 0, 3},
                          at_end = {0, 3, 0}, too_long = {0, 2, 2}, before = {0, -1, 1},
                          no_axis = {2, 0, 1},
                          overflow = {0, 1, INT64_MAX};
static const ebb_op_case narrow_cases[] = {
    {"rows", 1, NORMAL(2, {3, 5}), ATTRS(rows), EBB_OK},
    {"columns", 1, NORMAL(2, {3, 17}), ATTRS(columns), EBB_OK},
    {"one column", 1, NORMAL(2, {4, 5}), ATTRS(column), EBB_OK},
    {"middle axis", 1, NORMAL(3, {2, 4, 3}), ATTRS(column), EBB_OK},
    {"all of it", 1, NORMAL(2, {3, 2}), ATTRS(whole), EBB_OK},
    {"none of it", 1, NORMAL(2, {3, 2}), ATTRS(at_end), EBB_OK},
    {"a strided view", 1, STRIDED(3, {3, 4, 5}), ATTRS(columns), EBB_OK},
    {"six dims", 1, NORMAL(6, {3, 2, 1, 2, 1, 2}), ATTRS(rows), EBB_OK},
    {"too long", 1, NORMAL(2, {3, 2}), ATTRS(too_long), EBB_EINVAL},
    {"before the start", 1, NORMAL(2, {3, 2}), ATTRS(before), EBB_EINVAL},
    {"an axis outside", 1, NORMAL(2, {3, 2}), ATTRS(no_axis), EBB_EINVAL},
    {"start + length overflows", 1, NORMAL(2, {3, 2}), ATTRS(overflow), EBB_EINVAL},
};

static const ebb_op_case copy_cases[] = {
    {"a strided view", 1, STRIDED(3, {3, 4, 5}), NULL, 0, EBB_OK},
    {"rows of 17", 1, STRIDED(2, {33, 17}), NULL, 0, EBB_OK},
    {"larger than a square", 1, STRIDED(3, {3, 45, 67}), NULL, 0, EBB_OK},
    {"contiguous", 1, NORMAL(2, {5, 7}), NULL, 0, EBB_OK},
    {"a scalar", 1, NORMAL(0, {0}), NULL, 0, EBB_OK},
    {"no elements", 1, NORMAL(2, {0, 7}), NULL, 0, EBB_OK},
    {"six dims", 1, STRIDED(6, {2, 3, 1, 2, 2, 3}), NULL, 0, EBB_OK},
};

/* ---- descriptors and verbs --------------------------------------------------------------- */

const ebb_op ebb_op_reshape = {
    .name = "reshape", .min_in = 1, .max_in = 1, .n_out = 1, .flags = EBB_OP_VIEW | EBB_OP_CHEAP,
    .pass = EBB_PASS(0), .infer = reshape_infer, .cost = cost_view,
    .cpu = {NULL, reshape_backward, NULL},
    .cases = reshape_cases, .n_cases = COUNT(reshape_cases),
};
const ebb_op ebb_op_permute = {
    .name = "permute", .min_in = 1, .max_in = 1, .n_out = 1,
    .flags = EBB_OP_VIEW | EBB_OP_CHEAP | EBB_OP_STRIDED,
    .infer = permute_infer, .cost = cost_view, .cpu = {NULL, permute_backward, NULL},
    .cases = permute_cases, .n_cases = COUNT(permute_cases),
};
const ebb_op ebb_op_narrow = {
    .name = "narrow", .min_in = 1, .max_in = 1, .n_out = 1,
    .flags = EBB_OP_VIEW | EBB_OP_CHEAP | EBB_OP_STRIDED,
    .infer = narrow_infer, .cost = cost_view, .cpu = {NULL, narrow_backward, NULL},
    .cases = narrow_cases, .n_cases = COUNT(narrow_cases),
};
const ebb_op ebb_op_detach = {
    .name = "detach", .min_in = 1, .max_in = 1, .n_out = 1,
    .flags = EBB_OP_VIEW | EBB_OP_CHEAP | EBB_OP_STRIDED | EBB_OP_NO_GRAD,
    .infer = detach_infer, .cost = cost_nothing,
    .cases = copy_cases, .n_cases = COUNT(copy_cases),
};
const ebb_op ebb_op_contiguous = {
    .name = "contiguous", .min_in = 1, .max_in = 1, .n_out = 1,
    .flags = EBB_OP_CHEAP | EBB_OP_STRIDED,
    .pass = EBB_PASS(0), .infer = ebb__infer_like_first, .cost = cost_copy,
    .cpu = {contiguous_forward, contiguous_backward, NULL},
    .cases = copy_cases, .n_cases = COUNT(copy_cases),
};

ebb_status ebb_reshape(ebb_tensor **out, ebb_tensor *x, int ndim, const int64_t *dims)
{
    ebb__reshape_attrs attrs = { .ndim = ndim };
    for (int d = 0; d < ndim && d < EBB_MAX_DIMS; d++) attrs.dims[d] = dims[d];
    return ebb__apply_one(&ebb_op_reshape, out, &x, 1, &attrs, sizeof attrs);
}

ebb_status ebb_permute(ebb_tensor **out, ebb_tensor *x, int ndim, const int *axes)
{
    ebb__permute_attrs attrs = { .n = ndim };
    for (int d = 0; d < ndim && d < EBB_MAX_DIMS; d++) attrs.axes[d] = axes[d];
    return ebb__apply_one(&ebb_op_permute, out, &x, 1, &attrs, sizeof attrs);
}

ebb_status ebb_transpose(ebb_tensor **out, ebb_tensor *x, int axis0, int axis1)
{
    if (!x) return ebb_fail(EBB_EINVAL, "transpose: x is NULL");
    int ndim = ebb_tensor_ndim(x);
    int pair[2] = { axis0, axis1 }, axes[EBB_MAX_DIMS];
    for (int i = 0; i < 2; i++) {
        if (pair[i] < -ndim || pair[i] >= ndim) {
            return ebb_fail(EBB_EINVAL,
                            "transpose: axis %d of a tensor with %d dims; allowed are %d to %d",
                            pair[i], ndim, -ndim, ndim - 1);
        }
        if (pair[i] < 0) pair[i] += ndim;
    }
    for (int d = 0; d < ndim; d++) axes[d] = d == pair[0] ? pair[1] : d == pair[1] ? pair[0] : d;
    return ebb_permute(out, x, ndim, axes);
}

ebb_status ebb_narrow(ebb_tensor **out, ebb_tensor *x, int axis, int64_t start, int64_t length)
{
    ebb__narrow_attrs attrs = { axis, start, length };
    return ebb__apply_one(&ebb_op_narrow, out, &x, 1, &attrs, sizeof attrs);
}

ebb_status ebb_contiguous(ebb_tensor **out, ebb_tensor *x)
{
    if (x && ebb_tensor_is_contiguous(x)) {
        ebb_bind(out, x);
        return EBB_OK;
    }
    return ebb__apply_one(&ebb_op_contiguous, out, &x, 1, NULL, 0);
}

ebb_status ebb_copy(ebb_tensor **out, ebb_tensor *x)
{
    return ebb__apply_one(&ebb_op_contiguous, out, &x, 1, NULL, 0);
}

ebb_status ebb_detach(ebb_tensor **out, ebb_tensor *x)
{
    return ebb__apply_one(&ebb_op_detach, out, &x, 1, NULL, 0);
}
