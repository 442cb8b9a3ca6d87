/* memory.cpp: device and page-locked memory, copies, and who may touch what. */
#include <sanitizer/asan_interface.h>
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
    int device;
    bool is_page; /* mapped by vmm.cpp */
};
/* Allocations and mapped pages by address. */
static std::map<char *, block> device_blocks;
static std::map<char *, size_t> pinned_blocks;
static int n_accesses;
static size_t used_bytes[MOST_DEVICES];

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

/* ---- memory that goes while work is queued ------------------------------------------------------------
 * cudaFree() and cudaFreeHost() promise no wait.  What they get is garbage at once, and stays so, at its address,
 * until the queues are empty: work that used it then reads garbage, or is found to have written. */

enum { GARBAGE = 0xff }; /* NaN in every float type */

struct retired_block {
    char *p;
    size_t bytes;
    bool closed; /* nobody can touch it: device memory under `protect` */
};
static std::vector<retired_block> retired_blocks;

static void let_go(const retired_block &b)
{
    ASAN_UNPOISON_MEMORY_REGION(b.p, b.bytes);
    if (b.closed) {
        host_free(b.p, b.bytes);
        return;
    }
    /* each byte is the next one: quicker than one by one */
    bool untouched = b.bytes == 0 || ((unsigned char)b.p[0] == GARBAGE && memcmp(b.p, b.p + 1, b.bytes - 1) == 0);
    if (!untouched) die("queued work wrote to freed memory, %zu bytes", b.bytes);
    free(b.p);
}

/* is_mapped: host_alloc() gave it. */
static void retire(char *p, size_t bytes, bool is_mapped)
{
    bool closed = is_mapped && options.protect;
    if (closed) mprotect(p, rounded(bytes, HOST_PAGE), PROT_NONE);
    else memset(p, GARBAGE, bytes);
    ASAN_POISON_MEMORY_REGION(p, bytes);
    retired_blocks.push_back({ p, bytes, closed });
    if (all_empty()) work_is_done();
}

void work_is_done()
{
    for (const retired_block &b : retired_blocks) let_go(b);
    retired_blocks.clear();
}

bool take_capacity(size_t bytes, int device)
{
    if (used_bytes[device] + bytes > options.capacity_bytes) return false;
    used_bytes[device] += bytes;
    counts.used_bytes += bytes;
    counts.peak_bytes = std::max(counts.peak_bytes, counts.used_bytes);
    return true;
}

void give_capacity(size_t bytes, int device)
{
    used_bytes[device] -= bytes;
    counts.used_bytes -= bytes;
}

