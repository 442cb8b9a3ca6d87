/* op_linear.c: y = x W^T + b.  x [..., I], W [O, I], b [O] or absent; y [..., O].
 *   dx = dy W,  dW = dy^T x,  db = column sums of dy.
 * The gradients of W and b are added straight onto the parameter's gradient (gemm with beta = 1).
 * Half precision is widened to f32 in the workspace: right, not fast. */
#include <ebb/ops.h>
#include <string.h>
#include "ops/cuda/scratch.h"
#include "ops/halves.h"
#include "ops/kernels.h"
#include "ops/table.h"

enum { X, WEIGHT, BIAS };

typedef struct sizes {
    int64_t rows, inner, outer; /* of x: rows, I; O */
} sizes;

static sizes sizes_of(const ebb_call *call)
{
    return (sizes){ ebb__rows(&call->in[X]), ebb__cols(&call->in[X]), call->in[WEIGHT].dims[0] };
}

static ebb_status infer(ebb_call *call)
{
    const ebb_arg *x = &call->in[X], *weight = &call->in[WEIGHT], *bias = &call->in[BIAS];
    char text[2][96];
    ebb_status st = ebb__require_float(call);
    if (st != EBB_OK) return st;
    if (weight->ndim != 2 || x->ndim < 1 || weight->dims[1] != x->dims[x->ndim - 1]) {
        return ebb_fail(EBB_ESHAPE, "linear: x %s and weight %s; they must be [..., I] and [O, I]",
                        ebb_arg_describe(x, text[0], sizeof text[0]),
                        ebb_arg_describe(weight, text[1], sizeof text[1]));
    }
    if (call->n_in > BIAS && (bias->ndim != 1 || bias->dims[0] != weight->dims[0])) {
        return ebb_fail(EBB_ESHAPE, "linear: bias %s; it must be [%lld], as many as weight has rows",
                        ebb_arg_describe(bias, text[0], sizeof text[0]), (long long)weight->dims[0]);
    }
    int64_t dims[EBB_MAX_DIMS];
    memcpy(dims, x->dims, sizeof dims);
    dims[x->ndim - 1] = weight->dims[0];
    return ebb_arg_set(&call->out[0], x->dtype, x->ndim, dims);
}

static void cost(const ebb_call *call, ebb_cost *k)
{
    sizes s = sizes_of(call);
    double rows = (double)s.rows, inner = (double)s.inner, outer = (double)s.outer;
    double size = (double)ebb_dtype_bytes(call->in[X].dtype);
    double bytes = size * (rows * inner + inner * outer + rows * outer);
    *k = (ebb_cost){ .fwd_flops = 2 * rows * inner * outer, .bwd_flops = 4 * rows * inner * outer,
                     .fwd_bytes = bytes, .bwd_bytes = 2 * bytes };
}

/* ---- products, in f32 and f64 --------------------------------------------------------------- */

/* Operands in the dtype of the products: the call's own, or f32 in place of halves. */
typedef struct operands {
    const void *x, *weight, *bias, *dy;
    void *y;
    ebb_dtype dtype;
} operands;

static void run_forward(const ebb_call *call, const operands *o)
{
    sizes s = sizes_of(call);
    ebb__gemm gemm = {
        .trans_b = true, .m = s.rows, .n = s.outer, .k = s.inner, .batch = 1, .alpha = 1,
        .a = o->x, .lda = s.inner, .b = o->weight, .ldb = s.inner, .c = o->y, .ldc = s.outer,
        .dtype = o->dtype, .bias = o->bias,
    };
    ebb__gemm_run(ebb__call_threads(call), &gemm);
}

static void grad_x(const ebb_call *call, const operands *o, void *dx, bool accumulate)
{
    sizes s = sizes_of(call);
    ebb__gemm gemm = {
        .m = s.rows, .n = s.inner, .k = s.outer, .batch = 1, .alpha = 1, .beta = accumulate,
        .a = o->dy, .lda = s.outer, .b = o->weight, .ldb = s.inner, .c = dx, .ldc = s.inner,
        .dtype = o->dtype,
    };
    ebb__gemm_run(ebb__call_threads(call), &gemm);
}

static void grad_weight(const ebb_call *call, const operands *o, void *dw, bool accumulate)
{
    sizes s = sizes_of(call);
    ebb__gemm gemm = {
        .trans_a = true, .m = s.outer, .n = s.inner, .k = s.rows, .batch = 1, .alpha = 1,
        .beta = accumulate, .a = o->dy, .lda = s.outer, .b = o->x, .ldb = s.inner, .c = dw,
        .ldc = s.inner, .dtype = o->dtype,
    };
    ebb__gemm_run(ebb__call_threads(call), &gemm);
}

