/* Evaluation: means over all items of a split, whatever the batches' sizes. */
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "core/mem.h"
#include "tensor/context.h"
#include "train/run.h"

/* Host copies for counting right answers; NULL where that is not done. */
typedef struct answers {
    void *logits;     /* [batch, classes] */
    int32_t *targets; /* [batch] */
    ebb__mean right;
} answers;

static ebb_status answers_begin(answers *a, const ebb__run *run)
{
    *a = (answers){ 0 };
    if (run->info.tokens || run->dry) return EBB_OK;
    size_t rows = (size_t)run->config->train.batch, row, bytes;
    if (!ebb__mul_size(&row, (size_t)run->info.classes,
                       ebb_dtype_bytes(ebb__config_dtype(run->config))) ||
        !ebb__mul_size(&bytes, rows, row))
        return ebb_fail(EBB_ENOMEM, "evaluate: logits of one batch are too large");
    a->logits = ebb__malloc(bytes);
    a->targets = ebb__malloc(rows * sizeof(*a->targets));
    return a->logits && a->targets ? EBB_OK : EBB_ENOMEM;
}

static void answers_end(answers *a)
{
    ebb__free(a->logits);
    ebb__free(a->targets);
}

/* The first of the largest. */
static int64_t largest(const void *row, int64_t n, bool f64)
{
    int64_t best = 0;
    for (int64_t i = 1; i < n; i++) {
        bool more = f64 ? ((const double *)row)[i] > ((const double *)row)[best]
                        : ((const float *)row)[i] > ((const float *)row)[best];
        if (more) best = i;
    }
    return best;
}

static ebb_status answers_add(answers *a, const ebb_tensor *logits, const ebb_tensor *targets)
{
    if (!a->logits) return EBB_OK;
    int64_t rows = ebb_tensor_dim(logits, 0), classes = ebb_tensor_dim(logits, 1);
    bool f64 = ebb_tensor_dtype(logits) == EBB_F64;
    size_t row_bytes = (size_t)classes * (f64 ? 8 : 4);
    EBB_TRY(ebb_read(logits, a->logits, (size_t)rows * row_bytes));
    EBB_TRY(ebb_read(targets, a->targets, (size_t)rows * sizeof(*a->targets)));
    for (int64_t i = 0; i < rows; i++) {
        if (a->targets[i] == EBB_IGNORE) continue;
        int64_t answer = largest((const char *)a->logits + (size_t)i * row_bytes, classes, f64);
        ebb__mean_add(&a->right, answer == a->targets[i] ? 1 : 0, 1);
    }
    return EBB_OK;
}

/* One batch; *more is false at the end of the pass. */
static ebb_status eval_batch(ebb__run *run, ebb__mean *loss, answers *a, int64_t *n_items,
                             bool *more)
{
    EBB_LOCAL(logits);
    EBB_LOCAL(batch_loss);
    ebb_tensor *inputs = NULL, *targets = NULL;
    int64_t n_targets = 0;
    double value = 0;
    EBB_TRY(ebb_loader_next(run->eval, &inputs, &targets, n_items, &n_targets));
    *more = *n_items > 0;
    if (!*more) return EBB_OK;
    if (run->info.tokens) { /* logits may never exist as a whole */
        EBB_TRY(ebb__run_loss(&batch_loss, run, inputs, targets, 0));
    } else {
        EBB_TRY(ebb__run_logits(&logits, run, inputs));
        EBB_TRY(ebb_cross_entropy(&batch_loss, logits, targets, 0));
        EBB_TRY(answers_add(a, logits, targets));
    }
    EBB_TRY(ebb_item(batch_loss, &value));
    ebb__mean_add(loss, value, (double)n_targets);
    return EBB_OK;
}

