/* vmm.cpp: the driver's virtual memory: a reserved range is PROT_NONE, a handle is a file in memory, mapping
 * puts the file there.  Touching a page before cuMemSetAccess or after cuMemUnmap is SIGSEGV; a handle that
 * moves keeps its bytes.  As on a device, nothing here waits for streams. */
#include <cuda.h>
#include <sys/mman.h>
#include <unistd.h>
#include <cstring>
#include <map>

#include "state.h"

using namespace fake;

enum { PAGE = 2 << 20 };

struct handle {
    int file, device;
    size_t bytes;
    bool mapped;
};
struct mapping {
    size_t bytes;
    CUmemGenericAllocationHandle handle;
    bool accessible;
};
static std::map<CUmemGenericAllocationHandle, handle> handles;
static std::map<char *, mapping> mappings;
static std::map<char *, size_t> reservations;

/* A call of the driver. */
#define FAKE_DRIVER_CALL(name, error)                                      \
    guard lock = enter();                                                  \
    if (crash != cudaSuccess) return CUDA_ERROR_LAUNCH_FAILED;             \
    if (must_fail(name)) return error

static CUresult granularity(size_t *bytes, const CUmemAllocationProp *, CUmemAllocationGranularity_flags)
{
    FAKE_DRIVER_CALL("cuMemGetAllocationGranularity", CUDA_ERROR_UNKNOWN);
    *bytes = PAGE;
    return CUDA_SUCCESS;
}

static CUresult reserve(CUdeviceptr *p, size_t bytes, size_t, CUdeviceptr, unsigned long long)
{
    FAKE_DRIVER_CALL("cuMemAddressReserve", CUDA_ERROR_OUT_OF_MEMORY);
    if (bytes == 0 || bytes % PAGE) return CUDA_ERROR_INVALID_VALUE;
    char *range = (char *)mmap(nullptr, bytes + PAGE, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (range == MAP_FAILED) return CUDA_ERROR_OUT_OF_MEMORY;
    size_t skip = (PAGE - (size_t)range % PAGE) % PAGE; /* what lies around an aligned range goes back */
    if (skip) munmap(range, skip);
    if (skip < PAGE) munmap(range + skip + bytes, PAGE - skip);
    reservations[range + skip] = bytes;
    counts.reservations++;
    *p = (CUdeviceptr)(range + skip);
    return CUDA_SUCCESS;
}

static CUresult address_free(CUdeviceptr p, size_t bytes)
{
    guard lock = enter();
    auto it = reservations.find((char *)p);
    if (it == reservations.end() || it->second != bytes) die("cuMemAddressFree of what was not reserved so");
    auto inside = mappings.lower_bound((char *)p);
    if (inside != mappings.end() && inside->first < (char *)p + bytes) die("cuMemAddressFree: a page is still mapped");
    munmap((void *)p, bytes);
    reservations.erase(it);
    counts.reservations--;
    write_report();
    return CUDA_SUCCESS;
}

static void fill_with_nan(int file, size_t bytes)
{
    void *p = mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_SHARED, file, 0);
    if (p == MAP_FAILED) die("no host memory for a page");
    memset(p, 0xff, bytes);
    munmap(p, bytes);
}

static CUresult create(CUmemGenericAllocationHandle *out, size_t bytes, const CUmemAllocationProp *prop,
                       unsigned long long)
{
    FAKE_DRIVER_CALL("cuMemCreate", CUDA_ERROR_OUT_OF_MEMORY);
    static CUmemGenericAllocationHandle last;
    if (bytes == 0 || bytes % PAGE) return CUDA_ERROR_INVALID_VALUE;
    if (!take_capacity(bytes, prop->location.id)) return CUDA_ERROR_OUT_OF_MEMORY;
    int file = memfd_create("fake device page", MFD_CLOEXEC);
    if (file < 0 || ftruncate(file, (off_t)bytes) != 0) die("no file in memory for a page");
    fill_with_nan(file, bytes);
    handles[++last] = { file, prop->location.id, bytes, false };
    counts.pages++;
    *out = last;
    return CUDA_SUCCESS;
}

