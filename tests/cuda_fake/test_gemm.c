/* Products against plain sums: dtypes, transposes, batches, bias, beta, odd addresses. */
#include "fake_device.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

typedef struct gemm_case {
    int64_t m, n, k, batch;
    bool trans_a, trans_b, bias, share_a, share_b;
    double alpha, beta;
    int64_t pad; /* elements between rows */
} gemm_case;

static const gemm_case cases[] = {
    { 5, 7, 3, 1, .alpha = 1 },
    { 5, 7, 3, 1, .trans_a = true, .alpha = 1 },
    { 5, 7, 3, 1, .trans_b = true, .alpha = 0.5 },
    { 5, 7, 3, 1, .trans_a = true, .trans_b = true, .alpha = 1, .beta = 1 },
    { 8, 6, 16, 3, .trans_b = true, .alpha = 1, .pad = 2 },
    { 8, 6, 16, 3, .alpha = 1, .share_b = true, .bias = true },
    { 8, 6, 16, 3, .alpha = 1, .share_a = true, .beta = 1, .pad = 3 },
    { 16, 32, 8, 1, .trans_b = true, .alpha = 1, .bias = true },
    { 1, 9, 4, 2, .alpha = 1, .beta = 0.25 },
    { 9, 1, 4, 1, .alpha = 2 },
    { 4, 5, 0, 2, .alpha = 1, .bias = true },
    { 4, 5, 0, 2, .alpha = 1 },
    { 4, 5, 0, 1, .alpha = 1, .beta = 1 },
    { 0, 5, 3, 1, .alpha = 1 },
};
enum { N_CASES = sizeof cases / sizeof *cases };
static const ebb_dtype dtypes[] = { EBB_F32, EBB_F64, EBB_F16, EBB_BF16 };
static const double tolerance[] = { [EBB_F32] = 1e-5, [EBB_F64] = 1e-13, [EBB_F16] = 2e-3, [EBB_BF16] = 1.6e-2 };

typedef struct matrix {
    int64_t rows, cols, ld, stride, elems;
    char *host;
    void *device;
    size_t bytes;
} matrix;

static matrix matrix_new(fake_device *d, const gemm_case *c, ebb_dtype dtype, int64_t rows, int64_t cols, bool shared,
                         unsigned *seed)
{
    matrix m = { rows, cols, cols + c->pad, 0, 0, NULL, NULL, 0 };
    int64_t one = rows * m.ld;
    m.stride = shared || c->batch == 1 ? 0 : one;
    m.elems = shared ? one : one * c->batch;
    m.bytes = (size_t)(m.elems ? m.elems : 1) * fake_dtype_bytes(dtype);
    m.host = calloc(1, m.bytes);
    for (int64_t i = 0; i < m.elems; i++) fake_store(m.host, i, dtype, fake_random(seed));
    m.device = fake_new_from(d, m.host, m.bytes);
    return m;
}

static void matrix_free(fake_device *d, matrix *m)
{
    fake_delete(d, m->device, m->bytes);
    free(m->host);
}

static double at(const matrix *m, ebb_dtype dtype, int64_t batch, int64_t row, int64_t col)
{
    return fake_load(m->host, batch * m->stride + row * m->ld + col, dtype);
}

static double expected(const gemm_case *c, ebb_dtype dtype, const matrix *a, const matrix *b, const matrix *out,
                       const char *bias, const int64_t where[3])
{
    double sum = 0, before = at(out, dtype, where[0], where[1], where[2]);
    for (int64_t k = 0; k < c->k; k++) {
        double x = c->trans_a ? at(a, dtype, where[0], k, where[1]) : at(a, dtype, where[0], where[1], k);
        double y = c->trans_b ? at(b, dtype, where[0], where[2], k) : at(b, dtype, where[0], k, where[2]);
        sum += x * y;
    }
    return c->alpha * sum + (c->beta != 0 ? c->beta * before : 0) + (c->bias ? fake_load(bias, where[2], dtype) : 0);
}

