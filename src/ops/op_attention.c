/* op_attention.c: attention and attention_packed: softmax(q k^T * scale + mask) v per head.
 * q [B, Tq, H * D], k and v [B, Tk, KV * D], mask u8 [B, Tk] or [B, Tq, Tk] or absent; packed:
 * qkv [B, T, (H + 2 KV) * D], all q heads, then all k heads, then all v heads.  Out [B, Tq, H * D].
 * Query heads h * H/KV ... share kv head h.  Auxiliary output: the log-sum-exp per row, [B, H, Tq].
 * The kernels are in attention_kernels.c. */
#include <ebb/ops.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include "ops/attention.h"
#include "ops/cuda/scratch.h"
#include "ops/halves.h"
#include "ops/table.h"

enum { Q, K, V, MASK };
enum { OUT, LSE };
enum { MAX_HEADS = 65536 }; /* as in configs; keeps sums and products of heads far from overflow */

/* ---- shapes ----------------------------------------------------------------------------------- */

/* What shapes and attributes say, without data; infer() has checked them. */
static ebb__attention from_attrs(const ebb_call *call)
{
    const ebb__attention_attrs *at = EBB_ATTRS(call, ebb__attention_attrs);
    return (ebb__attention){ .call = call, .dtype = call->in[0].dtype, .batch = call->in[0].dims[0],
                             .t_q = call->in[0].dims[1], .heads = at->heads, .causal = at->causal,
                             .kv_heads = at->kv_heads ? at->kv_heads : at->heads, .scale = at->scale };
}

static double scale_or_default(double scale, int64_t head_dim)
{
    return scale != 0 ? scale : 1 / sqrt((double)(head_dim > 0 ? head_dim : 1));
}

static ebb_status check_attrs(const ebb_call *call)
{
    const char *name = call->op->name;
    ebb__attention a = from_attrs(call);
    ebb_status st = ebb__require_float_dtype(call, 0);
    if (st != EBB_OK) return st;
    if (a.heads < 1 || a.heads > MAX_HEADS) {
        return ebb_fail(EBB_EINVAL, "%s: %lld heads; allowed are 1 to %d", name, (long long)a.heads, MAX_HEADS);
    }
    if (a.kv_heads < 1 || a.heads % a.kv_heads != 0) {
        return ebb_fail(EBB_EINVAL, "%s: %lld kv_heads; they must divide the %lld heads (0: as many)", name,
                        (long long)a.kv_heads, (long long)a.heads);
    }
    if (!isfinite(a.scale)) return ebb_fail(EBB_EINVAL, "%s: scale is %g", name, a.scale);
    return EBB_OK;
}

static ebb_status set_outputs(ebb_call *call, int64_t head_dim)
{
    const ebb_arg *first = &call->in[0];
    int64_t batch = first->dims[0], rows = first->dims[1], heads = from_attrs(call).heads;
    ebb_status st = ebb_arg_set(&call->out[OUT], first->dtype, 3, (int64_t[]){ batch, rows, heads * head_dim });
    if (st != EBB_OK) return st;
    return ebb_arg_set(&call->out[LSE], ebb__compute_dtype(first->dtype), 3, (int64_t[]){ batch, heads, rows });
}

static ebb_status check_mask(const ebb_call *call)
{
    const ebb_arg *mask = &call->in[MASK];
    int64_t batch = call->in[Q].dims[0], t_q = call->in[Q].dims[1], t_k = call->in[K].dims[1];
    char text[96];
    if (mask->dtype != EBB_U8) {
        return ebb_fail(EBB_EDTYPE, "attention: the mask is %s; it must be u8", ebb_dtype_name(mask->dtype));
    }
    bool per_key = mask->ndim == 2 && mask->dims[0] == batch && mask->dims[1] == t_k;
    bool per_row = mask->ndim == 3 && mask->dims[0] == batch && mask->dims[1] == t_q && mask->dims[2] == t_k;
    if (per_key || per_row) return EBB_OK;
    return ebb_fail(EBB_ESHAPE, "attention: the mask is %s; it must be [%lld, %lld] or [%lld, %lld, %lld]",
                    ebb_arg_describe(mask, text, sizeof text), (long long)batch, (long long)t_k, (long long)batch,
                    (long long)t_q, (long long)t_k);
}

