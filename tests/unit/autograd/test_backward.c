/* Recording, the walk, and when saved bytes go. */
#include <math.h>
#include <string.h>

#include <ebb/autograd.h>
#include <ebb/checkpoint.h>
#include <ebb/memory.h>

#include "support/cases.h"
#include "support/support.h"

static size_t allocated(const ebb_context *ctx)
{
    ebb_memory_stats stats;
    ebb_memory_stats_get(ctx, &stats);
    return stats.allocated_bytes;
}

static void leaf(ebb_tensor **out, ebb_context *ctx, int n, const double *values)
{
    check_ok(ebb_from_data(out, ctx, EBB_F64, 1, (int64_t[]){ n }, values));
    check_ok(ebb_set_requires_grad(*out, true));
}

static void scalar(ebb_tensor **out, ebb_context *ctx, double value)
{
    check_ok(ebb_full(out, ctx, EBB_F64, 0, NULL, value));
    check_ok(ebb_set_requires_grad(*out, true));
}

static double value_of(ebb_tensor *t)
{
    double value = NAN;
    check_ok(ebb_item(t, &value));
    return value;
}

Test(backward, gradients_of_a_small_graph_are_right)
{
    with_context(ctx) {
        EBB_LOCAL(x);
        EBB_LOCAL(y);
        EBB_LOCAL(z);
        leaf(&x, ctx, 3, (double[]){ 1, 2, 3 });
        check_ok(ebb_mul(&y, x, x));
        check_ok(ebb_mul(&y, y, x));
        check_ok(ebb_sum(&z, y, 0, NULL, false));
        check_ok(ebb_backward(z));
        double g[3];
        check_ok(ebb_read(ebb_grad(x), g, sizeof g));
        for (int i = 0; i < 3; i++) cr_assert_float_eq(g[i], 3.0 * (i + 1) * (i + 1), 1e-12);
    }
}

Test(backward, a_residual_stream_adds_both_ways)
{
    with_context(ctx) {
        EBB_LOCAL(x);
        EBB_LOCAL(h);
        EBB_LOCAL(y);
        scalar(&x, ctx, 0.5);
        check_ok(ebb_scale(&y, x, 1.0));
        for (int i = 0; i < 3; i++) { /* y <- y + tanh(y) */
            check_ok(ebb_tanh(&h, y));
            check_ok(ebb_add(&y, y, h));
        }
        check_ok(ebb_backward(y));
        double v = 0.5, expected = 1;
        for (int i = 0; i < 3; i++) {
            expected *= 1 + (1 - tanh(v) * tanh(v));
            v += tanh(v);
        }
        cr_assert_float_eq(value_of(ebb_grad(x)), expected, 1e-12);
    }
}

Test(backward, leaf_gradients_accumulate_over_backwards)
{
    with_context(ctx) {
        EBB_LOCAL(x);
        scalar(&x, ctx, 3);
        for (int i = 1; i <= 3; i++) {
            EBB_LOCAL(y);
            check_ok(ebb_mul(&y, x, x));
            check_ok(ebb_backward(y));
            cr_assert_float_eq(value_of(ebb_grad(x)), 6.0 * i, 1e-12);
        }
        ebb_drop_grad(x);
        cr_assert_null(ebb_grad(x));
    }
}

Test(backward, several_roots_and_given_gradients)
{
    with_context(ctx) {
        EBB_LOCAL(x);
        EBB_LOCAL(a);
        EBB_LOCAL(b);
        EBB_LOCAL(g);
        leaf(&x, ctx, 2, (double[]){ 1, 2 });
        check_ok(ebb_scale(&a, x, 2));
        check_ok(ebb_mul(&b, x, x));
        check_ok(ebb_from_data(&g, ctx, EBB_F64, 1, (int64_t[]){ 2 }, (double[]){ 10, 100 }));
        ebb_tensor *roots[] = { a, b, x }, *grads[] = { g, g, g };
        ebb_backward_options o = { .struct_bytes = sizeof o, .grads = grads };
        check_ok(ebb_backward_ex(roots, 3, &o));
        double got[2], given[2];
        check_ok(ebb_read(ebb_grad(x), got, sizeof got));
        cr_assert_float_eq(got[0], 10 * (2 + 2 + 1), 1e-12);
        cr_assert_float_eq(got[1], 100 * (2 + 4 + 1), 1e-12);
        check_ok(ebb_read(g, given, sizeof given));
        cr_assert_eq(given[0], 10, "a given gradient is not written over");
        cr_assert_eq(given[1], 100);
    }
}

