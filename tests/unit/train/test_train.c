#include <math.h>
#include <stdio.h>
#include <stdlib.h>

#include "train/run.h"
#include "train_support.h"

/* ---- means and groups --------------------------------------------------------------------- */

Test(train, means_weigh_batches_by_their_items)
{
    /* Field case B76: the mean of batch means would be 0.8. */
    ebb__mean mean = { 0 };
    ebb__mean_add(&mean, 0.7, 256);
    ebb__mean_add(&mean, 0.8, 256);
    ebb__mean_add(&mean, 0.9, 10);
    cr_assert_float_eq(ebb__mean_get(&mean), 0.752874, 5e-7);
    ebb__mean none = { 0 };
    cr_assert_eq(ebb__mean_get(&none), 0);
}

static void check_group(int64_t step, int64_t items, int64_t batch, int64_t accumulate,
                        ebb__group want)
{
    ebb__group g = ebb__group_at(step, items, batch, accumulate);
    cr_assert(g.first == want.first && g.n == want.n && g.items == want.items &&
                  g.items_before == want.items_before && g.epoch_end == want.epoch_end,
              "step %lld: first %lld, n %lld, items %lld", (long long)step, (long long)g.first,
              (long long)g.n, (long long)g.items);
}

Test(train, groups_take_micro_batches_and_end_with_the_epoch)
{
    check_group(0, 18, 4, 2, (ebb__group){ 0, 2, 8, 0, false });
    check_group(1, 18, 4, 2, (ebb__group){ 2, 2, 8, 8, false });
    check_group(2, 18, 4, 2, (ebb__group){ 4, 1, 2, 16, true });
    check_group(3, 18, 4, 2, (ebb__group){ 5, 2, 8, 18, false });
    check_group(0, 3, 4, 8, (ebb__group){ 0, 1, 3, 0, true });
    check_group(10, 1000, 1, 4, (ebb__group){ 40, 4, 4, 40, false }); /* field case B80 */
}

/* Accumulation equals the large batch: field cases B28 (one division by all targets), B30 (the
 * epoch's smaller last group) and B31 (decay and step counter once per group). */
static void check_accumulation(const char *json, const char *optimizer)
{
    char small[256], large[256];
    snprintf(small, sizeof(small),
             "train.precision=f64 train.steps=8 train.batch=4 train.accumulate=2 %s", optimizer);
    snprintf(large, sizeof(large), "train.precision=f64 train.steps=8 train.batch=8 %s", optimizer);
    ebb_train_result a = train_once(json, small), b = train_once(json, large);
    cr_assert_float_eq(a.loss_first, b.loss_first, 1e-12);
    cr_assert_float_eq(a.loss_last, b.loss_last, 1e-10);
    cr_assert_float_eq(a.eval_loss, b.eval_loss, 1e-10);
    cr_assert(a.loss_first != a.loss_last);
}

Test(train, accumulation_equals_the_large_batch)
{
    check_accumulation(SMALL_MLP, "");
    check_accumulation(SMALL_GPT, "");
    check_accumulation(
        SMALL_MLP,
        "train.optimizer={\"type\":\"sgd\",\"lr\":0.1,\"momentum\":0.9,\"weight_decay\":0.1}");
}

/* ---- bits --------------------------------------------------------------------------------- */

Test(train, a_run_repeats_bit_by_bit)
{
    ebb_train_result a = train_once(SMALL_GPT, "model.dropout=0.2"),
                     b = train_once(SMALL_GPT, "model.dropout=0.2");
    cr_assert_str_eq(a.gradients_sha256, b.gradients_sha256);
    cr_assert(a.loss_last == b.loss_last && a.eval_loss == b.eval_loss);
    cr_assert_eq(strlen(a.gradients_sha256), 64);
    ebb_train_result c = train_once(SMALL_GPT, "model.dropout=0.2 seed=4");
    cr_assert_str_neq(a.gradients_sha256, c.gradients_sha256);
}

