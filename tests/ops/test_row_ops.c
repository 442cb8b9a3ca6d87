/* ops/test_row_ops.c: layernorm, rmsnorm, rope, embedding, dropout, cross_entropy and mse against
 * plain formulas in f64; faults that users of other engines met. */
#include <string.h>
#include <sys/mman.h>
#include "ops/case_call.h"
#include "ops/drawn.h"

/* ---- norms ------------------------------------------------------------------------------------ */

typedef struct naive_norm { double *y, *dx, *dgain, *dbias; } naive_norm;

/* layernorm, or rmsnorm where bias is NULL; dL/dy = dy. */
static naive_norm norm_rows(const double *x, const double *gain, const double *bias, const double *dy, int64_t rows,
                            int64_t cols, double eps)
{
    naive_norm r = { calloc((size_t)(rows * cols), 8), calloc((size_t)(rows * cols), 8), calloc((size_t)cols, 8),
                     calloc((size_t)cols, 8) };
    for (int64_t i = 0; i < rows * cols; i += cols) {
        double mean = 0, var = 0, mean_h = 0, mean_hn = 0, n = (double)cols;
        for (int64_t j = 0; j < cols && bias; j++) mean += x[i + j] / n;
        for (int64_t j = 0; j < cols; j++) var += (x[i + j] - mean) * (x[i + j] - mean) / n;
        double rstd = 1 / sqrt(var + eps);
        for (int64_t j = 0; j < cols; j++) {
            double normed = (x[i + j] - mean) * rstd, h = gain[j] * dy[i + j];
            r.y[i + j] = normed * gain[j] + (bias ? bias[j] : 0);
            r.dgain[j] += dy[i + j] * normed;
            r.dbias[j] += dy[i + j];
            mean_h += bias ? h / n : 0;
            mean_hn += h * normed / n;
        }
        for (int64_t j = 0; j < cols; j++) {
            double normed = (x[i + j] - mean) * rstd;
            r.dx[i + j] = rstd * (gain[j] * dy[i + j] - mean_h - normed * mean_hn);
        }
    }
    return r;
}

static void norm_free(naive_norm *r)
{
    free(r->y);
    free(r->dx);
    free(r->dgain);
    free(r->dbias);
}

static void check_norm(ebb_context *ctx, bool centered, ebb_dtype dtype, int64_t rows, int64_t cols, double tolerance)
{
    EBB_LOCAL(x);
    EBB_LOCAL(gain);
    EBB_LOCAL(bias);
    EBB_LOCAL(dy);
    EBB_LOCAL(y);
    double *xs = draw(&x, ctx, dtype, DIMS(rows, cols)), *gains = draw(&gain, ctx, dtype, DIMS(cols));
    double *biases = draw(&bias, ctx, dtype, DIMS(cols)), *dys = draw(&dy, ctx, dtype, DIMS(rows, cols));
    naive_norm want = norm_rows(xs, gains, centered ? biases : NULL, dys, rows, cols, 1e-5);
    if (centered) check_ok(ebb_layernorm(&y, x, gain, bias, 1e-5));
    else check_ok(ebb_rmsnorm(&y, x, gain, 1e-5));
    check_near(y, want.y, tolerance, "y");
    backward_from(y, dy);
    check_near(ebb_grad(x), want.dx, tolerance, "dx");
    check_near(ebb_grad(gain), want.dgain, tolerance, "dgain");
    if (centered) check_near(ebb_grad(bias), want.dbias, tolerance, "dbias");
    norm_free(&want);
    double *all[] = { xs, gains, biases, dys };
    for (size_t i = 0; i < 4; i++) free(all[i]);
}

Test(norm, values_and_gradients_are_those_of_plain_loops)
{
    for (int threads = 1; threads <= 3; threads++) {
        with_options(ctx, ((ebb_context_options){ .threads = threads })) {
            check_norm(ctx, true, EBB_F32, 700, 50, 2e-6);
            check_norm(ctx, true, EBB_F32, 5, 3000, 2e-6);
            check_norm(ctx, true, EBB_F64, 130, 17, 1e-13);
            check_norm(ctx, false, EBB_F32, 700, 50, 2e-6);
            check_norm(ctx, false, EBB_F64, 130, 17, 1e-13);
        }
    }
}