Test(backward, chosen_targets_leave_leaves_alone)
{
    with_context(ctx) {
        EBB_LOCAL(x);
        EBB_LOCAL(w);
        EBB_LOCAL(h);
        EBB_LOCAL(y);
        EBB_LOCAL(unrelated);
        scalar(&x, ctx, 3);
        scalar(&w, ctx, 5);
        scalar(&unrelated, ctx, 1);
        check_ok(ebb_mul(&h, x, w));
        check_ok(ebb_mul(&y, h, h));
        ebb_tensor *targets[] = { x, h, unrelated }, *got[3] = { NULL, NULL, NULL };
        ebb_backward_options o = { .struct_bytes = sizeof o, .targets = targets, .target_grads = got, .n_targets = 3 };
        check_ok(ebb_backward_ex(&y, 1, &o));
        cr_assert_float_eq(value_of(got[0]), 2 * 15 * 5, 1e-12);
        cr_assert_float_eq(value_of(got[1]), 2 * 15, 1e-12);
        cr_assert_null(got[2]);
        cr_assert_null(ebb_grad(x));
        cr_assert_null(ebb_grad(w));
        ebb_drop(&got[0]);
        ebb_drop(&got[1]);
    }
}

Test(backward, targets_keep_what_they_held_on_failure_and_may_repeat)
{
    with_context(ctx) {
        EBB_LOCAL(x);
        EBB_LOCAL(other);
        EBB_LOCAL(y);
        scalar(&x, ctx, 3);
        scalar(&other, ctx, 5);
        check_ok(ebb_mul(&y, x, x));
        ebb_tensor *targets[] = { x, other, x, y, y }, *got[5] = { ebb_retain(other), ebb_retain(other), NULL, NULL, NULL };
        ebb_backward_options o = { .struct_bytes = sizeof o, .targets = targets, .target_grads = got, .n_targets = 5,
                                   .retain_graph = true };
        ebb_fault_arm(5);
        check_fails(ebb_backward_ex(&y, 1, &o), EBB_ENOMEM);
        ebb_fault_arm(0);
        cr_assert_eq(got[0], other);
        ebb_gradients_reset(ctx);
        check_ok(ebb_mul(&y, x, x));
        targets[3] = targets[4] = y;
        check_ok(ebb_backward_ex(&y, 1, &o));
        cr_assert_float_eq(value_of(got[0]), 6, 1e-12);
        cr_assert_null(got[1], "no path leads to it");
        cr_assert_float_eq(value_of(got[2]), 6, 1e-12);
        cr_assert_float_eq(value_of(got[3]), 1, 1e-12);
        cr_assert_float_eq(value_of(got[4]), 1, 1e-12);
        for (int k = 0; k < 5; k++) ebb_drop(&got[k]);
    }
}

static ebb_status nothing(void *user, ebb_tensor *t, ebb_tensor **grad)
{
    (void)user;
    (void)t;
    (void)grad;
    return EBB_OK;
}

Test(backward, given_gradients_of_a_leaf_root_are_not_written_to)
{
    with_context(ctx) {
        EBB_LOCAL(x);
        EBB_LOCAL(g1);
        EBB_LOCAL(g2);
        scalar(&x, ctx, 3);
        check_ok(ebb_full(&g1, ctx, EBB_F64, 0, NULL, 1));
        check_ok(ebb_full(&g2, ctx, EBB_F64, 0, NULL, 10));
        check_ok(ebb_hook_add(x, &(ebb_hook){ .on_grad = nothing }, NULL));
        ebb_tensor *roots[] = { x, x }, *grads[] = { g1, g2 };
        ebb_backward_options o = { .struct_bytes = sizeof o, .grads = grads };
        check_ok(ebb_backward_ex(roots, 2, &o));
        cr_assert_eq(value_of(ebb_grad(x)), 11);
        cr_assert_eq(value_of(g1), 1);
    }
}

