/* cuda/emulated_device.c: what kernels meet in the plugin, for tests. */
#include "cuda/emulated_device.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "core/half.h"
#include "device/cuda/cudnn.h"

enum { PROCESSORS = 3, GEMM_BYTES = 64 };

static const ebb__accel_host host = { .abi = EBB__ACCEL_ABI, .fail = ebb_fail };

ebb__cuda *emulated_device_new(void)
{
    ebb__cuda *cuda = calloc(1, sizeof *cuda);
    cuda->host = &host;
    cuda->processors = PROCESSORS;
    cuda->compute = 80;
    cuda->error = calloc(1, sizeof *cuda->error);
    cuda->partials = malloc(EBB__CUDA_REDUCE_BYTES);
    memset(cuda->partials, 0xFF, EBB__CUDA_REDUCE_BYTES);
    cuda->gemm_workspace = malloc(GEMM_BYTES);
    cuda->gemm_workspace_bytes = GEMM_BYTES;
    cuda->op = "a test";
    return cuda;
}

void emulated_device_free(ebb__cuda *cuda)
{
    free(cuda->error);
    free(cuda->partials);
    free(cuda->gemm_workspace);
    free(cuda);
}

ebb_status ebb__cuda_fail(const ebb__cuda *cuda, cudaError_t error, const char *what)
{
    return cuda->host->fail(EBB_EDEVICE, "%s: %s: error %d", cuda->op, what, (int)error);
}

/* ---- the runtime: streams run at once ---------------------------------------------------------------- */

cudaError_t cudaGetLastError(void) { return emu_take_last_error(); }

cudaError_t cudaMemsetAsync(void *to, int value, size_t bytes, cudaStream_t stream)
{
    (void)stream;
    memset(to, value, bytes);
    return cudaSuccess;
}

cudaError_t cudaMemcpyAsync(void *to, const void *from, size_t bytes, enum cudaMemcpyKind kind, cudaStream_t stream)
{
    (void)kind, (void)stream;
    memcpy(to, from, bytes);
    return cudaSuccess;
}

/* ---- products: as cuda.h says, slowly, and never reading what they may not ----------------------- */

static double get(const void *base, int64_t i, ebb_dtype dtype)
{
    switch (dtype) {
    case EBB_F32: return (double)((const float *)base)[i];
    case EBB_F64: return ((const double *)base)[i];
    case EBB_F16: return (double)ebb__f16_to_f32(((const uint16_t *)base)[i]);
    default: return (double)ebb__bf16_to_f32(((const uint16_t *)base)[i]);
    }
}

static void set(void *base, int64_t i, ebb_dtype dtype, double value)
{
    switch (dtype) {
    case EBB_F32: ((float *)base)[i] = (float)value; break;
    case EBB_F64: ((double *)base)[i] = value; break;
    case EBB_F16: ((uint16_t *)base)[i] = ebb__f32_to_f16((float)value); break;
    default: ((uint16_t *)base)[i] = ebb__f32_to_bf16((float)value);
    }
}

static double dot(const ebb__cuda_gemm *g, int64_t batch, int64_t row, int64_t column)
{
    double sum = 0;
    for (int64_t k = 0; k < g->k; k++) {
        int64_t a = batch * g->stride_a + (g->trans_a ? k * g->lda + row : row * g->lda + k);
        int64_t b = batch * g->stride_b + (g->trans_b ? column * g->ldb + k : k * g->ldb + column);
        sum += get(g->a, a, g->dtype) * get(g->b, b, g->dtype);
    }
    return sum;
}

static ebb_status check(const ebb__cuda *cuda, const ebb__cuda_gemm *g)
{
    bool rows_fit = g->lda >= (g->trans_a ? g->m : g->k) && g->ldb >= (g->trans_b ? g->k : g->n) && g->ldc >= g->n;
    bool batches_fit = g->batch == 1 || llabs(g->stride_c) >= g->n;
    bool sizes = g->m >= 0 && g->n >= 0 && g->k >= 0 && g->batch >= 0 && g->dtype <= EBB_BF16;
    if (rows_fit && batches_fit && sizes && !(g->bias && g->beta != 0)) return EBB_OK;
    return cuda->host->fail(EBB_ESTATE, "%s: a product breaks the contract of cuda.h: m %lld, n %lld, k %lld, batch "
                            "%lld, lda %lld, ldb %lld, ldc %lld, stride_c %lld, beta %g, bias %d", cuda->op,
                            (long long)g->m, (long long)g->n, (long long)g->k, (long long)g->batch, (long long)g->lda,
                            (long long)g->ldb, (long long)g->ldc, (long long)g->stride_c, g->beta, g->bias != NULL);
}

ebb_status ebb__cuda_gemm_run(ebb__cuda *cuda, const ebb__cuda_gemm *g)
{
    ebb_status st = check(cuda, g);
    for (int64_t i = 0; i < g->batch * g->m * g->n && st == EBB_OK; i++) {
        int64_t batch = i / (g->m * g->n), row = i / g->n % g->m, column = i % g->n;
        int64_t c = batch * g->stride_c + row * g->ldc + column;
        double sum = g->alpha * dot(g, batch, row, column);
        if (g->beta != 0) sum += g->beta * get(g->c, c, g->dtype);
        if (g->bias) sum += get(g->bias, column, g->dtype);
        set(g->c, c, g->dtype, sum);
    }
    return st;
}

/* ---- no cuDNN --------------------------------------------------------------------------------------- */

size_t ebb__cuda_attention_workspace(const ebb__cuda_attention_call *call)
{
    (void)call;
    return 0;
}

ebb_status ebb__cuda_attention_forward(ebb__cuda *cuda, const ebb__cuda_attention_call *call, bool *taken)
{
    (void)cuda, (void)call;
    *taken = false;
    return EBB_OK;
}

ebb_status ebb__cuda_attention_backward(ebb__cuda *cuda, const ebb__cuda_attention_call *call, bool *taken)
{
    return ebb__cuda_attention_forward(cuda, call, taken);
}
