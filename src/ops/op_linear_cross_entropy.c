/* op_linear_cross_entropy.c: cross_entropy(linear(hidden, weight), targets), some rows at a time, so that
 * neither all logits nor their gradient ever exist.
 * hidden [..., C], weight [V, C], targets i32 or i64 [...] -> scalar; the auxiliary output is the
 * log-sum-exp per row.  Rows are cut into `chunks` parts of equal size (the last may be smaller).
 * Backward makes each part's logits again and writes their gradient over them:
 *   dlogits = (softmax(logits) - onehot(target)) * dy / divisor,
 *   dhidden = dlogits weight,  dweight += dlogits^T hidden.
 * With one part the results are those of the two ops, bit for bit. */
#include <ebb/ops.h>
#include "ops/attrs.h"
#include "ops/cross_entropy.h"
#include "ops/cuda/scratch.h"
#include "ops/halves.h"
#include "ops/kernels.h"
#include "ops/table.h"

enum { HIDDEN, WEIGHT, TARGETS };
enum { LOSS, LSE };

static int64_t chunk_rows(const ebb_call *call)
{
    int64_t rows = call->in[TARGETS].elems, chunks = EBB_ATTRS(call, const ebb__linear_cross_entropy_attrs)->chunks;
    int64_t some = rows / chunks + (rows % chunks != 0);
    return some > 0 ? some : 1;
}

/* Bytes of one part's logits, rounded up to 64; false: too many (twice as many, for halves in f32, must fit). */
static bool logits_bytes(size_t *out, const ebb_call *call)
{
    int64_t bytes, size = (int64_t)ebb_dtype_bytes(call->in[HIDDEN].dtype);
    if (__builtin_mul_overflow(chunk_rows(call), call->in[WEIGHT].dims[0], &bytes) ||
        __builtin_mul_overflow(bytes, size, &bytes) || bytes > INT64_MAX / 2 - 64)
        return false;
    *out = ((size_t)bytes + 63) / 64 * 64;
    return true;
}

static ebb_status infer(ebb_call *call)
{
    const ebb_arg *hidden = &call->in[HIDDEN], *weight = &call->in[WEIGHT], *targets = &call->in[TARGETS];
    const ebb__linear_cross_entropy_attrs *at = EBB_ATTRS(call, ebb__linear_cross_entropy_attrs);
    char text[2][96];
    size_t bytes;
    ebb_status st = ebb__require_float_dtype(call, HIDDEN);
    if (st == EBB_OK) st = ebb__loss_check(call, TARGETS, "[..., C] and [...]", at->normalizer);
    if (st != EBB_OK) return st;
    if (weight->ndim != 2 || weight->dims[1] != hidden->dims[hidden->ndim - 1]) {
        return ebb_fail(EBB_ESHAPE, "linear_cross_entropy: hidden %s and weight %s; they must be [..., C] and [V, C]",
                        ebb_arg_describe(hidden, text[0], sizeof text[0]),
                        ebb_arg_describe(weight, text[1], sizeof text[1]));
    }
    if (at->chunks < 1)
        return ebb_fail(EBB_EINVAL, "linear_cross_entropy: %lld chunks; from 1", (long long)at->chunks);
    if (!logits_bytes(&bytes, call))
        return ebb_fail(EBB_ESHAPE, "linear_cross_entropy: the logits of one chunk are more than 2^62 bytes");
    st = ebb_arg_set(&call->out[LOSS], ebb__compute_dtype(hidden->dtype), 0, NULL);
    if (st != EBB_OK) return st;
    return ebb_arg_set(&call->out[LSE], ebb__compute_dtype(hidden->dtype), targets->ndim, targets->dims);
}

static void cost(const ebb_call *call, ebb_cost *k)
{
    double rows = (double)call->in[TARGETS].elems, inner = (double)ebb__cols(&call->in[HIDDEN]);
    double classes = (double)call->in[WEIGHT].dims[0], product = 2 * rows * inner * classes;
    double parts = (double)EBB_ATTRS(call, const ebb__linear_cross_entropy_attrs)->chunks;
    double bytes = (double)ebb_dtype_bytes(call->in[HIDDEN].dtype) *
                   (rows * inner + parts * classes * inner + 2 * rows * classes);
    *k = (ebb_cost){ .fwd_flops = product + 4 * rows * classes, .bwd_flops = 3 * product + 4 * rows * classes,
                     .fwd_bytes = bytes, .bwd_bytes = 3 * bytes };
}

