/* ops/cuda/op_linear_cross_entropy.cu: cross_entropy(linear(hidden, weight), targets), some rows at a time;
 * formulas in ops/op_linear_cross_entropy.c.  The scratch is one part's logits, then the rows' losses
 * (forward) or the weight of a row (backward). */
#include "ops/cuda/loss.h"
#include "ops/cuda/scratch.h"

enum { HIDDEN, WEIGHT, TARGETS };
enum { LOSS, LSE };

typedef struct parts {
    ebb__cuda_loss loss;    /* of the part at hand */
    int64_t inner, most;    /* columns of hidden; rows of a part */
    ebb_dtype dtype;
    void *logits, *rest;    /* scratch */
    size_t hidden_at;       /* bytes from the first row of hidden to the part's */
} parts;

static parts parts_of(const ebb__cuda *cuda, const ebb_call *call)
{
    const ebb_arg *hidden = &call->in[HIDDEN], *targets = &call->in[TARGETS];
    const ebb__linear_cross_entropy_attrs *at = EBB_ATTRS(call, const ebb__linear_cross_entropy_attrs);
    int64_t rows = targets->elems, classes = call->in[WEIGHT].dims[0], most = ebb__ceil_div(rows, at->chunks);
    parts p = {};
    p.loss = { ebb__cuda_indices_of(targets), 0, 0, classes, rows, at->normalizer, cuda->error,
               ebb__cuda_bad_code(EBB__CUDA_ROW_linear_cross_entropy, EBB__CUDA_BAD_TARGET) };
    p.inner = hidden->dims[hidden->ndim - 1];
    p.most = most > 0 ? most : 1;
    p.dtype = hidden->dtype;
    p.logits = call->workspace;
    p.rest = (char *)call->workspace + ebb__cuda_scratch((size_t)(p.most * classes) * ebb__cuda_float_bytes(p.dtype));
    return p;
}

/* Makes the logits of the rows from `first` on. */
static ebb_status make_logits(ebb__cuda *cuda, const ebb_call *call, parts *p, int64_t first)
{
    int64_t left = p->loss.all_rows - first;
    p->loss.first = first;
    p->loss.rows = p->most < left ? p->most : left;
    p->hidden_at = (size_t)(first * p->inner) * ebb__cuda_float_bytes(p->dtype);
    ebb__cuda_gemm gemm = {};
    gemm.trans_b = true;
    gemm.m = p->loss.rows;
    gemm.n = p->loss.classes;
    gemm.k = gemm.lda = gemm.ldb = p->inner;
    gemm.batch = 1;
    gemm.alpha = 1;
    gemm.a = (const char *)call->in[HIDDEN].data + p->hidden_at;
    gemm.b = call->in[WEIGHT].data;
    gemm.c = p->logits;
    gemm.ldc = p->loss.classes;
    gemm.dtype = p->dtype;
    return ebb__cuda_gemm_run(cuda, &gemm);
}

template <class T> static ebb_status forward_of(ebb__cuda *cuda, const ebb_call *call)
{
    typedef ebb__real<T> R;
    parts p = parts_of(cuda, call);
    R *losses = (R *)p.rest, *lses = (R *)call->out[LSE].data, *loss = (R *)call->out[LOSS].data;
    const T *logits = (const T *)p.logits;
    for (int64_t first = 0; first < p.loss.all_rows; first += p.loss.rows) {
        ebb_status st = make_logits(cuda, call, &p, first);
        if (st != EBB_OK) return st;
        ebb__cuda_loss l = p.loss;
        EBB_ROW_LAUNCH(cuda, ebb__loss_rows, T, l.rows, l.classes, losses, lses, logits, l);
    }
    ebb__cuda_loss l = p.loss;
    EBB_LAUNCH(cuda, ebb__loss_total_f64<R>, 1, EBB__LOSS_THREADS, 0, loss, losses, l);
    return EBB_OK;
}

/* dweight (+)= dlogits^T hidden */
static ebb_status grad_weight(ebb__cuda *cuda, const ebb_call *call, const parts *p)
{
    ebb__cuda_gemm gemm = {};
    gemm.trans_a = true;
    gemm.m = gemm.lda = p->loss.classes;
    gemm.n = gemm.ldb = gemm.ldc = p->inner;
    gemm.k = p->loss.rows;
    gemm.batch = 1;
    gemm.alpha = 1;
    gemm.beta = p->loss.first > 0 || call->accumulate[WEIGHT];
    gemm.a = p->logits;
    gemm.b = (const char *)call->in[HIDDEN].data + p->hidden_at;
    gemm.c = call->din[WEIGHT].data;
    gemm.dtype = p->dtype;
    return ebb__cuda_gemm_run(cuda, &gemm);
}

/* dhidden (+)= dlogits weight */
static ebb_status grad_hidden(ebb__cuda *cuda, const ebb_call *call, const parts *p)
{
    ebb__cuda_gemm gemm = {};
    gemm.m = p->loss.rows;
    gemm.n = gemm.ldb = gemm.ldc = p->inner;
    gemm.k = gemm.lda = p->loss.classes;
    gemm.batch = 1;
    gemm.alpha = 1;
    gemm.beta = call->accumulate[HIDDEN];
    gemm.a = p->logits;
    gemm.b = call->in[WEIGHT].data;
    gemm.c = (char *)call->din[HIDDEN].data + p->hidden_at;
    gemm.dtype = p->dtype;
    return ebb__cuda_gemm_run(cuda, &gemm);
}

/* The gradient of hidden may lie over hidden: a part's rows are read before they are written. */
template <class T> static ebb_status backward_of(ebb__cuda *cuda, const ebb_call *call)
{
    typedef ebb__real<T> R;
    parts p = parts_of(cuda, call);
    R *weight = (R *)p.rest;
    const R *lses = (const R *)call->out[LSE].data, *dy = (const R *)call->dout[LOSS].data;
    T *logits = (T *)p.logits;
    ebb__cuda_loss all = p.loss;
    EBB_LAUNCH(cuda, ebb__loss_row_weight_f64<R>, 1, EBB__LOSS_THREADS, 0, weight, dy, all);
    int64_t first = 0;
    do { /* once without rows too: the gradient of weight is then 0 */
        ebb_status st = make_logits(cuda, call, &p, first);
        if (st != EBB_OK) return st;
        ebb__cuda_loss l = p.loss;
        EBB_ROW_LAUNCH(cuda, ebb__loss_grad_rows, T, l.rows, l.classes, logits, logits, lses, weight, l, false);
        if (call->din[WEIGHT].data) st = grad_weight(cuda, call, &p);
        if (st == EBB_OK && call->din[HIDDEN].data) st = grad_hidden(cuda, call, &p);
        if (st != EBB_OK) return st;
        first += p.loss.rows;
    } while (first < p.loss.all_rows);
    return EBB_OK;
}

static ebb_status forward(void *self, const ebb_call *call)
{
    EBB_FLOATS((ebb__cuda *)self, call->in[HIDDEN].dtype, T, return forward_of<T>((ebb__cuda *)self, call));
    return EBB_OK;
}

static ebb_status backward(void *self, const ebb_call *call)
{
    EBB_FLOATS((ebb__cuda *)self, call->in[HIDDEN].dtype, T, return backward_of<T>((ebb__cuda *)self, call));
    return EBB_OK;
}

extern "C" const ebb__accel_op ebb_cuda_linear_cross_entropy = { "linear_cross_entropy", forward, backward };
