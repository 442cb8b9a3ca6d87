/* op_norm.c: layernorm and rmsnorm over the last axis.  x [..., C], gain [C], bias [C] or absent.
 *   layernorm: y = (x - mean) * rstd * gain + bias, rstd = 1 / sqrt(var + eps)    arXiv 1607.06450
 *   rmsnorm:   y = x * rstd * gain,                 rstd = 1 / sqrt(mean(x^2) + eps)  arXiv 1910.07467
 * With n = the normalised row and h = gain * dy:
 *   dx = rstd * (h - mean(h) - n * mean(h n))   (rmsnorm: without mean(h)),  dgain = sum dy n,  dbias = sum dy.
 * The auxiliary outputs are one number per row each: rstd, and for layernorm the mean before it. */
#include <ebb/ops.h>
#include "ops/attrs.h"
#include "ops/cuda/scratch.h"
#include "ops/kernels.h"
#include "ops/lanes.h"
#include "ops/rows.h"
#include "ops/table.h"

enum { X, GAIN, BIAS };

/* By its outputs, not its address: a copy of the descriptor is as good. */
static bool is_centered(const ebb_call *call) { return call->n_out == 3; }

/* ---- shapes ----------------------------------------------------------------------------------- */

static ebb_status infer(ebb_call *call)
{
    const ebb_arg *x = &call->in[X];
    const char *name = call->op->name;
    char text[96];
    double eps = EBB_ATTRS(call, ebb__norm_attrs)->eps;
    ebb_status st = ebb__require_compute_dtype(call, X);
    if (st != EBB_OK) return st;
    if (x->ndim < 1) return ebb_fail(EBB_ESHAPE, "%s: x is a scalar; it must be [..., C]", name);
    for (int i = GAIN; i < call->n_in; i++) {
        if (call->in[i].ndim == 1 && call->in[i].dims[0] == ebb__cols(x)) continue;
        return ebb_fail(EBB_ESHAPE, "%s: %s is %s; it must be [%lld], the last axis of x", name,
                        i == GAIN ? "gain" : "bias", ebb_arg_describe(&call->in[i], text, sizeof text),
                        (long long)ebb__cols(x));
    }
    if (!(eps >= 0) || isinf(eps)) return ebb_fail(EBB_EINVAL, "%s: eps is %g; it must be 0 or more", name, eps);
    st = ebb_arg_set(&call->out[0], x->dtype, x->ndim, x->dims);
    for (int i = 1; i < call->op->n_out && st == EBB_OK; i++) {
        st = ebb_arg_set(&call->out[i], ebb__compute_dtype(x->dtype), x->ndim - 1, x->dims);
    }
    return st;
}

static void cost(const ebb_call *call, ebb_cost *k)
{
    double n = (double)call->in[X].elems, size = (double)ebb_dtype_bytes(call->in[X].dtype);
    *k = (ebb_cost){ .fwd_flops = 8 * n, .bwd_flops = 14 * n, .fwd_bytes = 2 * n * size, .bwd_bytes = 3 * n * size };
}

/* ---- kernels ---------------------------------------------------------------------------------- */

enum {
    GRAIN_ELEMS = 1 << 13, /* least work of a range */
    ROWS_PER_BLOCK = 64    /* parameter gradients: sums of blocks are added to the totals, which keeps
                              rounding small */
};

static int64_t row_grain(int64_t cols) { return 1 + GRAIN_ELEMS / (cols + 1); }

/* One thread's scratch in backward: rows of `cols` REALs. */
enum { NORMED, SCALED_DY, BLOCK_GAIN, BLOCK_BIAS, TOTAL_GAIN, TOTAL_BIAS, N_SCRATCH_ROWS };

static size_t scratch_bytes(const ebb_call *call)
{
    size_t row = (size_t)ebb__cols(&call->in[X]) * ebb_dtype_bytes(call->in[X].dtype);
    return (N_SCRATCH_ROWS * row + 63) / 64 * 64;
}

static size_t workspace(const ebb_call *call, int pass, int threads)
{
    return pass == EBB_FORWARD ? 0 : (size_t)threads * scratch_bytes(call);
}

