/* Training in mixed precision: what is in which dtype, near f32, and steps that are skipped. */
#include <math.h>
#include <stdlib.h>

#include "train_support.h"

static ebb_train_result run_into(const char *json, const char *sets, const char *out, const char *resume, int64_t steps)
{
    ebb_train_options options = default_options();
    options.out_dir = out;
    options.resume_dir = resume;
    options.steps = steps;
    return train_with(json, sets, &options);
}

/* ---- near f32 ---------------------------------------------------------------------------------- */

Test(precision, losses_are_near_those_of_f32_and_another_hash)
{
    static const char *const texts[] = { SMALL_MLP, SMALL_GPT };
    for (int t = 0; t < 2; t++) {
        ebb_train_result f32 = train_once(texts[t], "");
        ebb_train_result bf16 = train_once(texts[t], "train.precision=bf16"), f16 = train_once(texts[t], "train.precision=f16");
        cr_assert(fabs(bf16.loss_last / f32.loss_last - 1) < 2e-2 && fabs(f16.loss_last / f32.loss_last - 1) < 5e-3,
                  "%g, %g, %g", f32.loss_last, bf16.loss_last, f16.loss_last);
        cr_assert(fabs(bf16.eval_loss / f32.eval_loss - 1) < 2e-2 && bf16.eval_loss != f32.eval_loss);
        cr_assert_str_neq(bf16.gradients_sha256, f32.gradients_sha256);
        cr_assert_str_neq(bf16.gradients_sha256, f16.gradients_sha256);
        cr_assert(bf16.loss_scale == 0 && f16.loss_scale == 65536 && f32.loss_scale == 0 && f16.skipped_steps == 0);
    }
}

/* Gradients as `ebb grads` writes them, all in one row.  Owner: the caller; free(). */
static float *grads_of(const char *json, const char *sets, const char *weights, const char *batch, const char *out, int *n)
{
    ebb_config *config = config_of(json, sets);
    ebb_train_options options = default_options();
    ebb_safetensors *file = NULL;
    double loss = 0;
    size_t peak = 0, at = 0;
    check_ok(ebb_grads(&loss, &peak, config, &options, weights, batch, out));
    check_ok(ebb_safetensors_open(&file, out));
    float *all = malloc(1 << 20);
    for (int i = 0; i < ebb_safetensors_count(file); i++) {
        ebb_safetensors_entry e = ebb_safetensors_at(file, i);
        cr_assert(e.dtype == EBB_F32 && at + e.bytes <= 1 << 20);
        check_ok(ebb_safetensors_read_data((char *)all + at, e.bytes, file, i));
        at += e.bytes;
    }
    ebb_safetensors_close(file);
    ebb_config_free(config);
    *n = (int)(at / sizeof(float));
    return all;
}

static double distance(const float *a, const float *b, int n)
{
    double error = 0, norm = 0;
    for (int i = 0; i < n; i++) {
        error += ((double)a[i] - (double)b[i]) * ((double)a[i] - (double)b[i]);
        norm += (double)a[i] * (double)a[i];
    }
    return sqrt(error / norm);
}

Test(precision, gradients_are_within_a_few_roundings_of_f32s)
{
    static const struct { const char *sets; double most; } ways[] = {
        { "train.precision=bf16", 2e-2 },
        { "train.precision=bf16 train.loss_chunks=3", 2e-2 },
        { "train.precision=f16", 2e-3 }, /* scaled, and divided again */
        { "train.precision=f16 train.loss_scale=16", 2e-3 },
    };
    with_context(ctx) {
        temp_folder folder = temp_folder_make();
        char weights[300], batch[300], out[300];
        snprintf(weights, sizeof(weights), "%s/run/weights.safetensors", folder.path);
        snprintf(batch, sizeof(batch), "%s/batch", folder.path);
        snprintf(out, sizeof(out), "%s/grads", folder.path);
        int32_t tokens[16], targets[16];
        for (int i = 0; i < 16; i++) tokens[i] = i * 7 % 32, targets[i] = (i * 5 + 3) % 32;
        EBB_LOCAL(x);
        EBB_LOCAL(y);
        int n = 0, m = 0;
        check_ok(ebb_from_data(&x, ctx, EBB_I32, 2, (int64_t[]){ 2, 8 }, tokens));
        check_ok(ebb_from_data(&y, ctx, EBB_I32, 2, (int64_t[]){ 2, 8 }, targets));
        check_ok(ebb_safetensors_save(batch, (ebb_named_tensor[]){ { "tokens", x }, { "targets", y } }, 2));
        ebb_train_options options = default_options();
        options.out_dir = temp_path(&folder, "run");
        ebb_config *config = config_of(SMALL_GPT, "");
        ebb_train_result result;
        check_ok(ebb_train(&result, config, &options));
        ebb_config_free(config);
        float *f32 = grads_of(SMALL_GPT, "", weights, batch, out, &n);
        for (size_t k = 0; k < sizeof ways / sizeof *ways; k++) {
            float *low = grads_of(SMALL_GPT, ways[k].sets, weights, batch, out, &m);
            double error = distance(f32, low, n);
            cr_assert(n == m && error > 0 && error < ways[k].most, "%s: %.2e", ways[k].sets, error);
            free(low);
        }
        free(f32);
        temp_folder_remove(&folder);
    }
}

