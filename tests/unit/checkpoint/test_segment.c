/* Segments: recompute instead of keeping, with the same bits. */
#include "segments.h"

/* ---- saving and recomputing --------------------------------------------------------------- */

Test(segment, keeps_its_input_only_and_gives_the_same_bits)
{
    with_context(ctx) {
        double plain[1000], again[1000];
        for (int pass = 0; pass < 2; pass++) {
            EBB_LOCAL(x);
            EBB_LOCAL(y);
            EBB_LOCAL(loss);
            check_ok(ebb_full(&x, ctx, EBB_F64, 1, (int64_t[]){ 1000 }, 0.3));
            check_ok(ebb_set_requires_grad(x, true));
            check_ok(ebb_scale(&y, x, 2));
            if (pass) check_ok(ebb_checkpoint(&y, y, four_tanh, NULL, NULL));
            else check_ok(four_tanh(NULL, &y, y));
            check_ok(ebb_sum(&loss, y, 0, NULL, false));
            ebb_drop(&y);
            if (pass) cr_assert_eq(ebb_saved_bytes(ctx), 0, "nodes hold promises; the segment holds its input");
            else cr_assert_eq(ebb_saved_bytes(ctx), 4 * 8000);
            ebb_memory_stats stats;
            ebb_memory_stats_get(ctx, &stats);
            cr_assert_eq(stats.by_category[EBB_CAT_ACTIVATION], (pass ? 1 : 4) * 8192);
            check_ok(ebb_backward(loss));
            check_ok(ebb_read(ebb_grad(x), pass ? again : plain, sizeof plain));
            ebb_memory_stats_get(ctx, &stats);
            cr_assert_eq(stats.by_category[EBB_CAT_ACTIVATION], 0);
            cr_assert_eq(stats.by_category[EBB_CAT_RECOMPUTED], 0);
        }
        cr_assert_arr_eq(plain, again, sizeof plain);
        cr_assert_eq(replayed(ctx), 4);
    }
}

Test(segment, stops_as_soon_as_every_slot_is_filled)
{
    with_context(ctx) {
        EBB_LOCAL(x);
        EBB_LOCAL(w);
        EBB_LOCAL(y);
        scalar(&x, ctx, 0.5);
        scalar(&w, ctx, 3);
        check_ok(ebb_checkpoint(&y, x, tanh_then_mul, w, NULL));
        check_ok(ebb_backward(y));
        cr_assert_eq(replayed(ctx), 1);
        cr_assert_float_eq(value_of(ebb_grad(w)), tanh(0.5), 1e-12);
        cr_assert_float_eq(value_of(ebb_grad(x)), 3 * (1 - tanh(0.5) * tanh(0.5)), 1e-12);
    }
}

/* B04: an input that needs no gradient does not cut the weights off. */
typedef struct layer { ebb_tensor *w, *b; } layer;

static ebb_status run_layer(void *user, ebb_tensor **out, ebb_tensor *x)
{
    layer *l = user;
    return ebb_linear(out, x, l->w, l->b);
}

Test(segment, an_input_without_gradient_still_trains_the_weights)
{
    with_context(ctx) {
        EBB_LOCAL(x);
        EBB_LOCAL(h);
        EBB_LOCAL(y);
        EBB_LOCAL(target);
        EBB_LOCAL(loss);
        EBB_LOCAL(w);
        EBB_LOCAL(b);
        EBB_LOCAL(v);
        int64_t mat[] = { 2, 2 }, vec[] = { 2 }, row[] = { 1, 2 }, one[] = { 1, 1 };
        check_ok(ebb_from_data(&x, ctx, EBB_F64, 2, row, (double[]){ 1, 2 }));
        check_ok(ebb_from_data(&w, ctx, EBB_F64, 2, mat, (double[]){ 1, 0, 0, 1 }));
        check_ok(ebb_zeros(&b, ctx, EBB_F64, 1, vec));
        check_ok(ebb_from_data(&v, ctx, EBB_F64, 2, row, (double[]){ 1, -1 }));
        check_ok(ebb_full(&target, ctx, EBB_F64, 2, one, 1));
        ebb_tensor *params[] = { w, b, v };
        for (int i = 0; i < 3; i++) check_ok(ebb_set_requires_grad(params[i], true));
        layer first = { w, b }, second = { v, NULL };
        check_ok(ebb_checkpoint(&h, x, run_layer, &first, NULL));
        check_ok(ebb_checkpoint(&y, h, run_layer, &second, NULL));
        check_ok(ebb_mse(&loss, y, target));
        cr_assert_float_eq(value_of(loss), 4, 1e-12);
        check_ok(ebb_backward(loss));
        double dw[4], db[2], dv[2];
        check_ok(ebb_read(ebb_grad(w), dw, sizeof dw));
        check_ok(ebb_read(ebb_grad(b), db, sizeof db));
        check_ok(ebb_read(ebb_grad(v), dv, sizeof dv));
        cr_assert_arr_eq(dw, ((double[]){ -4, -8, 4, 8 }), sizeof dw);
        cr_assert_arr_eq(db, ((double[]){ -4, 4 }), sizeof db);
        cr_assert_arr_eq(dv, ((double[]){ -4, -8 }), sizeof dv);
    }
}