static CUresult release(CUmemGenericAllocationHandle which)
{
    guard lock = enter();
    auto it = handles.find(which);
    if (it == handles.end()) die("cuMemRelease of a handle that is not there");
    if (it->second.mapped) die("cuMemRelease of a handle that is mapped"); /* allowed by CUDA, but not meant by us */
    close(it->second.file);
    give_capacity(it->second.bytes, it->second.device);
    handles.erase(it);
    counts.pages--;
    write_report();
    return CUDA_SUCCESS;
}

static bool is_reserved(char *p, size_t bytes)
{
    auto it = reservations.upper_bound(p);
    if (it == reservations.begin()) return false;
    --it;
    return p + bytes <= it->first + it->second;
}

static CUresult map(CUdeviceptr p, size_t bytes, size_t offset, CUmemGenericAllocationHandle which,
                    unsigned long long)
{
    FAKE_DRIVER_CALL("cuMemMap", CUDA_ERROR_OUT_OF_MEMORY);
    auto it = handles.find(which);
    if (it == handles.end() || it->second.bytes != bytes || offset != 0) return CUDA_ERROR_INVALID_VALUE;
    if (!is_reserved((char *)p, bytes) || mappings.count((char *)p) || it->second.mapped) return CUDA_ERROR_INVALID_VALUE;
    void *at = mmap((void *)p, bytes, PROT_NONE, MAP_SHARED | MAP_FIXED, it->second.file, 0);
    if (at == MAP_FAILED) return CUDA_ERROR_OUT_OF_MEMORY;
    it->second.mapped = true;
    mappings[(char *)p] = { bytes, which, false };
    return CUDA_SUCCESS;
}

static CUresult unmap(CUdeviceptr p, size_t bytes) /* as what frees, also after a crash */
{
    guard lock = enter();
    if (must_fail("cuMemUnmap")) return CUDA_ERROR_UNKNOWN;
    auto it = mappings.find((char *)p);
    if (it == mappings.end() || it->second.bytes != bytes) return CUDA_ERROR_INVALID_VALUE;
    mmap((void *)p, bytes, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE | MAP_FIXED, -1, 0);
    handles[it->second.handle].mapped = false;
    remove_page(it->first, bytes);
    mappings.erase(it);
    return CUDA_SUCCESS;
}

static CUresult set_access(CUdeviceptr p, size_t bytes, const CUmemAccessDesc *, size_t)
{
    FAKE_DRIVER_CALL("cuMemSetAccess", CUDA_ERROR_UNKNOWN);
    char *begin = (char *)p;
    for (char *at = begin; at < begin + bytes;) {
        auto it = mappings.find(at);
        if (it == mappings.end()) return CUDA_ERROR_INVALID_VALUE;
        mprotect(at, it->second.bytes, PROT_READ | PROT_WRITE);
        it->second.accessible = true;
        add_page(at, it->second.bytes, handles[it->second.handle].device);
        at += it->second.bytes;
    }
    return CUDA_SUCCESS;
}

cudaError_t cudaGetDriverEntryPointByVersion(const char *symbol, void **function, unsigned, unsigned long long,
                                             enum cudaDriverEntryPointQueryResult *found)
{
    static const struct { const char *name; void *function; } entries[] = {
        { "cuMemGetAllocationGranularity", (void *)granularity },
        { "cuMemAddressReserve", (void *)reserve },
        { "cuMemAddressFree", (void *)address_free },
        { "cuMemCreate", (void *)create },
        { "cuMemRelease", (void *)release },
        { "cuMemMap", (void *)map },
        { "cuMemUnmap", (void *)unmap },
        { "cuMemSetAccess", (void *)set_access },
    };
    FAKE_CALL(cudaErrorUnknown);
    *function = nullptr;
    *found = cudaDriverEntryPointSymbolNotFound;
    for (const auto &e : entries) {
        if (!options.vmm || strcmp(e.name, symbol) != 0) continue;
        *function = e.function;
        *found = cudaDriverEntryPointSuccess;
    }
    return cudaSuccess;
}
