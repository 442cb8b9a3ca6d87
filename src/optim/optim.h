/* optim/optim.h: what the optimizers share. */
#ifndef EBB_OPTIM_OPTIM_H
#define EBB_OPTIM_OPTIM_H

#include <ebb/optim.h>
#include "core/threads.h"

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
    uint64_t name_hash;
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
    int64_t steps;
    ebb_tensor *step_tensor;                        /* i64 []: `steps` as files hold it */
    double *partial_sums;                           /* one per thread, for clipping */
};

/* EINVAL unless all options are in range; `path` starts the message. */
EBB_NODISCARD ebb_status ebb__optim_options_check(const ebb_optim_options *options,
                                                  const char *path);
/* ESTATE while the context's gradients are not valid. */
EBB_NODISCARD ebb_status ebb__optim_gradients_ready(const ebb_optim *optim, const char *what);

#endif
