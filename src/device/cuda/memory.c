/* memory.c: where the pools' segments come from: device memory by cudaMalloc, page-locked host memory. */
#include "device/cuda/table.h"

static bool enter(ebb__cuda_device *device)
{
    return cudaSetDevice(device->shared.ordinal) == cudaSuccess;
}

/* cudaFree() and cudaFreeHost() mostly wait by themselves, but promise it nowhere; unmapping does not. */
void ebb__cuda_finish_work(ebb__cuda_device *device)
{
    (void)enter(device); /* a thread's first call may fail; what it would wait for runs nevertheless */
    (void)cudaDeviceSynchronize();
    (void)cudaGetLastError();
}

/* A refusal is an answer here, not an error that later calls should find. */
static bool answered(cudaError_t error)
{
    if (error == cudaSuccess) return true;
    (void)cudaGetLastError();
    return false;
}

static void *device_alloc(void *self, size_t bytes)
{
    void *p = NULL;
    return enter(self) && answered(cudaMalloc(&p, bytes)) ? p : NULL;
}

static void device_free(void *self, void *p, size_t bytes)
{
    (void)bytes;
    ebb__cuda_finish_work(self);
    (void)answered(cudaFree(p));
}

static void *pinned_alloc(void *self, size_t bytes)
{
    void *p = NULL;
    return enter(self) && answered(cudaHostAlloc(&p, bytes, cudaHostAllocPortable)) ? p : NULL;
}

static void pinned_free(void *self, void *p, size_t bytes)
{
    (void)bytes;
    ebb__cuda_finish_work(self);
    (void)answered(cudaFreeHost(p));
}

void ebb__cuda_memory_init(ebb__cuda_device *device)
{
    device->device_memory = (ebb__provider){ .alloc = device_alloc, .free = device_free, .self = device };
    device->pinned_memory = (ebb__provider){
        .alloc = pinned_alloc, .free = pinned_free, .self = device, .touchable = true
    };
    ebb__cuda_expandable_init(device);
}

void ebb__cuda_memory_deinit(ebb__cuda_device *device) { ebb__cuda_expandable_deinit(device); }

ebb__provider ebb__cuda_provider(void *self) { return ((ebb__cuda_device *)self)->device_memory; }
ebb__provider ebb__cuda_pinned(void *self) { return ((ebb__cuda_device *)self)->pinned_memory; }