void add_page(char *p, size_t bytes, int device)
{
    device_blocks[p] = { bytes, device, true };
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

bool is_device(const void *p, size_t bytes, int device)
{
    const char *at = (const char *)p, *end = at + bytes;
    for (bool first = true; first || at < end; first = false) {
        auto it = block_of(at);
        if (it == device_blocks.end() || it->second.device != device) return false;
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
    FAKE_UNSAFE_CALL(cudaErrorMemoryAllocation);
    if (bytes == 0) {
        *p = nullptr;
        return cudaSuccess;
    }
    if (!take_capacity(rounded(bytes, ALIGNMENT), current_device())) return result(cudaErrorMemoryAllocation);
    char *block = host_alloc(bytes);
    if (!block) die("no host memory for %zu bytes of the device", bytes);
    memset(block, GARBAGE, bytes);
    if (options.protect && n_accesses == 0) mprotect(block, rounded(bytes, HOST_PAGE), PROT_NONE);
    device_blocks[block] = { bytes, current_device(), false };
    counts.blocks++;
    *p = block;
    return cudaSuccess;
}

cudaError_t cudaFree(void *p)
{
    guard lock = enter();
    if (!p) return cudaSuccess;
    auto it = device_blocks.find((char *)p);
    if (it == device_blocks.end() || it->second.is_page) die("cudaFree of %p, which cudaMalloc did not give", p);
    give_capacity(rounded(it->second.bytes, ALIGNMENT), it->second.device);
    retire(it->first, it->second.bytes, true);
    device_blocks.erase(it);
    counts.blocks--;
    write_report();
    return cudaSuccess;
}

cudaError_t cudaHostAlloc(void **p, size_t bytes, unsigned)
{
    FAKE_UNSAFE_CALL(cudaErrorMemoryAllocation);
    if (posix_memalign(p, HOST_PAGE, bytes ? bytes : 1) != 0) return result(cudaErrorMemoryAllocation);
    memset(*p, GARBAGE, bytes);
    pinned_blocks[(char *)*p] = bytes;
    counts.pinned++;
    return cudaSuccess;
}

cudaError_t cudaFreeHost(void *p)
{
    guard lock = enter();
    if (!p) return cudaSuccess;
    auto it = pinned_blocks.find((char *)p);
    if (it == pinned_blocks.end()) die("cudaFreeHost of %p, which cudaHostAlloc did not give", p);
    retire(it->first, it->second, false);
    pinned_blocks.erase(it);
    counts.pinned--;
    write_report();
    return cudaSuccess;
}

cudaError_t cudaMemGetInfo(size_t *available, size_t *total)
{
    FAKE_CALL(cudaErrorUnknown);
    *total = options.capacity_bytes;
    *available = options.capacity_bytes - used_bytes[current_device()];
    return cudaSuccess;
}

/* ---- copies ---------------------------------------------------------------------------------------- */

enum { HOST = -1 };

/* device: where the work runs, whose memory it is to be; HOST: host memory. */
static void check_side(const char *what, const void *p, size_t bytes, int device)
{
    if (device != HOST && !is_device(p, bytes, device)) {
        die("%s [%p, +%zu) is not memory of device %d, or not all of it", what, p, bytes, device);
    }
    if (device == HOST && touches_device(p, bytes)) {
        die("%s [%p, +%zu) is device memory; the copy says host", what, p, bytes);
    }
}

struct copy_sides {
    int to_device, from_device;  /* or HOST */
    bool to_pinned, from_pinned; /* it was when the copy was queued */
};

/* Memory that goes away before the stream gets to it is found then. */
static void move(void *to, const void *from, size_t bytes, copy_sides sides)
{
    check_side("target of a copy", to, bytes, sides.to_device);
    check_side("source of a copy", from, bytes, sides.from_device);
    if (sides.to_pinned && !is_pinned(to, bytes)) die("a copy's target was freed before the stream came to it");
    if (sides.from_pinned && !is_pinned(from, bytes)) die("a copy's source was freed before the stream came to it");
    memmove(to, from, bytes);
}

cudaError_t cudaMemcpyAsync(void *to, const void *from, size_t bytes, enum cudaMemcpyKind kind, cudaStream_t stream)
{
    FAKE_CALL(cudaErrorUnknown);
    int device = device_of(stream), to_device = kind == cudaMemcpyDeviceToHost ? HOST : device;
    int from_device = kind == cudaMemcpyHostToDevice ? HOST : device;
    if (kind != cudaMemcpyHostToDevice && kind != cudaMemcpyDeviceToHost && kind != cudaMemcpyDeviceToDevice) {
        return result(cudaErrorInvalidMemcpyDirection);
    }
    check_side("target of a copy", to, bytes, to_device);
    check_side("source of a copy", from, bytes, from_device);
    copy_sides sides = { to_device, from_device, to_device == HOST && is_pinned(to, bytes),
                         from_device == HOST && is_pinned(from, bytes) };
    if (from_device == HOST && !sides.from_pinned) { /* pageable: read before the call returns */
        auto staged = std::make_shared<std::vector<char>>((const char *)from, (const char *)from + bytes);
        push(stream, [=] { move(to, staged->data(), bytes, sides); });
    } else {
        push(stream, [=] { move(to, from, bytes, sides); });
    }
    return cudaSuccess;
}

cudaError_t cudaMemsetAsync(void *to, int value, size_t bytes, cudaStream_t stream)
{
    FAKE_CALL(cudaErrorUnknown);
    int device = device_of(stream);
    check_side("target of a memset", to, bytes, device);
    push(stream, [=] {
        check_side("target of a memset", to, bytes, device);
        memset(to, value, bytes);
    });
    return cudaSuccess;
}
