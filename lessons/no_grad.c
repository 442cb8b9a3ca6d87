/* Without a gradient to compute there is no tape: nothing is recorded, nothing
 * kept, each activation goes with its name.  A frozen part saves nothing either,
 * even while recording: none of its gradients is wanted.
 *
 * In PyTorch:
 *     with torch.no_grad(): h = net(x)           # or torch.inference_mode()
 *     for p in net.parameters(): p.requires_grad_(False)
 *     h = net(x).detach()           # recorded first, then dropped */
#include "lesson.h"

static ebb_status two_layers(ebb_tensor **out, ebb_tensor *x, ebb_tensor *w)
{
    EBB_TRY(ebb_linear(out, x, w, NULL));
    EBB_TRY(ebb_tanh(out, *out));
    EBB_TRY(ebb_linear(out, *out, w, NULL));
    return ebb_tanh(out, *out);
}

static ebb_status without_grad(ebb_tensor **out, ebb_tensor *x, ebb_tensor *w, ebb_grad_mode mode)
{
    EBB_WITH_MODE(mode); /* until this function returns, however it does */
    return two_layers(out, x, w);
}

LESSON(no_grad, "no_grad records nothing; a frozen part saves nothing")
{
    NAME(x);
    NAME(w);
    NAME(h);
    STEP(ebb_normal(&x, ctx, EBB_F32, EBB_SHAPE(1024, 256), 0, 1));
    STEP(parameter(&w, ctx, 256, 256));

    STEP(two_layers(&h, x, w));
    CHECK(ebb_live_nodes(ctx) == 4 && ebb_saved_bytes(ctx) == 3 * MiB + 256 * KiB,
          "Recorded: x, both outputs of tanh and w are kept, %s.", size(ebb_saved_bytes(ctx)));

    STEP(without_grad(&h, x, w, EBB_NO_GRAD));
    CHECK(ebb_live_nodes(ctx) == 0 && ebb_saved_bytes(ctx) == 0,
          "no_grad: %zu nodes, %s kept.", ebb_live_nodes(ctx), size(ebb_saved_bytes(ctx)));

    STEP(without_grad(&h, x, w, EBB_INFERENCE));
    CHECK(ebb_live_nodes(ctx) == 0 && ebb_saved_bytes(ctx) == 0 && !ebb_requires_grad(h),
          "inference: %zu nodes, %s kept. In ebb it is another name of no_grad.", ebb_live_nodes(ctx),
          size(ebb_saved_bytes(ctx)));

    STEP(ebb_set_requires_grad(w, false));
    STEP(two_layers(&h, x, w));
    CHECK(ebb_live_nodes(ctx) == 0, "Frozen: the mode is on, and still %zu nodes: no gradient "
          "would come out.", ebb_live_nodes(ctx));

    NAME(head);
    NAME(loss);
    STEP(parameter(&head, ctx, 16, 256));
    const uint64_t feature = bytes_of(h);
    STEP(ebb_linear(&loss, h, head, NULL));
    CHECK(ebb_saved_bytes(ctx) == 1 * MiB, "A head on frozen features keeps those features, %s, "
          "and nothing of what made them.", size(ebb_saved_bytes(ctx)));
    DO(ebb_drop(&h));
    WHY(feature);
    return EBB_OK;
}
