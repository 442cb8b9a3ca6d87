/* blaslt.cpp: cuBLASLt over OpenBLAS.  Descriptors are NVIDIA's opaque structs with ours inside.
 *
 * The heuristic offers one algorithm, which carries what it was promised (alignments) and asks for a workspace;
 * running it checks both, and writes garbage over the workspace.  Products in TF32 round their operands, as tensor
 * cores do. */
#include <cblas.h>
#include <cublasLt.h>
#include <cuda_bf16.h>
#include <cuda_fp16.h>
#include <cstring>
#include <mutex>
#include <vector>

#include "state.h"

using namespace fake;

extern "C" void openblas_set_num_threads(int n);

namespace {

struct product_desc {
    cublasComputeType_t compute;
    cudaDataType_t scale;
    cublasOperation_t trans_a, trans_b;
    cublasLtEpilogue_t epilogue;
    const void *bias;
};
struct layout {
    cudaDataType_t type;
    uint64_t rows, columns;
    int64_t ld, stride;
    int32_t batch;
};
struct preference {
    size_t workspace_bytes;
    uint32_t reductions, alignment[4]; /* of A, B, C, D */
};
struct algorithm {
    uint32_t magic, alignment[4], bias_alignment;
    size_t workspace_bytes;
};
enum { ALGORITHM_MAGIC = 0x0a1b2c3d, NAN_BYTE = 0xff, MAX_ALIGNMENT = 256 };
/* Kernels exist that load so many bytes of a bias at once, whatever its pointer promised. */
enum { MIN_BIAS_ALIGNMENT = 16 };

template <class T, class Opaque> T *inside(Opaque *opaque)
{
    static_assert(sizeof(T) <= sizeof(Opaque), "fits");
    return reinterpret_cast<T *>(opaque);
}
template <class T, class Opaque> const T *inside(const Opaque *opaque)
{
    static_assert(sizeof(T) <= sizeof(Opaque), "fits");
    return reinterpret_cast<const T *>(opaque);
}

template <class Opaque> Opaque *new_object()
{
    counts.blas_objects++;
    return new Opaque();
}
template <class Opaque> cublasStatus_t delete_object(Opaque *opaque)
{
    guard lock = enter();
    counts.blas_objects--;
    delete opaque;
    write_report();
    return CUBLAS_STATUS_SUCCESS;
}

size_t element_bytes(cudaDataType_t type)
{
    switch (type) {
    case CUDA_R_64F: return 8;
    case CUDA_R_32F: return 4;
    case CUDA_R_16F:
    case CUDA_R_16BF: return 2;
    default: die("cuBLASLt: data type %d is not modelled", (int)type);
    }
}

double load(const void *p, int64_t i, cudaDataType_t type)
{
    switch (type) {
    case CUDA_R_64F: return ((const double *)p)[i];
    case CUDA_R_32F: return ((const float *)p)[i];
    case CUDA_R_16F: return __half2float(((const __half *)p)[i]);
    default: return __bfloat162float(((const __nv_bfloat16 *)p)[i]);
    }
}

void store(void *p, int64_t i, cudaDataType_t type, double value)
{
    switch (type) {
    case CUDA_R_64F: ((double *)p)[i] = value; break;
    case CUDA_R_32F: ((float *)p)[i] = (float)value; break;
    case CUDA_R_16F: ((__half *)p)[i] = __float2half_rn((float)value); break;
    default: ((__nv_bfloat16 *)p)[i] = __float2bfloat16_rn((float)value);
    }
}

/* To 10 bits of mantissa, the nearest; a tie away from 0. */
float to_tf32(float x)
{
    uint32_t bits;
    memcpy(&bits, &x, sizeof bits);
    bits = (bits + 0x1000) & ~0x1fffu;
    if (x - x == 0) memcpy(&x, &bits, sizeof x); /* else it is infinite or NaN */
    return x;
}

/* One matrix as dense columns of T. */
template <class T> std::vector<T> dense(const void *p, const layout &l, cublasComputeType_t compute)
{
    std::vector<T> out(l.rows * l.columns);
    for (uint64_t c = 0; c < l.columns; c++)
        for (uint64_t r = 0; r < l.rows; r++) out[c * l.rows + r] = (T)load(p, (int64_t)c * l.ld + (int64_t)r, l.type);
    if (compute == CUBLAS_COMPUTE_32F_FAST_TF32)
        for (T &x : out) x = to_tf32((float)x);
    return out;
}

void gemm(CBLAS_TRANSPOSE ta, CBLAS_TRANSPOSE tb, int m, int n, int k, const float *a, int lda, const float *b,
          int ldb, float *c)
{
    cblas_sgemm(CblasColMajor, ta, tb, m, n, k, 1, a, lda, b, ldb, 0, c, m);
}

void gemm(CBLAS_TRANSPOSE ta, CBLAS_TRANSPOSE tb, int m, int n, int k, const double *a, int lda, const double *b,
          int ldb, double *c)
{
    cblas_dgemm(CblasColMajor, ta, tb, m, n, k, 1, a, lda, b, ldb, 0, c, m);
}

struct run {
    product_desc product;
    layout la, lb, lc;
    double alpha, beta;
    const void *a, *b;
    void *c;
    void *workspace;
    size_t workspace_bytes;
    int device;
};

/* Sums in T, rounded once to the type of C. */
template <class T> void run_batch(const run &r, int64_t batch)
{
    const char *pa = (const char *)r.a + batch * r.la.stride * (int64_t)element_bytes(r.la.type);
    const char *pb = (const char *)r.b + batch * r.lb.stride * (int64_t)element_bytes(r.lb.type);
    char *pc = (char *)r.c + batch * r.lc.stride * (int64_t)element_bytes(r.lc.type);
    bool ta = r.product.trans_a == CUBLAS_OP_T, tb = r.product.trans_b == CUBLAS_OP_T;
    int m = (int)r.lc.rows, n = (int)r.lc.columns, k = (int)(ta ? r.la.rows : r.la.columns);
    std::vector<T> a = dense<T>(pa, r.la, r.product.compute), b = dense<T>(pb, r.lb, r.product.compute);
    std::vector<T> c((size_t)m * (size_t)n);
    gemm(ta ? CblasTrans : CblasNoTrans, tb ? CblasTrans : CblasNoTrans, m, n, k, a.data(), (int)r.la.rows, b.data(),
         (int)r.lb.rows, c.data());
    for (int j = 0; j < n; j++) {
        for (int i = 0; i < m; i++) {
            T value = (T)r.alpha * c[(size_t)j * (size_t)m + (size_t)i];
            int64_t at = (int64_t)j * r.lc.ld + i;
            if (r.beta != 0) value += (T)r.beta * (T)load(pc, at, r.lc.type);
            if (r.product.epilogue == CUBLASLT_EPILOGUE_BIAS) value += (T)load(r.product.bias, i, r.lc.type);
            store(pc, at, r.lc.type, (double)value);
        }
    }
}

/* Bytes from the first element to the last. */
size_t extent(const layout &l)
{
    int64_t last = (l.batch - 1) * l.stride + (int64_t)(l.columns - 1) * l.ld + (int64_t)l.rows;
    return (size_t)last * element_bytes(l.type);
}

void check_operands(const run &r)
{
    if (!is_device(r.a, extent(r.la), r.device)) die("cublasLtMatmul: A is not device memory, or not all of it");
    if (!is_device(r.b, extent(r.lb), r.device)) die("cublasLtMatmul: B is not device memory, or not all of it");
    if (!is_device(r.c, extent(r.lc), r.device)) die("cublasLtMatmul: C is not device memory, or not all of it");
    if (r.workspace_bytes && !is_device(r.workspace, r.workspace_bytes, r.device)) die("cublasLtMatmul: bad workspace");
    if (r.product.epilogue == CUBLASLT_EPILOGUE_BIAS &&
        !is_device(r.product.bias, r.lc.rows * element_bytes(r.lc.type), r.device)) {
        die("cublasLtMatmul: the bias is not device memory, or not all of it");
    }
}

void run_product(const run &r)
{
    static std::once_flag once;
    std::call_once(once, [] { openblas_set_num_threads(1); });
    check_operands(r);
    if (r.workspace_bytes) memset(r.workspace, NAN_BYTE, r.workspace_bytes);
    for (int64_t batch = 0; batch < r.lc.batch; batch++) {
        if (r.product.compute == CUBLAS_COMPUTE_64F) run_batch<double>(r, batch);
        else run_batch<float>(r, batch);
    }
}

bool shapes_agree(const product_desc &p, const layout &a, const layout &b, const layout &c)
{
    uint64_t m = p.trans_a == CUBLAS_OP_T ? a.columns : a.rows, ka = p.trans_a == CUBLAS_OP_T ? a.rows : a.columns;
    uint64_t n = p.trans_b == CUBLAS_OP_T ? b.rows : b.columns, kb = p.trans_b == CUBLAS_OP_T ? b.columns : b.rows;
    bool leading = a.ld >= (int64_t)a.rows && b.ld >= (int64_t)b.rows && c.ld >= (int64_t)c.rows;
    bool batches = a.batch == c.batch && b.batch == c.batch && (c.batch == 1 || c.stride != 0);
    return m == c.rows && n == c.columns && ka == kb && ka > 0 && leading && batches;
}

bool types_agree(const product_desc &p, const layout &a, const layout &b, const layout &c)
{
    bool wide = c.type == CUDA_R_64F, tf32 = p.compute == CUBLAS_COMPUTE_32F_FAST_TF32 && c.type == CUDA_R_32F;
    cublasComputeType_t plain = wide ? CUBLAS_COMPUTE_64F : CUBLAS_COMPUTE_32F;
    return a.type == c.type && b.type == c.type && (p.compute == plain || tf32) &&
           p.scale == (wide ? CUDA_R_64F : CUDA_R_32F);
}

bool is_aligned(const void *p, uint32_t bytes) { return (uintptr_t)p % bytes == 0; }

/* What the pointer that a product is described with promises of those it is run with; NULL: the most. */
uint32_t promised_alignment(const void *p)
{
    uintptr_t address = (uintptr_t)p | MAX_ALIGNMENT;
    return (uint32_t)(address & -address);
}

void check_alignments(const algorithm &chosen, const product_desc &product, const void *const operands[4])
{
    for (int i = 0; i < 4; i++)
        if (!is_aligned(operands[i], chosen.alignment[i])) die("cublasLtMatmul: %c is less aligned than told", "ABCD"[i]);
    if (product.epilogue != CUBLASLT_EPILOGUE_BIAS) return;
    if (!is_aligned(product.bias, chosen.bias_alignment)) die("cublasLtMatmul: the bias is less aligned than promised");
    if (!is_aligned(product.bias, MIN_BIAS_ALIGNMENT)) die("cublasLtMatmul: a bias that is not aligned to 16 bytes");
}

}

