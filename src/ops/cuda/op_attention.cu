/* ops/cuda/op_attention.cu: attention and attention_packed; shapes in ops/op_attention.c.  Halves go to cuDNN
 * where it takes them (device/cuda/cudnn.h says when), all else to our own kernels. */
#include "ops/cuda/attention.h"
#include "ops/cuda/scratch.h"

enum { Q, K, V, MASK };
enum { OUT, LSE };

static bool is_packed(const ebb_call *call) { return call->n_in == 1; }

static ebb__cuda_attention_call shape_of(const ebb_call *call)
{
    const ebb__attention_attrs *at = EBB_ATTRS(call, const ebb__attention_attrs);
    ebb__cuda_attention_call c = {};
    c.dtype = call->in[0].dtype;
    c.batch = call->in[0].dims[0];
    c.t_q = call->in[0].dims[1];
    c.t_k = is_packed(call) ? c.t_q : call->in[K].dims[1];
    c.heads = at->heads;
    c.kv_heads = at->kv_heads ? at->kv_heads : at->heads;
    c.head_dim = call->out[OUT].dims[2] / c.heads;
    c.scale = at->scale != 0 ? at->scale : 1 / sqrt((double)(c.head_dim > 0 ? c.head_dim : 1));
    c.causal = at->causal;
    c.workspace = call->workspace;
    c.workspace_bytes = call->workspace_bytes;
    return c;
}

static ebb__cuda_heads heads_of(const ebb_arg *arg, int64_t row_stride) { return { arg->data, row_stride }; }

/* Heads from `first` on of packed rows. */
static ebb__cuda_heads slice_of(const ebb__cuda_attention_call *c, const ebb_arg *packed, int64_t first)
{
    size_t offset = (size_t)(first * c->head_dim) * ebb__cuda_float_bytes(c->dtype);
    return { packed->data ? (char *)packed->data + offset : NULL, (c->heads + 2 * c->kv_heads) * c->head_dim };
}

static void set_separate(ebb__cuda_own_attention *a, const ebb_call *call)
{
    ebb__cuda_attention_call *c = &a->common;
    int64_t row_q = c->heads * c->head_dim, row_kv = c->kv_heads * c->head_dim;
    c->q = heads_of(&call->in[Q], row_q);
    c->k = heads_of(&call->in[K], row_kv);
    c->v = heads_of(&call->in[V], row_kv);
    c->dq = heads_of(&call->din[Q], row_q);
    c->dk = heads_of(&call->din[K], row_kv);
    c->dv = heads_of(&call->din[V], row_kv);
    a->accumulate_q = call->accumulate[Q];
    a->accumulate_k = call->accumulate[K];
    a->accumulate_v = call->accumulate[V];
    if (call->n_in <= MASK) return;
    bool per_row = call->in[MASK].ndim == 3;
    a->mask = (const unsigned char *)call->in[MASK].data;
    a->mask_row = per_row ? c->t_k : 0;
    a->mask_batch = per_row ? c->t_q * c->t_k : c->t_k;
}

static void set_packed(ebb__cuda_own_attention *a, const ebb_call *call)
{
    ebb__cuda_attention_call *c = &a->common;
    c->q = slice_of(c, &call->in[0], 0);
    c->k = slice_of(c, &call->in[0], c->heads);
    c->v = slice_of(c, &call->in[0], c->heads + c->kv_heads);
    c->dq = slice_of(c, &call->din[0], 0);
    c->dk = slice_of(c, &call->din[0], c->heads);
    c->dv = slice_of(c, &call->din[0], c->heads + c->kv_heads);
    a->accumulate_q = a->accumulate_k = a->accumulate_v = call->accumulate[0];
}

static ebb__cuda_own_attention attention_of(const ebb_call *call)
{
    ebb__cuda_own_attention a = {};
    a.common = shape_of(call);
    if (is_packed(call)) set_packed(&a, call);
    else set_separate(&a, call);
    int64_t row = a.common.heads * a.common.head_dim;
    a.common.out = heads_of(&call->out[OUT], row);
    a.common.dout = heads_of(&call->dout[OUT], row);
    a.lse = call->out[LSE].data;
    a.common.lse = a.common.dtype == EBB_F64 ? NULL : (float *)a.lse;
    a.common.accumulate = a.accumulate_q || a.accumulate_k || a.accumulate_v;
    return a;
}

static bool asks_cudnn(const ebb__cuda *cuda, const ebb__cuda_own_attention *a)
{
    return cuda->attention && !a->mask && (a->common.dtype == EBB_F16 || a->common.dtype == EBB_BF16);
}

static ebb_status forward(void *self, const ebb_call *call)
{
    ebb__cuda *cuda = (ebb__cuda *)self;
    ebb__cuda_own_attention a = attention_of(call);
    bool taken = false;
    ebb_status st = asks_cudnn(cuda, &a) ? ebb__cuda_attention_forward(cuda, &a.common, &taken) : EBB_OK;
    return taken || st != EBB_OK ? st : ebb__cuda_own_attention_forward(cuda, &a);
}

static ebb_status backward(void *self, const ebb_call *call)
{
    ebb__cuda *cuda = (ebb__cuda *)self;
    ebb__cuda_own_attention a = attention_of(call);
    bool taken = false;
    ebb_status st = asks_cudnn(cuda, &a) ? ebb__cuda_attention_backward(cuda, &a.common, &taken) : EBB_OK;
    return taken || st != EBB_OK ? st : ebb__cuda_own_attention_backward(cuda, &a);
}

extern "C" const ebb__accel_op ebb_cuda_attention = { "attention", forward, backward };
extern "C" const ebb__accel_op ebb_cuda_attention_packed = { "attention_packed", forward, backward };
