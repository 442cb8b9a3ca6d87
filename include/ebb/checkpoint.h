/* ebb/checkpoint.h: recompute instead of keeping.
 * A saved slot is a promise; its saver says how it is kept: hold the bytes, or hold a recipe.  A
 * segment is a recipe made of the calls that ran inside it.  The result is bit-identical to no
 * checkpointing. */
#ifndef EBB_CHECKPOINT_H
#define EBB_CHECKPOINT_H

#include <ebb/autograd.h>

EBB_BEGIN_DECLS

typedef enum ebb_saver { EBB_SAVER_KEEP, EBB_SAVER_RECOMPUTE } ebb_saver;

typedef struct ebb_checkpoint_options {
    size_t struct_bytes;
    const char *name;            /* shown in errors and reports; copied */
    /* The saver of what `op` makes inside the segment; NULL: recompute everything.  Asked once per
     * call, when forward runs. */
    ebb_saver (*policy)(void *user, const ebb_op *op, const ebb_call *call);
    void *user;                  /* not used after ebb_checkpoint() returns */
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

typedef struct ebb_recompute_stats {
    uint64_t segments;        /* made since the context began */
    uint64_t recomputed_ops;  /* calls replayed */
    double recompute_flops;
    uint64_t promised_bytes;  /* not kept, thanks to savers */
    uint64_t refused_recipes; /* op recipes not taken because their inputs are not kept */
} ebb_recompute_stats;
EBB_API void ebb_recompute_stats_get(const ebb_context *ctx, ebb_recompute_stats *stats);

/* FLOPs of all calls so far by their cost functions: forward, backward, recompute included. */
EBB_API double ebb_flops(const ebb_context *ctx);

EBB_END_DECLS
#endif
