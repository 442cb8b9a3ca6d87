/* The largest batch that fits, by dry runs: doubled until it does not, then halved between. */
#include <stdio.h>
#include <string.h>

#include "core/mem.h"
#include "train/run.h"

typedef struct trial {
    const ebb_config *config;
    const ebb_train_options *options;
    size_t limit;
    int64_t most;            /* a batch of more holds no more: the data's items */
    ebb_batch_stop stop;     /* of the last one that did not fit */
    size_t peak;             /* of the last one; with stop, only where that is the limit */
} trial;

/* Of a run that ended with ENOMEM: the limit that a pool kept; FITS: none did, this process ran out itself. */
static ebb_batch_stop limit_kept(const ebb_context *ctx)
{
    ebb_memory_stats own, host;
    if (!ctx) return EBB_BATCH_FITS;
    ebb_memory_stats_get(ctx, &own);
    ebb_host_memory_stats_get(ctx, &host);
    return host.n_ooms ? EBB_BATCH_HOST : own.n_ooms ? EBB_BATCH_MEMORY : EBB_BATCH_FITS;
}

/* What a pool refused is no error, but *stop. */
static ebb_status dry_run(ebb_train_result *result, ebb_batch_stop *stop, const ebb_config *config,
                          const ebb_train_options *options)
{
    ebb__run run = { 0 };
    ebb_status st = ebb__run_dry(&run, result, config, options);
    *stop = st == EBB_ENOMEM ? limit_kept(run.ctx) : EBB_BATCH_FITS;
    ebb__run_close(&run);
    return *stop == EBB_BATCH_FITS ? st : EBB_OK;
}

/* No plan fits: for the budget's sake, or for that of a limit which binds more? */
static ebb_status budget_stop(ebb_batch_stop *stop, const trial *t, ebb_config *config)
{
    size_t limit = t->config->memory.limit_bytes;
    *stop = limit && limit < config->budget_bytes ? EBB_BATCH_MEMORY : EBB_BATCH_BUDGET;
    if (!config->memory.host_limit_bytes) return EBB_OK;
    ebb_plan *plan = NULL;
    config->memory.host_limit_bytes = 0;
    ebb_status st = ebb_plan_make(&plan, config, t->options, config->budget_bytes, false);
    if (st == EBB_OK) *stop = EBB_BATCH_HOST;
    ebb_plan_free(plan);
    return st == EBB_EBUDGET ? EBB_OK : st;
}

/* The config's limits hold, as they would when it is trained; without one a dry pool never runs out. */
static ebb_status try_config(trial *t, ebb_config *config, ebb_train_result *result)
{
    if (!config->memory.limit_bytes) config->memory.limit_bytes = SIZE_MAX; /* none, also on an accelerator */
    ebb_status st = dry_run(result, &t->stop, config, t->options);
    if (st == EBB_EBUDGET) return budget_stop(&t->stop, t, config);
    if (st == EBB_ESHAPE) {
        t->stop = EBB_BATCH_SHAPE;
        return EBB_OK;
    }
    if (st != EBB_OK || t->stop != EBB_BATCH_FITS) return st;
    t->peak = result->memory.peak_reserved_bytes;
    if (t->peak > t->limit) t->stop = EBB_BATCH_LIMIT;
    if (result->data_items < t->most) t->most = result->data_items;
    return EBB_OK;
}

static ebb_status try_batch(trial *t, int64_t batch)
{
    char set[64];
    const char *sets[] = { set };
    snprintf(set, sizeof(set), "train.batch=%lld", (long long)batch);
    ebb_config *config = NULL;
    EBB_TRY(ebb_config_copy(&config, t->config, sets, 1));
    ebb_train_result *result = ebb__calloc(1, sizeof(*result));
    ebb_status st = result ? try_config(t, config, result) : EBB_ENOMEM;
    ebb__free(result);
    ebb_config_free(config);
    return st;
}

static ebb_status device_memory(size_t *bytes, const ebb_train_options *options)
{
    char dry[EBB__DEVICE_NAME_BYTES];
    ebb__accel_facts facts;
    ebb__device_dry_name(dry, options ? options->device : NULL);
    if (strcmp(dry, "dry:cpu") == 0)
        return ebb_fail(EBB_EINVAL, "max-batch: a limit is needed; only an accelerator has a memory of its own");
    EBB_TRY(ebb__device_facts(&facts, dry));
    *bytes = facts.capacity_bytes;
    return EBB_OK;
}

enum { MAX_BATCH = 1 << 28 };

static void note_fit(ebb_max_batch_result *r, const trial *t, int64_t batch)
{
    r->batch = batch;
    r->peak_reserved_bytes = t->peak;
}

static void note_stop(ebb_max_batch_result *r, const trial *t)
{
    r->stopped_by = t->stop;
    r->next_batch_peak_reserved_bytes = t->stop == EBB_BATCH_LIMIT ? t->peak : 0;
}

static ebb_status search(ebb_max_batch_result *r, trial *t)
{
    int64_t over = 1;
    for (;;) {
        EBB_TRY(try_batch(t, over));
        if (t->stop != EBB_BATCH_FITS) break;
        note_fit(r, t, over);
        if (over == t->most) {
            r->stopped_by = t->most < MAX_BATCH ? EBB_BATCH_DATA : EBB_BATCH_LARGEST;
            return EBB_OK;
        }
        over = 2 * over < t->most ? 2 * over : t->most;
    }
    note_stop(r, t);
    while (over - r->batch > 1) {
        int64_t middle = r->batch + (over - r->batch) / 2;
        EBB_TRY(try_batch(t, middle));
        if (t->stop == EBB_BATCH_FITS) {
            note_fit(r, t, middle);
        } else {
            over = middle;
            note_stop(r, t);
        }
    }
    return EBB_OK;
}

const char *ebb_batch_stop_text(ebb_batch_stop stop)
{
    static const char *const texts[] = {
        [EBB_BATCH_FITS] = "nothing",
        [EBB_BATCH_LIMIT] = "the limit",
        [EBB_BATCH_BUDGET] = "memory.checkpoint's budget, which no plan fits",
        [EBB_BATCH_MEMORY] = "memory.limit",
        [EBB_BATCH_HOST] = "memory.host_limit",
        [EBB_BATCH_SHAPE] = "the largest shape there is",
        [EBB_BATCH_DATA] = "the data, which has no more items",
        [EBB_BATCH_LARGEST] = "the largest batch that is tried",
    };
    return texts[stop];
}

ebb_status ebb_max_batch(ebb_max_batch_result *result, const ebb_config *config, const ebb_train_options *options,
                         size_t limit_bytes)
{
    *result = (ebb_max_batch_result){ 0 };
    if (limit_bytes == 0) EBB_TRY(device_memory(&limit_bytes, options));
    trial t = { .config = config, .options = options, .limit = limit_bytes, .most = MAX_BATCH };
    EBB_TRY(search(result, &t));
    if (result->batch > 0) return EBB_OK;
    if (result->stopped_by != EBB_BATCH_LIMIT)
        return ebb_fail(EBB_EBUDGET, "max-batch: a batch of 1 does not fit: %s",
                        ebb_batch_stop_text(result->stopped_by));
    char limit[32], needed[32];
    return ebb_fail(EBB_EBUDGET, "max-batch: a batch of 1 needs %s (%zu bytes) reserved, more than %s (%zu bytes)",
                    ebb_size_format(result->next_batch_peak_reserved_bytes, needed, sizeof(needed)),
                    result->next_batch_peak_reserved_bytes, ebb_size_format(limit_bytes, limit, sizeof(limit)),
                    limit_bytes);
}
