/* What a segment may have inside: random draws, changes in place, calls that are not recorded. */
#include "segments.h"

/* ---- randomness: B03 ---------------------------------------------------------------------- */

static ebb_status two_dropouts(void *user, ebb_tensor **out, ebb_tensor *x)
{
    (void)user;
    EBB_LOCAL(h);
    EBB_TRY(ebb_dropout(&h, x, 0.5));
    EBB_TRY(ebb_mul(&h, h, h));
    EBB_TRY(ebb_dropout(&h, h, 0.25));
    return ebb_mul(out, h, x);
}

Test(segment, replays_random_draws_and_leaves_the_generator_where_it_was)
{
    with_context(ctx) {
        double g[2][257];
        uint64_t offset[2];
        for (int pass = 0; pass < 2; pass++) {
            EBB_LOCAL(x);
            EBB_LOCAL(y);
            EBB_LOCAL(loss);
            ebb_seed(ctx, 11);
            check_ok(ebb_normal(&x, ctx, EBB_F64, 1, (int64_t[]){ 257 }, 0, 1));
            check_ok(ebb_set_requires_grad(x, true));
            if (pass) check_ok(ebb_checkpoint(&y, x, two_dropouts, NULL, NULL));
            else check_ok(two_dropouts(NULL, &y, x));
            check_ok(ebb_sum(&loss, y, 0, NULL, false));
            uint64_t before = ebb_rng_offset(ctx);
            check_ok(ebb_backward(loss));
            offset[pass] = ebb_rng_offset(ctx);
            cr_assert_eq(offset[pass], before);
            check_ok(ebb_read(ebb_grad(x), g[pass], sizeof g[pass]));
        }
        cr_assert_arr_eq(g[0], g[1], sizeof g[0]);
        cr_assert_eq(offset[0], offset[1]);
    }
}

/* B03: whatever draws inside a segment is replayed or kept: dropouts by their offset, a tensor that was drawn there
 * (and is no recorded call) as an input.  Draws between forward and backward, and in another segment, do not matter;
 * there is no other generator than the context's. */
static ebb_status drop_noise_drop(void *user, ebb_tensor **out, ebb_tensor *x)
{
    (void)user;
    EBB_LOCAL(h);
    EBB_LOCAL(noise);
    EBB_TRY(ebb_dropout(&h, x, 0.3));
    EBB_TRY(ebb_normal(&noise, ebb_tensor_context(x), EBB_F64, 1, (int64_t[]){ 257 }, 0, 1));
    EBB_TRY(ebb_mul(&h, h, noise));
    EBB_TRY(ebb_dropout(&h, h, 0.5));
    return ebb_mul(out, h, h);
}

Test(segment, b03_every_kind_of_draw_gives_the_gradients_of_no_checkpointing)
{
    with_options(ctx, ((ebb_context_options){ .check_recompute = true })) {
        double g[2][257], next[2];
        uint64_t offset[2];
        for (int pass = 0; pass < 2; pass++) {
            EBB_LOCAL(x);
            EBB_LOCAL(y);
            EBB_LOCAL(loss);
            EBB_LOCAL(drawn);
            ebb_seed(ctx, 5);
            check_ok(ebb_normal(&x, ctx, EBB_F64, 1, (int64_t[]){ 257 }, 0, 1));
            check_ok(ebb_set_requires_grad(x, true));
            for (int k = 0; k < 2; k++) {
                if (pass) check_ok(ebb_checkpoint(&y, k ? y : x, drop_noise_drop, NULL, NULL));
                else check_ok(drop_noise_drop(NULL, &y, k ? y : x));
            }
            check_ok(ebb_sum(&loss, y, 0, NULL, false));
            check_ok(ebb_normal(&drawn, ctx, EBB_F64, 0, NULL, 0, 1)); /* the generator goes on before backward */
            check_ok(ebb_backward(loss));
            check_ok(ebb_read(ebb_grad(x), g[pass], sizeof g[pass]));
            offset[pass] = ebb_rng_offset(ctx);
            check_ok(ebb_normal(&drawn, ctx, EBB_F64, 0, NULL, 0, 1));
            next[pass] = value_of(drawn);
        }
        cr_assert_gt(replayed(ctx), 0);
        cr_assert_arr_eq(g[0], g[1], sizeof g[0]);
        cr_assert_eq(offset[0], offset[1]);
        cr_assert_eq(next[0], next[1], "the next draw is that of no checkpointing");
    }
}