/* ---- column sums: every thread owns some columns ----------------------------------------- */

enum {
    COLS_AT_ONCE = 256, /* a strip of sums that stays in registers and L1 */
    ROWS_PER_BLOCK = 64 /* sums of blocks are added to the totals, which keeps rounding small */
};

typedef struct column_sums {
    const void *dy;
    void *db;
    int64_t rows, cols;
    bool accumulate;
} column_sums;

#define REAL float
#define F(name) name##_f32
#include "ops/column_sums.inc"

#define REAL double
#define F(name) name##_f64
#include "ops/column_sums.inc"

static void grad_bias(const ebb_call *call, const operands *o, void *db, bool accumulate)
{
    sizes s = sizes_of(call);
    column_sums sums = { .dy = o->dy, .db = db, .rows = s.rows, .cols = s.outer, .accumulate = accumulate };
    int64_t grain = 16 + (1 << 14) / (s.rows + 1);
    ebb_parallel(call, s.outer, grain, o->dtype == EBB_F64 ? sum_columns_f64 : sum_columns_f32, &sums);
}

typedef void grad_fn(const ebb_call *call, const operands *o, void *din, bool accumulate);
static grad_fn *const grads[] = { [X] = grad_x, [WEIGHT] = grad_weight, [BIAS] = grad_bias };

/* ---- entry points ----------------------------------------------------------------------------- */

/* Takes n f32 off the workspace, 64-byte aligned. */
static float *take(char **free_at, int64_t n)
{
    float *p = (float *)(void *)*free_at;
    *free_at += (size_t)(n + 15) / 16 * 64;
    return p;
}

static const float *widened(const ebb_call *call, char **free_at, const ebb_arg *arg)
{
    if (!arg->data) return NULL;
    float *wide = take(free_at, arg->elems);
    ebb__halves_widen(call, wide, arg->data, arg->dtype, arg->elems);
    return wide;
}

static size_t wide_bytes(const ebb_arg *arg) { return (size_t)(arg->elems + 15) / 16 * 64; }

/* Which inputs the gradient of input i multiplies with dy. */
static unsigned reads(int i) { return i == X ? EBB_IN(WEIGHT) : i == WEIGHT ? EBB_IN(X) : 0; }

static size_t workspace(const ebb_call *call, int pass, int threads)
{
    (void)threads;
    if (!ebb__is_half(call->in[X].dtype)) return 0;
    size_t bytes = wide_bytes(&call->out[0]); /* y or dy */
    unsigned used = pass == EBB_FORWARD ? ~0u : 0;
    for (int i = 0; i < call->n_in && pass == EBB_BACKWARD; i++) {
        if (!call->want[i]) continue;
        used |= reads(i);
        bytes += wide_bytes(&call->in[i]); /* the gradient itself */
    }
    for (int i = 0; i < call->n_in; i++) {
        if (used & EBB_IN(i)) bytes += wide_bytes(&call->in[i]);
    }
    return bytes;
}

/* Partial sums of the columns of dy, for the bias. */
static size_t cuda_workspace(const ebb_call *call, int pass)
{
    sizes s = sizes_of(call);
    if (pass == EBB_FORWARD || call->n_in <= BIAS || !call->want[BIAS]) return 0;
    return (size_t)(ebb__cuda_sum_parts(s.rows) * s.outer) * ebb__cuda_real_bytes(call->in[X].dtype);
}

static ebb_status forward(const ebb_call *call)
{
    const ebb_arg *y = &call->out[0];
    operands o = { .x = call->in[X].data, .weight = call->in[WEIGHT].data, .y = y->data, .dtype = y->dtype,
                   .bias = call->n_in > BIAS ? call->in[BIAS].data : NULL };
    if (!ebb__is_half(y->dtype)) {
        run_forward(call, &o);
        return EBB_OK;
    }
    char *free_at = call->workspace;
    float *wide = take(&free_at, y->elems);
    o = (operands){ .x = widened(call, &free_at, &call->in[X]), .y = wide, .dtype = EBB_F32,
                    .weight = widened(call, &free_at, &call->in[WEIGHT]),
                    .bias = call->n_in > BIAS ? widened(call, &free_at, &call->in[BIAS]) : NULL };
    run_forward(call, &o);
    ebb__halves_narrow(call, y->data, wide, y->dtype, y->elems);
    return EBB_OK;
}

