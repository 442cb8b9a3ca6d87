/* What segments promise and free, why one frees nothing, and recomputes that differ. */
#include <string.h>

#include <ebb/checkpoint.h>

#include "support/support.h"

enum { ROWS = 965, BYTES = 8 * ROWS };

static void input(ebb_tensor **out, ebb_context *ctx)
{
    check_ok(ebb_full(out, ctx, EBB_F64, 1, (int64_t[]){ ROWS }, 0.3));
    check_ok(ebb_set_requires_grad(*out, true));
}

static ebb_status tanh_twice(void *user, ebb_tensor **out, ebb_tensor *x)
{
    (void)user;
    EBB_LOCAL(h);
    EBB_TRY(ebb_tanh(&h, x));
    return ebb_tanh(out, h);
}

static ebb_status tanh_once(void *user, ebb_tensor **out, ebb_tensor *x)
{
    (void)user;
    return ebb_tanh(out, x);
}

/* ---- contracts ------------------------------------------------------------------------------ */

typedef struct found { const char *name; ebb_segment_report report; int n; } found;

static void find(void *user, const ebb_segment_report *report)
{
    found *f = user;
    f->n++;
    if (strcmp(report->name, f->name) == 0) f->report = *report;
}

static ebb_segment_report report_of(const ebb_context *ctx, const char *name)
{
    found f = { .name = name };
    ebb_each_segment(ctx, find, &f);
    return f.report;
}

static void run_segment(ebb_context *ctx, const char *name, ebb_segment_fn *fn, ebb_tensor **keep,
                        ebb_saver (*policy)(void *, const ebb_op *, const ebb_call *))
{
    EBB_LOCAL(x);
    EBB_LOCAL(h);
    EBB_LOCAL(y);
    ebb_checkpoint_options o = { .struct_bytes = sizeof o, .name = name, .policy = policy };
    input(&x, ctx);
    check_ok(ebb_scale(&h, x, 2));
    check_ok(ebb_checkpoint(&y, h, fn, NULL, &o));
    if (keep) ebb_bind(keep, y);
    ebb_drop(&h);
    check_ok(ebb_sum(&y, y, 0, NULL, false));
    check_ok(ebb_backward(y));
}

Test(contract, tells_what_was_promised_freed_and_recomputed)
{
    with_context(ctx) {
        run_segment(ctx, "pair", tanh_twice, NULL, NULL);
        run_segment(ctx, "pair", tanh_twice, NULL, NULL);
        ebb_segment_report r = report_of(ctx, "pair");
        cr_assert_eq(r.runs, 2);
        cr_assert_eq(r.recomputed, 2);
        cr_assert_eq(r.promised_bytes, 2 * BYTES);
        cr_assert_eq(r.freed_bytes, 2 * BYTES);
        cr_assert_eq(r.input_bytes, BYTES);
        cr_assert_gt(r.recompute_ms, 0);
        cr_assert_null(r.warning);
    }
}

/* An epoch's last batch is smaller, and not what a report is about. */
Test(contract, bytes_are_of_the_run_that_promised_most)
{
    with_context(ctx) {
        run_segment(ctx, "pair", tanh_twice, NULL, NULL);
        EBB_LOCAL(x);
        EBB_LOCAL(y);
        ebb_checkpoint_options o = { .struct_bytes = sizeof o, .name = "pair" };
        check_ok(ebb_full(&x, ctx, EBB_F64, 1, (int64_t[]){ 7 }, 0.3));
        check_ok(ebb_set_requires_grad(x, true));
        check_ok(ebb_checkpoint(&y, x, tanh_twice, NULL, &o));
        check_ok(ebb_sum(&y, y, 0, NULL, false));
        check_ok(ebb_backward(y));
        ebb_segment_report r = report_of(ctx, "pair");
        cr_assert_eq(r.runs, 2);
        cr_assert_eq(r.recomputed, 2);
        cr_assert_eq(r.promised_bytes, 2 * BYTES);
        cr_assert_eq(r.freed_bytes, 2 * BYTES);
    }
}

static ebb_saver keep_all(void *user, const ebb_op *op, const ebb_call *call)
{
    (void)user, (void)op, (void)call;
    return EBB_SAVER_KEEP;
}

