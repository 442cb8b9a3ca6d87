/* ops/attention.h: what attention and attention_packed share: one set of kernels on strided heads. */
#ifndef EBB_OPS_ATTENTION_H
#define EBB_OPS_ATTENTION_H

#include "ops/attrs.h"
#include "ops/kernels.h"

/* Rows of heads: element (b, t, head, d) lies at data + (b * rows + t) * row_stride + head * head_dim + d. */
typedef struct ebb__heads {
    void *data;
    int64_t row_stride;
} ebb__heads;

typedef struct ebb__attention {
    const ebb_call *call;
    ebb_dtype dtype;                       /* F32 or F64 */
    int64_t batch, t_q, t_k, heads, kv_heads, head_dim;
    double scale;
    bool causal;                           /* row i sees columns j <= i + (t_k - t_q) */
    ebb__heads q, k, v, out;
    const unsigned char *mask;             /* u8, 1: may look; NULL: none */
    int64_t mask_batch, mask_row;          /* strides of the mask; mask_row 0: one row for all */
    void *lse;                             /* [batch, heads, t_q]: log-sum-exp of a row's scaled scores;
                                              +inf: the row saw nothing; NULL: not wanted */
    ebb__heads dout, dq, dk, dv;           /* backward; data NULL: not wanted */
    bool accumulate_q, accumulate_k, accumulate_v;
} ebb__attention;

size_t ebb__attention_workspace(const ebb__attention *a, int pass, int threads);
void ebb__attention_forward(const ebb__attention *a);
/* dq may lie over dout. */
void ebb__attention_backward(const ebb__attention *a);

#endif
