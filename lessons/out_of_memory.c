/* Memory runs out in the middle of backward.  A half-freed graph would live on
 * into the next step, beside the next graph.  Here all of it goes at once.
 *
 * In PyTorch, after catching torch.cuda.OutOfMemoryError in backward():
 *     del loss                      # else two graphs at once
 *     model.zero_grad()             # some gradients are there, some not */
#include "lesson.h"

typedef struct net { ebb_tensor *w, *head; } net;

static ebb_status count(void *user, ebb_tensor *leaf)
{
    *(size_t *)user += ebb_grad(leaf) != NULL;
    return EBB_OK;
}

/* n products with tanh, each of `rows` x 1024 floats, and a small one, whose backward is first. */
static ebb_status forward(ebb_tensor **loss, const net *m, int64_t rows, int n)
{
    EBB_LOCAL(h);
    EBB_TRY(ebb_normal(&h, ebb_tensor_context(m->w), EBB_F32, EBB_SHAPE(rows, 1024), 0, 1));
    for (int i = 0; i < n; i++) {
        EBB_TRY(ebb_linear(&h, h, m->w, NULL));
        EBB_TRY(ebb_tanh(&h, h));
    }
    EBB_TRY(ebb_linear(&h, h, m->head, NULL));
    return ebb_mean(loss, h, EBB_ALL_AXES, false);
}

static ebb_status step(ebb_tensor **loss, const net *m, size_t *peak)
{
    ebb_memory_reset_peak(ebb_tensor_context(m->w));
    EBB_TRY(forward(loss, m, 384, 3));
    EBB_TRY(ebb_backward(*loss));
    *peak = ebb_memory_peak_allocated_bytes(ebb_tensor_context(m->w));
    ebb_drop_grad(m->w);
    ebb_drop_grad(m->head);
    return EBB_OK;
}

static ebb_status fill_up(ebb_context *small)
{
    NAME(w); NAME(head); NAME(loss);
    size_t before = 0, after = 0, made = 0;
    STEP(parameter(&w, small, 1024, 1024));
    STEP(parameter(&head, small, 1, 1024));
    const net m = { w, head };
    STEP(step(&loss, &m, &before));
    DO(ebb_drop(&loss));

    STEP(ebb_hook_add(head, &(ebb_hook){ .user = &made, .on_accumulated = count }, NULL));
    STEP(forward(&loss, &m, 512, 6));
    CHECK(ebb_saved_bytes(small) == 18 * MiB + 4 * KiB, "Forward fitted into %s: the tape keeps %s.",
          size(reserved(small)), size(ebb_saved_bytes(small)));
    REFUSED(EBB_ENOMEM, ebb_backward(loss));
    CHECK(made == 1 && !ebb_grad(head) && !ebb_grad(w), "Backward did not. head's gradient had been made; it went.");
    CHECK(ebb_saved_bytes(small) == 0, "And so did the whole tape: %s kept.", size(ebb_saved_bytes(small)));
    CHECK(allocated(small) == 4 * MiB + 4 * KiB + 512, "w, head and the loss are left: %s.", size(allocated(small)));
    REFUSED(EBB_ESTATE, ebb_backward(loss));

    DO(ebb_gradients_reset(small));
    STEP(step(&loss, &m, &after));
    CHECK(before == after, "The next step peaks where one before did: %s and %s, to the byte.",
          size(before), size(after));
    return EBB_OK;
}

LESSON(out_of_memory, "When backward fails midway, the whole graph goes at once")
{
    const ebb_context_options options = { .struct_bytes = sizeof(options), .threads = 1, .checks = -1,
                                          .memory_limit_bytes = 22 * MiB };
    EBB_LOCAL_CONTEXT(small);
    STEP(ebb_context_new(&small, &options));
    look_at(small);
    EBB_TRY(fill_up(small));
    look_at(ctx);
    return EBB_OK;
}
