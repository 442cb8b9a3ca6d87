/* ops/cuda/reduce.h: sums of an elementwise formula over some dims; the sum op and the gradients of
 * broadcast operands are both this.  Sums of f32 and halves are f32: each thread adds few terms, then
 * threads and blocks are added in a fixed order, which loses less than one long sum would. */
#ifndef EBB_OPS_CUDA_REDUCE_H
#define EBB_OPS_CUDA_REDUCE_H

#include "ops/cuda/elementwise.h"
#include "ops/cuda/reduce_plan.h"

typedef struct ebb__cuda_reduction {
    const ebb_arg *space; /* the shape that is summed over */
    const ebb_arg *out;   /* contiguous; space's ndim or less, 1 in each summed dim */
    bool accumulate;
    double scale;         /* out (+)= scale * sum */
    const ebb_arg *in[3]; /* broadcast to space; as many as the formula reads */
} ebb__cuda_reduction;

/* What a kernel is told.  Operand k of the walks is input k; element i of `kept` is sum i. */
typedef struct ebb__cuda_reduce_task {
    const void *in[3];
    void *out;
    void *partials; /* [splits, sums]; NULL: finish into out */
    ebb__cuda_walk kept, reduced;
    int64_t share;  /* terms per split */
    bool accumulate;
} ebb__cuda_reduce_task;

template <class T>
EBB_DEVICE void ebb__cuda_reduce_put(const ebb__cuda_reduce_task &task, int64_t split,
                                                            int64_t sum, ebb__real<T> value, ebb__real<T> scale)
{
    if (task.partials)
        ((ebb__real<T> *)task.partials)[split * task.kept.elems + sum] = value;
    else
        ebb__put((T *)task.out + sum, scale * value, task.accumulate);
}

/* f of V neighbours along `along`'s last dim: term `term` of the sum that starts at `base`. */
template <class F, class T, int V>
EBB_DEVICE void ebb__cuda_reduce_terms(const ebb__cuda_reduce_task &task, int64_t term,
                                                              const ebb__cuda_walk &along,
                                                              const int64_t (&base)[F::inputs], ebb__real<T> (&to)[V])
{
    int64_t at[F::inputs];
    ebb__cuda_locate(task.reduced, term, at);
    ebb__real<T> in[3][V] = {};
#pragma unroll
    for (int k = 0; k < F::inputs; k++)
        ebb__cuda_read<V>((const T *)task.in[k] + base[k] + at[k], along.strides[k][along.ndim - 1], in[k]);
#pragma unroll
    for (int v = 0; v < V; v++) to[v] = F::at(in[0][v], in[1][v], in[2][v], ebb__real<T>(0));
}

/* Rows: LANES threads make one sum.  Each adds V neighbours, then V neighbours LANES * V further on: one by one
 * where they cannot be loaded at once (not WIDE), for the bits of a sum must not depend on where its terms lie.
 * Grid (blocks of sums, splits). */
template <class F, class T, int LANES, int V, bool WIDE>
EBB_KERNEL void __launch_bounds__(EBB__CUDA_THREADS)
ebb__cuda_reduce_rows(ebb__cuda_reduce_task task, ebb__real<T> scale)
{
    const int lane = threadIdx.x % LANES;
    const int64_t sum = (int64_t)blockIdx.x * (EBB__CUDA_THREADS / LANES) + threadIdx.x / LANES;
    if (sum >= task.kept.elems) return; /* all LANES of a sum, and all of a block where LANES is that */
    int64_t base[F::inputs], begin = blockIdx.y * task.share, end = begin + task.share;
    if (end > task.reduced.elems) end = task.reduced.elems;
    ebb__cuda_locate(task.kept, sum, base);
    ebb__real<T> total = 0;
    for (int64_t term = begin + lane * V; term < end; term += LANES * V) {
        if constexpr (WIDE) {
            ebb__real<T> values[V];
            ebb__cuda_reduce_terms<F, T, V>(task, term, task.reduced, base, values);
#pragma unroll
            for (int v = 0; v < V; v++) total += values[v];
        } else {
            ebb__real<T> value[1];
            for (int64_t t = term; t < term + V && t < end; t++) {
                ebb__cuda_reduce_terms<F, T, 1>(task, t, task.reduced, base, value);
                total += value[0];
            }
        }
    }
    if constexpr (LANES == 32) total = ebb__warp_sum(total);
    if constexpr (LANES > 32) total = ebb__block_sum<EBB__CUDA_THREADS>(total);
    if (lane == 0) ebb__cuda_reduce_put<T>(task, blockIdx.y, sum, total, scale);
}

enum { EBB__CUDA_COLUMN_ROWS = EBB__CUDA_THREADS / 32 };

/* Columns: a thread adds every eighth term of V neighbouring sums, the block's eight parts are added in
 * order.  Block (32, 8), grid (blocks of 32 V sums, splits). */
