/* op_cross_entropy.c: the sum over rows of lse - logits[target], divided; lse = log sum exp(logits).
 * logits [..., V], targets i32 or i64 [...] (EBB_IGNORE: the row does not count) -> scalar; the
 * auxiliary output is lse per row.  The divisor is `normalizer`, or where that is 0 the number of
 * rows that count.
 *   dlogits = (softmax(logits) - onehot(target)) * dy / divisor. */
#include <ebb/ops.h>
#include <math.h>
#include <string.h>
#include "ops/index.h"
#include "ops/kernels.h"
#include "ops/lanes.h"
#include "ops/rows.h"
#include "ops/table.h"

enum { LOGITS, TARGETS };
enum { LOSS, LSE };

typedef struct attrs {
    double normalizer;
} attrs;

static ebb_status infer(ebb_call *call)
{
    const ebb_arg *logits = &call->in[LOGITS], *targets = &call->in[TARGETS];
    double normalizer = EBB_ATTRS(call, attrs)->normalizer;
    char text[2][96];
    ebb_status st = ebb__require_compute_dtype(call, LOGITS);
    if (st == EBB_OK) st = ebb__require_index_dtype(call, TARGETS);
    if (st != EBB_OK) return st;
    bool fits = logits->ndim >= 1 && targets->ndim == logits->ndim - 1;
    for (int i = 0; fits && i < targets->ndim; i++) fits = targets->dims[i] == logits->dims[i];
    if (!fits) {
        return ebb_fail(EBB_ESHAPE, "cross_entropy: logits %s and targets %s; they must be [..., V] and [...]",
                        ebb_arg_describe(logits, text[0], sizeof text[0]),
                        ebb_arg_describe(targets, text[1], sizeof text[1]));
    }
    if (!(normalizer >= 0) || isinf(normalizer)) {
        return ebb_fail(EBB_EINVAL, "cross_entropy: normalizer is %g; it must be above 0, or 0 to count targets",
                        normalizer);
    }
    st = ebb_arg_set(&call->out[LOSS], logits->dtype, 0, NULL);
    if (st != EBB_OK) return st;
    return ebb_arg_set(&call->out[LSE], logits->dtype, targets->ndim, targets->dims);
}

static void cost(const ebb_call *call, ebb_cost *k)
{
    double n = (double)call->in[LOGITS].elems, size = (double)ebb_dtype_bytes(call->in[LOGITS].dtype);
    *k = (ebb_cost){ .fwd_flops = 4 * n, .bwd_flops = 4 * n, .fwd_bytes = n * size, .bwd_bytes = 2 * n * size };
}

/* ---- targets ---------------------------------------------------------------------------------- */

static ebb_status check_targets(const ebb_call *call)
{
    const ebb_arg *targets = &call->in[TARGETS];
    int64_t classes = ebb__cols(&call->in[LOGITS]);
    for (int64_t i = 0; i < targets->elems; i++) {
        int64_t target = ebb__index_at(targets, i);
        if (target == EBB_IGNORE || (target >= 0 && target < classes)) continue;
        return ebb_fail(EBB_EINVAL, "cross_entropy: target %lld of row %lld is outside [0, %lld) and is not %d "
                        "(ignored)", (long long)target, (long long)i, (long long)classes, (int)EBB_IGNORE);
    }
    return EBB_OK;
}

/* 1 / divisor; 0 where nothing counts. */
static double weight_of_row(const ebb_call *call)
{
    double normalizer = EBB_ATTRS(call, attrs)->normalizer;
    if (normalizer > 0) return 1 / normalizer;
    int64_t count = 0;
    for (int64_t i = 0; i < call->in[TARGETS].elems; i++) {
        count += ebb__index_at(&call->in[TARGETS], i) != EBB_IGNORE;
    }
    return count > 0 ? 1 / (double)count : 0;
}

/* ---- kernels ---------------------------------------------------------------------------------- */

/* One partial loss per range. */
static size_t workspace(const ebb_call *call, int pass, int threads)
{
    (void)call;
    return pass == EBB_FORWARD ? (size_t)threads * sizeof(double) : 0;
}

static int64_t row_grain(const ebb_call *call) { return 1 + (1 << 12) / (ebb__cols(&call->in[LOGITS]) + 1); }

typedef struct gradient {
    const ebb_call *call;
    double weight; /* dy / divisor */
} gradient;

#define REAL float
#define F(name) name##_f32
#include "ops/cross_entropy.inc"

#define REAL double
#define F(name) name##_f64
#include "ops/cross_entropy.inc"

