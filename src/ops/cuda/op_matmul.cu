/* ops/cuda/op_matmul.cu: op(a) @ op(b) with batch dims that broadcast; formulas in ops/op_matmul.c.
 *
 * Batches fall into groups in which all operands move on evenly: one batched product each.  A broadcast
 * operand's gradient is a sum over batches.  In f32 and f64 its products are added onto it one by one
 * (beta = 1).  In halves that would round at each; there a group's products go to the scratch, are added up
 * in f32, also in the scratch, and the total is rounded once. */
#include "ops/cuda/kernel.h"
#include "ops/cuda/scratch.h"
#include "ops/matmul_batches.inc"

static char *at_elem(const void *base, int64_t offset, ebb_dtype dtype)
{
    return (char *)(uintptr_t)base + offset * (int64_t)ebb__cuda_float_bytes(dtype);
}

/* ---- products --------------------------------------------------------------------------------- */

/* An operand of a product: the matrix as stored, used transposed or not. */
typedef struct operand {
    const void *data;
    int64_t ld, stride;
    bool trans;
} operand;

static ebb__cuda_gemm product(operand a, operand b, int64_t m, int64_t n, int64_t k, int64_t batch, ebb_dtype dtype)
{
    ebb__cuda_gemm gemm = {};
    gemm.trans_a = a.trans;
    gemm.trans_b = b.trans;
    gemm.m = m;
    gemm.n = gemm.ldc = n;
    gemm.k = k;
    gemm.batch = batch;
    gemm.alpha = 1;
    gemm.a = a.data;
    gemm.lda = a.ld;
    gemm.stride_a = a.stride;
    gemm.b = b.data;
    gemm.ldb = b.ld;
    gemm.stride_b = b.stride;
    gemm.stride_c = m * n;
    gemm.dtype = dtype;
    return gemm;
}

static operand operand_of(const batches *p, const ebb_call *call, int x, const group *g)
{
    int64_t rows_last = x == A ? p->k : p->n, cols_last = x == A ? p->m : p->k; /* as stored: plain, transposed */
    return { at_elem(call->in[x].data, g->offset[x], call->in[x].dtype), p->trans[x] ? cols_last : rows_last,
             p->inner_step[x], p->trans[x] };
}

static operand transposed(operand x)
{
    x.trans = !x.trans;
    return x;
}

static ebb_status forward(void *self, const ebb_call *call)
{
    batches p = batches_of(call);
    ebb_dtype dtype = call->out[0].dtype;
    for (int64_t outer = 0; outer < p.n_outer && p.inner > 0; outer++) {
        group g = group_at(&p, outer);
        operand a = operand_of(&p, call, A, &g), b = operand_of(&p, call, B, &g);
        ebb__cuda_gemm gemm = folds(&p) ? product(a, b, p.inner * p.m, p.n, p.k, 1, dtype)
                                        : product(a, b, p.m, p.n, p.k, p.inner, dtype);
        gemm.c = at_elem(call->out[0].data, outer * p.inner * p.m * p.n, dtype);
        ebb_status st = ebb__cuda_gemm_run((ebb__cuda *)self, &gemm);
        if (st != EBB_OK) return st;
    }
    return EBB_OK;
}

/* The gradient of x from one group, as one batched product; c is not set.
 * d op(a) = dy op(b)^T and d op(b) = op(a)^T dy, and the other way round where x is stored transposed. */
static ebb__cuda_gemm group_gradient(const batches *p, const ebb_call *call, int x, int64_t outer, const group *g)
{
    ebb_dtype dtype = call->out[0].dtype;
    operand other = operand_of(p, call, x == A ? B : A, g);
    operand dy = { at_elem(call->dout[0].data, outer * p->inner * p->m * p->n, dtype), p->n, p->m * p->n, false };
    bool fold = folds(p);
    int64_t m = fold ? p->inner * p->m : p->m, batch = fold ? 1 : p->inner;
    if (x == A) {
        return p->trans[A] ? product(other, transposed(dy), p->k, p->m, p->n, batch, dtype)
                           : product(dy, transposed(other), m, p->k, p->n, batch, dtype);
    }
    /* folded, the sum over batches is a longer inner dimension */
    return p->trans[B] ? product(transposed(dy), other, p->n, p->k, m, batch, dtype)
                       : product(transposed(other), dy, p->k, p->n, m, batch, dtype);
}

/* ---- sums of broadcast halves ------------------------------------------------------------------- */

/* sums[e] (+)= sum over b of products[b][e] */
template <class T>
EBB_KERNEL void __launch_bounds__(EBB__CUDA_THREADS)
add_products(float *sums, const T *products, int64_t elems, int64_t batch, bool first)
{
    EBB_GRID_STRIDE(e, elems) {
        float sum = first ? 0.0f : sums[e];
        for (int64_t b = 0; b < batch; b++) sum += ebb__load(products + b * elems + e);
        sums[e] = sum;
    }
}

