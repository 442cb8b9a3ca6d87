/* ops/cuda/op_rope.cu: rotary positions; formulas in ops/op_rope.c.  A first kernel makes the cosines and
 * sines [T, D/2] in f64, since a far position times a frequency does not fit f32; then rows are turned. */
#include "ops/cuda/kernel.h"

typedef struct rotation {
    int64_t batch, rows, width, half, rotated; /* rotated: elements of a row that are heads to turn */
    double base, position;
} rotation;

static rotation rotation_of(const ebb_call *call)
{
    const ebb__rope_attrs *at = EBB_ATTRS(call, const ebb__rope_attrs);
    const ebb_arg *x = &call->in[0];
    return { x->dims[0], x->dims[1], x->dims[2], at->head_dim / 2,
             at->heads ? at->heads * at->head_dim : x->dims[2], at->base, (double)at->position };
}

/* cos and sin of any angle: turned into half turns with the rounding error of the product, so that the
 * reduction is exact and needs no table (cos(x) of f64 has one, in local memory). */
EBB_DEVICE void angle_parts_f64(double angle, double *cosine, double *sine)
{
    const double by_pi = 0.31830988618379067154, by_pi_rest = -1.9678676675182486e-17; /* 1 / pi, in two parts */
    double turns = angle * by_pi, error = fma(angle, by_pi, -turns) + angle * by_pi_rest;
    double reduced = (turns - 2 * rint(turns / 2)) + error;
    *cosine = cospi(reduced);
    *sine = sinpi(reduced);
}

enum { LANES = 32, SHARERS = 8 }; /* threads along a half head, and beside each other */

/* cosines and sines [rows, half], with f_i = base^(-i / half) */
template <class R>
EBB_KERNEL void __launch_bounds__(LANES * SHARERS)
rope_angles_f64(R *cosines, R *sines, int64_t rows, int64_t half, double base, double position)
{
    for (int64_t i = threadIdx.x; i < half; i += LANES) {
        double frequency = pow(base, -(double)i / (double)half);
        for (int64_t row = blockIdx.x * SHARERS + threadIdx.y; row < rows; row += (int64_t)gridDim.x * SHARERS) {
            double cosine, sine;
            angle_parts_f64((position + (double)row) * frequency, &cosine, &sine);
            cosines[row * half + i] = (R)cosine;
            sines[row * half + i] = (R)sine;
        }
    }
}

/* A pair is read before it is written, so y may be x.  sign -1: back. */
template <class T>
EBB_DEVICE void rotate_row(T *to, const T *from, const ebb__real<T> *cosines, const ebb__real<T> *sines,
                           const rotation &r, ebb__real<T> sign, bool accumulate)
{
    typedef ebb__real<T> R;
    for (int64_t head = threadIdx.y * 2 * r.half; head < r.rotated; head += SHARERS * 2 * r.half) {
        for (int64_t i = threadIdx.x; i < r.half; i += LANES) {
            R a = ebb__load(from + head + i), b = ebb__load(from + head + r.half + i);
            R cosine = cosines[i], sine = sign * sines[i];
            ebb__put(to + head + i, a * cosine - b * sine, accumulate);
            ebb__put(to + head + r.half + i, b * cosine + a * sine, accumulate);
        }
    }
    if (to == from && !accumulate) return;
    for (int64_t i = r.rotated + threadIdx.y * LANES + threadIdx.x; i < r.width; i += LANES * SHARERS) {
        ebb__put(to + i, ebb__load(from + i), accumulate);
    }
}

/* Grid: rows, batches. */
template <class T>
EBB_KERNEL void __launch_bounds__(LANES * SHARERS)
rope_rows(T *y, const T *x, const ebb__real<T> *cosines, const ebb__real<T> *sines, rotation r, ebb__real<T> sign,
          bool accumulate)
{
    for (int64_t row = blockIdx.x; row < r.rows; row += gridDim.x) {
        for (int64_t b = blockIdx.y; b < r.batch; b += gridDim.y) {
            int64_t at = (b * r.rows + row) * r.width;
            rotate_row(y + at, x + at, cosines + row * r.half, sines + row * r.half, r, sign, accumulate);
        }
    }
}

template <class T>
static ebb_status run(ebb__cuda *cuda, const ebb_call *call, const T *x, T *y, bool accumulate, int sign)
{
    typedef ebb__real<T> R;
    rotation r = rotation_of(call);
    R *cosines = (R *)call->workspace, *sines = cosines + r.rows * r.half, turn = (R)sign;
    if (call->in[0].elems == 0) return EBB_OK;
    EBB_LAUNCH(cuda, rope_angles_f64<R>, ebb__grid(cuda, r.rows, SHARERS), dim3(LANES, SHARERS), 0, cosines, sines,
               r.rows, r.half, r.base, r.position);
    const int64_t most = 65535; /* of a grid's second size */
    dim3 grid = dim3(ebb__grid(cuda, r.rows, 1), (unsigned)(r.batch < most ? r.batch : most));
    EBB_LAUNCH(cuda, rope_rows<T>, grid, dim3(LANES, SHARERS), 0, y, x, (const R *)cosines, (const R *)sines, r, turn,
               accumulate);
    return EBB_OK;
}

static ebb_status forward(void *self, const ebb_call *call)
{
    EBB_FLOATS((ebb__cuda *)self, call->in[0].dtype, T,
               return run<T>((ebb__cuda *)self, call, (const T *)call->in[0].data, (T *)call->out[0].data, false, 1));
    return EBB_OK;
}

static ebb_status backward(void *self, const ebb_call *call)
{
    if (!call->din[0].data) return EBB_OK;
    EBB_FLOATS((ebb__cuda *)self, call->in[0].dtype, T,
               return run<T>((ebb__cuda *)self, call, (const T *)call->dout[0].data, (T *)call->din[0].data,
                             call->accumulate[0], -1));
    return EBB_OK;
}

extern "C" const ebb__accel_op ebb_cuda_rope = { "rope", forward, backward };
