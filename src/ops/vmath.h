/* ops/vmath.h: exp, log, tanh, erf, sigmoid without branches, so that loops over them vectorise.
 * f32: largest error about 2 ulp (erf, log) to 3 ulp (tanh, sigmoid) over all floats, tested.  NaN
 * gives NaN; infinities, overflow and underflow (subnormals included) give what libm gives.  An
 * element's result does not depend on where in a vector it stands: every step is one rounded
 * operation, fused only where EBB__FMAF says so.
 * f64: libm; that dtype is for checking, not for speed. */
#ifndef EBB_OPS_VMATH_H
#define EBB_OPS_VMATH_H

#include <math.h>
#include <stdbool.h>
#include "core/half.h"

#if defined(__FP_FAST_FMAF) || defined(__FMA__)
#define EBB__FMAF(a, b, c) __builtin_fmaf((a), (b), (c))
#else
#define EBB__FMAF(a, b, c) ((a) * (b) + (c))
#endif

/* x = n ln2 + r with |r| <= ln2 / 2: r goes back, n into *n.  Adding 1.5 * 2^23 rounds to an
 * integer, which then stands in the low bits; a NaN gives some n and r = NaN. */
static inline float ebb__reduce_ln2f(float x, int32_t *n)
{
    float shifted = EBB__FMAF(x, 1.44269504f, 12582912.0f);
    float whole = shifted - 12582912.0f;
    *n = (int32_t)(ebb__f32_bits(shifted) - 0x4B400000u);
    float r = EBB__FMAF(whole, -0.693359375f, x); /* ln2 in two parts; the first has few bits */
    return EBB__FMAF(whole, 2.12194440e-4f, r);
}

/* (exp(r) - 1 - r) / r^2 on |r| <= 0.3475: Chebyshev fit, error 6.6e-8. */
static inline float ebb__exp_tailf(float r)
{
    float q = 1.3926376e-3f;
    q = EBB__FMAF(q, r, 8.363333082e-3f);
    q = EBB__FMAF(q, r, 4.166655346e-2f);
    q = EBB__FMAF(q, r, 1.666657606e-1f);
    return EBB__FMAF(q, r, 0.5f);
}

/* 2^n for n in [-126, 127]. */
static inline float ebb__pow2f(int32_t n) { return ebb__bits_f32(((uint32_t)n + 127u) << 23); }

static inline float ebb__expf(float x)
{
    x = x > 89.0f ? 89.0f : x; /* beyond: inf and 0 all the same; comparisons let NaN through */
    x = x < -104.0f ? -104.0f : x;
    int32_t n;
    float r = ebb__reduce_ln2f(x, &n);
    float p = EBB__FMAF(r * r, ebb__exp_tailf(r), r) + 1.0f;
    int32_t half = n >> 1; /* 2^n in two factors: n reaches 128 and -150 */
    return p * ebb__pow2f(half) * ebb__pow2f(n - half);
}

/* e / (e + 2) with e = exp(2|x|) - 1, which keeps its relative accuracy near 0. */
static inline float ebb__tanhf(float x)
{
    float a = fabsf(x);
    a = a > 10.0f ? 10.0f : a; /* tanh is 1 in f32 from 9.02 on */
    int32_t n;
    float r = ebb__reduce_ln2f(a + a, &n);
    float p = EBB__FMAF(r * r, ebb__exp_tailf(r), r);
    float scale = ebb__pow2f(n);
    float e = EBB__FMAF(scale, p, scale - 1.0f);
    return copysignf(e / (e + 2.0f), x);
}

static inline float ebb__sigmoidf(float x)
{
    float e = ebb__expf(-fabsf(x)); /* never overflows, and small results keep their accuracy */
    return (x < 0.0f ? e : 1.0f) / (1.0f + e);
}

/* |x| <= 1: x + x * poly(x^2); beyond: 1 - exp(poly(|x|)), the fit of log(erfc) on [0.98, 4]. */
static inline float ebb__erff(float x)
{
    float u = x * x;
    float s = 7.875875063e-5f;
    s = EBB__FMAF(s, u, -8.016864287e-4f);
    s = EBB__FMAF(s, u, 5.189087423e-3f);
    s = EBB__FMAF(s, u, -2.685421201e-2f);
    s = EBB__FMAF(s, u, 1.128359472e-1f);
    s = EBB__FMAF(s, u, -3.761262667e-1f);
    s = EBB__FMAF(s, u, 1.283791658e-1f);
    float small = EBB__FMAF(x, s, x);

    float a = fabsf(x);
    float t = (a > 4.0f ? 4.0f : a) - 2.0f; /* erf is 1 in f32 from 3.92 on */
    float g = 1.639938016e-6f;
    g = EBB__FMAF(g, t, -1.987390564e-5f);
    g = EBB__FMAF(g, t, 1.353566963e-4f);
    g = EBB__FMAF(g, t, -7.333365748e-4f);
    g = EBB__FMAF(g, t, 3.570852087e-3f);
    g = EBB__FMAF(g, t, -1.646469028e-2f);
    g = EBB__FMAF(g, t, -9.23750858e-1f);
    g = EBB__FMAF(g, t, -4.418160865f);
    g = EBB__FMAF(g, t, -5.364941266f);
    float large = copysignf(1.0f - ebb__expf(g), x);
    return a < 1.0f ? small : large; /* a NaN goes through `large` */
}

/* x = 2^n m with m in [sqrt(1/2), sqrt(2)); log m = 2 artanh(s), s = (m - 1) / (m + 1). */
static inline float ebb__logf(float x)
{
    bool tiny = x < 0x1p-126f;
    float scaled = tiny ? x * 0x1p23f : x;
    uint32_t bits = ebb__f32_bits(scaled);
    uint32_t shifted = bits - 0x3F3504F3u; /* bits of sqrt(1/2) */
    int32_t n = (int32_t)shifted >> 23;
    float m = ebb__bits_f32((shifted & 0x007FFFFFu) + 0x3F3504F3u);
    float e = (float)(tiny ? n - 23 : n);
    float f = m - 1.0f;
    float s = f / (m + 1.0f);
    float v = s * s;
    float q = 0.2222222222f;
    q = EBB__FMAF(q, v, 0.2857142857f);
    q = EBB__FMAF(q, v, 0.4f);
    q = EBB__FMAF(q, v, 0.6666666667f);
    float low = EBB__FMAF(s * v, q, e * -2.12194440e-4f);
    float y = EBB__FMAF(e, 0.693359375f, 2.0f * s + low);
    y = x < 0.0f ? NAN : y;
    y = x == 0.0f ? -INFINITY : y;
    return x < INFINITY ? y : x; /* inf and NaN stay */
}

static inline double ebb__exp(double x) { return exp(x); }
static inline double ebb__log(double x) { return log(x); }
static inline double ebb__tanh(double x) { return tanh(x); }
static inline double ebb__erf(double x) { return erf(x); }
static inline double ebb__sigmoid(double x)
{
    double e = exp(-fabs(x));
    return (x < 0.0 ? e : 1.0) / (1.0 + e);
}

#endif
