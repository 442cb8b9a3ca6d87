/* ops/cross_entropy.h: rows of logits against targets, for the ops that end in a loss. */
#ifndef EBB_OPS_CROSS_ENTROPY_H
#define EBB_OPS_CROSS_ENTROPY_H

#include <ebb/op.h>

/* Rows [first, first + rows) of a call's targets, and their logits. */
typedef struct ebb__loss_rows {
    const ebb_call *call;   /* whose threads run, and whose op messages name */
    const ebb_arg *targets; /* all of them; EBB_IGNORE: the row does not count */
    int64_t first, rows, classes;
    ebb_dtype dtype;        /* F32 or F64 */
    const void *logits;     /* [rows, classes] */
    void *lse;              /* log-sum-exp of each of the call's rows; NULL: nobody will read it */
    /* forward */
    double *partial;        /* as many as there are threads */
    /* backward */
    double weight;          /* of a row: dy / divisor */
    void *dlogits;          /* [rows, classes]; may be logits */
    bool accumulate;
} ebb__loss_rows;

/* What both ops refuse: EDTYPE, ESHAPE, EINVAL.  x [..., anything] is the op's first input. */
EBB_NODISCARD ebb_status ebb__loss_check(const ebb_call *call, int targets, const char *layout,
                                         double normalizer);
/* EINVAL where a target is neither a class nor ignored. */
EBB_NODISCARD ebb_status ebb__loss_check_targets(const ebb_call *call, const ebb_arg *targets,
                                                 int64_t classes);
/* 1 / normalizer, or where that is 0, 1 / the number of targets that count; 0 where none does. */
double ebb__loss_weight(const ebb_arg *targets, double normalizer);

/* Sum over the rows of lse - logits[target]; sets lse. */
double ebb__loss_forward(const ebb__loss_rows *r);
/* dlogits = (softmax(logits) - onehot(target)) * weight, from lse. */
void ebb__loss_backward(const ebb__loss_rows *r);

#endif
