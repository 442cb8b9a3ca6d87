/* memory.cpp: device and page-locked memory, copies, and who may touch what. */
#include <sys/mman.h>
#include <algorithm>
#include <cstdlib>
#include <cstring>
#include <map>

#include "state.h"

namespace fake {

enum { ALIGNMENT = 512, HOST_PAGE = 4096 };

struct block {
    size_t bytes;
    bool is_page; /* mapped by vmm.cpp */
};
/* Allocations and mapped pages by address. */
static std::map<char *, block> device_blocks;
static std::map<char *, size_t> pinned_blocks;
static int n_accesses;

static size_t rounded(size_t bytes, size_t to) { return (bytes + to - 1) / to * to; }

/* ---- protection ------------------------------------------------------------------------------------ */

/* Neighbours go in one call. */
static void protect_all(int protection)
{
    char *begin = nullptr, *end = nullptr;
    for (const auto &[p, b] : device_blocks) {
        if (p != end) {
            if (begin) mprotect(begin, (size_t)(end - begin), protection);
            begin = p;
        }
        end = p + rounded(b.bytes, HOST_PAGE);
    }
    if (begin) mprotect(begin, (size_t)(end - begin), protection);
}

access::access()
{
    if (options.protect && n_accesses++ == 0) protect_all(PROT_READ | PROT_WRITE);
}

access::~access()
{
    if (options.protect && --n_accesses == 0) protect_all(PROT_NONE);
}

/* ---- blocks ---------------------------------------------------------------------------------------- */

/* Exactly so long, that AddressSanitizer sees what runs over; where memory is protected, whole pages with
 * one behind that is never accessible. */
static char *host_alloc(size_t bytes)
{
    void *p = nullptr;
    if (!options.protect) return posix_memalign(&p, ALIGNMENT, bytes) == 0 ? (char *)p : nullptr;
    size_t size = rounded(bytes, HOST_PAGE);
    p = mmap(nullptr, size + HOST_PAGE, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (p == MAP_FAILED) return nullptr;
    mprotect((char *)p + size, HOST_PAGE, PROT_NONE);
    return (char *)p;
}

static void host_free(char *p, size_t bytes)
{
    if (options.protect) munmap(p, rounded(bytes, HOST_PAGE) + HOST_PAGE);
    else free(p);
}

bool take_capacity(size_t bytes)
{
    if (counts.used_bytes + bytes > options.capacity_bytes) return false;
    counts.used_bytes += bytes;
    counts.peak_bytes = std::max(counts.peak_bytes, counts.used_bytes);
    return true;
}

void give_capacity(size_t bytes) { counts.used_bytes -= bytes; }

void add_page(char *p, size_t bytes)
{
    device_blocks[p] = { bytes, true };
    if (options.protect && n_accesses == 0) mprotect(p, bytes, PROT_NONE);
}

void remove_page(char *p, size_t bytes)
{
    auto it = device_blocks.find(p);
    if (it != device_blocks.end() && it->second.is_page && it->second.bytes == bytes) device_blocks.erase(it);
}

/* The block that p lies in; end() where there is none. */
static std::map<char *, block>::iterator block_of(const char *p)
{
    auto it = device_blocks.upper_bound(const_cast<char *>(p));
    if (it == device_blocks.begin()) return device_blocks.end();
    --it;
    return p < it->first + it->second.bytes ? it : device_blocks.end();
}

bool is_device(const void *p, size_t bytes)
{
    const char *at = (const char *)p, *end = at + bytes;
    for (bool first = true; first || at < end; first = false) {
        auto it = block_of(at);
        if (it == device_blocks.end()) return false;
        if (!first && !it->second.is_page) return false; /* allocations do not go on in one another */
        at = it->first + it->second.bytes;
        if (!it->second.is_page) return at >= end;
    }
    return true;
}

bool touches_device(const void *p, size_t bytes)
{
    auto it = device_blocks.lower_bound((char *)const_cast<void *>(p));
    if (it != device_blocks.end() && it->first < (const char *)p + bytes) return true;
    return block_of((const char *)p) != device_blocks.end();
}

bool is_pinned(const void *p, size_t bytes)
{
    auto it = pinned_blocks.upper_bound((char *)const_cast<void *>(p));
    if (it == pinned_blocks.begin()) return false;
    --it;
    return (const char *)p + bytes <= it->first + it->second;
}

}

using namespace fake;

cudaError_t cudaMalloc(void **p, size_t bytes)
{
    FAKE_CALL(cudaErrorMemoryAllocation);
    if (bytes == 0) {
        *p = nullptr;
        return cudaSuccess;
    }
    if (!take_capacity(rounded(bytes, ALIGNMENT))) return result(cudaErrorMemoryAllocation);
    char *block = host_alloc(bytes);
    if (!block) die("no host memory for %zu bytes of the device", bytes);
    memset(block, 0xff, bytes); /* NaN in every float type */
    if (options.protect && n_accesses == 0) mprotect(block, rounded(bytes, HOST_PAGE), PROT_NONE);
    device_blocks[block] = { bytes, false };
    counts.blocks++;
    *p = block;
    return cudaSuccess;
}

/* As on a device: waits for all work. */
cudaError_t cudaFree(void *p)
{
    guard lock = enter();
    if (!p) return cudaSuccess;
    drain(lock);
    auto it = device_blocks.find((char *)p);
    if (it == device_blocks.end() || it->second.is_page) die("cudaFree of %p, which cudaMalloc did not give", p);
    give_capacity(rounded(it->second.bytes, ALIGNMENT));
    host_free(it->first, it->second.bytes);
    device_blocks.erase(it);
    counts.blocks--;
    write_report();
    return cudaSuccess;
}

cudaError_t cudaHostAlloc(void **p, size_t bytes, unsigned)
{
    FAKE_CALL(cudaErrorMemoryAllocation);
    if (posix_memalign(p, HOST_PAGE, bytes ? bytes : 1) != 0) return result(cudaErrorMemoryAllocation);
    memset(*p, 0xff, bytes);
    pinned_blocks[(char *)*p] = bytes;
    counts.pinned++;
    return cudaSuccess;
}

/* Waits for nothing here: CUDA does not promise it. */
cudaError_t cudaFreeHost(void *p)
{
    guard lock = enter();
    if (!p) return cudaSuccess;
    if (pinned_blocks.erase((char *)p) == 0) die("cudaFreeHost of %p, which cudaHostAlloc did not give", p);
    free(p);
    counts.pinned--;
    write_report();
    return cudaSuccess;
}

cudaError_t cudaMemGetInfo(size_t *available, size_t *total)
{
    FAKE_CALL(cudaErrorUnknown);
    *total = options.capacity_bytes;
    *available = options.capacity_bytes - counts.used_bytes;
    return cudaSuccess;
}

/* ---- copies ---------------------------------------------------------------------------------------- */

static void check_side(const char *what, const void *p, size_t bytes, bool device)
{
    if (device && !is_device(p, bytes)) die("%s [%p, +%zu) is not device memory, or not all of it", what, p, bytes);
    if (!device && touches_device(p, bytes)) die("%s [%p, +%zu) is device memory; the copy says host", what, p, bytes);
}

/* Memory that goes away before the stream gets to it is found then. */
static void move(void *to, const void *from, size_t bytes, bool to_device, bool from_device)
{
    check_side("target of a copy", to, bytes, to_device);
    check_side("source of a copy", from, bytes, from_device);
    memmove(to, from, bytes);
}

cudaError_t cudaMemcpyAsync(void *to, const void *from, size_t bytes, enum cudaMemcpyKind kind, cudaStream_t stream)
{
    FAKE_CALL(cudaErrorUnknown);
    bool to_device = kind == cudaMemcpyHostToDevice || kind == cudaMemcpyDeviceToDevice;
    bool from_device = kind == cudaMemcpyDeviceToHost || kind == cudaMemcpyDeviceToDevice;
    if (kind != cudaMemcpyHostToDevice && kind != cudaMemcpyDeviceToHost && kind != cudaMemcpyDeviceToDevice) {
        return result(cudaErrorInvalidMemcpyDirection);
    }
    check_side("target of a copy", to, bytes, to_device);
    check_side("source of a copy", from, bytes, from_device);
    if (!from_device && !is_pinned(from, bytes)) { /* pageable: read before the call returns */
        auto staged = std::make_shared<std::vector<char>>((const char *)from, (const char *)from + bytes);
        push(stream, [=] { move(to, staged->data(), bytes, true, false); });
    } else {
        push(stream, [=] { move(to, from, bytes, to_device, from_device); });
    }
    return cudaSuccess;
}

cudaError_t cudaMemsetAsync(void *to, int value, size_t bytes, cudaStream_t stream)
{
    FAKE_CALL(cudaErrorUnknown);
    check_side("target of a memset", to, bytes, true);
    push(stream, [=] {
        check_side("target of a memset", to, bytes, true);
        memset(to, value, bytes);
    });
    return cudaSuccess;
}