/* Burn 5607: the variance as E[x^2] - E[x]^2 is lost in f32 where the mean is large. */
Test(norm, a_large_mean_does_not_spoil_a_row)
{
    enum { COLS = 16 };
    const double bases[] = { 0, 100, 1000, 10000 }, first[] = { -1.3416, -1.3415, -1.3415, -1.3313 };
    with_context(ctx) {
        for (int k = 0; k < 4; k++) {
            EBB_LOCAL(x);
            EBB_LOCAL(gain);
            EBB_LOCAL(bias);
            EBB_LOCAL(dy);
            EBB_LOCAL(y);
            float row[COLS];
            double xs[COLS], ones[COLS], zeros[COLS] = { 0 };
            for (int i = 0; i < COLS; i++) {
                row[i] = (float)(bases[k] + i * 1e-3);
                xs[i] = (double)row[i];
                ones[i] = 1;
            }
            check_ok(ebb_from_data(&x, ctx, EBB_F32, DIMS(COLS), row));
            check_ok(ebb_set_requires_grad(x, true));
            check_ok(ebb_full(&gain, ctx, EBB_F32, DIMS(COLS), 1));
            check_ok(ebb_zeros(&bias, ctx, EBB_F32, DIMS(COLS)));
            double *dys = draw(&dy, ctx, EBB_F32, DIMS(COLS));
            naive_norm want = norm_rows(xs, ones, zeros, dys, 1, COLS, 1e-5);
            check_ok(ebb_layernorm(&y, x, gain, bias, 1e-5));
            cr_assert(fabs(want.y[0] - first[k]) < 1e-4);
            check_near(y, want.y, 1e-5, "y");
            backward_from(y, dy);
            check_near(ebb_grad(x), want.dx, 1e-5, "dx");
            norm_free(&want);
            free(dys);
        }
    }
}

Test(norm, no_rows_give_zero_gradients)
{
    with_context(ctx) {
        EBB_LOCAL(x);
        EBB_LOCAL(gain);
        EBB_LOCAL(bias);
        EBB_LOCAL(y);
        free(draw(&x, ctx, EBB_F32, DIMS(0, 8)));
        free(draw(&gain, ctx, EBB_F32, DIMS(8)));
        free(draw(&bias, ctx, EBB_F32, DIMS(8)));
        check_ok(ebb_layernorm(&y, x, gain, bias, 1e-5));
        check_ok(ebb_sum(&y, y, 0, NULL, false));
        check_ok(ebb_backward(y));
        check_near(ebb_grad(gain), (double[8]){ 0 }, 0, "dgain");
        check_near(ebb_grad(bias), (double[8]){ 0 }, 0, "dbias");
    }
}

/* ---- rope ------------------------------------------------------------------------------------- */

Test(rope, rotates_pairs_half_a_head_apart_by_the_rows_position)
{
    enum { B = 2, T = 5, HEADS = 2, D = 6, WIDTH = 3 * D, FIRST = 1000 };
    with_context(ctx) {
        EBB_LOCAL(x);
        EBB_LOCAL(y);
        double *xs = draw(&x, ctx, EBB_F32, DIMS(B, T, WIDTH)), want[B * T * WIDTH];
        memcpy(want, xs, sizeof want);
        for (int row = 0; row < B * T; row++) {
            for (int i = 0; i < HEADS * D; i++) {
                if (i % D >= D / 2) continue;
                double angle = (FIRST + row % T) * pow(10000, -2.0 * (i % D) / D);
                double *a = &want[row * WIDTH + i], *b = a + D / 2, old = *a;
                *a = old * cos(angle) - *b * sin(angle);
                *b = *b * cos(angle) + old * sin(angle);
            }
        }
        ebb_rope_options options = { .head_dim = D, .heads = HEADS, .base = 10000, .position = FIRST };
        check_ok(ebb_rope(&y, x, &options));
        check_near(y, want, 1e-6, "y");
        check_fails(ebb_rope(&y, x, NULL), EBB_EINVAL);
        free(xs);
    }
}

/* ---- embedding -------------------------------------------------------------------------------- */

Test(embedding, rows_are_looked_up_and_their_gradients_added)
{
    enum { V = 5, C = 40, N = 6 };
    const int64_t index[N] = { 4, 0, 4, 2, 4, 0 };
    with_options(ctx, ((ebb_context_options){ .threads = 3 })) {
        EBB_LOCAL(table);
        EBB_LOCAL(at);
        EBB_LOCAL(y);
        EBB_LOCAL(dy);
        double *rows = draw(&table, ctx, EBB_F64, DIMS(V, C)), want[N * C], dtable[V * C] = { 0 };
        double *dys = draw(&dy, ctx, EBB_F64, DIMS(2, 3, C));
        check_ok(ebb_from_data(&at, ctx, EBB_I64, DIMS(2, 3), index));
        for (int i = 0; i < N * C; i++) {
            want[i] = rows[index[i / C] * C + i % C];
            dtable[index[i / C] * C + i % C] += dys[i];
        }
        check_ok(ebb_embedding(&y, table, at));
        check_near(y, want, 0, "y");
        backward_from(y, dy);
        check_near(ebb_grad(table), dtable, 1e-15, "dtable");
        free(rows);
        free(dys);
    }
}