static ebb_status forward(const ebb_call *call)
{
    ebb_status st = check_targets(call);
    if (st != EBB_OK) return st;
    int64_t rows = call->in[TARGETS].elems;
    bool f64 = call->in[LOGITS].dtype == EBB_F64;
    ebb_parallel(call, rows, row_grain(call), f64 ? loss_rows_f64 : loss_rows_f32, (void *)(uintptr_t)call);
    double total = 0;
    int ranges = ebb__threads_ranges(ebb__call_threads(call), rows, row_grain(call));
    for (int r = 0; r < ranges; r++) total += ((const double *)call->workspace)[r];
    double loss = total * weight_of_row(call);
    if (f64) *(double *)call->out[LOSS].data = loss;
    else *(float *)call->out[LOSS].data = (float)loss;
    return EBB_OK;
}

static ebb_status backward(const ebb_call *call)
{
    bool f64 = call->in[LOGITS].dtype == EBB_F64;
    double dy = f64 ? *(const double *)call->dout[LOSS].data : *(const float *)call->dout[LOSS].data;
    gradient g = { call, dy * weight_of_row(call) };
    ebb_parallel(call, call->in[TARGETS].elems, row_grain(call), f64 ? grad_rows_f64 : grad_rows_f32, &g);
    return EBB_OK;
}

/* ---- cases -------------------------------------------------------------------------------------- */

static const attrs counted = { .normalizer = 0 }, by_four = { .normalizer = 4 }, negative = { .normalizer = -1 };
#define WITH(a) .attrs = &(a), .attrs_bytes = sizeof(attrs)

static const ebb_op_case cases[] = {
    { .name = "all count", .n_in = 2, .in = { { 2, { 6, 5 } }, { 1, { 6 }, EBB_CASE_INDEX, 5 } }, WITH(counted) },
    { .name = "some ignored", .n_in = 2, .in = { { 3, { 3, 4, 7 } }, { 2, { 3, 4 }, EBB_CASE_LABEL, 7 } },
      WITH(counted) },
    { .name = "given normalizer", .n_in = 2, .in = { { 2, { 6, 5 } }, { 1, { 6 }, EBB_CASE_LABEL, 5 } },
      WITH(by_four) },
    { .name = "one row", .n_in = 2, .in = { { 1, { 9 } }, { 0, { 0 }, EBB_CASE_INDEX, 9 } }, WITH(counted) },
    { .name = "one class", .n_in = 2, .in = { { 2, { 4, 1 } }, { 1, { 4 }, EBB_CASE_INDEX, 1 } }, WITH(counted) },
    { .name = "more classes than a vector", .n_in = 2, .in = { { 2, { 3, 41 } }, { 1, { 3 }, EBB_CASE_INDEX, 41 } },
      WITH(counted) },
    { .name = "strided", .n_in = 2,
      .in = { { 2, { 6, 5 }, .strided = true }, { 1, { 6 }, EBB_CASE_INDEX, 5, .strided = true } }, WITH(counted) },
    { .name = "all ignored", .n_in = 2, .in = { { 2, { 4, 5 } }, { 1, { 4 }, EBB_CASE_LABEL, 0 } }, WITH(counted) },
    { .name = "no rows", .n_in = 2, .in = { { 2, { 0, 5 } }, { 1, { 0 }, EBB_CASE_INDEX, 5 } }, WITH(counted) },
    { .name = "rows differ", .n_in = 2, .in = { { 2, { 6, 5 } }, { 1, { 5 }, EBB_CASE_INDEX, 5 } }, WITH(counted),
      .expect = EBB_ESHAPE },
    { .name = "targets of floats", .n_in = 2, .in = { { 2, { 6, 5 } }, { 1, { 6 } } }, WITH(counted),
      .expect = EBB_EDTYPE },
    { .name = "negative normalizer", .n_in = 2, .in = { { 2, { 6, 5 } }, { 1, { 6 }, EBB_CASE_INDEX, 5 } },
      WITH(negative), .expect = EBB_EINVAL },
};

const ebb_op ebb_op_cross_entropy = {
    .name = "cross_entropy", .min_in = 2, .max_in = 2, .n_out = 2, .n_aux = 1,
    .flags = EBB_OP_GRAD_OVER_IN, .no_grad_in = EBB_IN(TARGETS),
    .needs = { [LOGITS] = EBB_IN(LOGITS) | EBB_IN(TARGETS) | EBB_OUT(LSE) },
    .infer = infer, .cost = cost, .cpu = { forward, backward, workspace },
    .cases = cases, .n_cases = sizeof cases / sizeof *cases,
};

ebb_status ebb_cross_entropy(ebb_tensor **out, ebb_tensor *logits, ebb_tensor *targets, double normalizer)
{
    attrs at = { .normalizer = normalizer };
    return ebb_apply(&ebb_op_cross_entropy, (ebb_tensor **[]){ out }, 1, (ebb_tensor *[]){ logits, targets }, 2, &at,
                     sizeof at);
}
