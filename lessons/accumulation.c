/* Gradients add up, so a batch can be done in parts: each part's graph goes with
 * its backward, before the next one is built.
 *
 * In PyTorch:
 *     for part in batch.chunk(4):
 *         (loss(part) / 4).backward()   # adds to .grad, frees the graph
 *     optimizer.step() */
#include "lesson.h"

#include <math.h>

enum { BATCH = 1024, WIDTH = 256 };

static ebb_status forward_backward(ebb_tensor *w, ebb_tensor *x, double weight, size_t *kept)
{
    EBB_LOCAL(h);
    EBB_TRY(ebb_linear(&h, x, w, NULL));
    EBB_TRY(ebb_tanh(&h, h));
    EBB_TRY(ebb_linear(&h, h, w, NULL));
    EBB_TRY(ebb_tanh(&h, h));
    EBB_TRY(ebb_mean(&h, h, EBB_ALL_AXES, false));
    EBB_TRY(ebb_scale(&h, h, weight));
    *kept = ebb_saved_bytes(ebb_tensor_context(w)) - ebb_storage_bytes(ebb_tensor_storage(w)) -
            ebb_storage_bytes(ebb_tensor_storage(x)); /* activations only */
    return ebb_backward(h);
}

/* The batch in `parts`; the first gradient as a sample, and the most that was kept. */
static ebb_status step(ebb_tensor *w, ebb_tensor *x, int parts, size_t *kept, float *sample)
{
    static float grad[WIDTH * WIDTH];
    for (int i = 0; i < parts; i++) {
        EBB_LOCAL(part);
        EBB_TRY(ebb_narrow(&part, x, 0, i * BATCH / parts, BATCH / parts));
        EBB_TRY(forward_backward(w, part, 1.0 / parts, kept));
    }
    EBB_TRY(ebb_read(ebb_grad(w), grad, sizeof(grad)));
    *sample = grad[WIDTH + 1];
    ebb_drop_grad(w);
    return EBB_OK;
}

LESSON(accumulation, "In N parts a batch's activations take 1/N of the bytes")
{
    size_t whole = 0, kept = 0;
    float expected = 0, sample = 0;
    NAME(w);
    NAME(x);
    STEP(parameter(&w, ctx, WIDTH, WIDTH));
    STEP(ebb_normal(&x, ctx, EBB_F32, EBB_SHAPE(BATCH, WIDTH), 0, 1));
    STEP(step(w, x, 1, &whole, &expected));
    TITLES(">parts", ">activations kept", ">of the whole batch's", ">a gradient");
    ROW("1", size(whole), "100.0 %", number(expected));
    for (int parts = 2; parts <= 8; parts *= 2) {
        SAY("The batch in %d parts:", parts);
        STEP(step(w, x, parts, &kept, &sample));
        ROW(number(parts), size(kept), percent((double)kept, (double)whole), number(sample));
        CHECK(kept * (size_t)parts == whole, "In %d parts: 1/%d.", parts, parts);
        CHECK(fabsf(sample - expected) <= 1e-4f * fabsf(expected),
              "The gradient that is shown is the same, up to rounding.");
    }
    END_TABLE();
    SAY("Parameters, gradients and optimizer state do not shrink: what is left of the peak is those.");
    return EBB_OK;
}
