/* op_rope.c: rotary positions.  x [B, T, W * D]: W heads of D; the first `heads` of them are rotated,
 * the rest is copied (values of a packed q k v).  Dimension i < D/2 pairs with i + D/2:
 *   y_i        = x_i cos(t f_i) - x_{i + D/2} sin(t f_i)
 *   y_{i + D/2} = x_{i + D/2} cos(t f_i) + x_i sin(t f_i),    f_i = base^(-2 i / D), t = position + row.
 * The gradient is dy rotated back.  Su et al., arXiv 2104.09864. */
#include <ebb/ops.h>
#include <math.h>
#include <string.h>
#include "ops/attrs.h"
#include "ops/cuda/scratch.h"
#include "ops/halves.h"
#include "ops/kernels.h"
#include "ops/lanes.h"
#include "ops/table.h"

enum { MAX_HEAD_DIM = 65536 };                    /* as in configs */
static const int64_t MAX_POSITION = INT64_C(1) << 52; /* the sum with a row number stays exact in f64 */

static ebb_status infer(ebb_call *call)
{
    const ebb_arg *x = &call->in[0];
    const ebb__rope_attrs *at = EBB_ATTRS(call, ebb__rope_attrs);
    char text[96];
    ebb_status st = ebb__require_float_dtype(call, 0);
    if (st != EBB_OK) return st;
    if (at->head_dim < 2 || at->head_dim > MAX_HEAD_DIM || at->head_dim % 2 != 0) {
        return ebb_fail(EBB_EINVAL, "rope: head_dim is %lld; it must be even, 2 to %d", (long long)at->head_dim,
                        MAX_HEAD_DIM);
    }
    if (at->position < -MAX_POSITION || at->position > MAX_POSITION) {
        return ebb_fail(EBB_EINVAL, "rope: position is %lld; allowed are %lld to %lld", (long long)at->position,
                        (long long)-MAX_POSITION, (long long)MAX_POSITION);
    }
    if (!(at->base > 0) || isinf(at->base)) {
        return ebb_fail(EBB_EINVAL, "rope: base is %g; it must be above 0", at->base);
    }
    bool fits = x->ndim == 3 && x->dims[2] % at->head_dim == 0 && at->heads >= 0 &&
                at->heads <= x->dims[2] / at->head_dim;
    if (!fits) {
        return ebb_fail(EBB_ESHAPE, "rope: x %s with head_dim %lld and %lld heads; it must be [B, T, W * D] with "
                        "at least as many heads", ebb_arg_describe(x, text, sizeof text),
                        (long long)at->head_dim, (long long)at->heads);
    }
    return ebb__infer_like_first(call);
}

static void cost(const ebb_call *call, ebb_cost *k)
{
    double n = (double)call->in[0].elems, bytes = 2 * n * (double)ebb_dtype_bytes(call->in[0].dtype);
    *k = (ebb_cost){ .fwd_flops = 3 * n, .bwd_flops = 3 * n, .fwd_bytes = bytes, .bwd_bytes = bytes };
}

/* ---- kernels ---------------------------------------------------------------------------------- */

typedef struct rotation {
    const ebb_call *call;
    const void *x;
    void *y;
    bool accumulate;
    double sign;                               /* -1: back */
    int64_t batch, rows, width, half, rotated; /* rotated: elements of a row that are heads to turn */
} rotation;

/* Per thread: D/2 frequencies in f64, then D/2 cosines and D/2 sines of one row. */
static size_t scratch_bytes(int64_t half) { return ((size_t)half * 3 * sizeof(double) + 63) / 64 * 64; }

static size_t own_workspace(const ebb_call *call, int pass, int threads)
{
    (void)pass;
    return (size_t)threads * scratch_bytes(EBB_ATTRS(call, ebb__rope_attrs)->head_dim / 2);
}

static size_t workspace(const ebb_call *call, int pass, int threads)
{
    return ebb__halves_workspace(call, pass, threads, own_workspace);
}

/* The cosines and sines of all rows. */
static size_t cuda_workspace(const ebb_call *call, int pass)
{
    (void)pass;
    int64_t half = EBB_ATTRS(call, ebb__rope_attrs)->head_dim / 2;
    if (call->in[0].elems == 0) return 0;
    return (size_t)(2 * call->in[0].dims[1] * half) * ebb__cuda_real_bytes(call->in[0].dtype);
}

#define REAL float
#define F(name) name##_f32
#include "ops/rope.inc"

#define REAL double
#define F(name) name##_f64
#include "ops/rope.inc"

