/* open.c: which devices there are, opening and closing one, what it is, and what the pool lends it. */
#include <cublasLt.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include "device/cuda/cudnn.h"
#include "device/cuda/table.h"

/* ---- counting ----------------------------------------------------------------------------------- */

/* CUDA's numbers of versions: 13000 is 13.0. */
static int major_of(int version) { return version / 1000; }
static int minor_of(int version) { return version % 1000 / 10; }

static ebb_status no_driver(const ebb__accel_host *host, cudaError_t error)
{
    int driver = 0, runtime = 0;
    (void)cudaDriverGetVersion(&driver);
    (void)cudaRuntimeGetVersion(&runtime);
    (void)cudaGetLastError();
    if (driver == 0) {
        return host->fail(EBB_EDEVICE, "cuda: there is no NVIDIA driver on this machine (libcuda.so.1 is not found)");
    }
    if (error == cudaErrorInsufficientDriver) {
        return host->fail(EBB_EDEVICE, "cuda: the NVIDIA driver is for CUDA %d.%d; this build needs one for %d.%d or "
                          "later", major_of(driver), minor_of(driver), major_of(runtime), minor_of(runtime));
    }
    return host->fail(EBB_EDEVICE, "cuda: cudaGetDeviceCount failed: %s (%s)", cudaGetErrorString(error),
                      cudaGetErrorName(error));
}

ebb_status ebb__cuda_count(const ebb__accel_host *host, int *n)
{
    int found = 0; /* CUDA leaves it untouched where it fails */
    cudaError_t error = cudaGetDeviceCount(&found);
    if (error != cudaSuccess && error != cudaErrorNoDevice) return no_driver(host, error);
    (void)cudaGetLastError();
    if (found == 0) return host->fail(EBB_EDEVICE, "cuda: the driver shows no GPU to this process");
    *n = found;
    return EBB_OK;
}

/* ---- opening -------------------------------------------------------------------------------------- */

static ebb_status attribute(const ebb__cuda *cuda, int *value, enum cudaDeviceAttr which)
{
    EBB__CUDA_TRY(cuda, cudaDeviceGetAttribute(value, which, cuda->ordinal));
    return EBB_OK;
}

static ebb_status read_facts(ebb__cuda_device *device)
{
    ebb__cuda *cuda = &device->shared;
    ebb__accel_facts *facts = &device->facts;
    struct cudaDeviceProp prop;
    size_t free_bytes;
    ebb_status st;
    EBB__CUDA_TRY(cuda, cudaGetDeviceProperties(&prop, cuda->ordinal));
    snprintf(facts->name, sizeof facts->name, "%.95s", prop.name);
    if ((st = attribute(cuda, &facts->compute_major, cudaDevAttrComputeCapabilityMajor)) != EBB_OK) return st;
    if ((st = attribute(cuda, &facts->compute_minor, cudaDevAttrComputeCapabilityMinor)) != EBB_OK) return st;
    if ((st = attribute(cuda, &facts->processors, cudaDevAttrMultiProcessorCount)) != EBB_OK) return st;
    cuda->processors = facts->processors;
    cuda->compute = 10 * facts->compute_major + facts->compute_minor;
    if (cuda->compute < EBB__CUDA_MIN_COMPUTE) {
        return EBB__CUDA_FAIL(cuda, EBB_EDEVICE, "cuda:%d: %s has compute capability %d.%d; the kernels are for %d.%d "
                              "and later", cuda->ordinal, facts->name, facts->compute_major, facts->compute_minor,
                              EBB__CUDA_MIN_COMPUTE / 10, EBB__CUDA_MIN_COMPUTE % 10);
    }
    EBB__CUDA_TRY(cuda, cudaMemGetInfo(&free_bytes, &facts->capacity_bytes));
    facts->lent_bytes = EBB__CUDA_ERROR_BYTES + EBB__CUDA_REDUCE_BYTES + ebb__cuda_gemm_workspace_bytes(cuda);
    return EBB_OK;
}

