/* ops/lanes.c: loading, storing and folding short runs of elements. */
#include "ops/lanes.h"

#include <math.h>
#ifdef __F16C__
#include <immintrin.h>
#endif
#include "core/assert.h"
#include "core/half.h"

static void read_f32(float *restrict to, const float *restrict from, int64_t stride, int64_t n)
{
    if (stride == 0) {
        for (int64_t i = 0; i < n; i++) to[i] = from[0];
    } else {
        for (int64_t i = 0; i < n; i++) to[i] = from[i * stride];
    }
}

static void read_f64(double *restrict to, const double *restrict from, int64_t stride, int64_t n)
{
    for (int64_t i = 0; i < n; i++) to[i] = from[i * stride];
}

/* gcc 12 does not vectorise conversions of _Float16 by itself. */
static void read_f16_run(float *restrict to, const uint16_t *restrict from, int64_t n)
{
    int64_t i = 0;
#ifdef __F16C__
    for (; i + 8 <= n; i += 8) {
        _mm256_storeu_ps(
            to + i, _mm256_cvtph_ps(_mm_loadu_si128((const __m128i *)(const void *)(from + i))));
    }
#endif
    for (; i < n; i++) to[i] = ebb__f16_to_f32(from[i]);
}

static void write_f16_run(uint16_t *restrict to, const float *restrict from, int64_t n)
{
    int64_t i = 0;
#ifdef __F16C__
    for (; i + 8 <= n; i += 8) {
        _mm_storeu_si128((__m128i *)(void *)(to + i),
                         _mm256_cvtps_ph(_mm256_loadu_ps(from + i), _MM_FROUND_TO_NEAREST_INT));
    }
#endif
    for (; i < n; i++) to[i] = ebb__f32_to_f16(from[i]);
}

static void write_bf16_run(uint16_t *restrict to, const float *restrict from, int64_t n)
{
    for (int64_t i = 0; i < n; i++) to[i] = ebb__f32_to_bf16(from[i]);
}

static void read_f16(float *restrict to, const uint16_t *restrict from, int64_t stride, int64_t n)
{
    if (stride == 1) {
        read_f16_run(to, from, n);
    } else {
        for (int64_t i = 0; i < n; i++) to[i] = ebb__f16_to_f32(from[i * stride]);
    }
}

static void read_bf16(float *restrict to, const uint16_t *restrict from, int64_t stride, int64_t n)
{
    if (stride == 1) {
        for (int64_t i = 0; i < n; i++) to[i] = ebb__bf16_to_f32(from[i]);
    } else {
        for (int64_t i = 0; i < n; i++) to[i] = ebb__bf16_to_f32(from[i * stride]);
    }
}

const void *ebb__lanes_read(ebb_dtype dtype, const void *data, int64_t offset, int64_t stride,
                            int64_t n, ebb__lanes *buf)
{
    if (stride == 1 && dtype == EBB_F32) return (const float *)data + offset;
    if (stride == 1 && dtype == EBB_F64) return (const double *)data + offset;
    EBB_ASSERT(n <= EBB__LANES);
    switch (dtype) {
    case EBB_F32: read_f32(buf->f32, (const float *)data + offset, stride, n); break;
    case EBB_F64: read_f64(buf->f64, (const double *)data + offset, stride, n); break;
    case EBB_F16: read_f16(buf->f32, (const uint16_t *)data + offset, stride, n); break;
    case EBB_BF16: read_bf16(buf->f32, (const uint16_t *)data + offset, stride, n); break;
    default: EBB_ASSERT(!"a float dtype");
    }
    return buf;
}

void ebb__lanes_write(ebb_dtype dtype, void *data, int64_t offset, int64_t stride, int64_t n,
                      const void *lanes)
{
    const float *from = lanes;
    if (dtype == EBB_F64) {
        double *to = (double *)data + offset;
        if ((const void *)to == lanes) return;
        for (int64_t i = 0; i < n; i++) to[i * stride] = ((const double *)lanes)[i];
    } else if (dtype == EBB_F32) {
        float *to = (float *)data + offset;
        if ((const void *)to == lanes) return;
        for (int64_t i = 0; i < n; i++) to[i * stride] = from[i];
    } else if (dtype == EBB_F16) {
        uint16_t *to = (uint16_t *)data + offset;
        if (stride == 1)
            write_f16_run(to, from, n);
        else
            for (int64_t i = 0; i < n; i++) to[i * stride] = ebb__f32_to_f16(from[i]);
    } else {
        EBB_ASSERT(dtype == EBB_BF16);
        uint16_t *to = (uint16_t *)data + offset;
        if (stride == 1)
            write_bf16_run(to, from, n);
        else
            for (int64_t i = 0; i < n; i++) to[i * stride] = ebb__f32_to_bf16(from[i]);
    }
}

