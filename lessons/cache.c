/* Freed bytes go back to the pool's cache, not to the system: allocated falls,
 * reserved does not.  The next request is served from the cache.
 *
 * In PyTorch:
 *     torch.cuda.memory_allocated() # falls
 *     torch.cuda.memory_reserved()  # does not
 *     torch.cuda.empty_cache()      # now it does: whole free segments go */
#include "lesson.h"

LESSON(cache, "Freed bytes go to the cache: allocated falls, reserved stays")
{
    NAME(x);
    NAME(y);
    ebb_memory_stats before, after;
    STEP(ebb_zeros(&x, ctx, EBB_F32, EBB_SHAPE(16, 1024, 1024)));
    CHECK(allocated(ctx) == 64 * MiB && reserved(ctx) == 64 * MiB,
          "%s allocated, in a segment of %s from the system.", size(allocated(ctx)),
          size(reserved(ctx)));
    DO(ebb_drop(&x));
    CHECK(allocated(ctx) == 0 && reserved(ctx) == 64 * MiB, "Freed, but kept in the cache: %s "
          "allocated, %s reserved.", size(allocated(ctx)), size(reserved(ctx)));

    DO(ebb_memory_stats_get(ctx, &before));
    STEP(ebb_zeros(&x, ctx, EBB_F32, EBB_SHAPE(8, 1024, 1024)));
    STEP(ebb_zeros(&y, ctx, EBB_F32, EBB_SHAPE(8, 1024, 1024)));
    DO(ebb_memory_stats_get(ctx, &after));
    CHECK(after.n_segment_allocs == before.n_segment_allocs,
          "The cached segment was split for both: nothing was asked of the system.");

    DO(ebb_drop(&x));
    DO(ebb_memory_empty_cache(ctx));
    CHECK(reserved(ctx) == 64 * MiB, "empty_cache gives back whole free segments only. y lies in "
          "this one, so %s stay.", size(reserved(ctx)));
    DO(ebb_drop(&y));
    DO(ebb_memory_empty_cache(ctx));
    CHECK(reserved(ctx) == 0, "The halves have merged; now the segment goes: %s reserved.",
          size(reserved(ctx)));
    return EBB_OK;
}
