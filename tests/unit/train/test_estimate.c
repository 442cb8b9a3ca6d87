#include <stdio.h>

#include "core/rng.h"
#include "train_support.h"

static void check_exact(const char *json, const char *sets, int threads)
{
    ebb_config *config = config_of(json, sets);
    ebb_train_options options = default_options();
    ebb_train_result real, dry;
    options.threads = threads;
    check_ok(ebb_estimate(&dry, config, &options));
    check_ok(ebb_train(&real, config, &options));
    ebb_config_free(config);
    const ebb_memory_stats *a = &real.memory, *b = &dry.memory;
    cr_assert(a->peak_allocated_bytes == b->peak_allocated_bytes &&
                  a->peak_reserved_bytes == b->peak_reserved_bytes &&
                  a->peak_requested_bytes == b->peak_requested_bytes,
              "%s: allocated %zu, predicted %zu; reserved %zu, %zu; requested %zu, %zu", sets,
              a->peak_allocated_bytes, b->peak_allocated_bytes, a->peak_reserved_bytes,
              b->peak_reserved_bytes, a->peak_requested_bytes, b->peak_requested_bytes);
    cr_assert_arr_eq(a->by_category_at_peak, b->by_category_at_peak, sizeof(a->by_category_at_peak),
                     "%s", sets);
    cr_assert(real.recomputed_ops == dry.recomputed_ops && real.flops == dry.flops, "%s", sets);
    check_no_live_blocks();
}

static const char *pick(uint64_t seed, int what, const char *const choices[], int n)
{
    uint32_t words[4];
    ebb__philox(seed, (uint64_t)what, words);
    return choices[words[0] % (uint32_t)n];
}
#define PICK(what, ...)                                                                            \
    pick(seed, what, (const char *const[]){ __VA_ARGS__ },                                         \
         (int)(sizeof((const char *const[]){ __VA_ARGS__ }) / sizeof(char *)))

static void check_drawn(const char *json, uint64_t seed)
{
    char sets[512];
    snprintf(sets, sizeof(sets),
             "train.batch=%s train.accumulate=%s train.steps=%s train.eval_every=%s data.items=%s "
             "data.eval_items=%s memory.checkpoint=%s memory.recompute=%s model.dropout=%s "
             "train.optimizer.type=%s "
             "train.precision=%s",
             PICK(0, "3", "7", "8", "32"), PICK(1, "1", "4"), PICK(2, "1", "2", "13"),
             PICK(3, "0", "1", "5"), PICK(4, "17", "40", "64"), PICK(5, "0", "10", "16"),
             PICK(6, "none", "every:1", "every:2", "sqrt", "[[1,2]]"),
             PICK(7, "[]", "[\"gelu\",\"layernorm\"]", "[\"dropout\",\"relu\"]"),
             PICK(8, "0", "0.1"), PICK(9, "adamw", "sgd"), PICK(10, "f32", "f64"));
    check_exact(json, sets, (int)(seed % 2) + 1);
}

Test(estimate, equals_the_measured_peaks_of_drawn_gpts)
{
    for (uint64_t seed = 1; seed <= 30; seed++) check_drawn(SMALL_GPT, seed);
}

Test(estimate, equals_the_measured_peaks_of_drawn_mlps)
{
    for (uint64_t seed = 101; seed <= 130; seed++) check_drawn(SMALL_MLP, seed);
}

Test(estimate, large_blocks_and_the_large_pool_are_predicted_too)
{
    check_exact(SMALL_MLP, "model.hidden=[700,3000,9] train.batch=64 data.items=200 train.steps=5",
                2);
    check_exact(SMALL_GPT,
                "model.width=128 model.context=64 model.vocab=1000 train.batch=8 train.steps=3", 2);
}

Test(estimate, a_run_of_any_length_is_estimated_at_once)
{
    /* Would take years if steps were not skipped. */
    ebb_config *config =
        config_of(SMALL_GPT, "train.steps=1000000000000 train.eval_every=1 data.items=22");
    ebb_train_options options = default_options();
    ebb_train_result result;
    check_ok(ebb_estimate(&result, config, &options));
    cr_assert_gt(result.memory.peak_allocated_bytes, 0);
    ebb_config_free(config);
}

Test(estimate, rare_work_far_ahead_is_not_missed)
{
    /* The evaluation of wide logits is the peak, and comes at step 5000 only. */
    check_exact(SMALL_MLP, "model.output=3000 train.steps=200 train.batch=1 train.eval_every=150",
                1);
    ebb_config *config = config_of(SMALL_MLP, "train.steps=5000 train.batch=2");
    ebb_train_options options = default_options();
    ebb_train_result with, without;
    check_ok(ebb_estimate(&with, config, &options));
    ebb_config *none = config_of(SMALL_MLP, "train.steps=5000 train.batch=2 data.eval_items=0");
    check_ok(ebb_estimate(&without, none, &options));
    cr_assert_gt(with.memory.peak_allocated_bytes, without.memory.peak_allocated_bytes,
                 "the evaluation ring counts");
    ebb_config_free(config);
    ebb_config_free(none);
}
