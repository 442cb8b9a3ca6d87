/* Hidden state that goes from window to window takes its history along, unless
 * it is detached: then gradients stop there, which is what truncated means.
 *
 * In PyTorch:
 *     h = torch.tanh(w * h + x); h.backward()
 *     h = torch.tanh(w * h + x2); h.backward()   # error: backward again
 *     h = h.detach()                # between windows */
#include "lesson.h"

#include <math.h>

/* h = tanh(w h + x), all scalars. */
static ebb_status window(ebb_tensor **h, ebb_tensor *w, double x)
{
    EBB_LOCAL(input);
    EBB_TRY(ebb_full(&input, ebb_tensor_context(w), EBB_F64, 0, NULL, x));
    EBB_TRY(ebb_mul(h, w, *h));
    EBB_TRY(ebb_add(h, *h, input));
    return ebb_tanh(h, *h);
}

static ebb_status read_grad(ebb_tensor *w, double *dw)
{
    EBB_TRY(ebb_item(ebb_grad(w), dw));
    ebb_drop_grad(w);
    return EBB_OK;
}

LESSON(hidden_state, "Hidden state carried across windows carries its graph")
{
    NAME(w);
    NAME(h);
    double dw1 = 0, dw2 = 0;
    STEP(ebb_full(&w, ctx, EBB_F64, 0, NULL, 0.5));
    STEP(ebb_set_requires_grad(w, true));
    STEP(ebb_full(&h, ctx, EBB_F64, 0, NULL, 1));

    STEP(window(&h, w, 0.5));
    STEP(ebb_backward(h));
    STEP(read_grad(w, &dw1));
    STEP(window(&h, w, -0.25));
    CHECK(ebb_live_nodes(ctx) == 6, "The second window hangs on the first: %zu nodes.", ebb_live_nodes(ctx));
    REFUSED(EBB_ESTATE, ebb_backward(h));

    STEP(ebb_full(&h, ctx, EBB_F64, 0, NULL, 1));
    STEP(window(&h, w, 0.5));
    STEP(ebb_detach(&h, h));
    STEP(window(&h, w, -0.25));
    STEP(ebb_backward(h));
    STEP(read_grad(w, &dw2));
    CHECK(fabs(dw1 - 0.419974) < 1e-6 && fabs(dw2 - 0.748712) < 1e-6, "Detached, each window has "
          "its own gradient: %s and %s (through both it would be 0.955147).", number(dw1), number(dw2));

    EBB_TRY(watch_begin(ctx));
    for (int i = 0; i < 16; i++, step_ends()) EBB_TRY(window(&h, w, 0.5));
    CHECK(watch_report()->grows && watch_report()->nodes == 8 * (ebb_live_nodes(ctx) / 17),
          "Without backward and without detach, say in an evaluation, nothing "
          "refuses; the graph grows by %zu nodes a window:",
          ebb_live_nodes(ctx) / 17);
    LEAK(watch_report());
    return EBB_OK;
}
