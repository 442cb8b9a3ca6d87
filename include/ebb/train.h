/* ebb/train.h: configs, the training loop and what is built on it.  Everything `ebb` (the command)
 * does goes through this header. */
#ifndef EBB_TRAIN_H
#define EBB_TRAIN_H

#include <ebb/memory.h>
#include <ebb/nn.h>
#include <ebb/optim.h>

EBB_BEGIN_DECLS

typedef struct ebb_config ebb_config; /* a checked config; single owner */
/* Loads `path`, applies sets ("train.batch=4"), checks every key.  A relative data path is looked up
 * from the working folder, then from the config's folder.  Errors: EIO, EFORMAT (line, column), EINVAL (JSON path). */
EBB_API EBB_NODISCARD ebb_status ebb_config_load(ebb_config **out, const char *path, const char *const sets[],
                                                 int n_sets);
/* The same from JSON text; relative data paths are looked up from the working folder. */
EBB_API EBB_NODISCARD ebb_status ebb_config_parse(ebb_config **out, const char *text, const char *const sets[],
                                                  int n_sets);
EBB_API EBB_NODISCARD ebb_status ebb_config_copy(ebb_config **out, const ebb_config *config, const char *const sets[],
                                                 int n_sets);
EBB_API void ebb_config_free(ebb_config *config);
/* As ebb_drop() for a tensor: frees what the variable holds, and makes it NULL. */
EBB_API void ebb_config_drop(ebb_config **variable);
/* Declares a variable that is freed when the scope ends, early returns included. */
#define EBB_LOCAL_CONFIG(name) __attribute__((cleanup(ebb_config_drop))) ebb_config *name = NULL
EBB_API size_t ebb_config_memory_limit(const ebb_config *config); /* memory.limit; 0: none is given */
EBB_API char *ebb_config_print(const ebb_config *config); /* JSON text, all defaults filled in; free() it */

typedef struct ebb_progress {
    const char *phase;         /* "train", "eval" */
    int64_t step, steps;       /* of the phase */
    double loss, lr, items_per_s, seconds_left; /* of a dry run: NAN, lr, 0, what is left */
    const char *item;          /* "tokens", "samples" */
    size_t allocated_bytes, peak_allocated_bytes;
} ebb_progress;

/* Who looks at a run while it goes.  Any may be NULL; what one returns that is not EBB_OK ends the run. */
typedef struct ebb_observer {
    void *user;
    ebb_status (*on_step_begin)(void *user, ebb_context *ctx, int64_t step); /* steps count from 1 */
    ebb_status (*on_backward)(void *user, ebb_context *ctx); /* a micro-batch's graph is complete, backward is next */
    ebb_status (*on_step_end)(void *user, ebb_context *ctx, int64_t step);   /* before an evaluation */
    ebb_status (*on_end)(void *user, ebb_context *ctx);      /* after the last step, the model still there */
} ebb_observer;

typedef struct ebb_train_options {
    size_t struct_bytes;
    const char *device;        /* as in ebb_context_options */
    int threads;               /* 0: all cores */
    int64_t steps;             /* > 0: overrides train.steps */
    const char *out_dir;       /* NULL: no run folder, or resume_dir */
    const char *resume_dir;    /* NULL; else a run folder to go on from: weights, optimizer, generator and
                                  data order continue, so the losses are those of one straight run */
    bool hash_gradients;       /* fill gradients_sha256 */
    bool check_recompute;      /* as in ebb_context_options */
    /* At the end, for each name of a segment: what it promised and did. */
    void (*on_segment)(void *user, const ebb_segment_report *report);
    void *segment_user;
    void (*on_progress)(void *user, const ebb_progress *progress);
    void *user;
    bool (*stop)(void *user);  /* NULL; true: no further step begins; ebb_evaluate() ends with ESTATE */
    const ebb_observer *observer; /* NULL: none */
    const char *const *sets;   /* of a run folder's config (evaluate, sample): applied as in ebb_config_load() */
    int n_sets;
    bool skip_eval;            /* no evaluation; its loader's buffers are there all the same */
} ebb_train_options;

