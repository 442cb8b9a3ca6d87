/* ops/cuda/rows.h: kernels that go over rows, [rows, cols] with cols side by side.  A row belongs to a group
 * of THREADS threads: a warp where rows are short (a block then has eight groups), else the whole block.
 *
 * A group takes a row in turns of THREADS * N elements, N filling 16 bytes.  Where N divides cols, a lane's
 * N elements are neighbours, moved at once where the address allows; else they lie THREADS apart.  Which of
 * the two it is depends on the shape alone, so sums have the same bits wherever the row lies. */
#ifndef EBB_OPS_CUDA_ROWS_H
#define EBB_OPS_CUDA_ROWS_H

#include "ops/cuda/formulas.h"
#include "ops/cuda/kernel.h"

/* Two blocks per processor at least: without a second number ptxas would rather spill than use more than a
 * quarter of the registers. */
#define EBB_ROW_KERNEL EBB_KERNEL void __launch_bounds__(EBB__CUDA_THREADS, 2)

enum { EBB__ROW_BY_WARP = 32, EBB__ROW_BY_BLOCK = EBB__CUDA_THREADS, EBB__SHORT_ROW = 1024 };

EBB_DEVICE float ebb__log(float x) { return logf(x); }
EBB_DEVICE double ebb__log(double x) { return log(x); }
EBB_DEVICE float ebb__rsqrt(float x) { return 1.0f / sqrtf(x); }
EBB_DEVICE double ebb__rsqrt(double x) { return 1.0 / sqrt(x); }
template <class R> EBB_DEVICE R ebb__infinity() { return R(INFINITY); }

/* ---- groups --------------------------------------------------------------------------------- */

template <int THREADS> EBB_DEVICE int64_t ebb__first_row()
{
    return (int64_t)blockIdx.x * (EBB__CUDA_THREADS / THREADS) + threadIdx.x / THREADS;
}

template <int THREADS> EBB_DEVICE int64_t ebb__row_step()
{
    return (int64_t)gridDim.x * (EBB__CUDA_THREADS / THREADS);
}

/* The rows of this group; every thread of a group gets the same ones. */
#define EBB_EACH_ROW(THREADS, row, rows) \
    for (int64_t row = ebb__first_row<THREADS>(); row < (rows); row += ebb__row_step<THREADS>())

template <int THREADS, class R> EBB_DEVICE R ebb__group_sum(R v)
{
    if constexpr (THREADS == EBB__ROW_BY_WARP) return ebb__warp_sum(v);
    else return ebb__block_sum<THREADS>(v);
}

template <int THREADS, class R> EBB_DEVICE R ebb__group_max(R v)
{
    if constexpr (THREADS == EBB__ROW_BY_WARP) return ebb__warp_max(v);
    else return ebb__block_max<THREADS>(v);
}

/* Blocks of a kernel that loops with EBB_EACH_ROW. */
static inline unsigned ebb__row_grid(const ebb__cuda *cuda, int64_t rows, int threads)
{
    return ebb__grid(cuda, rows, EBB__CUDA_THREADS / threads);
}

/* EBB_ROW_LAUNCH(cuda, kernel, T, rows, cols, arguments...): kernel<T, THREADS> with the group that suits. */
#define EBB_ROW_LAUNCH(cuda, kernel, T, rows, cols, ...)                                                      \
    do {                                                                                                      \
        if ((cols) <= EBB__SHORT_ROW)                                                                         \
            EBB_LAUNCH(cuda, (kernel<T, EBB__ROW_BY_WARP>), ebb__row_grid(cuda, rows, EBB__ROW_BY_WARP),      \
                       EBB__CUDA_THREADS, 0, __VA_ARGS__);                                                    \
        else                                                                                                  \
            EBB_LAUNCH(cuda, (kernel<T, EBB__ROW_BY_BLOCK>), ebb__row_grid(cuda, rows, EBB__ROW_BY_BLOCK),    \
                       EBB__CUDA_THREADS, 0, __VA_ARGS__);                                                    \
    } while (0)

/* ---- turns ---------------------------------------------------------------------------------- */

/* Elements that fill 16 bytes. */
template <class T> constexpr int ebb__lane_elems = 16 / (int)sizeof(T);

template <class T> struct alignas(16) ebb__pack {
    T at[ebb__lane_elems<T>];
};

