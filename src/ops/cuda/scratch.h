/* ops/cuda/scratch.h: how large the scratch of CUDA kernels is: plain C, seen by the ops' own files (which
 * tell the allocator, in dry runs too) and by the kernels (which lay it out).  Sizes depend on shapes only,
 * never on the device, so that a dry run needs none. */
#ifndef EBB_OPS_CUDA_SCRATCH_H
#define EBB_OPS_CUDA_SCRATCH_H

#include <stddef.h>
#include <stdint.h>
#include <ebb/types.h>

enum {
    EBB__CUDA_SCRATCH_ALIGN = 256,  /* of each part of an op's scratch; gemm likes it */
    EBB__CUDA_SUM_ROWS = 64,        /* least rows that one partial sum of columns is worth */
    EBB__CUDA_SUM_PARTS = 64,       /* most partial sums per column; with a tile of 32 columns each this
                                       fills a large device from 128 columns on */
    EBB__CUDA_NORM_ROWS = 16,       /* the same where a part goes over whole rows: layernorm, rmsnorm */
    EBB__CUDA_NORM_PARTS = 256,
    EBB__CUDA_MSE_PARTS = 1024      /* one per block */
};

/* The dtype that sums and statistics of `dtype` are in. */
static inline ebb_dtype ebb__cuda_real_dtype(ebb_dtype dtype) { return dtype == EBB_F64 ? EBB_F64 : EBB_F32; }
static inline size_t ebb__cuda_real_bytes(ebb_dtype dtype) { return dtype == EBB_F64 ? 8 : 4; }

/* ebb_dtype_bytes() for floats; the plugin links nothing of the library. */
static inline size_t ebb__cuda_float_bytes(ebb_dtype dtype)
{
    return dtype == EBB_F16 || dtype == EBB_BF16 ? 2 : ebb__cuda_real_bytes(dtype);
}

static inline size_t ebb__cuda_scratch(size_t bytes)
{
    return (bytes + EBB__CUDA_SCRATCH_ALIGN - 1) / EBB__CUDA_SCRATCH_ALIGN * EBB__CUDA_SCRATCH_ALIGN;
}

static inline int64_t ebb__cuda_parts(int64_t rows, int64_t rows_per_part, int64_t most)
{
    int64_t parts = rows / rows_per_part + (rows % rows_per_part != 0);
    return parts < 1 ? 1 : parts > most ? most : parts;
}

static inline int64_t ebb__cuda_sum_parts(int64_t rows)
{
    return ebb__cuda_parts(rows, EBB__CUDA_SUM_ROWS, EBB__CUDA_SUM_PARTS);
}

static inline int64_t ebb__cuda_norm_parts(int64_t rows)
{
    return ebb__cuda_parts(rows, EBB__CUDA_NORM_ROWS, EBB__CUDA_NORM_PARTS);
}

/* Columns of a head that one block of our attention kernels adds up; wider heads take several. */
static inline int64_t ebb__cuda_attention_width(ebb_dtype dtype) { return dtype == EBB_F64 ? 64 : 128; }

/* Embedding's backward: all 64-bit.  places [indices]: the indices' positions, by row of the table and then
 * in order; ends [rows + 1]: where each row's places begin, ends[rows] all of them; used [min(rows, indices)]:
 * the rows that have places; n_used [1]. */
typedef struct ebb__cuda_embedding_scratch {
    size_t places, ends, used, n_used, total; /* bytes from the start */
} ebb__cuda_embedding_scratch;

static inline ebb__cuda_embedding_scratch ebb__cuda_embedding_layout(int64_t rows, int64_t indices)
{
    ebb__cuda_embedding_scratch s;
    s.places = 0;
    s.ends = s.places + ebb__cuda_scratch((size_t)indices * 8);
    s.used = s.ends + ebb__cuda_scratch((size_t)(rows + 1) * 8);
    s.n_used = s.used + ebb__cuda_scratch((size_t)(rows < indices ? rows : indices) * 8);
    s.total = s.n_used + EBB__CUDA_SCRATCH_ALIGN;
    return s;
}

#endif