/* ---- descriptors ------------------------------------------------------------------------------------ */

struct cublasLtContext {
    int device = current_device();
};

#define FAKE_BLAS_CALL(error)                                                   \
    guard lock = enter();                                                       \
    if (crash != cudaSuccess) return CUBLAS_STATUS_EXECUTION_FAILED;            \
    if (must_fail(__func__)) return error

cublasStatus_t cublasLtCreate(cublasLtHandle_t *handle)
{
    FAKE_BLAS_CALL(CUBLAS_STATUS_ALLOC_FAILED);
    *handle = new_object<cublasLtContext>();
    return CUBLAS_STATUS_SUCCESS;
}

cublasStatus_t cublasLtDestroy(cublasLtHandle_t handle) { return delete_object(handle); }
size_t cublasLtGetVersion(void) { return CUBLAS_VERSION; }
const char *cublasLtGetStatusString(cublasStatus_t status)
{
    return status == CUBLAS_STATUS_ALLOC_FAILED ? "the resource allocation failed" : "a cuBLAS error";
}

cublasStatus_t cublasLtMatmulDescCreate(cublasLtMatmulDesc_t *desc, cublasComputeType_t compute, cudaDataType_t scale)
{
    FAKE_BLAS_CALL(CUBLAS_STATUS_ALLOC_FAILED);
    *desc = new_object<cublasLtMatmulDescOpaque_t>();
    *inside<product_desc>(*desc) = { compute, scale, CUBLAS_OP_N, CUBLAS_OP_N, CUBLASLT_EPILOGUE_DEFAULT, nullptr };
    return CUBLAS_STATUS_SUCCESS;
}

