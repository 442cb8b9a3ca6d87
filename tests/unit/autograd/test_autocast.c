/* Autocast: which dtype a call runs in, and that its casts are calls like any other. */
#include <ebb/autograd.h>
#include <ebb/checkpoint.h>
#include <math.h>
#include <string.h>

#include "support/support.h"

#define DIMS(...) (int)(sizeof((int64_t[]){__VA_ARGS__}) / sizeof(int64_t)), (int64_t[]){__VA_ARGS__}

static void check_dtype(const ebb_tensor *t, ebb_dtype dtype)
{
    cr_assert_eq(ebb_tensor_dtype(t), dtype, "%s, not %s", ebb_dtype_name(ebb_tensor_dtype(t)), ebb_dtype_name(dtype));
}

static void weight(ebb_tensor **out, ebb_context *ctx, int64_t rows, int64_t cols)
{
    check_ok(ebb_normal(out, ctx, EBB_F32, DIMS(rows, cols), 0, 1));
    check_ok(ebb_set_requires_grad(*out, true));
    ebb_tensor_set_category(*out, EBB_CAT_PARAMETER);
}

/* Every op with the rule it has; an op that is not here follows its inputs. */
static const struct { const char *op; ebb_autocast_rule rule; } rules[] = {
    { "linear", EBB_AUTOCAST_LOW },        { "matmul", EBB_AUTOCAST_LOW },
    { "attention", EBB_AUTOCAST_LOW },     { "attention_packed", EBB_AUTOCAST_LOW },
    { "softmax", EBB_AUTOCAST_F32 },       { "log_softmax", EBB_AUTOCAST_F32 },
    { "cross_entropy", EBB_AUTOCAST_F32 }, { "mse", EBB_AUTOCAST_F32 },
    { "layernorm", EBB_AUTOCAST_F32 },     { "rmsnorm", EBB_AUTOCAST_F32 },
    { "sum", EBB_AUTOCAST_F32 },           { "mean", EBB_AUTOCAST_F32 },
    { "exp", EBB_AUTOCAST_F32 },           { "linear_cross_entropy", EBB_AUTOCAST_LOW },
};

Test(autocast, the_rules_are_these)
{
    for (int o = 0; o < ebb_op_count(); o++) {
        ebb_autocast_rule want = EBB_AUTOCAST_WIDEST;
        for (size_t i = 0; i < sizeof rules / sizeof *rules; i++)
            if (strcmp(rules[i].op, ebb_op_at(o)->name) == 0) want = rules[i].rule;
        cr_assert_eq(ebb_op_at(o)->autocast, want, "%s", ebb_op_at(o)->name);
    }
}

static ebb_status fails_within(ebb_tensor *x)
{
    EBB_WITH_AUTOCAST(EBB_F16);
    EBB_LOCAL(y);
    EBB_TRY(ebb_reshape(&y, x, DIMS(7)));
    return EBB_OK;
}

Test(autocast, holds_until_its_scope_ends)
{
    with_context(ctx) {
        EBB_LOCAL(x);
        check_ok(ebb_zeros(&x, ctx, EBB_F32, DIMS(2, 2)));
        cr_assert_eq(ebb_autocast(), EBB_F32);
        {
            EBB_WITH_AUTOCAST(EBB_BF16);
            cr_assert_eq(ebb_autocast(), EBB_BF16);
            check_fails(fails_within(x), EBB_ESHAPE);
            cr_assert_eq(ebb_autocast(), EBB_BF16);
            for (ebb_dtype off = EBB_F32; off <= EBB_F64; off++) { /* no dtypes to save memory with */
                ebb_autocast_guard guard = ebb_autocast_set(off);
                cr_assert_eq(ebb_autocast(), EBB_F32);
                ebb_autocast_restore(&guard);
                cr_assert_eq(ebb_autocast(), EBB_BF16);
            }
        }
        cr_assert_eq(ebb_autocast(), EBB_F32);
    }
}

Test(autocast, products_are_low_sums_are_f32_others_follow_their_inputs)
{
    for (ebb_dtype low = EBB_F16; low <= EBB_BF16; low++) {
        with_context(ctx) {
            EBB_LOCAL(x);
            EBB_LOCAL(w);
            EBB_LOCAL(h);
            EBB_LOCAL(y);
            EBB_LOCAL(sum);
            weight(&x, ctx, 3, 4);
            weight(&w, ctx, 4, 4);
            EBB_WITH_AUTOCAST(low);
            check_ok(ebb_linear(&h, x, w, NULL));
            check_dtype(h, low);
            check_ok(ebb_relu(&h, h));
            check_dtype(h, low);
            check_ok(ebb_matmul(&y, h, w));
            check_dtype(y, low);
            check_ok(ebb_add(&y, y, h));
            check_dtype(y, low);
            check_ok(ebb_add(&y, x, h)); /* f32 and low */
            check_dtype(y, EBB_F32);
            check_ok(ebb_cat(&y, 2, (ebb_tensor *[]){ h, x }, 0));
            check_dtype(y, EBB_F32);
            check_ok(ebb_softmax(&y, h, 1));
            check_dtype(y, EBB_F32);
            check_ok(ebb_sum(&sum, h, EBB_ALL_AXES, false));
            check_dtype(sum, EBB_F32);
            check_ok(ebb_backward(sum));
            check_dtype(ebb_grad(x), EBB_F32);
            check_dtype(ebb_grad(w), EBB_F32);
        }
    }
}

