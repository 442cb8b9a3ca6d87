/* ops/cuda/op_norm.cu: layernorm and rmsnorm; formulas in ops/op_norm.c, and in ops/norm.inc why a row is
 * shifted by its rounded mean (`pivot`), the only one that is saved, and then by the `rest` of the mean.
 * Backward goes over x and dy once (twice, the second time from cache): dx, and per part of the rows the
 * sums for gain and bias, whose total a second kernel makes. */
#include "ops/cuda/columns.h"
#include "ops/cuda/rows.h"

enum { X, GAIN, BIAS };

typedef struct norm_shape {
    int64_t rows, cols;
    bool centered; /* layernorm */
    double eps;
} norm_shape;

static norm_shape shape_of(const ebb_call *call)
{
    const ebb_arg *x = &call->in[X];
    norm_shape s = { 1, x->dims[x->ndim - 1], call->n_out == 3, EBB_ATTRS(call, const ebb__norm_attrs)->eps };
    for (int d = 0; d + 1 < x->ndim; d++) s.rows *= x->dims[d];
    return s;
}

/* ---- forward -------------------------------------------------------------------------------- */

template <class R> struct moments {
    R pivot, rest, rstd;
};

template <class T, int THREADS>
EBB_DEVICE moments<ebb__real<T>> moments_of(const T *row, int64_t cols, bool centered, ebb__real<T> eps)
{
    typedef ebb__real<T> R;
    moments<R> m = { 0, 0, 0 };
    R sum = 0, squares = 0, n = R(cols > 0 ? cols : 1);
    if (centered) {
        EBB_EACH_TURN(T, THREADS, turn, cols) {
            R v[turn.N];
            ebb__take(turn, row, R(0), v);
#pragma unroll
            for (int k = 0; k < turn.N; k++) sum += v[k];
        }
        m.pivot = ebb__group_sum<THREADS>(sum) / n;
        sum = 0;
    }
    EBB_EACH_TURN(T, THREADS, turn, cols) {
        R v[turn.N];
        ebb__take(turn, row, m.pivot, v);
#pragma unroll
        for (int k = 0; k < turn.N; k++) {
            R shifted = v[k] - m.pivot; /* 0 beyond the end */
            sum += shifted;
            squares += shifted * shifted;
        }
    }
    squares = ebb__group_sum<THREADS>(squares);
    if (centered) {
        sum = ebb__group_sum<THREADS>(sum);
        m.rest = sum / n;
        squares -= sum * m.rest;
    }
    m.rstd = ebb__rsqrt(squares / n + eps);
    return m;
}

/* y may be x; bias, pivots and rstds may be NULL. */
template <class T, int THREADS>
EBB_ROW_KERNEL
norm_rows(T *y, ebb__real<T> *pivots, ebb__real<T> *rstds, const T *x, const T *gain, const T *bias, int64_t rows,
          int64_t cols, bool centered, ebb__real<T> eps)
{
    typedef ebb__real<T> R;
    EBB_EACH_ROW(THREADS, row, rows) {
        moments<R> m = moments_of<T, THREADS>(x + row * cols, cols, centered, eps);
        if (threadIdx.x % THREADS == 0) {
            if (pivots) pivots[row] = m.pivot;
            if (rstds) rstds[row] = m.rstd;
        }
        EBB_EACH_TURN(T, THREADS, turn, cols) {
            R v[turn.N], g[turn.N], b[turn.N] = {};
            ebb__take(turn, x + row * cols, R(0), v);
            ebb__take(turn, gain, R(0), g);
            if (bias) ebb__take(turn, bias, R(0), b);
#pragma unroll
            for (int k = 0; k < turn.N; k++) v[k] = ((v[k] - m.pivot) - m.rest) * m.rstd * g[k] + b[k];
            ebb__give(turn, y + row * cols, v, false);
        }
    }
}

static ebb_status forward(void *self, const ebb_call *call)
{
    ebb__cuda *cuda = (ebb__cuda *)self;
    norm_shape s = shape_of(call);
    const void *x = call->in[X].data, *gain = call->in[GAIN].data;
    const void *bias = call->n_in > BIAS ? call->in[BIAS].data : NULL;
    void *y = call->out[0].data, *pivots = s.centered ? call->out[1].data : NULL;
    void *rstds = call->out[s.centered ? 2 : 1].data;
    EBB_FLOATS(cuda, call->in[X].dtype, T, {
        typedef ebb__real<T> R;
        EBB_ROW_LAUNCH(cuda, norm_rows, T, s.rows, s.cols, (T *)y, (R *)pivots, (R *)rstds, (const T *)x,
                       (const T *)gain, (const T *)bias, s.rows, s.cols, s.centered, (R)s.eps);
    });
    return EBB_OK;
}