Test(backward, contexts_of_gradients_and_targets_must_agree)
{
    with_context(ctx) {
        EBB_LOCAL(x);
        EBB_LOCAL(y);
        scalar(&x, ctx, 3);
        check_ok(ebb_mul(&y, x, x));
        with_device(dry, "dry:cpu") {
            EBB_LOCAL(g);
            scalar(&g, dry, 1);
            ebb_backward_options o = { .struct_bytes = sizeof o, .grads = &g };
            check_fails(ebb_backward_ex(&y, 1, &o), EBB_EDEVICE);
            ebb_tensor *got = NULL;
            ebb_backward_options t = { .struct_bytes = sizeof t, .targets = &g, .target_grads = &got, .n_targets = 1 };
            check_fails(ebb_backward_ex(&y, 1, &t), EBB_EDEVICE);
        }
    }
}

Test(backward, saved_slots_go_node_by_node)
{
    with_context(ctx) {
        EBB_LOCAL(x);
        EBB_LOCAL(y);
        check_ok(ebb_full(&x, ctx, EBB_F64, 1, (int64_t[]){ 1000 }, 0.1));
        check_ok(ebb_set_requires_grad(x, true));
        ebb_bind(&y, x);
        for (int i = 0; i < 10; i++) check_ok(ebb_tanh(&y, y));
        size_t one = 8192; /* 8000 rounded to 512 */
        cr_assert_eq(ebb_saved_bytes(ctx), 10 * 8000);
        cr_assert_eq(allocated(ctx), 11 * one);
        check_ok(ebb_sum(&y, y, 0, NULL, false));
        ebb_memory_reset_peak(ctx);
        check_ok(ebb_backward(y));
        ebb_memory_stats stats;
        ebb_memory_stats_get(ctx, &stats);
        cr_assert_leq(stats.peak_allocated_bytes, 11 * one + one + 4 * 512,
                      "each node's slot is gone before the next gradient is made");
        cr_assert_eq(ebb_saved_bytes(ctx), 0);
        cr_assert_eq(allocated(ctx), one + one + 512, "x, its gradient, and the loss");
    }
}

Test(backward, a_second_backward_names_the_node_and_the_first_one)
{
    with_context(ctx) {
        EBB_LOCAL(x);
        EBB_LOCAL(y);
        scalar(&x, ctx, 0.5);
        check_ok(ebb_sigmoid(&y, x));
        check_ok(ebb_backward(y));
        double first = value_of(ebb_grad(x));
        check_fails(ebb_backward(y), EBB_ESTATE);
        check_message("sigmoid #1");
        check_message("backward 1");
        check_message("retain_graph");
        cr_assert_eq(value_of(ebb_grad(x)), first, "a refused backward changes nothing");
        cr_assert(ebb_gradients_valid(ctx));
    }
}

Test(backward, retain_graph_allows_another)
{
    with_context(ctx) {
        EBB_LOCAL(x);
        EBB_LOCAL(y);
        scalar(&x, ctx, 3);
        check_ok(ebb_mul(&y, x, x));
        size_t saved = ebb_saved_bytes(ctx);
        ebb_backward_options o = { .struct_bytes = sizeof o, .retain_graph = true };
        check_ok(ebb_backward_ex(&y, 1, &o));
        cr_assert_eq(ebb_saved_bytes(ctx), saved);
        check_ok(ebb_backward(y));
        cr_assert_float_eq(value_of(ebb_grad(x)), 12, 1e-12);
        cr_assert_eq(ebb_saved_bytes(ctx), 0);
    }
}

/* B25: an alias made by detach is changed; the version is shared, so the saved output is known to differ. */
Test(backward, a_change_through_detach_is_found)
{
    with_context(ctx) {
        EBB_LOCAL(a);
        EBB_LOCAL(out);
        EBB_LOCAL(c);
        EBB_LOCAL(loss);
        leaf(&a, ctx, 3, (double[]){ 1, 2, 3 });
        check_ok(ebb_sigmoid(&out, a));
        check_ok(ebb_detach(&c, out));
        check_ok(ebb_sum(&loss, out, 0, NULL, false));
        check_ok(ebb_fill(c, 0));
        check_fails(ebb_backward(loss), EBB_ESTATE);
        check_message("sigmoid");
        check_message("saved version 0, found 1");
        cr_assert_null(ebb_grad(a), "no partial gradient is left");
        cr_assert_not(ebb_gradients_valid(ctx));
        ebb_gradients_reset(ctx);
        check_ok(ebb_sigmoid(&out, a));
        check_ok(ebb_sum(&loss, out, 0, NULL, false));
        check_ok(ebb_backward(loss));
        double g[3], expected[3] = { 0.196612, 0.104994, 0.045177 };
        check_ok(ebb_read(ebb_grad(a), g, sizeof g));
        for (int i = 0; i < 3; i++) cr_assert_float_eq(g[i], expected[i], 1e-6);
    }
}

