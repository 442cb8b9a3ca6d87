/* ops/test_matrix_ops.c: matmul, linear and attention against naive loops in f64; faults that users of
 * other engines met. */
#include <string.h>
#include "ops/drawn.h"

/* ---- linear and matmul ------------------------------------------------------------------------ */

static void check_linear(ebb_context *ctx, ebb_dtype dtype, int64_t rows, int64_t inner, int64_t outer, double tolerance)
{
    EBB_LOCAL(x);
    EBB_LOCAL(w);
    EBB_LOCAL(b);
    EBB_LOCAL(dy);
    EBB_LOCAL(y);
    double *xs = draw(&x, ctx, dtype, DIMS(rows, inner)), *ws = draw(&w, ctx, dtype, DIMS(outer, inner));
    double *bs = draw(&b, ctx, dtype, DIMS(outer)), *dys = draw(&dy, ctx, dtype, DIMS(rows, outer));
    double *want = calloc((size_t)(rows * outer), 8), *dx = calloc((size_t)(rows * inner), 8);
    double *dw = calloc((size_t)(outer * inner), 8), *db = calloc((size_t)outer, 8);
    for (int64_t i = 0; i < rows; i++) {
        for (int64_t o = 0; o < outer; o++) {
            want[i * outer + o] = bs[o];
            db[o] += dys[i * outer + o];
            for (int64_t c = 0; c < inner; c++) {
                want[i * outer + o] += xs[i * inner + c] * ws[o * inner + c];
                dx[i * inner + c] += dys[i * outer + o] * ws[o * inner + c];
                dw[o * inner + c] += dys[i * outer + o] * xs[i * inner + c];
            }
        }
    }
    check_ok(ebb_linear(&y, x, w, b));
    check_near(y, want, tolerance, "y");
    backward_from(y, dy);
    check_near(ebb_grad(x), dx, tolerance, "dx");
    check_near(ebb_grad(w), dw, tolerance, "dw");
    check_near(ebb_grad(b), db, tolerance, "db");
    double *all[] = { xs, ws, bs, dys, want, dx, dw, db };
    for (size_t i = 0; i < sizeof all / sizeof *all; i++) free(all[i]);
}

Test(linear, values_and_gradients_are_those_of_plain_loops)
{
    for (int threads = 1; threads <= 3; threads++) {
        with_options(ctx, ((ebb_context_options){ .threads = threads })) {
            check_linear(ctx, EBB_F32, 130, 40, 70, 1e-6);
            check_linear(ctx, EBB_F32, 1, 40, 300, 1e-6);
            check_linear(ctx, EBB_F64, 77, 33, 65, 1e-14);
        }
    }
}

Test(linear, half_precision_sums_in_f32_and_rounds_once)
{
    enum { ROWS = 12500 };
    with_context(ctx) {
        EBB_LOCAL(x);
        EBB_LOCAL(w);
        EBB_LOCAL(b);
        EBB_LOCAL(one);
        EBB_LOCAL(y);
        EBB_LOCAL(dy);
        EBB_LOCAL(wide);
        check_ok(ebb_zeros(&x, ctx, EBB_F16, DIMS(ROWS, 1)));
        check_ok(ebb_zeros(&w, ctx, EBB_F16, DIMS(1, 1)));
        check_ok(ebb_zeros(&b, ctx, EBB_F16, DIMS(1)));
        check_ok(ebb_full(&one, ctx, EBB_F16, DIMS(1), 1));
        check_ok(ebb_set_requires_grad(b, true));
        check_ok(ebb_set_grad(b, one));
        check_ok(ebb_full(&dy, ctx, EBB_F16, DIMS(ROWS, 1), 0.01));
        check_ok(ebb_linear(&y, x, w, b));
        backward_from(y, dy);
        check_ok(ebb_cast(&wide, ebb_grad(b), EBB_F32));
        check_near(wide, (double[]){ 126 }, 0, "db");
    }
}

Test(linear, a_batch_of_nothing_gives_zero_gradients)
{
    with_context(ctx) {
        EBB_LOCAL(x);
        EBB_LOCAL(w);
        EBB_LOCAL(b);
        EBB_LOCAL(loss);
        free(draw(&x, ctx, EBB_F32, DIMS(0, 4)));
        free(draw(&w, ctx, EBB_F32, DIMS(3, 4)));
        free(draw(&b, ctx, EBB_F32, DIMS(3)));
        check_ok(ebb_linear(&loss, x, w, b));
        check_ok(ebb_sum(&loss, loss, 0, NULL, false));
        check_ok(ebb_backward(loss));
        check_near(ebb_grad(w), (double[12]){ 0 }, 0, "dw");
        check_near(ebb_grad(b), (double[3]){ 0 }, 0, "db");
        cr_assert(ebb_tensor_elems(ebb_grad(x)) == 0);
    }
}

