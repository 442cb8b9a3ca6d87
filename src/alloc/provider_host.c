/* alloc/provider_host.c: segments from mmap.
 * Pages get memory when they are first touched; whole 2 MiB pages where the system grants them.
 * Reserved addresses are mapped without access and charge nothing to the system's commit limit. */
#include <stdint.h>
#include <sys/mman.h>

#include "alloc/pool.h"

static const size_t align_bytes = (size_t)2 << 20;

static void *map(size_t bytes, int access, int flags)
{
    void *p = mmap(NULL, bytes, access, MAP_PRIVATE | MAP_ANONYMOUS | flags, -1, 0);
    return p == MAP_FAILED ? NULL : p;
}

/* Maps more than asked for and gives back what lies outside the aligned part. */
static unsigned char *map_aligned(size_t bytes, int access, int flags)
{
    if (bytes == 0 || bytes > SIZE_MAX - align_bytes) return NULL;
    unsigned char *p = map(bytes + align_bytes, access, flags);
    if (!p) return NULL;
    size_t before = (align_bytes - (uintptr_t)p % align_bytes) % align_bytes;
    size_t after = align_bytes - before;
    if (before) munmap(p, before);
    if (after) munmap(p + before + bytes, after);
    return p + before;
}

static void *host_alloc(void *self, size_t bytes)
{
    (void)self;
    void *p = map_aligned(bytes, PROT_READ | PROT_WRITE, 0);
    if (p) (void)madvise(p, bytes, MADV_HUGEPAGE); /* small pages work as well, only slower */
    return p;
}

static void host_free(void *self, void *p, size_t bytes)
{
    (void)self;
    (void)munmap(p, bytes); /* cannot fail for a whole mapping of ours */
}

static void *host_reserve(void *self, size_t bytes)
{
    (void)self;
    return map_aligned(bytes, PROT_NONE, MAP_NORESERVE);
}

/* A new mapping over the old one: the pages behind it are given up, and are zero when they return. */
static bool map_over(void *p, size_t bytes, int access, int flags)
{
    return mmap(p, bytes, access, MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED | flags, -1, 0) !=
           MAP_FAILED;
}

static bool host_commit(void *self, void *p, size_t bytes)
{
    (void)self;
    if (!map_over(p, bytes, PROT_READ | PROT_WRITE, 0)) return false;
    (void)madvise(p, bytes, MADV_HUGEPAGE);
    return true;
}

static void host_decommit(void *self, void *p, size_t bytes)
{
    (void)self;
    if (!map_over(p, bytes, PROT_NONE, MAP_NORESERVE)) (void)madvise(p, bytes, MADV_DONTNEED);
}

static bool host_remap(void *self, void *from, void *to, size_t bytes)
{
    if (!host_commit(self, to, bytes)) return false;
    host_decommit(self, from, bytes);
    return true;
}

ebb__provider ebb__host_provider(void)
{
    return (ebb__provider){ .alloc = host_alloc,
                            .free = host_free,
                            .touchable = true,
                            .reserve = host_reserve,
                            .unreserve = host_free,
                            .commit = host_commit,
                            .decommit = host_decommit,
                            .remap = host_remap };
}

static void *page_alloc(void *self, size_t bytes)
{
    (void)self;
    return bytes ? map(bytes, PROT_READ | PROT_WRITE, 0) : NULL;
}

ebb__provider ebb__page_provider(void)
{
    return (ebb__provider){ .alloc = page_alloc, .free = host_free, .touchable = true };
}
