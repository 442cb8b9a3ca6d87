/* bf16 and f16 take half the bytes of f32.  The notes say that mixed precision
 * halves memory: it halves activations, while weights, gradients and optimizer
 * state stay in f32, and a copy of the weights is added.  f16 loses small
 * gradients, so the loss is scaled; where that overflows, the step is skipped.
 *
 * In PyTorch:
 *     with torch.autocast("cuda", torch.float16): loss = net(x)
 *     scaler.scale(loss).backward()
 *     scaler.step(optimizer); scaler.update()   # inf: skip, halve */
#include "lesson.h"

#include <math.h>

static ebb_status two_layers(ebb_tensor *w, ebb_tensor *x, size_t *activations)
{
    EBB_LOCAL(h);
    EBB_TRY(ebb_linear(&h, x, w, NULL));
    EBB_TRY(ebb_tanh(&h, h));
    EBB_TRY(ebb_linear(&h, h, w, NULL));
    EBB_TRY(ebb_tanh(&h, h));
    *activations = ebb_saved_bytes(ebb_tensor_context(w)) - ebb_storage_bytes(ebb_tensor_storage(w));
    return EBB_OK;
}

/* One gradient of mean(w x) for x = 0.001 and 2^20 elements, in f16, times `scale`: 0.001 / 2^20 = 9.5e-10. */
static ebb_status scaled_gradient(ebb_context *ctx, double scale, double *grad)
{
    EBB_LOCAL(w); EBB_LOCAL(x); EBB_LOCAL(loss); EBB_LOCAL(seed); EBB_LOCAL(one);
    EBB_TRY(ebb_full(&w, ctx, EBB_F16, EBB_SHAPE(1 << 20), 1));
    EBB_TRY(ebb_full(&x, ctx, EBB_F16, EBB_SHAPE(1 << 20), 0.001));
    EBB_TRY(ebb_set_requires_grad(w, true));
    EBB_TRY(ebb_mul(&loss, w, x));
    EBB_TRY(ebb_mean(&loss, loss, EBB_ALL_AXES, false));
    EBB_TRY(ebb_full(&seed, ctx, EBB_F16, 0, NULL, scale));
    EBB_TRY(ebb_backward_ex(&loss, 1, &(ebb_backward_options){ .struct_bytes = sizeof(ebb_backward_options),
                                                               .grads = &seed }));
    EBB_TRY(ebb_narrow(&one, ebb_grad(w), 0, 0, 1));
    return ebb_item(one, grad);
}

LESSON(half, "Half precision halves activations, not states")
{
    size_t full = 0, halved = 0;
    NAME(w); NAME(x); NAME(w16); NAME(x16);
    STEP(parameter(&w, ctx, 256, 256));
    STEP(ebb_normal(&x, ctx, EBB_F32, EBB_SHAPE(1024, 256), 0, 1));
    STEP(two_layers(w, x, &full));
    STEP(ebb_cast(&w16, w, EBB_BF16));
    STEP(ebb_cast(&x16, x, EBB_BF16));
    STEP(two_layers(w16, x16, &halved));
    CHECK(halved * 2 == full, "Activations: %s in f32, %s in bf16.", size(full), size(halved));
    CHECK(ebb_storage_bytes(ebb_tensor_storage(w16)) * 2 == ebb_storage_bytes(ebb_tensor_storage(w)),
          "Weights: %s in f32, which the optimizer updates, and now %s in bf16 beside them.",
          size(ebb_storage_bytes(ebb_tensor_storage(w))), size(ebb_storage_bytes(ebb_tensor_storage(w16))));
    const ebb_optim_options adamw = { .struct_bytes = sizeof(adamw), .kind = EBB_ADAMW, .lr = 1e-3,
                                      .beta1 = 0.9, .beta2 = 0.999, .eps = 1e-8 };
    const ebb_named_tensor weight = { "w", w };
    ebb_optim *adam = NULL;
    const size_t before = allocated(ctx);
    STEP(ebb_optim_new(&adam, ctx, &weight, 1, &adamw));
    const size_t states = allocated(ctx) - before;
    DO(ebb_optim_free(adam));
    CHECK(states == 512 * KiB + 512, "AdamW's moments and step count, of the weights in f32: %s.", size(states));

    double grad = 0, scale = 65504 * 2.0;
    STEP(scaled_gradient(ctx, 1, &grad));
    CHECK(grad == 0, "In f16 a gradient of 9.5e-10 becomes %s.", number(grad));
    for (grad = INFINITY; !isfinite(grad); scale /= 2) STEP(scaled_gradient(ctx, scale, &grad));
    CHECK(scale * 2 == 65504 && fabs(grad / (scale * 2) - 9.5e-10) < 1e-11, "Scaled by 131008, which f16 has not, "
          "it was inf. By 65504 it is %s, which is 9.5e-10 again.", number(grad));
    return EBB_OK;
}
