/* op_matmul.c: op(a) @ op(b).  a [..., M, K], b [..., K, N] -> [..., M, N]; batch dims broadcast as
 * NumPy's do; trans_x: the last two dims of x are stored swapped.
 *   d op(a) = dy op(b)^T,  d op(b) = op(a)^T dy,
 * where a broadcast operand's gradient is the sum over the batches that share it.
 * Half precision is widened to f32 in the workspace: right, not fast. */
#include <ebb/ops.h>
#include <string.h>
#include "ops/cuda/scratch.h"
#include "ops/halves.h"
#include "ops/kernels.h"
#include "ops/table.h"
#include "ops/matmul_batches.inc"

/* ---- shapes ----------------------------------------------------------------------------------- */

static ebb_status mismatch(const ebb_call *call, const char *what)
{
    const ebb__matmul_attrs *at = EBB_ATTRS(call, ebb__matmul_attrs);
    char text[2][96];
    return ebb_fail(EBB_ESHAPE, "matmul: %s%s and %s%s: %s", ebb_arg_describe(&call->in[A], text[0], sizeof text[0]),
                    at->trans_a ? " transposed" : "", ebb_arg_describe(&call->in[B], text[1], sizeof text[1]),
                    at->trans_b ? " transposed" : "", what);
}

static ebb_status infer(ebb_call *call)
{
    const ebb__matmul_attrs *at = EBB_ATTRS(call, ebb__matmul_attrs);
    const ebb_arg *a = &call->in[A], *b = &call->in[B];
    ebb_status st = ebb__require_float(call);
    if (st != EBB_OK) return st;
    if (a->ndim < 2 || b->ndim < 2) return mismatch(call, "both need at least two dims");
    if (last(a, at->trans_a ? 2 : 1) != last(b, at->trans_b ? 1 : 2)) {
        return mismatch(call, "the inner sizes differ");
    }
    int ndim = a->ndim > b->ndim ? a->ndim : b->ndim;
    int64_t dims[EBB_MAX_DIMS];
    for (int i = 3; i <= ndim; i++) {
        int64_t da = i <= a->ndim ? last(a, i) : 1, db = i <= b->ndim ? last(b, i) : 1;
        if (da != db && da != 1 && db != 1) return mismatch(call, "the batch dims do not broadcast");
        dims[ndim - i] = da == 1 ? db : da;
    }
    dims[ndim - 2] = last(a, at->trans_a ? 1 : 2);
    dims[ndim - 1] = last(b, at->trans_b ? 2 : 1);
    return ebb_arg_set(&call->out[0], a->dtype, ndim, dims);
}

static void cost(const ebb_call *call, ebb_cost *k)
{
    const ebb_arg *a = &call->in[A], *b = &call->in[B], *y = &call->out[0];
    double inner = (double)last(a, EBB_ATTRS(call, ebb__matmul_attrs)->trans_a ? 2 : 1);
    double size = (double)ebb_dtype_bytes(a->dtype);
    double bytes = size * ((double)a->elems + (double)b->elems + (double)y->elems);
    *k = (ebb_cost){ .fwd_flops = 2 * inner * (double)y->elems, .bwd_flops = 4 * inner * (double)y->elems,
                     .fwd_bytes = bytes, .bwd_bytes = 2 * bytes };
}

/* ---- products, in f32 and f64 --------------------------------------------------------------- */

/* Operands in the dtype of the products: the call's own, or f32 in place of halves. */
typedef struct operands {
    const void *in[2];
    void *y; /* dy in backward */
    ebb_dtype dtype;
} operands;

static const void *at_elem(const void *base, int64_t offset, ebb_dtype dtype)
{
    return base ? (const char *)base + offset * (int64_t)ebb_dtype_bytes(dtype) : NULL;
}

static void run_forward(const ebb_call *call, const operands *o)
{
    const ebb__matmul_attrs *at = EBB_ATTRS(call, ebb__matmul_attrs);
    batches p = batches_of(call);
    bool fold = folds(&p);
    int64_t group_elems = p.inner * p.m * p.n;
    for (int64_t outer = 0; outer < p.n_outer; outer++) {
        group g = group_at(&p, outer);
        ebb__gemm gemm = {
            .trans_a = at->trans_a, .trans_b = at->trans_b, .m = fold ? p.inner * p.m : p.m, .n = p.n,
            .k = p.k, .batch = fold ? 1 : p.inner, .alpha = 1,
            .a = at_elem(o->in[A], g.offset[A], o->dtype), .lda = at->trans_a ? p.m : p.k,
            .stride_a = p.inner_step[A],
            .b = at_elem(o->in[B], g.offset[B], o->dtype), .ldb = at->trans_b ? p.k : p.n,
            .stride_b = p.inner_step[B],
            .c = (void *)(uintptr_t)at_elem(o->y, outer * group_elems, o->dtype), .ldc = p.n,
            .stride_c = p.m * p.n, .dtype = o->dtype,
        };
        ebb__gemm_run(ebb__call_threads(call), &gemm);
    }
}