static ebb_status infer(ebb_call *call)
{
    const ebb_arg *q = &call->in[Q], *k = &call->in[K], *v = &call->in[V];
    char text[3][96];
    ebb_status st = check_attrs(call);
    if (st != EBB_OK) return st;
    ebb__attention a = from_attrs(call);
    bool fits = q->ndim == 3 && k->ndim == 3 && v->ndim == 3 && q->dims[2] % a.heads == 0;
    for (int i = 0; i < 3 && fits; i++) fits = k->dims[i] == v->dims[i];
    fits = fits && k->dims[0] == q->dims[0] && k->dims[2] == q->dims[2] / a.heads * a.kv_heads;
    if (!fits) {
        return ebb_fail(EBB_ESHAPE, "attention: q %s, k %s, v %s with %lld heads and %lld kv_heads; they must be "
                        "[B, Tq, H * D], [B, Tk, KV * D], [B, Tk, KV * D]",
                        ebb_arg_describe(q, text[0], sizeof text[0]), ebb_arg_describe(k, text[1], sizeof text[1]),
                        ebb_arg_describe(v, text[2], sizeof text[2]), (long long)a.heads, (long long)a.kv_heads);
    }
    st = call->n_in > MASK ? check_mask(call) : EBB_OK;
    if (st != EBB_OK) return st;
    return set_outputs(call, q->dims[2] / a.heads);
}

static ebb_status packed_infer(ebb_call *call)
{
    const ebb_arg *qkv = &call->in[0];
    char text[96];
    ebb_status st = check_attrs(call);
    if (st != EBB_OK) return st;
    ebb__attention a = from_attrs(call);
    int64_t slices = a.heads + 2 * a.kv_heads;
    if (qkv->ndim != 3 || qkv->dims[2] % slices != 0) {
        return ebb_fail(EBB_ESHAPE, "attention_packed: qkv %s with %lld heads and %lld kv_heads; it must be "
                        "[B, T, (H + 2 KV) * D]", ebb_arg_describe(qkv, text, sizeof text), (long long)a.heads,
                        (long long)a.kv_heads);
    }
    return set_outputs(call, qkv->dims[2] / slices);
}

/* By its inputs, not its address: a copy of the descriptor is as good. */
static bool is_packed(const ebb_call *call) { return call->n_in == 1; }

/* The shapes of either op. */
static ebb__attention shape_of(const ebb_call *call)
{
    ebb__attention a = from_attrs(call);
    a.t_k = is_packed(call) ? a.t_q : call->in[K].dims[1];
    a.head_dim = call->out[OUT].dims[2] / a.heads;
    a.scale = scale_or_default(a.scale, a.head_dim);
    return a;
}

static void cost(const ebb_call *call, ebb_cost *k)
{
    ebb__attention a = shape_of(call);
    double seen = (double)a.t_q * (double)a.t_k;
    if (a.causal && a.t_q <= a.t_k) seen -= (double)a.t_q * (double)(a.t_q - 1) / 2;
    double macs = (double)a.batch * (double)a.heads * (double)a.head_dim * seen;
    double bytes = (double)call->out[OUT].elems * (double)ebb_dtype_bytes(a.dtype);
    for (int i = 0; i < call->n_in; i++) {
        bytes += (double)call->in[i].elems * (double)ebb_dtype_bytes(call->in[i].dtype);
    }
    *k = (ebb_cost){ .fwd_flops = 4 * macs, .bwd_flops = 10 * macs, .fwd_bytes = bytes, .bwd_bytes = 3 * bytes };
}

static size_t own_workspace(const ebb_call *call, int pass, int threads)
{
    ebb__attention a = shape_of(call);
    return ebb__attention_workspace(&a, pass, threads);
}

static size_t workspace(const ebb_call *call, int pass, int threads)
{
    return ebb__halves_workspace(call, pass, threads, own_workspace);
}

/* cuDNN computes the gradients of halves only where it may do so in varying order (docs/cuda.md). */
static bool cudnn_backward(const ebb__attention *a)
{
    const char *way = getenv("EBB_CUDA_ATTENTION");
    return (a->dtype == EBB_F16 || a->dtype == EBB_BF16) && way && strcmp(way, "fast") == 0;
}

/* Own kernels: delta, one number per row of a head, and where a head takes several blocks a copy of dout.
 * cuDNN: a number per row, the sums of dq in f32, and as much again (device/cuda/cudnn.h). */
