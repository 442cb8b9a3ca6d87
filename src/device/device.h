/* device/device.h: what a device must offer.  cpu is built in; accelerators come from plugins (accel.h);
 * of each there is a dry form, which does everything but the work. */
#ifndef EBB_DEVICE_DEVICE_H
#define EBB_DEVICE_DEVICE_H

#include <ebb/context.h>
#include "alloc/pool.h"
#include "core/threads.h"
#include "device/accel.h"
#include "device/stream.h"

enum { EBB__DEVICE_NAME_BYTES = 512 }; /* of a name: "dry:cuda:FILE.json" */

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
    int64_t lda, ldb, ldc, stride_a, stride_b, stride_c; /* elements */
    ebb_dtype dtype; /* F32 or F64 */
    const void *bias; /* [n] added to every row, or NULL (with beta = 0 only) */
} ebb__gemm;

/* An accelerator that is open, or its dry form. */
typedef struct ebb__accelerator {
    char name[EBB__DEVICE_NAME_BYTES]; /* "cuda:0", "dry:cuda:h100-80gb" */
    const struct ebb__accel_kind *kind;
    const ebb__accel *table;           /* NULL: dry */
    void *self;                        /* of the table's functions */
    ebb__accel_facts facts;
} ebb__accelerator;

typedef struct ebb__device {
    const char *name;      /* "cpu" */
    bool dry;              /* kernels do nothing, addresses are made up */
    ebb__threads *threads; /* of the host; NULL when dry */
    int n_threads;         /* what a real run would use, also when dry */
    ebb__provider provider;
    ebb__streams *streams;
    bool capturing;        /* work becomes a graph; nothing may wait */
    ebb__accelerator *accel; /* kernels are an accelerator's, dry or not; NULL: the cpu's */
} ebb__device;

/* Names: cpu; NAME or NAME:ORDINAL of an accelerator; dry:cpu; dry:NAME[:WHICH], where WHICH is a profile
 * (device/profile.h), a profile's file or the ordinal of one of this machine.
 * Errors: EDEVICE (unknown; there is none, and why), EINVAL (a file that is no profile), ENOMEM. */
EBB_NODISCARD ebb_status ebb__device_open(ebb__device *out, const char *name, int threads);
void ebb__device_close(ebb__device *device);
/* Facts of an accelerator, or of a dry one, by its name.  Errors: as open. */
EBB_NODISCARD ebb_status ebb__device_facts(ebb__accel_facts *out, const char *name);
/* The dry form of the device of that name; a dry one is its own.  NULL: of the cpu. */
void ebb__device_dry_name(char out[EBB__DEVICE_NAME_BYTES], const char *name);

/* `st` of an accelerator's call.  Where the device failed, or has no memory for the call, what the call was for is
 * put before the message. */
EBB_NODISCARD ebb_status ebb__device_doing(const char *what, ebb_status st);

/* ---- bytes ---- */
/* Host code may read and write the device's memory.  Where it may not, bytes go through the calls below
 * and those of tensor/host_view.h. */
static inline bool ebb__device_is_host(const ebb__device *device) { return !device->dry && !device->accel; }
/* In order with the computation; EBB__FROM_DEVICE waits for it.  On a dry device nothing is done.  `what` it is for.
 * Errors: EDEVICE, naming `what`, and those of synchronize. */
EBB_NODISCARD ebb_status ebb__device_copy(const ebb__device *device, void *to, const void *from, size_t bytes,
                                          ebb__accel_copy_kind kind, const char *what);
/* ESTATE, naming `what`, while work is captured. */
EBB_NODISCARD ebb_status ebb__device_not_capturing(const ebb__device *device, const char *what);
/* Waits until all is computed.  Errors: what an accelerator's kernels and copies found since the last time. */
EBB_NODISCARD ebb_status ebb__device_synchronize(const ebb__device *device);

/* Products on the device's own threads over single-threaded BLAS.  How the work is divided depends
 * only on the shape and the thread count. */
void ebb__gemm_run(ebb__threads *threads, const ebb__gemm *gemm);
/* One product on the calling thread (inside kernels that divide their own work). */
void ebb__gemm_serial(const ebb__gemm *gemm);

/* Library facts for `ebb info`: "OpenBLAS 0.3.21 (Cooperlake)". */
const char *ebb__blas_name(void);

#endif
