/* optim/optim.h: what the optimizers share. */
#ifndef EBB_OPTIM_OPTIM_H
#define EBB_OPTIM_OPTIM_H

#include <ebb/op.h>
#include <ebb/optim.h>
#include "core/threads.h"

enum { EBB__MAX_STATES = 2, EBB__UPDATE_GRAIN = 16 << 10, EBB__BLOCK_ELEMS = 512 };

/* One update of `n` elements; the pointers are of the kind's dtype.  s0 and s1 are NULL where the
 * optimizer has no such state. */
typedef struct ebb__step {
    double lr, keep;           /* keep: 1 - lr * weight_decay, or 1 */
    double beta1, beta2, eps;
    double correction1;        /* 1 - beta1^t */
    double root_correction2;   /* sqrt(1 - beta2^t) */
    double momentum;
    bool nesterov;
} ebb__step;
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
    int64_t steps;
    ebb_tensor *step_tensor;                        /* i64 []: `steps` as files hold it */
    double *partial_sums;                           /* one per thread, for clipping */
};

/* A gradient (or any tensor) that is read in flat order. */
typedef struct ebb__reading { ebb_arg arg; bool contiguous; size_t elem_bytes; } ebb__reading;

ebb__reading ebb__reading_of(const ebb_tensor *t);
/* At most how many of `left` elements one call of ebb__reading_block() gives. */
int64_t ebb__reading_step(const ebb__reading *r, int64_t left);
/* n elements from `first` on: in place, or gathered into buf (EBB__BLOCK_ELEMS doubles). */
const void *ebb__reading_block(const ebb__reading *r, int64_t first, int64_t n, void *buf);
/* Where flat element i lies. */
void *ebb__reading_at(const ebb__reading *r, int64_t i);

/* EINVAL unless all options are in range; `path` starts the message. */
EBB_NODISCARD ebb_status ebb__optim_options_check(const ebb_optim_options *options,
                                                  const char *path);
/* ESTATE while the context's gradients are not valid. */
EBB_NODISCARD ebb_status ebb__optim_gradients_ready(const ebb_optim *optim, const char *what);

#endif
