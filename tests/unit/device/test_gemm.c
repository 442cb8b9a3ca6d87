/* device/test_gemm.c: products against a plain triple loop in f64. */
#include <math.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include "device/blas.h"
#include "device/device.h"
#include "support/support.h"

/* ---- operands --------------------------------------------------------------------------------- */

/* Small whole numbers: sums of fewer than 2^16 products are exact in f32, whatever their order. */
static double value_at(int64_t i) { return (double)(i * 7919 % 17 - 8); }

static double get(ebb_dtype dtype, const void *data, int64_t i)
{
    return dtype == EBB_F64 ? ((const double *)data)[i] : (double)((const float *)data)[i];
}

static void set(ebb_dtype dtype, void *data, int64_t i, double value)
{
    if (dtype == EBB_F64) ((double *)data)[i] = value;
    else ((float *)data)[i] = (float)value;
}

static void *filled(ebb_dtype dtype, int64_t n, int64_t salt)
{
    void *data = malloc((size_t)(n > 0 ? n : 1) * ebb_dtype_bytes(dtype));
    cr_assert_not_null(data);
    for (int64_t i = 0; i < n; i++) set(dtype, data, i, value_at(i + salt));
    return data;
}

/* A product with its operands, rows padded so that strides differ from widths. */
typedef struct product {
    ebb__gemm gemm;
    void *a, *b, *c, *bias;
    int64_t c_elems;
} product;

enum { PAD = 3 };

static product product_make(ebb_dtype dtype, int trans, int64_t m, int64_t n, int64_t k, int64_t batch, double beta)
{
    bool ta = trans & 1, tb = trans & 2;
    int64_t lda = (ta ? m : k) + PAD, ldb = (tb ? k : n) + PAD, ldc = n + PAD;
    int64_t stride_a = (ta ? k : m) * lda, stride_b = (tb ? n : k) * ldb, stride_c = m * ldc;
    product p = { .a = filled(dtype, batch * stride_a, 1), .b = filled(dtype, batch * stride_b, 5),
                  .c = filled(dtype, batch * stride_c, 11), .bias = filled(dtype, n, 3), .c_elems = batch * stride_c };
    p.gemm = (ebb__gemm){ .trans_a = ta, .trans_b = tb, .m = m, .n = n, .k = k, .batch = batch, .alpha = 2,
                          .beta = beta, .a = p.a, .b = p.b, .c = p.c, .lda = lda, .ldb = ldb, .ldc = ldc,
                          .stride_a = stride_a, .stride_b = stride_b, .stride_c = stride_c, .dtype = dtype };
    return p;
}

static void product_free(product *p)
{
    free(p->a);
    free(p->b);
    free(p->c);
    free(p->bias);
}

/* What element (i, j) of product b must become, from what C holds now. */
static double expected(const ebb__gemm *g, int64_t b, int64_t i, int64_t j)
{
    double sum = 0;
    for (int64_t l = 0; l < g->k; l++) {
        int64_t ia = b * g->stride_a + (g->trans_a ? l * g->lda + i : i * g->lda + l);
        int64_t ib = b * g->stride_b + (g->trans_b ? j * g->ldb + l : l * g->ldb + j);
        sum += get(g->dtype, g->a, ia) * get(g->dtype, g->b, ib);
    }
    double old = g->beta != 0 ? get(g->dtype, g->c, b * g->stride_c + i * g->ldc + j) : 0;
    double bias = g->bias ? get(g->dtype, g->bias, j) : 0;
    return g->alpha * sum + g->beta * old + bias;
}

/* All of C as it must become; elements between rows stay. */
static double *all_expected(const product *p)
{
    const ebb__gemm *g = &p->gemm;
    double *want = malloc((size_t)(p->c_elems + 1) * sizeof *want);
    for (int64_t i = 0; i < p->c_elems; i++) want[i] = get(g->dtype, p->c, i);
    for (int64_t b = 0; b < g->batch; b++) {
        for (int64_t i = 0; i < g->m; i++) {
            for (int64_t j = 0; j < g->n; j++) want[b * g->stride_c + i * g->ldc + j] = expected(g, b, i, j);
        }
    }
    return want;
}

