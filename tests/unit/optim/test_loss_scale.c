/* Loss scaling: how the scale moves, and what a skipped step leaves alone. */
#include "optim_support.h"

static ebb_loss_scale scale_of(const char *json)
{
    ebb_loss_scale s;
    check_ok(ebb_loss_scale_parse(&s, json, "loss_scale"));
    return s;
}

static ebb_optim *adam_of(ebb_context *ctx, ebb_tensor *w)
{
    ebb_optim *optim = NULL;
    ebb_optim_options options = adamw_options(0.1);
    check_ok(ebb_optim_new(&optim, ctx, &(ebb_named_tensor){ "w", w }, 1, &options));
    return optim;
}

/* One step as a loop makes it. */
static bool step(ebb_optim *optim, ebb_loss_scale *scale)
{
    ebb_gradients_found found;
    check_ok(ebb_optim_unscale(optim, scale->scale, &found));
    bool make = ebb_loss_scale_update(scale, found);
    if (make) check_ok(ebb_optim_step(optim, 0.1));
    ebb_optim_drop_grads(optim);
    return make;
}

/* Field case B36: inf, ok, ok, inf with interval 2. */
Test(loss_scale, b36_steps_with_inf_are_skipped_and_the_scale_moves)
{
    static const struct { bool inf; double scale; int64_t t; } steps[] = {
        { true, 32768, 0 }, { false, 32768, 1 }, { false, 65536, 2 }, { true, 32768, 2 }
    };
    with_context(ctx) {
        EBB_LOCAL(w);
        EBB_LOCAL(twin);
        ebb_loss_scale scale = scale_of("{\"interval\":2}");
        make_param(&w, ctx, EBB_F32, 2, (double[]){ 1, -2 });
        make_param(&twin, ctx, EBB_F32, 2, (double[]){ 1, -2 }); /* sees the good steps only, unscaled */
        ebb_optim *optim = adam_of(ctx, w), *plain = adam_of(ctx, twin);
        cr_assert(scale.scale == 65536 && scale.growth == 2 && scale.backoff == 0.5);
        for (int k = 0; k < 4; k++) {
            double before = value_at(w, 0), by = scale.scale;
            give_grad(w, (double[]){ 0.25 * by, steps[k].inf ? (double)INFINITY : -3 * by });
            cr_assert_eq(step(optim, &scale), !steps[k].inf);
            cr_assert_eq(scale.scale, steps[k].scale, "step %d: scale %g", k, scale.scale);
            cr_assert_eq(ebb_optim_steps(optim), steps[k].t);
            cr_assert_null(ebb_grad(w));
            if (steps[k].inf) {
                cr_assert_eq(value_at(w, 0), before);
                continue;
            }
            give_grad(twin, (double[]){ 0.25, -3 });
            check_ok(ebb_optim_step(plain, 0.1));
        }
        for (int i = 0; i < 2; i++) cr_assert(value_at(w, i) == value_at(twin, i) && value_at(w, i) != 1);
        ebb_optim_free(optim);
        ebb_optim_free(plain);
    }
}

/* Field case B37: a loss of data alone. */
Test(loss_scale, b37_a_loss_that_reaches_no_parameter_is_a_step_not_made)
{
    with_context(ctx) {
        EBB_LOCAL(w);
        EBB_LOCAL(x);
        EBB_LOCAL(loss);
        ebb_loss_scale scale = scale_of("{\"interval\":1}");
        make_param(&w, ctx, EBB_F32, 2, (double[]){ 1, -2 });
        ebb_optim *optim = adam_of(ctx, w);
        check_ok(ebb_full(&x, ctx, EBB_F32, 1, (int64_t[]){ 2 }, 1));
        check_ok(ebb_sum(&loss, x, EBB_ALL_AXES, false));
        check_ok(ebb_scale(&loss, loss, scale.scale));
        check_fails(ebb_backward(loss), EBB_ESTATE);
        check_message("needs no gradient");
        cr_assert_not(step(optim, &scale));
        cr_assert(scale.scale == 65536 && scale.good == 0 && ebb_optim_steps(optim) == 0);
        cr_assert_eq(value_at(w, 0), 1);
        check_ok(ebb_mul(&loss, w, x)); /* training goes on */
        check_ok(ebb_sum(&loss, loss, EBB_ALL_AXES, false));
        check_ok(ebb_scale(&loss, loss, scale.scale));
        check_ok(ebb_backward(loss));
        cr_assert(step(optim, &scale));
        cr_assert(scale.scale == 131072 && ebb_optim_steps(optim) == 1);
        cr_assert(fabs(value_at(w, 0) - 0.9) < 1e-6);
        ebb_optim_free(optim);
    }
}