Test(matmul, batches_broadcast_as_in_numpy)
{
    enum { B = 2, H = 3, M = 4, K = 5, N = 6 };
    with_context(ctx) {
        EBB_LOCAL(a);
        EBB_LOCAL(b);
        EBB_LOCAL(y);
        double *as = draw(&a, ctx, EBB_F64, DIMS(B, 1, M, K)), *bs = draw(&b, ctx, EBB_F64, DIMS(H, N, K));
        double want[B * H * M * N] = { 0 }, da[B * M * K] = { 0 }, db[H * N * K] = { 0 };
        for (int i = 0; i < B * H * M * N; i++) {
            int n = i % N, m = i / N % M, h = i / N / M % H, batch = i / N / M / H;
            for (int k = 0; k < K; k++) {
                double va = as[(batch * M + m) * K + k], vb = bs[(h * N + n) * K + k];
                want[i] += va * vb;
                da[(batch * M + m) * K + k] += vb;
                db[(h * N + n) * K + k] += va;
            }
        }
        check_ok(ebb_matmul_ex(&y, a, b, false, true));
        cr_assert(ebb_tensor_ndim(y) == 4);
        check_near(y, want, 1e-14, "y");
        check_ok(ebb_sum(&y, y, 0, NULL, false));
        check_ok(ebb_backward(y));
        check_near(ebb_grad(a), da, 1e-14, "da");
        check_near(ebb_grad(b), db, 1e-14, "db");
        free(as);
        free(bs);
    }
}

/* ---- attention ------------------------------------------------------------------------------- */

typedef struct setting {
    int64_t batch, t_q, t_k, heads, kv_heads, head_dim;
    bool causal;
    int mask_dims; /* 0: no mask; 2: per key; 3: per row */
    double scale;
} setting;

static bool may_look(const setting *s, const unsigned char *mask, int64_t b, int64_t i, int64_t j)
{
    if (s->causal && j > i + s->t_k - s->t_q) return false;
    if (s->mask_dims == 2) return mask[b * s->t_k + j];
    if (s->mask_dims == 3) return mask[(b * s->t_q + i) * s->t_k + j];
    return true;
}

/* One row: probabilities into p, the output row into out; all of T x T in plain sight. */
static void naive_row(const setting *s, const double *q, const double *k, const double *v, const unsigned char *mask,
                      int64_t b, int64_t h, int64_t i, double *p, double *out)
{
    int64_t d = s->head_dim, kv = h / (s->heads / s->kv_heads);
    double most = -INFINITY, sum = 0;
    for (int64_t j = 0; j < s->t_k; j++) {
        p[j] = -INFINITY;
        if (!may_look(s, mask, b, i, j)) continue;
        p[j] = 0;
        for (int64_t c = 0; c < d; c++) {
            p[j] += q[((b * s->t_q + i) * s->heads + h) * d + c] * k[((b * s->t_k + j) * s->kv_heads + kv) * d + c];
        }
        p[j] *= s->scale != 0 ? s->scale : 1 / sqrt((double)d);
        most = fmax(most, p[j]);
    }
    for (int64_t j = 0; j < s->t_k; j++) sum += p[j] = most == -INFINITY ? 0 : exp(p[j] - most);
    for (int64_t c = 0; c < d; c++) out[c] = 0;
    for (int64_t j = 0; j < s->t_k; j++) {
        if (sum > 0) p[j] /= sum;
        for (int64_t c = 0; c < d; c++) out[c] += p[j] * v[((b * s->t_k + j) * s->kv_heads + kv) * d + c];
    }
}

typedef struct naive_result { double *out, *dq, *dk, *dv; } naive_result;