static void name_libraries(ebb__cuda_device *device)
{
    int driver = 0, runtime = 0, cudnn = ebb__cuda_attention_version(device->shared.attention);
    size_t cublas = cublasLtGetVersion();
    (void)cudaDriverGetVersion(&driver);
    (void)cudaRuntimeGetVersion(&runtime);
    int n = snprintf(device->facts.libraries, sizeof device->facts.libraries,
                     "CUDA %d.%d, driver %d.%d, cuBLAS %zu.%zu.%zu", major_of(runtime), minor_of(runtime),
                     major_of(driver), minor_of(driver), cublas / 10000, cublas / 100 % 100, cublas % 100);
    if (cudnn > 0) {
        snprintf(device->facts.libraries + n, sizeof device->facts.libraries - (size_t)n, ", cuDNN %d.%d.%d",
                 cudnn / 10000, cudnn / 100 % 100, cudnn % 100);
    }
}

/* All that can fail; what was made so far stays for close(). */
static ebb_status set_up(ebb__cuda_device *device)
{
    ebb__cuda *cuda = &device->shared;
    EBB__CUDA_TRY(cuda, cudaSetDevice(cuda->ordinal));
    ebb_status st = read_facts(device);
    if (st == EBB_OK) st = ebb__cuda_stream_init(device, &device->compute);
    if (st != EBB_OK) return st;
    cuda->stream = device->compute.stream;
    EBB__CUDA_TRY(cuda, cudaHostAlloc((void **)&device->words, sizeof *device->words, cudaHostAllocPortable));
    if ((st = ebb__cuda_gemms_open(cuda)) != EBB_OK) return st;
    if ((st = ebb__cuda_attention_open(cuda, &cuda->attention)) != EBB_OK) return st;
    name_libraries(device);
    return EBB_OK;
}

ebb_status ebb__cuda_open(void **self, const ebb__accel_host *host, int ordinal)
{
    int n = 0;
    ebb_status st = ebb__cuda_count(host, &n);
    if (st != EBB_OK) return st;
    if (ordinal < 0 || ordinal >= n) {
        return host->fail(EBB_EINVAL, "cuda:%d: there is no such device; the last is cuda:%d", ordinal, n - 1);
    }
    ebb__cuda_device *device = calloc(1, sizeof *device);
    if (!device) return host->fail(EBB_ENOMEM, "cuda: no host memory for a device");
    device->shared.host = host;
    device->shared.ordinal = ordinal;
    ebb__cuda_memory_init(device);
    st = set_up(device);
    if (st == EBB_OK) {
        device->facts.page_bytes = device->page_bytes;
        *self = device;
    } else {
        ebb__cuda_close(device);
    }
    return st;
}

void ebb__cuda_close(void *self)
{
    ebb__cuda_device *device = self;
    if (!device) return;
    (void)cudaSetDevice(device->shared.ordinal);
    (void)cudaDeviceSynchronize();
    ebb__cuda_attention_close(device->shared.attention);
    ebb__cuda_gemms_close(device->shared.gemms);
    if (device->words) (void)cudaFreeHost(device->words);
    ebb__cuda_stream_deinit(&device->compute);
    ebb__cuda_memory_deinit(device);
    (void)cudaGetLastError();
    free(device);
}

void ebb__cuda_facts(void *self, ebb__accel_facts *out) { *out = ((ebb__cuda_device *)self)->facts; }

/* Cuts the lent bytes: the error word, partial sums, the products' workspace. */
ebb_status ebb__cuda_lend(void *self, void *memory)
{
    EBB__CUDA_ENTER(device, self);
    ebb__cuda *cuda = &device->shared;
    char *at = memory;
    cuda->error = memory;
    cuda->given = memory ? at + EBB__CUDA_GIVEN_AT : NULL;
    cuda->partials = memory ? (double *)(void *)(at + EBB__CUDA_ERROR_BYTES) : NULL;
    cuda->gemm_workspace = memory ? at + EBB__CUDA_ERROR_BYTES + EBB__CUDA_REDUCE_BYTES : NULL;
    cuda->gemm_workspace_bytes = memory ? ebb__cuda_gemm_workspace_bytes(cuda) : 0;
    if (!memory) return EBB_OK;
    EBB__CUDA_TRY(cuda, cudaMemsetAsync(cuda->error, 0, EBB__CUDA_ERROR_BYTES, cuda->stream));
    return EBB_OK;
}
