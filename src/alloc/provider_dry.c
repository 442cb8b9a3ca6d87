/* alloc/provider_dry.c: segments without memory.
 * Addresses count up from one that no x86-64 or aarch64 program can map, so that touching one by
 * mistake faults at once. */
#include <stdatomic.h>

#include "alloc/pool.h"
#include "core/mem.h"

static const uint64_t first_address = (uint64_t)1 << 60;
static const uint64_t end_address = (uint64_t)1 << 63;

typedef struct dry_provider {
    _Atomic uint64_t next;
} dry_provider;

static void *dry_alloc(void *self, size_t bytes)
{
    dry_provider *dry = self;
    uint64_t at = atomic_load(&dry->next);
    do {
        if (bytes == 0 || bytes > end_address - at) return NULL;
    } while (!atomic_compare_exchange_weak(&dry->next, &at, at + bytes));
    return (void *)(uintptr_t)at;
}

static void dry_free(void *self, void *p, size_t bytes) { (void)self, (void)p, (void)bytes; }

static bool dry_commit(void *self, void *p, size_t bytes)
{
    (void)self, (void)p, (void)bytes;
    return true;
}

static bool dry_remap(void *self, void *from, void *to, size_t bytes)
{
    (void)self, (void)from, (void)to, (void)bytes;
    return true;
}

ebb_status ebb__dry_provider_new(ebb__provider *out)
{
    dry_provider *dry = ebb__malloc(sizeof *dry);
    if (!dry) return EBB_ENOMEM;
    atomic_init(&dry->next, first_address);
    *out = (ebb__provider){ .alloc = dry_alloc,
                            .free = dry_free,
                            .self = dry,
                            .reserve = dry_alloc,
                            .unreserve = dry_free,
                            .commit = dry_commit,
                            .decommit = dry_free,
                            .remap = dry_remap };
    return EBB_OK;
}

void ebb__dry_provider_free(ebb__provider *provider)
{
    if (!provider) return;
    ebb__free(provider->self);
    *provider = (ebb__provider){ 0 };
}