static naive_result naive_attention(const setting *s, const double *q, const double *k, const double *v,
                                    const unsigned char *mask, const double *dout)
{
    int64_t d = s->head_dim, n_q = s->batch * s->t_q * s->heads * d, n_k = s->batch * s->t_k * s->kv_heads * d;
    naive_result r = { calloc((size_t)n_q, 8), calloc((size_t)n_q, 8), calloc((size_t)n_k, 8), calloc((size_t)n_k, 8) };
    double *p = malloc((size_t)s->t_k * 8), scale = s->scale != 0 ? s->scale : 1 / sqrt((double)d);
    for (int64_t row = 0; row < s->batch * s->heads * s->t_q; row++) {
        int64_t i = row % s->t_q, h = row / s->t_q % s->heads, b = row / s->t_q / s->heads;
        int64_t kv = h / (s->heads / s->kv_heads), at_q = ((b * s->t_q + i) * s->heads + h) * d;
        naive_row(s, q, k, v, mask, b, h, i, p, r.out + at_q);
        double delta = 0;
        for (int64_t c = 0; c < d; c++) delta += dout[at_q + c] * r.out[at_q + c];
        for (int64_t j = 0; j < s->t_k; j++) {
            int64_t at_k = ((b * s->t_k + j) * s->kv_heads + kv) * d;
            double dp = 0;
            for (int64_t c = 0; c < d; c++) dp += dout[at_q + c] * v[at_k + c];
            double ds = p[j] * (dp - delta) * scale;
            for (int64_t c = 0; c < d; c++) {
                r.dv[at_k + c] += p[j] * dout[at_q + c];
                r.dq[at_q + c] += ds * k[at_k + c];
                r.dk[at_k + c] += ds * q[at_q + c];
            }
        }
    }
    free(p);
    return r;
}

static void naive_free(naive_result *r)
{
    free(r->out);
    free(r->dq);
    free(r->dk);
    free(r->dv);
}

/* Drawn bits; the first row of the last batch may look at nothing. */
static unsigned char *draw_mask(ebb_tensor **out, ebb_context *ctx, const setting *s)
{
    int64_t rows = s->mask_dims == 3 ? s->t_q : 1, n = s->batch * rows * s->t_k;
    int64_t dims[] = { s->batch, s->mask_dims == 3 ? s->t_q : s->t_k, s->t_k };
    unsigned char *mask = malloc((size_t)n + 1);
    for (int64_t i = 0; i < n; i++) mask[i] = i * 7919 % 5 != 0;
    memset(mask + (s->batch - 1) * rows * s->t_k, 0, (size_t)s->t_k);
    check_ok(ebb_from_data(out, ctx, EBB_U8, s->mask_dims, dims, mask));
    return mask;
}

static void check_attention(ebb_context *ctx, ebb_dtype dtype, setting s, double tolerance)
{
    EBB_LOCAL(q);
    EBB_LOCAL(k);
    EBB_LOCAL(v);
    EBB_LOCAL(mask);
    EBB_LOCAL(dout);
    EBB_LOCAL(y);
    double *qs = draw(&q, ctx, dtype, DIMS(s.batch, s.t_q, s.heads * s.head_dim));
    double *ks = draw(&k, ctx, dtype, DIMS(s.batch, s.t_k, s.kv_heads * s.head_dim));
    double *vs = draw(&v, ctx, dtype, DIMS(s.batch, s.t_k, s.kv_heads * s.head_dim));
    double *ds = draw(&dout, ctx, dtype, DIMS(s.batch, s.t_q, s.heads * s.head_dim));
    unsigned char *bits = s.mask_dims ? draw_mask(&mask, ctx, &s) : NULL;
    naive_result want = naive_attention(&s, qs, ks, vs, bits, ds);
    ebb_attention_options options = { .heads = s.heads, .kv_heads = s.kv_heads, .causal = s.causal, .scale = s.scale };
    check_ok(ebb_attention(&y, q, k, v, mask, &options));
    check_near(y, want.out, tolerance, "out");
    backward_from(y, dout);
    check_near(ebb_grad(q), want.dq, tolerance, "dq");
    check_near(ebb_grad(k), want.dk, tolerance, "dk");
    check_near(ebb_grad(v), want.dv, tolerance, "dv");
    naive_free(&want);
    free(bits);
    double *all[] = { qs, ks, vs, ds };
    for (size_t i = 0; i < 4; i++) free(all[i]);
}