template <class F, class T, int V>
EBB_KERNEL void __launch_bounds__(EBB__CUDA_THREADS)
ebb__cuda_reduce_columns(ebb__cuda_reduce_task task, ebb__real<T> scale)
{
    typedef ebb__real<T> R;
    __shared__ R parts[EBB__CUDA_COLUMN_ROWS][V][32];
    const int64_t first = (int64_t)blockIdx.x * 32 * V, sum = first + threadIdx.x * V;
    R totals[V] = {};
    if (sum < task.kept.elems) {
        int64_t base[F::inputs], begin = blockIdx.y * task.share, end = begin + task.share;
        if (end > task.reduced.elems) end = task.reduced.elems;
        ebb__cuda_locate(task.kept, sum, base);
        for (int64_t term = begin + threadIdx.y; term < end; term += EBB__CUDA_COLUMN_ROWS) {
            R values[V];
            ebb__cuda_reduce_terms<F, T, V>(task, term, task.kept, base, values);
#pragma unroll
            for (int v = 0; v < V; v++) totals[v] += values[v];
        }
    }
#pragma unroll
    for (int v = 0; v < V; v++) parts[threadIdx.y][v][threadIdx.x] = totals[v];
    __syncthreads();
    const int column = threadIdx.y * 32 + threadIdx.x; /* of the block's 32 V */
    if (column >= 32 * V || first + column >= task.kept.elems) return;
    R total = 0;
#pragma unroll
    for (int row = 0; row < EBB__CUDA_COLUMN_ROWS; row++) total += parts[row][column % V][column / V];
    ebb__cuda_reduce_put<T>(task, blockIdx.y, first + column, total, scale);
}

/* Adds up partial sums [splits, sums]: a warp per sum. */
template <class T>
EBB_KERNEL void __launch_bounds__(EBB__CUDA_THREADS)
ebb__cuda_reduce_finish(T *out, const ebb__real<T> *partials, int64_t splits, int64_t sums, ebb__real<T> scale,
                        bool accumulate)
{
    const int64_t sum = (int64_t)blockIdx.x * (EBB__CUDA_THREADS / 32) + threadIdx.x / 32;
    if (sum >= sums) return;
    ebb__real<T> total = 0;
    for (int64_t split = threadIdx.x % 32; split < splits; split += 32) total += partials[split * sums + sum];
    total = ebb__warp_sum(total);
    if (threadIdx.x % 32 == 0) ebb__put(out + sum, scale * total, accumulate);
}

/* ---- host -------------------------------------------------------------------------------- */

/* Parts the merged walk of (inputs..., out) into kept and reduced dims. */
static inline void ebb__cuda_reduce_split(ebb__cuda_reduce_task *task, const ebb__cuda_walk *whole)
{
    const int out = whole->n_operands - 1;
    ebb__cuda_walk *parts[2] = { &task->kept, &task->reduced };
    for (int i = 0; i < 2; i++) {
        *parts[i] = ebb__cuda_walk();
        parts[i]->n_operands = out;
        parts[i]->elems = 1;
    }
    for (int d = 0; d < whole->ndim; d++) {
        ebb__cuda_walk *part = parts[whole->strides[out][d] == 0];
        for (int k = 0; k < out; k++) part->strides[k][part->ndim] = whole->strides[k][d];
        part->dims[part->ndim++] = whole->dims[d];
        part->elems *= whole->dims[d];
    }
    ebb__cuda_walk_merge(&task->kept);
    ebb__cuda_walk_merge(&task->reduced);
}

/* Whether runs of V along one part's last dim are wide in all inputs; the other part moves their start. */
static inline bool ebb__cuda_reduce_is_wide(const ebb__cuda_reduce_task *task, bool rows, int V, size_t elem_bytes)
{
    const ebb__cuda_walk *along = rows ? &task->reduced : &task->kept;
    const ebb__cuda_walk *other = rows ? &task->kept : &task->reduced;
    for (int k = 0; k < along->n_operands; k++) {
        if (!ebb__cuda_walk_is_wide(along, k, task->in[k], V, elem_bytes)) return false;
        if (ebb__cuda_walk_stride(along, k) == 0) continue;
        for (int d = 0; d < other->ndim; d++)
            if (other->dims[d] != 1 && other->strides[k][d] % V != 0) return false;
    }
    return true;
}

template <class F, class T, int LANES, int V, bool WIDE>
static ebb_status ebb__cuda_reduce_launch_rows(ebb__cuda *cuda, const ebb__cuda_reduce_task &task, int64_t splits,
                                               ebb__real<T> scale)
{
    int64_t blocks = ebb__ceil_div(task.kept.elems, EBB__CUDA_THREADS / LANES);
    EBB_LAUNCH(cuda, (ebb__cuda_reduce_rows<F, T, LANES, V, WIDE>), dim3((unsigned)blocks, (unsigned)splits),
               EBB__CUDA_THREADS, 0, task, scale);
    return EBB_OK;
}