cublasStatus_t cublasLtMatmulDescDestroy(cublasLtMatmulDesc_t desc) { return delete_object(desc); }

static cublasStatus_t take(void *to, size_t bytes, const void *value, size_t value_bytes)
{
    if (bytes != value_bytes) return CUBLAS_STATUS_INVALID_VALUE;
    memcpy(to, value, bytes);
    return CUBLAS_STATUS_SUCCESS;
}

cublasStatus_t cublasLtMatmulDescSetAttribute(cublasLtMatmulDesc_t desc, cublasLtMatmulDescAttributes_t which,
                                              const void *value, size_t bytes)
{
    FAKE_BLAS_CALL(CUBLAS_STATUS_INVALID_VALUE);
    product_desc *p = inside<product_desc>(desc);
    switch (which) {
    case CUBLASLT_MATMUL_DESC_TRANSA: return take(&p->trans_a, sizeof p->trans_a, value, bytes);
    case CUBLASLT_MATMUL_DESC_TRANSB: return take(&p->trans_b, sizeof p->trans_b, value, bytes);
    case CUBLASLT_MATMUL_DESC_EPILOGUE: return take(&p->epilogue, sizeof p->epilogue, value, bytes);
    case CUBLASLT_MATMUL_DESC_BIAS_POINTER: return take(&p->bias, sizeof p->bias, value, bytes);
    default: die("cublasLtMatmulDescSetAttribute(%d) is not modelled", (int)which);
    }
}

