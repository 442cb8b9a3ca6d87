/* mem.c: host allocations, counted, and the counter that makes the n-th one fail. */
#include "core/mem.h"

#include <ebb/memory.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>

static atomic_uint_fast64_t fault_at; /* 0: off */
static atomic_uint_fast64_t n_ticks;
static atomic_bool fired;
static atomic_int_fast64_t live_blocks;

void ebb_fault_arm(uint64_t n)
{
    atomic_store(&fault_at, 0); /* no tick fires between the next two lines */
    atomic_store(&fired, false);
    atomic_store(&n_ticks, 0);
    atomic_store(&fault_at, n);
}

uint64_t ebb_fault_count(void) { return atomic_load(&n_ticks); }

bool ebb_fault_fired(void) { return atomic_load(&fired); }

int64_t ebb_host_live_blocks(void) { return atomic_load(&live_blocks); }

bool ebb__fault(void)
{
    uint64_t tick = atomic_fetch_add(&n_ticks, 1) + 1;
    if (tick != atomic_load_explicit(&fault_at, memory_order_relaxed)) return false;
    atomic_store(&fired, true);
    (void)ebb_fail(EBB_ENOMEM, "out of memory: allocation %llu was made to fail",
                   (unsigned long long)tick);
    return true;
}

static void *no_memory(size_t bytes)
{
    (void)ebb_fail(EBB_ENOMEM, "out of memory: the system refused %zu bytes of host memory", bytes);
    return NULL;
}

static void *counted(void *p, size_t bytes)
{
    if (!p) return no_memory(bytes);
    atomic_fetch_add_explicit(&live_blocks, 1, memory_order_relaxed);
    return p;
}

void *ebb__malloc(size_t bytes)
{
    if (ebb__fault()) return NULL;
    return counted(malloc(bytes ? bytes : 1), bytes);
}

void *ebb__calloc(size_t n, size_t bytes)
{
    if (ebb__fault()) return NULL;
    size_t total;
    if (!ebb__mul_size(&total, n, bytes)) return no_memory(SIZE_MAX);
    return counted(calloc(1, total ? total : 1), total);
}

void *ebb__realloc(void *old, size_t bytes)
{
    if (!old) return ebb__malloc(bytes);
    if (ebb__fault()) return NULL;
    void *p = realloc(old, bytes ? bytes : 1);
    return p ? p : no_memory(bytes);
}

char *ebb__strdup(const char *text)
{
    size_t bytes = strlen(text) + 1;
    char *copy = ebb__malloc(bytes);
    return copy ? memcpy(copy, text, bytes) : NULL;
}

void ebb__free(void *p)
{
    if (!p) return;
    atomic_fetch_sub_explicit(&live_blocks, 1, memory_order_relaxed);
    free(p);
}

/* `items` is the address of a pointer of any type: it is read and written as bytes. */
ebb_status ebb__grow(void *items, size_t *cap, size_t want, size_t item_bytes)
{
    if (want <= *cap) return EBB_OK;
    size_t room = *cap > SIZE_MAX / 2 ? want : 2 * *cap;
    if (room < want) room = want;
    if (room < 8) room = 8;
    size_t bytes;
    if (!ebb__mul_size(&bytes, room, item_bytes)) {
        no_memory(SIZE_MAX);
        return EBB_ENOMEM;
    }
    void *old;
    memcpy(&old, items, sizeof old);
    void *grown = ebb__realloc(old, bytes);
    if (!grown) return EBB_ENOMEM;
    memcpy(items, &grown, sizeof grown);
    *cap = room;
    return EBB_OK;
}

bool ebb__mul_size(size_t *out, size_t a, size_t b) { return !__builtin_mul_overflow(a, b, out); }
