/* ops/cuda/op_cross_entropy.cu: softmax and loss in one pass over logits, of which log-sum-exps stay;
 * formulas in ops/op_cross_entropy.c. */
#include "ops/cuda/loss.h"

enum { LOGITS, TARGETS };
enum { LOSS, LSE };

static ebb__cuda_loss loss_of(const ebb__cuda *cuda, const ebb_call *call)
{
    const ebb_arg *logits = &call->in[LOGITS];
    int64_t rows = call->in[TARGETS].elems;
    return { ebb__cuda_indices_of(&call->in[TARGETS]), 0, rows, logits->dims[logits->ndim - 1], rows,
             EBB_ATTRS(call, const ebb__cross_entropy_attrs)->normalizer, cuda->error,
             ebb__cuda_bad_code(EBB__CUDA_ROW_cross_entropy, EBB__CUDA_BAD_TARGET) };
}

static ebb_status forward(void *self, const ebb_call *call)
{
    ebb__cuda *cuda = (ebb__cuda *)self;
    ebb__cuda_loss l = loss_of(cuda, call);
    const void *logits = call->in[LOGITS].data;
    void *losses = call->workspace, *lses = call->out[LSE].data, *loss = call->out[LOSS].data;
    EBB_FLOATS(cuda, call->in[LOGITS].dtype, T, {
        typedef ebb__real<T> R;
        EBB_ROW_LAUNCH(cuda, ebb__loss_rows, T, l.rows, l.classes, (R *)losses, (R *)lses, (const T *)logits, l);
        EBB_LAUNCH(cuda, ebb__loss_total_f64<R>, 1, EBB__LOSS_THREADS, 0, (R *)loss, (const R *)losses, l);
    });
    return EBB_OK;
}

static ebb_status backward(void *self, const ebb_call *call)
{
    ebb__cuda *cuda = (ebb__cuda *)self;
    ebb__cuda_loss l = loss_of(cuda, call);
    const void *logits = call->in[LOGITS].data, *lses = call->out[LSE].data, *dy = call->dout[LOSS].data;
    void *weight = call->workspace, *dlogits = call->din[LOGITS].data;
    bool accumulate = call->accumulate[LOGITS];
    if (!dlogits || call->in[LOGITS].elems == 0) return EBB_OK;
    EBB_FLOATS(cuda, call->in[LOGITS].dtype, T, {
        typedef ebb__real<T> R;
        EBB_LAUNCH(cuda, ebb__loss_row_weight_f64<R>, 1, EBB__LOSS_THREADS, 0, (R *)weight, (const R *)dy, l);
        EBB_ROW_LAUNCH(cuda, ebb__loss_grad_rows, T, l.rows, l.classes, (T *)dlogits, (const T *)logits,
                       (const R *)lses, (const R *)weight, l, accumulate);
    });
    return EBB_OK;
}

extern "C" const ebb__accel_op ebb_cuda_cross_entropy = { "cross_entropy", forward, backward };
