/* ops/cuda/bytes.cu: filling, copying and adding over shapes with strides.  Copies move bits, whatever
 * they mean. */
#include "ops/cuda/elementwise.h"

/* ---- fill -------------------------------------------------------------------------------- */

template <class U, int V>
EBB_KERNEL void __launch_bounds__(EBB__CUDA_THREADS) fill(U *to, ebb__cuda_walk walk, U value)
{
    ebb__cuda_pack<U, V> values;
#pragma unroll
    for (int v = 0; v < V; v++) values.at[v] = value;
    EBB_GRID_STRIDE(i, walk.elems / V) {
        int64_t at[1];
        ebb__cuda_locate(walk, i * V, at);
        *reinterpret_cast<ebb__cuda_pack<U, V> *>(to + at[0]) = values;
    }
}

template <class U>
static ebb_status fill_as(ebb__cuda *cuda, void *data, const ebb__cuda_walk &walk, U value)
{
    const int V = 16 / (int)sizeof(U);
    U *to = (U *)data;
    bool wide = ebb__cuda_walk_stride(&walk, 0) == 1 && ebb__cuda_walk_is_wide(&walk, 0, data, V, sizeof(U));
    if (wide)
        EBB_LAUNCH(cuda, (fill<U, V>), ebb__grid(cuda, walk.elems / V, EBB__CUDA_THREADS), EBB__CUDA_THREADS, 0, to,
                   walk, value);
    else
        EBB_LAUNCH(cuda, (fill<U, 1>), ebb__grid(cuda, walk.elems, EBB__CUDA_THREADS), EBB__CUDA_THREADS, 0, to, walk,
                   value);
    return EBB_OK;
}

/* The value as an element's bits, in the low bytes. */
static uint64_t bits_of(ebb_dtype dtype, double value)
{
    const float f = (float)value;
    const __half half = __float2half_rn(f);
    const __nv_bfloat16 bfloat = __float2bfloat16_rn(f);
    const int32_t i32 = dtype == EBB_I32 ? (int32_t)value : 0;
    const int64_t i64 = dtype == EBB_I64 ? (int64_t)value : 0;
    uint64_t bits = 0;
    switch (dtype) {
    case EBB_F32: memcpy(&bits, &f, 4); break;
    case EBB_F64: memcpy(&bits, &value, 8); break;
    case EBB_F16: memcpy(&bits, &half, 2); break;
    case EBB_BF16: memcpy(&bits, &bfloat, 2); break;
    case EBB_I32: memcpy(&bits, &i32, 4); break;
    case EBB_I64: memcpy(&bits, &i64, 8); break;
    default: bits = (uint8_t)value;
    }
    return bits;
}

ebb_status ebb__cuda_fill(ebb__cuda *cuda, const ebb_arg *to, double value)
{
    if (to->elems == 0) return EBB_OK;
    const size_t bytes = ebb__cuda_elem_bytes(to->dtype);
    const uint64_t bits = bits_of(to->dtype, value);
    ebb__cuda_walk walk;
    ebb__cuda_walk_init(&walk, to);
    ebb__cuda_walk_add(&walk, to);
    ebb__cuda_walk_merge(&walk);
    if (bits == 0 && walk.ndim == 1 && walk.strides[0][0] == 1) {
        EBB__CUDA_TRY(cuda, cudaMemsetAsync(to->data, 0, (size_t)walk.elems * bytes, cuda->stream));
        return EBB_OK;
    }
    switch (bytes) {
    case 1: return fill_as<uint8_t>(cuda, to->data, walk, (uint8_t)bits);
    case 2: return fill_as<uint16_t>(cuda, to->data, walk, (uint16_t)bits);
    case 4: return fill_as<uint32_t>(cuda, to->data, walk, (uint32_t)bits);
    default: return fill_as<uint64_t>(cuda, to->data, walk, bits);
    }
}

/* ---- copy -------------------------------------------------------------------------------- */

/* Operand 0 is to, 1 is from. */
template <class U, int V>
EBB_KERNEL void __launch_bounds__(EBB__CUDA_THREADS) copy(U *to, const U *from, ebb__cuda_walk walk)
{
    EBB_GRID_STRIDE(i, walk.elems / V) {
        int64_t at[2];
        ebb__cuda_locate(walk, i * V, at);
        *reinterpret_cast<ebb__cuda_pack<U, V> *>(to + at[0]) =
            *reinterpret_cast<const ebb__cuda_pack<U, V> *>(from + at[1]);
    }
}

enum { SQUARE = 32, SQUARE_ROWS = EBB__CUDA_THREADS / SQUARE };

/* Transposed copies: `to` runs along the last dim, `from` along the one before.  A block reads a square
 * along columns and writes it along rows, so that both touch neighbours.  Block (32, 8). */