cublasStatus_t cublasLtMatrixLayoutCreate(cublasLtMatrixLayout_t *out, cudaDataType type, uint64_t rows,
                                          uint64_t columns, int64_t ld)
{
    FAKE_BLAS_CALL(CUBLAS_STATUS_ALLOC_FAILED);
    *out = new_object<cublasLtMatrixLayoutOpaque_t>();
    *inside<layout>(*out) = { type, rows, columns, ld, 0, 1 };
    return CUBLAS_STATUS_SUCCESS;
}

cublasStatus_t cublasLtMatrixLayoutDestroy(cublasLtMatrixLayout_t l) { return delete_object(l); }

cublasStatus_t cublasLtMatrixLayoutSetAttribute(cublasLtMatrixLayout_t l, cublasLtMatrixLayoutAttribute_t which,
                                                const void *value, size_t bytes)
{
    FAKE_BLAS_CALL(CUBLAS_STATUS_INVALID_VALUE);
    layout *in = inside<layout>(l);
    switch (which) {
    case CUBLASLT_MATRIX_LAYOUT_BATCH_COUNT: return take(&in->batch, sizeof in->batch, value, bytes);
    case CUBLASLT_MATRIX_LAYOUT_STRIDED_BATCH_OFFSET: return take(&in->stride, sizeof in->stride, value, bytes);
    default: die("cublasLtMatrixLayoutSetAttribute(%d) is not modelled", (int)which);
    }
}

cublasStatus_t cublasLtMatmulPreferenceCreate(cublasLtMatmulPreference_t *out)
{
    FAKE_BLAS_CALL(CUBLAS_STATUS_ALLOC_FAILED);
    *out = new_object<cublasLtMatmulPreferenceOpaque_t>();
    *inside<preference>(*out) = { 0, CUBLASLT_REDUCTION_SCHEME_MASK,
                                  { MAX_ALIGNMENT, MAX_ALIGNMENT, MAX_ALIGNMENT, MAX_ALIGNMENT } };
    return CUBLAS_STATUS_SUCCESS;
}

cublasStatus_t cublasLtMatmulPreferenceDestroy(cublasLtMatmulPreference_t p) { return delete_object(p); }

cublasStatus_t cublasLtMatmulPreferenceSetAttribute(cublasLtMatmulPreference_t pref,
                                                    cublasLtMatmulPreferenceAttributes_t which, const void *value,
                                                    size_t bytes)
{
    FAKE_BLAS_CALL(CUBLAS_STATUS_INVALID_VALUE);
    preference *p = inside<preference>(pref);
    switch (which) {
    case CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES:
        return take(&p->workspace_bytes, sizeof p->workspace_bytes, value, bytes);
    case CUBLASLT_MATMUL_PREF_REDUCTION_SCHEME_MASK: return take(&p->reductions, sizeof p->reductions, value, bytes);
    case CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_A_BYTES: return take(&p->alignment[0], sizeof(uint32_t), value, bytes);
    case CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_B_BYTES: return take(&p->alignment[1], sizeof(uint32_t), value, bytes);
    case CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_C_BYTES: return take(&p->alignment[2], sizeof(uint32_t), value, bytes);
    case CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_D_BYTES: return take(&p->alignment[3], sizeof(uint32_t), value, bytes);
    default: die("cublasLtMatmulPreferenceSetAttribute(%d) is not modelled", (int)which);
    }
}

