/* Clipping by global norm. */
#include "optim_support.h"

static ebb_optim *optim_of(ebb_context *ctx, const ebb_named_tensor *params, int n)
{
    ebb_optim *optim = NULL;
    ebb_optim_options options = sgd_options(0.1);
    check_ok(ebb_optim_new(&optim, ctx, params, n, &options));
    return optim;
}

Test(clip, the_norm_is_over_all_gradients_and_scales_them_by_the_documented_factor)
{
    for (ebb_dtype dtype = EBB_F32; dtype <= EBB_F64; dtype++) {
        with_context(ctx) {
            EBB_LOCAL(a);
            EBB_LOCAL(b);
            EBB_LOCAL(idle);
            double norm, tolerance = dtype == EBB_F32 ? 1e-6 : 1e-14;
            make_param(&a, ctx, dtype, 2, (double[]){ 0, 0 });
            make_param(&b, ctx, dtype, 1, (double[]){ 0 });
            make_param(&idle, ctx, dtype, 1, (double[]){ 0 });
            ebb_optim *optim =
                optim_of(ctx, (ebb_named_tensor[]){ { "a", a }, { "b", b }, { "i", idle } }, 3);
            give_grad(a, (double[]){ 3, 4 });
            give_grad(b, (double[]){ 12 });
            check_ok(ebb_optim_clip(optim, 0, &norm));
            cr_assert(norm == 13 && value_at(ebb_grad(a), 0) == 3);
            check_ok(ebb_optim_clip(optim, 13.5, &norm));
            cr_assert(norm == 13 && value_at(ebb_grad(b), 0) == 12,
                      "a norm below the limit changes nothing");
            check_ok(ebb_optim_clip(optim, 2, &norm));
            cr_assert(norm == 13, "%.17g", norm);
            cr_assert(fabs(value_at(ebb_grad(a), 0) - 0.4615384260355057) < tolerance);
            cr_assert(fabs(value_at(ebb_grad(a), 1) - 0.6153845680473409) < tolerance);
            cr_assert(fabs(value_at(ebb_grad(b), 0) - 1.8461537041420228) < tolerance);
            check_ok(ebb_optim_clip(optim, 0, NULL));
            check_fails(ebb_optim_clip(optim, (double)NAN, &norm), EBB_EINVAL);
            ebb_optim_free(optim);
        }
    }
}

Test(clip, small_values_are_not_lost_in_a_large_f32_sum)
{
    with_context(ctx) {
        enum { LARGE = 1 << 20 };
        EBB_LOCAL(w);
        EBB_LOCAL(g);
        double norm, again;
        check_ok(ebb_zeros(&w, ctx, EBB_F32, 1, (int64_t[]){ LARGE + 3 }));
        check_ok(ebb_set_requires_grad(w, true));
        check_ok(ebb_full(&g, ctx, EBB_F32, 1, (int64_t[]){ LARGE + 3 }, 1e-3));
        ((float *)ebb_tensor_data(g))[0] = 1000;
        check_ok(ebb_set_grad(w, g));
        ebb_optim *optim = optim_of(ctx, &(ebb_named_tensor){ "w", w }, 1);
        check_ok(ebb_optim_clip(optim, 0, &norm));
        double small = (double)1e-3f, expected = sqrt(1e6 + (LARGE + 2) * small * small);
        cr_assert(fabs(norm - expected) < 1e-11 * expected, "%.17g, expected %.17g", norm,
                  expected);
        check_ok(ebb_optim_clip(optim, 0, &again));
        cr_assert(norm == again);
        ebb_optim_free(optim);
    }
}

Test(clip, a_norm_that_is_not_finite_is_reported)
{
    with_context(ctx) {
        EBB_LOCAL(w);
        double norm;
        make_param(&w, ctx, EBB_F32, 2, (double[]){ 0, 0 });
        ebb_optim *optim = optim_of(ctx, &(ebb_named_tensor){ "w", w }, 1);
        give_grad(w, (double[]){ (double)INFINITY, 1 });
        check_ok(ebb_optim_clip(optim, 1, &norm));
        cr_assert(isinf(norm) && isnan(value_at(ebb_grad(w), 0)) && value_at(ebb_grad(w), 1) == 0);
        give_grad(w, (double[]){ (double)NAN, 1 });
        check_ok(ebb_optim_clip(optim, 1, &norm));
        cr_assert(isnan(norm) && isnan(value_at(ebb_grad(w), 1)));
        ebb_optim_free(optim);
    }
}

Test(clip, a_gradient_that_two_parameters_share_is_scaled_once)
{
    with_context(ctx) {
        EBB_LOCAL(a);
        EBB_LOCAL(b);
        EBB_LOCAL(grad);
        double norm;
        make_param(&a, ctx, EBB_F64, 2, (double[]){ 0, 0 });
        make_param(&b, ctx, EBB_F64, 2, (double[]){ 0, 0 });
        check_ok(ebb_from_data(&grad, ctx, EBB_F64, 1, (int64_t[]){ 2 }, (double[]){ 3, 4 }));
        check_ok(ebb_set_grad(a, grad));
        check_ok(ebb_set_grad(b, grad));
        ebb_optim *optim = optim_of(ctx, (ebb_named_tensor[]){ { "a", a }, { "b", b } }, 2);
        check_ok(ebb_optim_clip(optim, sqrt(12.5), &norm));
        cr_assert(fabs(norm - sqrt(50)) < 1e-12);
        cr_assert(fabs(value_at(grad, 0) - 1.5) < 1e-6 && fabs(value_at(grad, 1) - 2) < 1e-6);
        ebb_optim_free(optim);
    }
}