static void compare(const gemm_case *c, ebb_dtype dtype, const matrix *a, const matrix *b, const matrix *out,
                    const char *bias, const char *got)
{
    for (int64_t batch = 0; batch < c->batch; batch++) {
        for (int64_t i = 0; i < c->m; i++) {
            for (int64_t j = 0; j < out->ld; j++) {
                int64_t index = batch * out->stride + i * out->ld + j;
                double is = fake_load(got, index, dtype), should = fake_load(out->host, index, dtype);
                if (j < c->n) should = expected(c, dtype, a, b, out, bias, (int64_t[]){ batch, i, j });
                else if (i == c->m - 1) continue; /* behind the last row: not there */
                double slack = j < c->n ? tolerance[dtype] * (1 + fabs(should)) : 0;
                cr_assert(fabs(is - should) <= slack, "case %td, dtype %d, batch %ld, [%ld, %ld]: %.9g, not %.9g",
                          c - cases, (int)dtype, (long)batch, (long)i, (long)j, is, should);
            }
        }
    }
}

static void check_case(fake_device *d, const gemm_case *c, ebb_dtype dtype)
{
    unsigned seed = 7;
    matrix a = matrix_new(d, c, dtype, c->trans_a ? c->k : c->m, c->trans_a ? c->m : c->k, c->share_a, &seed);
    matrix b = matrix_new(d, c, dtype, c->trans_b ? c->n : c->k, c->trans_b ? c->k : c->n, c->share_b, &seed);
    matrix out = matrix_new(d, c, dtype, c->m, c->n, false, &seed);
    matrix bias = matrix_new(d, &(gemm_case){ .batch = 1 }, dtype, 1, c->n, false, &seed);
    char *got = malloc(out.bytes);
    ebb__cuda_gemm g = { c->trans_a, c->trans_b, c->m, c->n, c->k, c->batch, c->alpha, c->beta, a.device, b.device,
                         out.device, a.ld, b.ld, out.ld, a.stride, b.stride, out.stride, dtype,
                         c->bias ? bias.device : NULL };
    plugin_ok(ebb__cuda_gemm_run(d->self, &g));
    fake_get(d, got, out.device, out.bytes);
    compare(c, dtype, &a, &b, &out, bias.host, got);
    free(got);
    matrix_free(d, &a);
    matrix_free(d, &b);
    matrix_free(d, &out);
    matrix_free(d, &bias);
}

Test(gemm, equals_plain_sums)
{
    with_fake(d, .deferred = true) {
        for (int i = 0; i < N_CASES; i++)
            for (int t = 0; t < 4; t++) check_case(&d, &cases[i], dtypes[t]);
        cr_assert(fake_get_counts().products > N_CASES);
    }
}

/* The same product again takes the plan that is there. */
Test(gemm, chooses_once_per_shape)
{
    with_fake(d) {
        check_case(&d, &cases[0], EBB_F32);
        long objects = fake_get_counts().blas_objects;
        for (int i = 0; i < 5; i++) check_case(&d, &cases[0], EBB_F32);
        cr_assert(fake_get_counts().blas_objects == objects);
        check_case(&d, &cases[0], EBB_F64);
        cr_assert(fake_get_counts().blas_objects > objects);
    }
}

/* The fake refuses an address that is aligned less than the algorithm was promised. */
Test(gemm, takes_any_address)
{
    with_fake(d) {
        float *p = fake_new(&d, 4096), ones[64], got[16];
        for (int i = 0; i < 64; i++) ones[i] = 1;
        fake_put(&d, p, ones, sizeof ones);
        fake_put(&d, p + 64, ones, sizeof ones);
        for (int shift = 0; shift < 8; shift++) {
            ebb__cuda_gemm g = { .m = 4, .n = 4, .k = 4, .batch = 1, .alpha = 1, .a = p + shift, .b = p + 64 - shift,
                                 .c = p + 200 + shift, .lda = 4, .ldb = 4, .ldc = 4, .dtype = EBB_F32 };
            plugin_ok(ebb__cuda_gemm_run(d.self, &g));
            fake_get(&d, got, p + 200 + shift, sizeof got);
            for (int i = 0; i < 16; i++) cr_assert(got[i] == 4);
        }
        fake_delete(&d, p, 4096);
    }
}

/* Products of ones, and a bias of twos. */
static void check_bias_at(fake_device *d, float *p, const float *bias)
{
    float got[16];
    ebb__cuda_gemm g = { .m = 4, .n = 4, .k = 4, .batch = 1, .alpha = 1, .a = p, .b = p + 64, .c = p + 128, .lda = 4,
                         .ldb = 4, .ldc = 4, .dtype = EBB_F32, .bias = bias };
    plugin_ok(ebb__cuda_gemm_run(d->self, &g));
    fake_get(d, got, p + 128, sizeof got);
    for (int i = 0; i < 16; i++) cr_assert(got[i] == 4 + 2, "%g: bias %td", (double)got[i], bias - p);
}

