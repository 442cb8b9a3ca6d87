/* train/run.h: what a run holds, and its parts. */
#ifndef EBB_TRAIN_RUN_H
#define EBB_TRAIN_RUN_H

#include <ebb/capture.h>

#include "alloc/pool.h"
#include "core/sha256.h"
#include "tensor/reading.h"
#include "train/config.h"

/* ---- means over unequal batches ----------------------------------------------------------- */

/* A mean of values, each of which stands for `weight` items. */
typedef struct ebb__mean {
    double sum, weight;
} ebb__mean;

static inline void ebb__mean_add(ebb__mean *mean, double value, double weight)
{
    mean->sum += value * weight;
    mean->weight += weight;
}
static inline double ebb__mean_get(const ebb__mean *mean)
{
    return mean->weight > 0 ? mean->sum / mean->weight : 0;
}

/* ---- accumulation groups ------------------------------------------------------------------ */

/* The micro-batches of one optimizer step.  A group never crosses the end of an epoch, so the
 * epoch's last group may be smaller. */
typedef struct ebb__group {
    int64_t first;        /* index of its first micro-batch, counted over all epochs */
    int64_t n;            /* micro-batches */
    int64_t items;        /* rows in all of them */
    int64_t items_before; /* rows in all groups before it, over all epochs */
    bool epoch_end;
} ebb__group;

ebb__group ebb__group_at(int64_t step, int64_t n_items, int64_t batch, int64_t accumulate);

/* ---- the run folder ----------------------------------------------------------------------- */

/* config.json, weights.safetensors, optimizer.safetensors, state.json, metrics.jsonl */
typedef struct ebb__run_folder ebb__run_folder;

enum { EBB__OFFSET_BYTES = 24, EBB__RUN_PATH_BYTES = 1024 };

/* What a resumed run must know beside weights and optimizer. */
typedef struct ebb__run_state {
    int64_t step;            /* optimizer steps done */
    int64_t loader_position; /* index of the next micro-batch */
    int64_t items;           /* trained on so far, over all epochs */
    char rng_offset
        [EBB__OFFSET_BYTES]; /* of the context's generator; decimal (JSON numbers lose 64 bits) */
    int64_t seed;            /* of the config; -1: not known */
    double loss_scale;       /* of the next step; 0: the loss was not scaled */
    int64_t loss_scale_good; /* good steps since it changed */
    int64_t skipped;         /* of `step`; the optimizer has not counted them */
} ebb__run_state;

typedef enum ebb__folder_use {
    EBB__FOLDER_NEW,    /* made where it is missing; one that holds a run is refused (ESTATE) */
    EBB__FOLDER_RESUME, /* must hold a save (EIO); the run goes on in it */
    EBB__FOLDER_READ    /* must hold a save, which stays as it is until the folder is closed */
} ebb__folder_use;

/* Locks the folder until it is closed: ESTATE where another run has it.  What a process that died
 * left unfinished is removed or finished, except by READ. */
EBB_NODISCARD ebb_status ebb__run_folder_open(ebb__run_folder **out, const char *path,
                                              ebb__folder_use use);
/* Before the first metrics: writes config.json with `steps`, and cuts off metrics of steps after
 * `first_step`. */
EBB_NODISCARD ebb_status ebb__run_folder_begin(ebb__run_folder *folder, const ebb_config *config,
                                               int64_t steps, int64_t first_step);
void ebb__run_folder_close(ebb__run_folder *folder); /* NULL is a no-op */
/* Path of one of the latest save's files; also while a save is under way or was broken off. */
EBB_NODISCARD ebb_status ebb__run_file(char out[EBB__RUN_PATH_BYTES], const char *run_dir,
                                       const char *name);
/* Appends one line of JSON; NaN becomes null. */
typedef struct ebb__metric {
    const char *key;
    double value;
} ebb__metric;
EBB_NODISCARD ebb_status ebb__run_folder_metrics(ebb__run_folder *folder,
                                                 const ebb__metric *metrics, int n);