/* The gradient of a: dy op(b)^T [m, k], or where a is stored transposed op(b) dy^T [k, m]. */
static ebb__gemm grad_a(const batches *p, const ebb__matmul_attrs *at, const void *b, const void *dy)
{
    bool fold = folds(p);
    int64_t ldb = at->trans_b ? p->k : p->n, stride_b = p->inner_step[B], stride_y = p->m * p->n;
    if (at->trans_a) {
        return (ebb__gemm){ .trans_a = at->trans_b, .trans_b = true, .m = p->k, .n = p->m, .k = p->n,
                            .batch = p->inner, .a = b, .lda = ldb, .stride_a = stride_b, .b = dy, .ldb = p->n,
                            .stride_b = stride_y, .ldc = p->m };
    }
    return (ebb__gemm){ .trans_b = !at->trans_b, .m = fold ? p->inner * p->m : p->m, .n = p->k, .k = p->n,
                        .batch = fold ? 1 : p->inner, .a = dy, .lda = p->n, .stride_a = stride_y, .b = b,
                        .ldb = ldb, .stride_b = stride_b, .ldc = p->k };
}

/* The gradient of b: op(a)^T dy [k, n], or where b is stored transposed dy^T op(a) [n, k]. */
static ebb__gemm grad_b(const batches *p, const ebb__matmul_attrs *at, const void *a, const void *dy)
{
    bool fold = folds(p); /* then the sum over batches is a longer inner dimension */
    int64_t depth = fold ? p->inner * p->m : p->m, batch = fold ? 1 : p->inner;
    int64_t lda = at->trans_a ? p->m : p->k, stride_a = p->inner_step[A], stride_y = p->m * p->n;
    if (at->trans_b) {
        return (ebb__gemm){ .trans_a = true, .trans_b = at->trans_a, .m = p->n, .n = p->k, .k = depth,
                            .batch = batch, .a = dy, .lda = p->n, .stride_a = stride_y, .b = a, .ldb = lda,
                            .stride_b = stride_a, .ldc = p->k };
    }
    return (ebb__gemm){ .trans_a = !at->trans_a, .m = p->k, .n = p->n, .k = depth, .batch = batch, .a = a,
                        .lda = lda, .stride_a = stride_a, .b = dy, .ldb = p->n, .stride_b = stride_y,
                        .ldc = p->n };
}

static void run_grad(const ebb_call *call, int x, const operands *o, void *din, bool accumulate)
{
    const ebb__matmul_attrs *at = EBB_ATTRS(call, ebb__matmul_attrs);
    batches p = batches_of(call);
    if (p.n_outer * p.inner == 0 && !accumulate) {
        memset(din, 0, (size_t)call->in[x].elems * ebb_dtype_bytes(o->dtype));
    }
    int64_t group_elems = p.inner * p.m * p.n;
    for (int64_t outer = 0; outer < p.n_outer; outer++) {
        group g = group_at(&p, outer);
        int other = x == A ? B : A;
        const void *factor = at_elem(o->in[other], g.offset[other], o->dtype);
        const void *dy = at_elem(o->y, outer * group_elems, o->dtype);
        ebb__gemm gemm = x == A ? grad_a(&p, at, factor, dy) : grad_b(&p, at, factor, dy);
        gemm.c = (void *)(uintptr_t)at_elem(din, g.offset[x], o->dtype);
        gemm.stride_c = p.inner_step[x]; /* 0: the products of the group are added up */
        gemm.dtype = o->dtype;
        gemm.alpha = 1;
        gemm.beta = accumulate || !g.first[x];
        ebb__gemm_run(ebb__call_threads(call), &gemm);
    }
}

/* ---- entry points ----------------------------------------------------------------------------- */