Test(train, no_memory_setting_changes_a_bit)
{
    static const char *const settings[] = {
        "memory.checkpoint=every:1",
        "memory.checkpoint=sqrt",
        "memory.checkpoint=[[1,2]]",
        "memory.recompute=[\"gelu\",\"layernorm\"]",
        "memory.checkpoint=every:2 memory.recompute=[\"gelu\",\"dropout\"]",
        "data.workers=0",
        "data.prefetch=0",
    };
    ebb_train_result none = train_once(SMALL_GPT, "model.dropout=0.1");
    for (size_t i = 0; i < sizeof(settings) / sizeof(settings[0]); i++) {
        char sets[256];
        snprintf(sets, sizeof(sets), "model.dropout=0.1 %s", settings[i]);
        ebb_train_result other = train_once(SMALL_GPT, sets);
        cr_assert_str_eq(none.gradients_sha256, other.gradients_sha256, "%s", settings[i]);
        cr_assert(none.loss_last == other.loss_last && none.eval_loss == other.eval_loss, "%s",
                  settings[i]);
    }
}

Test(train, checkpointing_recomputes_and_tells_how_much)
{
    ebb_train_result none = train_once(SMALL_GPT, ""),
                     every = train_once(SMALL_GPT, "memory.checkpoint=every:1");
    cr_assert(none.recomputed_ops == 0 && none.recompute_flops == 0);
    cr_assert(every.recomputed_ops > 0 && every.recompute_flops > 0 && every.flops > none.flops);
    cr_assert_lt(every.memory.peak_allocated_bytes, none.memory.peak_allocated_bytes);
}

/* ---- results ------------------------------------------------------------------------------ */

Test(train, memory_by_category_sums_to_the_peak)
{
    ebb_train_result r = train_once(SMALL_GPT, "memory.checkpoint=every:1");
    size_t sum = 0;
    for (int i = 0; i < EBB_N_CATEGORIES; i++) sum += r.memory.by_category_at_peak[i];
    cr_assert_eq(sum, r.memory.peak_allocated_bytes);
    cr_assert_gt(r.memory.by_category_at_peak[EBB_CAT_PARAMETER], 0);
}

Test(train, training_lowers_the_loss_and_results_are_complete)
{
    ebb_train_result r = train_once(SMALL_MLP, "train.steps=60");
    cr_assert_lt(r.loss_last, 0.7 * r.loss_first);
    cr_assert(r.has_eval && r.has_accuracy && !r.tokens && r.steps == 60 && r.threads == 2);
    cr_assert(r.step_ms > 0 && r.items_per_s > 0 && r.flops > 0);
    cr_assert_str_eq(r.device, "cpu");
    r = train_once(SMALL_GPT, "data.eval_items=0");
    cr_assert(!r.has_eval && !r.has_accuracy && r.tokens);
}

Test(train, a_model_that_is_wholly_frozen_is_refused)
{
    ebb_train_options options = default_options();
    ebb_config *config = config_of(SMALL_MLP, "model.frozen=[\"*\"]");
    ebb_train_result result;
    check_fails(ebb_train(&result, config, &options), EBB_EINVAL);
    check_message("model.frozen");
    ebb_config_free(config);
    check_no_live_blocks();
}

