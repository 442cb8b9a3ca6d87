/* support/stub_accel.h: an accelerator made of the cpu, for tests.
 * Its device memory faults where anybody but its own work touches it, and holds garbage when it is new.
 * Work is put off: it runs when something waits, or now and then, streams in an order drawn from a seed.
 * So what lacks an event, or reads too early, gets other bits.  Kernels are the cpu's: with as many threads
 * a run gives the same bits as on the cpu. */
#ifndef EBB_TESTS_STUB_ACCEL_H
#define EBB_TESTS_STUB_ACCEL_H

#include "support/support.h"

typedef struct stub_options {
    uint64_t seed;
    size_t capacity_bytes;   /* 0: 256 MiB */
    size_t lent_bytes;       /* 0: 1 MiB + 512 */
    bool no_driver;          /* count() says so */
    uint64_t fail_memory_at; /* which request for device or pinned memory fails; 0: none */
    const char *fail_kernel; /* the op whose kernels of fail_pass fail; NULL: none */
    int fail_pass;           /* EBB_FORWARD, EBB_BACKWARD */
    bool fail_update;
    int passes_before;       /* so many of them go well first */
    const char *kind;        /* its name; NULL: "cuda" */
    bool no_graphs, no_pages;
    const char *without;     /* an op that it has no kernels for; NULL: it has all */
    bool eager;              /* all work is done at once: for measuring */
} stub_options;

/* Makes the stub the accelerator of its kind in this process, with one device. */
void stub_install(stub_options options);

/* What it has done and holds. */
typedef struct stub_counts {
    size_t device_bytes, pinned_bytes; /* now */
    int open;                          /* devices */
    uint64_t kernels, copies, synchronizes, memory_requests, frees;
    uint64_t frees_in_capture;         /* and waits: a real capture would have been spoilt */
    int graphs;                        /* alive */
} stub_counts;
stub_counts stub_counts_get(void);
void stub_counts_reset(void); /* those that count calls */

/* with_context() on the stub: everything is given back, the device closed. */
#define with_stub(var) \
    for (stub_scope stub_##var = stub_begin(stub_kind()); stub_##var.live; stub_end(&stub_##var)) \
        for (ebb_context *var = stub_##var.ctx; var != NULL; var = NULL)
typedef struct stub_scope {
    ebb_context *ctx;
    int64_t live_blocks;
    size_t allocated_bytes; /* lent */
    bool live;
} stub_scope;
const char *stub_kind(void);
stub_scope stub_begin(const char *device);
void stub_end(stub_scope *scope);

#endif
