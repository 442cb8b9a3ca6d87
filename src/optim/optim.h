/* optim/optim.h: what the optimizers share. */
#ifndef EBB_OPTIM_OPTIM_H
#define EBB_OPTIM_OPTIM_H

#include <ebb/op.h>
#include <ebb/optim.h>
#include "core/json.h"
#include "core/threads.h"
#include "device/accel.h"

enum { EBB__MAX_STATES = 2, EBB__UPDATE_GRAIN = 16 << 10 };

/* Numbers of one step, for one parameter. */
typedef struct ebb__step {
    double lr, keep;           /* keep: 1 - lr * weight_decay, or 1 */
    double beta1, beta2, eps;
    double correction1;        /* 1 - beta1^t */
    double root_correction2;   /* sqrt(1 - beta2^t) */
    double momentum;
    bool nesterov;
} ebb__step;

/* One update of `n` elements; the pointers are of the kind's dtype.  s0 and s1 are NULL where the
 * optimizer has no such state. */
typedef void ebb__update_fn(const ebb__step *step, void *w, const void *g, void *s0, void *s1,
                            int64_t n);

typedef struct ebb__optim_kind {
    const char *name;
    const char *states[EBB__MAX_STATES];            /* suffixes of the names in a file: "m", "v" */
    int (*n_states)(const ebb_optim_options *options);
    ebb__update_fn *update_f32, *update_f64;
} ebb__optim_kind;

extern const ebb__optim_kind ebb__optim_sgd, ebb__optim_adamw;

typedef struct ebb__param {
    char *name;
    ebb_tensor *tensor;                             /* counted */
    bool decays;
    ebb_tensor *states[EBB__MAX_STATES];            /* like tensor; category optimizer */
} ebb__param;

struct ebb_optim {
    ebb_context *ctx;
    const ebb__optim_kind *kind;
    ebb_optim_options options;
    int n_states;
    int n;
    ebb__param *params;
    int cursor;                                     /* the parameter found last */
    int64_t steps;
    ebb__step step;                                 /* numbers of the step begun last, but for `keep` */
    ebb_tensor *step_tensor;                        /* i64 []: `steps` as files hold it */
    double *partial_sums;                           /* one per thread, for clipping */
    struct ebb__optim_lists *lists;                 /* accel.c: for the plugin; NULL: the cpu, or dry */
};

/* As ebb_optim_clip() on an accelerator, but nothing waits: the norm's square is in *sum, pinned memory, when the
 * device has done it.  `sum` is not read where the context is dry. */
EBB_NODISCARD ebb_status ebb__optim_clip_later(ebb_optim *optim, double max_norm, double *sum);

/* 1 - lr * weight_decay, or 1: what the step leaves of the parameter's weights. */
double ebb__optim_keep(const ebb_optim *optim, const ebb__param *param);

/* ---- clip.c: of one contiguous gradient in host memory ---- */
/* Adds to *sum; partial_sums: one per thread. */
void ebb__host_sum_squares(double *sum, ebb__threads *threads, const ebb_arg *grad, double *partial_sums);
void ebb__host_scale(ebb__threads *threads, const ebb_arg *grad, double factor);
/* ---- clip.c: of all gradients, wherever they are ---- */
EBB_NODISCARD ebb_status ebb__optim_sum_squares(const ebb_optim *optim, double *sum); /* 0 on a dry device */
EBB_NODISCARD ebb_status ebb__optim_scale_gradients(const ebb_optim *optim, double factor);

/* ---- accel.c: the same work by an accelerator's plugin ---- */
/* Makes the lists.  Errors: ENOMEM. */
EBB_NODISCARD ebb_status ebb__optim_accel_open(ebb_optim *optim);
void ebb__optim_accel_close(ebb_optim *optim);
/* Parameters without a gradient are left alone. */
EBB_NODISCARD ebb_status ebb__optim_accel_update(const ebb_optim *optim, const ebb__param *params, int n);
EBB_NODISCARD ebb_status ebb__optim_accel_sum_squares(const ebb_optim *optim, double *sum);
EBB_NODISCARD ebb_status ebb__optim_accel_scale(const ebb_optim *optim, double factor);
/* Both in one, without waiting; `sum`, pinned, gets the sum of squares. */
EBB_NODISCARD ebb_status ebb__optim_accel_clip(const ebb_optim *optim, double max_norm, double *sum);
/* Of the step that was begun last, for the launch of a graph that has it. */
void ebb__optim_accel_numbers(const ebb_optim *optim, ebb__accel_numbers *out);
/* clip.c: two parameters may hold one gradient; it is scaled with the first of them. */
bool ebb__optim_is_scaled_before(const ebb_optim *optim, int index);

/* The tables of keys of the config objects, for their readers and the test of the JSON Schema. */
extern const ebb__field ebb__optim_fields[], ebb__schedule_fields[], ebb__loss_scale_fields[];
extern const int ebb__n_optim_fields, ebb__n_schedule_fields, ebb__n_loss_scale_fields;

/* EINVAL unless all options are in range; `path` starts the message. */
EBB_NODISCARD ebb_status ebb__optim_options_check(const ebb_optim_options *options,
                                                  const char *path);
/* ESTATE while the context's gradients are not valid. */
EBB_NODISCARD ebb_status ebb__optim_gradients_ready(const ebb_optim *optim, const char *what);

#endif