template <class U>
EBB_KERNEL void __launch_bounds__(EBB__CUDA_THREADS) copy_squares(U *to, const U *from, ebb__cuda_walk walk)
{
    __shared__ U square[SQUARE][SQUARE + 1]; /* one more: columns in different banks */
    const int64_t height = walk.dims[walk.ndim - 2], width = walk.dims[walk.ndim - 1];
    const int64_t to_row = walk.strides[0][walk.ndim - 2], from_column = walk.strides[1][walk.ndim - 1];
    const int64_t across = (width + SQUARE - 1) / SQUARE, down = (height + SQUARE - 1) / SQUARE;
    const int64_t squares = walk.elems / (height * width) * down * across;
    for (int64_t item = blockIdx.x; item < squares; item += gridDim.x) {
        const int64_t matrix = item / (down * across), within = item - matrix * down * across;
        const int64_t top = within / across * SQUARE, left = within % across * SQUARE;
        int64_t at[2];
        ebb__cuda_locate(walk, (matrix * height + top) * width + left, at);
        for (int column = threadIdx.y; column < SQUARE; column += SQUARE_ROWS)
            if (left + column < width && top + threadIdx.x < height)
                square[column][threadIdx.x] = from[at[1] + threadIdx.x + column * from_column];
        __syncthreads();
        for (int row = threadIdx.y; row < SQUARE; row += SQUARE_ROWS)
            if (top + row < height && left + threadIdx.x < width)
                to[at[0] + row * to_row + threadIdx.x] = square[threadIdx.x][row];
        __syncthreads();
    }
}

/* Whether the merged walk is a transposition; then the dim along which `from` runs becomes the one before
 * the last (a copy may visit elements in any order). */
static bool arrange_squares(ebb__cuda_walk *walk)
{
    const int last = walk->ndim - 1;
    if (walk->strides[0][last] != 1 || walk->strides[1][last] == 1) return false;
    for (int d = 0; d < last; d++) {
        if (walk->strides[1][d] != 1 || walk->dims[d] < 8 || walk->dims[last] < 8) continue;
        const int64_t length = walk->dims[d], to = walk->strides[0][d];
        for (int m = d; m + 1 < last; m++) ebb__cuda_walk_move_dim(walk, m, m + 1);
        walk->dims[last - 1] = length;
        walk->strides[0][last - 1] = to;
        walk->strides[1][last - 1] = 1;
        return true;
    }
    return false;
}

template <class U>
static ebb_status copy_as(ebb__cuda *cuda, void *to_data, const void *from_data, ebb__cuda_walk walk)
{
    const int V = 16 / (int)sizeof(U);
    U *to = (U *)to_data;
    const U *from = (const U *)from_data;
    if (arrange_squares(&walk)) {
        const int64_t height = walk.dims[walk.ndim - 2], width = walk.dims[walk.ndim - 1];
        const int64_t squares = walk.elems / (height * width) * ebb__ceil_div(height, SQUARE) *
                                ebb__ceil_div(width, SQUARE);
        EBB_LAUNCH(cuda, copy_squares<U>, ebb__grid(cuda, squares, 1), dim3(SQUARE, SQUARE_ROWS), 0, to, from, walk);
        return EBB_OK;
    }
    bool wide = true; /* one broadcast element is no run to be moved */
    for (int k = 0; k < 2; k++)
        wide = wide && ebb__cuda_walk_stride(&walk, k) == 1 &&
               ebb__cuda_walk_is_wide(&walk, k, k ? from_data : to_data, V, sizeof(U));
    if (wide)
        EBB_LAUNCH(cuda, (copy<U, V>), ebb__grid(cuda, walk.elems / V, EBB__CUDA_THREADS), EBB__CUDA_THREADS, 0, to,
                   from, walk);
    else
        EBB_LAUNCH(cuda, (copy<U, 1>), ebb__grid(cuda, walk.elems, EBB__CUDA_THREADS), EBB__CUDA_THREADS, 0, to, from,
                   walk);
    return EBB_OK;
}

ebb_status ebb__cuda_arg_copy(ebb__cuda *cuda, const ebb_arg *to, const ebb_arg *from)
{
    if (to->elems == 0) return EBB_OK;
    const size_t bytes = ebb__cuda_elem_bytes(to->dtype);
    ebb__cuda_walk walk;
    ebb__cuda_walk_init(&walk, to);
    ebb__cuda_walk_add(&walk, to);
    ebb__cuda_walk_add(&walk, from);
    ebb__cuda_walk_merge(&walk);
    if (walk.ndim == 1 && walk.strides[0][0] == 1 && walk.strides[1][0] == 1) {
        EBB__CUDA_TRY(cuda, cudaMemcpyAsync(to->data, from->data, (size_t)walk.elems * bytes, cudaMemcpyDeviceToDevice,
                                            cuda->stream));
        return EBB_OK;
    }
    switch (bytes) {
    case 1: return copy_as<uint8_t>(cuda, to->data, from->data, walk);
    case 2: return copy_as<uint16_t>(cuda, to->data, from->data, walk);
    case 4: return copy_as<uint32_t>(cuda, to->data, from->data, walk);
    default: return copy_as<uint64_t>(cuda, to->data, from->data, walk);
    }
}

/* ---- add --------------------------------------------------------------------------------- */

EBB__FORMULA(plain, 1, a)

ebb_status ebb__cuda_arg_add(ebb__cuda *cuda, const ebb_arg *to, const ebb_arg *from)
{
    return ebb__cuda_run_elementwise<plain>(cuda, { to, true, { from }, 0 });
}
