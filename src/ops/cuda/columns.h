/* ops/cuda/columns.h: sums over the rows of a matrix in two stages of fixed order: partial sums of some rows
 * each, [parts, pitch] in the op's scratch, and their sum. */
#ifndef EBB_OPS_CUDA_COLUMNS_H
#define EBB_OPS_CUDA_COLUMNS_H

#include "ops/cuda/kernel.h"
#include "ops/cuda/scratch.h"

enum { EBB__COLUMN_TILE = 32, EBB__COLUMN_SHARERS = 8 }; /* columns of a block, and threads that share one */

/* The sum of a column over the threads that share it; valid in threadIdx.y = 0. */
template <class R> EBB_DEVICE R ebb__column_sum(R sum)
{
    __shared__ R sums[EBB__COLUMN_SHARERS][EBB__COLUMN_TILE];
    sums[threadIdx.y][threadIdx.x] = sum;
    __syncthreads();
    sum = 0;
#pragma unroll
    for (int k = 0; k < EBB__COLUMN_SHARERS; k++) sum += sums[k][threadIdx.x];
    return sum;
}

/* partials[part][j] = sum of x[i][j] over the part's rows; grid (tiles, parts) */
template <class T>
EBB_KERNEL void __launch_bounds__(EBB__COLUMN_TILE * EBB__COLUMN_SHARERS)
ebb__column_parts(ebb__real<T> *partials, const T *x, int64_t rows, int64_t cols)
{
    int64_t column = (int64_t)blockIdx.x * EBB__COLUMN_TILE + threadIdx.x;
    int64_t per_part = (rows + gridDim.y - 1) / gridDim.y, first = blockIdx.y * per_part;
    int64_t end = first + per_part < rows ? first + per_part : rows;
    ebb__real<T> sum = 0;
    for (int64_t i = first + threadIdx.y; column < cols && i < end; i += EBB__COLUMN_SHARERS) {
        sum += ebb__load(x + i * cols + column);
    }
    sum = ebb__column_sum(sum);
    if (threadIdx.y == 0 && column < cols) partials[blockIdx.y * cols + column] = sum;
}

/* out[j] (+)= sum of partials[part][j] */
template <class T>
EBB_KERNEL void __launch_bounds__(EBB__COLUMN_TILE * EBB__COLUMN_SHARERS)
ebb__column_total(T *out, const ebb__real<T> *partials, int64_t parts, int64_t pitch, int64_t cols, bool accumulate)
{
    int64_t column = (int64_t)blockIdx.x * EBB__COLUMN_TILE + threadIdx.x;
    ebb__real<T> sum = 0;
    for (int64_t i = threadIdx.y; column < cols && i < parts; i += EBB__COLUMN_SHARERS) {
        sum += partials[i * pitch + column];
    }
    sum = ebb__column_sum(sum);
    if (threadIdx.y == 0 && column < cols) ebb__put(out + column, sum, accumulate);
}

template <class T>
static ebb_status ebb__cuda_column_total(ebb__cuda *cuda, T *out, const ebb__real<T> *partials, int64_t parts,
                                         int64_t pitch, int64_t cols, bool accumulate)
{
    EBB_LAUNCH(cuda, ebb__column_total<T>, (unsigned)ebb__ceil_div(cols, EBB__COLUMN_TILE),
               dim3(EBB__COLUMN_TILE, EBB__COLUMN_SHARERS), 0, out, partials, parts, pitch, cols, accumulate);
    return EBB_OK;
}

/* out[j] (+)= sum over rows of x[i][j]; scratch: ebb__cuda_sum_parts(rows) * cols reals. */
template <class T>
static ebb_status ebb__cuda_column_sums(ebb__cuda *cuda, T *out, const T *x, int64_t rows, int64_t cols,
                                        bool accumulate, void *scratch)
{
    ebb__real<T> *partials = (ebb__real<T> *)scratch;
    int64_t parts = ebb__cuda_sum_parts(rows);
    EBB_LAUNCH(cuda, ebb__column_parts<T>, dim3((unsigned)ebb__ceil_div(cols, EBB__COLUMN_TILE), (unsigned)parts),
               dim3(EBB__COLUMN_TILE, EBB__COLUMN_SHARERS), 0, partials, x, rows, cols);
    return ebb__cuda_column_total<T>(cuda, out, partials, parts, cols, cols, accumulate);
}

#endif
