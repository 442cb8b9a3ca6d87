/* bf16 and f16 take half the bytes of f32.  The notes say that mixed precision
 * halves memory: it halves activations, while weights, gradients and optimizer
 * state stay in f32, and copies of the weights are added.  f16 loses small
 * gradients, so the loss is scaled; where that overflows, the step is skipped.
 *
 * In PyTorch:
 *     with torch.autocast("cuda", torch.float16): loss = net(x)
 *     scaler.scale(loss).backward(); scaler.step(optimizer); scaler.update() */
#include "lesson.h"

#include <math.h>

/* What two layers save for backward, with products in `dtype`. */
static ebb_status two_layers(ebb_tensor *w, ebb_tensor *x, ebb_dtype dtype, size_t *saved)
{
    EBB_WITH_AUTOCAST(dtype);
    EBB_LOCAL(h);
    EBB_TRY(ebb_linear(&h, x, w, NULL));
    EBB_TRY(ebb_tanh(&h, h));
    EBB_TRY(ebb_linear(&h, h, w, NULL));
    EBB_TRY(ebb_tanh(&h, h));
    *saved = ebb_saved_bytes(ebb_tensor_context(w));
    return EBB_OK;
}

/* A step on mean(0.001 w), whose product is in f16: of 2^20 weights each has the gradient 0.001 / 2^20 = 9.5e-10.
 * *grad: the first one's, unscaled; *made: it was no step to skip. */
static ebb_status scaled_step(ebb_optim *optim, ebb_tensor *w, ebb_loss_scale *scale, double *grad, bool *made)
{
    EBB_WITH_AUTOCAST(EBB_F16);
    EBB_LOCAL(x); EBB_LOCAL(loss); EBB_LOCAL(one);
    ebb_gradients_found found;
    EBB_TRY(ebb_full(&x, ebb_tensor_context(w), EBB_F32, EBB_SHAPE(1, 1), 0.001));
    EBB_TRY(ebb_linear(&loss, x, w, NULL));
    EBB_TRY(ebb_mean(&loss, loss, EBB_ALL_AXES, false));
    EBB_TRY(ebb_scale(&loss, loss, scale->scale));
    EBB_TRY(ebb_backward(loss));
    EBB_TRY(ebb_optim_unscale(optim, scale->scale, &found));
    EBB_TRY(ebb_narrow(&one, ebb_grad(w), 0, 0, 1));
    EBB_TRY(ebb_item(one, grad));
    *made = ebb_loss_scale_update(scale, found);
    if (*made) EBB_TRY(ebb_optim_step(optim, 1e-3));
    ebb_optim_drop_grads(optim);
    return EBB_OK;
}

LESSON(half, "Half precision halves activations, not states")
{
    size_t full = 0, low = 0, lean = 0;
    NAME(w); NAME(x); NAME(v);
    STEP(parameter(&w, ctx, 256, 256));
    STEP(ebb_normal(&x, ctx, EBB_F32, EBB_SHAPE(1024, 256), 0, 1));
    STEP(two_layers(w, x, EBB_F32, &full));
    STEP(two_layers(w, x, EBB_BF16, &low));
    STEP(ebb_recompute_ops(ctx, (const char *const[]){ "cast" }, 1));
    STEP(two_layers(w, x, EBB_BF16, &lean));
    const size_t weight = ebb_storage_bytes(ebb_tensor_storage(w));
    CHECK(low * 2 == full, "Saved in f32: %s, of which %s are the weight itself. In bf16: %s, of which %s are a copy "
          "of it, for the second layer.", size(full), size(weight), size(low), size(weight / 2));
    CHECK(lean == low - weight / 2, "With a recipe for `cast` backward makes that copy again: %s.", size(lean));
    const ebb_optim_options adamw = { .struct_bytes = sizeof(adamw), .kind = EBB_ADAMW, .lr = 1e-3,
                                      .beta1 = 0.9, .beta2 = 0.999, .eps = 1e-8 };
    ebb_loss_scale scale = { .scale = 1, .growth = 2, .backoff = 0.5, .interval = 2000 };
    double grad = 0, skipped = 0; bool made = false;
    STEP(parameter(&v, ctx, 1 << 20, 1));
    EBB_LOCAL_OPTIM(optim);
    const size_t before = allocated(ctx);
    STEP(ebb_optim_new(&optim, ctx, &(ebb_named_tensor){ "v", v }, 1, &adamw));
    CHECK(allocated(ctx) - before == 8 * MiB + 512, "AdamW's moments and step count of 4 MiB of weights: %s, as ever.",
          size(allocated(ctx) - before));
    STEP(scaled_step(optim, v, &scale, &grad, &made));
    CHECK(made && grad == 0, "In f16 a gradient of 9.5e-10 becomes %s.", number(grad));
    scale.scale = 0x1p38;
    for (made = false; !made; skipped += !made) STEP(scaled_step(optim, v, &scale, &grad, &made));
    DO(ebb_optim_drop(&optim));
    CHECK(skipped == 3 && scale.scale == 0x1p35 && fabs(grad - 9.5e-10) < 1e-11, "With the loss times 2^38 it was inf: "
          "%s steps were skipped, each halving the scale. Then it is %s again.", number(skipped), number(grad));
    return EBB_OK;
}
