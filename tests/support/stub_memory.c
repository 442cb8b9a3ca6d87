/* support/stub_memory.c: ranges of memory: reserved addresses, and pieces that have memory. */
#include "support/stub_memory.h"

#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#include "support/stub_streams.h"

enum { MAX_PIECES = 4096, PAGE = 2 << 20, GARBAGE = 0xFF };

typedef struct piece {
    unsigned char *base;
    size_t bytes;
} piece;

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static piece device[MAX_PIECES], pinned[MAX_PIECES], reserved[64]; /* bytes 0: not in use */
static size_t device_bytes, pinned_bytes, capacity;
static uint64_t n_requests, n_frees, fail_at;
static int opened;

static void set_access(piece p) { mprotect(p.base, p.bytes, opened > 0 ? PROT_READ | PROT_WRITE : PROT_NONE); }

static void add(piece *list, int n, void *base, size_t bytes)
{
    for (int i = 0; i < n; i++) {
        if (list[i].bytes) continue;
        list[i] = (piece){ base, bytes };
        return;
    }
    cr_assert_fail("stub: too many pieces of memory");
}

static void take_out(piece *list, int n, const void *base)
{
    for (int i = 0; i < n; i++) {
        if (!list[i].bytes || list[i].base != base) continue;
        list[i].bytes = 0;
        return;
    }
    cr_assert_fail("stub: memory is given back that it did not give");
}

static bool is_in(const piece *list, int n, const void *p)
{
    bool found = false;
    pthread_mutex_lock(&lock);
    for (int i = 0; i < n && !found; i++)
        found = list[i].bytes && (const unsigned char *)p >= list[i].base &&
                (const unsigned char *)p < list[i].base + list[i].bytes;
    pthread_mutex_unlock(&lock);
    return found;
}

bool stub_memory_is_device(const void *p) { return is_in(device, MAX_PIECES, p); }
bool stub_memory_is_pinned(const void *p) { return is_in(pinned, MAX_PIECES, p); }

void stub_memory_limit(size_t capacity_bytes, uint64_t fail)
{
    capacity = capacity_bytes;
    fail_at = fail;
    n_requests = n_frees = 0;
}

void stub_memory_count(stub_counts *c)
{
    c->device_bytes = device_bytes;
    c->pinned_bytes = pinned_bytes;
    c->memory_requests = n_requests;
    c->frees = n_frees;
}

void stub_memory_open(bool open)
{
    pthread_mutex_lock(&lock);
    int before = opened > 0;
    opened += open ? 1 : -1;
    for (int i = 0; i < MAX_PIECES && before != (opened > 0); i++)
        if (device[i].bytes) set_access(device[i]);
    pthread_mutex_unlock(&lock);
}

/* ---- device memory -------------------------------------------------------------------------- */

static bool may_have(size_t bytes) { return ++n_requests != fail_at && bytes <= capacity - device_bytes; }

/* Makes the range a piece: with garbage in it, and no access. */
static void give(unsigned char *base, size_t bytes)
{
    mprotect(base, bytes, PROT_READ | PROT_WRITE);
    memset(base, GARBAGE, bytes);
    add(device, MAX_PIECES, base, bytes);
    device_bytes += bytes;
    set_access((piece){ base, bytes });
}