static ebb_status scale_only(void *user, ebb_tensor **out, ebb_tensor *x)
{
    (void)user;
    return ebb_scale(out, x, 3);
}

Test(contract, a_segment_that_frees_nothing_says_why)
{
    with_context(ctx) {
        EBB_LOCAL(held);
        run_segment(ctx, "result held", tanh_once, &held, NULL);
        run_segment(ctx, "keeps", tanh_twice, NULL, keep_all);
        run_segment(ctx, "outside only", scale_only, NULL, NULL);
        cr_assert(support_contains(report_of(ctx, "result held").warning, "alive without it"));
        cr_assert_eq(report_of(ctx, "result held").promised_bytes, BYTES);
        cr_assert(support_contains(report_of(ctx, "keeps").warning, "policy keeps"));
        cr_assert(support_contains(report_of(ctx, "outside only").warning, "came in from outside"));
        EBB_LOCAL(x);
        EBB_LOCAL(y);
        check_ok(ebb_full(&x, ctx, EBB_F64, 0, NULL, 1));
        check_ok(ebb_checkpoint(&y, x, tanh_twice, NULL,
                                &(ebb_checkpoint_options){ .struct_bytes = sizeof(ebb_checkpoint_options),
                                                           .name = "frozen" }));
        cr_assert(support_contains(report_of(ctx, "frozen").warning, "needs a gradient"));
    }
}

/* ---- what the segment keeps itself is not promised ------------------------------------------- */

enum { WIDTH = 8, MATRIX_BYTES = 8 * ROWS * WIDTH };

static void matrix(ebb_tensor **out, ebb_context *ctx, int64_t rows)
{
    check_ok(ebb_full(out, ctx, EBB_F64, 2, (int64_t[]){ rows, WIDTH }, 0.3));
    check_ok(ebb_set_requires_grad(*out, true));
}

static ebb_status linear_only(void *user, ebb_tensor **out, ebb_tensor *x) { return ebb_linear(out, x, user, NULL); }

static ebb_status linear_of_a_view(void *user, ebb_tensor **out, ebb_tensor *x)
{
    EBB_LOCAL(flat);
    EBB_LOCAL(again);
    EBB_TRY(ebb_reshape(&flat, x, 1, (int64_t[]){ ROWS * WIDTH }));
    EBB_TRY(ebb_reshape(&again, flat, 2, (int64_t[]){ ROWS, WIDTH }));
    return ebb_linear(out, again, user, NULL);
}

static ebb_status gelu_tanh(void *user, ebb_tensor **out, ebb_tensor *x)
{
    (void)user;
    EBB_LOCAL(h);
    EBB_TRY(ebb_gelu(&h, x, EBB_GELU_TANH));
    return ebb_tanh(out, h);
}

static ebb_status tanh_gelu(void *user, ebb_tensor **out, ebb_tensor *x)
{
    (void)user;
    EBB_LOCAL(h);
    EBB_TRY(ebb_tanh(&h, x));
    return ebb_gelu(out, h, EBB_GELU_TANH);
}

static ebb_status inner_linear(void *user, ebb_tensor **out, ebb_tensor *x)
{
    EBB_LOCAL(h);
    EBB_TRY(ebb_tanh(&h, x));
    return ebb_checkpoint(out, h, linear_only, user,
                          &(ebb_checkpoint_options){ .struct_bytes = sizeof(ebb_checkpoint_options), .name = "inner" });
}

static ebb_status products_of_views(void *user, ebb_tensor **out, ebb_tensor *x)
{
    (void)x;
    ebb_tensor **halves = user;
    EBB_LOCAL(h);
    EBB_TRY(ebb_mul(&h, halves[0], halves[1]));
    return ebb_tanh(out, h);
}

