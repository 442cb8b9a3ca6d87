/* ops/test_values.c: values worked out by hand or in f64 elsewhere, through the public calls;
 * faults that users of other engines met. */
#include "core/half.h"
#include "support/support.h"
#include <ebb/ebb.h>
#include <math.h>
#include <stdlib.h>

#define DIMS(...)                                                                                  \
    (int)(sizeof((int64_t[]){ __VA_ARGS__ }) / sizeof(int64_t)), (int64_t[]) { __VA_ARGS__ }

/* All elements of a float tensor as f64; at most 64. */
static const double *values(ebb_tensor *t)
{
    static double out[64];
    static float f32[64];
    static uint16_t half[64];
    size_t n = (size_t)ebb_tensor_elems(t);
    cr_assert(n <= 64);
    switch (ebb_tensor_dtype(t)) {
    case EBB_F64: check_ok(ebb_read(t, out, n * 8)); return out;
    case EBB_F32: check_ok(ebb_read(t, f32, n * 4)); break;
    case EBB_F16:
        check_ok(ebb_read(t, half, n * 2));
        for (size_t i = 0; i < n; i++) f32[i] = ebb__f16_to_f32(half[i]);
        break;
    default:
        check_ok(ebb_read(t, half, n * 2));
        for (size_t i = 0; i < n; i++) f32[i] = ebb__bf16_to_f32(half[i]);
    }
    for (size_t i = 0; i < n; i++) out[i] = (double)f32[i];
    return out;
}

static void check_values(ebb_tensor *t, int n, const double *want, double tolerance)
{
    cr_assert_not_null(t);
    cr_assert(ebb_tensor_elems(t) == n, "%lld elements, not %d", (long long)ebb_tensor_elems(t), n);
    const double *got = values(t);
    for (int i = 0; i < n; i++) {
        cr_assert(fabs(got[i] - want[i]) <= tolerance, "element %d is %.9g, not %.9g", i, got[i],
                  want[i]);
    }
}
#define check_elements(t, tolerance, ...)                                                          \
    check_values(t, (int)(sizeof((double[]){ __VA_ARGS__ }) / sizeof(double)),                     \
                 (double[]){ __VA_ARGS__ }, tolerance)

static void check_shape(ebb_tensor *t, int ndim, const int64_t *dims)
{
    cr_assert_eq(ebb_tensor_ndim(t), ndim);
    for (int d = 0; d < ndim; d++) cr_assert_eq(ebb_tensor_dims(t)[d], dims[d]);
}

static void make(ebb_tensor **out, ebb_context *ctx, int ndim, const int64_t *dims,
                 const float *data)
{
    check_ok(ebb_from_data(out, ctx, EBB_F32, ndim, dims, data));
}

static void make_leaf(ebb_tensor **out, ebb_context *ctx, int ndim, const int64_t *dims,
                      const float *data)
{
    make(out, ctx, ndim, dims, data);
    check_ok(ebb_set_requires_grad(*out, true));
}

/* ---- half precision sums (mlx 3909, executorch 20090) --------------------------------------- */

Test(values, sums_of_many_halves_do_not_saturate)
{
    with_context(ctx)
    {
        EBB_LOCAL(ones);
        EBB_LOCAL(y);
        check_ok(ebb_full(&ones, ctx, EBB_F16, DIMS(20000), 1.0));
        check_ok(ebb_sum(&y, ones, 0, NULL, false));
        check_elements(y, 0, 20000);
        check_ok(ebb_full(&ones, ctx, EBB_BF16, DIMS(70000), 1.0));
        check_ok(ebb_sum(&y, ones, 0, NULL, false));
        check_elements(y, 0, 70144);
        check_ok(ebb_mean(&y, ones, 0, NULL, false));
        check_elements(y, 0, 1);
    }
}

Test(values, a_broadcast_gradient_of_many_halves_adds_onto_what_is_there)
{
    with_context(ctx)
    {
        EBB_LOCAL(bias);
        EBB_LOCAL(rows);
        EBB_LOCAL(y);
        EBB_LOCAL(dy);
        EBB_LOCAL(one);
        check_ok(ebb_zeros(&bias, ctx, EBB_F16, DIMS(1)));
        check_ok(ebb_set_requires_grad(bias, true));
        check_ok(ebb_full(&one, ctx, EBB_F16, DIMS(1), 1.0));
        check_ok(ebb_set_grad(bias, one));
        check_ok(ebb_zeros(&rows, ctx, EBB_F16, DIMS(12500, 1)));
        check_ok(ebb_full(&dy, ctx, EBB_F16, DIMS(12500, 1), 0.01));
        check_ok(ebb_add(&y, rows, bias));
        ebb_backward_options options = { .struct_bytes = sizeof options,
                                         .grads = (ebb_tensor *[]){ dy } };
        check_ok(ebb_backward_ex((ebb_tensor *[]){ y }, 1, &options));
        check_elements(ebb_grad(bias), 0, 126);
    }
}

