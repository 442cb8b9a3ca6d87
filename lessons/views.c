/* A view shares its base's storage: while it lives, all of the base lives.  To
 * keep a small part, copy it.
 *
 * In PyTorch:
 *     small = big[:10]              # keeps 320,000 bytes
 *     small = big[:10].clone()      # keeps 320
 *     torch.save(small)             # of a view it writes the whole storage */
#include "lesson.h"

LESSON(views, "A small view keeps the whole base alive; a copy does not")
{
    enum { ROWS = 10000, COLUMNS = 8, KEPT = 10, WHOLE = ROWS * COLUMNS * 4, PART = KEPT * COLUMNS * 4 };
    NAME(big);
    NAME(small);
    STEP(ebb_normal(&big, ctx, EBB_F32, EBB_SHAPE(ROWS, COLUMNS), 0, 1));
    STEP(ebb_narrow(&small, big, 0, 0, KEPT));
    CHECK(bytes_of(small) == bytes_of(big) && allocated(ctx) == WHOLE,
          "A view costs nothing: one storage of %s has two names.", size(allocated(ctx)));

    const uint64_t base = bytes_of(big);
    DO(ebb_drop(&big));
    CHECK(ebb_storage_bytes(ebb_tensor_storage(small)) == WHOLE && allocated(ctx) == WHOLE,
          "It shows %s and is charged with what it keeps: %s.", size(PART), size(allocated(ctx)));
    WHY(base);

    NAME(w);
    NAME(y);
    STEP(parameter(&w, ctx, KEPT, COLUMNS));
    STEP(ebb_mul(&y, small, w));
    DO(ebb_drop(&small));
    CHECK(ebb_saved_bytes(ctx) == WHOLE, "The tape keeps a view no cheaper: dL/dw reads %s and "
          "%s are kept.", size(PART), size(ebb_saved_bytes(ctx)));
    WHY(base);
    DO(ebb_drop(&y));
    CHECK(!is_alive(ctx, base), "With the graph the base goes.");

    const size_t before = allocated(ctx);
    STEP(ebb_normal(&big, ctx, EBB_F32, EBB_SHAPE(ROWS, COLUMNS), 0, 1));
    STEP(ebb_narrow(&small, big, 0, 0, KEPT));
    STEP(ebb_copy(&small, small));
    DO(ebb_drop(&big));
    CHECK(allocated(ctx) - before == 512, "A copy has bytes of its own: %s, rounded to %s.",
          size(ebb_storage_bytes(ebb_tensor_storage(small))), size(allocated(ctx) - before));
    SAY("A file is spared this: ebb_safetensors_save() writes a view's own %s.", size(PART));
    return EBB_OK;
}
