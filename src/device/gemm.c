/* Matrix products: our threads divide the work, single-threaded OpenBLAS does the parts.
 *
 * A product is cut into a grid of tiles of C; every tile is one BLAS call (more where a size does
 * not fit BLAS' 32-bit integers).  The inner dimension is never cut among threads, so each element
 * of C is summed by one thread, in an order that depends on the shape and the thread count only. */
#include <cblas.h>
#include <limits.h>
#include <string.h>
#include "core/assert.h"
#include "device/device.h"

enum {
    TILE_UNIT = 16,         /* tile borders are multiples of this: whole vectors for the kernels */
    MIN_TILE_MACS = 1 << 15 /* multiply-adds below which a second thread does not pay (about 1 us) */
};
static const int64_t BLAS_MAX = (int64_t)1 << 30; /* rows, columns or depth of one BLAS call */

static int64_t min64(int64_t a, int64_t b) { return a < b ? a : b; }

/* ---- one block on the calling thread ------------------------------------------------------ */

/* Rows [m0, m1) and columns [n0, n1) of one product of the batch. */
typedef struct block {
    const char *a, *b; /* element (m0, 0) of op(A), (0, n0) of op(B) */
    char *c;           /* element (m0, n0) */
    int64_t m, n, k;
} block;

static size_t elem_bytes(const ebb__gemm *g) { return g->dtype == EBB_F64 ? 8 : 4; }

/* Element offset of (row, col) of op(X), X stored with row stride ld. */
static int64_t at(bool trans, int64_t row, int64_t col, int64_t ld)
{
    return trans ? col * ld + row : row * ld + col;
}

static block block_at(const ebb__gemm *g, int64_t batch, int64_t m0, int64_t m1, int64_t n0, int64_t n1)
{
    size_t size = elem_bytes(g);
    return (block){
        .a = (const char *)g->a + (batch * g->stride_a + at(g->trans_a, m0, 0, g->lda)) * (int64_t)size,
        .b = (const char *)g->b + (batch * g->stride_b + at(g->trans_b, 0, n0, g->ldb)) * (int64_t)size,
        .c = (char *)g->c + (batch * g->stride_c + m0 * g->ldc + n0) * (int64_t)size,
        .m = m1 - m0, .n = n1 - n0, .k = g->k,
    };
}

static void scale_rows_f32(float *c, int64_t m, int64_t n, int64_t ldc, float beta)
{
    for (int64_t i = 0; i < m; i++) {
        for (int64_t j = 0; j < n; j++) c[i * ldc + j] *= beta;
    }
}

static void scale_rows_f64(double *c, int64_t m, int64_t n, int64_t ldc, double beta)
{
    for (int64_t i = 0; i < m; i++) {
        for (int64_t j = 0; j < n; j++) c[i * ldc + j] *= beta;
    }
}

/* C = beta * C without reading C where beta is 0; or C = bias in every row. */
static void prepare_c(const ebb__gemm *g, const block *p, int64_t n0, double beta)
{
    size_t size = elem_bytes(g), row_bytes = (size_t)p->n * size;
    if (beta == 1) return;
    if (beta == 0) {
        const char *bias = g->bias ? (const char *)g->bias + (size_t)n0 * size : NULL;
        for (int64_t i = 0; i < p->m; i++) {
            char *row = p->c + (size_t)(i * g->ldc) * size;
            if (bias) memcpy(row, bias, row_bytes);
            else memset(row, 0, row_bytes);
        }
    } else if (g->dtype == EBB_F64) {
        scale_rows_f64((double *)(void *)p->c, p->m, p->n, g->ldc, beta);
    } else {
        scale_rows_f32((float *)(void *)p->c, p->m, p->n, g->ldc, (float)beta);
    }
}

static CBLAS_TRANSPOSE blas_trans(bool trans) { return trans ? CblasTrans : CblasNoTrans; }

/* y[rows or cols] += alpha * op(X) v, X stored [rows, cols]. */
static void add_gemv(const ebb__gemm *g, bool trans, int64_t rows, int64_t cols, const void *x,
                     int64_t ld, const void *v, int64_t inc_v, void *y, int64_t inc_y)
{
    int m = (int)rows, n = (int)cols, ldx = (int)ld, iv = (int)inc_v, iy = (int)inc_y;
    CBLAS_TRANSPOSE t = blas_trans(trans);
    if (g->dtype == EBB_F64) cblas_dgemv(CblasRowMajor, t, m, n, g->alpha, x, ldx, v, iv, 1, y, iy);
    else cblas_sgemv(CblasRowMajor, t, m, n, (float)g->alpha, x, ldx, v, iv, 1, y, iy);
}