Test(embedding, an_index_outside_the_table_is_named)
{
    with_context(ctx) {
        EBB_LOCAL(table);
        EBB_LOCAL(at);
        EBB_LOCAL(y);
        free(draw(&table, ctx, EBB_F32, DIMS(5, 3)));
        check_ok(ebb_from_data(&at, ctx, EBB_I32, DIMS(3), (int32_t[]){ 1, 2, 5 }));
        check_fails(ebb_embedding(&y, table, at), EBB_EINVAL);
        check_message("index 5 at position 2");
        check_message("[0, 5)");
        check_ok(ebb_from_data(&at, ctx, EBB_I64, DIMS(1), (int64_t[]){ -1 }));
        check_fails(ebb_embedding(&y, table, at), EBB_EINVAL);
        cr_assert_null(y);
    }
}

Test(embedding, a_half_table_adds_up_in_f32)
{
    enum { N = 12500 };
    with_context(ctx) {
        EBB_LOCAL(table);
        EBB_LOCAL(at);
        EBB_LOCAL(one);
        EBB_LOCAL(y);
        EBB_LOCAL(dy);
        EBB_LOCAL(wide);
        check_ok(ebb_zeros(&table, ctx, EBB_F16, DIMS(2, 1)));
        check_ok(ebb_full(&one, ctx, EBB_F16, DIMS(2, 1), 1));
        check_ok(ebb_set_requires_grad(table, true));
        check_ok(ebb_set_grad(table, one));
        check_ok(ebb_zeros(&at, ctx, EBB_I32, DIMS(N)));
        check_ok(ebb_full(&dy, ctx, EBB_F16, DIMS(N, 1), 0.01));
        check_ok(ebb_embedding(&y, table, at));
        backward_from(y, dy);
        check_ok(ebb_cast(&wide, ebb_grad(table), EBB_F32));
        check_near(wide, (double[]){ 126, 1 }, 0, "dtable");
    }
}

/* ---- dropout ---------------------------------------------------------------------------------- */

Test(dropout, the_mask_is_a_function_of_seed_and_offset)
{
    enum { N = 203, SEED = 9, OFFSET = 40 };
    const double p = 0.3;
    for (int threads = 1; threads <= 3; threads += 2) {
        with_options(ctx, ((ebb_context_options){ .threads = threads, .seed = SEED })) {
            EBB_LOCAL(x);
            EBB_LOCAL(y);
            double want[N];
            for (int i = 0; i < N; i++) {
                uint32_t words[4];
                ebb__philox(SEED, OFFSET + (uint64_t)(i / 4), words);
                want[i] = (double)words[i % 4] < floor(p * 0x1p32) ? 0 : 1 / (1 - p);
            }
            check_ok(ebb_full(&x, ctx, EBB_F64, DIMS(N), 1));
            check_ok(ebb_set_requires_grad(x, true));
            ebb_rng_set_offset(ctx, OFFSET);
            check_ok(ebb_dropout(&y, x, p));
            cr_assert(ebb_rng_offset(ctx) == OFFSET + (N + 3) / 4);
            check_near(y, want, 0, "y");
            check_ok(ebb_sum(&y, y, 0, NULL, false));
            check_ok(ebb_backward(y));
            check_near(ebb_grad(x), want, 0, "dx");
        }
    }
}

Test(dropout, drops_the_share_it_is_told)
{
    enum { N = 100000 };
    with_context(ctx) {
        EBB_LOCAL(x);
        EBB_LOCAL(y);
        check_ok(ebb_full(&x, ctx, EBB_F32, DIMS(N), 1));
        check_ok(ebb_dropout(&y, x, 0.1));
        double *values = read_doubles(y);
        int dropped = 0;
        for (int i = 0; i < N; i++) dropped += values[i] == 0;
        cr_assert(abs(dropped - N / 10) < 500, "%d of %d", dropped, N); /* 5 standard deviations */
        free(values);
    }
}

