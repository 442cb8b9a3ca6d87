/* cuda_fake.h: a CUDA runtime, cuBLASLt and cuDNN that run on the host, for tests: linked in their place, under
 * NVIDIA's own prototypes.  What a test tells it; C and C++.
 *
 * Device memory is host memory that starts as NaN.  Kernels come from the emulator (cuda_emu).  Misuse (a
 * copy in the wrong direction or out of range, a foreign or double free, a wait that nobody ends) is printed
 * and aborts.  A use of unmapped memory, or with `protect` a host's access to device memory, is SIGSEGV.
 * Memory freed while work is queued turns into NaN at once; work that writes there, or copies from there, aborts.
 * Each thread begins on device 0; launches elsewhere than on its device are refused, copies of others' memory abort.
 *
 * Streams run at once (eager) or deferred: work lies in queues, and which stream goes on is drawn from the
 * seed.  A missing wait is then a wrong result for some seed, where eager runs hide it.
 *
 * The environment sets what a process starts with:
 *   FAKE_CUDA_MIB         memory of the device, default 1024
 *   FAKE_CUDA_STREAMS     eager (default) or deferred; FAKE_CUDA_SEED
 *   FAKE_CUDA_FAIL_NTH    the n-th call that can fail does, once
 *   FAKE_CUDA_FAIL_RATE   each such call fails with this probability
 *   FAKE_CUDA_PROTECT=1   device memory cannot be touched by the host
 *   FAKE_CUDA_DEVICES     default 1, at most 4; FAKE_CUDA_COMPUTE default 80
 *   FAKE_CUDA_DRIVER      version of the driver, default that of the headers; 0: there is none
 *   FAKE_CUDA_CUDNN=0     there is no cuDNN; FAKE_CUDA_VMM=0: no expandable segments
 *   FAKE_CUDA_REPORT=FILE counts, as one JSON object, written whenever something was freed or closed */
#ifndef EBB_TESTS_CUDA_FAKE_H
#define EBB_TESTS_CUDA_FAKE_H

#include <stdbool.h>
#include <stddef.h>

#ifdef __cplusplus
extern "C" {
#endif

/* What cuDNN's one engine is like. */
typedef enum fake_engine {
    FAKE_ENGINE_GOOD,
    FAKE_ENGINE_GREEDY,   /* its plans want more memory than there is */
    FAKE_ENGINE_UNORDERED /* notes that its sums have no fixed order */
} fake_engine;

typedef struct fake_options {
    size_t capacity_bytes;
    bool deferred, protect, cudnn, vmm;
    unsigned seed;
    long fail_nth;    /* counted from the last fake_set_options(); 0: none */
    bool refuse_launches; /* a launch that fails is refused; else its kernel crashes, which later calls tell */
    double fail_rate;
    fake_engine engine;
    int devices, compute, driver;
} fake_options;

/* What is there now, and what has been done since the process began. */
typedef struct fake_counts {
    size_t used_bytes, peak_bytes; /* of device memory */
    long blocks, pinned, streams, events, graphs, pages, reservations, blas_objects, cudnn_objects; /* alive */
    long calls;    /* that can fail, since the last fake_set_options() */
    long launches, products, graph_launches, cudnn_executions, done; /* done: entries of queues */
    bool failed;   /* the call that was to fail came */
    const char *failed_call; /* its name, "cudaMemcpyAsync"; "launch" of a kernel; NULL: none */
} fake_counts;

fake_options fake_get_options(void);
void fake_set_options(const fake_options *options); /* no work may be pending, no memory alive */
fake_counts fake_get_counts(void);
/* Things alive, all kinds together: 0 after everything was closed. */
long fake_alive(const fake_counts *counts);

#ifdef __cplusplus
}
#endif
#endif