Test(backward, in_place_on_a_tensor_with_history_is_refused)
{
    with_context(ctx) {
        EBB_LOCAL(x);
        EBB_LOCAL(y);
        EBB_LOCAL(v);
        leaf(&x, ctx, 3, (double[]){ 1, 2, 3 });
        check_ok(ebb_scale(&y, x, 2));
        check_fails(ebb_fill(y, 0), EBB_ESTATE);
        check_message("scale");
        check_ok(ebb_narrow(&v, y, 0, 0, 2));
        check_fails(ebb_fill(v, 0), EBB_ESTATE);
        check_fails(ebb_fill(x, 0), EBB_ESTATE);
        check_ok(ebb_detach(&v, x));
        check_fails(ebb_fill(v, 0), EBB_ESTATE);
        {
            EBB_WITH_MODE(EBB_NO_GRAD);
            check_ok(ebb_fill(x, 1));
        }
        cr_assert_eq(ebb_mode(), EBB_GRAD_ON);
    }
}

/* B23: hidden state carried across windows. */
static void window(ebb_tensor **h, ebb_tensor *w, ebb_context *ctx, double input)
{
    EBB_LOCAL(x);
    check_ok(ebb_full(&x, ctx, EBB_F64, 0, NULL, input));
    check_ok(ebb_mul(h, w, *h));
    check_ok(ebb_add(h, *h, x));
    check_ok(ebb_tanh(h, *h));
}

Test(backward, hidden_state_without_detach_reaches_a_released_graph)
{
    with_context(ctx) {
        EBB_LOCAL(w);
        EBB_LOCAL(h);
        scalar(&w, ctx, 0.5);
        check_ok(ebb_full(&h, ctx, EBB_F64, 0, NULL, 1));
        window(&h, w, ctx, 0.5);
        check_ok(ebb_backward(h));
        cr_assert_float_eq(value_of(h), 0.761594, 1e-6);
        cr_assert_float_eq(value_of(ebb_grad(w)), 0.419974, 1e-6);
        EBB_LOCAL(kept);
        ebb_bind(&kept, h);
        window(&h, w, ctx, -0.25);
        check_fails(ebb_backward(h), EBB_ESTATE);
        check_message("already released");
        ebb_drop_grad(w);
        check_ok(ebb_detach(&h, kept));
        window(&h, w, ctx, -0.25);
        check_ok(ebb_backward(h));
        cr_assert_float_eq(value_of(h), 0.130056, 1e-6);
        cr_assert_float_eq(value_of(ebb_grad(w)), 0.748712, 1e-6);
    }
}

Test(backward, no_grad_records_nothing)
{
    with_context(ctx) {
        EBB_LOCAL(x);
        EBB_LOCAL(y);
        scalar(&x, ctx, 2);
        {
            EBB_WITH_MODE(EBB_NO_GRAD);
            check_ok(ebb_mul(&y, x, x));
        }
        cr_assert_eq(ebb_live_nodes(ctx), 0);
        cr_assert_not(ebb_requires_grad(y));
        check_fails(ebb_backward(y), EBB_ESTATE);
    }
}

Test(backward, without_recording_an_op_may_write_over_its_only_name)
{
    with_context(ctx) {
        EBB_LOCAL(x);
        EBB_LOCAL(also);
        check_ok(ebb_full(&x, ctx, EBB_F32, 1, (int64_t[]){ 1000 }, 2));
        ebb_storage *storage = ebb_tensor_storage(x);
        check_ok(ebb_scale(&x, x, 3));
        cr_assert_eq(ebb_tensor_storage(x), storage);
        ebb_bind(&also, x);
        check_ok(ebb_scale(&x, x, 3));
        cr_assert_neq(ebb_tensor_storage(x), ebb_tensor_storage(also), "another name sees the old bytes");
        float read[1000];
        check_ok(ebb_read(also, read, sizeof read));
        cr_assert_eq(read[999], 6);
        check_ok(ebb_read(x, read, sizeof read));
        cr_assert_eq(read[999], 18);
    }
}