static size_t wide_elems(const ebb_arg *arg) { return (size_t)(arg->elems + 15) / 16 * 16; }

/* f32 copies of: y or dy; both inputs in forward; per gradient, itself and the other input. */
static size_t workspace(const ebb_call *call, int pass, int threads)
{
    (void)threads;
    if (!ebb__is_half(call->in[A].dtype)) return 0;
    size_t elems = wide_elems(&call->out[0]);
    for (int x = A; x <= B; x++) {
        if (pass == EBB_FORWARD) elems += wide_elems(&call->in[x]);
        else if (call->want[x]) elems += wide_elems(&call->in[A]) + wide_elems(&call->in[B]);
    }
    return elems * sizeof(float);
}

/* Of halves whose gradient is a sum: that in f32, and one group's products. */
static size_t cuda_workspace(const ebb_call *call, int pass)
{
    size_t most = 0;
    if (pass == EBB_FORWARD || !ebb__is_half(call->in[A].dtype)) return 0;
    batches p = batches_of(call);
    for (int x = A; x <= B; x++) {
        if (!call->want[x] || !is_summed(&p, x)) continue;
        int64_t products = (x == B && folds(&p) ? 1 : p.inner) * (x == A ? p.m * p.k : p.k * p.n);
        size_t bytes = ebb__cuda_scratch((size_t)call->in[x].elems * sizeof(float)) + (size_t)products * 2;
        most = bytes > most ? bytes : most;
    }
    return most;
}

static ebb_status half_forward(const ebb_call *call)
{
    const ebb_arg *y = &call->out[0];
    operands o = { .dtype = EBB_F32, .y = call->workspace };
    float *free_at = (float *)call->workspace + wide_elems(y);
    for (int x = A; x <= B; x++) {
        ebb__halves_widen(call, free_at, call->in[x].data, y->dtype, call->in[x].elems);
        o.in[x] = free_at;
        free_at += wide_elems(&call->in[x]);
    }
    run_forward(call, &o);
    ebb__halves_narrow(call, y->data, o.y, y->dtype, y->elems);
    return EBB_OK;
}

static ebb_status forward(const ebb_call *call)
{
    if (ebb__is_half(call->in[A].dtype)) return half_forward(call);
    operands o = { .in = { call->in[A].data, call->in[B].data }, .y = call->out[0].data,
                   .dtype = call->in[A].dtype };
    run_forward(call, &o);
    return EBB_OK;
}

/* In f32 with what was there before, then rounded once. */
static ebb_status half_backward(const ebb_call *call)
{
    ebb_dtype dtype = call->in[A].dtype;
    float *free_at = (float *)call->workspace + wide_elems(&call->out[0]);
    ebb__halves_widen(call, call->workspace, call->dout[0].data, dtype, call->out[0].elems);
    for (int x = B; x >= A; x--) {
        if (!call->din[x].data) continue;
        int other = x == A ? B : A;
        operands o = { .dtype = EBB_F32, .y = call->workspace };
        float *factor = free_at, *din = factor + wide_elems(&call->in[other]);
        free_at = din + wide_elems(&call->in[x]);
        ebb__halves_widen(call, factor, call->in[other].data, dtype, call->in[other].elems);
        o.in[other] = factor;
        if (call->accumulate[x]) ebb__halves_widen(call, din, call->din[x].data, dtype, call->in[x].elems);
        run_grad(call, x, &o, din, call->accumulate[x]);
        ebb__halves_narrow(call, call->din[x].data, din, dtype, call->in[x].elems);
    }
    return EBB_OK;
}

static ebb_status backward(const ebb_call *call)
{
    if (ebb__is_half(call->in[A].dtype)) return half_backward(call);
    operands o = { .in = { call->in[A].data, call->in[B].data }, .y = call->dout[0].data,
                   .dtype = call->in[A].dtype };
    for (int x = B; x >= A; x--) {
        if (call->din[x].data) run_grad(call, x, &o, call->din[x].data, call->accumulate[x]);
    }
    return EBB_OK;
}

/* ---- cases -------------------------------------------------------------------------------------- */

static const ebb__matmul_attrs swap_a = { .trans_a = true }, swap_b = { .trans_b = true }, swap_both = { true, true };
#define WITH(a) .attrs = &(a), .attrs_bytes = sizeof(ebb__matmul_attrs)