/* ---- backward ------------------------------------------------------------------------------- */

/* A block's sums for gain and bias, one after the other: 2 * cols reals, once per group of threads in shared
 * memory; where that is too small, in the block's part of the scratch (then the block is one group).  Each
 * lane adds to its own columns only. */
template <class T, int THREADS, class R, int N>
EBB_DEVICE void add_to_sums(const ebb__turn<T, THREADS> &turn, R *sums, const R (&more)[N])
{
#pragma unroll
    for (int k = 0; k < N; k++) {
        if (turn.has(k)) sums[turn.at(k)] += more[k];
    }
}

/* sums of h, h d and d over a row, where h = gain dy and d = x - pivot; then
 *   mean(h) = h / n,  mean(h n) = rstd (hd - rest h) / n,  rest = d / n */
template <class R> struct row_sums {
    R h, hd, d;
};

template <class T, int THREADS>
EBB_DEVICE row_sums<ebb__real<T>> sums_of(const T *x, const T *dy, const T *gain, int64_t cols,
                                          ebb__real<T> pivot)
{
    typedef ebb__real<T> R;
    row_sums<R> s = { 0, 0, 0 };
    EBB_EACH_TURN(T, THREADS, turn, cols) {
        R v[turn.N], g[turn.N], dv[turn.N];
        ebb__take(turn, x, pivot, v);
        ebb__take(turn, dy, R(0), dv);
        if (gain) ebb__take(turn, gain, R(0), g);
#pragma unroll
        for (int k = 0; k < turn.N; k++) {
            R h = gain ? g[k] * dv[k] : R(0), d = v[k] - pivot;
            s.h += h;
            s.hd += h * d;
            s.d += d;
        }
    }
    return { ebb__group_sum<THREADS>(s.h), ebb__group_sum<THREADS>(s.hd), ebb__group_sum<THREADS>(s.d) };
}

template <class T> struct norm_grad {
    const T *x, *dy, *gain;              /* gain NULL: dx is not wanted */
    const ebb__real<T> *pivots, *rstds;  /* pivots NULL: rmsnorm */
    T *dx;                               /* may be dy; NULL: not wanted */
    ebb__real<T> *partials;              /* [gridDim.x, 2, cols]; NULL: neither gain nor bias wants a gradient */
    int64_t rows, cols;
    ebb__real<T> inverse;                /* 1 / cols */
    bool accumulate, in_shared;
};

template <class T, int THREADS>
EBB_DEVICE void grad_row(const norm_grad<T> &g, int64_t row, ebb__real<T> *sums)
{
    typedef ebb__real<T> R;
    const T *x = g.x + row * g.cols, *dy = g.dy + row * g.cols;
    R pivot = g.pivots ? g.pivots[row] : R(0), rstd = g.rstds[row];
    row_sums<R> s = { 0, 0, 0 };
    if (g.pivots || g.dx) s = sums_of<T, THREADS>(x, dy, g.gain, g.cols, pivot);
    R rest = g.pivots ? s.d * g.inverse : R(0), mean_h = g.pivots ? s.h * g.inverse : R(0);
    R mean_hn = rstd * (s.hd - rest * s.h) * g.inverse;
    EBB_EACH_TURN(T, THREADS, turn, g.cols) {
        R v[turn.N], d[turn.N], gain[turn.N] = {};
        ebb__take(turn, x, R(0), v);
        ebb__take(turn, dy, R(0), d);
#pragma unroll
        for (int k = 0; k < turn.N; k++) v[k] = ((v[k] - pivot) - rest) * rstd; /* the normalised row */
        if (sums) {
            R dg[turn.N];
#pragma unroll
            for (int k = 0; k < turn.N; k++) dg[k] = d[k] * v[k];
            add_to_sums(turn, sums, dg);
            add_to_sums(turn, sums + g.cols, d);
        }
        if (!g.dx) continue;
        ebb__take(turn, g.gain, R(0), gain);
#pragma unroll
        for (int k = 0; k < turn.N; k++) v[k] = rstd * (gain[k] * d[k] - mean_h - v[k] * mean_hn);
        ebb__give(turn, g.dx + row * g.cols, v, g.accumulate);
    }
}

