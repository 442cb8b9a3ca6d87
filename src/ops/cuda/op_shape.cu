/* ops/cuda/op_shape.cu: reshape permute narrow detach (views: nothing to run forward), contiguous, cat.
 * Each gradient is dy seen through the view turned back. */
#include "ops/cuda/walk.h"

/* to (+)= from, of one shape and dtype. */
static ebb_status copy_or_add(void *self, const ebb_arg *to, const ebb_arg *from, bool accumulate)
{
    ebb__cuda *cuda = (ebb__cuda *)self;
    return accumulate ? ebb__cuda_arg_add(cuda, to, from) : ebb__cuda_arg_copy(cuda, to, from);
}

/* The address of element `at` of an arg's data. */
static void *element(const ebb_arg *arg, int64_t at)
{
    return (char *)arg->data + at * (int64_t)ebb__cuda_elem_bytes(arg->dtype);
}

static ebb_status reshape_backward(void *self, const ebb_call *call)
{
    if (!call->din[0].data) return EBB_OK;
    ebb_arg dy = call->din[0]; /* dout is contiguous: the same elements in the old shape */
    dy.data = call->dout[0].data;
    return copy_or_add(self, &call->din[0], &dy, call->accumulate[0]);
}

static ebb_status permute_backward(void *self, const ebb_call *call)
{
    if (!call->din[0].data) return EBB_OK;
    const ebb__permute_attrs *attrs = EBB_ATTRS(call, const ebb__permute_attrs);
    ebb_arg dy = call->dout[0]; /* permuted back */
    for (int d = 0; d < dy.ndim; d++) {
        dy.dims[attrs->axes[d]] = call->dout[0].dims[d];
        dy.strides[attrs->axes[d]] = call->dout[0].strides[d];
    }
    return copy_or_add(self, &call->din[0], &dy, call->accumulate[0]);
}

static ebb_status narrow_backward(void *self, const ebb_call *call)
{
    const ebb_arg *dx = &call->din[0], *dy = &call->dout[0];
    if (!dx->data) return EBB_OK;
    const ebb__narrow_attrs *attrs = EBB_ATTRS(call, const ebb__narrow_attrs);
    if (!call->accumulate[0] && dx->elems != dy->elems) {
        ebb_status st = ebb__cuda_fill((ebb__cuda *)self, dx, 0);
        if (st != EBB_OK) return st;
    }
    ebb_arg slice = *dx;
    slice.dims[attrs->axis] = attrs->length;
    slice.elems = dy->elems;
    slice.data = element(dx, attrs->start * dx->strides[attrs->axis]);
    return copy_or_add(self, &slice, dy, call->accumulate[0]);
}

static ebb_status contiguous_forward(void *self, const ebb_call *call)
{
    return ebb__cuda_arg_copy((ebb__cuda *)self, &call->out[0], &call->in[0]);
}

static ebb_status contiguous_backward(void *self, const ebb_call *call)
{
    if (!call->din[0].data) return EBB_OK;
    return copy_or_add(self, &call->din[0], &call->dout[0], call->accumulate[0]);
}

/* ---- cat --------------------------------------------------------------------------------- */

/* The part of `whole` (out or dout) that belongs to input i. */
static ebb_arg part(const ebb_call *call, const ebb_arg *whole, int i)
{
    const int64_t axis = EBB_ATTRS(call, const ebb__cat_attrs)->axis;
    int64_t begin = 0;
    for (int k = 0; k < i; k++) begin += call->in[k].dims[axis];
    ebb_arg p = *whole;
    p.dims[axis] = call->in[i].dims[axis];
    p.elems = call->in[i].elems;
    p.data = element(whole, begin * whole->strides[axis]);
    return p;
}

static ebb_status cat_forward(void *self, const ebb_call *call)
{
    ebb_status st = EBB_OK;
    for (int i = 0; i < call->n_in && st == EBB_OK; i++) {
        ebb_arg to = part(call, &call->out[0], i);
        st = ebb__cuda_arg_copy((ebb__cuda *)self, &to, &call->in[i]);
    }
    return st;
}

static ebb_status cat_backward(void *self, const ebb_call *call)
{
    ebb_status st = EBB_OK;
    for (int i = call->n_in - 1; i >= 0 && st == EBB_OK; i--) {
        if (!call->din[i].data) continue;
        ebb_arg from = part(call, &call->dout[0], i);
        st = copy_or_add(self, &call->din[i], &from, call->accumulate[i]);
    }
    return st;
}

extern "C" const ebb__accel_op ebb_cuda_cat = { "cat", cat_forward, cat_backward };
extern "C" const ebb__accel_op ebb_cuda_contiguous = { "contiguous", contiguous_forward, contiguous_backward };
extern "C" const ebb__accel_op ebb_cuda_detach = { "detach", NULL, NULL };
extern "C" const ebb__accel_op ebb_cuda_narrow = { "narrow", NULL, narrow_backward };
extern "C" const ebb__accel_op ebb_cuda_permute = { "permute", NULL, permute_backward };
extern "C" const ebb__accel_op ebb_cuda_reshape = { "reshape", NULL, reshape_backward };
