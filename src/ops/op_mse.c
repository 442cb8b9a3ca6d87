/* op_mse.c: mean((a - b)^2), a and b of one shape; a scalar.  The mean of nothing is NaN.
 *   da = 2 (a - b) dy / n,  db = -da. */
#include <ebb/ops.h>
#include <math.h>
#include "ops/cuda/scratch.h"
#include "ops/kernels.h"
#include "ops/lanes.h"
#include "ops/rows.h"
#include "ops/table.h"

enum { A, B };
enum { GRAIN = 1 << 14 }; /* elements per range */

static ebb_status infer(ebb_call *call)
{
    const ebb_arg *a = &call->in[A], *b = &call->in[B];
    char text[2][96];
    ebb_status st = ebb__require_compute_dtype(call, A);
    if (st != EBB_OK) return st;
    bool same = a->ndim == b->ndim;
    for (int i = 0; i < a->ndim && same; i++) same = a->dims[i] == b->dims[i];
    if (!same) {
        return ebb_fail(EBB_ESHAPE, "mse: %s and %s; they must have one shape",
                        ebb_arg_describe(a, text[0], sizeof text[0]), ebb_arg_describe(b, text[1], sizeof text[1]));
    }
    return ebb_arg_set(&call->out[0], ebb__compute_dtype(a->dtype), 0, NULL);
}

static void cost(const ebb_call *call, ebb_cost *k)
{
    double n = (double)call->in[A].elems, size = (double)ebb_dtype_bytes(call->in[A].dtype);
    *k = (ebb_cost){ .fwd_flops = 3 * n, .bwd_flops = 4 * n, .fwd_bytes = 2 * n * size, .bwd_bytes = 4 * n * size };
}

/* One partial sum per range. */
static size_t workspace(const ebb_call *call, int pass, int threads)
{
    (void)call;
    return pass == EBB_FORWARD ? (size_t)threads * sizeof(double) : 0;
}

/* One partial sum per block. */
static size_t cuda_workspace(const ebb_call *call, int pass)
{
    return pass == EBB_FORWARD ? EBB__CUDA_MSE_PARTS * ebb__cuda_real_bytes(call->in[A].dtype) : 0;
}

#define REAL float
#define F(name) name##_f32
#include "ops/mse.inc"

#define REAL double
#define F(name) name##_f64
#include "ops/mse.inc"

static ebb_status forward(const ebb_call *call)
{
    const ebb_arg *a = &call->in[A];
    bool f64 = a->dtype == EBB_F64;
    ebb_parallel(call, a->elems, GRAIN, f64 ? sum_squares_f64 : sum_squares_f32, (void *)(uintptr_t)call);
    double total = 0;
    int ranges = ebb__threads_ranges(ebb__call_threads(call), a->elems, GRAIN);
    for (int r = 0; r < ranges; r++) total += ((const double *)call->workspace)[r];
    double mean = a->elems > 0 ? total / (double)a->elems : NAN;
    if (f64) *(double *)call->out[0].data = mean;
    else *(float *)call->out[0].data = (float)mean;
    return EBB_OK;
}

static ebb_status backward(const ebb_call *call)
{
    const ebb_arg *a = &call->in[A];
    ebb_parallel(call, a->elems, GRAIN, a->dtype == EBB_F64 ? grads_f64 : grads_f32, (void *)(uintptr_t)call);
    return EBB_OK;
}

static const ebb_op_case cases[] = {
    { .name = "matrices", .n_in = 2, .in = { { 2, { 3, 5 } }, { 2, { 3, 5 } } } },
    { .name = "longer than a vector", .n_in = 2, .in = { { 1, { 37 } }, { 1, { 37 } } } },
    { .name = "scalars", .n_in = 2, .in = { { 0, { 0 } }, { 0, { 0 } } } },
    { .name = "strided", .n_in = 2, .in = { { 2, { 4, 3 }, .strided = true }, { 2, { 4, 3 }, .strided = true } } },
    { .name = "only the first needs a gradient", .n_in = 2, .in = { { 1, { 6 } }, { 1, { 6 }, .no_grad = true } } },
    { .name = "nothing", .n_in = 2, .in = { { 2, { 0, 3 } }, { 2, { 0, 3 } } } },
    { .name = "shapes differ", .n_in = 2, .in = { { 2, { 3, 5 } }, { 2, { 5, 3 } } }, .expect = EBB_ESHAPE },
};

const ebb_op ebb_op_mse = {
    .name = "mse", .min_in = 2, .max_in = 2, .n_out = 1, .flags = EBB_OP_JOINT,
    .needs = { [A] = EBB_IN(A) | EBB_IN(B), [B] = EBB_IN(A) | EBB_IN(B) },
    .infer = infer, .cost = cost, .cpu = { forward, backward, workspace },
    .cuda_workspace = cuda_workspace,
    .cases = cases, .n_cases = sizeof cases / sizeof *cases,
    .autocast = EBB_AUTOCAST_F32,
};

ebb_status ebb_mse(ebb_tensor **out, ebb_tensor *a, ebb_tensor *b)
{
    return ebb_apply(&ebb_op_mse, (ebb_tensor **[]){ out }, 1, (ebb_tensor *[]){ a, b }, 2, NULL, 0);
}
