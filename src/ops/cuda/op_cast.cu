/* ops/cuda/op_cast.cu: another dtype for the same values; rounding as in ops/op_cast.c. */
#include "ops/cuda/elementwise.h"

/* ---- between f32 and a half: what mixed precision runs -------------------------------------- */

/* V elements at once: 16 bytes of f32, 8 of the half.  accumulate: to is f32. */
template <class To, class From, int V>
EBB_KERNEL void __launch_bounds__(EBB__CUDA_THREADS)
convert(To *to, const From *from, ebb__cuda_walk walk, bool accumulate)
{
    EBB_GRID_STRIDE(i, walk.elems / V) {
        int64_t at[2];
        ebb__cuda_locate(walk, i * V, at);
        float values[V], old[V] = {};
        ebb__cuda_read<V>(from + at[1], walk.strides[1][walk.ndim - 1], values);
        if (accumulate) ebb__cuda_read<V>((const To *)to + at[0], 1, old);
        ebb__cuda_pack<To, V> result;
#pragma unroll
        for (int v = 0; v < V; v++) ebb__store(&result.at[v], accumulate ? old[v] + values[v] : values[v]);
        *reinterpret_cast<ebb__cuda_pack<To, V> *>(to + at[0]) = result;
    }
}

template <class To, class From>
static ebb_status convert_as(ebb__cuda *cuda, const ebb_arg *to_arg, const ebb_arg *from_arg,
                             const ebb__cuda_walk &walk, bool accumulate)
{
    const int V = 4;
    To *to = (To *)to_arg->data;
    const From *from = (const From *)from_arg->data;
    const bool wide = ebb__cuda_walk_stride(&walk, 0) == 1 && ebb__cuda_walk_is_wide(&walk, 0, to, V, sizeof(To)) &&
                      ebb__cuda_walk_is_wide(&walk, 1, from, V, sizeof(From));
    if (wide)
        EBB_LAUNCH(cuda, (convert<To, From, V>), ebb__grid(cuda, walk.elems / V, EBB__CUDA_THREADS), EBB__CUDA_THREADS,
                   0, to, from, walk, accumulate);
    else
        EBB_LAUNCH(cuda, (convert<To, From, 1>), ebb__grid(cuda, walk.elems, EBB__CUDA_THREADS), EBB__CUDA_THREADS, 0,
                   to, from, walk, accumulate);
    return EBB_OK;
}

/* ---- any other pair: through f64 or i64, which hold every value ------------------------------ */

/* f64 to f32 such that a second rounding, to fewer bits, gives what one rounding would: toward zero, with
 * the last bit set where something was lost. */
EBB_DEVICE float to_odd(double x)
{
    float y = (float)x;
    if ((double)y == x || y != y) return y;
    uint32_t bits = __float_as_uint(y);
    bool away = fabs((double)y) > fabs(x);
    return __uint_as_float((bits - (away ? 1u : 0u)) | 1u);
}

EBB_DEVICE double load_f64(ebb_dtype dtype, const void *from, int64_t at)
{
    switch (dtype) {
    case EBB_F64: return ((const double *)from)[at];
    case EBB_F16: return ebb__load((const __half *)from + at);
    case EBB_BF16: return ebb__load((const __nv_bfloat16 *)from + at);
    default: return ((const float *)from)[at];
    }
}

EBB_DEVICE void store_f64(ebb_dtype dtype, void *to, int64_t at, double value)
{
    switch (dtype) {
    case EBB_F64: ((double *)to)[at] = value; break;
    case EBB_F16: ebb__store((__half *)to + at, to_odd(value)); break;
    case EBB_BF16: ebb__store((__nv_bfloat16 *)to + at, to_odd(value)); break;
    default: ((float *)to)[at] = (float)value;
    }
}

EBB_DEVICE int64_t load_i64(ebb_dtype dtype, const void *from, int64_t at)
{
    switch (dtype) {
    case EBB_I32: return ((const int32_t *)from)[at];
    case EBB_I64: return ((const int64_t *)from)[at];
    default: return ((const uint8_t *)from)[at];
    }
}

