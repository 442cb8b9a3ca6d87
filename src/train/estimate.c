/* The same loop on a dry device, cut short when the pool's state repeats.
 * A run is a sequence of units: accumulation groups, the smaller group at an epoch's end, evaluation
 * passes (saves do not touch the pool).  What a unit allocates depends only on its kind and on the
 * pool's state.  One that ran from a state and left that state is settled there, and need not run
 * again: neither the state nor any peak would change.  Within a group it is the same with micro-batches. */
#include "checkpoint/pack.h"
#include "tensor/context.h"
#include "train/offset_plan.h"
#include "train/run.h"

uint64_t ebb__run_fingerprint(const ebb__run *run)
{
    return ebb__pool_fingerprint(ebb__context_pool(run->ctx)) ^ ebb__host_fingerprint(run->ctx) * 0x9E3779B97F4A7C15u ^
           ebb__captured_state(run) * 0xD1B54A32D192ED03u;
}

void ebb__mark_unit(ebb__run *run, const char *kind)
{
    ebb__trace_mark(ebb__context_pool(run->ctx), EBB__ACT_UNIT, &(ebb__owner){ .op = kind });
}

void ebb__note_unit(ebb__run *run, ebb__unit unit, uint64_t before)
{
    if (!run->cut_short) return;
    uint64_t after = ebb__run_fingerprint(run);
    run->settled.known[unit] = before == after;
    run->settled.at[unit] = after;
}

static bool settled(const ebb__run *run, ebb__unit unit, uint64_t now)
{
    return run->settled.known[unit] && run->settled.at[unit] == now;
}

/* The first step >= `step` with a group that does not end an epoch, or that does. */
static int64_t next_group(const ebb__run *run, int64_t step, bool epoch_end)
{
    const ebb__train_keys *t = &run->config->train;
    int64_t batches = run->info.n_train / t->batch + (run->info.n_train % t->batch != 0);
    int64_t groups = batches / t->accumulate + (batches % t->accumulate != 0);
    int64_t index = step % groups;
    if (epoch_end) return step + (groups - 1 - index);
    if (index < groups - 1) return step;
    return groups > 1 ? step + 1 : INT64_MAX;
}

static int64_t next_eval(const ebb__run *run, int64_t step)
{
    int64_t every = run->config->train.eval_every, last = run->steps - 1;
    if (!run->eval) return INT64_MAX;
    if (every == 0) return last;
    int64_t at = step + (every - 1 - step % every);
    return at < last ? at : last;
}

static int64_t least(int64_t a, int64_t b) { return a < b ? a : b; }

int64_t ebb__next_unsettled(const ebb__run *run, int64_t step)
{
    uint64_t now = ebb__run_fingerprint(run);
    int64_t next = run->steps;
    if (!settled(run, EBB__UNIT_GROUP, now)) next = least(next, next_group(run, step, false));
    if (!settled(run, EBB__UNIT_LAST_GROUP, now)) next = least(next, next_group(run, step, true));
    if (!settled(run, EBB__UNIT_EVAL, now)) next = least(next, next_eval(run, step));
    return next;
}

/* ---- micro-batches left out ----------------------------------------------------------------- */

void ebb__tally_add(ebb__tally *to, double times, const ebb__tally *work)
{
    to->flops += times * work->flops;
    to->recompute_flops += times * work->recompute_flops;
    to->recomputed_ops += times * work->recomputed_ops;
    to->offloaded_bytes += times * work->offloaded_bytes;
    to->fetched_bytes += times * work->fetched_bytes;
    to->ns += times * work->ns;
}

ebb__tally ebb__run_tally(const ebb__run *run)
{
    ebb_recompute_stats stats;
    ebb_recompute_stats_get(run->ctx, &stats);
    ebb__tally work = {
        .flops = ebb_flops(run->ctx),
        .recompute_flops = stats.recompute_flops,
        .recomputed_ops = (double)stats.recomputed_ops,
        .offloaded_bytes = (double)stats.offloaded_bytes,
        .fetched_bytes = (double)stats.fetched_bytes,
        .ns = run->meter_ns ? *run->meter_ns : 0,
    };
    ebb__tally_add(&work, 1, &run->left_out);
    return work;
}

/* An offset plan follows groups as they were recorded, event by event: they are run whole. */
int64_t ebb__leave_out(ebb__run *run, const ebb__group *group, int64_t index, uint64_t before, const ebb__tally *work)
{
    const ebb__train_keys *t = &run->config->train;
    bool last_differs = t->fuse_optimizer || group->items < group->n * t->batch;
    int64_t n = group->n - 1 - index - last_differs;
    if (!run->cut_short || n <= 0 || ebb__offset_plan_wanted(run) || ebb__run_fingerprint(run) != before) return 0;
    ebb__tally one = ebb__run_tally(run);
    ebb__tally_add(&one, -1, work);
    ebb__tally_add(&run->left_out, (double)n, &one);
    ebb_loader_skip(run->train, n);
    return n;
}

/* ---- the runs ------------------------------------------------------------------------------- */

ebb_status ebb__train_cut_short(ebb__run *run)
{
    run->cut_short = true;
    EBB_TRY(ebb__run_open_data(run));
    EBB_TRY(ebb__run_open_training(run));
    return ebb__train_steps(run);
}

ebb_status ebb__run_dry(ebb__run *run, ebb_train_result *result, const ebb_config *config,
                        const ebb_train_options *options)
{
    char device[EBB__DEVICE_NAME_BYTES];
    ebb__device_dry_name(device, options ? options->device : NULL);
    EBB_TRY(ebb__run_open_planned(run, config, options, device));
    EBB_TRY(ebb__train_cut_short(run));
    ebb__run_result(result, run);
    return EBB_OK;
}

ebb_status ebb_estimate(ebb_train_result *result, const ebb_config *config,
                        const ebb_train_options *options)
{
    ebb__run run = { 0 };
    ebb_status st = ebb__run_dry(&run, result, config, options);
    ebb__run_close(&run);
    return st;
}
