/* The largest batch that fits, by dry runs: doubled until it does not, then halved between. */
#include <stdio.h>
#include <string.h>

#include "core/mem.h"
#include "train/run.h"

typedef struct trial {
    const ebb_config *config;
    const ebb_train_options *options;
    size_t limit;
} trial;

/* *peak SIZE_MAX: it does not fit whatever the limit (a shape too large, a budget that nothing fits, more host
 * memory than memory.host_limit).  Without limits the dry pools never run out: ENOMEM is this process's own. */
static ebb_status peak_of(const trial *t, int64_t batch, size_t *peak)
{
    char set[64];
    const char *sets[] = { set, "memory.limit=null", "memory.host_limit=null" };
    snprintf(set, sizeof(set), "train.batch=%lld", (long long)batch);
    ebb_config *config = NULL;
    EBB_TRY(ebb_config_copy(&config, t->config, sets, 3));
    config->memory.limit_bytes = SIZE_MAX; /* none, also on an accelerator */
    ebb_train_result *result = ebb__malloc(sizeof(*result));
    ebb_status st = result ? ebb_estimate(result, config, t->options) : EBB_ENOMEM;
    size_t host = t->config->memory.host_limit_bytes;
    bool fits = st == EBB_OK && (host == 0 || result->host_memory.peak_reserved_bytes <= host);
    *peak = fits ? result->memory.peak_reserved_bytes : SIZE_MAX;
    if (st == EBB_EBUDGET || st == EBB_ESHAPE) st = EBB_OK;
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

ebb_status ebb_max_batch(ebb_max_batch_result *result, const ebb_config *config, const ebb_train_options *options,
                         size_t limit_bytes)
{
    if (limit_bytes == 0) EBB_TRY(device_memory(&limit_bytes, options));
    trial t = { config, options, limit_bytes };
    int64_t fits = 0, over = 1;
    size_t fits_peak = 0, over_peak = 0;
    for (;; over *= 2) {
        EBB_TRY(peak_of(&t, over, &over_peak));
        if (over_peak > limit_bytes || over >= MAX_BATCH) break;
        fits = over;
        fits_peak = over_peak;
    }
    while (over - fits > 1) {
        int64_t middle = fits + (over - fits) / 2;
        size_t peak = 0;
        EBB_TRY(peak_of(&t, middle, &peak));
        if (peak <= limit_bytes) {
            fits = middle;
            fits_peak = peak;
        } else {
            over = middle;
            over_peak = peak;
        }
    }
    *result = (ebb_max_batch_result){ fits, fits_peak, over_peak };
    if (fits > 0) return EBB_OK;
    char limit[32], needed[32];
    return ebb_fail(EBB_EBUDGET, "max-batch: a batch of 1 needs %s reserved, more than %s",
                    ebb_size_format(over_peak, needed, sizeof(needed)), ebb_size_format(limit_bytes, limit, sizeof(limit)));
}
