/* op_cross_entropy.c: the sum over rows of lse - logits[target], divided; lse = log sum exp(logits).
 * logits [..., V], targets i32 or i64 [...] (EBB_IGNORE: the row does not count) -> scalar; the
 * auxiliary output is lse per row.  The divisor is `normalizer`, or where that is 0 the number of
 * rows that count.
 *   dlogits = (softmax(logits) - onehot(target)) * dy / divisor. */
#include <ebb/ops.h>
#include "ops/attrs.h"
#include "ops/cross_entropy.h"
#include "ops/cuda/scratch.h"
#include "ops/kernels.h"
#include "ops/table.h"

enum { LOGITS, TARGETS };
enum { LOSS, LSE };

static ebb_status infer(ebb_call *call)
{
    const ebb_arg *logits = &call->in[LOGITS], *targets = &call->in[TARGETS];
    ebb_status st = ebb__require_compute_dtype(call, LOGITS);
    if (st == EBB_OK)
        st =
            ebb__loss_check(call, TARGETS, "[..., V] and [...]", EBB_ATTRS(call, ebb__cross_entropy_attrs)->normalizer);
    if (st != EBB_OK) return st;
    st = ebb_arg_set(&call->out[LOSS], ebb__compute_dtype(logits->dtype), 0, NULL);
    if (st != EBB_OK) return st;
    return ebb_arg_set(&call->out[LSE], ebb__compute_dtype(logits->dtype), targets->ndim, targets->dims);
}

static void cost(const ebb_call *call, ebb_cost *k)
{
    double n = (double)call->in[LOGITS].elems, size = (double)ebb_dtype_bytes(call->in[LOGITS].dtype);
    *k = (ebb_cost){ .fwd_flops = 4 * n, .bwd_flops = 4 * n, .fwd_bytes = n * size, .bwd_bytes = 2 * n * size };
}

/* ---- kernels ---------------------------------------------------------------------------------- */

/* One partial loss per range. */
static size_t workspace(const ebb_call *call, int pass, int threads)
{
    (void)call;
    return pass == EBB_FORWARD ? (size_t)threads * sizeof(double) : 0;
}

/* The rows' losses, or the weight of a row. */
static size_t cuda_workspace(const ebb_call *call, int pass)
{
    size_t numbers = pass == EBB_FORWARD ? (size_t)call->in[TARGETS].elems : 1;
    return numbers * ebb__cuda_real_bytes(call->in[LOGITS].dtype);
}

static ebb__loss_rows rows_of(const ebb_call *call)
{
    const ebb_arg *logits = &call->in[LOGITS];
    return (ebb__loss_rows){ .call = call, .targets = &call->in[TARGETS], .rows = call->in[TARGETS].elems,
                             .classes = ebb__cols(logits), .dtype = logits->dtype, .logits = logits->data,
                             .lse = call->out[LSE].data };
}

static ebb_status forward(const ebb_call *call)
{
    ebb__loss_rows r = rows_of(call);
    ebb_status st = ebb__loss_check_targets(call, r.targets, r.classes);
    if (st != EBB_OK) return st;
    r.partial = call->workspace;
    double loss =
        ebb__loss_forward(&r) * ebb__loss_weight(r.targets, EBB_ATTRS(call, ebb__cross_entropy_attrs)->normalizer);
    if (r.dtype == EBB_F64) *(double *)call->out[LOSS].data = loss;
    else *(float *)call->out[LOSS].data = (float)loss;
    return EBB_OK;
}

static ebb_status backward(const ebb_call *call)
{
    ebb__loss_rows r = rows_of(call);
    const void *dy = call->dout[LOSS].data;
    r.weight = (r.dtype == EBB_F64 ? *(const double *)dy : *(const float *)dy) *
               ebb__loss_weight(r.targets, EBB_ATTRS(call, ebb__cross_entropy_attrs)->normalizer);
    r.dlogits = call->din[LOGITS].data;
    r.accumulate = call->accumulate[LOGITS];
    ebb__loss_backward(&r);
    return EBB_OK;
}

/* ---- cases -------------------------------------------------------------------------------------- */

static const ebb__cross_entropy_attrs counted = { .normalizer = 0 }, by_four = { .normalizer = 4 },
                                      negative = { .normalizer = -1 };
#define WITH(a) .attrs = &(a), .attrs_bytes = sizeof(ebb__cross_entropy_attrs)

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
    .cuda_workspace = cuda_workspace,
    .cases = cases, .n_cases = sizeof cases / sizeof *cases,
    .autocast = EBB_AUTOCAST_F32,
};

ebb_status ebb_cross_entropy(ebb_tensor **out, ebb_tensor *logits, ebb_tensor *targets, double normalizer)
{
    ebb__cross_entropy_attrs at = { .normalizer = normalizer };
    return ebb_apply(&ebb_op_cross_entropy, (ebb_tensor **[]){ out }, 1, (ebb_tensor *[]){ logits, targets }, 2, &at,
                     sizeof at);
}
