/* Widening and narrowing of half-precision operands. */
#include "ops/halves.h"

#include "core/half.h"

enum { GRAIN = 1 << 14 }; /* elements per range */

ebb_status ebb__require_float_dtype(const ebb_call *call, int i)
{
    ebb_dtype dtype = call->in[i].dtype;
    if (ebb_dtype_is_float(dtype)) return EBB_OK;
    return ebb_fail(EBB_EDTYPE, "%s: input %d is %s; it must be f32, f64, f16 or bf16", call->op->name, i,
                    ebb_dtype_name(dtype));
}

void ebb__halves_widen_row(float *to, const void *from, ebb_dtype dtype, int64_t n)
{
    const uint16_t *half = from;
    if (dtype == EBB_F16) {
        for (int64_t i = 0; i < n; i++) to[i] = ebb__f16_to_f32(half[i]);
    } else {
        for (int64_t i = 0; i < n; i++) to[i] = ebb__bf16_to_f32(half[i]);
    }
}

void ebb__halves_narrow_row(void *to, const float *from, ebb_dtype dtype, int64_t n)
{
    uint16_t *half = to;
    if (dtype == EBB_F16) {
        for (int64_t i = 0; i < n; i++) half[i] = ebb__f32_to_f16(from[i]);
    } else {
        for (int64_t i = 0; i < n; i++) half[i] = ebb__f32_to_bf16(from[i]);
    }
}

typedef struct conversion {
    float *wide;
    uint16_t *half;
    ebb_dtype dtype;
} conversion;

static void widen_range(void *arg, int64_t begin, int64_t end, int thread)
{
    (void)thread;
    const conversion *c = arg;
    ebb__halves_widen_row(c->wide + begin, c->half + begin, c->dtype, end - begin);
}

static void narrow_range(void *arg, int64_t begin, int64_t end, int thread)
{
    (void)thread;
    const conversion *c = arg;
    ebb__halves_narrow_row(c->half + begin, c->wide + begin, c->dtype, end - begin);
}

void ebb__halves_widen(const ebb_call *call, float *to, const void *from, ebb_dtype dtype, int64_t n)
{
    conversion c = { .wide = to, .half = (uint16_t *)(uintptr_t)from, .dtype = dtype };
    ebb_parallel(call, n, GRAIN, widen_range, &c);
}

void ebb__halves_narrow(const ebb_call *call, void *to, const float *from, ebb_dtype dtype, int64_t n)
{
    conversion c = { .wide = (float *)(uintptr_t)from, .half = to, .dtype = dtype };
    ebb_parallel(call, n, GRAIN, narrow_range, &c);
}
