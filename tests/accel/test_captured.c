/* train.capture: launched steps give the bits of called ones, in the bytes that the dry run says. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "support/stub_accel.h"
#include "support/training.h"

#define MLP "{\"seed\":3,\"model\":{\"type\":\"mlp\",\"input\":12,\"hidden\":[24,16],\"output\":5," \
            "\"activation\":\"gelu_tanh\",\"dropout\":0.1}," \
            "\"data\":{\"type\":\"synthetic\",\"kind\":\"samples\",\"items\":50,\"eval_items\":20,\"seed\":1}," \
            "\"train\":{\"steps\":17,\"batch\":8,\"eval_every\":4,\"optimizer\":{\"type\":\"sgd\",\"lr\":0.1," \
            "\"momentum\":0.9,\"nesterov\":true,\"weight_decay\":0.1},\"schedule\":{\"type\":\"cosine\",\"warmup\":3}}}"
#define GPT "{\"seed\":1,\"model\":{\"type\":\"gpt\",\"layers\":3,\"heads\":2,\"width\":16,\"context\":8,\"vocab\":32," \
            "\"dropout\":0.1}," \
            "\"data\":{\"type\":\"synthetic\",\"kind\":\"tokens\",\"items\":22,\"eval_items\":6,\"seed\":1}," \
            "\"train\":{\"steps\":14,\"batch\":4,\"clip_norm\":1.0,\"eval_every\":3," \
            "\"optimizer\":{\"type\":\"adamw\",\"lr\":3e-3},\"schedule\":{\"type\":\"linear\",\"warmup\":2}}}"

enum { THREADS = 2, SEEDS = 2 };

static ebb_train_options options_on(const char *device)
{
    ebb_train_options o = train_options(THREADS);
    o.device = device;
    return o;
}

static ebb_train_result train_on(const char *device, const ebb_config *config, const char *out_dir)
{
    ebb_train_result result;
    ebb_train_options o = options_on(device);
    o.out_dir = out_dir;
    check_ok(ebb_train(&result, config, &o));
    return result;
}

static void check_same_files(const temp_folder *folder, const char *file)
{
    char one[64], other[64];
    size_t a_bytes = 0, b_bytes = 0;
    snprintf(one, sizeof one, "calls/%s", file);
    snprintf(other, sizeof other, "launches/%s", file);
    char *a = read_text(temp_path(folder, one), &a_bytes), *b = read_text(temp_path(folder, other), &b_bytes);
    cr_assert(a_bytes > 0 && a_bytes == b_bytes && memcmp(a, b, a_bytes) == 0, "%s differs", file);
    free(a);
    free(b);
}

/* Losses, weights and optimizer state of a called run on the stub; the dry run's bytes. */
static void check_config(const char *text, const char *const sets[4])
{
    const char *captured_sets[4] = { sets[0], sets[1], sets[2], sets[3] };
    int n = 0;
    while (captured_sets[n]) n++;
    captured_sets[n] = "train.capture=true";
    ebb_config *config = config_of(text, sets), *captured = config_of(text, captured_sets);
    const char *what = sets[0] ? sets[0] : "plain";
    for (uint64_t seed = 1; seed <= SEEDS; seed++) {
        temp_folder folder = temp_folder_make();
        stub_install((stub_options){ .seed = seed });
        ebb_train_result calls = train_on("cuda", config, temp_path(&folder, "calls")), said;
        uint64_t kernels = stub_counts_get().kernels;
        stub_install((stub_options){ .seed = seed });
        ebb_train_result launches = train_on("cuda", captured, temp_path(&folder, "launches"));
        stub_counts c = stub_counts_get();
        cr_assert(c.kernels < kernels, "%llu calls of %llu: %s", (unsigned long long)c.kernels,
                  (unsigned long long)kernels, what);
        cr_assert(c.graphs == 0 && c.frees_in_capture == 0 && c.device_bytes == 0 && c.pinned_bytes == 0 && c.open == 0);
        cr_assert(calls.loss_first == launches.loss_first && calls.loss_last == launches.loss_last,
                  "losses %.9g, %.9g, not %.9g, %.9g: %s", launches.loss_first, launches.loss_last, calls.loss_first,
                  calls.loss_last, what);
        cr_assert(calls.eval_loss == launches.eval_loss, "%s", what);
        cr_assert(calls.flops == launches.flops);
        check_same_files(&folder, "weights.safetensors");
        check_same_files(&folder, "optimizer.safetensors");
        for (int i = 0; i < 2; i++) {
            ebb_train_options o = options_on(i ? "cuda" : "dry:cuda:0");
            check_ok(ebb_estimate(&said, captured, &o));
            check_same_memory(&said.memory, &launches.memory, what);
            check_same_memory(&said.host_memory, &launches.host_memory, what);
        }
        temp_folder_remove(&folder);
    }
    ebb_config_free(config);
    ebb_config_free(captured);
    check_no_live_blocks();
}
#define CHECK(text, ...) check_config(text, (const char *const[4]){ __VA_ARGS__ })

