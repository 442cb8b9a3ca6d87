/* ops/test_large.c: sizes at which work is divided among threads, and reductions take their other
 * paths.  Values are small integers in f32, so that every order of adding gives the same sum. */
#include "ops/case_call.h"
#include "support/support.h"
#include <ebb/op.h>
#include <math.h>
#include <stdlib.h>

typedef struct sum_attrs {
    int n_axes, axes[EBB_MAX_DIMS], keep_dims;
    uint32_t mask;
} sum_attrs; /* as the op's */

static void fill_with_integers(const ebb_arg *arg)
{
    for (int64_t k = 0; k < arg->elems; k++) case_set(arg, k, (double)(k * 7919 % 17 - 8));
}

/* The sum over axis 1 of [a, n, b], naively. */
static double naive(const ebb_arg *x, int64_t i, int64_t j)
{
    double sum = 0;
    int64_t n = x->dims[1], b = x->dims[2];
    for (int64_t k = 0; k < n; k++) sum += case_get(x, (i * n + k) * b + j);
    return sum;
}

static void check_sum(ebb_context *ctx, int64_t a, int64_t n, int64_t b, bool strided)
{
    sum_attrs attrs = { 1, { 1 }, 0, 0 };
    ebb_op_case c = {
        "large",      1,     { { 3, { a, n, b }, EBB_CASE_MASK, 0, strided, false } }, &attrs,
        sizeof attrs, EBB_OK
    };
    c.in[0].kind = EBB_CASE_POSITIVE;
    case_call t;
    check_ok(case_make(&t, ebb_op_find("sum"), &c, EBB_F32, ctx));
    fill_with_integers(&t.call.in[0]);
    case_forward(&t);
    for (int64_t i = 0; i < a; i++) {
        for (int64_t j = 0; j < b; j++) {
            double got = case_get(&t.call.out[0], i * b + j), want = naive(&t.call.in[0], i, j);
            cr_assert(got == want, "[%lld, %lld, %lld], %d threads: sum %lld, %lld is %g, not %g",
                      (long long)a, (long long)n, (long long)b, ebb_context_threads(ctx),
                      (long long)i, (long long)j, got, want);
        }
    }
    case_free(&t);
}

Test(large, sums_are_exact_for_every_layout_and_thread_count)
{
    for (int threads = 1; threads <= 5; threads += 2) {
        with_options(ctx, ((ebb_context_options){ .threads = threads }))
        {
            check_sum(ctx, 1, 40001, 1, false); /* everything into one */
            check_sum(ctx, 3, 20011, 1, false); /* few long rows */
            check_sum(ctx, 2000, 33, 1, false); /* many rows */
            check_sum(ctx, 1, 1031, 37, false); /* few columns */
            check_sum(ctx, 1, 33, 3001, false); /* many columns, more than a tile */
            check_sum(ctx, 7, 511, 13, false);  /* a middle axis */
            check_sum(ctx, 1500, 3, 11, false);
            check_sum(ctx, 5, 701, 9, true);
        }
    }
}

/* d(sum(dy * (x * w)))/dw for x [rows, cols], w [cols]: the gradient of a broadcast operand. */
static void check_broadcast_gradient(ebb_context *ctx, int64_t rows, int64_t cols)
{
    ebb_op_case c = { "large",
                      2,
                      { { 2, { rows, cols }, EBB_CASE_POSITIVE, 0, false, false },
                        { 1, { cols }, EBB_CASE_POSITIVE, 0, false, false } },
                      NULL,
                      0,
                      EBB_OK };
    case_call t;
    check_ok(case_make(&t, ebb_op_find("mul"), &c, EBB_F32, ctx));
    fill_with_integers(&t.call.in[0]);
    case_forward(&t);
    case_make_douts(&t);
    for (int64_t k = 0; k < rows * cols; k++) case_set(&t.call.dout[0], k, (double)(k % 5 - 2));
    case_buffer dw = case_backward(&t, 1, true, 3);
    for (int64_t j = 0; j < cols; j++) {
        double want = 3;
        for (int64_t i = 0; i < rows; i++) {
            want += case_get(&t.call.dout[0], i * cols + j) * case_get(&t.call.in[0], i * cols + j);
        }
        double got = case_get(&dw.arg, j);
        cr_assert(got == want, "[%lld, %lld], %d threads: column %lld is %g, not %g",
                  (long long)rows, (long long)cols, ebb_context_threads(ctx), (long long)j, got,
                  want);
    }
    case_buffer_free(&dw);
    case_free(&t);
}

Test(large, gradients_of_broadcast_rows_are_exact)
{
    for (int threads = 1; threads <= 5; threads += 2) {
        with_options(ctx, ((ebb_context_options){ .threads = threads }))
        {
            check_broadcast_gradient(ctx, 1000, 40);
            check_broadcast_gradient(ctx, 37, 1900);
            check_broadcast_gradient(ctx, 50000, 1);
        }
    }
}

/* Elementwise work does not depend on how it is divided. */
Test(large, elementwise_results_are_the_same_bits_for_every_thread_count)
{
    enum { N = 50021 };
    static double one[N];
    for (int threads = 1; threads <= 4; threads++) {
        with_options(ctx, ((ebb_context_options){ .threads = threads }))
        {
            int kind = 1; /* EBB_GELU_TANH */
            ebb_op_case c = {
                "large", 1,           { { 1, { N }, EBB_CASE_NORMAL, 0, false, false } },
                &kind,   sizeof kind, EBB_OK
            };
            case_call t;
            check_ok(case_make(&t, ebb_op_find("gelu"), &c, EBB_F32, ctx));
            case_forward(&t);
            for (int64_t k = 0; k < N; k++) {
                double y = case_get(&t.call.out[0], k);
                if (threads == 1) one[k] = y;
                cr_assert(y == one[k], "%d threads: element %lld differs", threads, (long long)k);
            }
            case_free(&t);
        }
    }
}

Test(large, sums_of_floats_stay_accurate)
{
    with_context(ctx)
    {
        sum_attrs attrs = { 0 };
        ebb_op_case c = { "large",
                          1,
                          { { 2, { 1000, 1000 }, EBB_CASE_POSITIVE, 0, false, false } },
                          &attrs,
                          sizeof attrs,
                          EBB_OK };
        case_call t;
        check_ok(case_make(&t, ebb_op_find("mean"), &c, EBB_F32, ctx));
        case_forward(&t);
        double exact = 0;
        for (int64_t k = 0; k < 1000000; k++) exact += case_get(&t.call.in[0], k);
        double got = case_get(&t.call.out[0], 0);
        cr_assert(fabs(got / (exact / 1e6) - 1) < 1.2e-7, "%.9g, not %.9g", got, exact / 1e6);
        case_free(&t);
    }
}
