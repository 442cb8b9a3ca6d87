/* cuda/cuda_case.h: a case of an op on the CPU and on the emulated CUDA device, compared.
 *
 * Every way in which the engine may call a kernel is a *pass*: forward, forward without auxiliary outputs, over
 * its input; backward of each input (joint ops: of each subset), written or added, over dout or over an input.
 * Kernels meet what the contract promises and no more: NULL for what `needs` does not name, NaN in what they
 * must write, buffers and workspace of exactly the size that was asked for. */
#ifndef EBB_TESTS_CUDA_CASE_H
#define EBB_TESTS_CUDA_CASE_H

#include "cuda/emulated_device.h"
#include "ops/case_call.h"

/* The row of ops.def that goes with op; NULL: none. */
const ebb__accel_op *cuda_row(const ebb_op *op);

typedef struct cuda_case_run {
    ebb_context *ctx; /* the CPU device's, for the reference */
    ebb__cuda *cuda;
    int seeds;        /* how many random orders of threads */
    double first_dout; /* not 0: dout[0]'s first element is that; a NaN must spread as far as the CPU's */
    int n_passes;     /* counted */
} cuda_case_run;

/* Runs all passes in each order of threads: in identity order near to the CPU's results, in the others the same
 * bits; under a sanitizer in identity order alone.  The test ends where they are not.  False: infer() refuses the
 * case in this dtype. */
bool cuda_case_check(cuda_case_run *run, const ebb_op *op, const ebb_op_case *c, ebb_dtype dtype);

#endif