static size_t cuda_workspace(const ebb_call *call, int pass)
{
    ebb__attention a = shape_of(call);
    if (pass == EBB_FORWARD) return 0;
    size_t rows = (size_t)(a.batch * a.heads * a.t_q), elems = rows * (size_t)a.head_dim;
    size_t bytes = ebb__cuda_scratch(rows * ebb__cuda_real_bytes(a.dtype));
    if (cudnn_backward(&a)) bytes += 2 * ebb__cuda_scratch(elems * sizeof(float));
    else if (a.head_dim > ebb__cuda_attention_width(a.dtype) && !is_packed(call) && call->want[Q])
        bytes += elems * ebb_dtype_bytes(a.dtype);
    return bytes;
}

/* ---- data ------------------------------------------------------------------------------------- */

static ebb__heads heads_of(const ebb_arg *arg, int64_t row_stride) { return (ebb__heads){ arg->data, row_stride }; }

/* Head `first` on of packed rows, as heads of their own. */
static ebb__heads slice_of(const ebb__attention *a, const ebb_arg *packed, int64_t first)
{
    int64_t offset = first * a->head_dim, row = (a->heads + 2 * a->kv_heads) * a->head_dim;
    char *data = packed->data;
    return (ebb__heads){ data ? data + offset * (int64_t)ebb_dtype_bytes(a->dtype) : NULL, row };
}

static void set_separate(ebb__attention *a, const ebb_call *call)
{
    int64_t row_q = a->heads * a->head_dim, row_kv = a->kv_heads * a->head_dim;
    a->q = heads_of(&call->in[Q], row_q);
    a->k = heads_of(&call->in[K], row_kv);
    a->v = heads_of(&call->in[V], row_kv);
    a->dq = heads_of(&call->din[Q], row_q);
    a->dk = heads_of(&call->din[K], row_kv);
    a->dv = heads_of(&call->din[V], row_kv);
    a->accumulate_q = call->accumulate[Q];
    a->accumulate_k = call->accumulate[K];
    a->accumulate_v = call->accumulate[V];
    if (call->n_in <= MASK) return;
    bool per_row = call->in[MASK].ndim == 3;
    a->mask = call->in[MASK].data;
    a->mask_row = per_row ? a->t_k : 0;
    a->mask_batch = per_row ? a->t_q * a->t_k : a->t_k;
}

static void set_packed(ebb__attention *a, const ebb_call *call)
{
    a->q = slice_of(a, &call->in[0], 0);
    a->k = slice_of(a, &call->in[0], a->heads);
    a->v = slice_of(a, &call->in[0], a->heads + a->kv_heads);
    a->dq = slice_of(a, &call->din[0], 0);
    a->dk = slice_of(a, &call->din[0], a->heads);
    a->dv = slice_of(a, &call->din[0], a->heads + a->kv_heads);
    a->accumulate_q = a->accumulate_k = a->accumulate_v = call->accumulate[0];
}

static ebb__attention attention_of(const ebb_call *call)
{
    ebb__attention a = shape_of(call);
    if (is_packed(call)) set_packed(&a, call);
    else set_separate(&a, call);
    a.out = heads_of(&call->out[OUT], a.heads * a.head_dim);
    a.dout = heads_of(&call->dout[OUT], a.heads * a.head_dim);
    a.lse = call->out[LSE].data;
    return a;
}

static ebb_status real_forward(const ebb_call *call)
{
    ebb__attention a = attention_of(call);
    ebb__attention_forward(&a);
    return EBB_OK;
}

static ebb_status real_backward(const ebb_call *call)
{
    ebb__attention a = attention_of(call);
    ebb__attention_backward(&a);
    return EBB_OK;
}

static ebb_status forward(const ebb_call *call) { return ebb__halves_run(call, EBB_FORWARD, real_forward); }
static ebb_status backward(const ebb_call *call) { return ebb__halves_run(call, EBB_BACKWARD, real_backward); }

/* ---- cases -------------------------------------------------------------------------------------- */

static const ebb__attention_attrs one_head = { .heads = 1 }, two_heads = { .heads = 2 },
    two_causal = { .heads = 2, .causal = true }, grouped = { .heads = 4, .kv_heads = 2, .causal = true },
    multi_query = { .heads = 3, .kv_heads = 1 }, scaled = { .heads = 2, .scale = 0.25, .causal = true },
    no_heads = { .heads = 0 }, huge_heads = { .heads = INT64_MAX }, uneven = { .heads = 4, .kv_heads = 3 };
#define WITH(a) .attrs = &(a), .attrs_bytes = sizeof(ebb__attention_attrs)