/* One BLAS call; every size fits an int.  beta: 0 or 1. */
static void call_blas(const ebb__gemm *g, const block *p, double beta)
{
    if (p->m == 1) { /* C^T = op(B)^T a: beta is 1, see run_block() */
        bool stored_kn = !g->trans_b;
        add_gemv(g, stored_kn, stored_kn ? p->k : p->n, stored_kn ? p->n : p->k, p->b, g->ldb,
                 p->a, g->trans_a ? g->lda : 1, p->c, 1);
        return;
    }
    if (p->n == 1) {
        bool stored_km = g->trans_a;
        add_gemv(g, stored_km, stored_km ? p->k : p->m, stored_km ? p->m : p->k, p->a, g->lda,
                 p->b, g->trans_b ? 1 : g->ldb, p->c, g->ldc);
        return;
    }
    int m = (int)p->m, n = (int)p->n, k = (int)p->k;
    int lda = (int)g->lda, ldb = (int)g->ldb, ldc = (int)g->ldc;
    CBLAS_TRANSPOSE ta = blas_trans(g->trans_a), tb = blas_trans(g->trans_b);
    const void *a = p->a, *b = p->b;
    void *c = p->c;
    if (g->dtype == EBB_F64) {
        cblas_dgemm(CblasRowMajor, ta, tb, m, n, k, g->alpha, a, lda, b, ldb, beta, c, ldc);
    } else {
        cblas_sgemm(CblasRowMajor, ta, tb, m, n, k, (float)g->alpha, a, lda, b, ldb, (float)beta, c, ldc);
    }
}

/* C += alpha op(A) op(B) where a row stride does not fit an int: rows of 2^31 elements and more. */
static void add_plain(const ebb__gemm *g, const block *p)
{
    const float *a32 = (const void *)p->a, *b32 = (const void *)p->b;
    const double *a64 = (const void *)p->a, *b64 = (const void *)p->b;
    float *c32 = (void *)p->c;
    double *c64 = (void *)p->c;
    for (int64_t i = 0; i < p->m; i++) {
        for (int64_t j = 0; j < p->n; j++) {
            double sum = 0;
            for (int64_t l = 0; l < p->k; l++) {
                int64_t ia = at(g->trans_a, i, l, g->lda), ib = at(g->trans_b, l, j, g->ldb);
                sum += g->dtype == EBB_F64 ? a64[ia] * b64[ib] : (double)a32[ia] * b32[ib];
            }
            if (g->dtype == EBB_F64) c64[i * g->ldc + j] += g->alpha * sum;
            else c32[i * g->ldc + j] += (float)(g->alpha * sum);
        }
    }
}

/* The block in pieces that BLAS' 32-bit sizes can say; C holds beta * C already where beta is 1. */
static void run_pieces(const ebb__gemm *g, const block *whole, double beta)
{
    int64_t size = (int64_t)elem_bytes(g);
    for (int64_t i = 0; i < whole->m; i += BLAS_MAX) {
        for (int64_t j = 0; j < whole->n; j += BLAS_MAX) {
            for (int64_t l = 0; l < whole->k; l += BLAS_MAX) {
                block piece = {
                    .a = whole->a + at(g->trans_a, i, l, g->lda) * size,
                    .b = whole->b + at(g->trans_b, l, j, g->ldb) * size,
                    .c = whole->c + (i * g->ldc + j) * size,
                    .m = min64(whole->m - i, BLAS_MAX),
                    .n = min64(whole->n - j, BLAS_MAX),
                    .k = min64(whole->k - l, BLAS_MAX),
                };
                call_blas(g, &piece, l == 0 ? beta : 1);
            }
        }
    }
}

static void run_block(const ebb__gemm *g, int64_t batch, int64_t m0, int64_t m1, int64_t n0, int64_t n1,
                      double beta)
{
    if (m1 <= m0 || n1 <= n0) return;
    block p = block_at(g, batch, m0, m1, n0, n1);
    bool nothing_to_add = g->k <= 0 || g->alpha == 0;
    bool too_wide = g->lda > INT_MAX || g->ldb > INT_MAX || g->ldc > INT_MAX;
    bool vector = p.m == 1 || p.n == 1;
    /* A sum onto prepared rows costs nothing more: with beta = 0 OpenBLAS clears C in a pass of its
     * own.  For gemv it also keeps our promise that beta = 0 never reads C. */
    if (nothing_to_add || too_wide || vector || g->bias || (beta != 0 && beta != 1)) {
        prepare_c(g, &p, n0, beta);
        beta = 1;
    }
    if (nothing_to_add) return;
    if (too_wide) add_plain(g, &p);
    else run_pieces(g, &p, beta);
}