/* ---- choosing and running --------------------------------------------------------------------------- */

cublasStatus_t cublasLtMatmulAlgoGetHeuristic(cublasLtHandle_t, cublasLtMatmulDesc_t desc, cublasLtMatrixLayout_t a,
                                              cublasLtMatrixLayout_t b, cublasLtMatrixLayout_t c,
                                              cublasLtMatrixLayout_t, cublasLtMatmulPreference_t pref, int wanted,
                                              cublasLtMatmulHeuristicResult_t found[], int *n)
{
    FAKE_BLAS_CALL(CUBLAS_STATUS_INTERNAL_ERROR);
    const product_desc *p = inside<product_desc>(desc);
    const layout *la = inside<layout>(a), *lb = inside<layout>(b), *lc = inside<layout>(c);
    const preference *want = inside<preference>(pref);
    *n = 0;
    if (wanted < 1 || !shapes_agree(*p, *la, *lb, *lc) || !types_agree(*p, *la, *lb, *lc)) {
        return CUBLAS_STATUS_INVALID_VALUE;
    }
    if (want->reductions & CUBLASLT_REDUCTION_SCHEME_INPLACE) die("an algorithm that adds by atomics is allowed");
    if (p->epilogue == CUBLASLT_EPILOGUE_BIAS && lc->type == CUDA_R_64F) return CUBLAS_STATUS_NOT_SUPPORTED;
    algorithm chosen = { ALGORITHM_MAGIC, {}, promised_alignment(p->bias),
                         want->workspace_bytes < 4096 ? 0 : want->workspace_bytes / 2 };
    memcpy(chosen.alignment, want->alignment, sizeof chosen.alignment);
    memset(&found[0], 0, sizeof found[0]);
    memcpy(&found[0].algo, &chosen, sizeof chosen);
    found[0].workspaceSize = chosen.workspace_bytes;
    found[0].state = CUBLAS_STATUS_SUCCESS;
    *n = 1;
    return CUBLAS_STATUS_SUCCESS;
}

cublasStatus_t cublasLtMatmul(cublasLtHandle_t handle, cublasLtMatmulDesc_t desc, const void *alpha, const void *a,
                              cublasLtMatrixLayout_t la, const void *b, cublasLtMatrixLayout_t lb, const void *beta,
                              const void *c, cublasLtMatrixLayout_t lc, void *d, cublasLtMatrixLayout_t,
                              const cublasLtMatmulAlgo_t *algo, void *workspace, size_t workspace_bytes,
                              cudaStream_t stream)
{
    FAKE_BLAS_CALL(CUBLAS_STATUS_EXECUTION_FAILED);
    algorithm chosen;
    memcpy(&chosen, algo, sizeof chosen);
    if (chosen.magic != ALGORITHM_MAGIC) die("cublasLtMatmul: the algorithm is not one of the heuristic's");
    if (workspace_bytes < chosen.workspace_bytes) die("cublasLtMatmul: the workspace is too small");
    const void *const operands[4] = { a, b, c, d };
    check_alignments(chosen, *inside<product_desc>(desc), operands);
    if (c != d) die("cublasLtMatmul: C and D differ");
    int device = current_device();
    if (handle->device != device || device_of(stream) != device) {
        die("cublasLtMatmul: of another device than the thread's, %d", device);
    }
    run r = { *inside<product_desc>(desc), *inside<layout>(la), *inside<layout>(lb), *inside<layout>(lc), 0, 0, a, b, d,
              workspace, workspace_bytes, device };
    bool wide = r.product.scale == CUDA_R_64F;
    r.alpha = wide ? *(const double *)alpha : *(const float *)alpha;
    r.beta = wide ? *(const double *)beta : *(const float *)beta;
    counts.products++;
    push(stream, [r] { run_product(r); });
    return CUBLAS_STATUS_SUCCESS;
}