template <class T, int THREADS>
EBB_ROW_KERNEL norm_grad_rows(norm_grad<T> g)
{
    typedef ebb__real<T> R;
    enum { GROUPS = EBB__CUDA_THREADS / THREADS };
    EBB_DYNAMIC_SHARED(R, shared);
    R *partial = g.partials ? g.partials + blockIdx.x * 2 * g.cols : NULL, *all = g.in_shared ? shared : partial;
    int64_t per_block = (g.rows + gridDim.x - 1) / gridDim.x, first = blockIdx.x * per_block;
    int64_t end = first + per_block < g.rows ? first + per_block : g.rows, width = 2 * g.cols;
    for (int64_t j = threadIdx.x; partial && j < (g.in_shared ? GROUPS : 1) * width; j += EBB__CUDA_THREADS) all[j] = 0;
    __syncthreads();
    int group = (int)threadIdx.x / THREADS;
    for (int64_t row = first + group; row < end; row += GROUPS) {
        grad_row<T, THREADS>(g, row, partial ? all + group * width : NULL);
    }
    if (!partial || !g.in_shared) return;
    __syncthreads();
    for (int64_t j = threadIdx.x; j < width; j += EBB__CUDA_THREADS) {
        R sum = 0;
#pragma unroll
        for (int k = 0; k < GROUPS; k++) sum += shared[k * width + j];
        partial[j] = sum;
    }
}

template <class T>
static ebb_status run_rows(ebb__cuda *cuda, norm_grad<T> g)
{
    size_t sums = 2 * (size_t)g.cols * sizeof(ebb__real<T>), groups = EBB__CUDA_THREADS / EBB__ROW_BY_WARP;
    unsigned grid = (unsigned)ebb__cuda_norm_parts(g.rows);
    if (g.cols <= EBB__SHORT_ROW && groups * sums <= EBB__CUDA_DYNAMIC_SHARED) {
        g.in_shared = true;
        EBB_LAUNCH(cuda, (norm_grad_rows<T, EBB__ROW_BY_WARP>), grid, EBB__CUDA_THREADS, groups * sums, g);
        return EBB_OK;
    }
    g.in_shared = sums <= EBB__CUDA_DYNAMIC_SHARED - 1024; /* the block sums take some */
    size_t bytes = g.in_shared ? sums : 0;
    EBB_LAUNCH(cuda, (norm_grad_rows<T, EBB__ROW_BY_BLOCK>), grid, EBB__CUDA_THREADS, bytes, g);
    return EBB_OK;
}

/* The gradients of gain and bias from the parts' sums. */
template <class T>
static ebb_status add_up(ebb__cuda *cuda, const ebb_call *call, const norm_shape *s)
{
    const ebb__real<T> *partials = (const ebb__real<T> *)call->workspace;
    for (int i = GAIN; i < call->n_in; i++) {
        if (!call->din[i].data) continue;
        ebb_status st = ebb__cuda_column_total<T>(cuda, (T *)call->din[i].data, partials + (i - GAIN) * s->cols,
                                                  ebb__cuda_norm_parts(s->rows), 2 * s->cols, s->cols,
                                                  call->accumulate[i]);
        if (st != EBB_OK) return st;
    }
    return EBB_OK;
}

template <class T>
static ebb_status backward_of(ebb__cuda *cuda, const ebb_call *call)
{
    typedef ebb__real<T> R;
    norm_shape s = shape_of(call);
    bool want_gain = call->din[GAIN].data != NULL, want_bias = call->n_in > BIAS && call->din[BIAS].data;
    T *dx = (T *)call->din[X].data;
    if (s.cols == 0) return EBB_OK;
    if (!dx && !want_gain) { /* x and the statistics may be absent */
        if (!want_bias) return EBB_OK;
        return ebb__cuda_column_sums<T>(cuda, (T *)call->din[BIAS].data, (const T *)call->dout[0].data, s.rows, s.cols,
                                        call->accumulate[BIAS], call->workspace);
    }
    norm_grad<T> g = { (const T *)call->in[X].data, (const T *)call->dout[0].data,
                       dx ? (const T *)call->in[GAIN].data : NULL, s.centered ? (const R *)call->out[1].data : NULL,
                       (const R *)call->out[s.centered ? 2 : 1].data, dx,
                       want_gain || want_bias ? (R *)call->workspace : NULL, s.rows, s.cols, (R)(1 / (double)s.cols),
                       call->accumulate[X], false };
    ebb_status st = run_rows<T>(cuda, g);
    return st == EBB_OK ? add_up<T>(cuda, call, &s) : st;
}

static ebb_status backward(void *self, const ebb_call *call)
{
    EBB_FLOATS((ebb__cuda *)self, call->in[X].dtype, T, return backward_of<T>((ebb__cuda *)self, call));
    return EBB_OK;
}

extern "C" const ebb__accel_op ebb_cuda_layernorm = { "layernorm", forward, backward };
extern "C" const ebb__accel_op ebb_cuda_rmsnorm = { "rmsnorm", forward, backward };
