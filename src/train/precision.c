/* train.precision and train.loss_scale: every forward of a run is under the config's autocast, every backward is of
 * the scaled loss. */
#include "tensor/context.h"
#include "train/run.h"

/* Below this, gradients that are still inf or NaN are not f16's doing. */
static const double SMALLEST_SCALE = 1e-4;

ebb_status ebb__run_loss(ebb_tensor **out, ebb__run *run, ebb_tensor *inputs, ebb_tensor *targets, double normalizer)
{
    EBB_WITH_AUTOCAST(ebb__config_autocast(run->config));
    return ebb_model_loss(out, run->model, inputs, targets, normalizer);
}

ebb_status ebb__run_logits(ebb_tensor **out, ebb__run *run, ebb_tensor *inputs)
{
    EBB_LOCAL(logits);
    ebb_dtype dtype = ebb__config_dtype(run->config);
    EBB_WITH_AUTOCAST(ebb__config_autocast(run->config));
    EBB_TRY(ebb_model_logits(&logits, run->model, inputs));
    if (ebb_tensor_dtype(logits) != dtype) EBB_TRY(ebb_cast(&logits, logits, dtype));
    ebb_move(out, &logits);
    return EBB_OK;
}

ebb_status ebb__run_backward(ebb__run *run, ebb_tensor *loss)
{
    EBB_LOCAL(scaled);
    if (run->loss_scale.scale == 0) return ebb_backward(loss);
    EBB_TRY(ebb_scale(&scaled, loss, run->loss_scale.scale));
    return ebb_backward(scaled);
}

ebb_status ebb__run_unscale(ebb__run *run, int64_t step, bool *skip)
{
    ebb_gradients_found found;
    double scale = run->loss_scale.scale;
    *skip = false;
    if (scale == 0) return EBB_OK;
    EBB_TRY(ebb_optim_unscale(run->optim, scale, &found));
    *skip = !ebb_loss_scale_update(&run->loss_scale, found);
    run->skipped_steps += *skip;
    if (run->loss_scale.scale >= SMALLEST_SCALE) return EBB_OK;
    return ebb_fail(EBB_ESTATE, "step %lld: gradients are inf or NaN although the loss scale is down to %g; a lower "
                    "learning rate, a warmup or train.clip_norm may help", (long long)(step + 1), scale);
}
