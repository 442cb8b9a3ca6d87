/* tensor/reading.h: a sum of values that are read when all of them have been asked for.
 * On an accelerator each goes to pinned memory beside the computation, so that a step waits for it once.
 * On the cpu they are read at once. */
#ifndef EBB_TENSOR_READING_H
#define EBB_TENSOR_READING_H

#include "tensor/tensor.h"

typedef struct ebb__reading {
    const ebb_context *ctx; /* not counted */
    unsigned char *cells;   /* EBB__READING_CELLS of 8 bytes, which the device writes; NULL: none are needed */
    ebb_dtype dtypes[64];
    int n;                  /* asked for and not added yet */
    double sum;
} ebb__reading;
enum { EBB__READING_CELLS = 64 };

/* Errors: ENOMEM. */
EBB_NODISCARD ebb_status ebb__reading_open(ebb__reading *reading, const ebb_context *ctx);
void ebb__reading_close(ebb__reading *reading); /* all zero: nothing */
/* Asks for the one element of t.  Errors: ESHAPE; those of ebb__device_copy().  While a graph is captured, only as
 * many as there are cells. */
EBB_NODISCARD ebb_status ebb__reading_add(ebb__reading *reading, const ebb_tensor *t);
/* The cell of one more value, an f64, for the caller to have written by work of the compute stream; *out is NULL on
 * a dry device.  Errors: EUNSUPPORTED where no cell is free. */
EBB_NODISCARD ebb_status ebb__reading_cell(ebb__reading *reading, double **out);
/* The first n cells are written again, by a launch of the graph that captured how. */
void ebb__reading_again(ebb__reading *reading, int n);
/* Waits; the sum in the order asked for, 0 on a dry device; begins a new one. */
EBB_NODISCARD ebb_status ebb__reading_take(ebb__reading *reading, double *sum);

#endif
