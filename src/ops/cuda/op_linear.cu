/* ops/cuda/op_linear.cu: y = x W^T + b; formulas in ops/op_linear.c.  Products by cuBLASLt, the bias in the
 * product's epilogue; halves are multiplied as they are and summed in f32. */
#include "ops/cuda/columns.h"

enum { X, WEIGHT, BIAS };

typedef struct sizes {
    int64_t rows, inner, outer; /* of x: rows, I; O */
} sizes;

static sizes sizes_of(const ebb_call *call)
{
    const ebb_arg *x = &call->in[X];
    sizes s = { 1, x->dims[x->ndim - 1], call->in[WEIGHT].dims[0] };
    for (int d = 0; d + 1 < x->ndim; d++) s.rows *= x->dims[d];
    return s;
}

/* A product of the call's dtype, alone in its batch. */
static ebb__cuda_gemm product(const ebb_call *call, int64_t m, int64_t n, int64_t k)
{
    ebb__cuda_gemm gemm = {};
    gemm.m = m;
    gemm.n = gemm.ldc = n;
    gemm.k = k;
    gemm.batch = 1;
    gemm.alpha = 1;
    gemm.dtype = call->in[X].dtype;
    return gemm;
}

static ebb_status forward(void *self, const ebb_call *call)
{
    sizes s = sizes_of(call);
    ebb__cuda_gemm gemm = product(call, s.rows, s.outer, s.inner);
    gemm.trans_b = true;
    gemm.a = call->in[X].data;
    gemm.b = call->in[WEIGHT].data;
    gemm.lda = gemm.ldb = s.inner;
    gemm.c = call->out[0].data;
    gemm.bias = call->n_in > BIAS ? call->in[BIAS].data : NULL;
    return ebb__cuda_gemm_run((ebb__cuda *)self, &gemm);
}

/* dx (+)= dy W */
static ebb_status grad_x(ebb__cuda *cuda, const ebb_call *call)
{
    sizes s = sizes_of(call);
    ebb__cuda_gemm gemm = product(call, s.rows, s.inner, s.outer);
    gemm.a = call->dout[0].data;
    gemm.lda = s.outer;
    gemm.b = call->in[WEIGHT].data;
    gemm.ldb = s.inner;
    gemm.c = call->din[X].data;
    gemm.beta = call->accumulate[X];
    return ebb__cuda_gemm_run(cuda, &gemm);
}

/* dW (+)= dy^T x */
static ebb_status grad_weight(ebb__cuda *cuda, const ebb_call *call)
{
    sizes s = sizes_of(call);
    ebb__cuda_gemm gemm = product(call, s.outer, s.inner, s.rows);
    gemm.trans_a = true;
    gemm.a = call->dout[0].data;
    gemm.lda = s.outer;
    gemm.b = call->in[X].data;
    gemm.ldb = s.inner;
    gemm.c = call->din[WEIGHT].data;
    gemm.beta = call->accumulate[WEIGHT];
    return ebb__cuda_gemm_run(cuda, &gemm);
}

/* db (+)= column sums of dy */
static ebb_status grad_bias(ebb__cuda *cuda, const ebb_call *call)
{
    sizes s = sizes_of(call);
    EBB_FLOATS(cuda, call->in[X].dtype, T,
               return ebb__cuda_column_sums<T>(cuda, (T *)call->din[BIAS].data, (const T *)call->dout[0].data, s.rows,
                                               s.outer, call->accumulate[BIAS], call->workspace));
    return EBB_OK;
}

static ebb_status backward(void *self, const ebb_call *call)
{
    ebb__cuda *cuda = (ebb__cuda *)self;
    ebb_status st = EBB_OK;
    if (call->n_in > BIAS && call->din[BIAS].data) st = grad_bias(cuda, call);
    if (st == EBB_OK && call->din[WEIGHT].data) st = grad_weight(cuda, call);
    if (st == EBB_OK && call->din[X].data) st = grad_x(cuda, call);
    return st;
}

extern "C" const ebb__accel_op ebb_cuda_linear = { "linear", forward, backward };
