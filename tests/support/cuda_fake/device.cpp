/* device.cpp: what devices there are and what they say of themselves, versions, errors in words. */
#include <cstdio>
#include <cstring>

#include "emu_control.h"
#include "state.h"

using namespace fake;

enum { PROCESSORS = 4 };

static thread_local int chosen_device;
int fake::current_device() { return chosen_device; }

/* What a machine without a driver, or with an old one, answers. */
static cudaError_t driver_error()
{
    return options.driver < CUDART_VERSION ? cudaErrorInsufficientDriver : cudaSuccess;
}

cudaError_t cudaGetDeviceCount(int *n) /* n stays untouched where it fails */
{
    FAKE_CALL(cudaErrorUnknown);
    if (driver_error() != cudaSuccess) return result(driver_error());
    if (options.devices == 0) return result(cudaErrorNoDevice);
    *n = options.devices;
    return cudaSuccess;
}

/* Not among the calls that can fail: it comes before every other, and would only make sweeps twice as long. */
cudaError_t cudaSetDevice(int device)
{
    guard lock = enter();
    if (driver_error() != cudaSuccess) return result(driver_error());
    if (device < 0 || device >= options.devices || device >= MOST_DEVICES) return result(cudaErrorInvalidDevice);
    chosen_device = device;
    return cudaSuccess;
}

cudaError_t cudaGetDeviceProperties(struct cudaDeviceProp *prop, int device)
{
    FAKE_CALL(cudaErrorUnknown);
    memset(prop, 0, sizeof *prop);
    snprintf(prop->name, sizeof prop->name, "Fake %d", device);
    prop->major = options.compute / 10;
    prop->minor = options.compute % 10;
    prop->totalGlobalMem = options.capacity_bytes;
    prop->multiProcessorCount = PROCESSORS;
    prop->warpSize = 32;
    prop->maxThreadsPerBlock = 1024;
    prop->sharedMemPerBlock = 48 << 10;
    prop->sharedMemPerBlockOptin = 99 << 10;
    return cudaSuccess;
}

cudaError_t cudaDeviceGetAttribute(int *value, enum cudaDeviceAttr which, int)
{
    FAKE_CALL(cudaErrorUnknown);
    switch (which) {
    case cudaDevAttrMultiProcessorCount: *value = PROCESSORS; break;
    case cudaDevAttrComputeCapabilityMajor: *value = options.compute / 10; break;
    case cudaDevAttrComputeCapabilityMinor: *value = options.compute % 10; break;
    case cudaDevAttrMaxSharedMemoryPerBlockOptin: *value = 99 << 10; break;
    default: die("cudaDeviceGetAttribute(%d) is not modelled", (int)which);
    }
    return cudaSuccess;
}

cudaError_t cudaFuncSetAttribute(const void *, enum cudaFuncAttribute, int)
{
    FAKE_CALL(cudaErrorUnknown);
    return cudaSuccess;
}

cudaError_t cudaRuntimeGetVersion(int *version)
{
    *version = CUDART_VERSION;
    return cudaSuccess;
}

cudaError_t cudaDriverGetVersion(int *version)
{
    guard lock = enter();
    *version = options.driver;
    return cudaSuccess;
}

cudaError_t cudaGetLastError(void) { return emu_take_last_error(); }
cudaError_t cudaPeekAtLastError(void) { return emu_last_error; }

static const struct { cudaError_t error; const char *name, *text; } names[] = {
    { cudaSuccess, "cudaSuccess", "no error" },
    { cudaErrorMemoryAllocation, "cudaErrorMemoryAllocation", "out of memory" },
    { cudaErrorInsufficientDriver, "cudaErrorInsufficientDriver", "CUDA driver version is insufficient" },
    { cudaErrorNoDevice, "cudaErrorNoDevice", "no CUDA-capable device is detected" },
    { cudaErrorLaunchFailure, "cudaErrorLaunchFailure", "unspecified launch failure" },
    { cudaErrorLaunchOutOfResources, "cudaErrorLaunchOutOfResources", "too many resources requested for launch" },
    { cudaErrorInvalidResourceHandle, "cudaErrorInvalidResourceHandle", "invalid resource handle" },
    { cudaErrorInvalidConfiguration, "cudaErrorInvalidConfiguration", "invalid configuration argument" },
    { cudaErrorStreamCaptureUnsupported, "cudaErrorStreamCaptureUnsupported", "not permitted during capture" },
    { cudaErrorStreamCaptureInvalidated, "cudaErrorStreamCaptureInvalidated", "the capture was invalidated" },
    { cudaErrorUnknown, "cudaErrorUnknown", "unknown error" },
};

const char *cudaGetErrorName(cudaError_t error)
{
    for (const auto &n : names)
        if (n.error == error) return n.name;
    return "a CUDA error";
}

const char *cudaGetErrorString(cudaError_t error)
{
    for (const auto &n : names)
        if (n.error == error) return n.text;
    return "an error without words in the fake";
}
