/* ops/cuda/elementwise.h: out (+)= f(in...), element by element, inputs broadcast to out.
 * A formula is a struct made by EBB__FORMULA; halves are computed in f32 and rounded once. */
#ifndef EBB_OPS_CUDA_ELEMENTWISE_H
#define EBB_OPS_CUDA_ELEMENTWISE_H

#include "ops/cuda/walk.h"

/* A formula of n inputs, for compute type C (float or double).  In `expr`, a, b and c are the inputs'
 * elements and p is the job's parameter. */
#define EBB__FORMULA(name, n, expr)                                                \
    namespace { /* two files may have formulas of one name */                     \
    struct name {                                                                 \
        static constexpr int inputs = n;                                          \
        template <class C> static __device__ __forceinline__ C at(C a, C b, C c, C p) \
        {                                                                         \
            (void)a, (void)b, (void)c, (void)p;                                   \
            return expr;                                                          \
        }                                                                         \
    };                                                                            \
    }

typedef struct ebb__cuda_elementwise {
    const ebb_arg *out; /* of any strides, none 0 */
    bool accumulate;
    const ebb_arg *in[3]; /* as many as the formula reads */
    double parameter;
} ebb__cuda_elementwise;

/* Elements of 16 bytes, the widest load there is; f64 is for checking, not for speed. */
template <class T>
constexpr int ebb__cuda_width = sizeof(T) == 8 ? 1 : 16 / (int)sizeof(T);

/* V elements that are loaded and stored at once. */
template <class T, int V>
struct alignas(sizeof(T) * V) ebb__cuda_pack {
    T at[V];
};

/* V elements of an input from `data` on: the same one where stride is 0. */
template <int V, class T, class C>
EBB_DEVICE void ebb__cuda_read(const T *data, int64_t stride, C (&to)[V])
{
    if (V == 1 || stride == 0) {
        C one = ebb__load(data);
#pragma unroll
        for (int v = 0; v < V; v++) to[v] = one;
    } else {
        ebb__cuda_pack<T, V> pack = *reinterpret_cast<const ebb__cuda_pack<T, V> *>(data);
#pragma unroll
        for (int v = 0; v < V; v++) to[v] = ebb__load(&pack.at[v]);
    }
}

/* Operand 0 is out, operand 1 + k input k.  out may be one of the inputs. */
typedef struct ebb__cuda_elementwise_data {
    void *out;
    const void *in[3];
} ebb__cuda_elementwise_data;

template <class F, class T, int V>
EBB_KERNEL void __launch_bounds__(EBB__CUDA_THREADS)
ebb__cuda_elementwise_kernel(ebb__cuda_elementwise_data data, ebb__cuda_walk walk, bool accumulate,
                             ebb__real<T> p)
{
    typedef ebb__real<T> C;
    const int last = walk.ndim - 1;
    EBB_GRID_STRIDE(i, walk.elems / V) {
        int64_t offsets[F::inputs + 1];
        ebb__cuda_locate(walk, i * V, offsets);
        C in[3][V] = {};
#pragma unroll
        for (int k = 0; k < F::inputs; k++)
            ebb__cuda_read<V>((const T *)data.in[k] + offsets[k + 1], walk.strides[k + 1][last], in[k]);
        T *out = (T *)data.out + offsets[0];
        C old[V] = {};
        if (accumulate) ebb__cuda_read<V>((const T *)out, 1, old);
        ebb__cuda_pack<T, V> result;
#pragma unroll
        for (int v = 0; v < V; v++) {
            C value = F::at(in[0][v], in[1][v], in[2][v], p);
            ebb__store(&result.at[v], accumulate ? old[v] + value : value);
        }
        *reinterpret_cast<ebb__cuda_pack<T, V> *>(out) = result;
    }
}

template <class F, class T, int V>
static ebb_status ebb__cuda_elementwise_launch(ebb__cuda *cuda, const ebb__cuda_elementwise_data *data,
                                        const ebb__cuda_walk *walk, const ebb__cuda_elementwise *job)
{
    const ebb__cuda_elementwise_data pointers = *data;
    const ebb__cuda_walk by_value = *walk;
    const bool accumulate = job->accumulate;
    const ebb__real<T> p = (ebb__real<T>)job->parameter;
    EBB_LAUNCH(cuda, (ebb__cuda_elementwise_kernel<F, T, V>), ebb__grid(cuda, walk->elems / V, EBB__CUDA_THREADS),
               EBB__CUDA_THREADS, 0, pointers, by_value, accumulate, p);
    return EBB_OK;
}

/* Moves a walk of one dim on by n elements. */
template <class T>
static void ebb__cuda_elementwise_skip(ebb__cuda_elementwise_data *data, ebb__cuda_walk *walk, int64_t n)
{
    data->out = (T *)data->out + n * walk->strides[0][0];
    for (int k = 1; k < walk->n_operands; k++)
        data->in[k - 1] = (const T *)data->in[k - 1] + n * walk->strides[k][0];
    walk->dims[0] -= n;
    walk->elems -= n;
}

/* 16 bytes per thread and operand where all operands allow it, and the rest one by one. */
template <class F, class T>
static ebb_status ebb__cuda_elementwise_of(ebb__cuda *cuda, const ebb__cuda_elementwise *job)
{
    const int V = ebb__cuda_width<T>;
    ebb__cuda_walk walk;
    ebb__cuda_walk_init(&walk, job->out);
    ebb__cuda_walk_add(&walk, job->out);
    ebb__cuda_elementwise_data data = { job->out->data, {} };
    for (int k = 0; k < F::inputs; k++) {
        ebb__cuda_walk_add(&walk, job->in[k]);
        data.in[k] = job->in[k]->data;
    }
    ebb__cuda_walk_merge(&walk);
    if (V > 1 && walk.elems >= V) {
        ebb__cuda_walk front = walk;
        if (walk.ndim == 1) front.elems = front.dims[0] = walk.elems / V * V;
        bool wide = walk.strides[0][walk.ndim - 1] == 1;
        for (int k = 0; k < walk.n_operands && wide; k++)
            wide = ebb__cuda_walk_is_wide(&front, k, k ? data.in[k - 1] : data.out, V, sizeof(T));
        if (wide) {
            ebb_status st = ebb__cuda_elementwise_launch<F, T, V>(cuda, &data, &front, job);
            if (st != EBB_OK || front.elems == walk.elems) return st;
            ebb__cuda_elementwise_skip<T>(&data, &walk, front.elems);
        }
    }
    return ebb__cuda_elementwise_launch<F, T, 1>(cuda, &data, &walk, job);
}

template <class F>
static ebb_status ebb__cuda_run_elementwise(ebb__cuda *cuda, const ebb__cuda_elementwise &job)
{
    if (job.out->elems == 0) return EBB_OK;
    EBB_FLOATS(cuda, job.out->dtype, T, return (ebb__cuda_elementwise_of<F, T>(cuda, &job)));
    return EBB_OK;
}

#endif