typedef struct ebb_train_result {
    char device[64];
    int threads;
    int64_t steps, parameters;
    int64_t data_items;        /* that training draws from: windows of tokens, or samples */
    int64_t micro_batch_items; /* tokens or samples of a whole micro-batch */
    double loss_first, loss_last, eval_loss, eval_accuracy;
    bool has_eval, has_accuracy, tokens;
    double step_ms;            /* median; 0: a dry run, which computes nothing */
    double items_per_s;        /* the same */
    size_t outside_bytes;
    ebb_memory_stats memory;   /* peak over the run */
    ebb_memory_stats host_memory; /* of the host pool, where offloaded tensors are; never part of `memory` */
    bool rounds;               /* memory.compress does: other gradients than without it */
    double loss_scale;         /* after the last step; 0: the loss is not scaled */
    int64_t skipped_steps;     /* for gradients that were inf or NaN, of `steps` */
    uint64_t offloaded_bytes, fetched_bytes; /* copied to it and back in one optimizer step */
    double flops, recompute_flops; /* of one optimizer step */
    uint64_t recomputed_ops;   /* of one optimizer step */
    /* Over every step's gradients as the optimizer receives them (a skipped step's as they came), parameters sorted by
     * name; "" when not asked for. */
    char gradients_sha256[65];
    char run_dir[512];
} ebb_train_result;

/* Trains.  Run folder: config.json, weights.safetensors, optimizer.safetensors, metrics.jsonl. */
EBB_API EBB_NODISCARD ebb_status ebb_train(ebb_train_result *result, const ebb_config *config,
                                           const ebb_train_options *options);
/* The same loop on a dry device, cut short when the pool's state repeats. */
EBB_API EBB_NODISCARD ebb_status ebb_estimate(ebb_train_result *result, const ebb_config *config,
                                              const ebb_train_options *options);

/* One forward and backward: weights and batch from safetensors files, gradients to another. */
EBB_API EBB_NODISCARD ebb_status ebb_grads(double *loss, size_t *peak_allocated_bytes, const ebb_config *config,
                                           const ebb_train_options *options, const char *weights, const char *batch,
                                           const char *out);
/* Evaluates a run folder's weights on its evaluation data. */
EBB_API EBB_NODISCARD ebb_status ebb_evaluate(ebb_train_result *result, const char *run_dir,
                                              const ebb_train_options *options);

typedef struct ebb_sample_options {
    size_t struct_bytes;
    const char *device;        /* as above */
    int threads;
    const char *prompt;        /* prompt_bytes of it, from 1 */
    size_t prompt_bytes;
    int64_t tokens;            /* how many to draw */
    double temperature;        /* divides the logits; 0: always the likeliest */
    uint64_t seed;             /* of the draws */
} ebb_sample_options;
/* Draws the bytes that follow a prompt from a run folder's gpt, whose tokens are bytes; each from one
 * forward over the last `context` of them.  `out` has room for options->tokens bytes. */
EBB_API EBB_NODISCARD ebb_status ebb_sample(unsigned char *out, const char *run_dir, const ebb_sample_options *options);

/* ---- finite differences ------------------------------------------------------------------ */
typedef struct ebb_gradcheck_result {
    const char *op, *op_case;
    double worst;              /* largest relative error over the case's inputs */
    int worst_input;
    bool passed;
    char message[256];         /* why not */
} ebb_gradcheck_result;
/* Runs every case of `op` in f64 (central differences) and reports each; an op without a case that
 * checks a gradient is reported as failed, as is one whose `needs` names less or more than its
 * backward reads (where it lacks something, no gradient is computed).  device: NULL is the cpu.
 * gradient_scale: 1; a test uses 1 + 1e-4 to see it caught.
 * Returns EBB_OK when the check ran, whatever it found. */
EBB_API EBB_NODISCARD ebb_status ebb_gradcheck(const ebb_op *op, const char *device, double gradient_scale,
                                               void (*report)(void *user, const ebb_gradcheck_result *result),
                                               void *user);

EBB_END_DECLS
#endif