/* Tile [m0, m1) x [n0, n1) of product `batch`; of all products, added up, where they share one C. */
static void run_tile(const ebb__gemm *g, int64_t batch, int64_t m0, int64_t m1, int64_t n0, int64_t n1)
{
    run_block(g, batch, m0, m1, n0, n1, g->beta);
    if (g->stride_c != 0) return;
    for (int64_t next = batch + 1; next < g->batch; next++) run_block(g, next, m0, m1, n0, n1, 1);
}

static int64_t n_results(const ebb__gemm *g) { return g->stride_c == 0 ? min64(g->batch, 1) : g->batch; }

static void check(const ebb__gemm *g)
{
    EBB_ASSERT(g->dtype == EBB_F32 || g->dtype == EBB_F64);
    EBB_ASSERT(!g->bias || g->beta == 0);
    EBB_ASSERT(!g->bias || g->stride_c != 0 || g->batch <= 1);
}

void ebb__gemm_serial(const ebb__gemm *gemm)
{
    check(gemm);
    for (int64_t i = 0; i < n_results(gemm); i++) run_tile(gemm, i, 0, gemm->m, 0, gemm->n);
}

/* ---- division among threads ---------------------------------------------------------------- */

typedef struct tiling {
    const ebb__gemm *gemm;
    int m_parts, n_parts; /* of each product */
} tiling;

/* Border `index` of `parts` over n, in whole units. */
static int64_t border(int64_t n, int parts, int index)
{
    int64_t units = (n + TILE_UNIT - 1) / TILE_UNIT, begin, end;
    if (index >= parts) return n;
    ebb__range_at(units, parts, index, &begin, &end);
    return min64(begin * TILE_UNIT, n);
}

static void run_tiles(void *arg, int64_t begin, int64_t end, int thread)
{
    (void)thread;
    const tiling *grid = arg;
    const ebb__gemm *g = grid->gemm;
    int64_t per_product = (int64_t)grid->m_parts * grid->n_parts;
    for (int64_t i = begin; i < end; i++) {
        int row = (int)(i % per_product) / grid->n_parts, col = (int)(i % per_product) % grid->n_parts;
        run_tile(g, i / per_product,
                 border(g->m, grid->m_parts, row), border(g->m, grid->m_parts, row + 1),
                 border(g->n, grid->n_parts, col), border(g->n, grid->n_parts, col + 1));
    }
}

/* The factors of `parts` that make tiles nearest to squares: a tile reads m + n vectors of length k. */
static void divide(tiling *grid, int parts)
{
    double best = 0;
    for (int m_parts = 1; m_parts <= parts; m_parts++) {
        if (parts % m_parts != 0) continue;
        int n_parts = parts / m_parts;
        double edge = (double)grid->gemm->m / m_parts + (double)grid->gemm->n / n_parts;
        if (best != 0 && edge >= best) continue;
        best = edge;
        grid->m_parts = m_parts;
        grid->n_parts = n_parts;
    }
}

/* Parts per product: none where whole products keep all threads equally busy. */
static int parts_per_product(const ebb__gemm *g, int threads)
{
    double macs = (double)g->m * (double)g->n * (double)g->k;
    if (macs < MIN_TILE_MACS) return 1;
    int64_t results = n_results(g);
    if (results % threads == 0 || results >= 8 * (int64_t)threads) return 1;
    int64_t most = (g->m + TILE_UNIT - 1) / TILE_UNIT * ((g->n + TILE_UNIT - 1) / TILE_UNIT);
    return (int)min64(threads, most);
}

void ebb__gemm_run(ebb__threads *threads, const ebb__gemm *gemm)
{
    check(gemm);
    if (gemm->m <= 0 || gemm->n <= 0 || n_results(gemm) <= 0) return;
    tiling grid = { .gemm = gemm, .m_parts = 1, .n_parts = 1 };
    divide(&grid, parts_per_product(gemm, ebb__threads_count(threads)));
    double macs = (double)gemm->m * (double)gemm->n * (double)(gemm->k > 0 ? gemm->k : 1);
    int64_t tiles = n_results(gemm) * grid.m_parts * grid.n_parts;
    double macs_per_tile = macs / (grid.m_parts * grid.n_parts);
    int64_t grain = macs_per_tile >= MIN_TILE_MACS ? 1 : (int64_t)(MIN_TILE_MACS / macs_per_tile) + 1;
    ebb__threads_run(threads, tiles, grain, run_tiles, &grid);
}
