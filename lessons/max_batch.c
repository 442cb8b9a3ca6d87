/* Does a batch fit?  A dry run answers to the byte in milliseconds, so the
 * largest one is found by doubling and halving, without running out of memory.
 *
 * In PyTorch people train until it fails:
 *     while True:
 *         try: step(batch); break
 *         except torch.cuda.OutOfMemoryError: batch //= 2   # a power of 2 */
#include "lesson.h"

#include <stdio.h>

static const char *const mlp =
    "{\"model\": {\"type\": \"mlp\", \"input\": 784, \"hidden\": [512, 512], \"output\": 10},"
    " \"data\": {\"type\": \"synthetic\", \"kind\": \"samples\", \"items\": 4096},"
    " \"train\": {\"steps\": 3, \"batch\": 1}}";

static const ebb_train_options dry = { .struct_bytes = sizeof(ebb_train_options), .device = "dry:cpu", .threads = 1 };

static ebb_status needs(const ebb_config *config, int64_t batch, size_t *bytes)
{
    static ebb_train_result result;
    char text[48];
    const char *set = text;
    EBB_LOCAL_CONFIG(changed);
    snprintf(text, sizeof(text), "train.batch=%lld", (long long)batch);
    EBB_TRY(ebb_config_copy(&changed, config, &set, 1));
    EBB_TRY(ebb_estimate(&result, changed, &dry));
    *bytes = result.memory.peak_reserved_bytes;
    return EBB_OK;
}

/* Fits at `low`, not at `high`; *tries counts dry runs. */
static ebb_status search(const ebb_config *config, size_t limit, int64_t *low, int *tries)
{
    int64_t high = 2;
    size_t bytes = 0;
    for (*low = 1, *tries = 0;; high *= 2, ++*tries) {
        EBB_TRY(needs(config, high, &bytes));
        if (bytes > limit) break;
        *low = high;
    }
    for (; high - *low > 1; ++*tries) {
        int64_t middle = *low + (high - *low) / 2;
        EBB_TRY(needs(config, middle, &bytes));
        if (bytes <= limit) *low = middle;
        else high = middle;
    }
    return EBB_OK;
}

LESSON(max_batch, "The largest batch that fits is found by doubling and halving")
{
    const size_t limit = 64 * MiB;
    EBB_LOCAL_CONFIG(config);
    int64_t found = 0;
    int tries = 0;
    ebb_max_batch_result known = { 0 };
    STEP(ebb_config_parse(&config, mlp, NULL, 0));
    STEP(search(config, limit, &found, &tries));
    STEP(ebb_max_batch(&known, config, &dry, limit));
    DO(ebb_config_drop(&config));
    CHECK(found == known.batch, "After %d dry runs: %lld samples. ebb_max_batch() says so, too.", tries,
          (long long)found);
    CHECK(known.peak_reserved_bytes <= limit && known.next_batch_peak_reserved_bytes > limit,
          "It needs %s of %s; one sample more needs %s.", size(known.peak_reserved_bytes), size(limit),
          size(known.next_batch_peak_reserved_bytes));
    return EBB_OK;
}