/* ---- nesting: B14 ------------------------------------------------------------------------- */

static ebb_status square(void *user, ebb_tensor **out, ebb_tensor *x)
{
    (void)user;
    return ebb_mul(out, x, x);
}

static ebb_status inner_then_square(void *user, ebb_tensor **out, ebb_tensor *x)
{
    (void)user;
    EBB_LOCAL(h);
    EBB_TRY(ebb_checkpoint(&h, x, square, NULL, NULL));
    return ebb_mul(out, h, h);
}

Test(segment, nests_and_keeps_memory_flat_under_retain_graph)
{
    with_context(ctx) {
        EBB_LOCAL(x);
        EBB_LOCAL(y);
        scalar(&x, ctx, 3);
        check_ok(ebb_checkpoint(&y, x, inner_then_square, NULL, NULL));
        cr_assert_float_eq(value_of(y), 81, 1e-12);
        ebb_memory_stats before, after;
        ebb_memory_stats_get(ctx, &before);
        size_t saved = ebb_saved_bytes(ctx);
        cr_assert_eq(replayed(ctx), 0, "forward ran the inner op once");
        ebb_backward_options o = { .struct_bytes = sizeof o, .retain_graph = true };
        check_ok(ebb_backward_ex(&y, 1, &o));
        cr_assert_float_eq(value_of(ebb_grad(x)), 108, 1e-12);
        ebb_memory_stats_get(ctx, &after);
        cr_assert_eq(ebb_saved_bytes(ctx), saved);
        cr_assert_eq(after.by_category[EBB_CAT_ACTIVATION], before.by_category[EBB_CAT_ACTIVATION]);
        cr_assert_eq(after.by_category[EBB_CAT_RECOMPUTED], 0);
        cr_assert_leq(replayed(ctx), 2, "the inner op runs at most twice in a backward");
        check_ok(ebb_backward(y));
        cr_assert_leq(replayed(ctx), 4);
        cr_assert_eq(ebb_saved_bytes(ctx), 0);
        cr_assert_float_eq(value_of(ebb_grad(x)), 216, 1e-12);
        check_fails(ebb_backward(y), EBB_ESTATE);
        check_message("already released");
    }
}

static ebb_status deep(void *user, ebb_tensor **out, ebb_tensor *x)
{
    int depth = *(int *)user;
    EBB_LOCAL(h);
    EBB_TRY(ebb_tanh(&h, x));
    if (depth == 0) return ebb_tanh(out, h);
    int less = depth - 1;
    EBB_TRY(ebb_checkpoint(&h, h, deep, &less, NULL));
    return ebb_tanh(out, h);
}

Test(segment, nests_to_any_depth)
{
    with_context(ctx) {
        double g[2];
        for (int pass = 0; pass < 2; pass++) {
            EBB_LOCAL(x);
            EBB_LOCAL(y);
            scalar(&x, ctx, 0.7);
            int depth = 40;
            if (pass) check_ok(ebb_checkpoint(&y, x, deep, &depth, NULL));
            else
                for (int i = 0; i < 82; i++) check_ok(ebb_tanh(&y, i ? y : x));
            check_ok(ebb_backward(y));
            g[pass] = value_of(ebb_grad(x));
        }
        cr_assert_arr_eq(&g[0], &g[1], sizeof g[0]);
    }
}

/* ---- policies ----------------------------------------------------------------------------- */

static ebb_saver keep_mul(void *user, const ebb_op *op, const ebb_call *call)
{
    (void)call;
    ++*(int *)user;
    return strcmp(op->name, "mul") == 0 ? EBB_SAVER_KEEP : EBB_SAVER_RECOMPUTE;
}

static ebb_status mul_tanh_tanh(void *user, ebb_tensor **out, ebb_tensor *x)
{
    EBB_LOCAL(h);
    EBB_TRY(ebb_mul(&h, x, user));
    EBB_TRY(ebb_tanh(&h, h));
    return ebb_tanh(out, h);
}

Test(segment, a_policy_keeps_chosen_outputs_so_that_their_calls_do_not_run_again)
{
    with_context(ctx) {
        EBB_LOCAL(x);
        EBB_LOCAL(w);
        EBB_LOCAL(y);
        int asked = 0;
        scalar(&x, ctx, 0.5);
        scalar(&w, ctx, 3);
        check_ok(ebb_checkpoint(&y, x, mul_tanh_tanh, w,
                                &(ebb_checkpoint_options){ .struct_bytes = sizeof(ebb_checkpoint_options),
                                                           .name = "s", .policy = keep_mul, .user = &asked }));
        cr_assert_eq(asked, 3, "once per call");
        check_ok(ebb_backward(y));
        cr_assert_eq(asked, 3, "fixed when forward ran");
        cr_assert_eq(replayed(ctx), 2);
        double a = tanh(1.5), b = tanh(a);
        cr_assert_float_eq(value_of(ebb_grad(x)), (1 - b * b) * (1 - a * a) * 3, 1e-12);
    }
}

