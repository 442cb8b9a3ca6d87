/* The training loop; real and dry runs are the same code.  What a step does is in step.c. */
#include <math.h>
#include <stdio.h>

#include "tensor/host_view.h"
#include "train/run.h"

/* ---- a step, and what results are made of -------------------------------------------------- */

static ebb_status measured_group(ebb__run *run, int64_t step, const ebb__group *group,
                                 ebb__step_report *report)
{
    ebb__tally before = ebb__run_tally(run);
    EBB_TRY(ebb__run_group(run, step, group, report));
    if (step == run->first_step) {
        run->step_work = ebb__run_tally(run);
        ebb__tally_add(&run->step_work, -1, &before);
    }
    run->step_ms[run->n_step_ms++ % EBB__STEP_MS_RING] = report->ms;
    if (!run->has_loss) run->loss_first = report->loss;
    run->has_loss = true;
    run->loss_last = report->loss;
    return EBB_OK;
}

/* ---- what is told ------------------------------------------------------------------------- */

static ebb_status write_metrics(ebb__run *run, int64_t step, const ebb__step_report *r)
{
    if (!run->folder) return EBB_OK;
    ebb_memory_stats memory;
    ebb_memory_stats_get(run->ctx, &memory);
    ebb__metric line[9] = {
        { "step", (double)(step + 1) },
        { "loss", r->loss },
        { "lr", r->lr },
        { "step_ms", r->ms },
        { "allocated_bytes", (double)memory.allocated_bytes },
        { "peak_allocated_bytes", (double)memory.peak_allocated_bytes },
    };
    int n = 6;
    if (r->loss_scale > 0) {
        line[n++] = (ebb__metric){ "loss_scale", r->loss_scale };
        line[n++] = (ebb__metric){ "skipped", r->skipped };
    }
    if (!isnan(r->grad_norm)) line[n++] = (ebb__metric){ "grad_norm", r->grad_norm };
    return ebb__run_folder_metrics(run->folder, line, n);
}

static void tell_progress(ebb__run *run, int64_t step, const ebb__step_report *r,
                          const ebb__group *group, double started_ms)
{
    if (!run->options->on_progress) return;
    ebb_memory_stats memory;
    ebb_memory_stats_get(run->ctx, &memory);
    double done = (double)(step + 1 - run->first_step), left = (double)(run->steps - step - 1);
    int64_t items = group->items * (run->info.tokens ? run->info.width : 1);
    ebb_progress p = {
        .phase = "train",
        .step = step + 1,
        .steps = run->steps,
        .loss = run->dry ? NAN : r->loss,
        .lr = r->lr,
        .items_per_s = r->ms > 0 && !run->dry ? (double)items / r->ms * 1e3 : 0,
        .seconds_left = (ebb__now_ms() - started_ms) / done * left * 1e-3,
        .item = run->info.tokens ? "tokens" : "samples",
        .allocated_bytes = memory.allocated_bytes,
        .peak_allocated_bytes = memory.peak_allocated_bytes,
    };
    run->options->on_progress(run->options->user, &p);
}

/* ---- evaluation and saving ---------------------------------------------------------------- */

bool ebb__eval_due(const ebb__run *run, int64_t step)
{
    int64_t every = run->config->train.eval_every;
    if (!run->eval || run->options->skip_eval) return false;
    return step == run->steps - 1 || (every > 0 && (step + 1) % every == 0);
}

static ebb_status evaluate(ebb__run *run, int64_t step)
{
    EBB_TRY(ebb__run_evaluate(run));
    if (!run->folder) return EBB_OK;
    ebb__metric line[] = { { "step", (double)(step + 1) },
                           { "eval_loss", run->eval_loss },
                           { "eval_accuracy", run->eval_accuracy } };
    return ebb__run_folder_metrics(run->folder, line, run->has_accuracy ? 3 : 2);
}

static ebb_status check_weight(const ebb_named_tensor *weight, int64_t done)
{
    ebb_status st = EBB_OK;
    ebb__host_view view;
    const ebb_tensor *t = weight->tensor;
    bool f64 = ebb_tensor_dtype(t) == EBB_F64;
    if (!f64 && ebb_tensor_dtype(t) != EBB_F32) return EBB_OK;
    EBB_TRY(ebb__host_view_of(&view, t, EBB__VIEW_READ));
    for (int64_t k = 0; k < ebb_tensor_elems(t) && st == EBB_OK; k++) {
        double value = f64 ? ((const double *)view.data)[k] : (double)((const float *)view.data)[k];
        if (!isfinite(value))
            st = ebb_fail(EBB_ESTATE, "step %lld: weight \"%s\" is %g; it is not saved",
                          (long long)done, weight->name, value);
    }
    return ebb__host_view_close(&view, st);
}

/* Weights that are not finite must not replace the last good save. */
static ebb_status check_weights(const ebb__run *run, int64_t done)
{
    const ebb_named_tensor *params = NULL;
    int n = ebb_model_params(run->model, &params);
    for (int i = 0; i < n; i++) EBB_TRY(check_weight(&params[i], done));
    return EBB_OK;
}