/* ---- memory ---------------------------------------------------------------------------------- */

/* Activations outweigh the weights. */
static const char long_mlp[] =
    "{\"seed\":3,\"model\":{\"type\":\"mlp\",\"input\":64,\"hidden\":[64,64,64,64],\"output\":8},"
    "\"data\":{\"type\":\"synthetic\",\"items\":2048,\"eval_items\":0},"
    "\"train\":{\"steps\":1,\"batch\":1024,\"optimizer\":{\"type\":\"adamw\",\"lr\":0.01}}}";

Test(precision, activations_take_half_and_states_as_much_as_before)
{
    ebb_train_result f32 = train_once(long_mlp, ""), bf16 = train_once(long_mlp, "train.precision=bf16");
    const size_t *before = f32.memory.by_category_at_peak, *after = bf16.memory.by_category_at_peak;
    cr_assert(after[EBB_CAT_PARAMETER] == before[EBB_CAT_PARAMETER]);
    cr_assert(after[EBB_CAT_OPTIMIZER] == before[EBB_CAT_OPTIMIZER]);
    cr_assert(after[EBB_CAT_ACTIVATION] < before[EBB_CAT_ACTIVATION] * 7 / 10, "%zu of %zu", after[EBB_CAT_ACTIVATION],
              before[EBB_CAT_ACTIVATION]);
}

Test(precision, the_run_folder_holds_f32)
{
    temp_folder folder = temp_folder_make();
    ebb_safetensors *file = NULL;
    run_into(SMALL_MLP, "train.precision=f16", temp_path(&folder, "run"), NULL, 0);
    static const char *const files[] = { "run/weights.safetensors", "run/optimizer.safetensors" };
    for (int k = 0; k < 2; k++) {
        check_ok(ebb_safetensors_open(&file, temp_path(&folder, files[k])));
        cr_assert_gt(ebb_safetensors_count(file), 5);
        for (int i = 0; i < ebb_safetensors_count(file); i++) {
            ebb_safetensors_entry e = ebb_safetensors_at(file, i);
            cr_assert(e.dtype == EBB_F32 || strcmp(e.name, "optimizer.step") == 0, "%s", e.name);
        }
        ebb_safetensors_close(file);
    }
    temp_folder_remove(&folder);
}

/* ---- skipped steps ------------------------------------------------------------------------------ */

static char *weights_of(const temp_folder *folder, const char *run, size_t *bytes)
{
    char name[64];
    snprintf(name, sizeof(name), "%s/weights.safetensors", run);
    return read_text(temp_path(folder, name), bytes);
}

/* 2^100 is more than f16 has: nothing is trained, and the run says so. */
Test(precision, with_too_large_a_fixed_scale_no_step_is_made)
{
    temp_folder folder = temp_folder_make();
    size_t n = 0, m = 0;
    ebb_train_result one = run_into(SMALL_MLP, "train.precision=f16 train.loss_scale=1e30", temp_path(&folder, "a"), NULL, 1);
    ebb_train_result five = run_into(SMALL_MLP, "train.precision=f16 train.loss_scale=1e30", temp_path(&folder, "b"), NULL, 5);
    cr_assert(one.skipped_steps == 1 && five.skipped_steps == 5 && five.loss_scale == 1e30);
    char *a = weights_of(&folder, "a", &n), *b = weights_of(&folder, "b", &m);
    cr_assert(n == m && memcmp(a, b, n) == 0);
    size_t bytes;
    char *metrics = read_text(temp_path(&folder, "b/metrics.jsonl"), &bytes);
    cr_assert_not_null(strstr(metrics, "\"loss_scale\":1e+30, \"skipped\":1"), "%s", metrics);
    free(metrics);
    free(a);
    free(b);
    temp_folder_remove(&folder);
}

#define FROM_HIGH "train.precision=f16 train.loss_scale={\"init\":1e9,\"backoff\":0.125,\"interval\":3}"