template <class F, class T, int V>
static ebb_status ebb__cuda_reduce_launch_columns(ebb__cuda *cuda, const ebb__cuda_reduce_task &task, int64_t splits,
                                                  ebb__real<T> scale)
{
    int64_t blocks = ebb__ceil_div(task.kept.elems, 32 * V);
    EBB_LAUNCH(cuda, (ebb__cuda_reduce_columns<F, T, V>), dim3((unsigned)blocks, (unsigned)splits),
               dim3(32, EBB__CUDA_COLUMN_ROWS), 0, task, scale);
    return EBB_OK;
}

/* V neighbours at once along rows only for one input (sum, mean, bias gradients): others are rare there.  One at a
 * time, WIDE or not is the same kernel: only WIDE is compiled. */
template <class F, class T>
static ebb_status ebb__cuda_reduce_launch(ebb__cuda *cuda, const ebb__cuda_reduce_task &task,
                                          const ebb__cuda_reduce_plan &plan, ebb__real<T> scale)
{
    constexpr int V = ebb__cuda_width<T>, ROW_V = F::inputs == 1 ? V : 1, BLOCK = EBB__CUDA_THREADS;
    constexpr bool ANY = ROW_V == 1; /* WIDE, for terms that lie anywhere */
    const int64_t splits = plan.splits;
    if (plan.rows && plan.terms <= 8)
        return ebb__cuda_reduce_launch_rows<F, T, 1, 1, true>(cuda, task, splits, scale);
    if (ebb__cuda_reduce_is_wide(&task, plan.rows, plan.rows ? ROW_V : V, sizeof(T))) {
        if (!plan.rows) return ebb__cuda_reduce_launch_columns<F, T, V>(cuda, task, splits, scale);
        if (plan.terms <= 1024) return ebb__cuda_reduce_launch_rows<F, T, 32, ROW_V, true>(cuda, task, splits, scale);
        return ebb__cuda_reduce_launch_rows<F, T, BLOCK, ROW_V, true>(cuda, task, splits, scale);
    }
    if (!plan.rows) return ebb__cuda_reduce_launch_columns<F, T, 1>(cuda, task, splits, scale);
    if (plan.terms <= 1024) return ebb__cuda_reduce_launch_rows<F, T, 32, ROW_V, ANY>(cuda, task, splits, scale);
    return ebb__cuda_reduce_launch_rows<F, T, BLOCK, ROW_V, ANY>(cuda, task, splits, scale);
}

template <class F, class T>
static ebb_status ebb__cuda_reduce_of(ebb__cuda *cuda, const ebb_call *call, const ebb__cuda_reduction &job)
{
    const ebb__cuda_reduce_plan plan = ebb__cuda_plan_reduction(job.out, job.space);
    ebb__cuda_reduce_task task = {};
    ebb__cuda_walk whole;
    ebb__cuda_walk_init(&whole, job.space);
    for (int k = 0; k < F::inputs; k++) {
        ebb__cuda_walk_add(&whole, job.in[k]);
        task.in[k] = job.in[k]->data;
    }
    ebb__cuda_walk_add(&whole, job.out);
    ebb__cuda_walk_merge(&whole);
    ebb__cuda_reduce_split(&task, &whole);
    task.out = job.out->data;
    task.accumulate = job.accumulate;
    task.share = plan.share;
    task.partials = plan.splits > 1 ? call->workspace : NULL;
    const ebb__real<T> scale = (ebb__real<T>)job.scale;
    ebb_status st = ebb__cuda_reduce_launch<F, T>(cuda, task, plan, scale);
    if (st != EBB_OK || plan.splits == 1) return st;
    T *out = (T *)task.out;
    const ebb__real<T> *partials = (const ebb__real<T> *)task.partials;
    EBB_LAUNCH(cuda, ebb__cuda_reduce_finish<T>, (unsigned)ebb__ceil_div(plan.sums, EBB__CUDA_THREADS / 32),
               EBB__CUDA_THREADS, 0, out, partials, plan.splits, plan.sums, scale, job.accumulate);
    return EBB_OK;
}

/* The call's workspace holds ebb__cuda_reduce_bytes(). */
template <class F>
static ebb_status ebb__cuda_run_reduction(ebb__cuda *cuda, const ebb_call *call, const ebb__cuda_reduction &job)
{
    if (job.out->elems == 0) return EBB_OK;
    EBB_FLOATS(cuda, job.out->dtype, T, return (ebb__cuda_reduce_of<F, T>(cuda, call, job)));
    return EBB_OK;
}

#endif
