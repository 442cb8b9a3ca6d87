/* An op's descriptor says which of its inputs and outputs its gradients read.
 * The tape keeps those and nothing else: dropping an input before backward
 * frees nothing where a gradient will read it, and all of it where none will.
 *
 * In PyTorch:
 *     h = x @ w.T                   # dL/dw reads x: saved
 *     loss = h * 3                  # the gradient of a scaling reads nothing
 *     del h                         # freed
 *     del x                         # not freed
 *     loss.mean().backward()        # now x is freed, node by node */
#include "lesson.h"

LESSON(inputs, "The tape keeps an input only where a gradient will read it")
{
    NAME(w);
    NAME(x);
    NAME(h);
    NAME(loss);
    STEP(ebb_normal(&w, ctx, EBB_F32, EBB_SHAPE(256, 256), 0, 0.05));
    STEP(ebb_set_requires_grad(w, true));
    STEP(ebb_normal(&x, ctx, EBB_F32, EBB_SHAPE(1024, 256), 0, 1));
    const uint64_t x_bytes = bytes_of(x);

    STEP(ebb_linear(&h, x, w, NULL));
    const uint64_t h_bytes = bytes_of(h);
    CHECK(ebb_saved_bytes(ctx) == 1 * MiB, "The gradient of w is a product with x, so linear keeps x, "
          "its input 0: %s. No gradient of x was asked for, so w is not kept.",
          size(ebb_saved_bytes(ctx)));

    CHECK(ebb_tensor_refcount(w) == 2, "w has %d references now: its name, and the tape's, which "
          "will add the gradient to it.", ebb_tensor_refcount(w));

    STEP(ebb_scale(&loss, h, 3));
    DO(ebb_drop(&h));
    CHECK(!is_alive(ctx, h_bytes), "The gradient of a scaling is 3 times what comes in. It reads "
          "nothing, so h was freed with its name, in the middle of forward.");

    DO(ebb_drop(&x));
    CHECK(is_alive(ctx, x_bytes), "x has no name left, and its bytes are still there.");
    WHY(x_bytes);

    STEP(ebb_mean(&loss, loss, EBB_ALL_AXES, false));
    STEP(ebb_backward(loss));
    CHECK(!is_alive(ctx, x_bytes), "Backward computed the gradient of w, then let x go at once.");
    CHECK(ebb_saved_bytes(ctx) == 0 && ebb_live_nodes(ctx) == 3, "The tape keeps %s now. Its %zu "
          "nodes, a few bytes on the host, go with the name loss.",
          size(ebb_saved_bytes(ctx)), ebb_live_nodes(ctx));
    return EBB_OK;
}