static void tell_progress(const ebb__run *run, int64_t done, const ebb__mean *loss)
{
    if (!run->options->on_progress) return;
    ebb_memory_stats memory;
    ebb_memory_stats_get(run->ctx, &memory);
    ebb_progress p = { .phase = "eval",
                       .step = done,
                       .steps = ebb_loader_batches(run->eval),
                       .loss = run->dry ? NAN : ebb__mean_get(loss),
                       .item = run->info.tokens ? "tokens" : "samples",
                       .allocated_bytes = memory.allocated_bytes,
                       .peak_allocated_bytes = memory.peak_allocated_bytes };
    run->options->on_progress(run->options->user, &p);
}

static ebb_status check_stop(const ebb__run *run, int64_t done, int64_t batches)
{
    if (!run->eval_only || !run->options->stop || !run->options->stop(run->options->user))
        return EBB_OK;
    return ebb_fail(EBB_ESTATE, "eval: stopped after %lld of %lld batches", (long long)done,
                    (long long)batches);
}

/* The call that finds no batch left belongs to the last one. */
static void mark_batch(ebb__run *run, int64_t batches)
{
    int64_t at = ebb_loader_position(run->eval);
    if (at < batches) ebb__mark_unit(run, at < batches - 1 ? "eval" : "last_eval");
}

static ebb_status eval_pass(ebb__run *run, ebb__mean *loss, answers *a)
{
    EBB_WITH_MODE(EBB_NO_GRAD);
    int64_t batches = ebb_loader_batches(run->eval), n_items = 0;
    bool more = true;
    ebb_loader_rewind(run->eval);
    while (more) {
        EBB_TRY(check_stop(run, ebb_loader_position(run->eval), batches));
        uint64_t before = run->cut_short ? ebb__run_fingerprint(run) : 0;
        mark_batch(run, batches);
        EBB_TRY(eval_batch(run, loss, a, &n_items, &more));
        int64_t done = ebb_loader_position(run->eval);
        if (more) tell_progress(run, done, loss);
        /* Dry: all batches but the last are alike. */
        if (run->cut_short && more && done < batches - 1 && ebb__run_fingerprint(run) == before)
            ebb_loader_skip(run->eval, batches - 1 - done);
    }
    return EBB_OK;
}

ebb_status ebb__run_evaluate(ebb__run *run)
{
    answers a;
    ebb__mean loss = { 0 };
    ebb__phase_set(run->ctx, EBB__PHASE_EVAL);
    ebb_model_train_mode(run->model, false);
    ebb_status st = answers_begin(&a, run);
    if (st == EBB_OK) st = eval_pass(run, &loss, &a);
    answers_end(&a);
    ebb_model_train_mode(run->model, true);
    ebb__phase_set(run->ctx, EBB__PHASE_FORWARD);
    if (st != EBB_OK) return st;
    run->has_eval = true;
    run->eval_loss = ebb__mean_get(&loss);
    run->has_accuracy = !run->info.tokens;
    run->eval_accuracy = ebb__mean_get(&a.right);
    return EBB_OK;
}

/* ---- a run folder ------------------------------------------------------------------------- */

static ebb_status evaluate_run(ebb__run *run, const char *run_dir)
{
    run->eval_only = true;
    EBB_TRY(ebb__run_open_data(run));
    if (!run->eval) return ebb_fail(EBB_EINVAL, "%s: its data has no evaluation split", run_dir);
    return ebb__run_evaluate(run);
}

ebb_status ebb_evaluate(ebb_train_result *result, const char *run_dir,
                        const ebb_train_options *options)
{
    ebb_config *config = NULL;
    ebb__run run = { 0 };
    ebb_status st = ebb__run_open_trained(&run, &config, run_dir, options);
    if (st == EBB_OK) st = evaluate_run(&run, run_dir);
    if (st == EBB_OK) {
        ebb__run_result(result, &run);
        result->steps = 0;
        snprintf(result->run_dir, sizeof(result->run_dir), "%s", run_dir);
    }
    ebb__run_close(&run);
    ebb_config_free(config);
    return st;
}