/* The save becomes the folder's as a whole; on an error the one before stays. */
EBB_NODISCARD ebb_status ebb__run_folder_save(ebb__run_folder *folder, const ebb_model *model,
                                              const ebb_optim *optim, const ebb__run_state *state);
EBB_NODISCARD ebb_status ebb__run_state_load(ebb__run_state *out, const char *run_dir);

/* ---- gradients' hash ---------------------------------------------------------------------- */

typedef struct ebb__gradient_hash ebb__gradient_hash;
EBB_NODISCARD ebb_status ebb__gradient_hash_new(ebb__gradient_hash **out, const ebb_model *model);
void ebb__gradient_hash_free(ebb__gradient_hash *hash); /* NULL is a no-op */
/* Takes one parameter's gradient of this step, before it goes. */
EBB_NODISCARD ebb_status ebb__gradient_hash_one(ebb__gradient_hash *hash, const ebb_tensor *param);
/* Ends the step: gradients that were not taken are taken now. */
EBB_NODISCARD ebb_status ebb__gradient_hash_step(ebb__gradient_hash *hash);
void ebb__gradient_hash_hex(ebb__gradient_hash *hash, char out[65]); /* finishes */

/* ---- precision (precision.c) ---------------------------------------------------------------- */

struct ebb__run;
/* ebb_model_loss() in the config's precision. */
EBB_NODISCARD ebb_status ebb__run_loss(ebb_tensor **out, struct ebb__run *run, ebb_tensor *inputs,
                                       ebb_tensor *targets, double normalizer);
/* ebb_model_logits() likewise; logits are in the parameters' dtype. */
EBB_NODISCARD ebb_status ebb__run_logits(ebb_tensor **out, struct ebb__run *run, ebb_tensor *inputs);
/* ebb_backward() of the loss times the run's scale. */
EBB_NODISCARD ebb_status ebb__run_backward(struct ebb__run *run, ebb_tensor *loss);
/* Unscales the gradients; *skip: the step must not be made.  ESTATE where the scale gets too small to be of
 * use.  `step` is for its message. */
EBB_NODISCARD ebb_status ebb__run_unscale(struct ebb__run *run, int64_t step, bool *skip);

/* ---- the optimizer inside backward (fused.c) ------------------------------------------------ */

/* Once, before the first step. */
EBB_NODISCARD ebb_status ebb__fused_open(struct ebb__run *run);
/* Backward of a step's last micro-batch, and the step.  A failure midway cannot be undone: the run ends. */
EBB_NODISCARD ebb_status ebb__fused_backward(struct ebb__run *run, ebb_tensor *loss, double lr);
/* Parameters that the last micro-batch did not reach, but others did. */
EBB_NODISCARD ebb_status ebb__fused_finish(struct ebb__run *run);

/* ---- one step (step.c) ---------------------------------------------------------------------- */

/* Calls the observer, where there is one that wants to hear of `event`.  What it makes is not ours: our line is
 * no call site for it. */