/* Integers of more than 53 bits go to f32 in one step, since f64 would round before it. */
EBB_DEVICE void store_i64(ebb_dtype dtype, void *to, int64_t at, int64_t value)
{
    switch (dtype) {
    case EBB_I32: ((int32_t *)to)[at] = (int32_t)(uint32_t)value; break;
    case EBB_I64: ((int64_t *)to)[at] = value; break;
    case EBB_U8: ((uint8_t *)to)[at] = (uint8_t)value; break;
    case EBB_F32: ((float *)to)[at] = (float)value; break;
    default: store_f64(dtype, to, at, (double)value);
    }
}

EBB_KERNEL void __launch_bounds__(EBB__CUDA_THREADS)
convert_floats_f64(void *to, ebb_dtype to_dtype, const void *from, ebb_dtype from_dtype, ebb__cuda_walk walk,
                   bool accumulate)
{
    EBB_GRID_STRIDE(i, walk.elems) {
        int64_t at[2];
        ebb__cuda_locate(walk, i, at);
        double value = load_f64(from_dtype, from, at[1]);
        if (accumulate) value += load_f64(to_dtype, to, at[0]);
        store_f64(to_dtype, to, at[0], value);
    }
}

EBB_KERNEL void __launch_bounds__(EBB__CUDA_THREADS)
convert_integers_f64(void *to, ebb_dtype to_dtype, const void *from, ebb_dtype from_dtype, ebb__cuda_walk walk)
{
    EBB_GRID_STRIDE(i, walk.elems) {
        int64_t at[2];
        ebb__cuda_locate(walk, i, at);
        store_i64(to_dtype, to, at[0], load_i64(from_dtype, from, at[1]));
    }
}

/* ---- running them ------------------------------------------------------------------------ */

static bool is_float(ebb_dtype dtype)
{
    return dtype == EBB_F32 || dtype == EBB_F64 || dtype == EBB_F16 || dtype == EBB_BF16;
}

/* to (+)= from */
static ebb_status cast(ebb__cuda *cuda, const ebb_arg *to, const ebb_arg *from, bool accumulate)
{
    if (to->elems == 0) return EBB_OK;
    if (to->dtype == from->dtype)
        return accumulate ? ebb__cuda_arg_add(cuda, to, from) : ebb__cuda_arg_copy(cuda, to, from);
    ebb__cuda_walk walk;
    ebb__cuda_walk_init(&walk, to);
    ebb__cuda_walk_add(&walk, to);
    ebb__cuda_walk_add(&walk, from);
    ebb__cuda_walk_merge(&walk);
    const ebb_dtype t = to->dtype, f = from->dtype;
    if (t == EBB_F32 && f == EBB_F16) return convert_as<float, __half>(cuda, to, from, walk, accumulate);
    if (t == EBB_F32 && f == EBB_BF16) return convert_as<float, __nv_bfloat16>(cuda, to, from, walk, accumulate);
    if (t == EBB_F16 && f == EBB_F32 && !accumulate) return convert_as<__half, float>(cuda, to, from, walk, false);
    if (t == EBB_BF16 && f == EBB_F32 && !accumulate)
        return convert_as<__nv_bfloat16, float>(cuda, to, from, walk, false);
    const unsigned blocks = ebb__grid(cuda, walk.elems, EBB__CUDA_THREADS);
    void *to_data = to->data;
    const void *from_data = from->data;
    if (is_float(f))
        EBB_LAUNCH(cuda, convert_floats_f64, blocks, EBB__CUDA_THREADS, 0, to_data, t, from_data, f, walk, accumulate);
    else
        EBB_LAUNCH(cuda, convert_integers_f64, blocks, EBB__CUDA_THREADS, 0, to_data, t, from_data, f, walk);
    return EBB_OK;
}

static ebb_status forward(void *self, const ebb_call *call)
{
    return cast((ebb__cuda *)self, &call->out[0], &call->in[0], false);
}

static ebb_status backward(void *self, const ebb_call *call)
{
    if (!call->din[0].data) return EBB_OK;
    return cast((ebb__cuda *)self, &call->din[0], &call->dout[0], call->accumulate[0]);
}

extern "C" const ebb__accel_op ebb_cuda_cast = { "cast", forward, backward };
