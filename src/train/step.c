/* train/step.c: one optimizer step: forward and backward of each micro-batch, clipping, the update. */
#include <math.h>

#include "optim/optim.h"
#include "tensor/context.h"
#include "train/run.h"

ebb_status ebb__micro_step(ebb__run *run, const ebb__group *group, int64_t index, ebb_tensor *inputs,
                           ebb_tensor *targets, double lr)
{
    EBB_LOCAL(loss);
    int64_t per_item = run->info.tokens ? run->info.width : 1;
    double normalizer = group->n > 1 ? (double)(group->items * per_item) : 0;
    EBB_TRY(ebb__run_loss(&loss, run, inputs, targets, normalizer));
    ebb_loader_release(run->train);
    EBB_TRY(EBB__TELL(run, on_backward));
    bool fused = run->config->train.fuse_optimizer && index == group->n - 1;
    EBB_TRY(fused ? ebb__fused_backward(run, loss, lr) : ebb__run_backward(run, loss));
    return ebb__reading_add(&run->losses, loss);
}

ebb_status ebb__check_targets(const ebb__run *run, const ebb__group *group, int64_t n_targets)
{
    int64_t expected = group->items * (run->info.tokens ? run->info.width : 1);
    if (group->n == 1 || n_targets == expected) return EBB_OK;
    return ebb_fail(EBB_EUNSUPPORTED,
                    "train.accumulate: %lld of a group's %lld targets are ignored; "
                    "data with ignored targets takes accumulate 1 for now",
                    (long long)(expected - n_targets), (long long)expected);
}

static ebb_status group_backward(ebb__run *run, const ebb__group *group, double lr)
{
    ebb_tensor *inputs = NULL, *targets = NULL;
    int64_t items = 0, n_targets = 0, counted = 0;
    for (int64_t i = 0; i < group->n; i++) {
        uint64_t before = run->cut_short ? ebb__run_fingerprint(run) : 0;
        ebb__tally work = ebb__run_tally(run);
        EBB_TRY(ebb_loader_next(run->train, &inputs, &targets, &items, &n_targets));
        EBB_TRY(ebb__micro_step(run, group, i, inputs, targets, lr));
        int64_t left_out = ebb__leave_out(run, group, i, before, &work);
        counted += n_targets * (1 + left_out);
        i += left_out;
    }
    return ebb__check_targets(run, group, counted);
}

/* Where steps are captured the norm is read when the step is over, in called steps too: they try out the kernels. */
static ebb_status clip(ebb__run *run, ebb__step_report *report)
{
    double max_norm = run->config->train.clip_norm, *sum = NULL;
    if (!(max_norm > 0) || report->skipped) return EBB_OK;
    if (!run->config->train.capture) return ebb_optim_clip(run->optim, max_norm, &report->grad_norm);
    EBB_TRY(ebb__reading_cell(&run->captured.norm, &sum));
    return ebb__optim_clip_later(run->optim, max_norm, sum);
}

ebb_status ebb__update_step(ebb__run *run, int64_t step, ebb__step_report *report)
{
    ebb__phase_set(run->ctx, EBB__PHASE_OPTIMIZER);
    EBB_TRY(ebb__run_unscale(run, step, &report->skipped));
    EBB_TRY(clip(run, report));
    double start = ebb__now_ms();
    if (run->hash) EBB_TRY(ebb__gradient_hash_step(run->hash));
    run->hash_ms += ebb__now_ms() - start;
    if (run->config->train.fuse_optimizer)
        EBB_TRY(ebb__fused_finish(run));
    else if (!report->skipped)
        EBB_TRY(ebb_optim_step(run->optim, report->lr));
    ebb_optim_drop_grads(run->optim);
    return EBB_OK;
}

static ebb_status read_norm(ebb__run *run, ebb__step_report *report)
{
    double sum = 0;
    if (!run->config->train.capture || !(run->config->train.clip_norm > 0)) return EBB_OK;
    EBB_TRY(ebb__reading_take(&run->captured.norm, &sum));
    report->grad_norm = sqrt(sum);
    return EBB_OK;
}

static ebb_status called_step(ebb__run *run, int64_t step, const ebb__group *group, ebb__step_report *report)
{
    EBB_TRY(group_backward(run, group, report->lr));
    return ebb__update_step(run, step, report);
}

ebb_status ebb__run_group(ebb__run *run, int64_t step, const ebb__group *group, ebb__step_report *report)
{
    double start = ebb__now_ms();
    *report = (ebb__step_report){ .lr = ebb_schedule_lr(&run->schedule, step), .grad_norm = NAN,
                                   .loss_scale = run->loss_scale.scale };
    run->hash_ms = 0;
    ebb__phase_set(run->ctx, EBB__PHASE_FORWARD);
    bool fits = ebb__captured_fits(run, group);
    EBB_TRY(fits && run->captured.warm ? ebb__captured_step(run, step, group, report)
                                       : called_step(run, step, group, report));
    run->captured.warm |= fits; /* libraries choose their algorithms, and load, in a step of calls */
    EBB_TRY(read_norm(run, report));
    EBB_TRY(ebb__reading_take(&run->losses, &report->loss)); /* where an accelerator is waited for */
    ebb__phase_set(run->ctx, EBB__PHASE_FORWARD);
    report->ms = ebb__now_ms() - start - run->hash_ms;
    return EBB_OK;
}
