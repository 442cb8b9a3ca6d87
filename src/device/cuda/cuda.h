/* device/cuda/cuda.h: what the files of the CUDA plugin share.  Compiled by nvcc, by g++ (emulation), and
 * included from C.  Only accel.h, ebb's public headers, ops/attrs.h and CUDA's own are seen here: the
 * plugin links nothing of ebb. */
#ifndef EBB_DEVICE_CUDA_CUDA_H
#define EBB_DEVICE_CUDA_CUDA_H

#include <cuda_runtime_api.h>
#include "device/accel.h"

#ifdef __cplusplus
extern "C" {
#endif

enum {
    EBB__CUDA_GIVEN_AT = 64,                /* of the next: a launch's numbers; optim.cu has their type */
    EBB__CUDA_ERROR_BYTES = 256,            /* the word that kernels report bad data in, and those numbers */
    EBB__CUDA_PARTIALS = 1024,              /* f64 partial sums of one reduction */
    EBB__CUDA_REDUCE_BYTES = EBB__CUDA_PARTIALS * 8
    /* then the gemm workspace: facts.lent_bytes is the sum of the three */
};

typedef struct ebb__cuda_gemms ebb__cuda_gemms;         /* device/cuda/gemm.c: handle and chosen algorithms */
typedef struct ebb__cuda_attention ebb__cuda_attention; /* device/cuda/cudnn.h; NULL: no cuDNN, own kernels */

/* One open device.  The `self` of every function of the table. */
typedef struct ebb__cuda {
    const ebb__accel_host *host;
    int ordinal;
    cudaStream_t stream;        /* the compute stream */
    int processors;             /* multiprocessors, for grid sizes */
    int compute;                /* 80, 90 */
    unsigned *error;            /* lent; device memory: 0, or 1 + index in the op table << 8 | what */
    void *given;                /* lent: numbers of the graph that is launched; the first word: rng_ahead */
    bool varies;                /* what is captured reads them */
    double *partials;           /* lent; EBB__CUDA_PARTIALS */
    void *gemm_workspace;       /* lent */
    size_t gemm_workspace_bytes;
    ebb__cuda_gemms *gemms;
    ebb__cuda_attention *attention;
    const char *op;             /* whose kernels are launched now, for messages */
} ebb__cuda;

/* EDEVICE (ENOMEM where memory is what lacks) naming the CUDA call and the op that ran. */
ebb_status ebb__cuda_fail(const ebb__cuda *cuda, cudaError_t error, const char *what);
#define EBB__CUDA_TRY(cuda, call)                                                       \
    do {                                                                                \
        cudaError_t cuda_error_ = (call);                                               \
        if (cuda_error_ != cudaSuccess) return ebb__cuda_fail((cuda), cuda_error_, #call); \
    } while (0)
/* After each launch. */
#define EBB__CUDA_LAUNCHED(cuda)                                                                   \
    do {                                                                                           \
        cudaError_t cuda_error_ = cudaGetLastError();                                              \
        if (cuda_error_ != cudaSuccess) return ebb__cuda_fail((cuda), cuda_error_, "a launch");    \
    } while (0)

/* ---- products: cuBLASLt, one algorithm per (shape, dtype, epilogue) ---- */

/* C[b] = alpha * op(A[b]) op(B[b]) + beta * C[b] + bias; row-major, as ebb__gemm in device/device.h
 * (stride_* 0: the same matrix for all batches; c may not be so).  Sums in f32 (f64: in f64). */
typedef struct ebb__cuda_gemm {
    bool trans_a, trans_b;
    int64_t m, n, k, batch;
    double alpha, beta;
    const void *a, *b;
    void *c;
    int64_t lda, ldb, ldc, stride_a, stride_b, stride_c; /* elements */
    ebb_dtype dtype;   /* of a, b and c: F32, F64, F16, BF16 */
    const void *bias;  /* [n] of that dtype, or NULL (with beta = 0 only) */
} ebb__cuda_gemm;
ebb_status ebb__cuda_gemm_run(ebb__cuda *cuda, const ebb__cuda_gemm *gemm);

/* ---- work that is not an op: device/cuda/..., src/ops/cuda/bytes.cu, optim.cu ---- */
ebb_status ebb__cuda_fill(ebb__cuda *cuda, const ebb_arg *to, double value);
ebb_status ebb__cuda_arg_copy(ebb__cuda *cuda, const ebb_arg *to, const ebb_arg *from);
ebb_status ebb__cuda_arg_add(ebb__cuda *cuda, const ebb_arg *to, const ebb_arg *from);
ebb_status ebb__cuda_update(ebb__cuda *cuda, const ebb__accel_step *step, const ebb__accel_param *params, int n);
/* Leaves the sum in cuda->partials[0] on the device. */
ebb_status ebb__cuda_sum_squares(ebb__cuda *cuda, const ebb_arg *args, int n);
ebb_status ebb__cuda_scale(ebb__cuda *cuda, const ebb_arg *args, int n, double factor);
/* By what cuda->partials[0] says; max_norm > 0. */
ebb_status ebb__cuda_scale_to(ebb__cuda *cuda, const ebb_arg *args, int n, double max_norm);
/* Sets what launches after it read. */
ebb_status ebb__cuda_give(ebb__cuda *cuda, const ebb__accel_numbers *numbers);

/* ---- ops: one row of ops.def, one pair of functions in src/ops/cuda/ ----
 * EBB_CUDA_OP(id) declares ebb_cuda_<id>, defined with its file's kernels by
 *   const ebb__accel_op ebb_cuda_gelu = { "gelu", gelu_forward, gelu_backward };
 * (extern "C").  A row without a definition is a link error. */
#define EBB_OP(id) extern const ebb__accel_op ebb_cuda_##id;
#include "ops/ops.def"
#undef EBB_OP

#ifdef __cplusplus
}
#endif
#endif