Test(autocast, both_halves_meet_in_f32_and_f64_is_never_narrowed)
{
    with_context(ctx) {
        EBB_LOCAL(a);
        EBB_LOCAL(b);
        EBB_LOCAL(wide);
        EBB_LOCAL(y);
        EBB_LOCAL(index);
        check_ok(ebb_full(&a, ctx, EBB_F16, DIMS(2, 2), 1));
        check_ok(ebb_full(&b, ctx, EBB_BF16, DIMS(2, 2), 1));
        check_ok(ebb_full(&wide, ctx, EBB_F64, DIMS(2, 2), 1));
        check_ok(ebb_zeros(&index, ctx, EBB_I32, DIMS(3)));
        EBB_WITH_AUTOCAST(EBB_BF16);
        check_ok(ebb_mul(&y, a, b));
        check_dtype(y, EBB_F32);
        check_ok(ebb_matmul(&y, a, b));
        check_dtype(y, EBB_BF16);
        check_ok(ebb_matmul(&y, wide, a));
        check_dtype(y, EBB_F64);
        check_ok(ebb_sum(&y, wide, EBB_ALL_AXES, false));
        check_dtype(y, EBB_F64);
        check_ok(ebb_embedding(&y, a, index)); /* an index stays one */
        check_dtype(y, EBB_F16);
    }
}

Test(autocast, without_it_mixed_dtypes_are_an_error_and_nothing_is_cast)
{
    with_context(ctx) {
        EBB_LOCAL(x);
        EBB_LOCAL(w);
        EBB_LOCAL(y);
        weight(&w, ctx, 4, 4);
        check_ok(ebb_full(&x, ctx, EBB_BF16, DIMS(2, 4), 1));
        check_fails(ebb_linear(&y, x, w, NULL), EBB_EDTYPE);
        check_message("cast first");
        {
            EBB_WITH_AUTOCAST(EBB_BF16);
            check_ok(ebb_linear(&y, x, w, NULL));
            cr_assert_eq(ebb_live_nodes(ctx), 2); /* the cast of w, and linear */
        }
        check_fails(ebb_linear(&y, x, w, NULL), EBB_EDTYPE);
        check_ok(ebb_cast(&x, x, EBB_F32));
        check_ok(ebb_linear(&y, x, w, NULL));
        cr_assert_eq(ebb_live_nodes(ctx), 1);
        check_dtype(y, EBB_F32);
    }
}

/* A product saves the casts of its operands; with a recipe for `cast` it saves none that comes of a weight. */
Test(autocast, a_recipe_for_cast_keeps_no_copies_of_weights)
{
    size_t saved[2] = { 0 };
    float grads[2][16];
    for (int recipe = 0; recipe < 2; recipe++) {
        with_context(ctx) {
            EBB_LOCAL(x);
            EBB_LOCAL(w);
            EBB_LOCAL(h);
            EBB_LOCAL(loss);
            static const char *const names[] = { "cast" };
            check_ok(ebb_recompute_ops(ctx, names, recipe));
            weight(&x, ctx, 128, 4);
            weight(&w, ctx, 4, 4);
            {
                EBB_WITH_AUTOCAST(EBB_BF16);
                check_ok(ebb_linear(&h, x, w, NULL));
                check_ok(ebb_sum(&loss, h, EBB_ALL_AXES, false));
            }
            saved[recipe] = ebb_saved_bytes(ctx);
            check_ok(ebb_backward(loss));
            check_ok(ebb_read(ebb_grad(w), grads[recipe], sizeof grads[recipe]));
        }
    }
    cr_assert_eq(saved[0], (128 * 4 + 4 * 4) * 2, "%zu bytes", saved[0]); /* both in bf16 */
    cr_assert_eq(saved[1], 0, "%zu bytes", saved[1]); /* they are made again from the leaves */
    cr_assert_eq(memcmp(grads[0], grads[1], sizeof grads[0]), 0);
}

/* A user's op follows its inputs unless it says otherwise. */
static ebb_status infer_first(ebb_call *c) { return ebb_arg_set(&c->out[0], c->in[0].dtype, 0, NULL); }
static ebb_status no_kernel(const ebb_call *c) { return (void)c, EBB_OK; }

Test(autocast, a_users_op_may_have_a_rule)
{
    with_context(ctx) {
        EBB_LOCAL(x);
        EBB_LOCAL(y);
        ebb_tensor **outs[] = { &y };
        ebb_op op = { .name = "own", .min_in = 1, .max_in = 1, .n_out = 1, .infer = infer_first, .cpu = { .forward = no_kernel } };
        check_ok(ebb_zeros(&x, ctx, EBB_F32, DIMS(2)));
        EBB_WITH_AUTOCAST(EBB_F16);
        check_ok(ebb_apply(&op, outs, 1, &x, 1, NULL, 0));
        check_dtype(y, EBB_F32);
        op.autocast = EBB_AUTOCAST_LOW;
        check_ok(ebb_apply(&op, outs, 1, &x, 1, NULL, 0));
        check_dtype(y, EBB_F16);
    }
}
