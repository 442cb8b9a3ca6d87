/* ops/cuda/attention.h: what our own attention kernels share: their arguments, and tiles.
 *
 * A block of 16 x 16 threads works on a tile of SIDE * M rows against tiles of as many rows of the other
 * side, so that of T x T scores only one tile exists, in registers and shared memory.  Thread (x, y) holds
 *   of a product of two tiles  the elements (y + 16 a, x + 16 b), a and b below M;
 *   of rows that are summed    rows y + 16 a, and of each slice of 64 columns those from 4 x to 4 x + 3.
 * head_dim may be anything: products go over it in chunks, and sums that are wider than a block holds (H
 * slices) are shared out to several blocks, which find the scores each. */
#ifndef EBB_OPS_CUDA_ATTENTION_H
#define EBB_OPS_CUDA_ATTENTION_H

#include "device/cuda/cudnn.h"
#include "ops/cuda/rows.h"

/* One of our own calls.  `common` has shapes, heads, scale and scratch as cuDNN gets them; its lse is not
 * used (here it may be f64), nor its accumulate. */
typedef struct ebb__cuda_own_attention {
    ebb__cuda_attention_call common;
    const unsigned char *mask;           /* u8, 1: may look; NULL: none */
    int64_t mask_batch, mask_row;        /* strides; mask_row 0: one row for all */
    void *lse;                           /* [B, H, Tq] reals; +inf: the row saw nothing; forward: may be NULL */
    bool accumulate_q, accumulate_k, accumulate_v;
} ebb__cuda_own_attention;

ebb_status ebb__cuda_own_attention_forward(ebb__cuda *cuda, const ebb__cuda_own_attention *a);
/* dq may lie over dout.  Scratch: ebb__cuda_attention_scratch() bytes. */
ebb_status ebb__cuda_own_attention_backward(ebb__cuda *cuda, const ebb__cuda_own_attention *a);

/* ---- arguments of kernels ----------------------------------------------------------------------- */

template <class T> struct ebb__head_rows {
    T *data;
    int64_t stride; /* elements between rows */
};

template <class T> struct ebb__attention {
    int64_t batch, t_q, t_k, heads, kv_heads, head_dim;
    ebb__head_rows<const T> q, k, v, dout;
    ebb__head_rows<T> out, dq, dk, dv;
    const unsigned char *mask;
    int64_t mask_batch, mask_row;
    ebb__real<T> scale;
    ebb__real<T> *lse, *delta;
    bool causal, accumulate_q, accumulate_k, accumulate_v;
    bool wide; /* four elements at a time can be read from q, k, v and dout */
    int slices; /* blocks that share the columns of a head */
};

/* Bytes of four elements, at most what one load takes. */
template <class T> constexpr int ebb__quad_align = sizeof(T) == 8 ? 16 : 4 * (int)sizeof(T);

template <class T> static bool ebb__heads_are_wide(const ebb__cuda_heads &heads)
{
    return heads.row_stride % 4 == 0 && (uintptr_t)heads.data % ebb__quad_align<T> == 0;
}

template <class T> static ebb__attention<T> ebb__attention_of(const ebb__cuda_own_attention *own, bool backward)
{
    const ebb__cuda_attention_call *c = &own->common;
    ebb__attention<T> a = {};
    a.batch = c->batch, a.t_q = c->t_q, a.t_k = c->t_k;
    a.heads = c->heads, a.kv_heads = c->kv_heads, a.head_dim = c->head_dim;
    a.q = { (const T *)c->q.data, c->q.row_stride };
    a.k = { (const T *)c->k.data, c->k.row_stride };
    a.v = { (const T *)c->v.data, c->v.row_stride };
    a.out = { (T *)c->out.data, c->out.row_stride };
    a.dout = { (const T *)c->dout.data, c->dout.row_stride };
    a.dq = { (T *)c->dq.data, c->dq.row_stride };
    a.dk = { (T *)c->dk.data, c->dk.row_stride };
    a.dv = { (T *)c->dv.data, c->dv.row_stride };
    a.mask = own->mask, a.mask_batch = own->mask_batch, a.mask_row = own->mask_row;
    a.scale = (ebb__real<T>)c->scale;
    a.lse = (ebb__real<T> *)own->lse;
    a.causal = c->causal;
    a.accumulate_q = own->accumulate_q, a.accumulate_k = own->accumulate_k, a.accumulate_v = own->accumulate_v;
    a.wide = c->head_dim % 4 == 0 && ebb__heads_are_wide<T>(c->q) && ebb__heads_are_wide<T>(c->k) &&
             ebb__heads_are_wide<T>(c->v) && (!backward || ebb__heads_are_wide<T>(c->dout));
    return a;
}

/* Row t of a head. */
template <class T>
EBB_DEVICE T *ebb__head_row(const ebb__head_rows<T> &h, int64_t rows, int64_t head_dim, int64_t b, int64_t t,
                            int64_t head)
{
    return h.data + (b * rows + t) * h.stride + head * head_dim;
}

