/* A name is a C variable of type ebb_tensor *.  Dropping it (`del x`) takes
 * one reference away; the bytes go with the last reference, at once.
 *
 * In PyTorch:
 *     x = torch.zeros(1024, 1024)   # 4 MiB
 *     y = x                         # a second name, no second tensor
 *     del x                         # still 4 MiB
 *     y = torch.zeros(512, 1024)    # rebinding drops what y meant: 2 MiB */
#include "lesson.h"

LESSON(names, "Dropping a name frees nothing while another name is left")
{
    NAME(x);
    NAME(y);
    STEP(ebb_zeros(&x, ctx, EBB_F32, EBB_SHAPE(1024, 1024)));
    const uint64_t bytes = bytes_of(x);
    CHECK(allocated(ctx) == 4 * MiB, "1024 x 1024 floats of 4 bytes are %s.", size(allocated(ctx)));

    DO(ebb_bind(&y, x));
    CHECK(ebb_tensor_refcount(x) == 2, "y is a second name of the same tensor: %d references.",
          ebb_tensor_refcount(x));
    CHECK(allocated(ctx) == 4 * MiB, "Names cost no bytes: still %s.", size(allocated(ctx)));

    DO(ebb_drop(&x));
    CHECK(is_alive(ctx, bytes), "`del x` took a name away, not the bytes: %s are there.",
          size(allocated(ctx)));
    WHY(bytes);

    STEP(ebb_zeros(&y, ctx, EBB_F32, EBB_SHAPE(512, 1024)));
    CHECK(!is_alive(ctx, bytes), "y means something else now. Nobody holds the old bytes: free.");
    CHECK(allocated(ctx) == 2 * MiB, "What is left is the new tensor, %s.", size(allocated(ctx)));

    DO(ebb_drop(&y));
    CHECK(allocated(ctx) == 0, "The last reference took the last byte with it: %s allocated.",
          size(allocated(ctx)));
    SAY("Nothing happens later, no collector runs: counting frees at the last drop. Why the pool "
        "still has %s reserved is told in the lesson `cache`.", size(reserved(ctx)));
    return EBB_OK;
}