static void check_c(const product *p, const double *want, const char *what)
{
    const ebb__gemm *g = &p->gemm;
    for (int64_t i = 0; i < p->c_elems; i++) {
        double got = get(g->dtype, p->c, i);
        cr_assert(got == want[i], "%s %s %lld x %lld x %lld, trans %d %d, beta %g: element %lld is %g, not %g", what,
                  ebb_dtype_name(g->dtype), (long long)g->m, (long long)g->n, (long long)g->k, g->trans_a, g->trans_b,
                  g->beta, (long long)i, got, want[i]);
    }
}

/* The pooled and the serial call give the exact result and leave the padding alone. */
static void check_product(ebb__threads *threads, product p)
{
    double *want = all_expected(&p);
    void *before = malloc((size_t)(p.c_elems + 1) * 8);
    memcpy(before, p.c, (size_t)p.c_elems * ebb_dtype_bytes(p.gemm.dtype));
    ebb__gemm_run(threads, &p.gemm);
    check_c(&p, want, "pooled");
    memcpy(p.c, before, (size_t)p.c_elems * ebb_dtype_bytes(p.gemm.dtype));
    ebb__gemm_serial(&p.gemm);
    check_c(&p, want, "serial");
    free(before);
    free(want);
    product_free(&p);
}

/* ---- tests ------------------------------------------------------------------------------------ */

static const int64_t shapes[][3] = { /* m, n, k */
    { 1, 1, 1 },  { 3, 5, 7 },   { 1, 33, 20 }, { 40, 1, 9 },  { 1, 1, 50 },   { 2, 17, 1 },
    { 16, 16, 16 }, { 65, 47, 30 }, { 130, 20, 64 }, { 20, 130, 64 }, { 100, 100, 40 },
};
enum { N_SHAPES = sizeof shapes / sizeof *shapes };

Test(gemm, all_transpositions_and_betas_are_exact)
{
    ebb__threads *threads = NULL;
    check_ok(ebb__blas_open());
    for (int n_threads = 1; n_threads <= 3; n_threads++) {
        check_ok(ebb__threads_new(&threads, n_threads));
        for (int s = 0; s < N_SHAPES; s++) {
            const int64_t *d = shapes[s];
            for (int trans = 0; trans < 4; trans++) {
                check_product(threads, product_make(EBB_F32, trans, d[0], d[1], d[2], 1, 0));
                check_product(threads, product_make(EBB_F32, trans, d[0], d[1], d[2], 1, 1));
                check_product(threads, product_make(EBB_F64, trans, d[0], d[1], d[2], 1, -0.5));
            }
        }
        ebb__threads_free(threads);
    }
    check_no_live_blocks();
}

Test(gemm, bias_is_added_to_every_row)
{
    ebb__threads *threads = NULL;
    check_ok(ebb__threads_new(&threads, 2));
    for (int s = 0; s < N_SHAPES; s++) {
        const int64_t *d = shapes[s];
        product p = product_make(s % 2 ? EBB_F32 : EBB_F64, s % 4, d[0], d[1], d[2], 1, 0);
        p.gemm.bias = p.bias;
        check_product(threads, p);
    }
    product nothing_summed = product_make(EBB_F32, 0, 4, 5, 0, 1, 0);
    nothing_summed.gemm.bias = nothing_summed.bias;
    check_product(threads, nothing_summed);
    ebb__threads_free(threads);
}

