/* ebb/optim.h: optimizers, schedules, clipping.
 * State is keyed by parameter name; a tensor listed twice is one parameter. */
#ifndef EBB_OPTIM_H
#define EBB_OPTIM_H

#include <ebb/data.h>

EBB_BEGIN_DECLS

typedef enum ebb_optim_kind { EBB_SGD, EBB_ADAMW } ebb_optim_kind;
typedef enum ebb_decay_rule { EBB_DECAY_ALL, EBB_DECAY_MATRICES, EBB_DECAY_NONE } ebb_decay_rule;

typedef struct ebb_optim_options {
    size_t struct_bytes;
    ebb_optim_kind kind;
    double lr, weight_decay;     /* decay is decoupled (Loshchilov and Hutter, arXiv 1711.05101): w -= lr wd w */
    ebb_decay_rule decay;        /* matrices: parameters with ndim >= 2 */
    double beta1, beta2, eps;    /* adamw */
    double momentum; bool nesterov; /* sgd; Sutskever et al. 2013 in PyTorch's form */
} ebb_optim_options;

/* Reads the "optimizer" object of a config (its text); path starts messages.  Defaults: adamw,
 * lr 1e-3, betas [0.9, 0.999], eps 1e-8, weight_decay 0, decay "matrices", momentum 0.  Keys of the
 * other type are allowed and without effect, so that a config can vary the type. */
EBB_API EBB_NODISCARD ebb_status ebb_optim_options_parse(ebb_optim_options *out, const char *json,
                                                         const char *path);

typedef struct ebb_optim ebb_optim;
/* Allocates all state at once (category optimizer; zeros).  Params are retained; names are copied.
 * A tensor listed twice is updated once.  Params that need no gradient are skipped. */
EBB_API EBB_NODISCARD ebb_status ebb_optim_new(ebb_optim **out, ebb_context *ctx,
                                               const ebb_named_tensor *params, int n,
                                               const ebb_optim_options *options);
EBB_API void ebb_optim_free(ebb_optim *optim);
/* As ebb_drop() for a tensor: frees what the variable holds, and makes it NULL. */
EBB_API void ebb_optim_drop(ebb_optim **variable);
/* Declares a variable that is freed when the scope ends, early returns included. */
#define EBB_LOCAL_OPTIM(name) __attribute__((cleanup(ebb_optim_drop))) ebb_optim *name = NULL
/* One update from ebb_grad() of each parameter with learning rate lr (a parameter without gradient is left
 * alone).  Gradients are not dropped.  Errors: ESTATE while ebb_gradients_valid() is false.
 * Phase: optimizer; bumps versions; no pool allocation. */
EBB_API EBB_NODISCARD ebb_status ebb_optim_step(ebb_optim *optim, double lr);
/* The same in parts, for gradients that are consumed one by one, say from an on_accumulated hook:
 * begin counts the step and fixes its numbers, ebb_optim_step_one() updates one parameter (one that is
 * not listed, or has no gradient, is left alone).  Weights are those of ebb_optim_step(), bit for bit.
 * A backward that fails after its first update cannot be undone or done again: some parameters are of
 * the new step, the others of the old one.  Errors of begin: as above; of one: an accelerator's. */
EBB_API EBB_NODISCARD ebb_status ebb_optim_step_begin(ebb_optim *optim, double lr);
EBB_API EBB_NODISCARD ebb_status ebb_optim_step_one(ebb_optim *optim, ebb_tensor *param);
EBB_API void ebb_optim_drop_grads(ebb_optim *optim);
EBB_API int64_t ebb_optim_steps(const ebb_optim *optim);
/* Global L2 norm over all gradients (each parameter once); scales them down to max_norm where it is
 * larger (max_norm <= 0: only measures).  Sums in f64 in a fixed order.  PyTorch's form: factor
 * max_norm / (norm + 1e-6), at most 1.  On dry devices *norm = 0. */
EBB_API EBB_NODISCARD ebb_status ebb_optim_clip(ebb_optim *optim, double max_norm, double *norm);

/* ---- loss scaling: gradients that f16 would lose, made larger ---------------------------- */
/* The loss is multiplied by `scale` before backward, the gradients are divided by it afterwards
 * (Micikevicius et al., arXiv 1710.03740).  Where one is inf or NaN the step is skipped and the scale
 * becomes scale * backoff; after `interval` good steps in a row it becomes scale * growth. */
typedef struct ebb_loss_scale {
    double scale;            /* more than 0; 0: the loss is not scaled */
    double growth, backoff;  /* growth from 1, backoff in (0, 1]; both 1: the scale stays */
    int64_t interval;        /* from 1 */
    int64_t good;            /* good steps since the scale changed, below interval */
} ebb_loss_scale;
/* Reads "loss_scale" of a config (its text): a number is a scale that stays, null is none; defaults of an
 * object, {"init", "growth", "backoff", "interval"}: 65536, 2, 0.5, 2000.  path starts messages. */
EBB_API EBB_NODISCARD ebb_status ebb_loss_scale_parse(ebb_loss_scale *out, const char *json, const char *path);

typedef enum ebb_gradients_found {
    EBB_GRADIENTS_NONE,      /* no parameter has one: the loss reached none of them */
    EBB_GRADIENTS_FINITE,
    EBB_GRADIENTS_NOT_FINITE /* one element at least is inf or NaN */
} ebb_gradients_found;
/* Looks at all gradients and, where they are finite, divides them by `scale` (each once).  Before clipping,
 * which is by true norms.  On an accelerator it waits, as ebb_optim_clip() does.  On dry devices all are
 * finite.  Errors: EINVAL (scale), ESTATE as ebb_optim_step(). */
EBB_API EBB_NODISCARD ebb_status ebb_optim_unscale(ebb_optim *optim, double scale, ebb_gradients_found *found);
/* What the step that found this does to the scale; true: the caller makes the step, else it drops the
 * gradients only (also where there are none: then scale and count stay). */
EBB_API bool ebb_loss_scale_update(ebb_loss_scale *scale, ebb_gradients_found found);

/* State as named tensors ("NAME.momentum"; "NAME.m", "NAME.v"; step in "optimizer.step" i64) for a file,
 * matched by name on load; extra or missing names are EFORMAT.  An error while loading changes
 * nothing.  On a dry device save writes no file. */
EBB_API EBB_NODISCARD ebb_status ebb_optim_save(const ebb_optim *optim, const char *path);
EBB_API EBB_NODISCARD ebb_status ebb_optim_load(ebb_optim *optim, const char *path);

typedef struct ebb_schedule {
    enum { EBB_SCHED_CONSTANT, EBB_SCHED_LINEAR, EBB_SCHED_COSINE } kind;
    int64_t warmup;  /* steps of linear rise: lr * (step + 1) / warmup */
    int64_t steps;   /* total */
    double lr, min_lr;
} ebb_schedule;
EBB_API EBB_NODISCARD ebb_status ebb_schedule_parse(ebb_schedule *out, const char *json,
                                                    const char *path);
/* Learning rate of step 0, 1, ...; reaches min_lr at the last step and stays there.  constant
 * ignores min_lr; where only one step follows the warm-up, that step has lr. */
EBB_API double ebb_schedule_lr(const ebb_schedule *schedule, int64_t step);

EBB_END_DECLS
#endif
