/* ops/cuda/attention_backward.cu: with P = exp(S - lse) found again and delta = rowsum(dout out),
 *   dv = P^T dout,  dP = dout v^T,  dS = P (dP - delta) scale,  dq = dS k,  dk = dS^T q.
 * Three kernels: delta per row; dk and dv, a block per tile of keys, which goes over the query tiles of all
 * heads that share the kv head; then dq, a block per tile of queries, which goes over the tiles of keys.
 * Scores are found twice, but nothing is added up between blocks, so sums have one order. */
#include "ops/cuda/attention.h"
#include "ops/cuda/scratch.h"

/* ---- delta -------------------------------------------------------------------------------------- */

/* delta [B, H, Tq]; a warp per row of a head */
template <class T>
EBB_ROW_KERNEL find_delta(ebb__attention<T> a)
{
    typedef ebb__real<T> R;
    int lane = threadIdx.x % 32;
    EBB_EACH_ROW(EBB__ROW_BY_WARP, row, a.batch * a.heads * a.t_q) {
        int64_t t = row % a.t_q, head = row / a.t_q % a.heads, b = row / a.t_q / a.heads;
        const T *dout = ebb__head_row(a.dout, a.t_q, a.head_dim, b, t, head);
        const T *out = ebb__head_row(a.out, a.t_q, a.head_dim, b, t, head);
        R sum = 0;
        for (int64_t d = lane; d < a.head_dim; d += 32) sum += ebb__load(dout + d) * ebb__load(out + d);
        sum = ebb__warp_sum(sum);
        if (lane == 0) a.delta[row] = sum;
    }
}

/* ---- P and dS ------------------------------------------------------------------------------------- */

/* S, as a product -> P; 0 where hidden, and in rows that saw nothing (lse = +inf). */
template <class T, class R>
EBB_DEVICE R weight_of(const ebb__attention<T> &a, R product, R lse, int64_t b, int64_t i, int64_t j)
{
    bool seen = ebb__sees(a, b, i, j) && lse != ebb__infinity<R>();
    return seen ? ebb__exp(product * a.scale - lse) : R(0);
}

/* Where P is 0 nothing flows, not even a NaN of dP. */
template <class T, class R> EBB_DEVICE R slope_of(const ebb__attention<T> &a, R p, R dp, R delta)
{
    return p == R(0) ? R(0) : p * (dp - delta) * a.scale;
}

template <class R, int M, int H> EBB_DEVICE void clear(R (&sums)[M][H][4])
{
#pragma unroll
    for (int i = 0; i < M * H * 4; i++) sums[i / 4 / H][i / 4 % H][i % 4] = 0;
}

/* ---- dq ------------------------------------------------------------------------------------------- */

/* One tile of queries against one tile of n keys from j0 on. */
template <class T, class R, int M, int H>
EBB_DEVICE void add_to_dq(const ebb__attention<T> &a, ebb__tiles<R, M> &s, R (&dq)[M][H][4], const R (&lse)[M],
                          const R (&delta)[M], const ebb__tile_place &at, int m, int64_t j0, int n)
{
    int64_t kv = at.head / (a.heads / a.kv_heads);
    const T *q = ebb__head_row(a.q, a.t_q, a.head_dim, at.b, at.first, at.head);
    const T *dout = ebb__head_row(a.dout, a.t_q, a.head_dim, at.b, at.first, at.head);
    const T *k = ebb__head_row(a.k, a.t_k, a.head_dim, at.b, j0, kv);
    const T *v = ebb__head_row(a.v, a.t_k, a.head_dim, at.b, j0, kv);
    R p[M][M], dp[M][M];
    ebb__tile_product(p, s, q, a.q.stride, m, k, a.k.stride, n, a.head_dim, a.wide);
#pragma unroll
    for (int e = 0; e < M * M; e++) {
        int64_t i = at.first + threadIdx.y + EBB__SIDE * (e / M), j = j0 + threadIdx.x + EBB__SIDE * (e % M);
        p[e / M][e % M] = weight_of(a, p[e / M][e % M], lse[e / M], at.b, i, j);
    }
    ebb__tile_product(dp, s, dout, a.dout.stride, m, v, a.v.stride, n, a.head_dim, a.wide);
#pragma unroll
    for (int e = 0; e < M * M; e++)
        dp[e / M][e % M] = slope_of(a, p[e / M][e % M], dp[e / M][e % M], delta[e / M]);
    ebb__set_weights(s, dp);
    ebb__tile_sum(dq, s, k, a.k.stride, n, at.d0, a.head_dim, a.wide);
}

