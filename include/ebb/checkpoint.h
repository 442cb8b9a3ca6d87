/* ebb/checkpoint.h: how what backward needs is kept.
 * A saved slot is a promise; its saver says how it is kept: hold the bytes, hold a recipe, hold the
 * bytes elsewhere or in fewer bits.  A segment is a recipe made of the calls that ran inside it.  The
 * result is bit-identical to keeping everything, but for the savers that round (bf16, int8).
 * Policies are asked when forward runs; what they said then holds. */
#ifndef EBB_CHECKPOINT_H
#define EBB_CHECKPOINT_H

#include <ebb/autograd.h>
#include <ebb/memory.h>

EBB_BEGIN_DECLS

/* What is said of a call holds for the bytes of its outputs, whatever node saves them later; views
 * are kept as their base is.  Parameters and inputs are always kept as they are. */
typedef enum ebb_saver {
    EBB_SAVER_KEEP,
    EBB_SAVER_RECOMPUTE,
    EBB_SAVER_OFFLOAD, /* in host memory; copied beside the computation, and back before it is needed */
    /* The others are the cpu's: EUNSUPPORTED on accelerators. */
    EBB_SAVER_BF16,    /* f32, f64: rounded to bf16; relative error at most 2^-8; others are kept */
    EBB_SAVER_INT8,    /* f32, f64: 8 bits per value and a scale per block of 64; error at most 1/253 of
                          the block's largest magnitude; a block with a value that is not finite
                          becomes NaN; others are kept.  Both keep an op's row statistics (auxiliary
                          outputs) as they are */
    EBB_SAVER_CUSTOM,  /* the ebb_packer that is given with it */
    EBB_N_SAVERS
} ebb_saver;

/* A saver of the user's own.  Calls are made in program order, on the thread that computes; none but
 * packed_bytes() on a dry device.  `bytes` is a storage seen as one row of its dtype. */
typedef struct ebb_packer {
    const char *name;
    /* Bytes of the packed form, given by the context's pool; may be 0.  SIZE_MAX: this one is kept. */
    size_t (*packed_bytes)(void *user, const ebb_arg *bytes);
    /* False: it could not; the bytes are kept. */
    bool (*pack)(void *user, const ebb_arg *bytes, void *packed);
    /* Writes bytes->data.  Called once per backward that needs it, or more.  An error ends backward. */
    ebb_status (*unpack)(void *user, const ebb_arg *bytes, const void *packed);
    void (*drop)(void *user, void *packed); /* once for each pack() that returned true; NULL: nothing */
    void *user;
} ebb_packer;

typedef struct ebb_checkpoint_options {
    size_t struct_bytes;
    const char *name;            /* shown in errors and reports; copied */
    /* The saver of what `op` makes inside the segment; NULL: recompute everything, but for the ops
     * that ebb_op_saver() says to keep.  Asked once per call, when forward runs. */
    ebb_saver (*policy)(void *user, const ebb_op *op, const ebb_call *call);
    void *user;                  /* not used after ebb_checkpoint() returns */
    const ebb_packer *custom;    /* of EBB_SAVER_CUSTOM; must outlive the graph */
} ebb_checkpoint_options;

/* A function run as a segment: binds *out from x. */
typedef ebb_status ebb_segment_fn(void *user, ebb_tensor **out, ebb_tensor *x);

/* Runs fn(user, out, x) as a segment.  Segments nest.  Without recording (no_grad) it just runs. */
EBB_API EBB_NODISCARD ebb_status ebb_checkpoint(ebb_tensor **out, ebb_tensor *x, ebb_segment_fn *fn,
                                                void *user, const ebb_checkpoint_options *options);
/* The same in two calls, for segments with several inputs and outputs: whatever runs between them
 * on this thread belongs to the segment.  ebb_segment_end() must follow, on errors too; without
 * a begin it does nothing.  What calls inside a segment make may not be changed in place, then or
 * later: a recompute makes the old bytes.  Errors: EUNSUPPORTED (nested more than 4096 deep). */
EBB_API EBB_NODISCARD ebb_status ebb_segment_begin(ebb_context *ctx, const ebb_checkpoint_options *options);
EBB_API void ebb_segment_end(ebb_context *ctx);

/* Outputs of these ops (names from the op table) are recomputed from their inputs rather than
 * kept, wherever those inputs are kept anyway.  Replaces the earlier list; n 0 clears it.
 * Errors: EINVAL (no such op, names the nearest one). */
EBB_API EBB_NODISCARD ebb_status ebb_recompute_ops(ebb_context *ctx, const char *const names[], int n);
/* How the outputs of `op` are kept ("*": of all ops that nothing else was said of), outside segments and
 * where they leave one.  KEEP holds inside segments without a policy too.  packer: of CUSTOM, must
 * outlive the graph; else NULL.  What was said last of an op counts.
 * Errors: EINVAL (no such op; RECOMPUTE, which is ebb_recompute_ops()'s), ENOMEM. */
EBB_API EBB_NODISCARD ebb_status ebb_op_saver(ebb_context *ctx, const char *op, ebb_saver saver,
                                              const ebb_packer *packer);

typedef struct ebb_recompute_stats {
    uint64_t segments;        /* made since the context began */
    uint64_t recomputed_ops;  /* calls replayed */
    double recompute_flops;
    uint64_t promised_bytes;  /* not kept, thanks to recipes */
    uint64_t refused_recipes; /* op recipes not taken because their inputs are not kept */
    uint64_t offloaded_bytes, fetched_bytes;   /* copied to host memory, and back */
    uint64_t packed_from_bytes, packed_bytes;  /* given to the savers that pack, and their packed form */
} ebb_recompute_stats;
EBB_API void ebb_recompute_stats_get(const ebb_context *ctx, ebb_recompute_stats *stats);
/* Of the host pool that offloaded bytes are in; on the CPU it stands for a device's host memory. */
EBB_API void ebb_host_memory_stats_get(const ebb_context *ctx, ebb_memory_stats *stats);
EBB_API void ebb_host_memory_reset_peak(ebb_context *ctx);

/* ---- what segments promised and did ------------------------------------------------------- */

/* Of all segments of one name.  Bytes are of one run: of those that promised most, the latest that ended.  A
 * run ends when it is recomputed first, or when its graph goes. */
typedef struct ebb_segment_report {
    const char *name;       /* valid while the context is; "" for those without one */
    uint64_t runs;          /* ended so far */
    size_t promised_bytes;  /* of values that nodes save and that it makes again; each once.  What it keeps, views
                               of that and what a segment around it makes again are not among them */
    size_t freed_bytes;     /* of those, what was free before it was needed again */
    size_t input_bytes;     /* what it keeps, to recompute from; parameters and the batch aside, each storage once */
    uint64_t recomputed;    /* times that a call ran again, views aside */
    double recompute_ms;    /* all of them together; replays of other segments inside it not counted */
    const char *warning;    /* why it frees nothing; NULL: it frees something */
} ebb_segment_report;
/* In the order in which names were met. */
EBB_API void ebb_each_segment(const ebb_context *ctx, void (*emit)(void *user, const ebb_segment_report *report),
                              void *user);

/* FLOPs of all calls so far by their cost functions: forward, backward, recompute included. */
EBB_API double ebb_flops(const ebb_context *ctx);

EBB_END_DECLS
#endif
