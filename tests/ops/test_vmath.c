/* ops/test_vmath.c: the branch-free functions against libm in f64, over all exponents. */
#include <criterion/criterion.h>
#include <math.h>
#include "ops/vmath.h"

enum { LANES = 1024, STEP = 9973 }; /* every 9973rd of the 2^32 floats */

/* Errors in units of the last place of the right result. */
static double error_ulp(float got, double want)
{
    float rounded = (float)want;
    if (isnan(want)) return isnan(got) ? 0 : INFINITY;
    if (isinf(rounded) || isinf(got)) return got == rounded ? 0 : INFINITY;
    double ulp = want == 0 ? 0x1p-149 : fmax(0x1p-149, ldexp(1, ilogb(want) - 23));
    return fabs((double)got - want) / ulp;
}

#define CHECK(name, fast, exact, allowed)                                                        \
    Test(vmath, name)                                                                            \
    {                                                                                            \
        static float x[LANES], y[LANES];                                                         \
        for (uint64_t bits = 0; bits < UINT64_C(1) << 32; bits += (uint64_t)LANES * STEP) {      \
            for (int i = 0; i < LANES; i++)                                                      \
                x[i] = ebb__bits_f32((uint32_t)(bits + (uint64_t)i * STEP));                     \
            for (int i = 0; i < LANES; i++) y[i] = fast(x[i]);                                   \
            for (int i = 0; i < LANES; i++) {                                                    \
                double e = error_ulp(y[i], exact((double)x[i]));                                 \
                cr_assert(e <= (allowed), "%a gives %a: %g ulp", (double)x[i], (double)y[i], e); \
            }                                                                                    \
        }                                                                                        \
    }

CHECK(exp_is_within_its_error, ebb__expf, exp, 1.2)
CHECK(log_is_within_its_error, ebb__logf, log, 2.2)
CHECK(tanh_is_within_its_error, ebb__tanhf, tanh, 2.8)
CHECK(erf_is_within_its_error, ebb__erff, erf, 2.0)
CHECK(sigmoid_is_within_its_error, ebb__sigmoidf, ebb__sigmoid, 2.8)

Test(vmath, limits_are_those_of_libm)
{
    cr_assert(ebb__expf(INFINITY) == INFINITY && ebb__expf(-INFINITY) == 0);
    cr_assert(isnan(ebb__expf(NAN)));
    cr_assert(ebb__logf(0) == -INFINITY && ebb__logf(INFINITY) == INFINITY && isnan(ebb__logf(-1)));
    cr_assert(isnan(ebb__logf(NAN)) && ebb__logf(1) == 0 && ebb__expf(0) == 1);
    cr_assert(ebb__tanhf(INFINITY) == 1 && ebb__tanhf(-INFINITY) == -1 && isnan(ebb__tanhf(NAN)));
    cr_assert(signbit(ebb__tanhf(-0.0f)) && signbit(ebb__erff(-0.0f)));
    cr_assert(ebb__erff(INFINITY) == 1 && ebb__erff(-INFINITY) == -1 && isnan(ebb__erff(NAN)));
    cr_assert(ebb__sigmoidf(INFINITY) == 1 && ebb__sigmoidf(-INFINITY) == 0);
    cr_assert(isnan(ebb__sigmoidf(NAN)));
}

Test(vmath, a_result_does_not_depend_on_the_lane)
{
    float x[67], y[67];
    for (int i = 0; i < 67; i++) x[i] = 1.2345f;
    for (int i = 0; i < 67; i++) y[i] = ebb__tanhf(x[i]) + ebb__erff(x[i]) * ebb__expf(x[i]);
    for (int i = 1; i < 67; i++) cr_assert(y[i] == y[0], "lane %d", i);
}
