/* change.c: reading values, and changing data in place. */
#include <string.h>

#include "core/half.h"
#include "core/mem.h"
#include "core/site.h"
#include "tensor/host_view.h"
#include "tensor/upward.h"

static void contiguous_over(ebb_arg *arg, const ebb_tensor *t, void *data)
{
    ebb__tensor_arg(t, arg);
    ebb__arg_contiguous(arg);
    arg->data = data;
}

static ebb_status check_bytes(const ebb_tensor *t, size_t data_bytes, const char *what)
{
    size_t bytes = (size_t)t->elems * ebb_dtype_bytes(t->dtype);
    if (bytes == data_bytes) return EBB_OK;
    char shape[96];
    return ebb_fail(EBB_ESHAPE, "%s: %s has %zu bytes, not %zu", what, ebb_tensor_describe(t, shape, sizeof shape),
                    bytes, data_bytes);
}

ebb_status ebb_read(const ebb_tensor *t, void *data, size_t data_bytes)
{
    ebb_status st = check_bytes(t, data_bytes, "read");
    if (st != EBB_OK) return st;
    if (t->ctx->device.dry) {
        if (data_bytes) memset(data, 0, data_bytes);
        return EBB_OK;
    }
    /* The bytes as they are need no second place in host memory. */
    if (ebb_tensor_is_contiguous(t))
        return ebb__device_copy(&t->ctx->device, data, ebb_tensor_data(t), data_bytes, EBB__FROM_DEVICE, "read");
    ebb_arg from, to;
    ebb__host_view view;
    EBB__TRY(ebb__host_view_strided(&view, &from, t, EBB__VIEW_READ));
    contiguous_over(&to, t, data);
    ebb__host_arg_copy(&to, &from);
    return ebb__host_view_close(&view, EBB_OK);
}

double ebb__value_of(ebb_dtype dtype, const void *p)
{
    uint16_t h;
    switch (dtype) {
    case EBB_F32: { float x; memcpy(&x, p, 4); return (double)x; }
    case EBB_F64: { double x; memcpy(&x, p, 8); return x; }
    case EBB_F16: memcpy(&h, p, 2); return (double)ebb__f16_to_f32(h);
    case EBB_BF16: memcpy(&h, p, 2); return (double)ebb__bf16_to_f32(h);
    case EBB_I32: { int32_t x; memcpy(&x, p, 4); return x; }
    case EBB_I64: { int64_t x; memcpy(&x, p, 8); return (double)x; }
    default: return *(const uint8_t *)p;
    }
}

ebb_status ebb_item(const ebb_tensor *t, double *out)
{
    char shape[96];
    if (t->elems != 1)
        return ebb_fail(EBB_ESHAPE, "item: %s has %lld elements, not 1", ebb_tensor_describe(t, shape, sizeof shape),
                        (long long)t->elems);
    unsigned char value[8] = { 0 };
    EBB__TRY(ebb_read(t, value, ebb_dtype_bytes(t->dtype)));
    *out = ebb__value_of(t->dtype, value);
    return EBB_OK;
}

/* A change in place must not rewrite what history, or a segment's recompute, will read. */
static ebb_status may_change(const ebb_tensor *t, const char *what, const char *instead)
{
    if (t->node)
        return ebb_fail(EBB_ESTATE, "%s: the tensor was made by %s and has history; in place is refused, use %s", what,
                        ebb_node_name(t->node), instead);
    if (t->requires_grad && ebb_mode() == EBB_GRAD_ON)
        return ebb_fail(EBB_ESTATE, "%s: the tensor needs a gradient; in place is refused while recording, use %s or "
                        "EBB_WITH_MODE(EBB_NO_GRAD)", what, instead);
    return ebb__segment_allows_change(t, what);
}