#define REAL float
#define F(name) name##_f32
#include "ops/norm.inc"

#define REAL double
#define F(name) name##_f64
#include "ops/norm.inc"

/* Each part of the rows has sums for gain and for bias. */
static size_t cuda_workspace(const ebb_call *call, int pass)
{
    const ebb_arg *x = &call->in[X];
    bool sums = call->want[GAIN] || (call->n_in > BIAS && call->want[BIAS]);
    if (pass == EBB_FORWARD || !sums) return 0;
    return (size_t)(ebb__cuda_norm_parts(ebb__rows(x)) * 2 * ebb__cols(x)) * ebb__cuda_real_bytes(x->dtype);
}

static ebb_status forward(const ebb_call *call)
{
    const ebb_arg *x = &call->in[X];
    bool f64 = x->dtype == EBB_F64;
    ebb_parallel(call, ebb__rows(x), row_grain(ebb__cols(x)), f64 ? forward_rows_f64 : forward_rows_f32,
                 (void *)(uintptr_t)call);
    return EBB_OK;
}

static ebb_status backward(const ebb_call *call)
{
    const ebb_arg *x = &call->in[X];
    int64_t rows = ebb__rows(x), grain = row_grain(ebb__cols(x));
    bool f64 = x->dtype == EBB_F64;
    ebb_parallel(call, rows, grain, f64 ? backward_rows_f64 : backward_rows_f32, (void *)(uintptr_t)call);
    int ranges = ebb__threads_ranges(ebb__call_threads(call), rows, grain);
    if (f64) add_up_f64(call, ranges);
    else add_up_f32(call, ranges);
    return EBB_OK;
}

/* ---- cases -------------------------------------------------------------------------------------- */

static const ebb__norm_attrs small_eps = { .eps = 1e-5 }, large_eps = { .eps = 0.5 }, bad_eps = { .eps = -1 };
#define WITH(a) .attrs = &(a), .attrs_bytes = sizeof(ebb__norm_attrs)

static const ebb_op_case layernorm_cases[] = {
    { .name = "matrix", .n_in = 3, .in = { { 2, { 5, 7 } }, { 1, { 7 } }, { 1, { 7 } } }, WITH(small_eps) },
    { .name = "no bias, three axes", .n_in = 2, .in = { { 3, { 2, 3, 16 } }, { 1, { 16 } } }, WITH(small_eps) },
    { .name = "longer than a vector", .n_in = 3, .in = { { 2, { 3, 37 } }, { 1, { 37 } }, { 1, { 37 } } },
      WITH(large_eps) },
    { .name = "many rows", .n_in = 3, .in = { { 2, { 140, 3 } }, { 1, { 3 } }, { 1, { 3 } } }, WITH(large_eps) },
    { .name = "vector", .n_in = 3, .in = { { 1, { 9 } }, { 1, { 9 } }, { 1, { 9 } } }, WITH(small_eps) },
    { .name = "strided", .n_in = 3, .in = { { 2, { 4, 6 }, .strided = true }, { 1, { 6 } }, { 1, { 6 } } },
      WITH(small_eps) },
    { .name = "frozen gain", .n_in = 3, .in = { { 2, { 4, 6 } }, { 1, { 6 }, .no_grad = true }, { 1, { 6 } } },
      WITH(small_eps) },
    { .name = "frozen x", .n_in = 3, .in = { { 2, { 4, 6 }, .no_grad = true }, { 1, { 6 } }, { 1, { 6 } } },
      WITH(small_eps) },
    { .name = "no rows", .n_in = 3, .in = { { 2, { 0, 8 } }, { 1, { 8 } }, { 1, { 8 } } }, WITH(small_eps) },
    { .name = "rows of nothing", .n_in = 3, .in = { { 2, { 4, 0 } }, { 1, { 0 } }, { 1, { 0 } } }, WITH(small_eps) },
    { .name = "gain too short", .n_in = 3, .in = { { 2, { 5, 7 } }, { 1, { 6 } }, { 1, { 7 } } }, WITH(small_eps),
      .expect = EBB_ESHAPE },
    { .name = "bias as a matrix", .n_in = 3, .in = { { 2, { 5, 7 } }, { 1, { 7 } }, { 2, { 1, 7 } } },
      WITH(small_eps), .expect = EBB_ESHAPE },
    { .name = "negative eps", .n_in = 3, .in = { { 2, { 5, 7 } }, { 1, { 7 } }, { 1, { 7 } } }, WITH(bad_eps),
      .expect = EBB_EINVAL },
};

