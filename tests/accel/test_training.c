/* Training on an accelerator: the cpu's bits, the dry run's bytes, whatever the order in which streams run. */
#include <string.h>

#include "device/plugin.h"
#include "support/stub_accel.h"
#include "support/training.h"

#define MLP "{\"seed\":3,\"model\":{\"type\":\"mlp\",\"input\":12,\"hidden\":[24,16],\"output\":5," \
            "\"activation\":\"gelu_tanh\",\"dropout\":0.1}," \
            "\"data\":{\"type\":\"synthetic\",\"kind\":\"samples\",\"items\":50,\"eval_items\":20,\"seed\":1}," \
            "\"train\":{\"steps\":8,\"batch\":8,\"eval_every\":4,\"optimizer\":{\"type\":\"sgd\",\"lr\":0.1," \
            "\"momentum\":0.9,\"nesterov\":true}}}"
#define GPT "{\"seed\":1,\"model\":{\"type\":\"gpt\",\"layers\":3,\"heads\":2,\"width\":16,\"context\":8,\"vocab\":32}," \
            "\"data\":{\"type\":\"synthetic\",\"kind\":\"tokens\",\"items\":22,\"eval_items\":6,\"seed\":1}," \
            "\"train\":{\"steps\":4,\"batch\":4,\"clip_norm\":1.0,\"eval_every\":2," \
            "\"optimizer\":{\"type\":\"adamw\",\"lr\":3e-3}}}"

enum { THREADS = 2, SEEDS = 3 };

static ebb_train_result train_on(const char *device, const ebb_config *config, bool check_recompute)
{
    ebb_train_result result;
    ebb_train_options o = train_options(THREADS);
    o.device = device;
    o.hash_gradients = true;
    o.check_recompute = check_recompute;
    check_ok(ebb_train(&result, config, &o));
    return result;
}

static void check_same_values(const ebb_train_result *a, const ebb_train_result *b, const char *what)
{
    cr_assert(a->loss_first == b->loss_first && a->loss_last == b->loss_last, "losses %.9g, %.9g, not %.9g, %.9g: %s",
              b->loss_first, b->loss_last, a->loss_first, a->loss_last, what);
    cr_assert(a->eval_loss == b->eval_loss && a->eval_accuracy == b->eval_accuracy, "evaluation differs: %s", what);
    cr_assert_str_eq(a->gradients_sha256, b->gradients_sha256);
}

/* Values as on the cpu, memory as the dry run says, nothing left. */
static void check_config(const char *text, const char *const sets[4])
{
    ebb_config *config = config_of(text, sets);
    const char *what = sets[0] ? sets[0] : "plain";
    ebb_train_result cpu = train_on("cpu", config, false);
    for (uint64_t seed = 1; seed <= SEEDS; seed++) {
        stub_install((stub_options){ .seed = seed });
        ebb_train_result used = train_on("cuda", config, seed == 2), said;
        check_same_values(&cpu, &used, what);
        cr_assert_str_eq(used.device, "cuda:0");
        stub_counts c = stub_counts_get();
        cr_assert(c.kernels > 0 && c.device_bytes == 0 && c.pinned_bytes == 0 && c.open == 0);
        ebb_train_options o = train_options(THREADS);
        o.device = "dry:cuda:0";
        check_ok(ebb_estimate(&said, config, &o));
        check_same_memory(&said.memory, &used.memory, what);
        check_same_memory(&said.host_memory, &used.host_memory, what);
        o.device = "cuda";
        check_ok(ebb_estimate(&said, config, &o));
        check_same_memory(&said.memory, &used.memory, what);
        cr_assert(used.memory.by_category_at_peak[EBB_CAT_WORKSPACE] >= (1 << 20) + 512, "what was lent is counted");
    }
    ebb_config_free(config);
    check_no_live_blocks();
}
#define CHECK(text, ...) check_config(text, (const char *const[4]){ __VA_ARGS__ })