static ebb_status not_through_a_view(const ebb_tensor *t, const char *what, const char *instead)
{
    /* Another live tensor over the same bytes that has history: a view of a result. */
    ebb_status st = EBB_OK;
    if (atomic_load(&t->storage->refs) == 1) return EBB_OK;
    pthread_mutex_lock(&t->ctx->lock);
    for (const ebb_tensor *o = t->ctx->last_tensor; o && st == EBB_OK; o = o->prev) {
        if (o == t || o->storage != t->storage) continue;
        bool leaf = o->requires_grad && ebb_mode() == EBB_GRAD_ON;
        if (leaf) st = EBB_ESTATE;
    }
    pthread_mutex_unlock(&t->ctx->lock);
    if (st != EBB_OK)
        return ebb_fail(st, "%s: the tensor is a view of one that needs a gradient; in place is refused while "
                        "recording, use %s", what, instead);
    return EBB_OK;
}

ebb_status ebb_fill(ebb_tensor *t, double value)
{
    ebb_status st = may_change(t, "fill", "ebb_full");
    if (st == EBB_OK) st = not_through_a_view(t, "fill", "ebb_full");
    if (st != EBB_OK) return st;
    ebb_arg arg;
    ebb__tensor_arg(t, &arg);
    st = ebb__arg_fill(t->ctx, &arg, value, "fill");
    ebb__storage_bump(t->storage);
    return st;
}

ebb_status ebb_copy_into(ebb_tensor *t, const ebb_tensor *from)
{
    ebb_status st = may_change(t, "copy_into", "ebb_bind");
    if (st == EBB_OK) st = not_through_a_view(t, "copy_into", "ebb_bind");
    if (st != EBB_OK) return st;
    if (t->ctx != from->ctx) return ebb_fail(EBB_EDEVICE, "copy_into: the tensors belong to different contexts");
    char a[96], b[96];
    ebb_arg to, source;
    ebb__tensor_arg(t, &to);
    ebb__tensor_arg(from, &source);
    if (to.dtype != source.dtype)
        return ebb_fail(EBB_EDTYPE, "copy_into: %s into %s; cast first", ebb_tensor_describe(from, b, sizeof b),
                        ebb_tensor_describe(t, a, sizeof a));
    if (!ebb__arg_same_shape(&to, &source))
        return ebb_fail(EBB_ESHAPE, "copy_into: %s into %s", ebb_tensor_describe(from, b, sizeof b),
                        ebb_tensor_describe(t, a, sizeof a));
    if (t->storage == from->storage && t->offset != from->offset)
        return ebb_fail(EBB_EINVAL, "copy_into: the tensors are overlapping views of one storage");
    if (t->storage != from->storage) st = ebb__arg_copy(t->ctx, &to, &source, "copy_into");
    ebb__storage_bump(t->storage);
    return st;
}

static ebb_status write_bytes(const ebb_tensor *t, const void *data, size_t bytes)
{
    if (t->ctx->device.dry) return EBB_OK;
    if (ebb_tensor_is_contiguous(t))
        return ebb__device_copy(&t->ctx->device, ebb_tensor_data(t), data, bytes, EBB__TO_DEVICE, "write");
    ebb_arg to, from;
    ebb__host_view view;
    EBB__TRY(ebb__host_view_strided(&view, &to, t, EBB__VIEW_WRITE));
    contiguous_over(&from, t, (void *)(uintptr_t)data);
    ebb__host_arg_copy(&to, &from);
    return ebb__host_view_close(&view, EBB_OK);
}

ebb_status ebb_write(ebb_tensor *t, const void *data, size_t data_bytes)
{
    ebb_status st = may_change(t, "write", "ebb_from_data");
    if (st == EBB_OK) st = not_through_a_view(t, "write", "ebb_from_data");
    if (st == EBB_OK) st = check_bytes(t, data_bytes, "write");
    if (st != EBB_OK) return st;
    st = write_bytes(t, data, data_bytes);
    ebb__storage_bump(t->storage);
    return st;
}
