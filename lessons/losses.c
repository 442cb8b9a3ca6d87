/* A loss holds the whole graph that made it.  A list of losses is a list of
 * graphs; a list of numbers is a list of numbers.
 *
 * In PyTorch:
 *     kept.append(loss)             # keeps every activation of the step
 *     kept.append(loss.detach())    # keeps 4 bytes
 *     kept.append(loss.item())      # keeps a float of Python's */
#include "lesson.h"

enum { STEPS = 16 };
enum what { LOSS, DETACHED, ITEM, N_WHATS };
typedef struct list { ebb_tensor *tensors[STEPS]; double numbers[STEPS]; } list;

static void clear(list *kept)
{
    for (int i = 0; i < STEPS; i++) ebb_drop(&kept->tensors[i]);
}

/* An evaluation: forward only, a loss each step. */
static ebb_status evaluate(ebb_context *ctx, ebb_tensor *w, list *kept, enum what keep)
{
    EBB_TRY(watch_begin(ctx));
    for (int i = 0; i < STEPS; i++) {
        EBB_LOCAL(x); EBB_LOCAL(loss);
        EBB_TRY(ebb_normal(&x, ctx, EBB_F32, EBB_SHAPE(1024, 256), 0, 1));
        EBB_TRY(ebb_linear(&loss, x, w, NULL));
        EBB_TRY(ebb_tanh(&loss, loss));
        EBB_TRY(ebb_mean(&loss, loss, EBB_ALL_AXES, false));
        EBB_TRY(ebb_tensor_set_name(loss, "loss"));
        if (keep == LOSS) ebb_bind(&kept->tensors[i], loss);
        if (keep == DETACHED) EBB_TRY(ebb_detach(&kept->tensors[i], loss));
        if (keep == ITEM) EBB_TRY(ebb_item(loss, &kept->numbers[i]));
        step_ends();
    }
    return EBB_OK;
}

LESSON(losses, "A loss in a list keeps its graph; its number keeps nothing")
{
    static const char *const calls[] = { "loss", "loss.detach()", "loss.item()" };
    list kept __attribute__((cleanup(clear))) = { 0 };
    size_t held[N_WHATS], nodes[N_WHATS];
    NAME(w);
    STEP(parameter(&w, ctx, 256, 256));
    const size_t before = allocated(ctx);
    for (enum what keep = LOSS; keep < N_WHATS; keep++) {
        SAY("Kept: %s.", calls[keep]);
        STEP(evaluate(ctx, w, &kept, keep));
        held[keep] = allocated(ctx) - before;
        nodes[keep] = ebb_live_nodes(ctx);
        if (keep == LOSS) LEAK(watch_report());
        CHECK(watch_report()->grows == (keep != ITEM), "After %d steps with %s kept: %s in %zu nodes.",
              STEPS, calls[keep], size(held[keep]), nodes[keep]);
        DO(clear(&kept));
    }
    CHECK(held[LOSS] == STEPS * (2 * MiB + 512), "A loss keeps x and tanh's output of its step, "
          "%s, for 4 bytes that were wanted.", size(2 * MiB));
    CHECK(held[DETACHED] == STEPS * 512 && nodes[DETACHED] == 0, "Detached it keeps its own bytes, "
          "which the pool rounds to %s.", size(512));
    CHECK(held[ITEM] == 0, "A number keeps %s.", size(held[ITEM]));
    return EBB_OK;
}