static const ebb_op_case cases[] = {
    { .name = "matrices", .n_in = 2, .in = { { 2, { 5, 3 } }, { 2, { 3, 4 } } } },
    { .name = "a transposed", .n_in = 2, .in = { { 2, { 3, 5 } }, { 2, { 3, 4 } } }, WITH(swap_a) },
    { .name = "b transposed", .n_in = 2, .in = { { 2, { 5, 3 } }, { 2, { 4, 3 } } }, WITH(swap_b) },
    { .name = "both transposed", .n_in = 2, .in = { { 2, { 3, 5 } }, { 2, { 4, 3 } } }, WITH(swap_both) },
    { .name = "batches", .n_in = 2, .in = { { 4, { 2, 3, 4, 5 } }, { 4, { 2, 3, 5, 2 } } } },
    { .name = "b without batch", .n_in = 2, .in = { { 3, { 3, 4, 5 } }, { 2, { 5, 2 } } } },
    { .name = "b without batch, transposed", .n_in = 2, .in = { { 3, { 3, 4, 5 } }, { 2, { 2, 5 } } },
      WITH(swap_b) },
    { .name = "a without batch", .n_in = 2, .in = { { 2, { 4, 5 } }, { 3, { 3, 5, 2 } } } },
    { .name = "a without batch, transposed", .n_in = 2, .in = { { 2, { 5, 4 } }, { 3, { 3, 2, 5 } } },
      WITH(swap_both) },
    { .name = "batches broadcast both ways", .n_in = 2,
      .in = { { 4, { 2, 1, 3, 4 } }, { 4, { 1, 3, 4, 2 } } } },
    { .name = "batches broadcast both ways, transposed", .n_in = 2,
      .in = { { 4, { 3, 1, 4, 3 } }, { 4, { 1, 2, 2, 4 } } }, WITH(swap_both) },
    { .name = "middle batch dim broadcast", .n_in = 2,
      .in = { { 5, { 2, 1, 2, 3, 4 } }, { 5, { 2, 3, 2, 4, 2 } } } },
    { .name = "row by column", .n_in = 2, .in = { { 2, { 1, 7 } }, { 2, { 7, 1 } } } },
    { .name = "column by row", .n_in = 2, .in = { { 2, { 6, 1 } }, { 2, { 1, 5 } } } },
    { .name = "strided", .n_in = 2,
      .in = { { 3, { 2, 3, 4 }, .strided = true }, { 3, { 2, 4, 3 }, .strided = true } } },
    { .name = "no inner size", .n_in = 2, .in = { { 2, { 3, 0 } }, { 2, { 0, 2 } } } },
    { .name = "no batches", .n_in = 2, .in = { { 3, { 0, 3, 4 } }, { 3, { 1, 4, 2 } } } },
    { .name = "no rows", .n_in = 2, .in = { { 2, { 0, 4 } }, { 2, { 4, 2 } } } },
    { .name = "inner sizes differ", .n_in = 2, .in = { { 2, { 5, 3 } }, { 2, { 4, 3 } } },
      .expect = EBB_ESHAPE },
    { .name = "batches differ", .n_in = 2, .in = { { 3, { 2, 5, 3 } }, { 3, { 3, 3, 5 } } },
      .expect = EBB_ESHAPE },
    { .name = "a vector", .n_in = 2, .in = { { 1, { 3 } }, { 2, { 3, 5 } } }, .expect = EBB_ESHAPE },
};

const ebb_op ebb_op_matmul = {
    .name = "matmul", .min_in = 2, .max_in = 2, .n_out = 1,
    .needs = { [A] = EBB_IN(B), [B] = EBB_IN(A) },
    .infer = infer, .cost = cost, .cpu = { forward, backward, workspace },
    .cuda_workspace = cuda_workspace,
    .cases = cases, .n_cases = sizeof cases / sizeof *cases,
    .autocast = EBB_AUTOCAST_LOW,
};

ebb_status ebb_matmul_ex(ebb_tensor **out, ebb_tensor *a, ebb_tensor *b, bool trans_a, bool trans_b)
{
    ebb__matmul_attrs at = { .trans_a = trans_a, .trans_b = trans_b };
    return ebb_apply(&ebb_op_matmul, (ebb_tensor **[]){ out }, 1, (ebb_tensor *[]){ a, b }, 2, &at, sizeof at);
}

ebb_status ebb_matmul(ebb_tensor **out, ebb_tensor *a, ebb_tensor *b)
{
    return ebb_matmul_ex(out, a, b, false, false);
}
