/* train/rates.h: how long an op takes: its cost function's figures over a roofline, times a factor per op
 * and kind of call that a calibration measured. */
#ifndef EBB_TRAIN_RATES_H
#define EBB_TRAIN_RATES_H

#include "core/json.h"
#include "tensor/context.h"
#include <ebb/plan.h>

enum { EBB__RATES_OPS = 128 };

/* Kinds of calls.  A forward that is made again meets other caches than the first one, and changes what the
 * backward after it meets; the factors of the last two carry both. */
typedef enum ebb__rate {
    EBB__RATE_FORWARD,
    EBB__RATE_BACKWARD,
    EBB__RATE_RECIPE, /* one op again, from inputs that were kept */
    EBB__RATE_REPLAY, /* in a segment that is run again */
    EBB__N_RATES
} ebb__rate;

typedef struct ebb__rates {
    double factor[EBB__RATES_OPS][EBB__N_RATES]; /* by the op's place in the table */
    double copy_bytes_per_ns;   /* to host memory or back: what it adds to a step */
    double update_bytes_per_ns; /* of parameters, in the part of a step that is no kernel: the optimizer */
    ebb_calibration info;
} ebb__rates;

/* From the calibration file, else the built-in figures.  Errors: EFORMAT, EINVAL (a file that is not
 * right), EUNSUPPORTED (of another schema). */
EBB_NODISCARD ebb_status ebb__rates_load(ebb__rates *out);
enum { EBB__CALIBRATION_SCHEMA = 2 };
/* The file's path; false: the environment gives none. */
bool ebb__rates_path(char *path, size_t bytes);

/* Place in the op table; -1: a user's op. */
int ebb__op_index(const ebb_op *op);
/* What a kernel call that runs now is, by the phase of its context. */
ebb__rate ebb__rate_of(const ebb_call *call, int pass);
/* Whether bytes, not FLOPs, are what takes its forward's time on the roofline. */
bool ebb__cost_is_bytes(double flops, double bytes);
/* Nanoseconds on the roofline of one kernel call, without its factor.  Costs of a backward are for all
 * gradients; a call for some of them takes its share. */
double ebb__roofline_ns(const ebb_call *call, int pass, const ebb_cost *cost);
double ebb__rates_ns(const ebb__rates *rates, const ebb_call *call, ebb__rate rate, const ebb_cost *cost);

#endif
