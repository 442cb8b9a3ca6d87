/* Deferred release: what is dropped waits in a queue, up to a bound, and is merged
 * with its neighbours in one go.  The notes: it trades memory for fewer frees.
 *
 * In PyTorch this happens to memory that another stream still uses:
 *     x.record_stream(side)         # dropped, it waits for side's event */
#include "lesson.h"

#include <string.h>

enum { STEPS = 40, BLOCKS = 8 };
typedef struct figures { uint64_t allocated, active, reserved, bursts; } figures;

static void take(void *user, const char *key, uint64_t value)
{
    figures *f = user;
    if (strcmp(key, "allocated_bytes.all.peak") == 0) f->allocated = value;
    if (strcmp(key, "active_bytes.all.peak") == 0) f->active = value;
    if (strcmp(key, "reserved_bytes.all.peak") == 0) f->reserved = value;
}

static void count_active(void *user, const char *key, uint64_t value)
{
    if (strcmp(key, "active.all.current") == 0) *(uint64_t *)user = value;
}

static uint64_t active(ebb_context *pool)
{
    uint64_t blocks = 0;
    ebb_memory_each_stat(pool, count_active, &blocks);
    return blocks;
}

/* Steps that hold 8 tensors of growing sizes one after the other, as layers without a tape do. */
static ebb_status run(figures *f, const char *allocator)
{
    const ebb_context_options options = { .struct_bytes = sizeof(options), .threads = 1, .checks = -1,
                                          .allocator = allocator };
    ebb_context *pool = NULL;
    ebb_tensor *x = NULL;
    ebb_status st = ebb_context_new(&pool, &options);
    for (int i = 0; i < STEPS * BLOCKS && st == EBB_OK; i++) {
        const uint64_t before = active(pool);
        st = ebb_empty(&x, pool, EBB_U8, EBB_SHAPE((2 + i % BLOCKS) * MiB));
        const uint64_t with = active(pool);
        ebb_drop(&x);
        f->bursts += (with < before + 1) + (active(pool) < with); /* blocks were freed */
    }
    if (st == EBB_OK) ebb_memory_each_stat(pool, take, f);
    ebb_context_free(pool);
    return st;
}

LESSON(deferred, "Deferred release: fewer, larger frees for more memory")
{
    static const char *const names[] = { "plain", "deferred_release_mb:8", "deferred_release_mb:64" };
    figures f[3] = { { 0 } };
    STEP(run(&f[0], NULL));
    STEP(run(&f[1], "deferred_release_mb:8"));
    STEP(run(&f[2], "deferred_release_mb:64"));
    TITLES("allocator", ">peak", ">with waiting", ">reserved", ">times freed");
    for (int i = 0; i < 3; i++) {
        ROW(names[i], size(f[i].allocated), size(f[i].active),
            size(f[i].reserved), number((double)f[i].bursts));
    }
    END_TABLE();
    CHECK(f[2].bursts < f[1].bursts && f[1].bursts < f[0].bursts && f[2].active > f[0].active,
          "What waits counts as in use, and is freed in fewer bursts.");
    CHECK(f[2].reserved == f[0].reserved, "Reserved stays: what waits is freed before a new segment "
          "is asked for. The notes' trade is one of memory in use.");
    return EBB_OK;
}