Test(loss_scale, nan_is_found_and_a_gradient_that_two_parameters_hold_is_divided_once)
{
    with_context(ctx) {
        EBB_LOCAL(a);
        EBB_LOCAL(b);
        EBB_LOCAL(grad);
        ebb_optim *optim = NULL;
        ebb_optim_options options = sgd_options(0.1);
        ebb_gradients_found found;
        make_param(&a, ctx, EBB_F64, 2, (double[]){ 1, 1 });
        make_param(&b, ctx, EBB_F64, 2, (double[]){ 1, 1 });
        check_ok(ebb_optim_new(&optim, ctx, (ebb_named_tensor[]){ { "a", a }, { "b", b } }, 2, &options));
        check_ok(ebb_full(&grad, ctx, EBB_F64, 1, (int64_t[]){ 2 }, 8));
        check_ok(ebb_set_grad(a, grad));
        check_ok(ebb_set_grad(b, grad));
        check_ok(ebb_optim_unscale(optim, 4, &found));
        cr_assert(found == EBB_GRADIENTS_FINITE && value_at(ebb_grad(b), 1) == 2);
        give_grad(b, (double[]){ 1, (double)NAN });
        check_ok(ebb_optim_unscale(optim, 4, &found));
        cr_assert(found == EBB_GRADIENTS_NOT_FINITE && value_at(ebb_grad(a), 0) == 2, "left as they were");
        check_fails(ebb_optim_unscale(optim, 0, &found), EBB_EINVAL);
        check_fails(ebb_optim_unscale(optim, (double)NAN, &found), EBB_EINVAL);
        ebb_optim_free(optim);
    }
}

Test(loss_scale, a_dry_device_finds_all_gradients_finite)
{
    with_device(ctx, "dry:cpu") {
        EBB_LOCAL(w);
        EBB_LOCAL(loss);
        ebb_gradients_found found;
        check_ok(ebb_zeros(&w, ctx, EBB_F32, 1, (int64_t[]){ 2 }));
        check_ok(ebb_set_requires_grad(w, true));
        ebb_optim *optim = adam_of(ctx, w);
        check_ok(ebb_optim_unscale(optim, 8, &found));
        cr_assert_eq(found, EBB_GRADIENTS_NONE);
        check_ok(ebb_sum(&loss, w, EBB_ALL_AXES, false));
        check_ok(ebb_backward(loss));
        check_ok(ebb_optim_unscale(optim, 8, &found));
        cr_assert_eq(found, EBB_GRADIENTS_FINITE);
        ebb_optim_free(optim);
    }
}

Test(loss_scale, a_number_stays_and_null_is_none)
{
    ebb_loss_scale s = scale_of("1024");
    cr_assert(s.scale == 1024 && !ebb_loss_scale_update(&s, EBB_GRADIENTS_NOT_FINITE) && s.scale == 1024);
    cr_assert(ebb_loss_scale_update(&s, EBB_GRADIENTS_FINITE) && s.scale == 1024);
    cr_assert_eq(scale_of("null").scale, 0);
    s = scale_of("{\"init\":4,\"growth\":8,\"backoff\":0.25,\"interval\":3}");
    cr_assert(s.scale == 4 && s.growth == 8 && s.backoff == 0.25 && s.interval == 3 && s.good == 0);
}

Test(loss_scale, what_is_wrong_is_refused)
{
    static const char *const wrong[] = { "0", "-1", "1e31", "\"dynamic\"", "[1]", "true", "{\"init\":0}",
                                         "{\"growth\":0.5}", "{\"backoff\":0}", "{\"backoff\":2}",
                                         "{\"interval\":0}", "{\"scale\":1}" };
    for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++) {
        ebb_loss_scale s;
        check_fails(ebb_loss_scale_parse(&s, wrong[i], "train.loss_scale"), EBB_EINVAL);
        check_message("train.loss_scale");
    }
    check_no_live_blocks();
}