Test(backward, a_frozen_weight_saves_nothing_for_itself)
{
    with_context(ctx) {
        EBB_LOCAL(x);
        EBB_LOCAL(w);
        EBB_LOCAL(y);
        check_ok(ebb_full(&x, ctx, EBB_F64, 2, (int64_t[]){ 4, 3 }, 1));
        check_ok(ebb_full(&w, ctx, EBB_F64, 2, (int64_t[]){ 2, 3 }, 1));
        check_ok(ebb_set_requires_grad(x, true));
        check_ok(ebb_linear(&y, x, w, NULL));
        ebb_slot_info slots[4];
        int n = ebb_node_slots(ebb_tensor_node(y), slots, 4);
        cr_assert_eq(n, 1);
        cr_assert_str_eq(slots[0].name, "in1");
        cr_assert_eq(slots[0].state, EBB_SLOT_KEPT);
    }
}

Test(backward, a_tensor_used_by_two_nodes_is_saved_once)
{
    with_context(ctx) {
        EBB_LOCAL(x);
        EBB_LOCAL(h);
        EBB_LOCAL(a);
        EBB_LOCAL(b);
        check_ok(ebb_full(&x, ctx, EBB_F64, 1, (int64_t[]){ 1000 }, 1));
        check_ok(ebb_set_requires_grad(x, true));
        check_ok(ebb_tanh(&h, x));
        check_ok(ebb_mul(&a, h, h));
        check_ok(ebb_mul(&b, h, a));
        cr_assert_eq(ebb_saved_bytes(ctx), 2 * 8000, "h once, a once");
    }
}

/* The gradient of logits takes the place of logits, unless somebody else can see them. */
Test(backward, cross_entropy_writes_over_logits_only_where_nobody_sees_them)
{
    with_context(ctx) {
        size_t extra[2];
        double g[2][64];
        for (int held = 0; held < 2; held++) {
            EBB_LOCAL(x);
            EBB_LOCAL(logits);
            EBB_LOCAL(targets);
            EBB_LOCAL(loss);
            double before[64], after[64];
            int32_t labels[16] = { 0, 1, 2, 3, -1, 1, 2, 3, 0, 1, 2, 3, 0, 1, 2, 3 };
            ebb_seed(ctx, 3);
            check_ok(ebb_normal(&x, ctx, EBB_F64, 2, (int64_t[]){ 16, 4 }, 0, 1));
            check_ok(ebb_set_requires_grad(x, true));
            check_ok(ebb_from_data(&targets, ctx, EBB_I32, 1, (int64_t[]){ 16 }, labels));
            check_ok(ebb_scale(&logits, x, 2));
            check_ok(ebb_read(logits, before, sizeof before));
            check_ok(ebb_cross_entropy(&loss, logits, targets, 0));
            if (!held) ebb_drop(&logits);
            size_t start = allocated(ctx);
            ebb_memory_reset_peak(ctx);
            check_ok(ebb_backward(loss));
            ebb_memory_stats stats;
            ebb_memory_stats_get(ctx, &stats);
            extra[held] = stats.peak_allocated_bytes - start;
            check_ok(ebb_read(ebb_grad(x), g[held], sizeof g[held]));
            if (!held) continue;
            check_ok(ebb_read(logits, after, sizeof after));
            cr_assert_arr_eq(before, after, sizeof before);
        }
        cr_assert_arr_eq(g[0], g[1], sizeof g[0]);
        cr_assert_lt(extra[0], extra[1]);
    }
}

/* A walk that recurses overflows a stack of 8 MiB at either: no frame has less than 28 bytes. */
enum { CHAIN = CASES(1000000, 300000) };

Test(backward, a_very_long_chain_runs_and_frees, .timeout = 120)
{
    with_context(ctx) {
        EBB_LOCAL(x);
        EBB_LOCAL(y);
        scalar(&x, ctx, 1);
        ebb_bind(&y, x);
        for (int i = 0; i < CHAIN; i++) check_ok(ebb_neg(&y, y));
        cr_assert_eq(ebb_live_nodes(ctx), CHAIN);
        check_ok(ebb_backward(y));
        cr_assert_eq(value_of(ebb_grad(x)), 1);
        ebb_drop(&y);
        cr_assert_eq(ebb_live_nodes(ctx), 0);
    }
}