Test(train, frozen_parameters_keep_their_values)
{
    temp_folder folder = temp_folder_make();
    ebb_train_options options = default_options();
    options.out_dir = temp_path(&folder, "run");
    train_with(SMALL_MLP, "model.frozen=[\"layers.0.*\"]", &options);
    with_context(ctx)
    {
        EBB_LOCAL(after);
        ebb_model *fresh = NULL;
        ebb_safetensors *file = NULL;
        const ebb_named_tensor *params;
        check_ok(ebb_model_new(&fresh, ctx,
                               "{\"type\":\"mlp\",\"input\":12,\"hidden\":[16,8],\"output\":4}",
                               EBB_F32, 3));
        check_ok(ebb_safetensors_open(&file, temp_path(&folder, "run/weights.safetensors")));
        int n = ebb_model_params(fresh, &params);
        for (int i = 0; i < n; i++) {
            check_ok(ebb_safetensors_read(&after, ctx, file,
                                          ebb_safetensors_find(file, params[i].name)));
            bool same = memcmp(ebb_tensor_data(after), ebb_tensor_data(params[i].tensor),
                               (size_t)ebb_tensor_elems(after) * sizeof(float)) == 0;
            cr_assert_eq(same, strncmp(params[i].name, "layers.0.", 9) == 0, "%s", params[i].name);
        }
        ebb_drop(&after);
        ebb_safetensors_close(file);
        ebb_model_free(fresh);
    }
    temp_folder_remove(&folder);
}

Test(train, tied_weights_are_one_parameter)
{
    /* Field case B52. */
    ebb_train_result tied = train_once(SMALL_GPT, ""),
                     untied = train_once(SMALL_GPT, "model.tie_embeddings=false");
    cr_assert_eq(untied.parameters - tied.parameters, 32 * 16);
    cr_assert_eq(untied.memory.by_category_at_peak[EBB_CAT_OPTIMIZER] -
                     tied.memory.by_category_at_peak[EBB_CAT_OPTIMIZER],
                 2 * 32 * 16 * sizeof(float));
}

Test(train, options_of_another_size_are_refused)
{
    ebb_config *config = config_of(SMALL_MLP, "");
    ebb_train_options options = { .struct_bytes = 8 };
    ebb_train_result result;
    check_fails(ebb_train(&result, config, &options), EBB_EINVAL);
    options = default_options();
    options.device = "gpu";
    check_fails(ebb_train(&result, config, &options), EBB_EDEVICE);
    ebb_config_free(config);
    check_no_live_blocks();
}

static bool stop_at_third(void *user) { return ++*(int *)user == 3; }

Test(train, a_stop_ends_cleanly_before_the_next_step)
{
    int calls = 0;
    ebb_train_options options = default_options();
    options.stop = stop_at_third;
    options.user = &calls;
    ebb_train_result r = train_with(SMALL_MLP, "train.steps=50", &options);
    cr_assert(r.steps == 2 && calls == 3 && r.has_eval);
}

/* ---- memory runs out ---------------------------------------------------------------------- */

Test(train, a_limit_that_is_too_low_is_out_of_memory)
{
    ebb_config *config = config_of(SMALL_GPT, "memory.limit=2MiB model.width=128");
    ebb_train_options options = default_options();
    ebb_train_result result;
    check_fails(ebb_train(&result, config, &options), EBB_ENOMEM);
    check_message("limit");
    ebb_config_free(config);
    check_no_live_blocks();
}

Test(train, every_failed_allocation_of_a_run_ends_in_enomem_and_leaves_nothing)
{
    ebb_config *config = config_of(
        SMALL_GPT, "model.layers=2 train.steps=1 train.batch=2 data.items=2 "
                   "data.eval_items=1 memory.checkpoint=every:1 memory.recompute=[\"gelu\"]");
    ebb_train_options options = default_options();
    int64_t before = ebb_host_live_blocks();
    bool done = false;
    for (uint64_t n = 1; !done && n < 20000; n++) {
        ebb_train_result result;
        ebb_fault_arm(n);
        ebb_status st = ebb_train(&result, config, &options);
        bool fired = ebb_fault_fired();
        ebb_fault_arm(0);
        done = st == EBB_OK && !fired;
        cr_assert(done || st == EBB_ENOMEM, "allocation %llu: %s: %s", (unsigned long long)n,
                  ebb_status_name(st),
                  st == EBB_OK ? "it failed, and nobody noticed" : ebb_message());
        cr_assert_eq(ebb_host_live_blocks(), before, "allocation %llu leaks",
                     (unsigned long long)n);
    }
    cr_assert(done);
    ebb_config_free(config);
}