Test(captured, an_mlp_with_dropout_and_a_schedule) { CHECK(MLP, NULL); }
Test(captured, a_gpt_with_clipping) { CHECK(GPT, NULL); }
Test(captured, in_f64_with_micro_batches) { CHECK(GPT, "train.precision=f64", "train.accumulate=3"); }
Test(captured, checkpoints_and_recipes)
{
    CHECK(GPT, "memory.checkpoint=every:1", "memory.recompute=[\"gelu\",\"layernorm\"]", "train.accumulate=2");
}
Test(captured, a_fused_optimizer_and_a_loss_in_chunks)
{
    CHECK(GPT, "train.fuse_optimizer=true", "train.clip_norm=null", "train.loss_chunks=3");
}
Test(captured, loaders_of_any_ring)
{
    CHECK(MLP, "data.workers=0", "data.prefetch=0");
    CHECK(MLP, "data.workers=3", "data.prefetch=4", "train.accumulate=2");
}
Test(captured, expandable_segments) { CHECK(GPT, "memory.allocator={\"expandable_segments\":true}"); }
Test(captured, a_group_that_is_a_whole_epoch) { CHECK(GPT, "train.accumulate=9"); }
Test(captured, a_norm_below_the_limit) { CHECK(GPT, "train.clip_norm=1e6"); }

/* 14 steps of groups of 4, 4, ... and one of 2 rows: only one of them is warm-up, and one in 6 is of another shape. */
Test(captured, metrics_tell_each_steps_norm)
{
    temp_folder folder = temp_folder_make();
    ebb_config *config = config_of(GPT, (const char *const[4]){ "train.capture=true", "model.dropout=0" });
    ebb_config *plain = config_of(GPT, (const char *const[4]){ "model.dropout=0" });
    stub_install((stub_options){ .seed = 3 });
    train_on("cuda", config, temp_path(&folder, "launches"));
    train_on("cuda", plain, temp_path(&folder, "calls"));
    char *a = read_text(temp_path(&folder, "calls/metrics.jsonl"), NULL);
    char *b = read_text(temp_path(&folder, "launches/metrics.jsonl"), NULL);
    const char *x = a, *y = b;
    int n = 0;
    while ((x = strstr(x, "\"grad_norm\"")) && (y = strstr(y, "\"grad_norm\""))) {
        size_t length = strcspn(x, "}");
        cr_assert(strncmp(x, y, length) == 0, "%.40s, not %.40s", y, x);
        x++;
        y++;
        n++;
    }
    cr_assert(n == 14, "%d norms", n);
    free(a);
    free(b);
    ebb_config_free(config);
    ebb_config_free(plain);
    temp_folder_remove(&folder);
    check_no_live_blocks();
}