static const ebb_op_case cases[] = {
    { .name = "one head", .n_in = 3, .in = { { 3, { 2, 3, 4 } }, { 3, { 2, 5, 4 } }, { 3, { 2, 5, 4 } } },
      WITH(one_head) },
    { .name = "causal", .n_in = 3, .in = { { 3, { 2, 5, 6 } }, { 3, { 2, 5, 6 } }, { 3, { 2, 5, 6 } } },
      WITH(two_causal) },
    { .name = "causal, more keys than queries", .n_in = 3,
      .in = { { 3, { 1, 3, 4 } }, { 3, { 1, 6, 4 } }, { 3, { 1, 6, 4 } } }, WITH(two_causal) },
    { .name = "causal, blind first rows", .n_in = 3,
      .in = { { 3, { 1, 5, 4 } }, { 3, { 1, 2, 4 } }, { 3, { 1, 2, 4 } } }, WITH(two_causal) },
    { .name = "grouped heads", .n_in = 3, .in = { { 3, { 2, 4, 12 } }, { 3, { 2, 4, 6 } }, { 3, { 2, 4, 6 } } },
      WITH(grouped) },
    { .name = "one kv head", .n_in = 3, .in = { { 3, { 2, 4, 6 } }, { 3, { 2, 3, 2 } }, { 3, { 2, 3, 2 } } },
      WITH(multi_query) },
    { .name = "mask per key", .n_in = 4,
      .in = { { 3, { 2, 3, 4 } }, { 3, { 2, 5, 4 } }, { 3, { 2, 5, 4 } }, { 2, { 2, 5 }, EBB_CASE_MASK } },
      WITH(two_heads) },
    { .name = "mask per row, causal", .n_in = 4,
      .in = { { 3, { 2, 4, 4 } }, { 3, { 2, 4, 4 } }, { 3, { 2, 4, 4 } }, { 3, { 2, 4, 4 }, EBB_CASE_MASK } },
      WITH(two_causal) },
    { .name = "own scale, strided", .n_in = 3,
      .in = { { 3, { 1, 4, 4 }, .strided = true }, { 3, { 1, 4, 4 }, .strided = true }, { 3, { 1, 4, 4 } } },
      WITH(scaled) },
    { .name = "only v needs a gradient", .n_in = 3,
      .in = { { 3, { 1, 4, 4 }, .no_grad = true }, { 3, { 1, 4, 4 }, .no_grad = true }, { 3, { 1, 4, 4 } } },
      WITH(two_heads) },
    { .name = "several tiles", .n_in = 3,
      .in = { { 3, { 1, 131, 2 } }, { 3, { 1, 260, 2 }, .no_grad = true }, { 3, { 1, 260, 2 }, .no_grad = true } },
      WITH(one_head) },
    { .name = "no rows", .n_in = 3, .in = { { 3, { 2, 0, 4 } }, { 3, { 2, 3, 4 } }, { 3, { 2, 3, 4 } } },
      WITH(two_heads) },
    { .name = "no keys", .n_in = 3, .in = { { 3, { 2, 3, 4 } }, { 3, { 2, 0, 4 } }, { 3, { 2, 0, 4 } } },
      WITH(two_heads) },
    { .name = "no batch", .n_in = 3, .in = { { 3, { 0, 3, 4 } }, { 3, { 0, 3, 4 } }, { 3, { 0, 3, 4 } } },
      WITH(two_heads) },
    { .name = "no heads", .n_in = 3, .in = { { 3, { 1, 3, 4 } }, { 3, { 1, 3, 4 } }, { 3, { 1, 3, 4 } } },
      WITH(no_heads), .expect = EBB_EINVAL },
    { .name = "2^63 - 1 heads of nothing", .n_in = 3,
      .in = { { 3, { 1, 3, 0 } }, { 3, { 1, 3, 0 } }, { 3, { 1, 3, 0 } } }, WITH(huge_heads), .expect = EBB_EINVAL },
    { .name = "kv heads do not divide", .n_in = 3,
      .in = { { 3, { 1, 3, 4 } }, { 3, { 1, 3, 4 } }, { 3, { 1, 3, 4 } } }, WITH(uneven), .expect = EBB_EINVAL },
    { .name = "k and v differ", .n_in = 3, .in = { { 3, { 1, 3, 4 } }, { 3, { 1, 3, 4 } }, { 3, { 1, 2, 4 } } },
      WITH(two_heads), .expect = EBB_ESHAPE },
    { .name = "mask of another length", .n_in = 4,
      .in = { { 3, { 1, 3, 4 } }, { 3, { 1, 3, 4 } }, { 3, { 1, 3, 4 } }, { 2, { 1, 4 }, EBB_CASE_MASK } },
      WITH(two_heads), .expect = EBB_ESHAPE },
};