template <class T, int M, int H>
EBB_KERNEL void __launch_bounds__(EBB__TILE_THREADS, H == 1 ? 2 : 1) dq_tiles(ebb__attention<T> a)
{
    typedef ebb__real<T> R;
    constexpr int TILE = ebb__tiles<R, M>::TILE;
    __shared__ ebb__tiles<R, M> s;
    int64_t tiles = (a.t_q + TILE - 1) / TILE, items = tiles * a.heads * a.batch * a.slices;
    for (int64_t item = blockIdx.x; item < items; item += gridDim.x) {
        ebb__tile_place at = ebb__tile_at(item, tiles, TILE, a.heads, a.slices, H);
        int m = (int)(a.t_q - at.first < TILE ? a.t_q - at.first : TILE);
        R dq[M][H][4], lse[M], delta[M];
        clear(dq);
#pragma unroll
        for (int r = 0; r < M; r++) {
            int64_t i = at.first + threadIdx.y + EBB__SIDE * r, row = (at.b * a.heads + at.head) * a.t_q + i;
            lse[r] = i < a.t_q ? a.lse[row] : R(0);
            delta[r] = i < a.t_q ? a.delta[row] : R(0);
        }
        int64_t columns = ebb__visible(a, at.first + m - 1);
        for (int64_t j0 = 0; j0 < columns; j0 += TILE) {
            add_to_dq(a, s, dq, lse, delta, at, m, j0, (int)(columns - j0 < TILE ? columns - j0 : TILE));
        }
        __syncthreads(); /* all have read this tile of dout, over which dq may lie */
        T *to = ebb__head_row(a.dq, a.t_q, a.head_dim, at.b, at.first, at.head);
        ebb__put_sums(to, a.dq.stride, m, dq, at.d0, a.head_dim, a.accumulate_q);
    }
}

/* ---- dk and dv -------------------------------------------------------------------------------------- */

/* One tile of n keys (rows) against one tile of m queries (columns) of one head, from i0 on. */
template <class T, class R, int M, int H>
EBB_DEVICE void add_to_dk_dv(const ebb__attention<T> &a, ebb__tiles<R, M> &s, R (&dk)[M][H][4], R (&dv)[M][H][4],
                             const ebb__tile_place &at, int n, int64_t head, int64_t i0, int m)
{
    const T *q = ebb__head_row(a.q, a.t_q, a.head_dim, at.b, i0, head);
    const T *dout = ebb__head_row(a.dout, a.t_q, a.head_dim, at.b, i0, head);
    const T *k = ebb__head_row(a.k, a.t_k, a.head_dim, at.b, at.first, at.head);
    int64_t row0 = (at.b * a.heads + head) * a.t_q;
    R p[M][M], dp[M][M];
    ebb__tile_product(p, s, k, a.k.stride, n, q, a.q.stride, m, a.head_dim, a.wide);
#pragma unroll
    for (int e = 0; e < M * M; e++) {
        int64_t j = at.first + threadIdx.y + EBB__SIDE * (e / M), i = i0 + threadIdx.x + EBB__SIDE * (e % M);
        p[e / M][e % M] = weight_of(a, p[e / M][e % M], i < a.t_q ? a.lse[row0 + i] : R(0), at.b, i, j);
    }
    if (a.dv.data) {
        ebb__set_weights(s, p);
        ebb__tile_sum(dv, s, dout, a.dout.stride, m, at.d0, a.head_dim, a.wide);
    }
    if (!a.dk.data) return; /* else v may be absent */
    const T *v = ebb__head_row(a.v, a.t_k, a.head_dim, at.b, at.first, at.head);
    ebb__tile_product(dp, s, v, a.v.stride, n, dout, a.dout.stride, m, a.head_dim, a.wide);
#pragma unroll
    for (int e = 0; e < M * M; e++) {
        int64_t i = i0 + threadIdx.x + EBB__SIDE * (e % M);
        dp[e / M][e % M] = slope_of(a, p[e / M][e % M], dp[e / M][e % M], i < a.t_q ? a.delta[row0 + i] : R(0));
    }
    ebb__set_weights(s, dp);
    ebb__tile_sum(dk, s, q, a.q.stride, m, at.d0, a.head_dim, a.wide);
}

