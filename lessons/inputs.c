/* An op's descriptor says which of its inputs and outputs its gradients read.
 * The tape keeps those and nothing else: dropping an input before backward
 * frees nothing where a gradient will read it, and all of it where none will.
 *
 * In PyTorch:
 *     h = x @ w.T                   # dL/dw reads x: saved
 *     loss = h * 3                  # the gradient of a scaling reads nothing
 *     del h                         # freed
 *     del x                         # not freed
 *     torch.tanh(loss).mean().backward()   # now x is freed, node by node */
#include "lesson.h"

/* On the gradient of h: backward is behind tanh then, and before linear. */
static ebb_status look(void *user, ebb_tensor *t, ebb_tensor **grad)
{
    (void)t;
    *(size_t *)user = ebb_saved_bytes(ebb_tensor_context(*grad));
    return EBB_OK;
}

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

    size_t midway = 0;
    const ebb_hook hook = { .user = &midway, .on_grad = look };
    STEP(ebb_scale(&loss, h, 3));
    STEP(ebb_hook_add(h, &hook, NULL));
    DO(ebb_drop(&h));
    CHECK(!is_alive(ctx, h_bytes), "The gradient of a scaling is 3 times what comes in. It reads "
          "nothing, so h was freed with its name, in the middle of forward.");

    DO(ebb_drop(&x));
    CHECK(is_alive(ctx, x_bytes), "x has no name left, and its bytes are still there.");
    WHY(x_bytes);

    STEP(ebb_tanh(&loss, loss));
    CHECK(ebb_saved_bytes(ctx) == 2 * MiB, "tanh's gradient reads its output: %s on the tape.",
          size(ebb_saved_bytes(ctx)));
    STEP(ebb_mean(&loss, loss, EBB_ALL_AXES, false));
    STEP(ebb_backward(loss));
    CHECK(midway == 1 * MiB, "Node by node: in the middle of backward, when the hook on h ran, tanh had let its "
          "%s go, and x's %s were there.", size(MiB), size(midway));
    CHECK(!is_alive(ctx, x_bytes), "Then came linear: the gradient of w, and x went.");
    CHECK(ebb_saved_bytes(ctx) == 0 && ebb_live_nodes(ctx) == 4, "The tape keeps %s now. Its %zu "
          "nodes, a few bytes on the host, go with the name loss.",
          size(ebb_saved_bytes(ctx)), ebb_live_nodes(ctx));
    return EBB_OK;
}