static const ebb_op_case packed_cases[] = {
    { .name = "two heads", .n_in = 1, .in = { { 3, { 2, 4, 12 } } }, WITH(two_heads) },
    { .name = "causal", .n_in = 1, .in = { { 3, { 2, 5, 18 } } }, WITH(two_causal) },
    { .name = "grouped heads", .n_in = 1, .in = { { 3, { 2, 4, 16 } } }, WITH(grouped) },
    { .name = "strided", .n_in = 1, .in = { { 3, { 1, 4, 12 }, .strided = true } }, WITH(scaled) },
    { .name = "several tiles", .n_in = 1, .in = { { 3, { 1, 140, 3 } } }, WITH(one_head) },
    { .name = "one row", .n_in = 1, .in = { { 3, { 1, 1, 12 } } }, WITH(two_causal) },
    { .name = "no rows", .n_in = 1, .in = { { 3, { 2, 0, 12 } } }, WITH(two_heads) },
    { .name = "2^63 - 1 heads", .n_in = 1, .in = { { 3, { 2, 4, 12 } } }, WITH(huge_heads), .expect = EBB_EINVAL },
    { .name = "width does not divide", .n_in = 1, .in = { { 3, { 2, 4, 13 } } }, WITH(two_heads),
      .expect = EBB_ESHAPE },
};

/* dq may lie over dout: a tile of dout is read to the end before its dq is written. */
const ebb_op ebb_op_attention = {
    .name = "attention", .min_in = 3, .max_in = 4, .n_out = 2, .n_aux = 1,
    .flags = EBB_OP_JOINT | EBB_OP_GRAD_OVER_DOUT, .no_grad_in = EBB_IN(MASK),
    .needs = { [Q] = EBB_IN(Q) | EBB_IN(K) | EBB_IN(V) | EBB_IN(MASK) | EBB_OUT(OUT) | EBB_OUT(LSE),
               [K] = EBB_IN(Q) | EBB_IN(K) | EBB_IN(V) | EBB_IN(MASK) | EBB_OUT(OUT) | EBB_OUT(LSE),
               [V] = EBB_IN(Q) | EBB_IN(K) | EBB_IN(MASK) | EBB_OUT(LSE) },
    .infer = infer, .cost = cost, .cpu = { forward, backward, workspace },
    .cuda_workspace = cuda_workspace,
    .cases = cases, .n_cases = sizeof cases / sizeof *cases,
    .autocast = EBB_AUTOCAST_LOW,
};

const ebb_op ebb_op_attention_packed = {
    .name = "attention_packed", .min_in = 1, .max_in = 1, .n_out = 2, .n_aux = 1,
    .flags = EBB_OP_JOINT, .needs = { EBB_IN(0) | EBB_OUT(OUT) | EBB_OUT(LSE) },
    .infer = packed_infer, .cost = cost, .cpu = { forward, backward, workspace },
    .cuda_workspace = cuda_workspace,
    .cases = packed_cases, .n_cases = sizeof packed_cases / sizeof *packed_cases,
    .autocast = EBB_AUTOCAST_LOW,
};

/* The attributes of a call; NULL where there are no options. */
static ebb_status apply(const ebb_op *op, ebb_tensor **out, ebb_tensor *const ins[], int n_ins,
                        const ebb_attention_options *options)
{
    if (!options) return ebb_fail(EBB_EINVAL, "%s: options are NULL", op->name);
    ebb__attention_attrs at = { .heads = options->heads, .kv_heads = options->kv_heads,
                                .causal = options->causal, .scale = options->scale };
    return ebb_apply(op, (ebb_tensor **[]){ out }, 1, ins, n_ins, &at, sizeof at);
}

ebb_status ebb_attention(ebb_tensor **out, ebb_tensor *q, ebb_tensor *k, ebb_tensor *v, ebb_tensor *mask,
                         const ebb_attention_options *options)
{
    return apply(&ebb_op_attention, out, (ebb_tensor *[]){ q, k, v, mask }, mask ? 4 : 3, options);
}

ebb_status ebb_attention_packed(ebb_tensor **out, ebb_tensor *qkv, const ebb_attention_options *options)
{
    return apply(&ebb_op_attention_packed, out, (ebb_tensor *[]){ qkv }, 1, options);
}