template <class T, int M, int H>
EBB_KERNEL void __launch_bounds__(EBB__TILE_THREADS, 1) dk_dv_tiles(ebb__attention<T> a)
{
    typedef ebb__real<T> R;
    constexpr int TILE = ebb__tiles<R, M>::TILE;
    __shared__ ebb__tiles<R, M> s;
    int64_t tiles = (a.t_k + TILE - 1) / TILE, items = tiles * a.kv_heads * a.batch * a.slices;
    int64_t group = a.heads / a.kv_heads;
    for (int64_t item = blockIdx.x; item < items; item += gridDim.x) {
        ebb__tile_place at = ebb__tile_at(item, tiles, TILE, a.kv_heads, a.slices, H);
        int n = (int)(a.t_k - at.first < TILE ? a.t_k - at.first : TILE);
        R dk[M][H][4], dv[M][H][4];
        clear(dk);
        clear(dv);
        int64_t sees = a.causal ? at.first - (a.t_k - a.t_q) : 0; /* the first query that sees a key of the tile */
        int64_t begin = sees > 0 ? sees / TILE * TILE : 0;
        for (int64_t head = at.head * group; head < (at.head + 1) * group; head++) {
            for (int64_t i0 = begin; i0 < a.t_q; i0 += TILE) {
                add_to_dk_dv(a, s, dk, dv, at, n, head, i0, (int)(a.t_q - i0 < TILE ? a.t_q - i0 : TILE));
            }
        }
        T *to_k = a.dk.data ? ebb__head_row(a.dk, a.t_k, a.head_dim, at.b, at.first, at.head) : NULL;
        T *to_v = a.dv.data ? ebb__head_row(a.dv, a.t_k, a.head_dim, at.b, at.first, at.head) : NULL;
        if (to_k) ebb__put_sums(to_k, a.dk.stride, n, dk, at.d0, a.head_dim, a.accumulate_k);
        if (to_v) ebb__put_sums(to_v, a.dv.stride, n, dv, at.d0, a.head_dim, a.accumulate_v);
    }
}

/* ---- launching ---------------------------------------------------------------------------------------- */

/* Where a head takes several blocks, and dq lies over dout, dout is moved out of the way. */
template <class T>
static ebb_status save_dout(ebb__cuda *cuda, const ebb__cuda_own_attention *own, ebb__attention<T> *a)
{
    if (a->slices == 1 || a->dq.data != a->dout.data) return EBB_OK;
    size_t elems = (size_t)(a->batch * a->t_q * a->dout.stride);
    T *copy = (T *)((char *)own->common.workspace +
                    ebb__cuda_scratch((size_t)(a->batch * a->heads * a->t_q) * sizeof(ebb__real<T>)));
    EBB__CUDA_TRY(cuda, cudaMemcpyAsync(copy, a->dout.data, elems * sizeof(T), cudaMemcpyDeviceToDevice, cuda->stream));
    a->dout.data = copy;
    return EBB_OK;
}

template <class T, int M, int H> static ebb_status run(ebb__cuda *cuda, const ebb__cuda_own_attention *own)
{
    ebb__attention<T> a = ebb__attention_of<T>(own, true);
    a.slices = ebb__slices(a.head_dim, H);
    a.delta = (ebb__real<T> *)own->common.workspace;
    ebb_status st = save_dout(cuda, own, &a);
    if (st != EBB_OK) return st;
    if (a.dq.data || a.dk.data) { /* else out and v may be absent */
        EBB_LAUNCH(cuda, find_delta<T>, ebb__row_grid(cuda, a.batch * a.heads * a.t_q, EBB__ROW_BY_WARP),
                   EBB__CUDA_THREADS, 0, a);
    }
    if (a.dk.data || a.dv.data) {
        int64_t items = ebb__tile_items(a.t_k, EBB__SIDE * M, a.kv_heads, a.batch, a.slices);
        EBB_LAUNCH(cuda, (dk_dv_tiles<T, M, H>), ebb__grid(cuda, items, 1), dim3(EBB__SIDE, EBB__SIDE), 0, a);
    }
    if (a.dq.data) { /* last, as dq may lie over dout */
        int64_t items = ebb__tile_items(a.t_q, EBB__SIDE * M, a.heads, a.batch, a.slices);
        EBB_LAUNCH(cuda, (dq_tiles<T, M, H>), ebb__grid(cuda, items, 1), dim3(EBB__SIDE, EBB__SIDE), 0, a);
    }
    return EBB_OK;
}

ebb_status ebb__cuda_own_attention_backward(ebb__cuda *cuda, const ebb__cuda_own_attention *a)
{
    EBB_ATTENTION_RUN(cuda, a, run);
}