/* ---- kernels ---------------------------------------------------------------------------------- */

/* One part's logits, then one partial loss per range. */
static size_t own_workspace(const ebb_call *call, int pass, int threads)
{
    size_t bytes = 0;
    bool fits = logits_bytes(&bytes, call);
    EBB_ASSERT(fits); /* infer() said so */
    return bytes + (pass == EBB_FORWARD ? (size_t)threads * sizeof(double) : 0);
}

/* Of halves the logits are f32 and never rounded. */
static size_t workspace(const ebb_call *call, int pass, int threads)
{
    return ebb__halves_workspace(call, pass, threads, own_workspace);
}

/* One part's logits, then the rows' losses or the weight of a row. */
static size_t cuda_workspace(const ebb_call *call, int pass)
{
    size_t bytes = 0, numbers = pass == EBB_FORWARD ? (size_t)call->in[TARGETS].elems : 1;
    bool fits = logits_bytes(&bytes, call);
    EBB_ASSERT(fits);
    return ebb__cuda_scratch(bytes) + numbers * ebb__cuda_real_bytes(call->in[HIDDEN].dtype);
}

typedef struct part {
    ebb__loss_rows rows;
    int64_t inner;
    size_t hidden_at; /* bytes from the first row of hidden to this part's */
} part;

static part first_part(const ebb_call *call)
{
    size_t bytes = 0;
    bool fits = logits_bytes(&bytes, call);
    EBB_ASSERT(fits);
    return (part){ .rows = { .call = call, .targets = &call->in[TARGETS], .classes = call->in[WEIGHT].dims[0],
                             .dtype = call->in[HIDDEN].dtype, .logits = call->workspace,
                             .lse = call->out[LSE].data, .dlogits = call->workspace,
                             .partial = (double *)(void *)((char *)call->workspace + bytes) },
                   .inner = ebb__cols(&call->in[HIDDEN]) };
}

/* Makes the logits of the rows from `first` on. */
static void make_logits(part *p, int64_t first)
{
    const ebb_call *call = p->rows.call;
    int64_t left = p->rows.targets->elems - first, rows = chunk_rows(call);
    p->rows.first = first;
    p->rows.rows = rows < left ? rows : left;
    p->hidden_at = (size_t)(first * p->inner) * ebb_dtype_bytes(p->rows.dtype);
    ebb__gemm gemm = {
        .trans_b = true, .m = p->rows.rows, .n = p->rows.classes, .k = p->inner, .batch = 1, .alpha = 1,
        .a = (const char *)call->in[HIDDEN].data + p->hidden_at, .lda = p->inner,
        .b = call->in[WEIGHT].data, .ldb = p->inner, .c = call->workspace, .ldc = p->rows.classes,
        .dtype = p->rows.dtype,
    };
    ebb__gemm_run(ebb__call_threads(call), &gemm);
}

static ebb_status real_forward(const ebb_call *call)
{
    part p = first_part(call);
    double total = 0;
    ebb_status st = ebb__loss_check_targets(call, p.rows.targets, p.rows.classes);
    if (st != EBB_OK) return st;
    for (int64_t first = 0; first < p.rows.targets->elems; first += p.rows.rows) {
        make_logits(&p, first);
        total += ebb__loss_forward(&p.rows);
    }
    double loss =
        total * ebb__loss_weight(p.rows.targets, EBB_ATTRS(call, const ebb__linear_cross_entropy_attrs)->normalizer);
    if (p.rows.dtype == EBB_F64) *(double *)call->out[LOSS].data = loss;
    else *(float *)call->out[LOSS].data = (float)loss;
    return EBB_OK;
}