static ebb_segment_report matrix_report(ebb_context *ctx, ebb_segment_fn *fn, const char *name,
                                        ebb_saver (*policy)(void *, const ebb_op *, const ebb_call *))
{
    EBB_LOCAL(x);
    EBB_LOCAL(w);
    EBB_LOCAL(h);
    EBB_LOCAL(y);
    matrix(&x, ctx, ROWS);
    matrix(&w, ctx, WIDTH);
    ebb_tensor_set_category(w, EBB_CAT_PARAMETER);
    check_ok(ebb_scale(&h, x, 2));
    check_ok(ebb_checkpoint(&y, h, fn, w, &(ebb_checkpoint_options){ .struct_bytes = sizeof(ebb_checkpoint_options),
                                                                    .name = "outer", .policy = policy }));
    ebb_drop(&h);
    check_ok(ebb_sum(&y, y, 0, NULL, false));
    check_ok(ebb_backward(y));
    return report_of(ctx, name);
}

Test(contract, ops_that_save_what_came_in_promise_nothing_and_nothing_runs_again)
{
    ebb_segment_fn *const fns[] = { linear_only, linear_of_a_view };
    for (int i = 0; i < 2; i++)
        with_context(ctx) {
            ebb_segment_report r = matrix_report(ctx, fns[i], "outer", NULL);
            ebb_recompute_stats stats;
            ebb_recompute_stats_get(ctx, &stats);
            cr_assert_eq(r.promised_bytes, 0, "case %d", i);
            cr_assert_eq(r.freed_bytes, 0);
            cr_assert_eq(r.input_bytes, MATRIX_BYTES);
            cr_assert_eq(r.recomputed, 0, "case %d", i);
            cr_assert_eq(stats.promised_bytes, 0);
            cr_assert(support_contains(r.warning, "came in from outside"));
        }
}

Test(contract, what_the_policy_keeps_is_not_promised)
{
    with_context(ctx) {
        ebb_segment_report r = matrix_report(ctx, tanh_gelu, "outer", keep_all);
        cr_assert_eq(r.promised_bytes, 0);
        cr_assert_eq(r.recomputed, 0);
        cr_assert(support_contains(r.warning, "policy keeps"));
    }
}

Test(contract, a_kept_input_is_not_among_what_is_promised)
{
    with_context(ctx) {
        ebb_segment_report r = matrix_report(ctx, gelu_tanh, "outer", NULL);
        cr_assert_eq(r.promised_bytes, MATRIX_BYTES, "tanh's output; gelu saves what came in");
        cr_assert_eq(r.freed_bytes, MATRIX_BYTES);
        cr_assert_eq(r.input_bytes, MATRIX_BYTES);
        cr_assert_eq(r.recomputed, 1);
    }
}

Test(contract, what_an_inner_segment_reads_is_its_outer_segments_promise)
{
    with_context(ctx) {
        ebb_segment_report outer = matrix_report(ctx, inner_linear, "outer", NULL), inner = report_of(ctx, "inner");
        cr_assert_eq(outer.promised_bytes, MATRIX_BYTES);
        cr_assert_eq(outer.freed_bytes, MATRIX_BYTES);
        cr_assert_eq(inner.promised_bytes, 0);
        cr_assert_eq(inner.recomputed, 0);
        cr_assert(support_contains(inner.warning, "came in from outside"));
    }
}

Test(contract, views_that_come_in_are_one_input)
{
    with_context(ctx) {
        ebb_tensor *halves[2] = { NULL, NULL };
        EBB_LOCAL(x);
        EBB_LOCAL(h);
        EBB_LOCAL(y);
        matrix(&x, ctx, 2 * ROWS);
        check_ok(ebb_scale(&h, x, 2));
        for (int i = 0; i < 2; i++) check_ok(ebb_narrow(&halves[i], h, 0, i * ROWS, ROWS));
        check_ok(ebb_checkpoint(&y, h, products_of_views, halves, &(ebb_checkpoint_options){
                                    .struct_bytes = sizeof(ebb_checkpoint_options), .name = "views" }));
        for (int i = 0; i < 2; i++) ebb_drop(&halves[i]);
        ebb_drop(&h);
        check_ok(ebb_sum(&y, y, 0, NULL, false));
        check_ok(ebb_backward(y));
        cr_assert_eq(report_of(ctx, "views").input_bytes, 2 * MATRIX_BYTES, "the storage that both are of");
        cr_assert_eq(report_of(ctx, "views").promised_bytes, MATRIX_BYTES, "tanh's output");
    }
}

