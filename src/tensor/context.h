/* tensor/context.h: the context's insides. */
#ifndef EBB_TENSOR_CONTEXT_H
#define EBB_TENSOR_CONTEXT_H

#include <pthread.h>
#include <stdatomic.h>

#include <ebb/context.h>
#include <ebb/op.h>
#include "alloc/pool.h"
#include "alloc/trace.h"
#include "device/device.h"

struct ebb__segment;

/* Told of every kernel that runs, with its cost and, where `timed`, its nanoseconds. */
typedef struct ebb__meter {
    void (*kernel)(struct ebb__meter *self, const ebb_call *call, int pass, const ebb__owner *owner,
                   const ebb_cost *cost, double ns);
    bool timed;
} ebb__meter;

struct ebb_context {
    atomic_int refs;            /* the user's, and one per storage */
    ebb__device device;
    ebb__pool *pool;
    int checks;
    bool offset_plan;           /* the allocator options ask for one; made by the training loop */
    int capture;                /* the pool's number of the capture that runs, or ran last */
    ebb__block *lent;           /* what the accelerator's plugin was lent; NULL: nothing */
    struct ebb__accel_ops *accel_ops; /* ops/accel_ops.c: an accelerator's kernels by op; made at the first call */

    uint64_t seed, rng_offset;

    /* Who asks: the owner given to the next block. */
    const char *scope;
    ebb__phase phase;

    /* Everything alive, in order of creation, for reports and the collector. */
    pthread_mutex_t lock;
    ebb_storage *storages, *last_storage;
    ebb_tensor *tensors, *last_tensor;
    ebb_node *nodes, *last_node;
    size_t n_nodes, n_storages, storage_bytes, n_hooks;
    uint64_t next_tensor_id, next_node_seq, next_segment_number;

    /* autograd */
    uint64_t backward_number;   /* of the backward that runs, or ran last; 1.. */
    bool retain_graph;          /* of the backward that runs */
    bool walking;               /* a backward runs */
    bool gradients_invalid;
    double flops;
    ebb__meter *meter;          /* borrowed; NULL: none */

    /* checkpoint */
    struct ebb__segment *segment;  /* innermost active one */
    uint64_t segment_number;       /* its number, for owners; 0: none */
    struct ebb__segment *filled;   /* refilled during the backward that runs */
    const ebb_op **recompute_ops;
    int n_recompute_ops;
    uint64_t n_segments, recomputed_ops, promised_bytes, refused_recipes;
    double recompute_flops;
    struct ebb__op_saver *op_savers; /* per op, see checkpoint/policy.c */
    size_t n_op_savers, cap_op_savers;
    bool offloading;               /* a plan says so of the block that runs: outputs of ops that nothing was said of */
    struct ebb__pack *last_pack;   /* of those in use, in the order of packing */
    struct ebb__pack *leaving, *coming; /* whose copy is under way */
    struct ebb__host *host;        /* made when something is offloaded first */
    size_t host_limit_bytes;
    uint64_t offloaded_bytes, fetched_bytes, packed_bytes, packed_from_bytes;
    struct ebb__segment_record *records; /* what segments of each name did */
    double replay_ms;              /* of the replays inside the one that runs */
    bool in_recipe;                /* an op's recipe is replayed, not a segment */
    bool check_recompute;
};

ebb__pool *ebb__context_pool(const ebb_context *ctx);
ebb__threads *ebb__context_threads(const ebb_context *ctx); /* NULL on a dry device */
/* Sets the phase of the owner ledger; returns the one before. */
ebb__phase ebb__phase_set(ebb_context *ctx, ebb__phase phase);
/* The owner of a block that is asked for now, by `op` (NULL: none). */
ebb__owner ebb__owner_now(const ebb_context *ctx, ebb_category category, const char *op);
void ebb__context_release(ebb_context *ctx);

#endif
