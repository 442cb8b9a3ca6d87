/* device/device.h: what a device must offer.  cpu and dry:cpu are built in. */
#ifndef EBB_DEVICE_DEVICE_H
#define EBB_DEVICE_DEVICE_H

#include <ebb/context.h>
#include "alloc/pool.h"
#include "core/threads.h"
#include "device/stream.h"

typedef struct ebb__gemm {
    /* C[b] = alpha * op(A[b]) op(B[b]) + beta * C[b], row-major, for b in [0, batch).
     * op(A): [m, k], op(B): [k, n], C: [m, n]; ld* are row strides in elements of the stored
     * matrices; stride_* the distance between batches (0: the same matrix for all; where that is C,
     * beta * C plus the sum of all products).  beta = 0 never reads C. */
    bool trans_a, trans_b;
    int64_t m, n, k, batch;
    double alpha, beta;
    const void *a, *b;
    void *c;
    int64_t lda, ldb, ldc, stride_a, stride_b, stride_c;
    ebb_dtype dtype; /* F32 or F64 */
    const void *bias; /* [n] added to every row, or NULL (with beta = 0 only) */
} ebb__gemm;

typedef struct ebb__device {
    const char *name;      /* "cpu" */
    bool dry;              /* kernels do nothing, addresses are made up */
    ebb__threads *threads; /* NULL when dry */
    int n_threads;         /* what a real run would use, also when dry */
    ebb__provider provider;
    ebb__streams *streams;
} ebb__device;

EBB_NODISCARD ebb_status ebb__device_open(ebb__device *out, const char *name, int threads);
void ebb__device_close(ebb__device *device);

/* Products on the device's own threads over single-threaded BLAS.  How the work is divided depends
 * only on the shape and the thread count. */
void ebb__gemm_run(ebb__threads *threads, const ebb__gemm *gemm);
/* One product on the calling thread (inside kernels that divide their own work). */
void ebb__gemm_serial(const ebb__gemm *gemm);

/* Library facts for `ebb info`: "OpenBLAS 0.3.21 (Cooperlake)". */
const char *ebb__blas_name(void);

#endif
