/* train/rates.h: how long an op takes: its cost function's figures over a roofline, times a factor per op
 * and pass that a calibration measured. */
#ifndef EBB_TRAIN_RATES_H
#define EBB_TRAIN_RATES_H

#include "core/json.h"
#include "tensor/context.h"
#include <ebb/plan.h>

enum { EBB__RATES_OPS = 128 };

typedef struct ebb__rates {
    double factor[EBB__RATES_OPS][2]; /* by the op's place in the table and the pass */
    double bytes_per_ns;
    ebb_calibration info;
} ebb__rates;

/* From the calibration file, else the built-in figures.  Errors: EFORMAT, EINVAL (a file that is not
 * right). */
EBB_NODISCARD ebb_status ebb__rates_load(ebb__rates *out);
/* The file's path; false: the environment gives none. */
bool ebb__rates_path(char *path, size_t bytes);

/* Place in the op table; -1: a user's op. */
int ebb__op_index(const ebb_op *op);
/* Nanoseconds on the roofline of one kernel call, without its factor.  Costs of a backward are for all
 * gradients; a call for some of them takes its share. */
double ebb__roofline_ns(const ebb_call *call, int pass, const ebb_cost *cost);
double ebb__rates_ns(const ebb__rates *rates, const ebb_call *call, int pass, const ebb_cost *cost);

#endif