Test(backward, scalars_without_gradient_are_told_apart)
{
    with_context(ctx) {
        EBB_LOCAL(x);
        EBB_LOCAL(y);
        leaf(&x, ctx, 2, (double[]){ 1, 2 });
        check_ok(ebb_scale(&y, x, 2));
        check_fails(ebb_backward(y), EBB_ESHAPE);
        check_fails(ebb_set_requires_grad(y, true), EBB_ESTATE);
        EBB_LOCAL(ints);
        check_ok(ebb_zeros(&ints, ctx, EBB_I32, 0, NULL));
        check_fails(ebb_set_requires_grad(ints, true), EBB_EDTYPE);
    }
}

Test(backward, keeping_a_loss_keeps_its_graph_and_why_says_so)
{
    with_context(ctx) {
        EBB_LOCAL(x);
        EBB_LOCAL(h);
        EBB_LOCAL(loss);
        check_ok(ebb_full(&x, ctx, EBB_F64, 1, (int64_t[]){ 1000 }, 0.5));
        check_ok(ebb_set_requires_grad(x, true));
        check_ok(ebb_tanh(&h, x));
        const ebb_storage *storage = ebb_tensor_storage(h);
        check_ok(ebb_sum(&loss, h, 0, NULL, false));
        check_ok(ebb_tensor_set_name(loss, "loss"));
        ebb_drop(&h);
        cr_assert_eq(ebb_saved_bytes(ctx), 8000);
        char text[256];
        size_t need = ebb_why(storage, text, sizeof text);
        cr_assert_str_eq(text, "handle 'loss' -> sum #2 -> tanh #1, slot out0\n");
        cr_assert_eq(need, strlen(text));
        char small[10];
        cr_assert_eq(ebb_why(storage, small, sizeof small), need);
        cr_assert_str_eq(small, "handle 'l");
    }
}

Test(backward, why_finds_the_handle_of_a_deep_graph)
{
    with_context(ctx) {
        EBB_LOCAL(x);
        EBB_LOCAL(y);
        EBB_LOCAL(first);
        char text[512];
        scalar(&x, ctx, 0.5);
        check_ok(ebb_tanh(&first, x));
        const ebb_storage *storage = ebb_tensor_storage(first);
        ebb_bind(&y, first);
        ebb_drop(&first);
        for (int i = 0; i < 299; i++) check_ok(ebb_tanh(&y, y));
        check_ok(ebb_tensor_set_name(y, "loss"));
        ebb_why(storage, text, sizeof text);
        cr_assert_str_eq(text, "handle 'loss' -> tanh #300 -> tanh #299 -> tanh #298 -> ... -> tanh #3 -> tanh #2 -> "
                               "tanh #1, slot out0\n");
    }
}

/* B21: a failure in the middle of backward leaves no half-freed graph. */
Test(backward, running_out_of_memory_midway_leaves_nothing)
{
    with_context(ctx) {
        for (uint64_t n = 1;; n++) {
            EBB_LOCAL(x);
            EBB_LOCAL(y);
            check_ok(ebb_full(&x, ctx, EBB_F64, 1, (int64_t[]){ 1000 }, 0.5));
            check_ok(ebb_set_requires_grad(x, true));
            ebb_bind(&y, x);
            for (int i = 0; i < 4; i++) check_ok(ebb_tanh(&y, y));
            check_ok(ebb_mul(&y, y, x));
            check_ok(ebb_sum(&y, y, 0, NULL, false));
            ebb_fault_arm(n);
            ebb_status st = ebb_backward(y);
            bool fired = ebb_fault_fired();
            ebb_fault_arm(0);
            if (!fired) {
                check_ok(st);
                cr_assert_gt(n, 5, "the sweep reached the walk");
                break;
            }
            cr_assert_eq(st, EBB_ENOMEM);
            if (!ebb_gradients_valid(ctx)) {
                cr_assert_null(ebb_grad(x));
                cr_assert_eq(ebb_saved_bytes(ctx), 0);
                cr_assert_eq(allocated(ctx), 8192 + 512, "x and the loss");
                check_fails(ebb_backward(y), EBB_ESTATE);
            }
            ebb_gradients_reset(ctx);
        }
    }
}