/* A lane's part of a turn: element k is at first + k * step. */
template <class T, int THREADS> struct ebb__turn {
    static constexpr int N = ebb__lane_elems<T>;
    int64_t cols, first;
    int step;

    __device__ __forceinline__ explicit ebb__turn(int64_t cols_) : cols(cols_)
    {
        int lane = (int)(threadIdx.x % THREADS);
        step = cols % N == 0 ? 1 : THREADS;
        first = step == 1 ? lane * N : lane;
    }
    __device__ __forceinline__ int64_t at(int k) const { return first + k * step; }
    __device__ __forceinline__ bool has(int k) const { return at(k) < cols; }
    __device__ __forceinline__ bool more() const { return first < cols; }
    __device__ __forceinline__ void next() { first += (int64_t)THREADS * N; }
    __device__ __forceinline__ bool is_wide(const void *row) const
    {
        return step == 1 && (uintptr_t)row % 16 == 0;
    }
};

#define EBB_EACH_TURN(T, THREADS, turn, cols) \
    for (ebb__turn<T, THREADS> turn(cols); turn.more(); turn.next())

/* The lane's elements of `row`; `missing` beyond the end. */
template <class T, int THREADS, class S, class R, int N>
EBB_DEVICE void ebb__take(const ebb__turn<T, THREADS> &turn, const S *row, R missing, R (&to)[N])
{
    if (sizeof(S) == sizeof(T) && turn.is_wide(row)) {
        ebb__pack<S> pack = *reinterpret_cast<const ebb__pack<S> *>(row + turn.first);
#pragma unroll
        for (int k = 0; k < N; k++) to[k] = ebb__load(&pack.at[k]);
    } else {
#pragma unroll
        for (int k = 0; k < N; k++) to[k] = turn.has(k) ? ebb__load(row + turn.at(k)) : missing;
    }
}

/* Writes them, or adds them where sums go on. */
template <class T, int THREADS, class R, int N>
EBB_DEVICE void ebb__give(const ebb__turn<T, THREADS> &turn, T *row, const R (&from)[N], bool accumulate)
{
    if (turn.is_wide(row)) {
        ebb__pack<T> pack;
        if (accumulate) pack = *reinterpret_cast<const ebb__pack<T> *>(row + turn.first);
#pragma unroll
        for (int k = 0; k < N; k++) ebb__put(&pack.at[k], from[k], accumulate);
        *reinterpret_cast<ebb__pack<T> *>(row + turn.first) = pack;
    } else {
#pragma unroll
        for (int k = 0; k < N; k++) {
            if (turn.has(k)) ebb__put(row + turn.at(k), from[k], accumulate);
        }
    }
}

/* ---- log-sum-exp ---------------------------------------------------------------------------- */

/* The largest of some numbers, and the sum of exp(x - top): one pass (Milakov and Gimelshein,
 * arXiv 1805.02867).  Of nothing but -inf: top -inf and sum 0; finish() makes that NaN, as 0 / 0 is. */
template <class R> struct ebb__soft {
    R top, sum;

    __device__ __forceinline__ ebb__soft() : top(-ebb__infinity<R>()), sum(0) {}
    template <int N> __device__ __forceinline__ void add(const R (&x)[N])
    {
        R most = top;
#pragma unroll
        for (int k = 0; k < N; k++) most = ebb__larger(most, x[k]);
        if (most == -ebb__infinity<R>()) return;
        sum *= ebb__exp(top - most);
#pragma unroll
        for (int k = 0; k < N; k++) sum += ebb__exp(x[k] - most);
        top = most;
    }
    /* The sum as it is for a larger top. */
    __device__ __forceinline__ R sum_for(R most) const
    {
        return top == -ebb__infinity<R>() ? R(0) : sum * ebb__exp(top - most);
    }
    __device__ __forceinline__ void finish(R most, R total)
    {
        top = most;
        sum = most == -ebb__infinity<R>() ? R(NAN) : total;
    }
};

template <class T, int THREADS> EBB_DEVICE ebb__soft<ebb__real<T>> ebb__soft_of_row(const T *row, int64_t cols)
{
    typedef ebb__real<T> R;
    ebb__soft<R> soft;
    EBB_EACH_TURN(T, THREADS, turn, cols) {
        R x[turn.N];
        ebb__take(turn, row, -ebb__infinity<R>(), x);
        soft.add(x);
    }
    R most = ebb__group_max<THREADS>(soft.top);
    soft.finish(most, ebb__group_sum<THREADS>(soft.sum_for(most)));
    return soft;
}

#endif
