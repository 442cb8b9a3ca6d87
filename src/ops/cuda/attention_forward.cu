/* ops/cuda/attention_forward.cu: out = softmax(q k^T * scale + mask) v, tile by tile (Dao et al., arXiv
 * 2205.14135; Dao, arXiv 2307.08691): over tiles of keys, a running maximum and sum per row, the sums of
 * exp(score - max) v scaled anew as the maximum grows, divided at the end. */
#include "ops/cuda/attention.h"

/* Scores of a tile -> exp(score - top), 0 where hidden; the running maximum, sum and `out` move on. */
template <class T, class R, int M, int H>
EBB_DEVICE void soften(const ebb__attention<T> &a, R (&scores)[M][M], R (&top)[M], R (&sum)[M], R (&out)[M][H][4],
                       int64_t b, int64_t i0, int64_t j0)
{
    const R none = -ebb__infinity<R>();
#pragma unroll
    for (int r = 0; r < M; r++) {
        int64_t i = i0 + threadIdx.y + EBB__SIDE * r;
        R most = top[r], more = 0, factor = 1;
#pragma unroll
        for (int c = 0; c < M; c++) {
            bool seen = ebb__sees(a, b, i, j0 + threadIdx.x + EBB__SIDE * c);
            scores[r][c] = seen ? scores[r][c] * a.scale : none;
            most = ebb__larger(most, scores[r][c]);
        }
        most = ebb__side_max(most);
        bool blind = most == none; /* nothing seen yet */
        if (!blind) factor = ebb__exp(top[r] - most);
#pragma unroll
        for (int c = 0; c < M; c++) {
            scores[r][c] = blind ? R(0) : ebb__exp(scores[r][c] - most);
            more += scores[r][c];
        }
        sum[r] = sum[r] * factor + ebb__side_sum(more);
        top[r] = most;
#pragma unroll
        for (int k = 0; k < H * 4; k++) out[r][k / 4][k % 4] *= factor;
    }
}

/* Divides by the sums, and writes log-sum-exps: of a row that saw nothing 0 and +inf. */
template <class T, class R, int M, int H>
EBB_DEVICE void finish(const ebb__attention<T> &a, const R (&top)[M], const R (&sum)[M], R (&out)[M][H][4],
                       const ebb__tile_place &at)
{
#pragma unroll
    for (int r = 0; r < M; r++) {
        int64_t i = at.first + threadIdx.y + EBB__SIDE * r;
        bool blind = top[r] == -ebb__infinity<R>();
        R inverse = blind ? R(0) : R(1) / sum[r];
#pragma unroll
        for (int k = 0; k < H * 4; k++) out[r][k / 4][k % 4] *= inverse;
        if (a.lse && at.d0 == 0 && threadIdx.x == 0 && i < a.t_q)
            a.lse[(at.b * a.heads + at.head) * a.t_q + i] = blind ? ebb__infinity<R>() : top[r] + ebb__log(sum[r]);
    }
}

template <class T, int M, int H>
EBB_KERNEL void __launch_bounds__(EBB__TILE_THREADS, 2) forward_tiles(ebb__attention<T> a)
{
    typedef ebb__real<T> R;
    constexpr int TILE = ebb__tiles<R, M>::TILE;
    __shared__ ebb__tiles<R, M> s;
    int64_t tiles = (a.t_q + TILE - 1) / TILE, items = tiles * a.heads * a.batch * a.slices;
    for (int64_t item = blockIdx.x; item < items; item += gridDim.x) {
        ebb__tile_place at = ebb__tile_at(item, tiles, TILE, a.heads, a.slices, H);
        int64_t kv = at.head / (a.heads / a.kv_heads);
        int m = (int)(a.t_q - at.first < TILE ? a.t_q - at.first : TILE);
        const T *q = ebb__head_row(a.q, a.t_q, a.head_dim, at.b, at.first, at.head);
        R scores[M][M], top[M], sum[M], out[M][H][4];
#pragma unroll
        for (int r = 0; r < M; r++) {
            top[r] = -ebb__infinity<R>();
            sum[r] = 0;
#pragma unroll
            for (int k = 0; k < H * 4; k++) out[r][k / 4][k % 4] = 0;
        }
        int64_t columns = ebb__visible(a, at.first + m - 1);
        for (int64_t j0 = 0; j0 < columns; j0 += TILE) {
            int n = (int)(columns - j0 < TILE ? columns - j0 : TILE);
            const T *k = ebb__head_row(a.k, a.t_k, a.head_dim, at.b, j0, kv);
            const T *v = ebb__head_row(a.v, a.t_k, a.head_dim, at.b, j0, kv);
            ebb__tile_product(scores, s, q, a.q.stride, m, k, a.k.stride, n, a.head_dim, a.wide);
            soften(a, scores, top, sum, out, at.b, at.first, j0);
            ebb__set_weights(s, scores);
            ebb__tile_sum(out, s, v, a.v.stride, n, at.d0, a.head_dim, a.wide);
        }
        finish(a, top, sum, out, at);
        T *to = ebb__head_row(a.out, a.t_q, a.head_dim, at.b, at.first, at.head);
        ebb__put_sums(to, a.out.stride, m, out, at.d0, a.head_dim, false);
    }
}

template <class T, int M, int H> static ebb_status run(ebb__cuda *cuda, const ebb__cuda_own_attention *own)
{
    ebb__attention<T> a = ebb__attention_of<T>(own, false);
    a.slices = ebb__slices(a.head_dim, H);
    int64_t items = ebb__tile_items(a.t_q, EBB__SIDE * M, a.heads, a.batch, a.slices);
    EBB_LAUNCH(cuda, (forward_tiles<T, M, H>), ebb__grid(cuda, items, 1), dim3(EBB__SIDE, EBB__SIDE), 0, a);
    return EBB_OK;
}

ebb_status ebb__cuda_own_attention_forward(ebb__cuda *cuda, const ebb__cuda_own_attention *a)
{
    EBB_ATTENTION_RUN(cuda, a, run);
}