/* ---- what is inside a segment ------------------------------------------------------------- */

static ebb_status changes_outside(void *user, ebb_tensor **out, ebb_tensor *x)
{
    EBB_TRY(ebb_fill(user, 1));
    return ebb_mul(out, x, user);
}

Test(segment, refuses_to_change_a_tensor_from_outside)
{
    with_context(ctx) {
        EBB_LOCAL(x);
        EBB_LOCAL(y);
        EBB_LOCAL(outside);
        scalar(&x, ctx, 2);
        check_ok(ebb_full(&outside, ctx, EBB_F64, 0, NULL, 5));
        check_fails(ebb_checkpoint(&y, x, changes_outside, outside,
                                   &(ebb_checkpoint_options){ .struct_bytes = sizeof(ebb_checkpoint_options), .name = "stage" }), EBB_ESTATE);
        check_message("stage");
        cr_assert_null(y);
    }
}

/* Whatever a replay makes again must not be changed: it would make the old bytes. */
static ebb_status changes_what_it_made(void *user, ebb_tensor **out, ebb_tensor *x)
{
    EBB_LOCAL(t);
    EBB_LOCAL(alias);
    bool through_view = *(bool *)user;
    EBB_TRY(ebb_detach(&t, x));
    EBB_TRY(ebb_scale(&t, t, 2));
    if (through_view) EBB_TRY(ebb_detach(&alias, t));
    EBB_TRY(ebb_fill(through_view ? alias : t, 7));
    return ebb_mul(out, x, t);
}

static ebb_status fills_a_view_of_outside(void *user, ebb_tensor **out, ebb_tensor *x)
{
    EBB_LOCAL(v);
    EBB_TRY(ebb_reshape(&v, user, 1, (int64_t[]){ 1 }));
    EBB_TRY(ebb_fill(v, 7));
    return ebb_mul(out, x, user);
}

Test(segment, refuses_to_change_what_a_replay_makes_again)
{
    with_context(ctx) {
        EBB_LOCAL(x);
        EBB_LOCAL(y);
        EBB_LOCAL(alias);
        EBB_LOCAL(k);
        bool through_view = false;
        scalar(&x, ctx, 2);
        check_fails(ebb_checkpoint(&y, x, changes_what_it_made, &through_view, NULL), EBB_ESTATE);
        through_view = true;
        check_fails(ebb_checkpoint(&y, x, changes_what_it_made, &through_view, NULL), EBB_ESTATE);
        check_ok(ebb_full(&k, ctx, EBB_F64, 0, NULL, 5));
        check_fails(ebb_checkpoint(&y, x, fills_a_view_of_outside, k, NULL), EBB_ESTATE);
        check_ok(ebb_checkpoint(&y, x, four_tanh, NULL, NULL));
        check_ok(ebb_detach(&alias, y));
        check_fails(ebb_fill(alias, 0), EBB_ESTATE);
        check_ok(ebb_backward(y));
    }
}

static ebb_status change_it(void *user, ebb_tensor *t, ebb_tensor **grad)
{
    (void)t;
    (void)grad;
    return ebb_fill(user, 100);
}

static ebb_status mul_twice(void *user, ebb_tensor **out, ebb_tensor *x)
{
    EBB_LOCAL(h);
    EBB_TRY(ebb_mul(&h, x, user));
    EBB_TRY(ebb_hook_add(h, &(ebb_hook){ .user = user, .on_grad = change_it }, NULL));
    return ebb_mul(out, h, user);
}