Test(dropout, a_probability_of_zero_is_the_tensor_itself)
{
    with_context(ctx) {
        EBB_LOCAL(x);
        EBB_LOCAL(y);
        free(draw(&x, ctx, EBB_F32, DIMS(3)));
        uint64_t offset = ebb_rng_offset(ctx);
        check_ok(ebb_dropout(&y, x, 0));
        cr_assert(y == x);
        cr_assert(ebb_rng_offset(ctx) == offset);
    }
}

/* ---- losses ----------------------------------------------------------------------------------- */

Test(cross_entropy, values_and_gradients_are_those_of_plain_loops)
{
    enum { ROWS = 70, V = 1500 };
    for (int given = 0; given <= 1; given++) {
        with_options(ctx, ((ebb_context_options){ .threads = 3 })) {
            EBB_LOCAL(logits);
            EBB_LOCAL(targets);
            EBB_LOCAL(loss);
            double *xs = draw(&logits, ctx, EBB_F32, DIMS(ROWS, V)), *dx = calloc(ROWS * V, 8), want = 0;
            int32_t labels[ROWS];
            int counted = 0;
            for (int i = 0; i < ROWS; i++) counted += (labels[i] = i % 5 == 3 ? EBB_IGNORE : i * 7919 % V) >= 0;
            double divisor = given ? 123.0 : counted;
            for (int i = 0; i < ROWS; i++) {
                if (labels[i] < 0) continue;
                double sum = 0;
                for (int j = 0; j < V; j++) sum += exp(xs[i * V + j]);
                want += (log(sum) - xs[i * V + labels[i]]) / divisor;
                for (int j = 0; j < V; j++) dx[i * V + j] = (exp(xs[i * V + j]) / sum - (j == labels[i])) / divisor;
            }
            check_ok(ebb_from_data(&targets, ctx, EBB_I32, DIMS(ROWS), labels));
            check_ok(ebb_cross_entropy(&loss, logits, targets, given ? 123 : 0));
            check_near(loss, &want, 1e-7, "loss");
            check_ok(ebb_backward(loss));
            check_near(ebb_grad(logits), dx, 1e-6, "dlogits");
            free(xs);
            free(dx);
        }
    }
}

Test(cross_entropy, a_target_outside_the_classes_is_named)
{
    with_context(ctx) {
        EBB_LOCAL(logits);
        EBB_LOCAL(targets);
        EBB_LOCAL(loss);
        free(draw(&logits, ctx, EBB_F32, DIMS(2, 2, 7)));
        check_ok(ebb_from_data(&targets, ctx, EBB_I64, DIMS(2, 2), (int64_t[]){ 0, -1, 7, 3 }));
        check_fails(ebb_cross_entropy(&loss, logits, targets, 0), EBB_EINVAL);
        check_message("target 7 of row 2");
        check_message("[0, 7)");
        check_ok(ebb_from_data(&targets, ctx, EBB_I64, DIMS(2, 2), (int64_t[]){ 0, -1, -2, 3 }));
        check_fails(ebb_cross_entropy(&loss, logits, targets, 0), EBB_EINVAL);
        cr_assert_null(loss);
    }
}

Test(cross_entropy, no_counted_target_gives_zero_and_no_gradient)
{
    with_context(ctx) {
        EBB_LOCAL(logits);
        EBB_LOCAL(targets);
        EBB_LOCAL(loss);
        free(draw(&logits, ctx, EBB_F32, DIMS(2, 4)));
        check_ok(ebb_from_data(&targets, ctx, EBB_I32, DIMS(2), (int32_t[]){ -1, -1 }));
        check_ok(ebb_cross_entropy(&loss, logits, targets, 0));
        check_near(loss, (double[]){ 0 }, 0, "loss");
        check_ok(ebb_backward(loss));
        check_near(ebb_grad(logits), (double[8]){ 0 }, 0, "dlogits");
    }
}

Test(cross_entropy, large_logits_do_not_overflow)
{
    with_context(ctx) {
        EBB_LOCAL(logits);
        EBB_LOCAL(targets);
        EBB_LOCAL(loss);
        check_ok(ebb_from_data(&logits, ctx, EBB_F32, DIMS(2, 2), (float[]){ 1e4f, 0, -3e38f, 0 }));
        check_ok(ebb_from_data(&targets, ctx, EBB_I32, DIMS(2), (int32_t[]){ 1, 1 }));
        check_ok(ebb_cross_entropy(&loss, logits, targets, 0));
        check_near(loss, (double[]){ 5000 }, 1e-6, "loss");
    }
}

