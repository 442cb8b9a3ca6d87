/* gemm.c: products by cuBLASLt.
 *
 * cuBLASLt thinks in columns: our row-major C [m, n] is its C^T [n, m], and C^T = op(B)^T op(A)^T, so that
 * operands change places and nothing is transposed.
 *
 * One algorithm per key (all that decides how a product is computed), chosen once: the same product gives the
 * same bits each time.  Algorithms that add up by atomics are not asked for, nor those that add up in less
 * than the compute type. */
#include <cublasLt.h>
#include <stdlib.h>
#include <string.h>
#include "device/cuda/table.h"

enum { A, B, C, N_OPERANDS };
enum { N_BUCKETS = 64, N_CANDIDATES = 8, MAX_ALIGNMENT = 256 };
/* Kernels of cuBLASLt load 16 bytes of a bias at once, and no preference says that it is aligned less. */
enum { MIN_BIAS_ALIGNMENT = 16 };

/* No padding: compared and hashed as bytes. */
typedef struct gemm_key {
    int64_t m, n, k, batch, ld[N_OPERANDS], stride[N_OPERANDS];
    uint32_t alignment[N_OPERANDS]; /* bytes */
    uint32_t bias_alignment;        /* 0: no bias */
    uint32_t dtype;
    uint8_t trans_a, trans_b, beta; /* beta: it is not 0 */
    uint8_t zeros;
} gemm_key;

typedef struct gemm_plan {
    struct gemm_plan *next;
    gemm_key key;
    cublasLtMatmulDesc_t product;
    cublasLtMatrixLayout_t layouts[N_OPERANDS];
    cublasLtMatmulAlgo_t algorithm;
    size_t workspace_bytes;
    bool found;
} gemm_plan;

struct ebb__cuda_gemms {
    cublasLtHandle_t handle;
    bool tf32; /* EBB_CUDA_TF32=1: f32 products on tensor cores, with 10 bits of mantissa */
    gemm_plan *buckets[N_BUCKETS];
};

/* ---- errors -------------------------------------------------------------------------------------- */

static ebb_status blas_fail(const ebb__cuda *cuda, cublasStatus_t status, const char *call)
{
    const char *op = cuda->op;
    int length = (int)strcspn(call, "(");
    return EBB__CUDA_FAIL(cuda, status == CUBLAS_STATUS_ALLOC_FAILED ? EBB_ENOMEM : EBB_EDEVICE,
                          "cuda:%d: %.*s failed%s%s: %s", cuda->ordinal, length, call, op ? " in op " : "",
                          op ? op : "", cublasLtGetStatusString(status));
}