Test(segment, a_change_between_refill_and_use_is_found)
{
    with_context(ctx) {
        EBB_LOCAL(x);
        EBB_LOCAL(k);
        EBB_LOCAL(y);
        scalar(&x, ctx, 2);
        check_ok(ebb_full(&k, ctx, EBB_F64, 0, NULL, 5));
        check_ok(ebb_checkpoint(&y, x, mul_twice, k, NULL));
        check_fails(ebb_backward(y), EBB_ESTATE);
        check_message("changed in place");
    }
}

static ebb_status nest(void *user, ebb_tensor **out, ebb_tensor *x)
{
    int *left = user;
    if ((*left)-- == 0) return ebb_tanh(out, x);
    return ebb_checkpoint(out, x, nest, user, NULL);
}

Test(segment, nesting_has_a_limit_that_is_said)
{
    with_context(ctx) {
        EBB_LOCAL(x);
        EBB_LOCAL(y);
        int left = 1000;
        scalar(&x, ctx, 0.5);
        check_ok(ebb_checkpoint(&y, x, nest, &left, NULL));
        check_ok(ebb_backward(y));
        cr_assert_float_eq(value_of(ebb_grad(x)), 1 - tanh(0.5) * tanh(0.5), 1e-12);
        for (left = 0; left < 5000; left++) {
            ebb_status st = ebb_segment_begin(ctx, NULL);
            if (st != EBB_OK) break;
        }
        cr_assert_eq(left, 4097);
        check_message("4096");
        while (left--) ebb_segment_end(ctx);
        ebb_segment_end(ctx); /* none is active: nothing happens */
    }
}

static ebb_status detaches(void *user, ebb_tensor **out, ebb_tensor *x)
{
    (void)user;
    EBB_LOCAL(h);
    EBB_LOCAL(constant);
    EBB_TRY(ebb_tanh(&h, x));
    EBB_TRY(ebb_detach(&constant, h));
    EBB_TRY(ebb_mul(&constant, constant, constant)); /* no node, but needed by one */
    return ebb_mul(out, h, constant);
}

Test(segment, detach_and_unrecorded_calls_inside_are_replayed)
{
    with_context(ctx) {
        EBB_LOCAL(x);
        EBB_LOCAL(y);
        scalar(&x, ctx, 0.5);
        check_ok(ebb_checkpoint(&y, x, detaches, NULL, NULL));
        check_ok(ebb_backward(y));
        double t = tanh(0.5);
        cr_assert_float_eq(value_of(ebb_grad(x)), (1 - t * t) * t * t, 1e-12);
    }
}

static ebb_status makes_a_constant(void *user, ebb_tensor **out, ebb_tensor *x)
{
    (void)user;
    EBB_LOCAL(c);
    EBB_TRY(ebb_full(&c, ebb_tensor_context(x), EBB_F64, 0, NULL, 4));
    return ebb_mul(out, x, c);
}

Test(segment, a_tensor_without_a_recorded_call_is_kept)
{
    with_context(ctx) {
        EBB_LOCAL(x);
        EBB_LOCAL(y);
        scalar(&x, ctx, 0.5);
        check_ok(ebb_checkpoint(&y, x, makes_a_constant, NULL, NULL));
        check_ok(ebb_backward(y));
        cr_assert_float_eq(value_of(ebb_grad(x)), 4, 1e-12);
    }
}

Test(segment, a_changed_input_is_found_at_recompute)
{
    with_context(ctx) {
        EBB_LOCAL(x);
        EBB_LOCAL(c);
        EBB_LOCAL(y);
        scalar(&x, ctx, 0.5);
        check_ok(ebb_full(&c, ctx, EBB_F64, 0, NULL, 4));
        check_ok(ebb_checkpoint(&y, x, tanh_then_mul, c,
                                &(ebb_checkpoint_options){ .struct_bytes = sizeof(ebb_checkpoint_options), .name = "stage" }));
        EBB_LOCAL(alias);
        check_ok(ebb_detach(&alias, x));
        {
            EBB_WITH_MODE(EBB_NO_GRAD);
            check_ok(ebb_fill(alias, 9));
        }
        check_fails(ebb_backward(y), EBB_ESTATE);
        check_message("stage");
        check_message("changed in place");
        cr_assert_null(ebb_grad(x));
    }
}