/* An op that changes state is never repeated: here it counts its runs. */
static int stateful_runs;
static ebb_status stateful_infer(ebb_call *c)
{
    return ebb_arg_set(&c->out[0], c->in[0].dtype, c->in[0].ndim, c->in[0].dims);
}
static ebb_status stateful_forward(const ebb_call *c)
{
    stateful_runs++;
    *(double *)c->out[0].data = *(const double *)c->in[0].data + stateful_runs;
    return EBB_OK;
}
static ebb_status stateful_backward(const ebb_call *c)
{
    *(double *)c->din[0].data = *(const double *)c->dout[0].data + (c->accumulate[0] ? *(double *)c->din[0].data : 0);
    return EBB_OK;
}
static const ebb_op stateful = { .name = "counter", .min_in = 1, .max_in = 1, .n_out = 1, .flags = EBB_OP_STATEFUL,
                                 .infer = stateful_infer, .cpu = { stateful_forward, stateful_backward, NULL } };

static ebb_status count_then_square(void *user, ebb_tensor **out, ebb_tensor *x)
{
    (void)user;
    EBB_LOCAL(h);
    ebb_tensor **outs[] = { &h };
    EBB_TRY(ebb_apply(&stateful, outs, 1, &x, 1, NULL, 0));
    EBB_TRY(ebb_mul(&h, h, h));
    return ebb_mul(out, h, h);
}

Test(segment, an_op_that_changes_state_runs_once)
{
    with_context(ctx) {
        EBB_LOCAL(x);
        EBB_LOCAL(y);
        stateful_runs = 0;
        scalar(&x, ctx, 2);
        check_ok(ebb_checkpoint(&y, x, count_then_square, NULL, NULL));
        check_ok(ebb_backward(y));
        cr_assert_eq(stateful_runs, 1);
        cr_assert_float_eq(value_of(ebb_grad(x)), 4 * 3 * 3 * 3, 1e-12);
    }
}

/* ---- the same weight in two segments, unused outputs --------------------------------------- */

Test(segment, tied_weights_across_segments_accumulate)
{
    with_context(ctx) {
        double g[2];
        for (int pass = 0; pass < 2; pass++) {
            EBB_LOCAL(x);
            EBB_LOCAL(w);
            EBB_LOCAL(y);
            EBB_LOCAL(unused);
            scalar(&x, ctx, 0.5);
            scalar(&w, ctx, 3);
            for (int k = 0; k < 2; k++) {
                if (pass) check_ok(ebb_checkpoint(&y, k ? y : x, tanh_then_mul, w, NULL));
                else check_ok(tanh_then_mul(w, &y, k ? y : x));
            }
            check_ok(ebb_checkpoint(&unused, y, four_tanh, NULL, NULL));
            check_ok(ebb_backward(y));
            g[pass] = value_of(ebb_grad(w));
        }
        cr_assert_eq(g[0], g[1]);
    }
}

/* B12: a recorded call is replayed, so a counter that forward read is not seen again. */
Test(segment, user_data_is_not_used_after_forward)
{
    with_context(ctx) {
        EBB_LOCAL(x);
        EBB_LOCAL(y);
        scalar(&x, ctx, 0.9);
        int depth = 2;
        check_ok(ebb_checkpoint(&y, x, deep, &depth, NULL));
        depth = 9;
        check_ok(ebb_backward(y));
        double v = 0.9, expected = 1;
        for (int i = 0; i < 6; i++) {
            v = tanh(v);
            expected *= 1 - v * v;
        }
        cr_assert_float_eq(value_of(ebb_grad(x)), expected, 1e-12);
    }
}

Test(segment, every_allocation_may_fail)
{
    with_context(ctx) {
        bool done = false;
        for (uint64_t n = 1; !done; n++) {
            EBB_LOCAL(x);
            EBB_LOCAL(y);
            scalar(&x, ctx, 0.9);
            int depth = 2;
            ebb_fault_arm(n);
            ebb_status st = ebb_checkpoint(&y, x, deep, &depth, NULL);
            if (st == EBB_OK) st = ebb_backward(y);
            done = !ebb_fault_fired();
            ebb_fault_arm(0);
            cr_assert_eq(st, done ? EBB_OK : EBB_ENOMEM, "n = %llu: %s", (unsigned long long)n, ebb_message());
            ebb_gradients_reset(ctx);
        }
    }
}