#define BLAS_TRY(cuda, call)                                                                     \
    do {                                                                                         \
        cublasStatus_t blas_status_ = (call);                                                    \
        if (blas_status_ != CUBLAS_STATUS_SUCCESS) return blas_fail((cuda), blas_status_, #call); \
    } while (0)

/* ---- dtypes -------------------------------------------------------------------------------------- */

static cudaDataType_t data_type(ebb_dtype dtype)
{
    switch (dtype) {
    case EBB_F64: return CUDA_R_64F;
    case EBB_F16: return CUDA_R_16F;
    case EBB_BF16: return CUDA_R_16BF;
    default: return CUDA_R_32F;
    }
}

static cudaDataType_t scale_type(ebb_dtype dtype) { return dtype == EBB_F64 ? CUDA_R_64F : CUDA_R_32F; }

static cublasComputeType_t compute_type(const ebb__cuda_gemms *gemms, ebb_dtype dtype)
{
    if (dtype == EBB_F64) return CUBLAS_COMPUTE_64F;
    if (dtype == EBB_F32 && gemms->tf32) return CUBLAS_COMPUTE_32F_FAST_TF32;
    return CUBLAS_COMPUTE_32F;
}

/* ---- keys ---------------------------------------------------------------------------------------- */

static uint32_t alignment_of(const void *p)
{
    uintptr_t address = (uintptr_t)p | MAX_ALIGNMENT;
    return (uint32_t)(address & -address);
}

static gemm_key key_of(const ebb__cuda_gemm *g)
{
    gemm_key key;
    memset(&key, 0, sizeof key);
    key.m = g->m, key.n = g->n, key.k = g->k, key.batch = g->batch;
    key.ld[A] = g->lda, key.ld[B] = g->ldb, key.ld[C] = g->ldc;
    if (g->batch > 1) key.stride[A] = g->stride_a, key.stride[B] = g->stride_b, key.stride[C] = g->stride_c;
    key.alignment[A] = alignment_of(g->a), key.alignment[B] = alignment_of(g->b), key.alignment[C] = alignment_of(g->c);
    key.dtype = g->dtype;
    key.trans_a = g->trans_a, key.trans_b = g->trans_b;
    key.bias_alignment = g->bias ? alignment_of(g->bias) : 0;
    key.beta = g->beta != 0;
    return key;
}

static unsigned bucket_of(const gemm_key *key)
{
    const unsigned char *bytes = (const unsigned char *)key;
    uint32_t hash = 2166136261u; /* FNV-1a */
    for (size_t i = 0; i < sizeof *key; i++) hash = (hash ^ bytes[i]) * 16777619u;
    return hash % N_BUCKETS;
}

/* ---- plans --------------------------------------------------------------------------------------- */

static void plan_free(gemm_plan *plan)
{
    if (!plan) return;
    for (int i = 0; i < N_OPERANDS; i++) {
        if (plan->layouts[i]) (void)cublasLtMatrixLayoutDestroy(plan->layouts[i]);
    }
    if (plan->product) (void)cublasLtMatmulDescDestroy(plan->product);
    free(plan);
}

/* The matrix as it lies, in cuBLASLt's words: as many rows as a row of ours is long. */
static ebb_status make_layout(const ebb__cuda *cuda, gemm_plan *plan, int operand, int64_t rows, int64_t columns)
{
    const gemm_key *key = &plan->key;
    cublasLtMatrixLayout_t *layout = &plan->layouts[operand];
    BLAS_TRY(cuda, cublasLtMatrixLayoutCreate(layout, data_type(key->dtype), (uint64_t)columns, (uint64_t)rows,
                                              key->ld[operand]));
    if (key->batch == 1) return EBB_OK;
    int32_t batch = (int32_t)key->batch;
    BLAS_TRY(cuda, cublasLtMatrixLayoutSetAttribute(*layout, CUBLASLT_MATRIX_LAYOUT_BATCH_COUNT, &batch,
                                                    sizeof batch));
    BLAS_TRY(cuda, cublasLtMatrixLayoutSetAttribute(*layout, CUBLASLT_MATRIX_LAYOUT_STRIDED_BATCH_OFFSET,
                                                    &key->stride[operand], sizeof key->stride[operand]));
    return EBB_OK;
}

static ebb_status set_bias(const ebb__cuda *cuda, const gemm_plan *plan, const void *bias)
{
    BLAS_TRY(cuda, cublasLtMatmulDescSetAttribute(plan->product, CUBLASLT_MATMUL_DESC_BIAS_POINTER, &bias,
                                                  sizeof bias));
    return EBB_OK;
}

/* The bias is set before an algorithm is chosen: cuBLASLt reads its alignment off the pointer. */
static ebb_status make_product(const ebb__cuda *cuda, gemm_plan *plan, const void *bias)
{
    const gemm_key *key = &plan->key;
    cublasOperation_t first = key->trans_b ? CUBLAS_OP_T : CUBLAS_OP_N;
    cublasOperation_t second = key->trans_a ? CUBLAS_OP_T : CUBLAS_OP_N;
    cublasLtEpilogue_t epilogue = bias ? CUBLASLT_EPILOGUE_BIAS : CUBLASLT_EPILOGUE_DEFAULT;
    BLAS_TRY(cuda, cublasLtMatmulDescCreate(&plan->product, compute_type(cuda->gemms, key->dtype),
                                            scale_type(key->dtype)));
    BLAS_TRY(cuda, cublasLtMatmulDescSetAttribute(plan->product, CUBLASLT_MATMUL_DESC_TRANSA, &first, sizeof first));
    BLAS_TRY(cuda, cublasLtMatmulDescSetAttribute(plan->product, CUBLASLT_MATMUL_DESC_TRANSB, &second,
                                                  sizeof second));
    BLAS_TRY(cuda, cublasLtMatmulDescSetAttribute(plan->product, CUBLASLT_MATMUL_DESC_EPILOGUE, &epilogue,
                                                  sizeof epilogue));
    return bias ? set_bias(cuda, plan, bias) : EBB_OK;
}

static ebb_status prefer(const ebb__cuda *cuda, const gemm_key *key, cublasLtMatmulPreference_t preference)
{
    uint32_t reduction = CUBLASLT_REDUCTION_SCHEME_COMPUTE_TYPE;
    struct { cublasLtMatmulPreferenceAttributes_t attribute; const void *value; size_t bytes; } const wishes[] = {
        { CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES, &cuda->gemm_workspace_bytes, sizeof(size_t) },
        { CUBLASLT_MATMUL_PREF_REDUCTION_SCHEME_MASK, &reduction, sizeof reduction },
        { CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_A_BYTES, &key->alignment[B], sizeof(uint32_t) },
        { CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_B_BYTES, &key->alignment[A], sizeof(uint32_t) },
        { CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_C_BYTES, &key->alignment[C], sizeof(uint32_t) },
        { CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_D_BYTES, &key->alignment[C], sizeof(uint32_t) },
    };
    for (size_t i = 0; i < sizeof wishes / sizeof *wishes; i++) {
        BLAS_TRY(cuda, cublasLtMatmulPreferenceSetAttribute(preference, wishes[i].attribute, wishes[i].value,
                                                            wishes[i].bytes));
    }
    return EBB_OK;
}

/* The first candidate that fits; none is no error. */
static ebb_status choose(const ebb__cuda *cuda, gemm_plan *plan, cublasLtMatmulPreference_t preference)
{
    cublasLtMatmulHeuristicResult_t candidates[N_CANDIDATES];
    int n = 0;
    cublasStatus_t status = cublasLtMatmulAlgoGetHeuristic(
        cuda->gemms->handle, plan->product, plan->layouts[B], plan->layouts[A], plan->layouts[C], plan->layouts[C],
        preference, N_CANDIDATES, candidates, &n);
    if (status == CUBLAS_STATUS_NOT_SUPPORTED) return EBB_OK;
    if (status != CUBLAS_STATUS_SUCCESS) return blas_fail(cuda, status, "cublasLtMatmulAlgoGetHeuristic");
    for (int i = 0; i < n && !plan->found; i++) {
        if (candidates[i].state != CUBLAS_STATUS_SUCCESS) continue;
        if (candidates[i].workspaceSize > cuda->gemm_workspace_bytes) continue;
        plan->algorithm = candidates[i].algo;
        plan->workspace_bytes = candidates[i].workspaceSize;
        plan->found = true;
    }
    return EBB_OK;
}

static ebb_status make_plan(const ebb__cuda *cuda, gemm_plan *plan, const void *bias)
{
    const gemm_key *key = &plan->key;
    cublasLtMatmulPreference_t preference = NULL;
    ebb_status st = make_product(cuda, plan, bias);
    if (st == EBB_OK) st = make_layout(cuda, plan, A, key->trans_a ? key->k : key->m, key->trans_a ? key->m : key->k);
    if (st == EBB_OK) st = make_layout(cuda, plan, B, key->trans_b ? key->n : key->k, key->trans_b ? key->k : key->n);
    if (st == EBB_OK) st = make_layout(cuda, plan, C, key->m, key->n);
    if (st != EBB_OK) return st;
    BLAS_TRY(cuda, cublasLtMatmulPreferenceCreate(&preference));
    st = prefer(cuda, key, preference);
    if (st == EBB_OK) st = choose(cuda, plan, preference);
    (void)cublasLtMatmulPreferenceDestroy(preference);
    return st;
}

static ebb_status plan_for(const ebb__cuda *cuda, const ebb__cuda_gemm *g, gemm_plan **out)
{
    gemm_key key = key_of(g);
    gemm_plan **bucket = &cuda->gemms->buckets[bucket_of(&key)];
    for (gemm_plan *plan = *bucket; plan; plan = plan->next) {
        if (memcmp(&plan->key, &key, sizeof key) != 0) continue;
        *out = plan;
        return EBB_OK;
    }
    gemm_plan *plan = calloc(1, sizeof *plan);
    if (!plan) return EBB__CUDA_FAIL(cuda, EBB_ENOMEM, "cuda: no host memory for a product's plan");
    plan->key = key;
    ebb_status st = make_plan(cuda, plan, g->bias);
    if (st != EBB_OK) {
        plan_free(plan);
        return st;
    }
    plan->next = *bucket;
    *bucket = *out = plan;
    return EBB_OK;
}

/* ---- running ------------------------------------------------------------------------------------- */

/* C as an argument of the kernels that fill and copy. */
static ebb_arg as_arg(const ebb__cuda_gemm *g, void *data, int64_t batch_stride, int64_t row_stride)
{
    return (ebb_arg){ .data = data, .dtype = g->dtype, .ndim = 3, .elems = g->batch * g->m * g->n,
                      .dims = { g->batch, g->m, g->n },
                      .strides = { g->batch > 1 ? batch_stride : g->m * row_stride, row_stride, 1 } };
}

/* C = bias in every row, or 0: what is left where there is no product, or cuBLASLt cannot add the bias. */
static ebb_status start_with_bias(ebb__cuda *cuda, const ebb__cuda_gemm *g)
{
    ebb_arg to = as_arg(g, g->c, g->stride_c, g->ldc);
    if (!g->bias) return ebb__cuda_fill(cuda, &to, 0);
    ebb_arg from = as_arg(g, (void *)(uintptr_t)g->bias, 0, 0);
    from.strides[0] = 0;
    return ebb__cuda_arg_copy(cuda, &to, &from);
}

/* k = 0: the product is 0. */
static ebb_status without_terms(ebb__cuda *cuda, const ebb__cuda_gemm *g)
{
    if (g->beta == 0) return start_with_bias(cuda, g);
    if (g->beta == 1) return EBB_OK;
    return EBB__CUDA_FAIL(cuda, EBB_EUNSUPPORTED, "cuda: a product with k = 0 and beta = %g; 0 and 1 are allowed",
                          g->beta);
}

static ebb_status launch(ebb__cuda *cuda, const ebb__cuda_gemm *g, const gemm_plan *plan)
{
    float alpha = (float)g->alpha, beta = (float)g->beta;
    bool wide = g->dtype == EBB_F64;
    const void *alpha_at = wide ? (const void *)&g->alpha : &alpha, *beta_at = wide ? (const void *)&g->beta : &beta;
    ebb_status st = g->bias ? set_bias(cuda, plan, g->bias) : EBB_OK;
    if (st != EBB_OK) return st;
    BLAS_TRY(cuda, cublasLtMatmul(cuda->gemms->handle, plan->product, alpha_at, g->b, plan->layouts[B], g->a,
                                  plan->layouts[A], beta_at, g->c, plan->layouts[C], g->c, plan->layouts[C],
                                  &plan->algorithm, cuda->gemm_workspace, plan->workspace_bytes, cuda->stream));
    return EBB_OK;
}

static ebb_status check(const ebb__cuda *cuda, const ebb__cuda_gemm *g)
{
    if (g->batch <= INT32_MAX && g->m <= INT32_MAX && g->n <= INT32_MAX && g->k <= INT32_MAX) return EBB_OK;
    return EBB__CUDA_FAIL(cuda, EBB_EUNSUPPORTED, "cuda: a product of %lld x [%lld, %lld] by [%lld, %lld]; sizes go "
                          "up to %d", (long long)g->batch, (long long)g->m, (long long)g->k, (long long)g->k,
                          (long long)g->n, INT32_MAX);
}

static ebb_status no_algorithm(const ebb__cuda *cuda, const ebb__cuda_gemm *g)
{
    return EBB__CUDA_FAIL(cuda, EBB_EUNSUPPORTED, "cuda: cuBLASLt has no algorithm for a product of %lld x [%lld, "
                          "%lld] by [%lld, %lld] with %zu bytes of workspace", (long long)g->batch, (long long)g->m,
                          (long long)g->k, (long long)g->k, (long long)g->n, cuda->gemm_workspace_bytes);
}

/* It adds no bias to f64; to others it may refuse it for one shape (then the plan is not found). */
static bool may_fuse_bias(const ebb__cuda_gemm *g)
{
    return g->dtype != EBB_F64 && alignment_of(g->bias) >= MIN_BIAS_ALIGNMENT;
}

ebb_status ebb__cuda_gemm_run(ebb__cuda *cuda, const ebb__cuda_gemm *gemm)
{
    ebb__cuda_gemm g = *gemm;
    gemm_plan *plan = NULL;
    if (g.m == 0 || g.n == 0 || g.batch == 0) return EBB_OK;
    if (g.k == 0) return without_terms(cuda, &g);
    ebb_status st = check(cuda, &g);
    if (st == EBB_OK && (!g.bias || may_fuse_bias(&g))) st = plan_for(cuda, &g, &plan);
    if (st != EBB_OK) return st;
    if (g.bias && !(plan && plan->found)) {
        if ((st = start_with_bias(cuda, &g)) != EBB_OK) return st;
        g.bias = NULL;
        g.beta = 1;
        if ((st = plan_for(cuda, &g, &plan)) != EBB_OK) return st;
    }
    return plan->found ? launch(cuda, &g, plan) : no_algorithm(cuda, &g);
}

/* ---- opening -------------------------------------------------------------------------------------- */

/* What NVIDIA recommends: 32 MiB since compute capability 9.0, 4 MiB before. */
size_t ebb__cuda_gemm_workspace_bytes(const ebb__cuda *cuda)
{
    return (size_t)(cuda->compute >= 90 ? 32 : 4) * EBB__CUDA_MIB;
}

ebb_status ebb__cuda_gemms_open(ebb__cuda *cuda)
{
    const char *tf32 = getenv("EBB_CUDA_TF32");
    ebb__cuda_gemms *gemms = calloc(1, sizeof *gemms);
    if (!gemms) return EBB__CUDA_FAIL(cuda, EBB_ENOMEM, "cuda: no host memory for products");
    gemms->tf32 = tf32 && strcmp(tf32, "1") == 0;
    cublasStatus_t status = cublasLtCreate(&gemms->handle);
    if (status != CUBLAS_STATUS_SUCCESS) {
        free(gemms);
        return blas_fail(cuda, status, "cublasLtCreate");
    }
    cuda->gemms = gemms;
    return EBB_OK;
}

void ebb__cuda_gemms_close(ebb__cuda_gemms *gemms)
{
    if (!gemms) return;
    for (int i = 0; i < N_BUCKETS; i++) {
        while (gemms->buckets[i]) {
            gemm_plan *plan = gemms->buckets[i];
            gemms->buckets[i] = plan->next;
            plan_free(plan);
        }
    }
    (void)cublasLtDestroy(gemms->handle);
    free(gemms);
}
