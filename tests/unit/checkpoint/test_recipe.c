/* Op recipes: an output is made again from inputs that are kept anyway. */
#include <math.h>
#include <string.h>

#include <ebb/checkpoint.h>

#include "support/support.h"

enum { N = 1000 };

static void recompute(ebb_context *ctx, const char *a, const char *b)
{
    const char *names[] = { a, b };
    check_ok(ebb_recompute_ops(ctx, names, a ? (b ? 2 : 1) : 0));
}

/* sum(w * gelu(x)): mul saves gelu's output, gelu saves x. */
static void gelu_then_mul(ebb_tensor **loss, ebb_tensor *x, ebb_tensor *w)
{
    EBB_LOCAL(h);
    check_ok(ebb_gelu(&h, x, EBB_GELU_TANH));
    check_ok(ebb_mul(&h, h, w));
    check_ok(ebb_sum(loss, h, 0, NULL, false));
}

static void leaf(ebb_tensor **out, ebb_context *ctx)
{
    check_ok(ebb_normal(out, ctx, EBB_F64, 1, (int64_t[]){ N }, 0, 1));
    check_ok(ebb_set_requires_grad(*out, true));
}

Test(recipe, an_output_is_not_kept_and_the_bits_are_the_same)
{
    with_context(ctx) {
        double g[2][N];
        for (int pass = 0; pass < 2; pass++) {
            EBB_LOCAL(x);
            EBB_LOCAL(w);
            EBB_LOCAL(loss);
            ebb_seed(ctx, 5);
            leaf(&x, ctx);
            leaf(&w, ctx);
            recompute(ctx, pass ? "gelu" : NULL, NULL);
            gelu_then_mul(&loss, x, w);
            cr_assert_eq(ebb_saved_bytes(ctx), (pass ? 2 : 3) * N * sizeof(double), "x, w and, when kept, gelu's output");
            check_ok(ebb_backward(loss));
            check_ok(ebb_read(ebb_grad(w), g[pass], sizeof g[pass]));
        }
        cr_assert_arr_eq(g[0], g[1], sizeof g[0]);
        ebb_recompute_stats stats;
        ebb_recompute_stats_get(ctx, &stats);
        cr_assert_eq(stats.recomputed_ops, 1);
        cr_assert_eq(stats.refused_recipes, 0);
    }
}

Test(recipe, is_refused_where_its_input_is_not_kept)
{
    with_context(ctx) {
        EBB_LOCAL(x);
        EBB_LOCAL(w);
        EBB_LOCAL(h);
        EBB_LOCAL(loss);
        leaf(&x, ctx);
        leaf(&w, ctx);
        recompute(ctx, "tanh", NULL);
        check_ok(ebb_scale(&h, x, 2));
        check_ok(ebb_tanh(&h, h)); /* tanh saves its output, not its input */
        check_ok(ebb_mul(&h, h, w));
        check_ok(ebb_sum(&loss, h, 0, NULL, false));
        ebb_recompute_stats stats;
        ebb_recompute_stats_get(ctx, &stats);
        cr_assert_eq(stats.refused_recipes, 1);
        check_ok(ebb_backward(loss));
        ebb_recompute_stats_get(ctx, &stats);
        cr_assert_eq(stats.recomputed_ops, 0);
    }
}

Test(recipe, chains_through_another_recipe_and_through_views)
{
    with_context(ctx) {
        double g[2][N];
        for (int pass = 0; pass < 2; pass++) {
            EBB_LOCAL(x);
            EBB_LOCAL(w);
            EBB_LOCAL(h);
            EBB_LOCAL(loss);
            ebb_seed(ctx, 5);
            leaf(&x, ctx);
            leaf(&w, ctx);
            recompute(ctx, pass ? "gelu" : NULL, pass ? "dropout" : NULL);
            check_ok(ebb_gelu(&h, x, EBB_GELU_ERF));
            check_ok(ebb_dropout(&h, h, 0.3));
            check_ok(ebb_reshape(&h, h, 2, (int64_t[]){ 10, N / 10 }));
            check_ok(ebb_reshape(&w, w, 2, (int64_t[]){ 10, N / 10 }));
            check_ok(ebb_mul(&h, h, w));
            check_ok(ebb_sum(&loss, h, 0, NULL, false));
            ebb_drop(&h);
            if (pass) cr_assert_eq(ebb_saved_bytes(ctx), 2 * N * sizeof(double), "x and w");
            check_ok(ebb_backward(loss));
            check_ok(ebb_read(ebb_grad(x), g[pass], sizeof g[pass]));
        }
        cr_assert_arr_eq(g[0], g[1], sizeof g[0]);
    }
}

