/* ops/kernels.c: what infer functions and CPU kernels share. */
#include "ops/kernels.h"

#include "core/threads.h"
#include <stdio.h>
#include <string.h>

ebb_status ebb__infer_like_first(ebb_call *call)
{
    return ebb_arg_set(&call->out[0], call->in[0].dtype, call->in[0].ndim, call->in[0].dims);
}

ebb_status ebb__require_compute_dtype(const ebb_call *call, int i)
{
    ebb_dtype dtype = call->in[i].dtype;
    if (dtype == EBB_F32 || dtype == EBB_F64) return EBB_OK;
    return ebb_fail(EBB_EDTYPE, "%s: input %d is %s; allowed are f32 and f64", call->op->name, i,
                    ebb_dtype_name(dtype));
}

ebb_status ebb__require_float(const ebb_call *call)
{
    for (int i = 0; i < call->n_in; i++) {
        ebb_dtype dtype = call->in[i].dtype;
        if (!ebb_dtype_is_float(dtype)) {
            return ebb_fail(EBB_EDTYPE, "%s: input %d is %s; allowed are f32, f64, f16 and bf16",
                            call->op->name, i, ebb_dtype_name(dtype));
        }
    }
    return ebb__require_same_dtype(call);
}

ebb_status ebb__require_same_dtype(const ebb_call *call)
{
    for (int i = 1; i < call->n_in; i++) {
        if (call->in[i].dtype != call->in[0].dtype) {
            return ebb_fail(EBB_EDTYPE, "%s: input 0 is %s, input %d is %s; cast first",
                            call->op->name, ebb_dtype_name(call->in[0].dtype), i,
                            ebb_dtype_name(call->in[i].dtype));
        }
    }
    return EBB_OK;
}

ebb_status ebb__resolve_axis(const ebb_call *call, int64_t *axis)
{
    int ndim = call->in[0].ndim;
    if (*axis < -ndim || *axis >= ndim) {
        return ebb_fail(EBB_EINVAL, "%s: axis %lld of a tensor with %d dims; allowed are %d to %d",
                        call->op->name, (long long)*axis, ndim, -ndim, ndim - 1);
    }
    if (*axis < 0) *axis += ndim;
    return EBB_OK;
}

ebb_status ebb_arg_set(ebb_arg *arg, ebb_dtype dtype, int ndim, const int64_t *dims)
{
    if (ndim < 0 || ndim > EBB_MAX_DIMS) {
        return ebb_fail(EBB_ESHAPE, "%d dims; allowed are 0 to %d", ndim, EBB_MAX_DIMS);
    }
    /* The product without zero dims must fit too: strides are made of it. */
    int64_t strides[EBB_MAX_DIMS], span = 1, bytes = 0, elems = 1;
    for (int d = ndim - 1; d >= 0; d--) {
        if (dims[d] < 0)
            return ebb_fail(EBB_ESHAPE, "dim %d is %lld; it must not be negative", d,
                            (long long)dims[d]);
        strides[d] = span;
        elems *= dims[d] ? 1 : 0;
        if (__builtin_mul_overflow(span, dims[d] ? dims[d] : 1, &span)) {
            return ebb_fail(EBB_ESHAPE, "the number of elements does not fit in 64 bits");
        }
    }
    if (__builtin_mul_overflow(span, (int64_t)ebb_dtype_bytes(dtype), &bytes)) {
        return ebb_fail(EBB_ESHAPE, "the number of bytes does not fit in 64 bits");
    }
    arg->dtype = dtype;
    arg->ndim = ndim;
    arg->elems = elems * span;
    for (int d = 0; d < ndim; d++) {
        arg->dims[d] = dims[d];
        arg->strides[d] = strides[d];
    }
    return EBB_OK;
}

bool ebb_arg_is_contiguous(const ebb_arg *arg)
{
    if (arg->elems == 0) return true;
    int64_t span = 1;
    for (int d = arg->ndim - 1; d >= 0; d--) {
        if (arg->dims[d] != 1 && arg->strides[d] != span) return false;
        span *= arg->dims[d];
    }
    return true;
}

char *ebb_arg_describe(const ebb_arg *arg, char *buf, size_t buf_bytes)
{
    if (buf_bytes == 0) return buf;
    char text[32 + 24 * EBB_MAX_DIMS];
    size_t at = (size_t)snprintf(text, sizeof text, "%s[", ebb_dtype_name(arg->dtype));
    for (int d = 0; d < arg->ndim; d++) {
        at += (size_t)snprintf(text + at, sizeof text - at, "%s%lld", d ? ", " : "",
                               (long long)arg->dims[d]);
    }
    snprintf(text + at, sizeof text - at, "]");
    snprintf(buf, buf_bytes, "%s", text);
    return buf;
}

void ebb_parallel(const ebb_call *call, int64_t n, int64_t grain, ebb_range_fn *fn, void *arg)
{
    if (n > 0) ebb__threads_run(ebb__call_threads(call), n, grain, fn, arg);
}

ebb_status ebb__apply_one(const ebb_op *op, ebb_tensor **out, ebb_tensor *const ins[], int n_ins,
                          const void *attrs, size_t attrs_bytes)
{
    ebb_tensor **outs[1] = { out };
    return ebb_apply(op, outs, 1, ins, n_ins, attrs, attrs_bytes);
}