static ebb_status run(const ebb_call *call, const void *x, void *y, bool accumulate, double sign)
{
    const ebb__rope_attrs *at = EBB_ATTRS(call, ebb__rope_attrs);
    const ebb_arg *in = &call->in[0];
    rotation r = { .call = call, .x = x, .y = y, .accumulate = accumulate, .sign = sign, .batch = in->dims[0],
                   .rows = in->dims[1], .width = in->dims[2], .half = at->head_dim / 2,
                   .rotated = at->heads ? at->heads * at->head_dim : in->dims[2] };
    if (in->elems == 0) return EBB_OK;
    int64_t grain = 1 + (1 << 12) / (r.batch * r.width + 1);
    ebb_parallel(call, r.rows, grain, in->dtype == EBB_F64 ? rotate_rows_f64 : rotate_rows_f32, &r);
    return EBB_OK;
}

static ebb_status turn(const ebb_call *call) { return run(call, call->in[0].data, call->out[0].data, false, 1); }

static ebb_status turn_back(const ebb_call *call)
{
    return run(call, call->dout[0].data, call->din[0].data, call->accumulate[0], -1);
}

static ebb_status forward(const ebb_call *call) { return ebb__halves_run(call, EBB_FORWARD, turn); }
static ebb_status backward(const ebb_call *call) { return ebb__halves_run(call, EBB_BACKWARD, turn_back); }

/* ---- cases -------------------------------------------------------------------------------------- */

static const ebb__rope_attrs all = { .head_dim = 4, .base = 10000 },
                             some = { .head_dim = 4, .heads = 2, .base = 10000 },
                             later = { .head_dim = 6, .base = 100, .position = 7 },
                             odd = { .head_dim = 3, .base = 10000 }, no_base = { .head_dim = 4 },
                             far = { .head_dim = 4, .base = 10000, .position = INT64_MAX },
                             wide = { .head_dim = INT64_MAX - 1, .base = 10000 },
                             too_many = { .head_dim = 4, .heads = 3, .base = 10000 };
#define WITH(a) .attrs = &(a), .attrs_bytes = sizeof(ebb__rope_attrs)

static const ebb_op_case cases[] = {
    { .name = "all heads", .n_in = 1, .in = { { 3, { 2, 5, 8 } } }, WITH(all) },
    { .name = "first heads of a packed row", .n_in = 1, .in = { { 3, { 2, 3, 16 } } }, WITH(some) },
    { .name = "later position", .n_in = 1, .in = { { 3, { 1, 4, 6 } }, }, WITH(later) },
    { .name = "strided", .n_in = 1, .in = { { 3, { 2, 3, 8 }, .strided = true } }, WITH(all) },
    { .name = "no rows", .n_in = 1, .in = { { 3, { 2, 0, 8 } } }, WITH(all) },
    { .name = "no width", .n_in = 1, .in = { { 3, { 2, 3, 0 } } }, WITH(all) },
    { .name = "odd head_dim", .n_in = 1, .in = { { 3, { 2, 3, 6 } } }, WITH(odd), .expect = EBB_EINVAL },
    { .name = "position 2^63 - 1", .n_in = 1, .in = { { 3, { 2, 3, 8 } } }, WITH(far), .expect = EBB_EINVAL },
    { .name = "head_dim near 2^63 of nothing", .n_in = 1, .in = { { 3, { 2, 3, 0 } } }, WITH(wide),
      .expect = EBB_EINVAL },
    { .name = "no base", .n_in = 1, .in = { { 3, { 2, 3, 8 } } }, WITH(no_base), .expect = EBB_EINVAL },
    { .name = "more heads than there are", .n_in = 1, .in = { { 3, { 2, 3, 8 } } }, WITH(too_many),
      .expect = EBB_ESHAPE },
    { .name = "a matrix", .n_in = 1, .in = { { 2, { 3, 8 } } }, WITH(all), .expect = EBB_ESHAPE },
};

const ebb_op ebb_op_rope = {
    .name = "rope", .min_in = 1, .max_in = 1, .n_out = 1,
    .flags = EBB_OP_INPLACE_OK | EBB_OP_GRAD_OVER_DOUT | EBB_OP_CHEAP,
    .infer = infer, .cost = cost, .cpu = { forward, backward, workspace },
    .cuda_workspace = cuda_workspace,
    .cases = cases, .n_cases = sizeof cases / sizeof *cases,
};

ebb_status ebb_rope(ebb_tensor **out, ebb_tensor *x, const ebb_rope_options *options)
{
    if (!options) return ebb_fail(EBB_EINVAL, "rope: options are NULL");
    ebb__rope_attrs at = { .head_dim = options->head_dim, .heads = options->heads, .position = options->position,
                 .base = options->base };
    return ebb_apply(&ebb_op_rope, (ebb_tensor **[]){ out }, 1, (ebb_tensor *[]){ x }, 1, &at, sizeof at);
}
