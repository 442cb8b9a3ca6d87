/* alloc/guard.c: fills, tails and poison. */
#include "alloc/guard.h"

#include <stdio.h>
#include <string.h>

#include "core/assert.h"

#if defined(__has_feature)
#if __has_feature(address_sanitizer)
#define EBB_ADDRESS_SANITIZER 1
#endif
#endif
#if defined(__SANITIZE_ADDRESS__)
#define EBB_ADDRESS_SANITIZER 1
#endif

#ifdef EBB_ADDRESS_SANITIZER
#include <sanitizer/asan_interface.h>
#define HAS_POISON         true
#define POISON(p, bytes)   ASAN_POISON_MEMORY_REGION(p, bytes)
#define UNPOISON(p, bytes) ASAN_UNPOISON_MEMORY_REGION(p, bytes)
#else
#define HAS_POISON         false
#define POISON(p, bytes)   ((void)(p), (void)(bytes))
#define UNPOISON(p, bytes) ((void)(p), (void)(bytes))
#endif

enum {
    FREE_FILL = 0xFF,
    TAIL_FILL = 0xA7,
    TAIL_MAX_BYTES = 4096 /* an overrun begins at the tail's start; the rest need not be touched */
};

bool ebb__guard_is_needed(const ebb__provider *provider, int checks)
{
    return provider->touchable && (checks >= 2 || HAS_POISON);
}

static unsigned char *data_of(const ebb__block *block)
{
    return block->segment->base + block->offset;
}

static size_t tail_bytes(const ebb__block *block)
{
    size_t bytes = block->bytes - block->requested;
    return bytes < TAIL_MAX_BYTES ? bytes : TAIL_MAX_BYTES;
}

/* Index of the first byte that is not `value`; `bytes` where all are. */
static size_t first_other(const unsigned char *p, unsigned char value, size_t bytes)
{
    /* The first is right and each equals its neighbour: memcmp is faster than a loop. */
    if (bytes == 0 || (p[0] == value && memcmp(p, p + 1, bytes - 1) == 0)) return bytes;
    size_t i = 0;
    while (p[i] == value) i++;
    return i;
}

void ebb__guard_memory_new(const ebb__pool *pool, unsigned char *base, size_t bytes)
{
    if (pool->checks >= 2) memset(base, FREE_FILL, bytes);
    POISON(base, bytes);
}

void ebb__guard_memory_end(unsigned char *base, size_t bytes) { UNPOISON(base, bytes); }

static void assert_untouched(const ebb__block *block)
{
    size_t at = first_other(data_of(block), FREE_FILL, block->bytes);
    if (at == block->bytes) return;
    char text[160];
    snprintf(text, sizeof text,
             "pool: memory was written after its release (byte %zu of a free block of %zu)", at,
             block->bytes);
    ebb__assert_failed(text, __FILE__, __LINE__);
}

void ebb__guard_take(const ebb__pool *pool, const ebb__block *block)
{
    unsigned char *data = data_of(block);
    UNPOISON(data, block->bytes);
    if (pool->checks >= 3) assert_untouched(block);
    if (pool->checks >= 2) memset(data + block->requested, TAIL_FILL, tail_bytes(block));
    POISON(data + block->requested, block->bytes - block->requested);
}

static void assert_tail(const ebb__block *block)
{
    size_t at = first_other(data_of(block) + block->requested, TAIL_FILL, tail_bytes(block));
    if (at == tail_bytes(block)) return;
    char who[120], text[320];
    snprintf(text, sizeof text,
             "pool: a block of %zu bytes was written past its end (at byte %zu); owner: %s",
             block->requested, block->requested + at,
             ebb__owner_describe(&block->owner, who, sizeof who));
    ebb__assert_failed(text, __FILE__, __LINE__);
}

void ebb__guard_release(const ebb__pool *pool, const ebb__block *block)
{
    if (pool->checks < 2) return;
    UNPOISON(data_of(block), block->bytes);
    assert_tail(block);
}

void ebb__guard_free(const ebb__pool *pool, const ebb__block *block)
{
    unsigned char *data = data_of(block);
    UNPOISON(data, block->bytes);
    if (pool->checks >= 2) memset(data, FREE_FILL, block->bytes);
    POISON(data, block->bytes);
}
