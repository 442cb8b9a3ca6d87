/* ops/cuda/loss.h: rows of logits against targets, for cross_entropy and linear_cross_entropy; formulas in
 * ops/op_cross_entropy.c.  A target that is no class counts as ignored, and is reported in forward.
 *
 * Forward: the rows' losses [rows] in the op's scratch, then one block adds them up in f64.
 * Backward: one block finds the weight of a row, dy / divisor, then dlogits in one pass. */
#ifndef EBB_OPS_CUDA_LOSS_H
#define EBB_OPS_CUDA_LOSS_H

#include "ops/cuda/index.h"
#include "ops/cuda/rows.h"

enum { EBB__LOSS_THREADS = 1024 }; /* of the block that adds up */

/* Rows [first, first + rows) of the targets, and their logits. */
typedef struct ebb__cuda_loss {
    ebb__cuda_indices targets;
    int64_t first, rows, classes, all_rows;
    double normalizer;   /* 0: the number of rows that count */
    unsigned *error, bad_target;
} ebb__cuda_loss;

/* The target of a row; EBB_IGNORE where it is no class. */
EBB_DEVICE int64_t ebb__target(const ebb__cuda_loss &l, int64_t row)
{
    int64_t target = ebb__index(l.targets, l.first + row);
    return target >= 0 && target < l.classes ? target : EBB_IGNORE;
}

/* losses[row] = lse - logits[target], 0 where ignored; lses may be NULL. */
template <class T, int THREADS>
EBB_ROW_KERNEL
ebb__loss_rows(ebb__real<T> *losses, ebb__real<T> *lses, const T *logits, ebb__cuda_loss l)
{
    typedef ebb__real<T> R;
    EBB_EACH_ROW(THREADS, row, l.rows) {
        int64_t target = ebb__target(l, row);
        const T *from = logits + row * l.classes;
        R lse = 0, loss = 0;
        if (target != EBB_IGNORE) { /* the whole group agrees */
            ebb__soft<R> soft = ebb__soft_of_row<T, THREADS>(from, l.classes);
            lse = soft.top + ebb__log(soft.sum);
            loss = (soft.top - ebb__load(from + target)) + ebb__log(soft.sum);
        }
        if (threadIdx.x % THREADS != 0) continue;
        if (target == EBB_IGNORE && ebb__index(l.targets, l.first + row) != EBB_IGNORE)
            ebb__report(l.error, l.bad_target);
        losses[l.first + row] = loss;
        if (lses) lses[l.first + row] = lse;
    }
}

/* Rows that count, over the whole block. */
EBB_DEVICE double ebb__loss_count_f64(const ebb__cuda_loss &l)
{
    double count = 0;
    for (int64_t i = threadIdx.x; i < l.all_rows; i += EBB__LOSS_THREADS) {
        int64_t target = ebb__index(l.targets, i);
        count += target >= 0 && target < l.classes;
    }
    return ebb__block_sum<EBB__LOSS_THREADS>(count);
}

/* 1 / normalizer, or where that is 0, 1 / the number of rows that count; 0 where none does. */
EBB_DEVICE double ebb__loss_weight_f64(const ebb__cuda_loss &l)
{
    if (l.normalizer > 0) return 1 / l.normalizer;
    double count = ebb__loss_count_f64(l);
    return count > 0 ? 1 / count : 0;
}

/* loss = weight * sum of the rows' losses; one block */
template <class R>
EBB_KERNEL void __launch_bounds__(EBB__LOSS_THREADS)
ebb__loss_total_f64(R *loss, const R *losses, ebb__cuda_loss l)
{
    double total = 0;
    for (int64_t i = threadIdx.x; i < l.all_rows; i += EBB__LOSS_THREADS) total += (double)losses[i];
    total = ebb__block_sum<EBB__LOSS_THREADS>(total) * ebb__loss_weight_f64(l);
    if (threadIdx.x == 0) *loss = (R)total;
}

/* weight = dy / divisor; one block */
template <class R>
EBB_KERNEL void __launch_bounds__(EBB__LOSS_THREADS)
ebb__loss_row_weight_f64(R *weight, const R *dy, ebb__cuda_loss l)
{
    double each = ebb__loss_weight_f64(l);
    if (threadIdx.x == 0) *weight = (R)((double)*dy * each);
}

/* dlogits (+)= (exp(logits - lse) - onehot(target)) * weight, 0 where ignored; dlogits may be logits. */
template <class T, int THREADS>
EBB_ROW_KERNEL
ebb__loss_grad_rows(T *dlogits, const T *logits, const ebb__real<T> *lses, const ebb__real<T> *weight_at,
                    ebb__cuda_loss l, bool accumulate)
{
    typedef ebb__real<T> R;
    R weight = *weight_at;
    EBB_EACH_ROW(THREADS, row, l.rows) {
        int64_t target = ebb__target(l, row);
        if (target == EBB_IGNORE && accumulate) continue;
        R lse = lses[l.first + row];
        EBB_EACH_TURN(T, THREADS, turn, l.classes) {
            R v[turn.N];
            ebb__take(turn, logits + row * l.classes, R(0), v);
#pragma unroll
            for (int k = 0; k < turn.N; k++) {
                R p = ebb__exp(v[k] - lse) * weight;
                v[k] = target == EBB_IGNORE ? R(0) : turn.at(k) == target ? p - weight : p;
            }
            ebb__give(turn, dlogits + row * l.classes, v, accumulate);
        }
    }
}

#endif