/* Keys that query row i sees are [0, this), but for the mask. */
template <class T> EBB_DEVICE int64_t ebb__visible(const ebb__attention<T> &a, int64_t i)
{
    if (!a.causal) return a.t_k;
    int64_t seen = i + (a.t_k - a.t_q) + 1;
    return seen < 0 ? 0 : seen < a.t_k ? seen : a.t_k;
}

template <class T> EBB_DEVICE bool ebb__sees(const ebb__attention<T> &a, int64_t b, int64_t i, int64_t j)
{
    if (i >= a.t_q || j >= ebb__visible(a, i)) return false;
    return !a.mask || a.mask[b * a.mask_batch + i * a.mask_row + j];
}

/* ---- tiles -------------------------------------------------------------------------------------- */

enum {
    EBB__SIDE = 16,
    EBB__TILE_THREADS = EBB__SIDE * EBB__SIDE,
    EBB__CHUNK = 32, /* of head_dim, staged at a time for a product */
    EBB__SLICE = 64  /* columns of sums, staged at a time */
};

template <class R> struct alignas(16) ebb__quad {
    R at[4];
};

/* A block's shared memory.  Rows are padded so that threads beside each other meet no bank twice. */
template <class R, int M> struct alignas(16) ebb__tiles { /* quads are read from it */
    static constexpr int TILE = EBB__SIDE * M;
    union {
        struct {
            R left[TILE][EBB__CHUNK + 4], right[TILE][EBB__CHUNK + 4];
        };
        R rows[TILE][EBB__SLICE];
    };
    R weights[TILE][TILE + 4]; /* P or dS */
};

/* Four elements from column d on of a row that ends at `head_dim`; zeros beyond. */
template <class T>
EBB_DEVICE ebb__quad<ebb__real<T>> ebb__read_quad(const T *row, int64_t d, int64_t head_dim, bool wide)
{
    struct alignas(ebb__quad_align<T>) stored { T at[4]; };
    ebb__quad<ebb__real<T>> quad = {};
    if (wide && d < head_dim) {
        stored s = *reinterpret_cast<const stored *>(row + d);
#pragma unroll
        for (int k = 0; k < 4; k++) quad.at[k] = ebb__load(&s.at[k]);
    } else if (!wide) {
#pragma unroll
        for (int k = 0; k < 4; k++) {
            if (d + k < head_dim) quad.at[k] = ebb__load(row + d + k);
        }
    }
    return quad;
}

/* Columns [d0, d0 + WIDTH) of n rows -> to, zeros where there are none. */
template <int WIDTH, int TILE, int PITCH, class T, class R>
EBB_DEVICE void ebb__stage(R (&to)[TILE][PITCH], const T *rows, int64_t stride, int n, int64_t d0, int64_t head_dim,
                           bool wide)
{
    for (int i = threadIdx.y * EBB__SIDE + threadIdx.x; i < TILE * (WIDTH / 4); i += EBB__TILE_THREADS) {
        int r = i / (WIDTH / 4), c = i % (WIDTH / 4) * 4;
        ebb__quad<R> quad = {};
        if (r < n) quad = ebb__read_quad(rows + r * stride, d0 + c, head_dim, wide);
        *reinterpret_cast<ebb__quad<R> *>(&to[r][c]) = quad;
    }
}

/* acc = left right^T over head_dim; begins with a barrier, so what is staged is read to the end before. */
template <class T, class R, int M>
EBB_DEVICE void ebb__tile_product(R (&acc)[M][M], ebb__tiles<R, M> &s, const T *left, int64_t left_stride, int n_left,
                                  const T *right, int64_t right_stride, int n_right, int64_t head_dim, bool wide)
{
#pragma unroll
    for (int i = 0; i < M * M; i++) acc[i / M][i % M] = 0;
    int64_t d0 = 0;
    do {
        __syncthreads();
        ebb__stage<EBB__CHUNK>(s.left, left, left_stride, n_left, d0, head_dim, wide);
        ebb__stage<EBB__CHUNK>(s.right, right, right_stride, n_right, d0, head_dim, wide);
        __syncthreads();
#pragma unroll 1
        for (int c = 0; c < EBB__CHUNK; c += 4) {
            ebb__quad<R> u[M], v[M];
#pragma unroll
            for (int i = 0; i < M; i++) {
                u[i] = *reinterpret_cast<const ebb__quad<R> *>(&s.left[threadIdx.y + EBB__SIDE * i][c]);
                v[i] = *reinterpret_cast<const ebb__quad<R> *>(&s.right[threadIdx.x + EBB__SIDE * i][c]);
            }
#pragma unroll
            for (int i = 0; i < M * M * 4; i++)
                acc[i / 4 / M][i / 4 % M] += u[i / 4 / M].at[i % 4] * v[i / 4 % M].at[i % 4];
        }
        d0 += EBB__CHUNK;
    } while (d0 < head_dim);
}

/* The tile's own elements -> s.weights, for ebb__tile_sum(). */
template <class R, int M> EBB_DEVICE void ebb__set_weights(ebb__tiles<R, M> &s, const R (&own)[M][M])
{
#pragma unroll
    for (int i = 0; i < M * M; i++) {
        s.weights[threadIdx.y + EBB__SIDE * (i / M)][threadIdx.x + EBB__SIDE * (i % M)] = own[i / M][i % M];
    }
}

