/* compress.c: savers that round.
 * bf16: the upper half of an f32, to nearest even: relative error at most 2^-8 within f32's range.
 * int8: blocks of 64 values x with s = max |x| / 127 in the tensor's dtype, each as round(x / s): error
 * at most s / 2, and a rounding of s. */
#include <math.h>

#include "checkpoint/pack.h"
#include "core/half.h"

enum { BLOCK = 64 };

static bool packs(ebb_dtype dtype) { return dtype == EBB_F32 || dtype == EBB_F64; }

/* ---- bf16 ---------------------------------------------------------------------------------- */

static size_t bf16_bytes(void *user, const ebb_arg *x)
{
    (void)user;
    return packs(x->dtype) ? (size_t)x->elems * 2 : SIZE_MAX;
}

static bool bf16_pack(void *user, const ebb_arg *x, void *packed)
{
    (void)user;
    uint16_t *to = packed;
    if (x->dtype == EBB_F32) {
        const float *from = x->data;
        for (int64_t i = 0; i < x->elems; i++) to[i] = ebb__f32_to_bf16(from[i]);
    } else {
        const double *from = x->data;
        for (int64_t i = 0; i < x->elems; i++) to[i] = ebb__f32_to_bf16((float)from[i]);
    }
    return true;
}

static ebb_status bf16_unpack(void *user, const ebb_arg *x, const void *packed)
{
    (void)user;
    const uint16_t *from = packed;
    if (x->dtype == EBB_F32) {
        float *to = x->data;
        for (int64_t i = 0; i < x->elems; i++) to[i] = ebb__bf16_to_f32(from[i]);
    } else {
        double *to = x->data;
        for (int64_t i = 0; i < x->elems; i++) to[i] = (double)ebb__bf16_to_f32(from[i]);
    }
    return EBB_OK;
}

const ebb_packer ebb__bf16_packer = { .name = "bf16", .packed_bytes = bf16_bytes, .pack = bf16_pack,
                                      .unpack = bf16_unpack };

/* ---- int8 ---------------------------------------------------------------------------------- */

static int64_t n_blocks(const ebb_arg *x) { return x->elems / BLOCK + (x->elems % BLOCK != 0); }

/* All scales first, then all values. */
static size_t int8_bytes(void *user, const ebb_arg *x)
{
    (void)user;
    return packs(x->dtype) ? (size_t)n_blocks(x) * ebb_dtype_bytes(x->dtype) + (size_t)x->elems : SIZE_MAX;
}

#define INT8(type, suffix, magnitude)                                                       \
    static void int8_pack_##suffix(const type *x, int64_t n, type *scale, int8_t *q)         \
    {                                                                                       \
        type most = 0;                                                                      \
        for (int64_t i = 0; i < n; i++) {                                                   \
            type size = magnitude(x[i]);                                                    \
            if (!(size <= most)) most = size; /* a NaN stays */                             \
            if (!(most < (type)INFINITY)) break;                                            \
        }                                                                                   \
        *scale = most < (type)INFINITY ? most / 127 : (type)NAN;                            \
        type per = *scale > 0 ? 1 / *scale : 0;                                             \
        if (!(per < (type)INFINITY)) per = 0, *scale = 0; /* below what a scale can say */   \
        for (int64_t i = 0; i < n; i++) {                                                   \
            type v = *scale > 0 ? x[i] * per : 0;                                           \
            q[i] = (int8_t)(v + (v < 0 ? (type)-0.5 : (type)0.5));                          \
        }                                                                                   \
    }                                                                                       \
    static void int8_all_##suffix(const ebb_arg *x, void *packed, bool back)                \
    {                                                                                       \
        type *scales = packed, *values = x->data;                                           \
        int8_t *q = (int8_t *)(scales + n_blocks(x));                                       \
        for (int64_t b = 0; b < n_blocks(x); b++) {                                         \
            int64_t at = b * BLOCK, n = x->elems - at < BLOCK ? x->elems - at : BLOCK;      \
            if (!back) int8_pack_##suffix(values + at, n, &scales[b], q + at);              \
            for (int64_t i = 0; i < n && back; i++) values[at + i] = scales[b] * (type)q[at + i]; \
        }                                                                                   \
    }
INT8(float, f32, fabsf)
INT8(double, f64, fabs)

static bool int8_pack(void *user, const ebb_arg *x, void *packed)
{
    (void)user;
    if (x->dtype == EBB_F32) int8_all_f32(x, packed, false);
    else int8_all_f64(x, packed, false);
    return true;
}

static ebb_status int8_unpack(void *user, const ebb_arg *x, const void *packed)
{
    (void)user;
    void *from = (void *)(uintptr_t)packed; /* only read */
    if (x->dtype == EBB_F32) int8_all_f32(x, from, true);
    else int8_all_f64(x, from, true);
    return EBB_OK;
}

const ebb_packer ebb__int8_packer = { .name = "int8", .packed_bytes = int8_bytes, .pack = int8_pack,
                                      .unpack = int8_unpack };