typedef struct weights { ebb_tensor *w; } weights;

static ebb_status block(void *user, ebb_tensor **out, ebb_tensor *x)
{
    weights *b = user;
    EBB_LOCAL(h);
    EBB_TRY(ebb_scale(&h, x, 0.5));
    EBB_TRY(ebb_gelu(&h, h, EBB_GELU_TANH));
    EBB_TRY(ebb_mul(&h, h, b->w));
    return ebb_add(out, x, h);
}

Test(recipe, works_inside_a_segment)
{
    with_context(ctx) {
        double g[2][N];
        for (int pass = 0; pass < 2; pass++) {
            EBB_LOCAL(x);
            EBB_LOCAL(w);
            EBB_LOCAL(y);
            EBB_LOCAL(loss);
            ebb_seed(ctx, 5);
            leaf(&x, ctx);
            leaf(&w, ctx);
            recompute(ctx, pass ? "gelu" : NULL, NULL);
            weights b = { w };
            check_ok(ebb_checkpoint(&y, x, block, &b, NULL));
            check_ok(ebb_checkpoint(&y, y, block, &b, NULL));
            check_ok(ebb_sum(&loss, y, 0, NULL, false));
            check_ok(ebb_backward(loss));
            check_ok(ebb_read(ebb_grad(w), g[pass], sizeof g[pass]));
            ebb_memory_stats stats;
            ebb_memory_stats_get(ctx, &stats);
            cr_assert_eq(stats.by_category[EBB_CAT_ACTIVATION] + stats.by_category[EBB_CAT_RECOMPUTED], 0);
        }
        cr_assert_arr_eq(g[0], g[1], sizeof g[0]);
    }
}

Test(recipe, survives_retain_graph)
{
    with_context(ctx) {
        EBB_LOCAL(x);
        EBB_LOCAL(w);
        EBB_LOCAL(loss);
        leaf(&x, ctx);
        leaf(&w, ctx);
        recompute(ctx, "gelu", NULL);
        gelu_then_mul(&loss, x, w);
        double once[N], twice[N];
        ebb_backward_options o = { .struct_bytes = sizeof o, .retain_graph = true };
        check_ok(ebb_backward_ex(&loss, 1, &o));
        check_ok(ebb_read(ebb_grad(w), once, sizeof once));
        cr_assert_eq(ebb_saved_bytes(ctx), 2 * N * sizeof(double));
        check_ok(ebb_backward(loss));
        check_ok(ebb_read(ebb_grad(w), twice, sizeof twice));
        for (int i = 0; i < N; i++) cr_assert_eq(twice[i], 2 * once[i]);
    }
}

enum { DEEP = 100000 };

Test(recipe, a_long_chain_of_recipes_needs_no_stack, .timeout = 60)
{
    with_context(ctx) {
        EBB_LOCAL(x);
        EBB_LOCAL(y);
        recompute(ctx, "neg", NULL);
        check_ok(ebb_full(&x, ctx, EBB_F64, 0, NULL, 1));
        check_ok(ebb_set_requires_grad(x, true));
        ebb_bind(&y, x);
        for (int i = 0; i < DEEP; i++) check_ok(ebb_neg(&y, y));
        check_ok(ebb_mul(&y, y, y));
        check_ok(ebb_backward(y));
        double g;
        check_ok(ebb_item(ebb_grad(x), &g));
        cr_assert_eq(g, 2);
    }
}

Test(recipe, an_unknown_op_is_named_with_the_nearest_one)
{
    with_context(ctx) {
        const char *names[] = { "layernrom" };
        check_fails(ebb_recompute_ops(ctx, names, 1), EBB_EINVAL);
        check_message("layernrom");
        check_message("layernorm");
    }
}