static void grad_weight(const part *p, const ebb_call *call)
{
    ebb__gemm gemm = {
        .trans_a = true, .m = p->rows.classes, .n = p->inner, .k = p->rows.rows, .batch = 1, .alpha = 1,
        .beta = p->rows.first > 0 || call->accumulate[WEIGHT], .a = call->workspace, .lda = p->rows.classes,
        .b = (const char *)call->in[HIDDEN].data + p->hidden_at, .ldb = p->inner,
        .c = call->din[WEIGHT].data, .ldc = p->inner, .dtype = p->rows.dtype,
    };
    ebb__gemm_run(ebb__call_threads(call), &gemm);
}

static void grad_hidden(const part *p, const ebb_call *call)
{
    ebb__gemm gemm = {
        .m = p->rows.rows, .n = p->inner, .k = p->rows.classes, .batch = 1, .alpha = 1,
        .beta = call->accumulate[HIDDEN], .a = call->workspace, .lda = p->rows.classes,
        .b = call->in[WEIGHT].data, .ldb = p->inner, .c = (char *)call->din[HIDDEN].data + p->hidden_at,
        .ldc = p->inner, .dtype = p->rows.dtype,
    };
    ebb__gemm_run(ebb__call_threads(call), &gemm);
}

/* The gradient of hidden may lie over hidden: a part's rows are read before they are written. */
static ebb_status real_backward(const ebb_call *call)
{
    part p = first_part(call);
    const void *dy = call->dout[LOSS].data;
    p.rows.weight =
        (p.rows.dtype == EBB_F64 ? *(const double *)dy : *(const float *)dy) *
        ebb__loss_weight(p.rows.targets, EBB_ATTRS(call, const ebb__linear_cross_entropy_attrs)->normalizer);
    int64_t first = 0;
    do { /* once without rows too: the gradient of weight is then 0 */
        make_logits(&p, first);
        ebb__loss_backward(&p.rows);
        if (call->din[WEIGHT].data) grad_weight(&p, call);
        if (call->din[HIDDEN].data) grad_hidden(&p, call);
        first += p.rows.rows;
    } while (first < p.rows.targets->elems);
    return EBB_OK;
}

static ebb_status forward(const ebb_call *call) { return ebb__halves_run(call, EBB_FORWARD, real_forward); }
static ebb_status backward(const ebb_call *call) { return ebb__halves_run(call, EBB_BACKWARD, real_backward); }

/* ---- cases ------------------------------------------------------------------------------------ */

static const ebb__linear_cross_entropy_attrs one = { 0, 1 }, two = { 0, 2 }, four = { 0, 4 }, by_four = { 4, 3 },
                                             many = { 0, 100 }, none = { 0, 0 }, negative = { -1, 2 };
#define WITH(a) .attrs = &(a), .attrs_bytes = sizeof(ebb__linear_cross_entropy_attrs)
#define TARGETS_OF(kind, classes, ...) { __VA_ARGS__, kind, classes }

