/* A call borrows its arguments: no reference is added, so none has to be taken
 * away.  A function's own names end when it returns; what it hands out lives
 * on.  Whoever keeps an argument beyond the call retains it.
 *
 * In PyTorch a call adds a reference for the callee's name, and returning
 * takes it away:
 *     def layer(x):
 *         h = x @ w                 # h goes when layer() returns
 *         return torch.tanh(h)      # this one outlives the frame */
#include "lesson.h"

static ebb_tensor *cache; /* a name outside every function */

static ebb_status layer(ebb_tensor **out, ebb_tensor *x, ebb_tensor *w, uint64_t *h_bytes)
{
    ebb_context *ctx = ebb_tensor_context(x);
    NAME(h);
    NAME(y);
    CHECK(ebb_tensor_refcount(x) == 1, "In layer() x still has %d reference: the caller's name.",
          ebb_tensor_refcount(x));
    STEP(ebb_linear(&h, x, w, NULL));
    *h_bytes = bytes_of(h);
    STEP(ebb_tanh(&y, h));
    CHECK(allocated(ctx) == 2 * MiB + 256 * KiB + MiB, "x, w, h and y are alive: %s.",
          size(allocated(ctx)));
    DO(ebb_move(out, &y));
    return EBB_OK;
}

static ebb_status remember(ebb_tensor *x)
{
    ebb_bind(&cache, x); /* keeps it: one reference more */
    return EBB_OK;
}

LESSON(functions, "A call borrows; names end with their function")
{
    NAME(x);
    NAME(w);
    NAME(y);
    uint64_t h_bytes = 0;
    drop_at_end(&cache, 1);
    STEP(ebb_normal(&x, ctx, EBB_F32, EBB_SHAPE(1024, 256), 0, 1));
    STEP(ebb_normal(&w, ctx, EBB_F32, EBB_SHAPE(256, 256), 0, 0.05));
    STEP(layer(&y, x, w, &h_bytes));
    CHECK(!is_alive(ctx, h_bytes), "h was a name of layer(), and went when it returned.");
    CHECK(ebb_tensor_refcount(y) == 1, "What it returned outlives its frame: %d reference, ours.",
          ebb_tensor_refcount(y));
    CHECK(ebb_tensor_refcount(x) == 1, "x is as it was: %d reference.", ebb_tensor_refcount(x));

    STEP(remember(x));
    CHECK(ebb_tensor_refcount(x) == 2, "remember() kept x: %d references.", ebb_tensor_refcount(x));
    const uint64_t x_bytes = bytes_of(x);
    DO(ebb_drop(&x));
    CHECK(is_alive(ctx, x_bytes), "So dropping our name does not free it.");
    DO(ebb_drop(&cache));
    CHECK(!is_alive(ctx, x_bytes), "Dropping the other one does.");
    return EBB_OK;
}