Test(attention, values_and_gradients_are_those_of_plain_loops)
{
    for (int threads = 1; threads <= 3; threads += 2) {
        with_options(ctx, ((ebb_context_options){ .threads = threads })) {
            check_attention(ctx, EBB_F32, (setting){ 2, 200, 200, 2, 2, 16, .causal = true }, 2e-6);
            check_attention(ctx, EBB_F64, (setting){ 1, 130, 300, 2, 1, 8, .causal = true }, 1e-13);
            check_attention(ctx, EBB_F64, (setting){ 2, 70, 40, 3, 3, 5, .causal = true }, 1e-13);
            check_attention(ctx, EBB_F64, (setting){ 2, 65, 129, 4, 2, 8, .mask_dims = 0 }, 1e-13);
            check_attention(ctx, EBB_F64, (setting){ 2, 70, 140, 2, 2, 8, .mask_dims = 2 }, 1e-13);
            check_attention(ctx, EBB_F64, (setting){ 2, 140, 140, 2, 1, 8, .causal = true, .mask_dims = 3 }, 1e-13);
            check_attention(ctx, EBB_F64, (setting){ 1, 9, 9, 1, 1, 4, .mask_dims = 2, .scale = -0.7 }, 1e-13);
        }
    }
}

Test(attention, large_scores_do_not_overflow)
{
    with_context(ctx) {
        check_attention(ctx, EBB_F32, (setting){ 1, 20, 300, 1, 1, 4, .scale = 100 }, 1e-4);
    }
}

Test(attention, packed_equals_separate_bit_by_bit)
{
    enum { B = 2, T = 90, H = 4, KV = 2, D = 8 };
    with_context(ctx) {
        EBB_LOCAL(qkv);
        EBB_LOCAL(q);
        EBB_LOCAL(k);
        EBB_LOCAL(v);
        EBB_LOCAL(packed);
        EBB_LOCAL(separate);
        EBB_LOCAL(gradient);
        free(draw(&qkv, ctx, EBB_F32, DIMS(B, T, (H + 2 * KV) * D)));
        ebb_attention_options options = { .heads = H, .kv_heads = KV, .causal = true };
        check_ok(ebb_attention_packed(&packed, qkv, &options));
        double *got = read_doubles(packed);
        check_ok(ebb_sum(&packed, packed, 0, NULL, false));
        check_ok(ebb_backward(packed));
        ebb_bind(&gradient, ebb_grad(qkv));
        ebb_drop_grad(qkv);
        check_ok(ebb_narrow(&q, qkv, 2, 0, H * D));
        check_ok(ebb_narrow(&k, qkv, 2, H * D, KV * D));
        check_ok(ebb_narrow(&v, qkv, 2, (H + KV) * D, KV * D));
        check_ok(ebb_attention(&separate, q, k, v, NULL, &options));
        check_near(separate, got, 0, "out");
        check_ok(ebb_sum(&separate, separate, 0, NULL, false));
        check_ok(ebb_backward(separate));
        double *want = read_doubles(ebb_grad(qkv));
        check_near(gradient, want, 0, "dqkv");
        free(got);
        free(want);
    }
}

/* Burn 4697, PyTorch 41508: a softmax over nothing is NaN, and poisons every gradient. */
Test(attention, a_row_that_sees_nothing_gives_zero_and_no_gradient)
{
    with_context(ctx) {
        EBB_LOCAL(q);
        EBB_LOCAL(k);
        EBB_LOCAL(v);
        EBB_LOCAL(mask);
        EBB_LOCAL(y);
        /* The second batch item may look everywhere: it must not notice the first. */
        float same[] = { 1, 0, 1, 0, 1, 0, 1, 0 }, values[] = { 1, 2, 3, 4, 1, 2, 3, 4 };
        unsigned char bits[] = { 1, 1, 0, 0, 1, 1, 1, 1 };
        check_ok(ebb_from_data(&q, ctx, EBB_F32, DIMS(2, 2, 2), same));
        check_ok(ebb_from_data(&k, ctx, EBB_F32, DIMS(2, 2, 2), same));
        check_ok(ebb_from_data(&v, ctx, EBB_F32, DIMS(2, 2, 2), values));
        check_ok(ebb_from_data(&mask, ctx, EBB_U8, DIMS(2, 2, 2), bits));
        ebb_tensor *leaves[] = { q, k, v };
        for (int i = 0; i < 3; i++) check_ok(ebb_set_requires_grad(leaves[i], true));
        check_ok(ebb_attention(&y, q, k, v, mask, &(ebb_attention_options){ .heads = 1 }));
        check_near(y, (double[]){ 2, 3, 0, 0, 2, 3, 2, 3 }, 1e-6, "out");
        check_ok(ebb_sum(&y, y, 0, NULL, false));
        check_ok(ebb_backward(y));
        double s = 0.707106781;
        check_near(ebb_grad(v), (double[]){ .5, .5, .5, .5, 1, 1, 1, 1 }, 1e-6, "dv");
        check_near(ebb_grad(k), (double[]){ -s, 0, s, 0, -2 * s, 0, 2 * s, 0 }, 1e-6, "dk");
        double *dq = read_doubles(ebb_grad(q));
        for (int i = 0; i < 8; i++) cr_assert(fabs(dq[i]) < 1e-6, "dq[%d] is %g", i, dq[i]);
        free(dq);
    }
}

