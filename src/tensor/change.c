/* change.c: reading values, and changing data in place. */
#include <string.h>

#include "core/half.h"
#include "core/mem.h"
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
    ebb_arg from, to;
    ebb__tensor_arg(t, &from);
    contiguous_over(&to, t, data);
    ebb__arg_copy(t->ctx, &to, &from);
    return EBB_OK;
}

ebb_status ebb_item(const ebb_tensor *t, double *out)
{
    char shape[96];
    if (t->elems != 1)
        return ebb_fail(EBB_ESHAPE, "item: %s has %lld elements, not 1", ebb_tensor_describe(t, shape, sizeof shape),
                        (long long)t->elems);
    const void *p = ebb_tensor_data(t);
    if (!p) {
        *out = 0;
        return EBB_OK;
    }
    uint16_t h;
    switch (t->dtype) {
    case EBB_F32: { float x; memcpy(&x, p, 4); *out = (double)x; break; }
    case EBB_F64: memcpy(out, p, 8); break;
    case EBB_F16: memcpy(&h, p, 2); *out = (double)ebb__f16_to_f32(h); break;
    case EBB_BF16: memcpy(&h, p, 2); *out = (double)ebb__bf16_to_f32(h); break;
    case EBB_I32: { int32_t x; memcpy(&x, p, 4); *out = x; break; }
    case EBB_I64: { int64_t x; memcpy(&x, p, 8); *out = (double)x; break; }
    default: *out = *(const uint8_t *)p; break;
    }
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
    ebb__arg_fill(t->ctx, &arg, value);
    ebb__storage_bump(t->storage);
    return EBB_OK;
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
    if (t->storage != from->storage) ebb__arg_copy(t->ctx, &to, &source);
    ebb__storage_bump(t->storage);
    return EBB_OK;
}

ebb_status ebb_write(ebb_tensor *t, const void *data, size_t data_bytes)
{
    ebb_status st = may_change(t, "write", "ebb_from_data");
    if (st == EBB_OK) st = not_through_a_view(t, "write", "ebb_from_data");
    if (st == EBB_OK) st = check_bytes(t, data_bytes, "write");
    if (st != EBB_OK) return st;
    ebb_arg to, from;
    ebb__tensor_arg(t, &to);
    contiguous_over(&from, t, (void *)(uintptr_t)data);
    ebb__arg_copy(t->ctx, &to, &from);
    ebb__storage_bump(t->storage);
    return EBB_OK;
}
