/* ops/cuda/formulas.h: scalar functions and their slopes, in f32 and f64.  They are those of ops/vmath.h
 * and ops/op_unary.c, written for a device: an exponential and a quotient cost less there than tanh. */
#ifndef EBB_OPS_CUDA_FORMULAS_H
#define EBB_OPS_CUDA_FORMULAS_H

#include "ops/cuda/kernel.h"

EBB_DEVICE float ebb__exp(float x) { return expf(x); }
EBB_DEVICE double ebb__exp(double x) { return exp(x); }
EBB_DEVICE float ebb__tanh(float x) { return tanhf(x); }
EBB_DEVICE double ebb__tanh(double x) { return tanh(x); }
EBB_DEVICE float ebb__erf(float x) { return erff(x); }
EBB_DEVICE double ebb__erf(double x) { return erf(x); }
EBB_DEVICE float ebb__abs(float x) { return fabsf(x); }
EBB_DEVICE double ebb__abs(double x) { return fabs(x); }

/* The quotient to 2 ulp, for a divisor in [1, 2^126); beyond, 0. */
EBB_DEVICE float ebb__quotient(float x, float y) { return __fdividef(x, y); }
EBB_DEVICE double ebb__quotient(double x, double y) { return x / y; }

/* The exponential of a negative number: never overflows, and small results keep their accuracy. */
template <class C>
EBB_DEVICE C ebb__sigmoid(C x)
{
    C e = ebb__exp(-ebb__abs(x));
    return ebb__quotient(x < C(0) ? e : C(1), C(1) + e);
}

/* s + x s (1 - s), s = sigmoid(x) */
template <class C>
EBB_DEVICE C ebb__silu_slope(C x)
{
    C s = ebb__sigmoid(x);
    return s * (C(1) + x * (C(1) - s));
}

/* ---- gelu (Hendrycks and Gimpel, arXiv 1606.08415) ------------------------------------------ */

#define EBB__SQRT_HALF 0.70710678118654752440   /* sqrt(1/2) */
#define EBB__NORMAL_PEAK 0.39894228040143267794 /* 1 / sqrt(2 pi) */
#define EBB__GELU_A 0.79788456080286535588      /* sqrt(2 / pi) */
#define EBB__GELU_B 0.044715

/* x Phi(x); its slope is Phi(x) + x phi(x) */
template <class C>
EBB_DEVICE C ebb__gelu_erf(C x)
{
    return C(0.5) * x * (C(1) + ebb__erf(x * C(EBB__SQRT_HALF)));
}

template <class C>
EBB_DEVICE C ebb__gelu_erf_slope(C x)
{
    C cdf = C(0.5) * (C(1) + ebb__erf(x * C(EBB__SQRT_HALF)));
    return cdf + x * C(EBB__NORMAL_PEAK) * ebb__exp(C(-0.5) * x * x);
}

/* 0.5 x (1 + tanh u), u = a (x + b x^3).  As (1 + tanh u) / 2 = sigmoid(2u) = s this is x s; the slope
 * is s + 2 x s (1 - s) du/dx. */
template <class C>
EBB_DEVICE C ebb__gelu_tanh(C x)
{
    return x * ebb__sigmoid(C(2 * EBB__GELU_A) * (x + C(EBB__GELU_B) * x * x * x));
}

template <class C>
EBB_DEVICE C ebb__gelu_tanh_slope(C x)
{
    /* Beyond 16 s (1 - s) is 0, but x^2 could overflow. */
    C c = x > C(16) ? C(16) : (x < C(-16) ? C(-16) : x);
    C twice = C(2 * EBB__GELU_A) * (c + C(EBB__GELU_B) * c * c * c);
    C e = ebb__exp(-ebb__abs(twice)), large = ebb__quotient(C(1), C(1) + e), small = e * large;
    C rise = C(EBB__GELU_A) * (C(1) + C(3 * EBB__GELU_B) * c * c);
    return (twice < C(0) ? small : large) + C(2) * c * large * small * rise;
}

#endif
