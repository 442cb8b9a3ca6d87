/* An error return leaves a function in the middle.  What its names hold must go
 * then, too: EBB_LOCAL drops at every return, a plain variable at none.
 *
 * In PyTorch a function that raised lives on in the traceback:
 *     except RuntimeError as e: errors.append(e)   # keeps its locals
 *     except RuntimeError as e: errors.append(str(e)) */
#include "lesson.h"

enum { STEPS = 17 };
static ebb_tensor *forgotten[STEPS]; /* only so that the lesson can clean up behind careless() */

static ebb_status careful(ebb_context *ctx)
{
    EBB_LOCAL(h);
    EBB_LOCAL(bad);
    EBB_TRY(ebb_zeros(&h, ctx, EBB_F32, EBB_SHAPE(512, 512)));
    EBB_TRY(ebb_zeros(&bad, ctx, EBB_F32, EBB_SHAPE(3)));
    return ebb_linear(&h, h, bad, NULL); /* shapes do not fit */
}

enum { MADE_AT = __LINE__ + 5 };
static ebb_status careless(ebb_context *ctx, int step)
{
    ebb_tensor *h = NULL;
    EBB_LOCAL(bad);
    EBB_TRY(ebb_zeros(&h, ctx, EBB_F32, EBB_SHAPE(512, 512)));
    forgotten[step] = h;
    EBB_TRY(ebb_zeros(&bad, ctx, EBB_F32, EBB_SHAPE(3)));
    EBB_TRY(ebb_linear(&h, h, bad, NULL)); /* returns; nobody drops h */
    ebb_drop(&h);
    return EBB_OK;
}

LESSON(errors, "An error return keeps what plain variables hold")
{
    drop_at_end(forgotten, STEPS);
    REFUSED(EBB_ESHAPE, careful(ctx));
    CHECK(allocated(ctx) == 0, "h and bad went with the return: %s.", size(allocated(ctx)));

    REFUSED(EBB_ESHAPE, careless(ctx, 0));
    CHECK(allocated(ctx) == 1 * MiB, "h was forgotten: %s.", size(allocated(ctx)));

    EBB_TRY(watch_begin(ctx));
    for (int i = 1; i < STEPS; i++, step_ends()) {
        ebb_status st = careless(ctx, i);
        if (st != EBB_ESHAPE) return st == EBB_OK ? ebb_fail(EBB_ESTATE, "shapes fitted") : st;
    }
    LEAK(watch_report());
    CHECK(watch_names(__FILE__, MADE_AT, "handle "), "A watch over the steps names the line that made what nobody "
          "drops, %d; a handle holds it, the variable being gone.", MADE_AT);
    DO(for (int i = 0; i < STEPS; i++) ebb_drop(&forgotten[i]));

    NAME(kept);
    STEP(ebb_zeros(&kept, ctx, EBB_F32, EBB_SHAPE(4)));
    NAME(bad);
    STEP(ebb_zeros(&bad, ctx, EBB_F32, EBB_SHAPE(3)));
    REFUSED(EBB_ESHAPE, ebb_add(&kept, kept, bad));
    CHECK(ebb_tensor_elems(kept) == 4, "And a call that fails leaves its result variable as it was.");
    return EBB_OK;
}
