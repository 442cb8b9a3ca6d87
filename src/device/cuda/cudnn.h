/* device/cuda/cudnn.h: attention through cuDNN's graph API, where the library is there and has a plan.
 *
 * The attention op asks here first, and runs its own kernels where the answer is "not taken".  What is
 * taken: f16 and bf16; head_dim a multiple of 8 up to 128; at least one row, key, head and batch; causal
 * only with t_q = t_k; no mask.  Backward besides: all of dq,
 * dk and dv wanted, none accumulated, none over dout; and only where EBB_CUDA_ATTENTION=fast, since
 * cuDNN adds up dq by atomics, whose order differs from run to run.  EBB_CUDA_ATTENTION=own: never.
 *
 * Plans are built once per shape; a shape without a plan is remembered too. */
#ifndef EBB_DEVICE_CUDA_CUDNN_H
#define EBB_DEVICE_CUDA_CUDNN_H

#include "device/cuda/cuda.h"

#ifdef __cplusplus
extern "C" {
#endif

/* Rows of heads: element (b, t, head, d) lies at data + (b * rows + t) * row_stride + head * head_dim + d. */
typedef struct ebb__cuda_heads {
    void *data;         /* 16-byte aligned, or the call is not taken */
    int64_t row_stride; /* elements; a multiple of 8, or the call is not taken */
} ebb__cuda_heads;

typedef struct ebb__cuda_attention_call {
    ebb_dtype dtype;                              /* of all heads */
    int64_t batch, t_q, t_k, heads, kv_heads, head_dim;
    double scale;                                 /* already 1 / sqrt(head_dim) where attrs say 0 */
    bool causal;                                  /* row i sees columns j <= i + (t_k - t_q) */
    ebb__cuda_heads q, k, v, out;
    float *lse;                                   /* f32 [batch, heads, t_q]: natural log of a row's sum of
                                                     exponentials; forward: NULL where nobody reads it */
    ebb__cuda_heads dout, dq, dk, dv;             /* backward */
    bool accumulate;                              /* backward: any of dq, dk, dv is to be added to */
    void *workspace;                              /* the op's, 64-byte aligned */
    size_t workspace_bytes;
} ebb__cuda_attention_call;

/* What backward needs of the op's workspace where EBB_CUDA_ATTENTION=fast: row sums f32 [B, H, Tq], dq sums f32
 * [B, H, Tq, D], and what plans themselves take (as much again as dq sums on compute capability 8.x; dk and dv of
 * all heads where heads share them).  A call with less is not taken.  Forward needs none. */
size_t ebb__cuda_attention_workspace(const ebb__cuda_attention_call *call);

/* *taken false: nothing was launched, run your own kernels.  cuda->attention NULL: never taken. */
ebb_status ebb__cuda_attention_forward(ebb__cuda *cuda, const ebb__cuda_attention_call *call, bool *taken);
ebb_status ebb__cuda_attention_backward(ebb__cuda *cuda, const ebb__cuda_attention_call *call, bool *taken);

/* Loads libcudnn.so.9; *out NULL (and EBB_OK) where it is absent, too old, or EBB_CUDA_ATTENTION=own. */
ebb_status ebb__cuda_attention_open(ebb__cuda *cuda, ebb__cuda_attention **out);
void ebb__cuda_attention_close(ebb__cuda_attention *attention); /* NULL is a no-op */
int ebb__cuda_attention_version(const ebb__cuda_attention *attention); /* 91900; 0: none */

#ifdef __cplusplus
}
#endif
#endif
