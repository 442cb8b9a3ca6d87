/* alloc/provider_host.c: segments from mmap.
 * Pages get memory when they are first touched; whole 2 MiB pages where the system grants them. */
#include <stdint.h>
#include <sys/mman.h>

#include "alloc/pool.h"

static const size_t align_bytes = (size_t)2 << 20;

static void *map(size_t bytes)
{
    void *p = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    return p == MAP_FAILED ? NULL : p;
}

/* Maps more than asked for and gives back what lies outside the aligned part. */
static void *host_alloc(void *self, size_t bytes)
{
    (void)self;
    if (bytes == 0 || bytes > SIZE_MAX - align_bytes) return NULL;
    unsigned char *p = map(bytes + align_bytes);
    if (!p) return NULL;
    size_t before = (align_bytes - (uintptr_t)p % align_bytes) % align_bytes;
    size_t after = align_bytes - before;
    if (before) munmap(p, before);
    if (after) munmap(p + before + bytes, after);
    (void)madvise(p + before, bytes, MADV_HUGEPAGE); /* small pages work as well, only slower */
    return p + before;
}

static void host_free(void *self, void *p, size_t bytes)
{
    (void)self;
    (void)munmap(p, bytes); /* cannot fail for a whole mapping of ours */
}

ebb__provider ebb__host_provider(void)
{
    return (ebb__provider){ .alloc = host_alloc, .free = host_free, .touchable = true };
}