/* In huge pages, whose access is quick to change. */
static void *map(size_t bytes)
{
    unsigned char *p = mmap(NULL, bytes + PAGE, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (p == MAP_FAILED) return NULL;
    size_t before = (PAGE - (uintptr_t)p % PAGE) % PAGE;
    if (before) munmap(p, before);
    munmap(p + before + bytes, PAGE - before);
    madvise(p + before, bytes, MADV_HUGEPAGE);
    return p + before;
}

static void *device_alloc(void *self, size_t bytes)
{
    (void)self;
    pthread_mutex_lock(&lock);
    void *p = may_have(bytes) ? map(bytes) : NULL;
    if (p) give(p, bytes);
    pthread_mutex_unlock(&lock);
    return p;
}

/* Memory that goes: work may still use it. */
static void before_free(void)
{
    stub_capture_breach();
    stub_run_all();
    n_frees++;
}

static void device_free(void *self, void *p, size_t bytes)
{
    (void)self;
    before_free();
    pthread_mutex_lock(&lock);
    take_out(device, MAX_PIECES, p);
    device_bytes -= bytes;
    munmap(p, bytes);
    pthread_mutex_unlock(&lock);
}

static void *device_reserve(void *self, size_t bytes)
{
    (void)self;
    pthread_mutex_lock(&lock);
    void *p = map(bytes);
    if (p) add(reserved, 64, p, bytes);
    pthread_mutex_unlock(&lock);
    return p;
}

static bool device_commit(void *self, void *p, size_t bytes)
{
    (void)self;
    pthread_mutex_lock(&lock);
    bool can = may_have(bytes);
    for (size_t at = 0; can && at < bytes; at += PAGE) give((unsigned char *)p + at, PAGE);
    pthread_mutex_unlock(&lock);
    return can;
}

static void drop_pages(unsigned char *p, size_t bytes)
{
    for (size_t at = 0; at < bytes; at += PAGE) {
        take_out(device, MAX_PIECES, p + at);
        mprotect(p + at, PAGE, PROT_NONE);
        madvise(p + at, PAGE, MADV_DONTNEED);
        device_bytes -= PAGE;
    }
}

static void device_decommit(void *self, void *p, size_t bytes)
{
    (void)self;
    before_free();
    pthread_mutex_lock(&lock);
    drop_pages(p, bytes);
    pthread_mutex_unlock(&lock);
}

static void device_unreserve(void *self, void *p, size_t bytes)
{
    (void)self;
    before_free();
    pthread_mutex_lock(&lock);
    for (int i = 0; i < MAX_PIECES; i++) {
        bool inside = device[i].bytes && device[i].base >= (unsigned char *)p && device[i].base < (unsigned char *)p + bytes;
        if (inside) drop_pages(device[i].base, PAGE);
    }
    take_out(reserved, 64, p);
    munmap(p, bytes);
    pthread_mutex_unlock(&lock);
}

static bool device_remap(void *self, void *from, void *to, size_t bytes)
{
    (void)self;
    before_free();
    pthread_mutex_lock(&lock);
    drop_pages(from, bytes);
    for (size_t at = 0; at < bytes; at += PAGE) give((unsigned char *)to + at, PAGE);
    pthread_mutex_unlock(&lock);
    return true;
}

ebb__provider stub_device_memory(void)
{
    return (ebb__provider){ .alloc = device_alloc, .free = device_free, .reserve = device_reserve,
                            .unreserve = device_unreserve, .commit = device_commit, .decommit = device_decommit,
                            .remap = device_remap };
}

/* ---- pinned memory -------------------------------------------------------------------------- */

static void *pinned_alloc(void *self, size_t bytes)
{
    (void)self;
    pthread_mutex_lock(&lock);
    void *p = ++n_requests == fail_at ? NULL : malloc(bytes);
    if (p) {
        memset(p, GARBAGE, bytes);
        add(pinned, MAX_PIECES, p, bytes);
        pinned_bytes += bytes;
    }
    pthread_mutex_unlock(&lock);
    return p;
}

static void pinned_free(void *self, void *p, size_t bytes)
{
    (void)self;
    before_free();
    pthread_mutex_lock(&lock);
    take_out(pinned, MAX_PIECES, p);
    pinned_bytes -= bytes;
    free(p);
    pthread_mutex_unlock(&lock);
}

ebb__provider stub_pinned_memory(void)
{
    return (ebb__provider){ .alloc = pinned_alloc, .free = pinned_free, .touchable = true };
}