/* ---- the two gelus (pocket-tts 278) -------------------------------------------------------- */

static void check_gelu(ebb_context *ctx, ebb_gelu_kind kind, const double *y_want,
                       const double *dx_want)
{
    EBB_LOCAL(x);
    EBB_LOCAL(y);
    EBB_LOCAL(loss);
    make_leaf(&x, ctx, DIMS(3), (float[]){ 1, -2, 3 });
    check_ok(ebb_gelu(&y, x, kind));
    check_values(y, 3, y_want, 1e-6);
    check_ok(ebb_sum(&loss, y, 0, NULL, false));
    check_ok(ebb_backward(loss));
    check_values(ebb_grad(x), 3, dx_want, 1e-6);
}

Test(values, the_two_gelus_are_what_they_say)
{
    with_context(ctx)
    {
        check_gelu(ctx, EBB_GELU_ERF, (double[]){ .841345, -.045500, 2.995950 },
                   (double[]){ 1.083315, -.085232, 1.011946 });
        check_gelu(ctx, EBB_GELU_TANH, (double[]){ .841192, -.045402, 2.996363 },
                   (double[]){ 1.082964, -.086099, 1.011584 });
    }
}

Test(values, gelu_and_its_slope_stay_finite_for_large_inputs)
{
    with_context(ctx)
    {
        for (int kind = 0; kind < 2; kind++) {
            EBB_LOCAL(x);
            EBB_LOCAL(y);
            EBB_LOCAL(loss);
            make_leaf(&x, ctx, DIMS(4), (float[]){ 1e20f, -1e20f, 50, -50 });
            check_ok(ebb_gelu(&y, x, kind ? EBB_GELU_TANH : EBB_GELU_ERF));
            check_elements(y, 1e14, 1e20, 0, 50, 0);
            check_ok(ebb_sum(&loss, y, 0, NULL, false));
            check_ok(ebb_backward(loss));
            check_elements(ebb_grad(x), 1e-6, 1, 0, 1, 0);
        }
    }
}

/* ---- broadcasting (burn 181) ---------------------------------------------------------------- */

Test(values, gradients_of_broadcast_operands_have_the_operands_shape)
{
    with_context(ctx)
    {
        EBB_LOCAL(x);
        EBB_LOCAL(w);
        EBB_LOCAL(b);
        EBB_LOCAL(label);
        EBB_LOCAL(y);
        EBB_LOCAL(loss);
        make(&x, ctx, DIMS(2, 3), (float[]){ 1, 2, 3, 0, -1, 2 });
        make_leaf(&w, ctx, DIMS(3, 1), (float[]){ 1, 0, -1 });
        make_leaf(&b, ctx, DIMS(1, 3), (float[]){ .5f, -.5f, 1 });
        make(&label, ctx, DIMS(2, 1), (float[]){ 1, -1 });
        check_ok(ebb_matmul(&y, x, w)); /* [2, 1] */
        check_ok(ebb_add(&y, y, b));    /* [2, 3] */
        check_ok(ebb_sub(&y, y, label));
        check_ok(ebb_mul(&y, y, y));
        check_ok(ebb_sum(&loss, y, 0, NULL, false));
        check_elements(loss, 1e-5, 25);
        check_ok(ebb_backward(loss));
        check_shape(ebb_grad(w), DIMS(3, 1));
        check_elements(ebb_grad(w), 1e-5, -16, -28, -56);
        check_shape(ebb_grad(b), DIMS(1, 3));
        check_elements(ebb_grad(b), 1e-5, -6, -10, -4);
    }
}