/* Anonymous zero pages that take memory only where they are written. */
static void *addresses(size_t bytes)
{
    void *p = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    return p == MAP_FAILED ? NULL : p;
}

/* PyTorch 85786 and others: past 2^31 elements a 32-bit row offset wraps.  All rows but the last are
 * ignored, so the kernels touch only that one of the 8.6 GB. */
Test(cross_entropy, offsets_beyond_32_bits_are_right)
{
    enum { ROWS = 42732, V = 50257, LABEL = 50000 };
    size_t bytes = (size_t)ROWS * V * sizeof(float);
    float *logits = addresses(bytes), *dlogits = addresses(bytes);
    if (!logits || !dlogits) cr_skip("no %zu bytes of addresses", bytes);
    int32_t *labels = malloc(ROWS * sizeof *labels);
    for (int i = 0; i < ROWS; i++) labels[i] = i == ROWS - 1 ? LABEL : EBB_IGNORE;
    int64_t offset = (int64_t)(ROWS - 1) * V;
    cr_assert(offset == 2147531867);
    logits[offset + LABEL] = 3; /* all else is 0 */
    with_context(ctx) {
        const ebb_op *op = ebb_op_find("cross_entropy");
        float loss = NAN, one = 1, *lse = malloc(ROWS * sizeof *lse);
        double partial[8];
        ebb_call call = { .op = op, .ctx = ctx, .n_in = 2, .n_out = 2, .workspace = partial, .workspace_bytes = sizeof partial };
        check_ok(ebb_arg_set(&call.in[0], EBB_F32, DIMS(ROWS, V)));
        check_ok(ebb_arg_set(&call.in[1], EBB_I32, DIMS(ROWS)));
        check_ok(op->infer(&call));
        call.in[0].data = logits;
        call.in[1].data = labels;
        call.out[0].data = &loss;
        call.out[1].data = lse;
        cr_assert(op->cpu.workspace(&call, EBB_FORWARD, 2) <= sizeof partial);
        check_ok(op->cpu.forward(&call));
        double sum = exp(3) + V - 1, want = log(sum) - 3;
        cr_assert(fabs((double)loss - want) < 1e-6, "loss %g, not %g", (double)loss, want);
        call.dout[0] = call.out[0];
        call.dout[0].data = &one;
        call.din[0] = call.in[0];
        call.din[0].data = dlogits;
        call.want[0] = call.accumulate[0] = true;
        check_ok(op->cpu.backward(&call));
        cr_assert(fabs((double)dlogits[offset + LABEL] - (exp(3) / sum - 1)) < 1e-6);
        cr_assert(fabs((double)dlogits[offset] - 1 / sum) < 1e-9);
        free(lse);
    }
    free(labels);
    munmap(logits, bytes);
    munmap(dlogits, bytes);
}

Test(mse, values_and_gradients_are_those_of_plain_loops)
{
    enum { N = 40000 };
    with_options(ctx, ((ebb_context_options){ .threads = 3 })) {
        EBB_LOCAL(a);
        EBB_LOCAL(b);
        EBB_LOCAL(loss);
        double *as = draw(&a, ctx, EBB_F32, DIMS(N)), *bs = draw(&b, ctx, EBB_F32, DIMS(N)), want = 0;
        double *da = malloc(N * sizeof *da), *db = malloc(N * sizeof *db);
        for (int i = 0; i < N; i++) {
            want += (as[i] - bs[i]) * (as[i] - bs[i]) / N;
            da[i] = 2 * (as[i] - bs[i]) / N;
            db[i] = -da[i];
        }
        check_ok(ebb_mse(&loss, a, b));
        check_near(loss, &want, 1e-7, "loss");
        check_ok(ebb_backward(loss));
        check_near(ebb_grad(a), da, 1e-6, "da");
        check_near(ebb_grad(b), db, 1e-6, "db");
        double *all[] = { as, bs, da, db };
        for (size_t i = 0; i < 4; i++) free(all[i]);
    }
}

Test(mse, the_mean_of_nothing_is_nan)
{
    with_context(ctx) {
        EBB_LOCAL(a);
        EBB_LOCAL(loss);
        double item = 0;
        free(draw(&a, ctx, EBB_F32, DIMS(0, 3)));
        check_ok(ebb_mse(&loss, a, a));
        check_ok(ebb_item(loss, &item));
        cr_assert(isnan(item));
        check_ok(ebb_backward(loss));
    }
}
