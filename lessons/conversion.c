/* A conversion makes a tensor of its own: its bytes, its life.  The source goes
 * when its names go, whatever became of the copy.
 *
 * In PyTorch:
 *     half = x.to(torch.bfloat16)   # 2 MiB more
 *     del x                         # 4 MiB less
 *     half = w.to(torch.bfloat16)   # recorded: nothing is saved for backward */
#include "lesson.h"

LESSON(conversion, "A conversion is a tensor of its own; the source can go")
{
    NAME(x);
    NAME(half);
    double before = 0, after = 0;
    STEP(ebb_full(&x, ctx, EBB_F32, EBB_SHAPE(1024, 1024), 0.1));
    STEP(ebb_cast(&half, x, EBB_BF16));
    CHECK(allocated(ctx) == 6 * MiB, "f32 takes 4 bytes an element, bf16 takes 2: %s together.",
          size(allocated(ctx)));
    CHECK(bytes_of(half) != bytes_of(x), "They are two storages.");

    NAME(one);
    STEP(ebb_narrow(&one, half, 0, 0, 1));
    STEP(ebb_narrow(&one, one, 1, 0, 1));
    STEP(ebb_item(one, &before));
    STEP(ebb_fill(x, 7));
    STEP(ebb_item(one, &after));
    CHECK(before == after && before != 7, "x became 7, half is still %s: 0.1 with the 8 bits that "
          "bf16 has for it.", number(after));
    DO(ebb_drop(&one));

    DO(ebb_drop(&x));
    CHECK(allocated(ctx) == 2 * MiB, "The source is gone: %s.", size(allocated(ctx)));
    CHECK(ebb_live_nodes(ctx) == 0, "Nothing asked for a gradient, so no node holds the source.");

    NAME(w);
    STEP(parameter(&w, ctx, 256, 256));
    STEP(ebb_cast(&half, w, EBB_BF16));
    CHECK(ebb_saved_bytes(ctx) == 0, "Recorded, a cast keeps %s: its gradient is a cast back.",
          size(ebb_saved_bytes(ctx)));
    return EBB_OK;
}
