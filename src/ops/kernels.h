/* ops/kernels.h: what CPU kernels share. */
#ifndef EBB_OPS_KERNELS_H
#define EBB_OPS_KERNELS_H

#include <ebb/op.h>
#include "core/assert.h"
#include "device/device.h"

/* The compute threads of the call's context. */
ebb__threads *ebb__call_threads(const ebb_call *call);

/* Rows and columns of an arg seen as a matrix over its last axis: [rows, cols]; cols 1 for a scalar. */
static inline int64_t ebb__cols(const ebb_arg *a) { return a->ndim ? a->dims[a->ndim - 1] : 1; }
static inline int64_t ebb__rows(const ebb_arg *a)
{
    int64_t rows = 1;
    for (int i = 0; i + 1 < a->ndim; i++) rows *= a->dims[i];
    return rows;
}

/* infer() of an op whose output is like input 0. */
ebb_status ebb__infer_like_first(ebb_call *call);
/* EDTYPE unless input i is one of f32, f64 (compute dtypes); names the op. */
ebb_status ebb__require_compute_dtype(const ebb_call *call, int i);
/* The dtype that sums and row statistics of `dtype` are in: halves are summed in f32. */
static inline ebb_dtype ebb__compute_dtype(ebb_dtype dtype) { return dtype == EBB_F64 ? EBB_F64 : EBB_F32; }
/* EDTYPE unless all inputs share one dtype; or share one of f32, f64, f16, bf16. */
ebb_status ebb__require_same_dtype(const ebb_call *call);
ebb_status ebb__require_float(const ebb_call *call);
/* An axis of input 0: negative ones count from the end.  EINVAL outside. */
ebb_status ebb__resolve_axis(const ebb_call *call, int64_t *axis);

/* ebb_apply() of an op with one output and n_ins inputs. */
EBB_NODISCARD ebb_status ebb__apply_one(const ebb_op *op, ebb_tensor **out,
                                        ebb_tensor *const ins[], int n_ins, const void *attrs,
                                        size_t attrs_bytes);

#endif
