/* ops/cuda/index.h: indices and targets on the device, i32 or i64. */
#ifndef EBB_OPS_CUDA_INDEX_H
#define EBB_OPS_CUDA_INDEX_H

#include <ebb/ops.h>
#include "ops/cuda/bad_data.h"
#include "ops/cuda/kernel.h"

typedef struct ebb__cuda_indices {
    const void *data;
    bool is_64;
} ebb__cuda_indices;

static inline ebb__cuda_indices ebb__cuda_indices_of(const ebb_arg *arg)
{
    ebb__cuda_indices index = { arg->data, arg->dtype == EBB_I64 };
    return index;
}

EBB_DEVICE int64_t ebb__index(const ebb__cuda_indices &index, int64_t i)
{
    return index.is_64 ? ((const int64_t *)index.data)[i] : ((const int32_t *)index.data)[i];
}

#endif
