/* device/accel.h: what an accelerator's plugin gives the library, and the library it: two tables.
 *
 * A plugin is a shared library, libebb_NAME.so, with one entry, ebb_accel_plugin().  It links nothing
 * of ebb: what it needs of the library comes in ebb__accel_host.  Everything that is work goes to a
 * stream and is asynchronous; stream 0 (NULL here) is the compute stream.  Kernels never allocate.
 *
 * Memory: the library's pool takes segments from `provider` and cuts them; the plugin only keeps what
 * it was lent by lend().  The pool gives a block again at once: what used it before and what uses it
 * next are both in the compute stream.  So free, decommit and remap of the provider, and free of
 * `pinned`, first wait for the device's work.  While a capture runs the library calls none of these, nor
 * anything that waits.
 *
 * Thread: kernels and the work below them come from one thread at a time, which may be another one each
 * time (and one that has not called before).  Providers, streams and tickets: from any, concurrently. */
#ifndef EBB_DEVICE_ACCEL_H
#define EBB_DEVICE_ACCEL_H

#include <ebb/op.h>
#include "alloc/pool.h"

#ifdef __cplusplus
extern "C" {
#endif

enum { EBB__ACCEL_ABI = 2 };

/* The oldest compute capability that CUDA's kernels are for, 10 * major + minor: older devices are refused, and so
 * are profiles of them. */
enum { EBB__CUDA_MIN_COMPUTE = 80 };

/* The library's side. */
typedef struct ebb__accel_host {
    int abi; /* EBB__ACCEL_ABI */
    /* Sets the thread's message and returns code. */
    ebb_status (*fail)(ebb_status code, const char *format, ...);
} ebb__accel_host;

typedef struct ebb__accel_stream ebb__accel_stream; /* NULL: the compute stream */
typedef struct ebb__accel_graph ebb__accel_graph;   /* a captured run of the compute stream */

typedef enum ebb__accel_copy_kind { EBB__TO_DEVICE, EBB__FROM_DEVICE, EBB__ON_DEVICE } ebb__accel_copy_kind;

typedef ebb_status ebb__accel_kernel(void *self, const ebb_call *call);

/* An op's kernels; forward NULL: unsupported (unless a view); backward NULL: has no gradient. */
typedef struct ebb__accel_op {
    const char *name; /* as ebb_op.name */
    ebb__accel_kernel *forward, *backward;
} ebb__accel_op;

/* What a device is, for `ebb info` and for dry runs of it. */
typedef struct ebb__accel_facts {
    char name[96];        /* "NVIDIA H100 80GB HBM3" */
    char libraries[160];  /* "CUDA 13.0, driver 13.0, cuBLAS 13.1.0, cuDNN 9.19.0" */
    int compute_major, compute_minor, processors;
    size_t capacity_bytes; /* all of its memory */
    size_t lent_bytes;     /* what lend() wants */
    size_t page_bytes;     /* granularity of expandable segments; 0: memory cannot be mapped page by page */
} ebb__accel_facts;

/* One parameter of an optimizer step; all contiguous, of one dtype (f32 or f64). */
typedef struct ebb__accel_param {
    void *w;
    const void *g;
    void *s0, *s1; /* NULL: no such state */
    int64_t n;
    ebb_dtype dtype;
    double keep;   /* 1 - lr * weight_decay, or 1 */
    bool decays;   /* keep is not 1 for good */
} ebb__accel_param;

typedef enum ebb__accel_optim { EBB__ACCEL_SGD, EBB__ACCEL_ADAMW } ebb__accel_optim;

/* The numbers of a step, as in optim/optim.h. */
typedef struct ebb__accel_step {
    ebb__accel_optim kind;
    double lr, beta1, beta2, eps, correction1, root_correction2, momentum;
    bool nesterov;
} ebb__accel_step;

/* What differs between launches of a graph whose numbers vary: its updates and random ops read it from the
 * device, in place of what they were called with. */
typedef struct ebb__accel_numbers {
    ebb__accel_step step;
    double keep;        /* of parameters that decay */
    uint64_t rng_ahead; /* added to each random op's offset, modulo 2^64 */
} ebb__accel_numbers;

typedef struct ebb__accel {
    int abi; /* EBB__ACCEL_ABI */
    const char *name; /* "cuda" */

    /* Devices there are; an error says why none can be used (no driver, too old). */
    ebb_status (*count)(const ebb__accel_host *host, int *n);
    ebb_status (*open)(void **self, const ebb__accel_host *host, int ordinal);
    void (*close)(void *self); /* waits for all work */
    void (*facts)(void *self, ebb__accel_facts *out);
    /* Memory from the pool: library workspaces, a word that says which kernel found bad data, partial
     * sums.  512-byte aligned, as many bytes as facts say; its contents are garbage.  NULL takes it back:
     * all work is done, and nothing but close() follows. */
    ebb_status (*lend)(void *self, void *memory);

    ebb__provider (*provider)(void *self); /* device memory; expandable where the device can */
    ebb__provider (*pinned)(void *self);   /* page-locked host memory, of exactly the size asked for */

    /* ---- streams.  A ticket stands for all work given to a stream so far. ---- */
    ebb_status (*stream_open)(ebb__accel_stream **out, void *self);
    void (*stream_close)(void *self, ebb__accel_stream *stream);
    ebb_status (*record)(void *self, ebb__accel_stream *stream, uint64_t *ticket);
    bool (*is_done)(void *self, ebb__accel_stream *stream, uint64_t ticket);
    ebb_status (*wait)(void *self, ebb__accel_stream *stream, uint64_t ticket); /* the calling thread waits */
    /* Later work of `stream` begins after `other` has reached the ticket. */
    ebb_status (*stream_wait)(void *self, ebb__accel_stream *stream, ebb__accel_stream *other, uint64_t ticket);
    ebb_status (*host_call)(void *self, ebb__accel_stream *stream, void (*work)(void *arg), void *arg);

    /* ---- bytes ----
     * Host memory of `pinned` is read or written when the stream comes to it.  Other host memory is read
     * before copy() returns (TO_DEVICE), and written by the time the stream has done it (FROM_DEVICE). */
    ebb_status (*copy)(void *self, ebb__accel_stream *stream, void *to, const void *from, size_t bytes,
                       ebb__accel_copy_kind kind);
    /* Waits for the compute stream; EINVAL where a kernel found bad data (a label out of range), naming
     * the op.  What a reader of values calls. */
    ebb_status (*synchronize)(void *self);

    /* ---- work that is not an op; on the compute stream; any strides, same shape and dtype ---- */
    ebb_status (*fill)(void *self, const ebb_arg *to, double value);
    ebb_status (*arg_copy)(void *self, const ebb_arg *to, const ebb_arg *from);
    ebb_status (*arg_add)(void *self, const ebb_arg *to, const ebb_arg *from); /* to += from */
    ebb_status (*update)(void *self, const ebb__accel_step *step, const ebb__accel_param *params, int n);
    /* Sum of squares over all args (contiguous, f32 or f64); waits; the same bits each time. */
    ebb_status (*sum_squares)(void *self, const ebb_arg *args, int n, double *sum);
    ebb_status (*scale)(void *self, const ebb_arg *args, int n, double factor); /* contiguous */
    /* The two without waiting: `scaled` by max_norm / (sqrt(sum) + 1e-6) unless that is >= 1, the sum of squares
     * being over `args`.  It also goes to *sum, of `pinned`, when the stream comes to it.  max_norm > 0. */
    ebb_status (*clip)(void *self, const ebb_arg *args, int n, const ebb_arg *scaled, int n_scaled, double max_norm,
                       double *sum);

    /* ---- ops ---- */
    const ebb__accel_op *ops;
    int n_ops;

    /* ---- graphs: all NULL where there are none ---- */
    ebb_status (*capture_begin)(void *self, bool varies); /* varies: launches bring numbers */
    ebb_status (*capture_end)(void *self, ebb__accel_graph **out); /* ends it in any case */
    ebb_status (*graph_launch)(void *self, ebb__accel_graph *graph, const ebb__accel_numbers *numbers); /* or NULL */
    void (*graph_free)(void *self, ebb__accel_graph *graph);
} ebb__accel;

/* The plugin's entry.  `abi` is the library's.  A plugin of another one gives its table nevertheless: the
 * library looks at its first field, which stays where it is in every ABI, and refuses it by both numbers.
 * NULL: it cannot. */
typedef const ebb__accel *ebb__accel_entry(int abi);
#define EBB__ACCEL_ENTRY "ebb_accel_plugin"

#ifdef __cplusplus
}
#endif
#endif