Test(gemm, an_empty_sum_leaves_beta_times_c)
{
    ebb__threads *threads = NULL;
    check_ok(ebb__threads_new(&threads, 2));
    check_product(threads, product_make(EBB_F32, 0, 5, 6, 0, 1, 0));
    check_product(threads, product_make(EBB_F32, 1, 5, 6, 0, 2, 1));
    check_product(threads, product_make(EBB_F64, 2, 5, 6, 0, 1, 3));
    check_product(threads, product_make(EBB_F64, 3, 0, 6, 4, 1, 0));
    check_product(threads, product_make(EBB_F32, 3, 6, 0, 4, 1, 0));
    check_product(threads, product_make(EBB_F32, 0, 6, 5, 4, 0, 0));
    ebb__threads_free(threads);
}

Test(gemm, batches_are_divided_among_threads)
{
    ebb__threads *threads = NULL;
    check_ok(ebb__threads_new(&threads, 3));
    for (int64_t batch = 1; batch <= 40; batch += 3) {
        check_product(threads, product_make(EBB_F32, (int)batch % 4, 9, 10, 11, batch, (double)(batch % 2)));
    }
    check_product(threads, product_make(EBB_F32, 0, 70, 80, 30, 5, 0));
    ebb__threads_free(threads);
}

Test(gemm, a_stride_of_zero_is_one_matrix_for_all_batches)
{
    ebb__threads *threads = NULL;
    check_ok(ebb__threads_new(&threads, 2));
    product a_shared = product_make(EBB_F32, 0, 9, 10, 11, 4, 0), b_shared = product_make(EBB_F64, 3, 9, 10, 11, 4, 1);
    a_shared.gemm.stride_a = 0;
    b_shared.gemm.stride_b = 0;
    check_product(threads, a_shared);
    check_product(threads, b_shared);
    ebb__threads_free(threads);
}

Test(gemm, products_that_share_c_are_added_up)
{
    ebb__threads *threads = NULL;
    check_ok(ebb__threads_new(&threads, 2));
    for (int beta = 0; beta <= 1; beta++) {
        product p = product_make(EBB_F32, 1, 40, 35, 33, 5, beta);
        double *want = calloc((size_t)(p.gemm.m * p.gemm.n), sizeof *want);
        for (int64_t i = 0; i < p.gemm.m; i++) {
            for (int64_t j = 0; j < p.gemm.n; j++) {
                double old = get(EBB_F32, p.c, i * p.gemm.ldc + j), sum = beta * old;
                for (int64_t b = 0; b < p.gemm.batch; b++) {
                    ebb__gemm one = p.gemm;
                    one.beta = 0;
                    sum += expected(&one, b, i, j);
                }
                want[i * p.gemm.n + j] = sum;
            }
        }
        p.gemm.stride_c = 0;
        ebb__gemm_run(threads, &p.gemm);
        for (int64_t i = 0; i < p.gemm.m * p.gemm.n; i++) {
            double got = get(EBB_F32, p.c, i / p.gemm.n * p.gemm.ldc + i % p.gemm.n);
            cr_assert(got == want[i], "element %lld is %g, not %g", (long long)i, got, want[i]);
        }
        free(want);
        product_free(&p);
    }
    ebb__threads_free(threads);
}

Test(gemm, beta_zero_never_reads_c)
{
    ebb__threads *threads = NULL;
    check_ok(ebb__threads_new(&threads, 2));
    for (int s = 0; s < N_SHAPES; s++) {
        for (int trans = 0; trans < 4; trans++) {
            product p = product_make(s % 2 ? EBB_F64 : EBB_F32, trans, shapes[s][0], shapes[s][1], shapes[s][2], 1, 0);
            double *want = all_expected(&p);
            const ebb__gemm *g = &p.gemm;
            for (int64_t i = 0; i < p.c_elems; i++) {
                if (i % g->ldc < g->n) set(g->dtype, p.c, i, i % 2 ? NAN : INFINITY);
            }
            ebb__gemm_run(threads, g);
            check_c(&p, want, "NaN before");
            free(want);
            product_free(&p);
        }
    }
    ebb__threads_free(threads);
}