Test(attention, causal_and_padding_together_leave_blind_rows_at_zero)
{
    with_context(ctx) {
        EBB_LOCAL(q);
        EBB_LOCAL(mask);
        EBB_LOCAL(y);
        unsigned char bits[] = { 0, 0, 1, 1 }; /* rows 0 and 1 see nothing: padding hides what is below */
        free(draw(&q, ctx, EBB_F32, DIMS(1, 4, 2)));
        check_ok(ebb_from_data(&mask, ctx, EBB_U8, DIMS(1, 4), bits));
        check_ok(ebb_attention(&y, q, q, q, mask, &(ebb_attention_options){ .heads = 1, .causal = true }));
        double *out = read_doubles(y);
        for (int i = 0; i < 4; i++) cr_assert(out[i] == 0, "row %d: %g", i / 2, out[i]);
        check_ok(ebb_sum(&y, y, 0, NULL, false));
        check_ok(ebb_backward(y));
        double *dq = read_doubles(ebb_grad(q));
        for (int i = 0; i < 8; i++) cr_assert(isfinite(dq[i]), "dq[%d] is %g", i, dq[i]);
        for (int i = 0; i < 4; i++) cr_assert(dq[i] == 0, "dq[%d] is %g", i, dq[i]);
        free(out);
        free(dq);
    }
}

/* llama.cpp 11380: query heads 2h and 2h + 1 share kv head h; others take h and h + KV. */
Test(attention, grouped_heads_are_neighbours)
{
    with_context(ctx) {
        EBB_LOCAL(q);
        EBB_LOCAL(k);
        EBB_LOCAL(v);
        EBB_LOCAL(dy);
        EBB_LOCAL(y);
        free(draw(&q, ctx, EBB_F32, DIMS(1, 1, 4)));
        free(draw(&k, ctx, EBB_F32, DIMS(1, 1, 2)));
        free(draw(&v, ctx, EBB_F32, DIMS(1, 1, 2)));
        check_ok(ebb_from_data(&dy, ctx, EBB_F32, DIMS(1, 1, 4), (float[]){ 1, 2, 4, 8 }));
        check_ok(ebb_attention(&y, q, k, v, NULL, &(ebb_attention_options){ .heads = 4, .kv_heads = 2 }));
        backward_from(y, dy);
        check_near(ebb_grad(v), (double[]){ 3, 12 }, 0, "dv"); /* one key: every probability is 1 */
    }
}

Test(attention, the_same_step_repeats_bit_by_bit)
{
    with_options(ctx, ((ebb_context_options){ .threads = 3 })) {
        EBB_LOCAL(qkv);
        EBB_LOCAL(y);
        double *first = NULL;
        free(draw(&qkv, ctx, EBB_F32, DIMS(3, 150, 3 * 3 * 16)));
        for (int again = 0; again < 4; again++) {
            check_ok(ebb_attention_packed(&y, qkv, &(ebb_attention_options){ .heads = 3, .causal = true }));
            check_ok(ebb_mul(&y, y, y));
            check_ok(ebb_sum(&y, y, 0, NULL, false));
            check_ok(ebb_backward(y));
            if (!first) first = read_doubles(ebb_grad(qkv));
            check_near(ebb_grad(qkv), first, 0, "dqkv");
            ebb_drop_grad(qkv);
        }
        free(first);
    }
}

Test(attention, options_are_required)
{
    with_context(ctx) {
        EBB_LOCAL(x);
        EBB_LOCAL(y);
        free(draw(&x, ctx, EBB_F32, DIMS(1, 2, 6)));
        check_fails(ebb_attention_packed(&y, x, NULL), EBB_EINVAL);
        check_fails(ebb_attention(&y, x, x, x, NULL, NULL), EBB_EINVAL);
        cr_assert_null(y);
    }
}
