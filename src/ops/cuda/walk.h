/* ops/cuda/walk.h: visiting the elements of several tensors together, whatever their strides; the
 * device's form of ops/walk.h.  The host merges dims, a kernel's thread locates the elements it takes. */
#ifndef EBB_OPS_CUDA_WALK_H
#define EBB_OPS_CUDA_WALK_H

#include "ops/cuda/kernel.h"

enum { EBB__CUDA_OPERANDS = 4 };

/* Passed to kernels by value.  Strides are in elements of that operand, 0 where it is broadcast. */
typedef struct ebb__cuda_walk {
    int ndim; /* at least 1 after ebb__cuda_walk_merge() */
    int n_operands;
    int64_t elems; /* product of dims */
    int64_t dims[EBB_MAX_DIMS];
    int64_t strides[EBB__CUDA_OPERANDS][EBB_MAX_DIMS];
} ebb__cuda_walk;

/* ---- host -------------------------------------------------------------------------------- */

/* As ebb_dtype_bytes(), which the plugin does not link. */
static inline size_t ebb__cuda_elem_bytes(ebb_dtype dtype)
{
    switch (dtype) {
    case EBB_F64:
    case EBB_I64: return 8;
    case EBB_F16:
    case EBB_BF16: return 2;
    case EBB_U8: return 1;
    default: return 4;
    }
}

static inline void ebb__cuda_walk_init(ebb__cuda_walk *walk, const ebb_arg *space)
{
    *walk = ebb__cuda_walk();
    walk->ndim = space->ndim;
    walk->elems = 1;
    for (int d = 0; d < space->ndim; d++) {
        walk->dims[d] = space->dims[d];
        walk->elems *= space->dims[d];
    }
}

/* An operand, broadcast to the walk's shape: dims are aligned at the right, a dim of 1 repeats. */
static inline void ebb__cuda_walk_add(ebb__cuda_walk *walk, const ebb_arg *arg)
{
    int64_t *strides = walk->strides[walk->n_operands++];
    int missing = walk->ndim - arg->ndim;
    for (int d = 0; d < walk->ndim; d++) {
        bool repeated = d < missing || arg->dims[d - missing] == 1;
        strides[d] = repeated ? 0 : arg->strides[d - missing];
    }
}

static inline void ebb__cuda_walk_move_dim(ebb__cuda_walk *walk, int to, int from)
{
    walk->dims[to] = walk->dims[from];
    for (int k = 0; k < walk->n_operands; k++) walk->strides[k][to] = walk->strides[k][from];
}

/* Drops dims of 1, and makes one dim of neighbours that every operand crosses evenly. */
static inline void ebb__cuda_walk_merge(ebb__cuda_walk *walk)
{
    int kept = 0; /* dims [0, kept) are done */
    for (int d = 0; d < walk->ndim; d++) {
        if (walk->dims[d] == 1) continue;
        bool even = kept > 0;
        for (int k = 0; k < walk->n_operands && even; k++)
            even = walk->strides[k][kept - 1] == walk->strides[k][d] * walk->dims[d];
        if (even) {
            int64_t length = walk->dims[kept - 1] * walk->dims[d];
            ebb__cuda_walk_move_dim(walk, kept - 1, d);
            walk->dims[kept - 1] = length;
        } else {
            ebb__cuda_walk_move_dim(walk, kept++, d);
        }
    }
    walk->ndim = kept ? kept : 1;
    if (kept) return;
    walk->dims[0] = 1;
    for (int k = 0; k < walk->n_operands; k++) walk->strides[k][0] = 1;
}

static inline int64_t ebb__cuda_walk_stride(const ebb__cuda_walk *walk, int operand)
{
    return walk->strides[operand][walk->ndim - 1];
}

/* Whether runs of `width` elements along the last dim can be moved at once in this operand, whose data
 * lie at `data`: all of them side by side on an aligned address, or all of them one broadcast element. */
static inline bool ebb__cuda_walk_is_wide(const ebb__cuda_walk *walk, int operand, const void *data,
                                          int width, size_t elem_bytes)
{
    int last = walk->ndim - 1;
    if (walk->dims[last] % width != 0) return false;
    if (walk->strides[operand][last] == 0) return true;
    if (walk->strides[operand][last] != 1 || (uintptr_t)data % (width * elem_bytes) != 0) return false;
    for (int d = 0; d < last; d++)
        if (walk->strides[operand][d] % width != 0) return false;
    return true;
}

/* ---- device ------------------------------------------------------------------------------ */

/* Index: uint32_t where all elements can be counted in it, since 64-bit division is slow. */
template <class Index, int N>
EBB_DEVICE void ebb__cuda_locate_by(const ebb__cuda_walk &walk, int64_t at, int64_t (&offsets)[N])
{
    Index rest = (Index)at;
#pragma unroll 1 /* most walks have one dim or two; unrolled, the divisions are most of a kernel's code */
    for (int d = walk.ndim - 1; d > 0; d--) {
        Index size = (Index)walk.dims[d], next = rest / size;
        int64_t index = (int64_t)(rest - next * size);
#pragma unroll
        for (int k = 0; k < N; k++) offsets[k] += index * walk.strides[k][d];
        rest = next;
    }
#pragma unroll
    for (int k = 0; k < N; k++) offsets[k] += (int64_t)rest * walk.strides[k][0];
}

/* Where element `at` of the row-major order stands in the first N operands. */
template <int N>
EBB_DEVICE void ebb__cuda_locate(const ebb__cuda_walk &walk, int64_t at, int64_t (&offsets)[N])
{
#pragma unroll
    for (int k = 0; k < N; k++) offsets[k] = 0;
    if (walk.elems <= UINT32_MAX)
        ebb__cuda_locate_by<uint32_t>(walk, at, offsets);
    else
        ebb__cuda_locate_by<uint64_t>(walk, at, offsets);
}

#endif