Test(gemm, alpha_zero_reads_neither_a_nor_b)
{
    product p = product_make(EBB_F32, 0, 8, 9, 10, 1, 1);
    p.gemm.alpha = 0;
    double *want = all_expected(&p);
    p.gemm.a = p.gemm.b = NULL;
    ebb__gemm_serial(&p.gemm);
    check_c(&p, want, "alpha 0");
    free(want);
    product_free(&p);
}

Test(gemm, results_repeat_bit_by_bit)
{
    enum { M = 150, N = 170, K = 90 };
    ebb__threads *threads = NULL;
    check_ok(ebb__threads_new(&threads, 3));
    product p = product_make(EBB_F32, 2, M, N, K, 1, 0);
    for (int64_t i = 0; i < M * p.gemm.lda; i++) ((float *)p.a)[i] = sinf((float)i);
    ebb__gemm_run(threads, &p.gemm);
    float *first = malloc((size_t)p.c_elems * sizeof *first);
    memcpy(first, p.c, (size_t)p.c_elems * sizeof *first);
    for (int again = 0; again < 20; again++) {
        ebb__gemm_run(threads, &p.gemm);
        cr_assert(memcmp(first, p.c, (size_t)p.c_elems * sizeof *first) == 0, "run %d differs", again);
    }
    free(first);
    product_free(&p);
    ebb__threads_free(threads);
}

/* Many callers at once: the serial flavour of OpenBLAS fails this now and then. */
static void *multiply_often(void *failed)
{
    for (int i = 0; i < 200; i++) {
        product p = product_make(EBB_F32, i % 4, 65 + i % 7, 33, 40, 1, 0);
        double *want = all_expected(&p);
        ebb__gemm_serial(&p.gemm);
        for (int64_t j = 0; j < p.c_elems; j++) {
            if (get(EBB_F32, p.c, j) != want[j]) *(bool *)failed = true;
        }
        free(want);
        product_free(&p);
    }
    return NULL;
}

Test(gemm, several_threads_may_call_at_once)
{
    enum { CALLERS = 4 };
    pthread_t callers[CALLERS];
    bool failed[CALLERS] = { false };
    check_ok(ebb__blas_open());
    for (int i = 0; i < CALLERS; i++) cr_assert(pthread_create(&callers[i], NULL, multiply_often, &failed[i]) == 0);
    for (int i = 0; i < CALLERS; i++) pthread_join(callers[i], NULL);
    for (int i = 0; i < CALLERS; i++) cr_expect(!failed[i], "caller %d got a wrong product", i);
}

Test(gemm, row_strides_beyond_32_bits_are_right)
{
    enum { M = 2, N = 3, K = 4 };
    const int64_t stride = ((int64_t)1 << 31) + 5; /* floats: 16 GiB of addresses, a few pages of memory */
    size_t bytes = (size_t)stride * M * sizeof(float);
    float *a = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (a == MAP_FAILED) cr_skip("no %zu bytes of addresses", bytes);
    float b[K * N], c[M * N];
    for (int i = 0; i < K * N; i++) b[i] = (float)value_at(i);
    for (int i = 0; i < M; i++) {
        for (int l = 0; l < K; l++) a[i * stride + l] = (float)value_at(10 * i + l);
    }
    ebb__gemm gemm = { .m = M, .n = N, .k = K, .batch = 1, .alpha = 1, .a = a, .lda = stride, .b = b, .ldb = N,
                       .c = c, .ldc = N, .dtype = EBB_F32 };
    ebb__gemm_serial(&gemm);
    for (int i = 0; i < M; i++) {
        for (int j = 0; j < N; j++) {
            double want = expected(&gemm, 0, i, j);
            cr_assert((double)c[i * N + j] == want, "%d, %d: %g, not %g", i, j, (double)c[i * N + j], want);
        }
    }
    munmap(a, bytes);
}