static ebb_status nested(void *user, ebb_tensor **out, ebb_tensor *x)
{
    (void)user;
    ebb_checkpoint_options o = { .struct_bytes = sizeof o, .name = "inner" };
    EBB_LOCAL(h);
    EBB_TRY(ebb_tanh(&h, x));
    return ebb_checkpoint(out, h, tanh_twice, NULL, &o);
}

Test(contract, of_nested_segments_each_counts_its_own)
{
    with_context(ctx) {
        run_segment(ctx, "outer", nested, NULL, NULL);
        ebb_segment_report outer = report_of(ctx, "outer"), inner = report_of(ctx, "inner");
        cr_assert_eq(outer.promised_bytes, BYTES);
        cr_assert_eq(inner.promised_bytes, 2 * BYTES);
        cr_assert_eq(inner.input_bytes, 0, "the outer segment's promise");
        cr_assert_eq(outer.recomputed, 1);
        cr_assert_eq(inner.recomputed, 1);
    }
}

/* ---- recomputes that differ ----------------------------------------------------------------- */

static int n_runs; /* of the op below: forward counts them */
static int64_t rows_of_run[8];

static ebb_status moody_infer(ebb_call *call)
{
    int64_t rows = rows_of_run[0] ? rows_of_run[n_runs < 7 ? n_runs : 7] : call->in[0].dims[0];
    return ebb_arg_set(&call->out[0], call->in[0].dtype, 1, &rows);
}

static ebb_status moody_forward(const ebb_call *call)
{
    double *to = call->out[0].data;
    for (int64_t i = 0; i < call->out[0].elems; i++) to[i] = rows_of_run[0] ? 1 : n_runs;
    n_runs++;
    return EBB_OK;
}

static ebb_status moody_backward(const ebb_call *call)
{
    double *to = call->din[0].data;
    const double *y = call->out[0].data;
    for (int64_t i = 0; i < call->din[0].elems; i++) to[i] = y[0];
    return EBB_OK;
}

static const ebb_op moody = { .name = "moody", .min_in = 1, .max_in = 1, .n_out = 1, .needs = { EBB_OUT(0) },
                              .infer = moody_infer, .cpu = { moody_forward, moody_backward, NULL } };

static ebb_status call_moody(void *user, ebb_tensor **out, ebb_tensor *x)
{
    (void)user;
    EBB_LOCAL(y);
    ebb_tensor **outs[] = { &y };
    EBB_TRY(ebb_apply(&moody, outs, 1, &x, 1, NULL, 0));
    EBB_TRY(ebb_scale(&y, y, 2));
    ebb_move(out, &y);
    return EBB_OK;
}

/* Backward through a segment with the op; returns its status. */
static ebb_status moody_backward_of(ebb_context *ctx, bool *has_grad, size_t *left_bytes)
{
    EBB_LOCAL(x);
    EBB_LOCAL(y);
    ebb_checkpoint_options o = { .struct_bytes = sizeof o, .name = "mood" };
    ebb_memory_stats m;
    n_runs = 0;
    input(&x, ctx);
    ebb_memory_stats_get(ctx, &m);
    size_t before = m.allocated_bytes;
    check_ok(ebb_checkpoint(&y, x, call_moody, NULL, &o));
    check_ok(ebb_sum(&y, y, 0, NULL, false));
    ebb_status st = ebb_backward(y);
    *has_grad = ebb_grad(x) != NULL;
    ebb_drop(&y);
    ebb_drop_grad(x);
    ebb_memory_stats_get(ctx, &m);
    *left_bytes = m.allocated_bytes - before;
    ebb_gradients_reset(ctx);
    return st;
}

Test(check_recompute, another_result_is_told_with_segment_op_and_slot)
{
    with_options(ctx, ((ebb_context_options){ .check_recompute = true })) {
        bool has_grad;
        size_t left;
        memset(rows_of_run, 0, sizeof rows_of_run);
        check_fails(moody_backward_of(ctx, &has_grad, &left), EBB_ESTATE);
        check_message("segment 'mood'");
        check_message("moody #1");
        check_message("slot out0");
        cr_assert(!has_grad && left == 0);
    }
}

Test(check_recompute, is_off_unless_asked_for)
{
    with_context(ctx) {
        bool has_grad;
        size_t left;
        memset(rows_of_run, 0, sizeof rows_of_run);
        check_ok(moody_backward_of(ctx, &has_grad, &left));
        cr_assert(has_grad);
    }
}