Test(values, a_scalar_times_a_vector_has_a_scalar_gradient)
{
    with_context(ctx)
    {
        EBB_LOCAL(s);
        EBB_LOCAL(v);
        EBB_LOCAL(y);
        make_leaf(&s, ctx, 0, NULL, (float[]){ 2 });
        make_leaf(&v, ctx, DIMS(3), (float[]){ 1, 2, 3 });
        check_ok(ebb_mul(&y, s, v));
        check_ok(ebb_sum(&y, y, 0, NULL, false));
        check_elements(y, 0, 12);
        check_ok(ebb_backward(y));
        check_shape(ebb_grad(s), 0, NULL);
        check_elements(ebb_grad(s), 0, 6);
        check_elements(ebb_grad(v), 0, 2, 2, 2);
    }
}

/* ---- nothing at all (pytorch 15223) ---------------------------------------------------------- */

Test(values, a_tensor_without_elements_gives_zero_gradients)
{
    with_context(ctx)
    {
        EBB_LOCAL(a);
        EBB_LOCAL(b);
        EBB_LOCAL(column);
        EBB_LOCAL(y);
        check_ok(ebb_zeros(&a, ctx, EBB_F32, DIMS(4, 0)));
        make_leaf(&b, ctx, DIMS(4), (float[]){ 1, 2, 3, 4 });
        check_ok(ebb_reshape(&column, b, DIMS(4, 1)));
        check_ok(ebb_add(&y, a, column));
        check_shape(y, DIMS(4, 0));
        check_ok(ebb_sum(&y, y, 0, NULL, false));
        check_elements(y, 0, 0);
        check_ok(ebb_backward(y));
        check_shape(ebb_grad(b), DIMS(4));
        check_elements(ebb_grad(b), 0, 0, 0, 0, 0);
    }
}

Test(values, the_mean_of_nothing_is_nan_with_an_empty_gradient)
{
    with_context(ctx)
    {
        EBB_LOCAL(x);
        EBB_LOCAL(y);
        check_ok(ebb_zeros(&x, ctx, EBB_F32, DIMS(0, 3)));
        check_ok(ebb_set_requires_grad(x, true));
        check_ok(ebb_mean(&y, x, 0, NULL, false));
        cr_assert(isnan(values(y)[0]));
        check_ok(ebb_backward(y));
        check_shape(ebb_grad(x), DIMS(0, 3));
        check_ok(ebb_mean(&y, x, 1, (int[]){ 0 }, false)); /* three means of nothing */
        check_shape(y, DIMS(3));
        cr_assert(isnan(values(y)[0]) && isnan(values(y)[2]));
    }
}

/* ---- single ops ------------------------------------------------------------------------------ */

Test(values, relu_lets_nan_through_and_has_no_slope_at_zero)
{
    with_context(ctx)
    {
        EBB_LOCAL(x);
        EBB_LOCAL(y);
        EBB_LOCAL(loss);
        make_leaf(&x, ctx, DIMS(4), (float[]){ -1, 0, 2, NAN });
        check_ok(ebb_relu(&y, x));
        cr_assert(isnan(values(y)[3]));
        check_ok(ebb_narrow(&y, y, 0, 0, 3));
        check_elements(y, 0, 0, 0, 2);
        check_ok(ebb_sum(&loss, y, 0, NULL, false));
        check_ok(ebb_backward(loss));
        check_elements(ebb_grad(x), 0, 0, 0, 1, 0);
    }
}

Test(values, softmax_does_not_overflow)
{
    with_context(ctx)
    {
        EBB_LOCAL(x);
        EBB_LOCAL(y);
        make(&x, ctx, DIMS(2, 3), (float[]){ 1000, 1000, -1000, -1e30f, -INFINITY, -1e30f });
        check_ok(ebb_softmax(&y, x, -1));
        check_elements(y, 1e-7, .5, .5, 0, .5, 0, .5);
        make(&x, ctx, DIMS(3), (float[]){ 1000, 1000, -1000 });
        check_ok(ebb_log_softmax(&y, x, 0));
        check_elements(y, 1e-4, -0.693147, -0.693147, -2000.693147);
    }
}

