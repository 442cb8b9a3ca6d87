/* train.capture: a step is captured once, as one graph, and then launched.
 * The graph reads its batches from tensors that never move, learning rate, Adam's corrections and the dropout's
 * offset from the device (ebb__accel_numbers), and writes losses and the gradients' norm to pinned memory.  It has
 * memory of its own (alloc/capture.c); batches are copied in before a launch.
 *
 * Groups of another shape (an epoch's last), evaluation and saving are calls as ever, in the context's memory. */
#include <stdio.h>

#include "core/mem.h"
#include "optim/optim.h"
#include "tensor/capture.h"
#include "tensor/context.h"
#include "train/offset_plan.h"
#include "train/run.h"

static ebb__group first_group(const ebb__run *run)
{
    const ebb__train_keys *t = &run->config->train;
    return ebb__group_at(0, run->info.n_train, t->batch, t->accumulate);
}

static ebb_status check(const ebb__run *run)
{
    EBB_TRY(ebb__capture_possible(run->ctx, "train.capture"));
    if (run->config->n_savers > 0)
        return ebb_fail(EBB_EINVAL, "train.capture: memory.offload copies beside the computation, which a graph "
                        "has not; set it to \"none\"");
    if (ebb__offset_plan_wanted(run))
        return ebb_fail(EBB_EINVAL, "train.capture: a graph has memory of its own, so memory.offset_plan has nothing "
                        "to place; set one of the two to false");
    if (run->options->hash_gradients || run->options->check_recompute)
        return ebb_fail(EBB_EINVAL, "train.capture: gradients and recomputes cannot be read in the middle of a graph; "
                        "to compare or check them set it to false");
    if (run->config->loss_scale.scale > 0)
        return ebb_fail(EBB_EINVAL,
                        "train.capture: train.loss_scale decides after each backward whether the step is made, "
                        "which a graph cannot; use train.precision bf16, or set train.capture to false");
    if (first_group(run).n > EBB__READING_CELLS)
        return ebb_fail(EBB_EINVAL, "train.capture: train.accumulate %lld; at most %d micro-batches make a graph",
                        (long long)run->config->train.accumulate, EBB__READING_CELLS);
    return EBB_OK;
}

ebb_status ebb__captured_open(ebb__run *run)
{
    ebb__captured *c = &run->captured;
    EBB_TRY(check(run));
    size_t n = (size_t)first_group(run).n;
    c->batches = ebb__calloc(n, sizeof *c->batches);
    if (!c->batches) return EBB_ENOMEM;
    c->n = (int)n;
    return ebb__reading_open(&c->norm, run->ctx);
}

void ebb__captured_close(ebb__run *run)
{
    ebb__captured *c = &run->captured;
    ebb_graph_free(c->graph);
    for (int i = 0; i < c->n; i++) {
        ebb_drop(&c->batches[i].inputs);
        ebb_drop(&c->batches[i].targets);
    }
    ebb__free(c->batches);
    ebb__reading_close(&c->norm);
    *c = (ebb__captured){ 0 };
}

bool ebb__captured_fits(const ebb__run *run, const ebb__group *group)
{
    if (!run->config->train.capture) return false;
    ebb__group first = first_group(run);
    return group->n == first.n && group->items == first.items;
}

uint64_t ebb__captured_state(const ebb__run *run)
{
    return (uint64_t)run->captured.warm + (run->captured.graph != NULL);
}

/* ---- what changes from launch to launch ------------------------------------------------------- */

static ebb_status bring(ebb_tensor **to, const ebb_tensor *from)
{
    if (!*to) {
        EBB_TRY(ebb_empty(to, ebb_tensor_context(from), ebb_tensor_dtype(from), ebb_tensor_ndim(from),
                          ebb_tensor_dims(from)));
        ebb_tensor_set_category(*to, EBB_CAT_INPUT);
    }
    return ebb_copy_into(*to, from);
}

static ebb_status bring_batches(ebb__run *run, const ebb__group *group)
{
    ebb_tensor *inputs = NULL, *targets = NULL;
    int64_t items = 0, n_targets = 0, counted = 0;
    for (int i = 0; i < run->captured.n; i++) {
        EBB_TRY(ebb_loader_next(run->train, &inputs, &targets, &items, &n_targets));
        EBB_TRY(bring(&run->captured.batches[i].inputs, inputs));
        EBB_TRY(bring(&run->captured.batches[i].targets, targets));
        ebb_loader_release(run->train);
        counted += n_targets;
    }
    return ebb__check_targets(run, group, counted);
}

/* The step that optim has begun is launched with the generator as it stands. */
static ebb_status launch(ebb__run *run)
{
    ebb__captured *c = &run->captured;
    ebb__accel_numbers numbers;
    ebb__optim_accel_numbers(run->optim, &numbers);
    numbers.rng_ahead = ebb_rng_offset(run->ctx) - c->rng_offset;
    EBB_TRY(ebb__graph_launch_with(c->graph, &numbers));
    ebb_rng_set_offset(run->ctx, ebb_rng_offset(run->ctx) + c->rng_draws);
    ebb__reading_again(&run->losses, c->n);
    ebb__reading_again(&c->norm, run->config->train.clip_norm > 0);
    return EBB_OK;
}

/* ---- the capture ------------------------------------------------------------------------------ */

static ebb_status record(ebb__run *run, int64_t step, const ebb__group *group, ebb__step_report *report)
{
    const ebb__captured *c = &run->captured;
    for (int i = 0; i < c->n; i++)
        EBB_TRY(ebb__micro_step(run, group, i, c->batches[i].inputs, c->batches[i].targets, report->lr));
    return ebb__update_step(run, step, report);
}

/* What a failed step has asked for is the context's again.  Keeps the message. */
static ebb_status give_up(ebb__run *run, ebb_status st)
{
    char message[1024];
    snprintf(message, sizeof message, "%s", ebb_message());
    ebb_status end = ebb_capture_end(NULL, run->ctx);
    (void)end; /* the first error is told */
    return ebb_fail(st, "train.capture: %s", message);
}

/* Begins the optimizer's step, and the generator stands after it. */
static ebb_status capture(ebb__run *run, int64_t step, const ebb__group *group, ebb__step_report *report)
{
    ebb__captured *c = &run->captured;
    c->rng_offset = ebb_rng_offset(run->ctx);
    ebb_memory_empty_cache(run->ctx); /* what called steps worked in: the graph has its own */
    EBB_TRY(ebb__capture_begin_varying(run->ctx));
    ebb_status st = record(run, step, group, report);
    if (st != EBB_OK) return give_up(run, st);
    EBB_TRY(ebb_capture_end(&c->graph, run->ctx));
    c->rng_draws = ebb_rng_offset(run->ctx) - c->rng_offset;
    ebb_rng_set_offset(run->ctx, c->rng_offset);
    return EBB_OK;
}

ebb_status ebb__captured_step(ebb__run *run, int64_t step, const ebb__group *group, ebb__step_report *report)
{
    EBB_TRY(bring_batches(run, group));
    EBB_TRY(run->captured.graph ? ebb_optim_step_begin(run->optim, report->lr) : capture(run, step, group, report));
    return launch(run);
}