template <class T>
EBB_KERNEL void __launch_bounds__(EBB__CUDA_THREADS)
round_sums(T *to, const float *sums, int64_t elems, bool accumulate)
{
    EBB_GRID_STRIDE(e, elems) ebb__put(to + e, sums[e], accumulate);
}

/* A gradient of halves that is a sum: scratch holds its sums, then a group's products. */
template <class T> static ebb_status summed_gradient(ebb__cuda *cuda, const ebb_call *call, const batches *p, int x)
{
    int64_t elems = call->in[x].elems, step = p->inner_step[x];
    float *all_sums = (float *)call->workspace;
    T *products = (T *)((char *)call->workspace + ebb__cuda_scratch((size_t)elems * sizeof(float)));
    for (int64_t outer = 0; outer < p->n_outer; outer++) {
        group g = group_at(p, outer);
        ebb__cuda_gemm gemm = group_gradient(p, call, x, outer, &g);
        gemm.c = products;
        ebb_status st = ebb__cuda_gemm_run(cuda, &gemm);
        if (st != EBB_OK) return st;
        float *sums = all_sums + g.offset[x];
        int64_t batch = step ? 1 : gemm.batch, each = gemm.m * gemm.n * (step ? gemm.batch : 1);
        bool first = g.first[x];
        EBB_LAUNCH(cuda, add_products<T>, ebb__grid(cuda, each, EBB__CUDA_THREADS), EBB__CUDA_THREADS, 0, sums,
                   (const T *)products, each, batch, first);
    }
    T *to = (T *)call->din[x].data;
    bool accumulate = call->accumulate[x];
    EBB_LAUNCH(cuda, round_sums<T>, ebb__grid(cuda, elems, EBB__CUDA_THREADS), EBB__CUDA_THREADS, 0, to,
               (const float *)all_sums, elems, accumulate);
    return EBB_OK;
}

/* ---- backward ----------------------------------------------------------------------------------- */

/* One group's part of the gradient of x, onto it; product by product where the group shares it. */
static ebb_status add_group(ebb__cuda *cuda, const ebb_call *call, const batches *p, int x, int64_t outer)
{
    group g = group_at(p, outer);
    ebb__cuda_gemm gemm = group_gradient(p, call, x, outer, &g);
    int64_t one_by_one = p->inner_step[x] == 0 ? gemm.batch : 1;
    gemm.c = at_elem(call->din[x].data, g.offset[x], gemm.dtype);
    gemm.beta = call->accumulate[x] || !g.first[x];
    if (one_by_one > 1) gemm.batch = 1;
    for (int64_t i = 0; i < one_by_one; i++) {
        ebb_status st = ebb__cuda_gemm_run(cuda, &gemm);
        if (st != EBB_OK) return st;
        gemm.beta = 1;
        gemm.a = at_elem(gemm.a, gemm.stride_a, gemm.dtype);
        gemm.b = at_elem(gemm.b, gemm.stride_b, gemm.dtype);
    }
    return EBB_OK;
}

static ebb_status gradient(ebb__cuda *cuda, const ebb_call *call, int x)
{
    batches p = batches_of(call);
    const ebb_arg *in = &call->in[x];
    bool half = in->dtype == EBB_F16 || in->dtype == EBB_BF16;
    if (p.n_outer * p.inner == 0) {
        size_t bytes = (size_t)in->elems * ebb__cuda_float_bytes(in->dtype);
        if (bytes && !call->accumulate[x])
            EBB__CUDA_TRY(cuda, cudaMemsetAsync(call->din[x].data, 0, bytes, cuda->stream));
        return EBB_OK;
    }
    if (half && is_summed(&p, x)) {
        return in->dtype == EBB_F16 ? summed_gradient<__half>(cuda, call, &p, x)
                                    : summed_gradient<__nv_bfloat16>(cuda, call, &p, x);
    }
    for (int64_t outer = 0; outer < p.n_outer; outer++) {
        ebb_status st = add_group(cuda, call, &p, x, outer);
        if (st != EBB_OK) return st;
    }
    return EBB_OK;
}

static ebb_status backward(void *self, const ebb_call *call)
{
    ebb_status st = EBB_OK;
    for (int x = B; x >= A && st == EBB_OK; x--) {
        if (call->din[x].data) st = gradient((ebb__cuda *)self, call, x);
    }
    return st;
}

extern "C" const ebb__accel_op ebb_cuda_matmul = { "matmul", forward, backward };