static const ebb_op_case rmsnorm_cases[] = {
    { .name = "matrix", .n_in = 2, .in = { { 2, { 5, 7 } }, { 1, { 7 } } }, WITH(small_eps) },
    { .name = "three axes", .n_in = 2, .in = { { 3, { 2, 3, 33 } }, { 1, { 33 } } }, WITH(large_eps) },
    { .name = "strided", .n_in = 2, .in = { { 2, { 4, 6 }, .strided = true }, { 1, { 6 } } }, WITH(small_eps) },
    { .name = "frozen gain", .n_in = 2, .in = { { 2, { 4, 6 } }, { 1, { 6 }, .no_grad = true } }, WITH(small_eps) },
    { .name = "no rows", .n_in = 2, .in = { { 2, { 0, 8 } }, { 1, { 8 } } }, WITH(small_eps) },
    { .name = "rows of nothing", .n_in = 2, .in = { { 2, { 4, 0 } }, { 1, { 0 } } }, WITH(small_eps) },
    { .name = "gain too long", .n_in = 2, .in = { { 2, { 5, 7 } }, { 1, { 8 } } }, WITH(small_eps),
      .expect = EBB_ESHAPE },
};

enum { FLAGS = EBB_OP_JOINT | EBB_OP_GRAD_OVER_DOUT | EBB_OP_INPLACE_OK | EBB_OP_CHEAP };

const ebb_op ebb_op_layernorm = {
    .name = "layernorm", .min_in = 2, .max_in = 3, .n_out = 3, .n_aux = 2, .flags = FLAGS,
    .needs = { [X] = EBB_IN(X) | EBB_IN(GAIN) | EBB_OUT(1) | EBB_OUT(2),
               [GAIN] = EBB_IN(X) | EBB_OUT(1) | EBB_OUT(2) },
    .infer = infer, .cost = cost, .cpu = { forward, backward, workspace },
    .cuda_workspace = cuda_workspace,
    .cases = layernorm_cases, .n_cases = sizeof layernorm_cases / sizeof *layernorm_cases,
    .autocast = EBB_AUTOCAST_F32,
};

const ebb_op ebb_op_rmsnorm = {
    .name = "rmsnorm", .min_in = 2, .max_in = 2, .n_out = 2, .n_aux = 1, .flags = FLAGS,
    .needs = { [X] = EBB_IN(X) | EBB_IN(GAIN) | EBB_OUT(1), [GAIN] = EBB_IN(X) | EBB_OUT(1) },
    .infer = infer, .cost = cost, .cpu = { forward, backward, workspace },
    .cuda_workspace = cuda_workspace,
    .cases = rmsnorm_cases, .n_cases = sizeof rmsnorm_cases / sizeof *rmsnorm_cases,
    .autocast = EBB_AUTOCAST_F32,
};

ebb_status ebb_layernorm(ebb_tensor **out, ebb_tensor *x, ebb_tensor *gain, ebb_tensor *bias, double eps)
{
    ebb__norm_attrs at = { .eps = eps };
    return ebb_apply(&ebb_op_layernorm, (ebb_tensor **[]){ out }, 1, (ebb_tensor *[]){ x, gain, bias },
                     bias ? 3 : 2, &at, sizeof at);
}

ebb_status ebb_rmsnorm(ebb_tensor **out, ebb_tensor *x, ebb_tensor *gain, double eps)
{
    ebb__norm_attrs at = { .eps = eps };
    return ebb_apply(&ebb_op_rmsnorm, (ebb_tensor **[]){ out }, 1, (ebb_tensor *[]){ x, gain }, 2, &at, sizeof at);
}
