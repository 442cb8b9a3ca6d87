/* ops/cuda/op_softmax.cu: softmax and log_softmax along one axis; formulas in ops/op_softmax.c.
 * Along the last axis: rows, read twice (the second time from cache).  Along another: columns side by
 * side, a tile of 32 per block, eight threads to each. */
#include "ops/cuda/rows.h"

/* The tensor is [outer, length, stride], and the axis the middle one. */
typedef struct softmax_shape {
    int64_t outer, length, stride;
    bool is_log;
} softmax_shape;

static softmax_shape shape_of(const ebb_call *call, bool is_log)
{
    const ebb_arg *y = &call->out[0];
    int64_t axis = EBB_ATTRS(call, const ebb__softmax_attrs)->axis;
    softmax_shape s = { 1, y->dims[axis], 1, is_log };
    for (int d = 0; d < (int)axis; d++) s.outer *= y->dims[d];
    for (int d = (int)axis + 1; d < y->ndim; d++) s.stride *= y->dims[d];
    return s;
}

/* y from x; `last` is 1 / sum, or log(sum) */
template <class R> EBB_DEVICE R value_of(R x, R top, R last, bool is_log)
{
    return is_log ? (x - top) - last : ebb__exp(x - top) * last; /* first the large part, which is exact */
}

template <class R> EBB_DEVICE R last_of(R sum, bool is_log) { return is_log ? ebb__log(sum) : R(1) / sum; }

/* dx from dy and y; `sum` is that of dy y, or of dy */
template <class R> EBB_DEVICE R gradient_of(R dy, R y, R sum, bool is_log)
{
    return is_log ? dy - ebb__exp(y) * sum : y * (dy - sum);
}

/* ---- rows ----------------------------------------------------------------------------------- */

/* y may be x. */
template <class T, int THREADS>
EBB_ROW_KERNEL
softmax_rows(T *y, const T *x, int64_t rows, int64_t cols, bool is_log)
{
    typedef ebb__real<T> R;
    EBB_EACH_ROW(THREADS, row, rows) {
        ebb__soft<R> soft = ebb__soft_of_row<T, THREADS>(x + row * cols, cols);
        R last = last_of(soft.sum, is_log);
        EBB_EACH_TURN(T, THREADS, turn, cols) {
            R v[turn.N];
            ebb__take(turn, x + row * cols, R(0), v);
#pragma unroll
            for (int k = 0; k < turn.N; k++) v[k] = value_of(v[k], soft.top, last, is_log);
            ebb__give(turn, y + row * cols, v, false);
        }
    }
}

/* dx may be dy. */
template <class T, int THREADS>
EBB_ROW_KERNEL
softmax_grad_rows(T *dx, const T *dy, const T *y, int64_t rows, int64_t cols, bool is_log, bool accumulate)
{
    typedef ebb__real<T> R;
    EBB_EACH_ROW(THREADS, row, rows) {
        R sum = 0;
        EBB_EACH_TURN(T, THREADS, turn, cols) {
            R d[turn.N], v[turn.N];
            ebb__take(turn, dy + row * cols, R(0), d);
            ebb__take(turn, y + row * cols, R(0), v);
#pragma unroll
            for (int k = 0; k < turn.N; k++) sum += is_log ? d[k] : turn.has(k) ? d[k] * v[k] : R(0);
        }
        sum = ebb__group_sum<THREADS>(sum);
        EBB_EACH_TURN(T, THREADS, turn, cols) {
            R d[turn.N], v[turn.N];
            ebb__take(turn, dy + row * cols, R(0), d);
            ebb__take(turn, y + row * cols, R(0), v);
#pragma unroll
            for (int k = 0; k < turn.N; k++) d[k] = gradient_of(d[k], v[k], sum, is_log);
            ebb__give(turn, dx + row * cols, d, accumulate);
        }
    }
}

/* ---- columns -------------------------------------------------------------------------------- */

enum { TILE = 32, SHARERS = 8 }; /* columns of a block, and threads that share one */

/* This block's columns: [first, first + TILE) of outer index `outer`; where the thread's column starts. */
#define EACH_TILE(item, s)                                                                         \
    for (int64_t across = ((s).stride + TILE - 1) / TILE, item = blockIdx.x;                       \
         item < (s).outer * across; item += gridDim.x)

EBB_DEVICE int64_t column_at(const softmax_shape &s, int64_t item, bool *inside)
{
    int64_t across = (s.stride + TILE - 1) / TILE, column = item % across * TILE + threadIdx.x;
    *inside = column < s.stride;
    return item / across * s.length * s.stride + column;
}