enum { WAYS = 16 };

static double fold(double *sums)
{
    for (int half = WAYS / 2; half > 0; half /= 2) {
        for (int j = 0; j < half; j++) sums[j] += sums[j + half];
    }
    return sums[0];
}

static double sum_f32(const float *x, int64_t n)
{
    double sums[WAYS] = { 0 };
    int64_t i = 0;
    for (; i + WAYS <= n; i += WAYS) {
        for (int j = 0; j < WAYS; j++) sums[j] += (double)x[i + j];
    }
    for (int j = 0; i < n; i++, j++) sums[j] += (double)x[i];
    return fold(sums);
}

static double sum_f64(const double *x, int64_t n)
{
    double sums[WAYS] = { 0 };
    int64_t i = 0;
    for (; i + WAYS <= n; i += WAYS) {
        for (int j = 0; j < WAYS; j++) sums[j] += x[i + j];
    }
    for (int j = 0; i < n; i++, j++) sums[j] += x[i];
    return fold(sums);
}

double ebb__lanes_sum(ebb_dtype dtype, const void *lanes, int64_t n)
{
    return dtype == EBB_F64 ? sum_f64(lanes, n) : sum_f32(lanes, n);
}

static double dot_f32(const float *x, const float *y, int64_t n)
{
    double sums[WAYS] = { 0 };
    int64_t i = 0;
    for (; i + WAYS <= n; i += WAYS) {
        for (int j = 0; j < WAYS; j++) sums[j] += (double)x[i + j] * (double)y[i + j];
    }
    for (int j = 0; i < n; i++, j++) sums[j] += (double)x[i] * (double)y[i];
    return fold(sums);
}

static double dot_f64(const double *x, const double *y, int64_t n)
{
    double sums[WAYS] = { 0 };
    int64_t i = 0;
    for (; i + WAYS <= n; i += WAYS) {
        for (int j = 0; j < WAYS; j++) sums[j] += x[i + j] * y[i + j];
    }
    for (int j = 0; i < n; i++, j++) sums[j] += x[i] * y[i];
    return fold(sums);
}

double ebb__lanes_dot(ebb_dtype dtype, const void *a, const void *b, int64_t n)
{
    return dtype == EBB_F64 ? dot_f64(a, b, n) : dot_f32(a, b, n);
}

void ebb__lanes_add(double *restrict sums, ebb_dtype dtype, const void *lanes, int64_t n)
{
    if (dtype == EBB_F64) {
        const double *x = lanes;
        for (int64_t i = 0; i < n; i++) sums[i] += x[i];
    } else {
        const float *x = lanes;
        for (int64_t i = 0; i < n; i++) sums[i] += (double)x[i];
    }
}

static double max_f32(const float *x, int64_t n)
{
    float best[WAYS];
    for (int j = 0; j < WAYS; j++) best[j] = -INFINITY;
    int64_t i = 0;
    for (; i + WAYS <= n; i += WAYS) {
        for (int j = 0; j < WAYS; j++) best[j] = x[i + j] > best[j] ? x[i + j] : best[j];
    }
    float top = -INFINITY;
    for (; i < n; i++) top = x[i] > top ? x[i] : top;
    for (int j = 0; j < WAYS; j++) top = best[j] > top ? best[j] : top;
    return (double)top;
}

static double max_f64(const double *x, int64_t n)
{
    double top = -INFINITY;
    for (int64_t i = 0; i < n; i++) top = x[i] > top ? x[i] : top;
    return top;
}

double ebb__lanes_max(ebb_dtype dtype, const void *lanes, int64_t n)
{
    return dtype == EBB_F64 ? max_f64(lanes, n) : max_f32(lanes, n);
}