Test(accel_training, an_mlp) { CHECK(MLP, NULL); }
Test(accel_training, a_gpt) { CHECK(GPT, NULL); }
Test(accel_training, in_f64_with_micro_batches) { CHECK(GPT, "train.precision=f64", "train.accumulate=3"); }
Test(accel_training, in_mixed_precision)
{
    CHECK(GPT, "train.precision=bf16", "memory.recompute=[\"cast\",\"gelu\"]", "train.loss_chunks=3");
    CHECK(GPT, "train.precision=f16", "train.loss_scale={\"init\":1e9,\"interval\":2}", "train.accumulate=2"); /* skips */
    CHECK(MLP, "train.precision=f16", "memory.checkpoint=every:1", "memory.offload=all");
}
Test(accel_training, checkpoints_and_recipes)
{
    CHECK(GPT, "memory.checkpoint=every:1", "memory.recompute=[\"gelu\",\"layernorm\"]", "train.accumulate=2");
    CHECK(MLP, "memory.recompute=[\"gelu\"]");
}
Test(accel_training, offload)
{
    CHECK(GPT, "memory.offload=all");
    CHECK(GPT, "memory.offload=[\"linear\",\"layernorm\"]", "memory.checkpoint=every:2");
    CHECK(MLP, "memory.offload=all", "data.prefetch=0");
}
Test(accel_training, a_fused_optimizer_and_a_loss_in_chunks)
{
    CHECK(GPT, "train.fuse_optimizer=true", "train.clip_norm=null", "train.loss_chunks=3", "train.accumulate=2");
    CHECK(MLP, "train.fuse_optimizer=true", "train.clip_norm=null");
}
Test(accel_training, loaders_of_any_ring)
{
    CHECK(MLP, "data.workers=0");
    CHECK(MLP, "data.workers=3", "data.prefetch=4");
    CHECK(MLP, "data.prefetch=0", "data.workers=2");
    CHECK(GPT, "data.prefetch=1", "model.frozen=[\"*embed*\"]");
}
Test(accel_training, expandable_segments) { CHECK(GPT, "memory.allocator={\"expandable_segments\":true}"); }
Test(accel_training, an_offset_plan) { CHECK(GPT, "memory.offset_plan=true", "memory.checkpoint=every:1"); }

/* ---- budgets and limits --------------------------------------------------------------------- */

Test(accel_training, a_budget_is_planned_for_the_device)
{
    const char *const sets[4] = { "memory.checkpoint=budget:8MiB", "model.layers=6", "model.width=64" };
    stub_install((stub_options){ .seed = 5, .lent_bytes = 4096 });
    ebb_config *config = config_of(GPT, sets);
    ebb_train_result used = train_on("cuda", config, false);
    cr_assert(used.memory.peak_reserved_bytes <= (size_t)8 << 20);
    ebb_config_free(config);
    check_no_live_blocks();
}

Test(accel_training, the_devices_capacity_is_the_limit)
{
    const char *const sets[4] = { "train.batch=22", "model.width=128" };
    ebb_train_result result;
    ebb_train_options o = train_options(THREADS);
    stub_install((stub_options){ .seed = 1, .capacity_bytes = 6 << 20 });
    ebb_config *config = config_of(GPT, sets);
    o.device = "cuda";
    check_fails(ebb_train(&result, config, &o), EBB_ENOMEM);
    check_message("limit");
    o.device = "dry:cuda:0";
    check_fails(ebb_estimate(&result, config, &o), EBB_ENOMEM);
    ebb_config_free(config);
    stub_counts c = stub_counts_get();
    cr_assert(c.device_bytes == 0 && c.pinned_bytes == 0 && c.open == 0);
    check_no_live_blocks();
}

/* ---- how often the device is waited for ----------------------------------------------------- */

static uint64_t waits_of(const char *const sets[4])
{
    ebb_train_result result;
    ebb_train_options o = train_options(THREADS);
    ebb_config *config = config_of(GPT, sets);
    stub_install((stub_options){ .seed = 1 });
    o.device = "cuda";
    check_ok(ebb_train(&result, config, &o));
    ebb_config_free(config);
    return stub_counts_get().synchronizes;
}

Test(accel_training, a_step_waits_for_the_device_once)
{
#define FEW "train.clip_norm=null", "data.eval_items=0", "train.accumulate=3"
    uint64_t four = waits_of((const char *const[4]){ FEW, "train.steps=4" });
    uint64_t nine = waits_of((const char *const[4]){ FEW, "train.steps=9" });
    cr_assert(nine - four == 5, "%llu waits in 5 steps", (unsigned long long)(nine - four));
}

/* ---- runs that are saved and go on ---------------------------------------------------------- */

static void check_resume(const char *first, const char *second)
{
    temp_folder folder = temp_folder_make();
    const char *const sets[4] = { NULL };
    ebb_config *config = config_of(GPT, sets);
    ebb_train_options o = train_options(THREADS);
    ebb_train_result straight = train_on("cpu", config, false), part, rest, eval;
    stub_install((stub_options){ .seed = 9 });
    o.out_dir = temp_path(&folder, "run");
    o.device = first;
    o.steps = 2;
    check_ok(ebb_train(&part, config, &o));
    o.out_dir = NULL;
    o.resume_dir = temp_path(&folder, "run");
    o.device = second;
    o.steps = 4;
    check_ok(ebb_train(&rest, config, &o));
    cr_assert(rest.loss_last == straight.loss_last && rest.eval_loss == straight.eval_loss, "%s, %s", first, second);
    o.resume_dir = NULL;
    check_ok(ebb_evaluate(&eval, temp_path(&folder, "run"), &o));
    cr_assert(eval.eval_loss == straight.eval_loss);
    ebb_config_free(config);
    temp_folder_remove(&folder);
}

Test(accel_training, a_run_goes_on_on_this_or_another_device)
{
    check_resume("cuda", "cuda");
    check_resume("cpu", "cuda");
    check_resume("cuda", "cpu");
    check_no_live_blocks();
}