static ebb_status save(ebb__run *run, int64_t done)
{
    EBB_TRY(check_weights(run, done));
    const ebb__train_keys *t = &run->config->train;
    ebb__run_state state = {
        .step = done,
        .loader_position = ebb_loader_position(run->train),
        .items = ebb__group_at(done, run->info.n_train, t->batch, t->accumulate).items_before,
        .seed = run->config->top.seed,
        .loss_scale = run->loss_scale.scale,
        .loss_scale_good = run->loss_scale.good,
        .skipped = run->skipped_before + run->skipped_steps,
    };
    snprintf(state.rng_offset, sizeof(state.rng_offset), "%llu",
             (unsigned long long)ebb_rng_offset(run->ctx));
    return ebb__run_folder_save(run->folder, run->model, run->optim, &state);
}

static bool save_due(const ebb__run *run, int64_t step)
{
    int64_t every = run->config->train.save_every;
    return run->folder && (step == run->steps - 1 || (every > 0 && (step + 1) % every == 0));
}

static ebb_status check_loss(const ebb__run *run, int64_t step, double loss)
{
    if (run->dry || isfinite(loss)) return EBB_OK;
    return ebb_fail(EBB_ESTATE,
                    "step %lld: the loss is %g; a lower learning rate, a warmup or train.clip_norm "
                    "may help", (long long)(step + 1), loss);
}

/* ---- the loop ----------------------------------------------------------------------------- */

/* Evaluation and saving after `step`, where they are due and not done yet. */
static ebb_status after_step(ebb__run *run, int64_t step)
{
    if (ebb__eval_due(run, step) && run->evaluated <= step) {
        uint64_t before = run->cut_short ? ebb__run_fingerprint(run) : 0;
        EBB_TRY(evaluate(run, step));
        ebb__note_unit(run, EBB__UNIT_EVAL, before);
        run->evaluated = step + 1;
    }
    if (!save_due(run, step) || run->saved > step) return EBB_OK;
    EBB_TRY(save(run, step + 1));
    run->saved = step + 1;
    return EBB_OK;
}

static ebb_status run_step(ebb__run *run, int64_t step, double started_ms)
{
    const ebb__train_keys *t = &run->config->train;
    ebb__group group = ebb__group_at(step, run->info.n_train, t->batch, t->accumulate);
    ebb__step_report report;
    EBB_TRY(EBB__TELL(run, on_step_begin, step + 1));
    uint64_t before = run->cut_short ? ebb__run_fingerprint(run) : 0;
    ebb__mark_unit(run, group.epoch_end ? "last_group" : "group");
    EBB_TRY(measured_group(run, step, &group, &report));
    ebb__note_unit(run, group.epoch_end ? EBB__UNIT_LAST_GROUP : EBB__UNIT_GROUP, before);
    EBB_TRY(write_metrics(run, step, &report));
    EBB_TRY(check_loss(run, step, report.loss));
    tell_progress(run, step, &report, &group, started_ms);
    EBB_TRY(EBB__TELL(run, on_step_end, step + 1));
    return after_step(run, step);
}

/* Moves on to the next step that may change the pool's state. */
static int64_t skip_settled(ebb__run *run, int64_t step)
{
    int64_t next = ebb__next_unsettled(run, step);
    const ebb__train_keys *t = &run->config->train;
    int64_t to = ebb__group_at(next, run->info.n_train, t->batch, t->accumulate).first;
    ebb_loader_skip(run->train, to - ebb_loader_position(run->train));
    return next;
}

/* Ends the run before `step` as if it were its last. */
static ebb_status end_early(ebb__run *run, int64_t step)
{
    if (step == run->first_step)
        return ebb_fail(EBB_ESTATE, "train: stopped before the first step was done");
    run->steps = step;
    return after_step(run, step - 1);
}

ebb_status ebb__train_steps(ebb__run *run)
{
    double started_ms = ebb__now_ms();
    for (int64_t step = run->first_step; step < run->steps; step++) {
        if (run->options->stop && run->options->stop(run->options->user)) {
            EBB_TRY(end_early(run, step));
            break;
        }
        if (run->cut_short) step = skip_settled(run, step);
        if (step >= run->steps) break;
        EBB_TRY(run_step(run, step, started_ms));
    }
    EBB_TRY(ebb__device_synchronize(&run->ctx->device)); /* what went wrong since the last loss was read */
    return EBB__TELL(run, on_end);
}

ebb_status ebb_train(ebb_train_result *result, const ebb_config *config,
                     const ebb_train_options *options)
{
    ebb__run run = { 0 };
    ebb_status st = ebb__run_open_planned(&run, config, options, options ? options->device : NULL);
    if (st == EBB_OK) st = ebb__run_open_data(&run);
    if (st == EBB_OK) st = ebb__run_open_training(&run);
    if (st == EBB_OK) st = ebb__train_steps(&run);
    if (st == EBB_OK) ebb__run_result(result, &run);
    ebb__run_close(&run);
    return st;
}