#define EBB__TELL(run, event, ...)                                                                 \
    ((run)->options->observer && (run)->options->observer->event                                   \
         ? (ebb_call_site(NULL, 0),                                                                \
            (run)->options->observer->event((run)->options->observer->user, (run)->ctx,            \
                                            ##__VA_ARGS__))                                        \
         : EBB_OK)

/* What a step tells about itself. */
typedef struct ebb__step_report {
    double loss, lr, grad_norm, ms, loss_scale; /* loss_scale: that it ran with; 0: none */
    bool skipped;
} ebb__step_report;

EBB_NODISCARD ebb_status ebb__run_group(struct ebb__run *run, int64_t step, const ebb__group *group,
                                        ebb__step_report *report);
/* Forward and backward of the group's micro-batch number `index`; asks for its part of the group's loss.
 * The loss of a group is the sum over its targets divided by their number, so that it equals the loss of one large
 * batch whatever the micro-batches' sizes.  With one micro-batch cross-entropy counts for itself. */
EBB_NODISCARD ebb_status ebb__micro_step(struct ebb__run *run, const ebb__group *group, int64_t index,
                                         ebb_tensor *inputs, ebb_tensor *targets, double lr);
/* EUNSUPPORTED where a group of several micro-batches has fewer targets than its loss is divided by. */
EBB_NODISCARD ebb_status ebb__check_targets(const struct ebb__run *run, const ebb__group *group, int64_t n_targets);
/* Clips and updates, and lets the gradients go. */
EBB_NODISCARD ebb_status ebb__update_step(struct ebb__run *run, int64_t step, ebb__step_report *report);

/* ---- steps that are launched (captured.c) ----------------------------------------------------- */

typedef struct ebb__captured {
    ebb_graph *graph;                              /* NULL: not captured yet */
    struct { ebb_tensor *inputs, *targets; } *batches; /* of each micro-batch: what the graph reads */
    int n;                                         /* micro-batches */
    bool warm;                                     /* a step of its shape has run by calls */
    uint64_t rng_offset, rng_draws;                /* the generator's when it was captured; what a step takes */
    ebb__reading norm;                             /* of the gradients, squared */
} ebb__captured;

/* Errors: EUNSUPPORTED (the device has no graphs), EINVAL (what does not go together). */
EBB_NODISCARD ebb_status ebb__captured_open(struct ebb__run *run);
void ebb__captured_close(struct ebb__run *run);
/* Groups of the first one's shape are captured or launched, but for the first of them. */
bool ebb__captured_fits(const struct ebb__run *run, const ebb__group *group);
/* Captures where that is not done yet, and launches. */
EBB_NODISCARD ebb_status ebb__captured_step(struct ebb__run *run, int64_t step, const ebb__group *group,
                                            ebb__step_report *report);
/* Grows when a step will do other work than the one before: part of what a dry run compares. */
uint64_t ebb__captured_state(const struct ebb__run *run);

/* ---- what was done ------------------------------------------------------------------------ */

/* By the context's counters. */
typedef struct ebb__tally {
    double flops, recompute_flops, recomputed_ops, offloaded_bytes, fetched_bytes;
    double ns; /* by the run's meter; 0 without one */
} ebb__tally;

/* ---- dry runs cut short ------------------------------------------------------------------- */

/* Kinds of work in a run; one is settled when it ran from a state of the pool and left that state. */
typedef enum ebb__unit {
    EBB__UNIT_GROUP,
    EBB__UNIT_LAST_GROUP,
    EBB__UNIT_EVAL,
    EBB__N_UNITS
} ebb__unit;
typedef struct ebb__settled {
    bool known[EBB__N_UNITS];
    uint64_t at[EBB__N_UNITS];
} ebb__settled;

/* ---- the run ------------------------------------------------------------------------------ */

enum { EBB__STEP_MS_RING = 65536 };

typedef struct ebb__run {
    const ebb_config *config;
    ebb_config planned;       /* `config` with the plan that was made for its budget; config points here */
    ebb_plan *plan;           /* that plan; NULL: none was asked for */
    const ebb_train_options *options;
    ebb_context *ctx;
    ebb_model *model;
    ebb_dataset *data;
    ebb_dataset_info info;
    ebb_optim *optim;
    ebb_loss_scale loss_scale; /* of the next step; scale 0: none */
    int64_t skipped_steps, skipped_before; /* before: in the runs that this one goes on from */
    ebb_loader *train, *eval; /* eval NULL: the data has no evaluation split */
    ebb__run_folder *folder;  /* NULL: none */
    ebb__gradient_hash *hash; /* NULL: not asked for */
    ebb__reading losses;      /* of the step that runs */
    ebb__captured captured;   /* all zero without train.capture */
    double hash_ms;           /* of this step: for checking, so not part of its time */
    bool fusing;              /* in a fused backward */
    bool dry, cut_short;      /* cut_short: skip what would repeat (estimate) */
    ebb__settled settled;
    bool eval_only;           /* evaluation is all there is: options.stop ends it */
    int64_t first_step, steps;
    int64_t evaluated, saved; /* steps done when the last of each was made */
    ebb_schedule schedule;

    double *step_ms;                         /* [EBB__STEP_MS_RING]: the latest measured steps */
    int64_t n_step_ms;                       /* measured so far */
    const double *meter_ns;                  /* what a meter has counted; NULL: none */
    ebb__tally step_work;                     /* of the first step */
    ebb__tally left_out;                      /* of micro-batches that a cut-short run did not run */
    double loss_first, loss_last;
    bool has_loss;
    double eval_loss, eval_accuracy;
    bool has_eval, has_accuracy;
} ebb__run;

/* Context and model: what every command needs.  On errors too, ebb__run_close() must follow.
 * Planned: follows an offset plan where the config asks for one.  Recorded: keeps a trace of the pool
 * from its first request on. */
EBB_NODISCARD ebb_status ebb__run_open_planned(ebb__run *run, const ebb_config *config,
                                               const ebb_train_options *options, const char *device);
EBB_NODISCARD ebb_status ebb__run_open_recorded(ebb__run *run, const ebb_config *config,
                                                const ebb_train_options *options, const char *device);
EBB_NODISCARD ebb_status ebb__run_open(ebb__run *run, const ebb_config *config,
                                       const ebb_train_options *options, const char *device);
/* As ebb__run_open(), with a run folder's config and weights; ebb_config_free() must follow too. */
EBB_NODISCARD ebb_status ebb__run_open_trained(ebb__run *run, ebb_config **config, const char *run_dir,
                                               const ebb_train_options *options);
EBB_NODISCARD ebb_status ebb__run_open_data(ebb__run *run); /* dataset and evaluation loader */
EBB_NODISCARD ebb_status
ebb__run_open_training(ebb__run *run); /* optimizer, loader, resume, folder */
void ebb__run_close(ebb__run *run);

EBB_NODISCARD ebb_status ebb__train_steps(ebb__run *run); /* loop.c */
/* Opens data and training, and trains without the steps that would repeat: for dry runs. */
EBB_NODISCARD ebb_status ebb__train_cut_short(ebb__run *run);
/* Opens `run`, zeroed before, on the options' device, dry, and runs it so; whatever comes of it, it is the caller's to
 * close. */
EBB_NODISCARD ebb_status ebb__run_dry(ebb__run *run, ebb_train_result *result, const ebb_config *config,
                                      const ebb_train_options *options);
void ebb__run_result(ebb_train_result *out, const ebb__run *run);
/* One pass over the evaluation split into run->eval_*. */
EBB_NODISCARD ebb_status ebb__run_evaluate(ebb__run *run);
bool ebb__eval_due(const ebb__run *run, int64_t step);

uint64_t ebb__run_fingerprint(const ebb__run *run); /* of both pools */
/* estimate.c: the first step at or after `step` in which something is not settled; run->steps where
 * there is none. */
int64_t ebb__next_unsettled(const ebb__run *run, int64_t step);
/* A piece of work begins that a cut-short run may leave out: an offset plan follows it by itself (alloc/plan.h),
 * so that what is left out is followed as what was recorded. */
void ebb__mark_unit(ebb__run *run, const char *kind);
/* So far, what was left out included. */
ebb__tally ebb__run_tally(const ebb__run *run);
void ebb__tally_add(ebb__tally *to, double times, const ebb__tally *work);
/* How many micro-batches of the group are passed over behind number `index`, which has run and found the pool, and what
 * was done until then, as `before` and `work`: those that would do the same and change nothing.  Counts their work. */
int64_t ebb__leave_out(ebb__run *run, const ebb__group *group, int64_t index, uint64_t before, const ebb__tally *work);
/* Says that `unit` ran and found the pool as `before`: also before its mark, which moves an offset plan on. */
void ebb__note_unit(ebb__run *run, ebb__unit unit, uint64_t before);

/* Where training options are wrong: EINVAL.  NULL options are allowed: defaults. */
EBB_NODISCARD ebb_status ebb__check_options(const ebb_train_options *options);
double ebb__now_ms(void);
/* Bytes that this process can still get from the machine, its control group included; 0: not known.
 * The system hands out more than it has and kills later, so this is a run's limit where the config
 * sets none. */
size_t ebb__host_available_bytes(void);

#endif