/* sums += weights rows, columns from d0 on; begins with a barrier. */
template <class T, class R, int M, int H>
EBB_DEVICE void ebb__tile_sum(R (&sums)[M][H][4], ebb__tiles<R, M> &s, const T *rows, int64_t stride, int n,
                              int64_t d0, int64_t head_dim, bool wide)
{
#pragma unroll
    for (int h = 0; h < H; h++) {
        __syncthreads();
        ebb__stage<EBB__SLICE>(s.rows, rows, stride, n, d0 + h * EBB__SLICE, head_dim, wide);
        __syncthreads();
#pragma unroll 1
        for (int j = 0; j < s.TILE; j += 4) {
            ebb__quad<R> w[M], v;
#pragma unroll
            for (int i = 0; i < M; i++) {
                w[i] = *reinterpret_cast<const ebb__quad<R> *>(&s.weights[threadIdx.y + EBB__SIDE * i][j]);
            }
#pragma unroll
            for (int k = 0; k < 4; k++) {
                v = *reinterpret_cast<const ebb__quad<R> *>(&s.rows[j + k][threadIdx.x * 4]);
#pragma unroll
                for (int i = 0; i < M * 4; i++) sums[i / 4][h][i % 4] += w[i / 4].at[k] * v.at[i % 4];
            }
        }
    }
}

/* Rows [0, n) of sums -> to, columns from d0 on. */
template <class T, class R, int M, int H>
EBB_DEVICE void ebb__put_sums(T *to, int64_t stride, int n, const R (&sums)[M][H][4], int64_t d0, int64_t head_dim,
                              bool accumulate)
{
#pragma unroll
    for (int i = 0; i < M * H * 4; i++) {
        int row = (int)threadIdx.y + EBB__SIDE * (i / 4 / H);
        int64_t d = d0 + i / 4 % H * EBB__SLICE + threadIdx.x * 4 + i % 4;
        if (row < n && d < head_dim) ebb__put(to + row * stride + d, sums[i / 4 / H][i / 4 % H][i % 4], accumulate);
    }
}

/* Sum and maximum over the 16 threads that share a row. */
template <class R> EBB_DEVICE R ebb__side_sum(R v)
{
#pragma unroll
    for (int lanes = EBB__SIDE / 2; lanes > 0; lanes /= 2) v += __shfl_xor_sync(EBB__FULL_WARP, v, lanes);
    return v;
}

template <class R> EBB_DEVICE R ebb__side_max(R v)
{
#pragma unroll
    for (int lanes = EBB__SIDE / 2; lanes > 0; lanes /= 2)
        v = ebb__larger(v, __shfl_xor_sync(EBB__FULL_WARP, v, lanes));
    return v;
}

/* ---- launching ------------------------------------------------------------------------------------ */

/* What a block takes: a tile of rows of one head, and H slices of the head's columns. */
typedef struct ebb__tile_place {
    int64_t first, head, b, d0;
} ebb__tile_place;

/* The later tiles first: under a causal mask those of queries have the most work. */
EBB_DEVICE ebb__tile_place ebb__tile_at(int64_t item, int64_t tiles, int64_t tile, int64_t heads, int slices, int h)
{
    ebb__tile_place at;
    at.d0 = item % slices * h * EBB__SLICE;
    item /= slices;
    at.head = item % heads;
    item /= heads;
    at.first = (tiles - 1 - item % tiles) * tile;
    at.b = item / tiles;
    return at;
}

static inline int64_t ebb__tile_items(int64_t rows, int tile, int64_t heads, int64_t batch, int slices)
{
    return ebb__ceil_div(rows, tile) * heads * batch * slices;
}

/* Blocks that share a head's columns, where each has h slices. */
static inline int ebb__slices(int64_t head_dim, int h)
{
    int64_t slices = ebb__ceil_div(head_dim, h * EBB__SLICE);
    return slices > 1 ? (int)slices : 1;
}

/* return run<T, M, H>(cuda, own): tiles of 64 rows in f32 and 32 in f64, and slices as the head is wide. */
#define EBB_ATTENTION_RUN(cuda, own, run)                                                                       \
    do {                                                                                                        \
        bool two = (own)->common.head_dim > EBB__SLICE;                                                         \
        switch ((own)->common.dtype) {                                                                          \
        case EBB_F32: return two ? run<float, 4, 2>(cuda, own) : run<float, 4, 1>(cuda, own);                   \
        case EBB_BF16: return two ? run<__nv_bfloat16, 4, 2>(cuda, own) : run<__nv_bfloat16, 4, 1>(cuda, own);  \
        EBB__OTHER_FLOATS(                                                                                      \
            case EBB_F16: return two ? run<__half, 4, 2>(cuda, own) : run<__half, 4, 1>(cuda, own);)            \
        EBB__OTHER_FLOATS(case EBB_F64: return run<double, 2, 1>(cuda, own);)                                   \
        default: return ebb__cuda_no_dtype(cuda, (own)->common.dtype);                                          \
        }                                                                                                       \
    } while (0)

#endif
