/* ops/index.h: inputs that hold indices or labels, i32 or i64. */
#ifndef EBB_OPS_INDEX_H
#define EBB_OPS_INDEX_H

#include <ebb/op.h>

static inline int64_t ebb__index_at(const ebb_arg *index, int64_t i)
{
    return index->dtype == EBB_I64 ? ((const int64_t *)index->data)[i] : ((const int32_t *)index->data)[i];
}

static inline ebb_status ebb__require_index_dtype(const ebb_call *call, int i)
{
    ebb_dtype dtype = call->in[i].dtype;
    if (dtype == EBB_I32 || dtype == EBB_I64) return EBB_OK;
    return ebb_fail(EBB_EDTYPE, "%s: input %d is %s; it must be i32 or i64", call->op->name, i,
                    ebb_dtype_name(dtype));
}

#endif