Test(values, a_cast_rounds_once_to_nearest_even)
{
    with_context(ctx)
    {
        EBB_LOCAL(x);
        EBB_LOCAL(y);
        /* Halves lie 2^-10 apart at 1: ties go to even; just beyond a tie, in f64 only, goes up. */
        const double wide[] = { 1 + 0x1p-11, 1 + 3 * 0x1p-11, 1 + 0x1p-11 + 0x1p-40,
                                70000,       0x1p-25,         1e300 };
        check_ok(ebb_from_data(&x, ctx, EBB_F64, DIMS(6), wide));
        check_ok(ebb_cast(&y, x, EBB_F16));
        const double *got = values(y);
        cr_assert(got[0] == 1 && got[1] == 1 + 0x1p-9 && got[2] == 1 + 0x1p-10);
        cr_assert(isinf(got[3]) && got[4] == 0 && isinf(got[5]));
        const double brain[] = { 1 + 0x1p-8, 1 + 0x1p-8 + 0x1p-40, -(1 + 0x1p-8 + 0x1p-40) };
        check_ok(ebb_from_data(&x, ctx, EBB_F64, DIMS(3), brain));
        check_ok(ebb_cast(&y, x, EBB_BF16));
        check_elements(y, 0, 1, 1 + 0x1p-7, -(1 + 0x1p-7));
    }
}

Test(values, a_cast_is_independent_of_its_source)
{
    with_context(ctx)
    {
        EBB_LOCAL(x);
        EBB_LOCAL(y);
        make(&x, ctx, DIMS(2), (float[]){ 1, 2 });
        check_ok(ebb_cast(&y, x, EBB_F32));
        cr_assert(ebb_tensor_storage(y) != ebb_tensor_storage(x));
        check_ok(ebb_fill(x, 9));
        check_elements(y, 0, 1, 2);
    }
}

Test(values, views_share_storage_and_contiguous_copies_only_what_is_not)
{
    with_context(ctx)
    {
        EBB_LOCAL(x);
        EBB_LOCAL(t);
        EBB_LOCAL(part);
        EBB_LOCAL(c);
        make(&x, ctx, DIMS(2, 3), (float[]){ 1, 2, 3, 4, 5, 6 });
        check_ok(ebb_transpose(&t, x, 0, -1));
        cr_assert(ebb_tensor_storage(t) == ebb_tensor_storage(x));
        check_shape(t, DIMS(3, 2));
        check_elements(t, 0, 1, 4, 2, 5, 3, 6);
        check_ok(ebb_narrow(&part, t, -2, 1, 2));
        check_elements(part, 0, 2, 5, 3, 6);
        check_ok(ebb_contiguous(&c, part));
        cr_assert(ebb_tensor_storage(c) != ebb_tensor_storage(x));
        check_elements(c, 0, 2, 5, 3, 6);
        check_ok(ebb_contiguous(&c, x));
        cr_assert(c == x);
        check_ok(ebb_reshape(&c, t, DIMS(-1))); /* a copy: t is not contiguous */
        check_elements(c, 0, 1, 4, 2, 5, 3, 6);
    }
}

Test(values, a_wrong_axis_is_named)
{
    with_context(ctx)
    {
        EBB_LOCAL(x);
        EBB_LOCAL(y);
        make(&x, ctx, DIMS(2, 3), (float[]){ 1, 2, 3, 4, 5, 6 });
        check_fails(ebb_softmax(&y, x, 2), EBB_EINVAL);
        check_message("softmax: axis 2");
        check_fails(ebb_transpose(&y, x, 0, -3), EBB_EINVAL);
        check_message("transpose: axis -3");
        check_fails(ebb_sum(&y, x, 1, (int[]){ 5 }, false), EBB_EINVAL);
        check_message("sum: axis 5");
        cr_assert_null(y);
    }
}

/* ---- dropout (flax 2055) --------------------------------------------------------------------- */

static void check_dropout(ebb_context *ctx, double p, const double *y_want, const double *dx_want)
{
    EBB_LOCAL(x);
    EBB_LOCAL(y);
    EBB_LOCAL(loss);
    make_leaf(&x, ctx, DIMS(3), (float[]){ 1, 2, 3 });
    check_ok(ebb_dropout(&y, x, p));
    check_values(y, 3, y_want, 0);
    check_ok(ebb_sum(&loss, y, 0, NULL, false));
    check_ok(ebb_backward(loss));
    check_values(ebb_grad(x), 3, dx_want, 0);
}

Test(values, dropout_at_its_ends_gives_zeros_or_its_input)
{
    with_context(ctx)
    {
        check_dropout(ctx, 1, (double[]){ 0, 0, 0 }, (double[]){ 0, 0, 0 });
        check_dropout(ctx, 0, (double[]){ 1, 2, 3 }, (double[]){ 1, 1, 1 });
    }
}