Test(check_recompute, passes_where_bits_are_the_same)
{
    with_options(ctx, ((ebb_context_options){ .check_recompute = true })) {
        run_segment(ctx, "outer", nested, NULL, NULL);
        EBB_LOCAL(x);
        EBB_LOCAL(y);
        input(&x, ctx);
        check_ok(ebb_recompute_ops(ctx, (const char *const[]){ "tanh" }, 1));
        check_ok(tanh_twice(NULL, &y, x));
        check_ok(ebb_mul(&y, y, y));
        check_ok(ebb_sum(&y, y, 0, NULL, false));
        check_ok(ebb_backward(y));
        ebb_recompute_stats stats;
        ebb_recompute_stats_get(ctx, &stats);
        cr_assert_gt(stats.recomputed_ops, 3);
    }
}

/* B12: a counter in infer() gives 965 rows first and 964 when it is asked again. */
Test(check_recompute, b12_another_shape_is_told_with_both_shapes_always)
{
    with_context(ctx) {
        bool has_grad;
        size_t left;
        for (int i = 0; i < 8; i++) rows_of_run[i] = i ? 964 : 965;
        check_fails(moody_backward_of(ctx, &has_grad, &left), EBB_ESTATE);
        check_message("segment 'mood'");
        check_message("moody #1");
        check_message("slot out0");
        check_message("f64[965]");
        check_message("f64[964]");
        cr_assert(!has_grad && left == 0);
    }
}

/* B12: the gradient of w is complete when the recompute fails, and goes all the same. */
Test(check_recompute, b12_a_gradient_that_was_done_before_the_mismatch_is_dropped)
{
    with_context(ctx) {
        EBB_LOCAL(x);
        EBB_LOCAL(w);
        EBB_LOCAL(y);
        ebb_memory_stats m;
        input(&x, ctx);
        input(&w, ctx);
        n_runs = 0;
        for (int i = 0; i < 8; i++) rows_of_run[i] = i ? 964 : 965;
        ebb_memory_stats_get(ctx, &m);
        size_t before = m.allocated_bytes;
        check_ok(ebb_checkpoint(&y, x, call_moody, NULL, &(ebb_checkpoint_options){
                                    .struct_bytes = sizeof(ebb_checkpoint_options), .name = "mood" }));
        check_ok(ebb_add(&y, y, w));
        check_ok(ebb_sum(&y, y, 0, NULL, false));
        check_fails(ebb_backward(y), EBB_ESTATE);
        check_message("segment 'mood'");
        cr_assert(ebb_grad(w) == NULL && ebb_grad(x) == NULL);
        cr_assert_not(ebb_gradients_valid(ctx), "optimizers refuse");
        check_fails(ebb_backward(y), EBB_ESTATE);
        ebb_drop(&y);
        ebb_memory_stats_get(ctx, &m);
        cr_assert_eq(m.allocated_bytes, before);
        ebb_gradients_reset(ctx);
    }
}

static int n_calls;

static ebb_status fewer_rows_later(void *user, ebb_tensor **out, ebb_tensor *x)
{
    (void)user;
    EBB_LOCAL(h);
    EBB_TRY(ebb_narrow(&h, x, 0, 0, n_calls++ == 0 ? 965 : 964));
    return ebb_tanh(out, h);
}

/* B12: a counter in the segment's own function is never seen: its calls are replayed. */
Test(check_recompute, b12_a_branch_in_the_segments_function_is_not_taken_again)
{
    with_options(ctx, ((ebb_context_options){ .check_recompute = true })) {
        EBB_LOCAL(x);
        EBB_LOCAL(y);
        n_calls = 0;
        input(&x, ctx);
        check_ok(ebb_checkpoint(&y, x, fewer_rows_later, NULL, NULL));
        cr_assert_eq(ebb_tensor_dim(y, 0), 965);
        check_ok(ebb_sum(&y, y, 0, NULL, false));
        check_ok(ebb_backward(y));
        cr_assert_eq(n_calls, 1);
        cr_assert_eq(ebb_tensor_elems(ebb_grad(x)), 965);
    }
}
