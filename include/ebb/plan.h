/* ebb/plan.h: the fastest way to fit a training step into a budget of bytes, found before it runs.
 * A plan says which blocks run as segments, nested to any depth (in a file at most 128), which ops of which blocks are
 * made again from their inputs, and which blocks keep what they save in host memory.  Every plan here was confirmed by
 * a dry run: its peaks are exact. */
#ifndef EBB_PLAN_H
#define EBB_PLAN_H

#include <ebb/train.h>

EBB_BEGIN_DECLS

typedef struct ebb_plan ebb_plan; /* single owner */

typedef struct ebb_plan_info {
    size_t peak_reserved_bytes, peak_allocated_bytes;
    size_t peak_host_bytes;  /* reserved in host memory, by what is offloaded; beside the others */
    double overhead;         /* predicted step time over that of no checkpointing, minus 1 */
    double recompute_flops;  /* of one optimizer step */
    ebb_memory_stats memory; /* of the dry run */
} ebb_plan_info;

/* The fastest plan whose peak of reserved bytes (of allocated bytes where `allocated`) is at most
 * `budget_bytes`.  What the config's memory.checkpoint says is not looked at; memory.recompute holds in
 * every block.  Blocks are offloaded only where memory.offload is "auto".  It is within memory.limit and
 * memory.host_limit, too.  options: device, threads and steps matter; NULL is not allowed.
 * Owner: *out is the caller's; ebb_plan_free().  Errors: EBUDGET (nothing fits; the message names the
 * smallest budget for which a plan was found, and what dominates it), ENOMEM, and what a dry run gives. */
EBB_API EBB_NODISCARD ebb_status ebb_plan_make(ebb_plan **out, const ebb_config *config,
                                               const ebb_train_options *options, size_t budget_bytes, bool allocated);
/* Plans from the fastest to the smallest; each is slower and smaller than the one before.  *n of at most
 * `max`.  ebb_plan_make() with the peak of one gives that one, or a faster one; with less than the last one's,
 * EBUDGET.  memory.limit is not looked at.  Owner: each of plans[0, *n) is the caller's.  Errors: as above; EBUDGET
 * where memory.host_limit is below all plans. */
EBB_API EBB_NODISCARD ebb_status ebb_plan_frontier(ebb_plan *plans[], int max, int *n, const ebb_config *config,
                                                   const ebb_train_options *options, bool allocated);
EBB_API void ebb_plan_free(ebb_plan *plan); /* NULL is a no-op */

EBB_API ebb_plan_info ebb_plan_info_get(const ebb_plan *plan);
/* "3 segments, 2 deep, over 9 of 12 blocks; gelu, layernorm in 3, linear in 1; 2 offloaded"; free() it; NULL: no
 * memory. */
EBB_API char *ebb_plan_describe(const ebb_plan *plan);
/* The plan as JSON text, as in its file; free() it; NULL: no memory. */
EBB_API char *ebb_plan_print(const ebb_plan *plan);
/* The file that memory.checkpoint "plan:FILE" reads.  In it any of "segments", "recompute" and "offload" may be absent,
 * and segments nest at most 128 deep.  Errors: EIO, ENOMEM. */
EBB_API EBB_NODISCARD ebb_status ebb_plan_save(const ebb_plan *plan, const char *path);

/* What the config takes with its own memory.checkpoint, whatever it is, by the same dry run and the same model of
 * time; the overhead is over a step of `than` (may be the same config) without checkpointing.  options: as for
 * ebb_plan_make().  Errors: those of ebb_estimate(); EBUDGET, where it is a budget. */
EBB_API EBB_NODISCARD ebb_status ebb_plan_price(ebb_plan_info *out, const ebb_config *config, const ebb_config *than,
                                                const ebb_train_options *options);

/* What a batch of one more does not fit. */
typedef enum ebb_batch_stop {
    EBB_BATCH_FITS,
    EBB_BATCH_LIMIT,  /* the bytes asked for */
    EBB_BATCH_BUDGET, /* memory.checkpoint "budget:SIZE" */
    EBB_BATCH_MEMORY, /* memory.limit */
    EBB_BATCH_HOST,   /* memory.host_limit */
    EBB_BATCH_SHAPE,  /* a tensor's size */
    EBB_BATCH_DATA,   /* it would hold no more: the data has `batch` items */
    EBB_BATCH_LARGEST /* 2^28; no more is tried */
} ebb_batch_stop;
EBB_API const char *ebb_batch_stop_text(ebb_batch_stop stop);

/* The largest train.batch, of at most the data's items, whose peak of reserved bytes is at most `limit_bytes` and
 * which the config's own limits let run; 0: options->device's memory, where that is an accelerator, dry or not. */
typedef struct ebb_max_batch_result {
    int64_t batch; /* 0: not even one */
    size_t peak_reserved_bytes;
    size_t next_batch_peak_reserved_bytes; /* 0 where something else than the limit stopped it */
    ebb_batch_stop stopped_by;
} ebb_max_batch_result;
/* Errors: EBUDGET (a batch of 1 does not fit; `result` is filled), and what a dry run gives. */
EBB_API EBB_NODISCARD ebb_status ebb_max_batch(ebb_max_batch_result *result, const ebb_config *config,
                                               const ebb_train_options *options, size_t limit_bytes);

/* ---- how fast ops are on this machine ------------------------------------------------------ */
typedef struct ebb_calibration {
    char path[1024];    /* the file that was written or read; "" : the built-in figures */
    int threads, n_ops; /* ops that were measured */
    double gemm_gflops, bandwidth_gb_s;
    double copy_gb_s; /* to host memory and back, by what it adds to a step */
} ebb_calibration;
/* Trains a few steps of small models (of `config` where given): as they are, with op recipes, in segments and
 * offloaded, by turns.  Measures every op's calls in each, and what the step takes more, and writes the file that
 * planning reads: $EBB_CALIBRATION, else $XDG_CACHE_HOME/ebb/calibration.json, else ~/.cache/ebb/calibration.json.
 * Errors: EIO, ENOMEM, EINVAL (no path). */
EBB_API EBB_NODISCARD ebb_status ebb_calibrate(ebb_calibration *out, const ebb_config *config,
                                               const ebb_train_options *options);

EBB_END_DECLS
#endif
