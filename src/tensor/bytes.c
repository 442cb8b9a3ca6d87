/* bytes.c: copying, adding and filling over shapes with strides. */
#include <string.h>

#include "core/assert.h"
#include "core/half.h"
#include "tensor/tensor.h"

/* Advances `index` over all axes but the last; false at the end.  Offsets follow by strides. */
typedef struct walk { int64_t index[EBB_MAX_DIMS], to, from; } walk;

static bool step(walk *w, const ebb_arg *to, const ebb_arg *from)
{
    for (int i = to->ndim - 2; i >= 0; i--) {
        w->to += to->strides[i];
        w->from += from->strides[i];
        if (++w->index[i] < to->dims[i]) return true;
        w->to -= to->strides[i] * to->dims[i];
        w->from -= from->strides[i] * to->dims[i];
        w->index[i] = 0;
    }
    return false;
}

static void copy_row(char *to, int64_t to_stride, const char *from, int64_t from_stride, int64_t n, size_t bytes)
{
    if (to_stride == 1 && from_stride == 1) {
        memcpy(to, from, (size_t)n * bytes);
        return;
    }
    for (int64_t i = 0; i < n; i++)
        memcpy(to + i * to_stride * (int64_t)bytes, from + i * from_stride * (int64_t)bytes, bytes);
}

void ebb__host_arg_copy(const ebb_arg *to, const ebb_arg *from)
{
    if (!to->elems) return;
    size_t bytes = ebb_dtype_bytes(to->dtype);
    if (ebb_arg_is_contiguous(to) && ebb_arg_is_contiguous(from)) {
        memcpy(to->data, from->data, (size_t)to->elems * bytes);
        return;
    }
    int last = to->ndim - 1; /* ndim 0 is contiguous */
    walk w = { { 0 }, 0, 0 };
    do {
        copy_row((char *)to->data + w.to * (int64_t)bytes, to->strides[last],
                 (const char *)from->data + w.from * (int64_t)bytes, from->strides[last], to->dims[last], bytes);
    } while (step(&w, to, from));
}

static void add_one(ebb_dtype dtype, char *to, const char *from)
{
    switch (dtype) {
    case EBB_F32: *(float *)(void *)to += *(const float *)(const void *)from; break;
    case EBB_F64: *(double *)(void *)to += *(const double *)(const void *)from; break;
    case EBB_F16: {
        uint16_t *h = (uint16_t *)(void *)to;
        *h = ebb__f32_to_f16(ebb__f16_to_f32(*h) + ebb__f16_to_f32(*(const uint16_t *)(const void *)from));
        break;
    }
    case EBB_BF16: {
        uint16_t *h = (uint16_t *)(void *)to;
        *h = ebb__f32_to_bf16(ebb__bf16_to_f32(*h) + ebb__bf16_to_f32(*(const uint16_t *)(const void *)from));
        break;
    }
    default: EBB_ASSERT(!"gradients are floats");
    }
}

void ebb__host_arg_add(const ebb_arg *to, const ebb_arg *from)
{
    int64_t bytes = (int64_t)ebb_dtype_bytes(to->dtype);
    if (to->dtype == EBB_F32 && ebb_arg_is_contiguous(to) && ebb_arg_is_contiguous(from)) {
        float *y = to->data;
        const float *x = from->data;
        for (int64_t i = 0; i < to->elems; i++) y[i] += x[i];
        return;
    }
    int last = to->ndim - 1;
    int64_t n = to->ndim ? to->dims[last] : 1, to_stride = to->ndim ? to->strides[last] : 1;
    int64_t from_stride = to->ndim ? from->strides[last] : 1;
    walk w = { { 0 }, 0, 0 };
    do {
        for (int64_t i = 0; i < n; i++)
            add_one(to->dtype, (char *)to->data + (w.to + i * to_stride) * bytes,
                    (const char *)from->data + (w.from + i * from_stride) * bytes);
    } while (step(&w, to, from));
}

static void value_bits(ebb_dtype dtype, double value, void *out)
{
    float f = (float)value;
    uint16_t h;
    int32_t i32;
    int64_t i64;
    uint8_t u8;
    switch (dtype) {
    case EBB_F32: memcpy(out, &f, 4); break;
    case EBB_F64: memcpy(out, &value, 8); break;
    case EBB_F16: h = ebb__f32_to_f16(f); memcpy(out, &h, 2); break;
    case EBB_BF16: h = ebb__f32_to_bf16(f); memcpy(out, &h, 2); break;
    case EBB_I32: i32 = (int32_t)value; memcpy(out, &i32, 4); break;
    case EBB_I64: i64 = (int64_t)value; memcpy(out, &i64, 8); break;
    default: u8 = (uint8_t)value; memcpy(out, &u8, 1); break;
    }
}

void ebb__host_arg_fill(const ebb_arg *to, double value)
{
    size_t bytes = ebb_dtype_bytes(to->dtype);
    char one[8] = { 0 };
    value_bits(to->dtype, value, one);
    static const char zero[8];
    if (ebb_arg_is_contiguous(to) && memcmp(one, zero, bytes) == 0) {
        memset(to->data, 0, (size_t)to->elems * bytes);
        return;
    }
    ebb_arg same = *to; /* every element reads the one value */
    same.data = one;
    memset(same.strides, 0, sizeof same.strides);
    if (!to->ndim) memcpy(to->data, one, bytes);
    else {
        walk w = { { 0 }, 0, 0 };
        int last = to->ndim - 1;
        do {
            copy_row((char *)to->data + w.to * (int64_t)bytes, to->strides[last], one, 0, to->dims[last], bytes);
        } while (step(&w, to, &same));
    }
}

/* ---- wherever the bytes are --------------------------------------------------------------- */

/* Errors say what it was for, and in which scope. */
static ebb_status doing(const ebb_context *ctx, const char *what, ebb_status st)
{
    st = ebb__device_doing(what, st);
    return ctx->scope ? ebb__device_doing(ctx->scope, st) : st;
}

ebb_status ebb__arg_copy(const ebb_context *ctx, const ebb_arg *to, const ebb_arg *from, const char *what)
{
    const ebb__accelerator *accel = ctx->device.accel;
    EBB_ASSERT(to->dtype == from->dtype && to->elems == from->elems);
    if (ctx->device.dry || !to->elems) return EBB_OK;
    if (accel) return doing(ctx, what, accel->table->arg_copy(accel->self, to, from));
    ebb__host_arg_copy(to, from);
    return EBB_OK;
}

ebb_status ebb__arg_add(const ebb_context *ctx, const ebb_arg *to, const ebb_arg *from, const char *what)
{
    const ebb__accelerator *accel = ctx->device.accel;
    EBB_ASSERT(to->dtype == from->dtype && to->elems == from->elems);
    if (ctx->device.dry || !to->elems) return EBB_OK;
    if (accel) return doing(ctx, what, accel->table->arg_add(accel->self, to, from));
    ebb__host_arg_add(to, from);
    return EBB_OK;
}

ebb_status ebb__arg_fill(const ebb_context *ctx, const ebb_arg *to, double value, const char *what)
{
    const ebb__accelerator *accel = ctx->device.accel;
    if (ctx->device.dry || !to->elems) return EBB_OK;
    if (accel) return doing(ctx, what, accel->table->fill(accel->self, to, value));
    ebb__host_arg_fill(to, value);
    return EBB_OK;
}
