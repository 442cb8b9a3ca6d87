/* ops/cuda/op_mse.cu: mean((a - b)^2); formulas in ops/op_mse.c.  One partial sum per block, then one block
 * adds them up in f64. */
#include "ops/cuda/rows.h"
#include "ops/cuda/scratch.h"

enum { A, B };
enum { TOTAL_THREADS = 256 };

/* The whole of a and b as one row of all blocks: element k of a lane's turn as in rows.h. */
template <class T>
EBB_ROW_KERNEL
square_sums(ebb__real<T> *partials, const T *a, const T *b, int64_t elems)
{
    typedef ebb__real<T> R;
    R sum = 0;
    int64_t turn_elems = (int64_t)EBB__CUDA_THREADS * ebb__lane_elems<T>;
    ebb__turn<T, EBB__CUDA_THREADS> turn(elems);
    for (turn.first += blockIdx.x * turn_elems; turn.more(); turn.first += gridDim.x * turn_elems) {
        R u[turn.N], v[turn.N];
        ebb__take(turn, a, R(0), u);
        ebb__take(turn, b, R(0), v);
#pragma unroll
        for (int k = 0; k < turn.N; k++) sum += (u[k] - v[k]) * (u[k] - v[k]);
    }
    sum = ebb__block_sum<EBB__CUDA_THREADS>(sum);
    if (threadIdx.x == 0) partials[blockIdx.x] = sum;
}

template <class R>
EBB_KERNEL void __launch_bounds__(TOTAL_THREADS)
mean_f64(R *mean, const R *partials, int n_partials, double elems)
{
    double total = 0;
    for (int i = threadIdx.x; i < n_partials; i += TOTAL_THREADS) total += (double)partials[i];
    total = ebb__block_sum<TOTAL_THREADS>(total);
    if (threadIdx.x == 0) *mean = (R)(total / elems); /* of nothing: 0 / 0 */
}

static ebb_status forward(void *self, const ebb_call *call)
{
    ebb__cuda *cuda = (ebb__cuda *)self;
    const void *a = call->in[A].data, *b = call->in[B].data;
    void *mean = call->out[0].data, *partials = call->workspace;
    int64_t elems = call->in[A].elems;
    EBB_FLOATS(cuda, call->in[A].dtype, T, {
        typedef ebb__real<T> R;
        int64_t blocks = ebb__ceil_div(elems, (int64_t)EBB__CUDA_THREADS * ebb__lane_elems<T>);
        int n = (int)(blocks < EBB__CUDA_MSE_PARTS ? blocks : EBB__CUDA_MSE_PARTS);
        EBB_LAUNCH(cuda, square_sums<T>, (unsigned)n, EBB__CUDA_THREADS, 0, (R *)partials, (const T *)a, (const T *)b,
                   elems);
        EBB_LAUNCH(cuda, mean_f64<R>, 1, TOTAL_THREADS, 0, (R *)mean, (const R *)partials, n, (double)elems);
    });
    return EBB_OK;
}

/* da (+)= 2 (a - b) dy / n, db (+)= -da; either may be NULL */
template <class T>
EBB_ROW_KERNEL
mse_grads(T *da, T *db, const T *a, const T *b, const ebb__real<T> *dy, ebb__real<T> two_by_n, int64_t elems,
          bool add_a, bool add_b)
{
    typedef ebb__real<T> R;
    R factor = *dy * two_by_n;
    int64_t turn_elems = (int64_t)EBB__CUDA_THREADS * ebb__lane_elems<T>;
    ebb__turn<T, EBB__CUDA_THREADS> turn(elems);
    for (turn.first += blockIdx.x * turn_elems; turn.more(); turn.first += gridDim.x * turn_elems) {
        R u[turn.N], v[turn.N];
        ebb__take(turn, a, R(0), u);
        ebb__take(turn, b, R(0), v);
#pragma unroll
        for (int k = 0; k < turn.N; k++) {
            u[k] = (u[k] - v[k]) * factor;
            v[k] = -u[k];
        }
        if (da) ebb__give(turn, da, u, add_a);
        if (db) ebb__give(turn, db, v, add_b);
    }
}

static ebb_status backward(void *self, const ebb_call *call)
{
    ebb__cuda *cuda = (ebb__cuda *)self;
    const void *a = call->in[A].data, *b = call->in[B].data, *dy = call->dout[0].data;
    void *da = call->din[A].data, *db = call->din[B].data;
    bool add_a = call->accumulate[A], add_b = call->accumulate[B];
    int64_t elems = call->in[A].elems;
    EBB_FLOATS(cuda, call->in[A].dtype, T, {
        typedef ebb__real<T> R;
        R two_by_n = (R)(2 / (double)elems);
        EBB_LAUNCH(cuda, mse_grads<T>, ebb__grid(cuda, elems, EBB__CUDA_THREADS * ebb__lane_elems<T>),
                   EBB__CUDA_THREADS, 0, (T *)da, (T *)db, (const T *)a, (const T *)b, (const R *)dy, two_by_n, elems,
                   add_a, add_b);
    });
    return EBB_OK;
}

extern "C" const ebb__accel_op ebb_cuda_mse = { "mse", forward, backward };
