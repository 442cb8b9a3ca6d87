/* Freed memory serves the next request.  So a new loss tensor each step does not
 * make memory grow, though the notes say so; but `x = f()` makes the new value
 * while the old one is still held.
 *
 * In PyTorch:
 *     for batch in data: loss = net(batch)   # the same blocks again and again
 *     del batch                     # before the next one is made
 *     buffer.copy_(next_batch)      # one buffer: nothing to allocate at all */
#include "lesson.h"

enum { STEPS = 40 };
typedef enum way { REBIND, DROP_FIRST, ONE_BUFFER } way;

static ebb_status train(ebb_context *ctx, ebb_tensor *w, int steps)
{
    EBB_LOCAL(x);
    EBB_TRY(ebb_full(&x, ctx, EBB_F32, EBB_SHAPE(64, 64), 1));
    for (int i = 0; i < steps; i++) {
        EBB_LOCAL(loss); /* a new tensor each step */
        EBB_TRY(ebb_linear(&loss, x, w, NULL));
        EBB_TRY(ebb_mean(&loss, loss, EBB_ALL_AXES, false));
        EBB_TRY(ebb_backward(loss));
        ebb_drop_grad(w);
    }
    return EBB_OK;
}

/* A batch of 4 MiB per step, in three ways. */
static ebb_status load(ebb_context *ctx, way how, size_t *peak, uint64_t *allocs)
{
    EBB_LOCAL(batch);
    ebb_memory_stats before, after;
    EBB_TRY(ebb_full(&batch, ctx, EBB_F32, EBB_SHAPE(1024, 1024), 0));
    ebb_memory_reset_peak(ctx);
    ebb_memory_stats_get(ctx, &before);
    for (int i = 1; i < STEPS; i++) {
        if (how == DROP_FIRST) ebb_drop(&batch);
        if (how == ONE_BUFFER) EBB_TRY(ebb_fill(batch, i));
        else EBB_TRY(ebb_full(&batch, ctx, EBB_F32, EBB_SHAPE(1024, 1024), i));
    }
    ebb_memory_stats_get(ctx, &after);
    *peak = after.peak_allocated_bytes;
    *allocs = after.n_allocs - before.n_allocs;
    return EBB_OK;
}

LESSON(reuse, "A new loss each step does not grow memory")
{
    static const char *const names[] = { "x = f()", "del x; x = f()", "one buffer" };
    ebb_memory_stats first, last;
    NAME(w);
    STEP(parameter(&w, ctx, 64, 64));
    STEP(train(ctx, w, 1));
    DO(ebb_memory_stats_get(ctx, &first));
    STEP(train(ctx, w, STEPS));
    DO(ebb_memory_stats_get(ctx, &last));
    CHECK(last.allocated_bytes == first.allocated_bytes && last.peak_allocated_bytes == first.peak_allocated_bytes &&
          last.reserved_bytes == first.reserved_bytes, "%d more steps asked for %llu blocks. Allocated, peak and "
          "reserved are what they were after one.", STEPS, (unsigned long long)(last.n_allocs - first.n_allocs));

    size_t peaks[3];
    uint64_t allocs[3];
    const size_t base = allocated(ctx);
    TITLES("way", ">peak", ">blocks asked for");
    for (way how = REBIND; how <= ONE_BUFFER; how++) {
        SAY("A batch each step, by %s:", names[how]);
        STEP(load(ctx, how, &peaks[how], &allocs[how]));
        ROW(names[how], size(peaks[how] - base), number((double)allocs[how]));
    }
    END_TABLE();
    CHECK(peaks[REBIND] == base + 8 * MiB && peaks[DROP_FIRST] == base + 4 * MiB && allocs[ONE_BUFFER] == 0,
          "Two batches at the peak, or one; and with one buffer no request at all.");
    return EBB_OK;
}