static const ebb_op_case cases[] = {
    { .name = "one part", .n_in = 3, WITH(one),
      .in = { { 2, { 6, 4 } }, { 2, { 5, 4 } }, TARGETS_OF(EBB_CASE_INDEX, 5, 1, { 6 }) } },
    { .name = "equal parts", .n_in = 3, WITH(two),
      .in = { { 2, { 6, 4 } }, { 2, { 5, 4 } }, TARGETS_OF(EBB_CASE_INDEX, 5, 1, { 6 }) } },
    { .name = "a smaller last part, some ignored", .n_in = 3, WITH(four),
      .in = { { 3, { 2, 5, 3 } }, { 2, { 7, 3 } }, TARGETS_OF(EBB_CASE_LABEL, 7, 2, { 2, 5 }) } },
    { .name = "given normalizer", .n_in = 3, WITH(by_four),
      .in = { { 2, { 6, 4 } }, { 2, { 5, 4 } }, TARGETS_OF(EBB_CASE_LABEL, 5, 1, { 6 }) } },
    { .name = "more parts than rows", .n_in = 3, WITH(many),
      .in = { { 2, { 3, 4 } }, { 2, { 5, 4 } }, TARGETS_OF(EBB_CASE_INDEX, 5, 1, { 3 }) } },
    { .name = "one row", .n_in = 3, WITH(two),
      .in = { { 1, { 4 } }, { 2, { 9, 4 } }, TARGETS_OF(EBB_CASE_INDEX, 9, 0, { 0 }) } },
    { .name = "more than a tile", .n_in = 3, WITH(two),
      .in = { { 2, { 35, 5 } }, { 2, { 41, 5 } }, TARGETS_OF(EBB_CASE_INDEX, 41, 1, { 35 }) } },
    { .name = "frozen weight", .n_in = 3, WITH(two),
      .in = { { 2, { 6, 4 } }, { 2, { 5, 4 }, .no_grad = true }, TARGETS_OF(EBB_CASE_INDEX, 5, 1, { 6 }) } },
    { .name = "frozen hidden", .n_in = 3, WITH(two),
      .in = { { 2, { 6, 4 }, .no_grad = true }, { 2, { 5, 4 } }, TARGETS_OF(EBB_CASE_INDEX, 5, 1, { 6 }) } },
    { .name = "strided", .n_in = 3, WITH(two),
      .in = { { 2, { 6, 4 }, .strided = true }, { 2, { 5, 4 }, .strided = true },
              { 1, { 6 }, EBB_CASE_INDEX, 5, .strided = true } } },
    { .name = "all ignored", .n_in = 3, WITH(two),
      .in = { { 2, { 4, 3 } }, { 2, { 5, 3 } }, TARGETS_OF(EBB_CASE_LABEL, 0, 1, { 4 }) } },
    { .name = "no rows", .n_in = 3, WITH(two),
      .in = { { 2, { 0, 4 } }, { 2, { 5, 4 } }, TARGETS_OF(EBB_CASE_INDEX, 5, 1, { 0 }) } },
    { .name = "inner sizes differ", .n_in = 3, WITH(two), .expect = EBB_ESHAPE,
      .in = { { 2, { 6, 4 } }, { 2, { 5, 3 } }, TARGETS_OF(EBB_CASE_INDEX, 5, 1, { 6 }) } },
    { .name = "rows differ", .n_in = 3, WITH(two), .expect = EBB_ESHAPE,
      .in = { { 2, { 6, 4 } }, { 2, { 5, 4 } }, TARGETS_OF(EBB_CASE_INDEX, 5, 1, { 5 }) } },
    { .name = "targets of floats", .n_in = 3, WITH(two), .expect = EBB_EDTYPE,
      .in = { { 2, { 6, 4 } }, { 2, { 5, 4 } }, { 1, { 6 } } } },
    { .name = "no parts", .n_in = 3, WITH(none), .expect = EBB_EINVAL,
      .in = { { 2, { 6, 4 } }, { 2, { 5, 4 } }, TARGETS_OF(EBB_CASE_INDEX, 5, 1, { 6 }) } },
    { .name = "negative normalizer", .n_in = 3, WITH(negative), .expect = EBB_EINVAL,
      .in = { { 2, { 6, 4 } }, { 2, { 5, 4 } }, TARGETS_OF(EBB_CASE_INDEX, 5, 1, { 6 }) } },
};

#define NEEDS (EBB_IN(HIDDEN) | EBB_IN(WEIGHT) | EBB_IN(TARGETS) | EBB_OUT(LSE))

const ebb_op ebb_op_linear_cross_entropy = {
    .name = "linear_cross_entropy", .min_in = 3, .max_in = 3, .n_out = 2, .n_aux = 1,
    .flags = EBB_OP_JOINT | EBB_OP_GRAD_OVER_IN, .no_grad_in = EBB_IN(TARGETS),
    .needs = { [HIDDEN] = NEEDS, [WEIGHT] = NEEDS },
    .infer = infer, .cost = cost, .cpu = { forward, backward, workspace },
    .cuda_workspace = cuda_workspace,
    .cases = cases, .n_cases = sizeof cases / sizeof *cases,
    .autocast = EBB_AUTOCAST_LOW,
};

ebb_status ebb_linear_cross_entropy(ebb_tensor **out, ebb_tensor *hidden, ebb_tensor *weight, ebb_tensor *targets,
                                    double normalizer, int64_t chunks)
{
    ebb__linear_cross_entropy_attrs at = { .normalizer = normalizer, .chunks = chunks };
    return ebb_apply(&ebb_op_linear_cross_entropy, (ebb_tensor **[]){ out }, 1,
                     (ebb_tensor *[]){ hidden, weight, targets }, 3, &at, sizeof at);
}
