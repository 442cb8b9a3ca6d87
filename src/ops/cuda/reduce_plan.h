/* ops/cuda/reduce_plan.h: how the blocks of a device share sums over dims.  It depends on shapes only, so
 * that a dry run knows the scratch and a sum has the same bits on every device.  Plain C. */
#ifndef EBB_OPS_CUDA_REDUCE_PLAN_H
#define EBB_OPS_CUDA_REDUCE_PLAN_H

#include <ebb/op.h>

enum {
    EBB__CUDA_REDUCE_BLOCKS = 1024, /* are enough for any device of today */
    EBB__CUDA_ROW_TERMS = 4096,     /* fewer terms of a sum are not worth a block of their own */
    EBB__CUDA_COLUMN_TERMS = 64,    /* likewise of 128 sums side by side */
    EBB__CUDA_COLUMNS = 128
};

typedef struct ebb__cuda_reduce_plan {
    bool rows;           /* the innermost dim is a summed one: each sum runs along memory */
    int64_t sums, terms; /* elements of out; elements of the space in each */
    int64_t splits;      /* blocks that share a sum; above 1 they leave [splits, sums] partial sums */
    int64_t share;       /* terms of each but the last */
} ebb__cuda_reduce_plan;

/* Sums over `space` into `out`, which has 1 in each summed dim and space's ndim or less. */
static inline ebb__cuda_reduce_plan ebb__cuda_plan_reduction(const ebb_arg *out, const ebb_arg *space)
{
    ebb__cuda_reduce_plan plan;
    plan.sums = out->elems;
    plan.terms = plan.sums ? space->elems / plan.sums : 0;
    int r = 1; /* from the right */
    while (r <= space->ndim && space->dims[space->ndim - r] == 1) r++;
    plan.rows = r <= space->ndim && (r > out->ndim || out->dims[out->ndim - r] == 1);
    int64_t groups = plan.rows ? plan.sums : plan.sums / EBB__CUDA_COLUMNS + 1;
    int64_t least = plan.rows ? EBB__CUDA_ROW_TERMS : EBB__CUDA_COLUMN_TERMS;
    int64_t splits = groups ? EBB__CUDA_REDUCE_BLOCKS / groups : 1;
    if (splits > plan.terms / least) splits = plan.terms / least;
    if (splits < 1) splits = 1;
    plan.share = (plan.terms + splits - 1) / splits;
    plan.share = (plan.share + least - 1) / least * least; /* whole runs of wide loads */
    plan.splits = plan.share ? (plan.terms + plan.share - 1) / plan.share : 1;
    return plan;
}

/* Scratch: partial sums are f32, of f64 f64. */
static inline size_t ebb__cuda_reduce_bytes(const ebb_arg *out, const ebb_arg *space)
{
    ebb__cuda_reduce_plan plan = ebb__cuda_plan_reduction(out, space);
    if (plan.splits == 1) return 0;
    return (size_t)(plan.splits * plan.sums) * (out->dtype == EBB_F64 ? 8 : 4);
}

#endif
