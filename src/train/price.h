/* train/price.h: what a step of a config takes by the model of time that plans are chosen by. */
#ifndef EBB_TRAIN_PRICE_H
#define EBB_TRAIN_PRICE_H

#include "train/rates.h"
#include "train/run.h"

/* A dry run of the whole training on `device` ("dry:cpu"), cut short where it repeats: its peaks, and the
 * modelled nanoseconds of one optimizer step. */
EBB_NODISCARD ebb_status ebb__price(ebb_train_result *result, double *step_ns, const ebb_config *config,
                                    const ebb_train_options *options, const char *device, const ebb__rates *rates);

#endif