template <class T>
EBB_KERNEL void __launch_bounds__(TILE * SHARERS) softmax_columns(T *y, const T *x, softmax_shape s)
{
    typedef ebb__real<T> R;
    __shared__ R tops[SHARERS][TILE], sums[SHARERS][TILE];
    EACH_TILE(item, s) {
        bool inside;
        int64_t at = column_at(s, item, &inside);
        ebb__soft<R> soft, all;
        for (int64_t i = threadIdx.y; inside && i < s.length; i += SHARERS) {
            R one[1] = { ebb__load(x + at + i * s.stride) };
            soft.add(one);
        }
        tops[threadIdx.y][threadIdx.x] = soft.top;
        sums[threadIdx.y][threadIdx.x] = soft.sum;
        __syncthreads();
        R most = soft.top, total = 0;
#pragma unroll
        for (int k = 0; k < SHARERS; k++) most = ebb__larger(most, tops[k][threadIdx.x]);
#pragma unroll
        for (int k = 0; k < SHARERS; k++) {
            soft.top = tops[k][threadIdx.x];
            soft.sum = sums[k][threadIdx.x];
            total += soft.sum_for(most);
        }
        all.finish(most, total);
        R last = last_of(all.sum, s.is_log);
        for (int64_t i = threadIdx.y; inside && i < s.length; i += SHARERS) {
            R v = ebb__load(x + at + i * s.stride);
            ebb__store(y + at + i * s.stride, value_of(v, all.top, last, s.is_log));
        }
        __syncthreads(); /* before the next tile's statistics */
    }
}

template <class T>
EBB_KERNEL void __launch_bounds__(TILE * SHARERS)
softmax_grad_columns(T *dx, const T *dy, const T *y, softmax_shape s, bool accumulate)
{
    typedef ebb__real<T> R;
    __shared__ R sums[SHARERS][TILE];
    EACH_TILE(item, s) {
        bool inside;
        int64_t at = column_at(s, item, &inside);
        R sum = 0;
        for (int64_t i = threadIdx.y; inside && i < s.length; i += SHARERS) {
            R d = ebb__load(dy + at + i * s.stride);
            sum += s.is_log ? d : d * ebb__load(y + at + i * s.stride);
        }
        sums[threadIdx.y][threadIdx.x] = sum;
        __syncthreads();
        sum = 0;
#pragma unroll
        for (int k = 0; k < SHARERS; k++) sum += sums[k][threadIdx.x];
        for (int64_t i = threadIdx.y; inside && i < s.length; i += SHARERS) {
            R d = ebb__load(dy + at + i * s.stride), v = ebb__load(y + at + i * s.stride);
            ebb__put(dx + at + i * s.stride, gradient_of(d, v, sum, s.is_log), accumulate);
        }
        __syncthreads();
    }
}

/* ---- entry points --------------------------------------------------------------------------- */

static unsigned tile_grid(const ebb__cuda *cuda, const softmax_shape *s)
{
    return ebb__grid(cuda, s->outer * ebb__ceil_div(s->stride, TILE), 1);
}

static ebb_status forward(void *self, const ebb_call *call, bool is_log)
{
    ebb__cuda *cuda = (ebb__cuda *)self;
    softmax_shape s = shape_of(call, is_log);
    const void *x = call->in[0].data;
    void *y = call->out[0].data;
    if (call->out[0].elems == 0) return EBB_OK;
    EBB_FLOATS(cuda, call->out[0].dtype, T, {
        if (s.stride == 1)
            EBB_ROW_LAUNCH(cuda, softmax_rows, T, s.outer, s.length, (T *)y, (const T *)x, s.outer, s.length, is_log);
        else
            EBB_LAUNCH(cuda, softmax_columns<T>, tile_grid(cuda, &s), dim3(TILE, SHARERS), 0, (T *)y, (const T *)x, s);
    });
    return EBB_OK;
}

static ebb_status backward(void *self, const ebb_call *call, bool is_log)
{
    ebb__cuda *cuda = (ebb__cuda *)self;
    softmax_shape s = shape_of(call, is_log);
    const void *dy = call->dout[0].data, *y = call->out[0].data;
    void *dx = call->din[0].data;
    bool accumulate = call->accumulate[0];
    if (!dx || call->out[0].elems == 0) return EBB_OK;
    EBB_FLOATS(cuda, call->out[0].dtype, T, {
        if (s.stride == 1)
            EBB_ROW_LAUNCH(cuda, softmax_grad_rows, T, s.outer, s.length, (T *)dx, (const T *)dy, (const T *)y,
                           s.outer, s.length, is_log, accumulate);
        else
            EBB_LAUNCH(cuda, softmax_grad_columns<T>, tile_grid(cuda, &s), dim3(TILE, SHARERS), 0, (T *)dx,
                       (const T *)dy, (const T *)y, s, accumulate);
    });
    return EBB_OK;
}

static ebb_status softmax_forward(void *self, const ebb_call *call) { return forward(self, call, false); }
static ebb_status softmax_backward(void *self, const ebb_call *call) { return backward(self, call, false); }
static ebb_status log_softmax_forward(void *self, const ebb_call *call) { return forward(self, call, true); }
static ebb_status log_softmax_backward(void *self, const ebb_call *call) { return backward(self, call, true); }

extern "C" const ebb__accel_op ebb_cuda_softmax = { "softmax", softmax_forward, softmax_backward };
extern "C" const ebb__accel_op ebb_cuda_log_softmax = { "log_softmax", log_softmax_forward, log_softmax_backward };