Test(accel_training, a_trained_model_writes_the_same_text)
{
    temp_folder folder = temp_folder_make();
    const char *const sets[4] = { NULL };
    ebb_config *config = config_of(GPT, sets);
    ebb_train_options o = train_options(THREADS);
    ebb_train_result result;
    unsigned char cpu[8], stub[8];
    o.out_dir = temp_path(&folder, "run");
    check_ok(ebb_train(&result, config, &o));
    stub_install((stub_options){ .seed = 4 });
    ebb_sample_options s = { .struct_bytes = sizeof s, .prompt = "\1\2", .prompt_bytes = 2, .tokens = 8,
                             .temperature = 1, .seed = 7, .threads = THREADS };
    check_ok(ebb_sample(cpu, temp_path(&folder, "run"), &s));
    s.device = "cuda";
    check_ok(ebb_sample(stub, temp_path(&folder, "run"), &s));
    cr_assert(memcmp(cpu, stub, sizeof cpu) == 0);
    ebb_config_free(config);
    temp_folder_remove(&folder);
    check_no_live_blocks();
}

/* ---- what fails ------------------------------------------------------------------------------ */

#define TINY "{\"seed\":1,\"model\":{\"type\":\"gpt\",\"layers\":1,\"heads\":2,\"width\":8,\"context\":4,\"vocab\":12}," \
             "\"data\":{\"type\":\"synthetic\",\"kind\":\"tokens\",\"items\":4,\"eval_items\":2,\"seed\":1,\"workers\":0}," \
             "\"train\":{\"steps\":2,\"batch\":2,\"clip_norm\":1.0,\"optimizer\":{\"type\":\"adamw\",\"lr\":1e-3}}," \
             "\"memory\":{\"checkpoint\":\"every:1\",\"offload\":[\"linear\"]}}"

static void check_nothing_left(const char *what, uint64_t n)
{
    stub_counts c = stub_counts_get();
    cr_assert(c.device_bytes == 0 && c.pinned_bytes == 0 && c.open == 0, "%s %llu: %zu and %zu bytes, %d open", what,
              (unsigned long long)n, c.device_bytes, c.pinned_bytes, c.open);
    cr_assert(ebb_host_live_blocks() == 0, "%s %llu: %lld blocks", what, (unsigned long long)n,
              (long long)ebb_host_live_blocks());
}

static ebb_status tiny_run(void)
{
    ebb_config *config = config_of(TINY, (const char *const[4]){ NULL });
    ebb_train_result result;
    ebb_train_options o = train_options(THREADS);
    o.device = "cuda";
    o.hash_gradients = true;
    ebb_status st = ebb_train(&result, config, &o);
    ebb_config_free(config);
    return st;
}

Test(accel_training, memory_that_runs_out_anywhere_ends_the_run_cleanly, .timeout = 100)
{
    ebb_config *config = config_of(TINY, (const char *const[4]){ NULL });
    ebb_train_result result;
    ebb_train_options o = train_options(THREADS);
    o.device = "cuda";
    uint64_t n = 1;
    for (;; n += n < 120 ? 1 : 7) {
        stub_install((stub_options){ .seed = n });
        ebb_fault_arm(n);
        ebb_status st = ebb_train(&result, config, &o);
        bool reached = ebb_fault_fired();
        ebb_fault_arm(0);
        if (!reached) break;
        cr_assert(st == EBB_ENOMEM || st == EBB_OK, "allocation %llu: %s", (unsigned long long)n, ebb_message());
        stub_counts c = stub_counts_get();
        cr_assert(c.device_bytes == 0 && c.pinned_bytes == 0 && c.open == 0, "allocation %llu", (unsigned long long)n);
    }
    cr_assert(n > 300, "%llu", (unsigned long long)n);
    ebb_config_free(config);
    check_nothing_left("all", n);
}

Test(accel_training, device_memory_that_runs_out_ends_the_run_cleanly)
{
    uint64_t n = 1;
    for (;; n++) {
        stub_install((stub_options){ .seed = n, .fail_memory_at = n });
        ebb_status st = tiny_run();
        check_nothing_left("memory request", n);
        if (stub_counts_get().memory_requests < n) break;
        cr_assert(st == EBB_OK || st == EBB_ENOMEM, "request %llu: %s", (unsigned long long)n, ebb_message());
    }
    cr_assert(n > 4);
}

Test(accel_training, an_op_that_the_plugin_lacks_is_named)
{
    ebb_train_result result;
    ebb_train_options o = train_options(THREADS);
    ebb_config *config = config_of(GPT, (const char *const[4]){ NULL });
    stub_install((stub_options){ .seed = 1, .without = "layernorm" });
    o.device = "cuda";
    check_fails(ebb_train(&result, config, &o), EBB_EUNSUPPORTED);
    check_message("layernorm: has no forward kernel for device cuda:0");
    ebb_config_free(config);
    check_nothing_left("missing op", 0);
}