/* An algorithm that was chosen for a bias is run with no bias that is aligned less; and none is with one that is
 * aligned to less than 16 bytes, which cuBLASLt cannot be told. */
Test(gemm, takes_a_bias_of_any_address)
{
    enum { FLOATS = 1024, BIAS = 256 };
    with_fake(d) {
        float *p = fake_new(&d, FLOATS * sizeof *p), values[FLOATS];
        for (int i = 0; i < FLOATS; i++) values[i] = i < BIAS ? 1 : 2;
        fake_put(&d, p, values, sizeof values);
        for (int at = BIAS; at < BIAS + 128; at++) check_bias_at(&d, p, p + at); /* the first: as aligned as can be */
        fake_delete(&d, p, FLOATS * sizeof *p);
    }
}

/* A product [1, K] by [K, 1] of numbers with more bits of mantissa than TF32 has. */
static double fine_product(fake_device *d, ebb_dtype dtype, double x)
{
    enum { K = 4 };
    size_t bytes = fake_dtype_bytes(dtype);
    char values[3 * K * sizeof(double)], got[sizeof(double)];
    for (int i = 0; i < K; i++) fake_store(values, i, dtype, x), fake_store(values, K + i, dtype, 1);
    char *p = fake_new_from(d, values, sizeof values);
    ebb__cuda_gemm g = { .m = 1, .n = 1, .k = K, .batch = 1, .alpha = 1, .a = p, .b = p + K * bytes,
                         .c = p + 2 * K * bytes, .lda = K, .ldb = 1, .ldc = 1, .dtype = dtype };
    plugin_ok(ebb__cuda_gemm_run(d->self, &g));
    fake_get(d, got, g.c, bytes);
    fake_delete(d, p, sizeof values);
    return fake_load(got, 0, dtype) / K;
}

/* 13 bits of 24 go in f32, and only where EBB_CUDA_TF32 is 1. */
Test(gemm, tf32_is_for_f32_where_it_is_asked_for)
{
    const double fine = 1 + 0x1p-12;
    static const char *const settings[] = { NULL, "0", "", "1" };
    for (int i = 0; i < 4; i++) {
        if (settings[i]) setenv("EBB_CUDA_TF32", settings[i], 1);
        with_fake(d) {
            double f32 = fine_product(&d, EBB_F32, fine);
            cr_expect(f32 == (i == 3 ? 1 : fine), "EBB_CUDA_TF32=%s: %.9g", settings[i] ? settings[i] : "(unset)", f32);
            cr_expect(fine_product(&d, EBB_F64, fine) == fine);
            cr_expect(fine_product(&d, EBB_F16, 1 + 0x1p-10) == 1 + 0x1p-10);
            cr_expect(fine_product(&d, EBB_BF16, 1 + 0x1p-7) == 1 + 0x1p-7);
        }
    }
}

static ebb_status two_products(fake_device *d, void *arg)
{
    (void)arg;
    float *p = d->memory.alloc(d->memory.self, 4096);
    if (!p) return plugin_host()->fail(EBB_ENOMEM, "no memory");
    ebb_arg all = fake_arg(p, EBB_F32, 1024, 0, 0);
    ebb_status st = d->table->fill(d->self, &all, 1);
    ebb__cuda_gemm g = { .m = 4, .n = 4, .k = 4, .batch = 1, .alpha = 1, .a = p, .b = p + 64, .c = p + 128, .lda = 4,
                         .ldb = 4, .ldc = 4, .dtype = EBB_F32, .bias = p + 256 };
    for (int i = 0; i < 2 && st == EBB_OK; i++) st = ebb__cuda_gemm_run(d->self, &g);
    g.batch = 2, g.stride_a = g.stride_b = g.stride_c = 16;
    if (st == EBB_OK) st = ebb__cuda_gemm_run(d->self, &g);
    d->memory.free(d->memory.self, p, 4096);
    return st;
}

Test(gemm, any_call_may_fail)
{
    long n = fake_sweep(two_products, NULL, (fake_changes){ 0 });
    cr_assert(n > 50, "%ld calls", n);
}