/* Skipped steps are the first; then it trains, grows and goes on as one straight run after a save. */
static void check_resumed(const char *sets)
{
    temp_folder folder = temp_folder_make();
    char all[256];
    size_t n = 0, m = 0;
    snprintf(all, sizeof(all), FROM_HIGH " %s", sets);
    ebb_train_result straight = run_into(SMALL_GPT, all, temp_path(&folder, "a"), NULL, 12);
    cr_assert(straight.skipped_steps > 0 && straight.skipped_steps < 12 && straight.loss_scale < 1e9, "%lld skipped",
              (long long)straight.skipped_steps);
    for (int64_t at = 1; at < 12; at += 4) {
        char name[8];
        snprintf(name, sizeof(name), "b%d", (int)at);
        ebb_train_result first = run_into(SMALL_GPT, all, temp_path(&folder, name), NULL, at);
        ebb_train_result rest = run_into(SMALL_GPT, all, NULL, temp_path(&folder, name), 12);
        cr_assert_eq(first.skipped_steps + rest.skipped_steps, straight.skipped_steps);
        cr_assert(rest.loss_scale == straight.loss_scale && rest.loss_last == straight.loss_last, "%g, not %g",
                  rest.loss_scale, straight.loss_scale);
        char *a = weights_of(&folder, "a", &n), *b = weights_of(&folder, name, &m);
        cr_assert(n == m && memcmp(a, b, n) == 0);
        free(a);
        free(b);
    }
    temp_folder_remove(&folder);
}

Test(precision, a_run_that_skipped_steps_is_resumed_as_a_straight_one)
{
    check_resumed("");
    check_resumed("train.accumulate=2 memory.checkpoint=every:1");
}

/* Field case B36's schedule over the loop: Adam's step count is of the good steps. */
Test(precision, adams_count_is_of_the_steps_that_were_made)
{
    temp_folder folder = temp_folder_make();
    ebb_safetensors *file = NULL;
    int64_t t = -1;
    ebb_train_result r = run_into(SMALL_GPT, FROM_HIGH, temp_path(&folder, "a"), NULL, 12);
    check_ok(ebb_safetensors_open(&file, temp_path(&folder, "a/optimizer.safetensors")));
    check_ok(ebb_safetensors_read_data(&t, sizeof(t), file, ebb_safetensors_find(file, "optimizer.step")));
    cr_assert_eq(t, 12 - r.skipped_steps);
    ebb_safetensors_close(file);
    temp_folder_remove(&folder);
}

/* A save with a NaN among the weights and a scale at its end: gradients stay NaN, and no smaller scale would help. */
Test(precision, a_scale_that_gets_too_small_ends_the_run)
{
    temp_folder folder = temp_folder_make();
    size_t bytes = 0, state_bytes = 0;
    run_into(SMALL_MLP, "train.precision=f16 train.loss_scale={\"init\":1}", temp_path(&folder, "a"), NULL, 1);
    char *weights = weights_of(&folder, "a", &bytes), *state = read_text(temp_path(&folder, "a/state.json"), &state_bytes);
    memset(weights + bytes - 4, 0xFF, 4);
    write_file(temp_path(&folder, "a/weights.safetensors"), weights, bytes);
    char changed[512], *scale = strstr(state, "\"loss_scale\": 1,");
    cr_assert_not_null(scale, "%s", state);
    snprintf(changed, sizeof(changed), "%.*s\"loss_scale\": 1e-4,%s", (int)(scale - state), state, strchr(scale, ',') + 1);
    write_text(temp_path(&folder, "a/state.json"), changed);
    ebb_config *config = config_of(SMALL_MLP, "train.precision=f16");
    ebb_train_options options = default_options();
    ebb_train_result r;
    options.resume_dir = temp_path(&folder, "a");
    check_fails(ebb_train(&r, config, &options), EBB_ESTATE);
    check_message("although the loss scale is down to 0.0001");
    ebb_config_free(config);
    free(weights);
    free(state);
    temp_folder_remove(&folder);
}

/* What a scale that stays gives, unscaled, is f32's own to the bit where it is a power of 2. */
Test(precision, a_power_of_two_in_f32_changes_no_bit)
{
    ebb_train_result plain = train_once(SMALL_GPT, ""), scaled = train_once(SMALL_GPT, "train.loss_scale=1024");
    cr_assert_str_eq(plain.gradients_sha256, scaled.gradients_sha256);
    cr_assert_eq(plain.loss_last, scaled.loss_last);
}

Test(precision, the_optimizer_inside_backward_cannot_skip)
{
    temp_folder folder = temp_folder_make();
    ebb_config *config = NULL;
    write_text(temp_path(&folder, "c.json"), SMALL_MLP);
    const char *sets[] = { "train.fuse_optimizer=true", "train.precision=f16", "train.loss_scale=null" };
    check_fails(ebb_config_load(&config, temp_path(&folder, "c.json"), sets, 2), EBB_EINVAL);
    check_message("train.loss_scale (on by default in f16)");
    check_ok(ebb_config_load(&config, temp_path(&folder, "c.json"), sets, 3));
    ebb_config_free(config);
    temp_folder_remove(&folder);
}