/* Saved by called steps and continued by launched ones, and the other way about. */
Test(captured, a_run_goes_on_with_or_without)
{
    ebb_config *config = config_of(GPT, (const char *const[4]){ "train.schedule.type=constant", "train.capture=true" });
    ebb_config *plain = config_of(GPT, (const char *const[4]){ "train.schedule.type=constant" });
    stub_install((stub_options){ .seed = 3 });
    ebb_train_result straight = train_on("cuda", plain, NULL), part, rest;
    for (int i = 0; i < 2; i++) {
        temp_folder folder = temp_folder_make();
        ebb_train_options o = options_on("cuda");
        o.out_dir = temp_path(&folder, "run");
        o.steps = 5;
        check_ok(ebb_train(&part, i ? plain : config, &o));
        o.resume_dir = o.out_dir;
        o.steps = 14;
        check_ok(ebb_train(&rest, i ? config : plain, &o));
        cr_assert(rest.loss_last == straight.loss_last && rest.eval_loss == straight.eval_loss, "%d", i);
        temp_folder_remove(&folder);
    }
    ebb_config_free(config);
    ebb_config_free(plain);
    check_no_live_blocks();
}

/* ---- what is refused, what fails ------------------------------------------------------------- */

static void check_refused(ebb_status status, const char *device, const char *set, const char *why)
{
    ebb_train_result result;
    ebb_train_options o = options_on(device);
    ebb_config *config = config_of(GPT, (const char *const[4]){ "train.capture=true", set });
    check_fails(ebb_train(&result, config, &o), status);
    check_message("train.capture");
    check_message(why);
    check_fails(ebb_estimate(&result, config, &o), status);
    check_message(why);
    ebb_config_free(config);
    check_no_live_blocks();
}

Test(captured, what_does_not_go_together_is_refused)
{
    stub_install((stub_options){ .seed = 1 });
    check_refused(EBB_EUNSUPPORTED, "cpu", NULL, "cpu has no graphs");
    check_refused(EBB_EINVAL, "cuda", "memory.offload=all", "memory.offload");
    check_refused(EBB_EINVAL, "cuda", "memory.offset_plan=true", "offset_plan");
    ebb_train_result result;
    ebb_train_options o = options_on("cuda");
    ebb_config *config = config_of(GPT, (const char *const[4]){ "train.capture=true" });
    o.hash_gradients = true;
    check_fails(ebb_train(&result, config, &o), EBB_EINVAL);
    check_message("gradients");
    ebb_config_free(config);
    check_no_live_blocks();
}

/* Memory that runs out at any point, also in the capture: an error, and all of it is given back. */
Test(captured, a_capture_that_fails_gives_everything_back, .timeout = 100)
{
    ebb_train_result result;
    ebb_train_options o = options_on("cuda");
    ebb_config *config = config_of(GPT, (const char *const[4]){ "train.capture=true", "train.steps=3", "model.layers=1",
                                                                "data.workers=0" });
    uint64_t n = 1, failed_in_capture = 0;
    for (;; n += 3) {
        stub_install((stub_options){ .seed = n });
        ebb_fault_arm(n);
        ebb_status st = ebb_train(&result, config, &o);
        bool reached = ebb_fault_fired();
        ebb_fault_arm(0);
        if (!reached) break;
        cr_assert(st == EBB_ENOMEM || st == EBB_OK, "allocation %llu: %s", (unsigned long long)n, ebb_message());
        failed_in_capture += st != EBB_OK && strncmp(ebb_message(), "train.capture", 13) == 0;
        stub_counts c = stub_counts_get();
        cr_assert(c.device_bytes == 0 && c.pinned_bytes == 0 && c.open == 0 && c.graphs == 0, "allocation %llu",
                  (unsigned long long)n);
    }
    cr_assert(failed_in_capture > 10, "%llu of %llu", (unsigned long long)failed_in_capture, (unsigned long long)n);
    for (n = 1;; n++) {
        stub_install((stub_options){ .seed = n, .fail_memory_at = n });
        ebb_status st = ebb_train(&result, config, &o);
        stub_counts c = stub_counts_get();
        cr_assert(c.device_bytes == 0 && c.pinned_bytes == 0 && c.open == 0 && c.graphs == 0);
        if (c.memory_requests < n) break;
        cr_assert(st == EBB_OK || st == EBB_ENOMEM, "request %llu: %s", (unsigned long long)n, ebb_message());
    }
    ebb_config_free(config);
    check_no_live_blocks();
}
