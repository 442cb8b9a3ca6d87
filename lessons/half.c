/* bf16 and f16 take half the bytes of f32.  The notes say that mixed precision
 * halves memory: it halves activations, while weights, gradients and optimizer
 * state stay in f32, and copies of the weights are added.  f16 loses small
 * gradients, so the loss is scaled; where that overflows, the step is skipped.
 *
 * In PyTorch:
 *     with torch.autocast("cuda", torch.float16): loss = net(x)
 *     scaler.scale(loss).backward()
 *     scaler.step(optimizer); scaler.update()   # inf: skip, halve */
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

/* mean(0.001 w) over 2^20 elements, the product in f16: each gradient is 0.001 / 2^20 = 9.5e-10. */
static ebb_status small_loss(ebb_tensor **loss, ebb_tensor *w)
{
    EBB_WITH_AUTOCAST(EBB_F16);
    EBB_LOCAL(x);
    EBB_TRY(ebb_full(&x, ebb_tensor_context(w), EBB_F32, EBB_SHAPE(1, 1), 0.001));
    EBB_TRY(ebb_linear(loss, x, w, NULL));
    return ebb_mean(loss, *loss, EBB_ALL_AXES, false);
}

/* A step of training with a scaled loss.  *grad: of one weight, unscaled; *made: it was no step to skip. */
static ebb_status scaled_step(ebb_optim *optim, ebb_tensor *w, ebb_loss_scale *scale, double *grad, bool *made)
{
    EBB_LOCAL(loss); EBB_LOCAL(one);
    ebb_gradients_found found;
    EBB_TRY(small_loss(&loss, w));
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
    NAME(w); NAME(x);
    STEP(parameter(&w, ctx, 256, 256));
    STEP(ebb_normal(&x, ctx, EBB_F32, EBB_SHAPE(1024, 256), 0, 1));
    STEP(two_layers(w, x, EBB_F32, &full));
    STEP(two_layers(w, x, EBB_BF16, &low));
    const char *const casts[] = { "cast" };
    STEP(ebb_recompute_ops(ctx, casts, 1));
    STEP(two_layers(w, x, EBB_BF16, &lean));
    const size_t weight_bytes = ebb_storage_bytes(ebb_tensor_storage(w)), activations = full - weight_bytes;
    CHECK(low == activations / 2 + weight_bytes / 2, "Saved in f32: %s, of which %s are the weight itself. In bf16: "
          "%s, of which %s are a copy of it: the second layer's, as x wants no gradient of the first.", size(full),
          size(weight_bytes), size(low), size(weight_bytes / 2));
    CHECK(lean == activations / 2, "With a recipe for `cast` backward makes that copy again: %s.", size(lean));
    const ebb_optim_options adamw = { .struct_bytes = sizeof(adamw), .kind = EBB_ADAMW, .lr = 1e-3,
                                      .beta1 = 0.9, .beta2 = 0.999, .eps = 1e-8 };
    const ebb_named_tensor weight = { "w", w };
    ebb_optim *adam = NULL;
    const size_t before = allocated(ctx);
    STEP(ebb_optim_new(&adam, ctx, &weight, 1, &adamw));
    const size_t states = allocated(ctx) - before;
    DO(ebb_optim_free(adam));
    CHECK(states == 512 * KiB + 512, "AdamW's moments and step count: %s, as before.", size(states));

    const ebb_optim_options sgd = { .struct_bytes = sizeof(sgd), .kind = EBB_SGD, .lr = 1e-3 };
    ebb_loss_scale scale = { .scale = 1, .growth = 2, .backoff = 0.5, .interval = 2000 };
    double grad = 0;
    bool made = false;
    int skipped = 0;
    NAME(v);
    STEP(parameter(&v, ctx, 1 << 20, 1));
    const ebb_named_tensor many = { "v", v };
    ebb_optim *optim = NULL;
    STEP(ebb_optim_new(&optim, ctx, &many, 1, &sgd));
    STEP(scaled_step(optim, v, &scale, &grad, &made));
    CHECK(made && grad == 0, "In f16 a gradient of 9.5e-10 becomes %s.", number(grad));
    for (scale.scale = 0x1p38, made = false; !made; skipped += !made)
        STEP(scaled_step(optim, v, &scale, &grad, &made));
    DO(ebb_optim_free(optim));
    CHECK(skipped == 3 && fabs(grad - 9.5e-10) < 1e-11, "With the loss times 2^38 it was inf: %s steps were skipped, each "
          "halving the scale. Then it is %s, which is 9.5e-10 again.", number(skipped), number(grad));
    return EBB_OK;
}