/* One gradient of half precision: in f32 with what was there before, then rounded once. */
static void half_grad(const ebb_call *call, int i, const operands *o, char **free_at)
{
    const ebb_arg *din = &call->din[i];
    float *wide = take(free_at, call->in[i].elems);
    if (call->accumulate[i]) ebb__halves_widen(call, wide, din->data, din->dtype, call->in[i].elems);
    grads[i](call, o, wide, call->accumulate[i]);
    ebb__halves_narrow(call, din->data, wide, din->dtype, call->in[i].elems);
}

static ebb_status backward(const ebb_call *call)
{
    bool half = ebb__is_half(call->in[X].dtype);
    char *free_at = call->workspace;
    operands o = { .dtype = half ? EBB_F32 : call->in[X].dtype, .dy = call->dout[0].data };
    if (half) o.dy = widened(call, &free_at, &call->dout[0]);
    unsigned used = 0;
    for (int i = 0; i < call->n_in; i++) used |= call->din[i].data ? reads(i) : 0;
    if (used & EBB_IN(X)) o.x = half ? widened(call, &free_at, &call->in[X]) : call->in[X].data;
    if (used & EBB_IN(WEIGHT)) {
        o.weight = half ? widened(call, &free_at, &call->in[WEIGHT]) : call->in[WEIGHT].data;
    }
    for (int i = call->n_in - 1; i >= 0; i--) {
        if (!call->din[i].data) continue;
        if (half) half_grad(call, i, &o, &free_at);
        else grads[i](call, &o, call->din[i].data, call->accumulate[i]);
    }
    return EBB_OK;
}

/* ---- cases -------------------------------------------------------------------------------------- */

static const ebb_op_case cases[] = {
    { .name = "matrix", .n_in = 3, .in = { { 2, { 5, 4 } }, { 2, { 3, 4 } }, { 1, { 3 } } } },
    { .name = "no bias, three axes", .n_in = 2, .in = { { 3, { 2, 3, 7 } }, { 2, { 5, 7 } } } },
    { .name = "vector", .n_in = 3, .in = { { 1, { 6 } }, { 2, { 2, 6 } }, { 1, { 2 } } } },
    { .name = "one output", .n_in = 3, .in = { { 2, { 9, 5 } }, { 2, { 1, 5 } }, { 1, { 1 } } } },
    { .name = "more than one tile", .n_in = 3,
      .in = { { 2, { 33, 9 } }, { 2, { 35, 9 } }, { 1, { 35 } } } },
    { .name = "strided", .n_in = 3,
      .in = { { 3, { 2, 3, 4 }, .strided = true }, { 2, { 3, 4 }, .strided = true }, { 1, { 3 } } } },
    { .name = "batch of nothing", .n_in = 3, .in = { { 2, { 0, 4 } }, { 2, { 3, 4 } }, { 1, { 3 } } } },
    { .name = "no columns", .n_in = 3, .in = { { 2, { 3, 0 } }, { 2, { 2, 0 } }, { 1, { 2 } } } },
    { .name = "no outputs", .n_in = 3, .in = { { 2, { 3, 4 } }, { 2, { 0, 4 } }, { 1, { 0 } } } },
    { .name = "frozen weight", .n_in = 3,
      .in = { { 2, { 4, 4 } }, { 2, { 3, 4 }, .no_grad = true }, { 1, { 3 } } } },
    { .name = "inner sizes differ", .n_in = 2, .in = { { 2, { 5, 4 } }, { 2, { 3, 5 } } },
      .expect = EBB_ESHAPE },
    { .name = "bias too long", .n_in = 3, .in = { { 2, { 5, 4 } }, { 2, { 3, 4 } }, { 1, { 4 } } },
      .expect = EBB_ESHAPE },
    { .name = "scalar x", .n_in = 2, .in = { { 0, { 0 } }, { 2, { 3, 1 } } }, .expect = EBB_ESHAPE },
};

const ebb_op ebb_op_linear = {
    .name = "linear", .min_in = 2, .max_in = 3, .n_out = 1,
    .needs = { [X] = EBB_IN(WEIGHT), [WEIGHT] = EBB_IN(X), [BIAS] = 0 },
    .infer = infer, .cost = cost, .cpu = { forward, backward, workspace },
    .cuda_workspace = cuda_workspace,
    .cases = cases, .n_cases = sizeof cases / sizeof *cases,
    .autocast = EBB_AUTOCAST_LOW,
};

ebb_status ebb_linear(ebb_tensor **out, ebb_tensor *x, ebb_tensor *weight, ebb_tensor *bias)
{
    return ebb_apply(&ebb_op_linear, (ebb_tensor **[]){ out }, 1, (ebb_tensor *[]){ x, weight, bias },
                     bias ? 3 : 2, NULL, 0);
}
