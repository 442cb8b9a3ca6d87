/* Training on the CUDA plugin, over the fake runtime with emulated kernels: the cpu's losses, the dry run's bytes,
 * the same bits in whatever order streams run, and an error without a leak when any CUDA call fails. */
#include <math.h>
#include <string.h>

#include "cuda_fake.h"
#include "cuda_fake/absorbed.h"
#include "device/plugin.h"
#include "support/training.h"

#define MLP "{\"seed\":3,\"model\":{\"type\":\"mlp\",\"input\":12,\"hidden\":[24,16],\"output\":5," \
            "\"activation\":\"gelu_tanh\",\"dropout\":0.1}," \
            "\"data\":{\"type\":\"synthetic\",\"kind\":\"samples\",\"items\":50,\"eval_items\":20,\"seed\":1}," \
            "\"train\":{\"steps\":6,\"batch\":8,\"eval_every\":3,\"optimizer\":{\"type\":\"sgd\",\"lr\":0.1," \
            "\"momentum\":0.9,\"nesterov\":true}}}"
#define GPT "{\"seed\":1,\"model\":{\"type\":\"gpt\",\"layers\":2,\"heads\":2,\"width\":16,\"context\":8,\"vocab\":32}," \
            "\"data\":{\"type\":\"synthetic\",\"kind\":\"tokens\",\"items\":11,\"eval_items\":3,\"seed\":1}," \
            "\"train\":{\"steps\":3,\"batch\":2,\"clip_norm\":1.0,\"eval_every\":2," \
            "\"optimizer\":{\"type\":\"adamw\",\"lr\":3e-3}}}"

enum { THREADS = 2 };

ebb__accel_entry ebb_accel_plugin;

/* The device that the next run finds: everything as the environment says but for these. */
static void install(bool deferred, unsigned seed, size_t mib)
{
    fake_options options = fake_get_options();
    options.deferred = deferred;
    options.seed = seed;
    options.fail_nth = 0;
    if (mib) options.capacity_bytes = mib << 20;
    fake_set_options(&options);
    ebb__accel_register(ebb_accel_plugin(EBB__ACCEL_ABI));
}

static void check_nothing_left(const char *what, long n)
{
    fake_counts c = fake_get_counts();
    cr_assert(fake_alive(&c) == 0 && c.used_bytes == 0, "%s, %ld: alive: %ld blocks, %ld pinned, %ld streams, %ld events, "
              "%ld graphs, %ld pages, %ld reservations, %ld of cuBLAS, %ld of cuDNN", what, n, c.blocks, c.pinned,
              c.streams, c.events, c.graphs, c.pages, c.reservations, c.blas_objects, c.cudnn_objects);
    cr_assert(ebb_host_live_blocks() == 0, "%s, %ld: %lld host blocks", what, n, (long long)ebb_host_live_blocks());
}

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

/* In 16 bits other orders of sums round to other values. */
static double tolerance_of(const char *what) { return strstr(what, "f16") ? 5e-3 : 1e-4; }

static void check_near(const char *which, double cpu, double cuda, const char *what)
{
    if (isnan(cpu) && isnan(cuda)) return;
    cr_assert(fabs(cuda - cpu) <= tolerance_of(what) * (1 + fabs(cpu)), "%s %.9g, not %.9g: %s", which, cuda, cpu, what);
}

#ifdef __SANITIZE_ADDRESS__ /* several times slower: fewer calls, and seeds of streams */
enum { STRIDE = 2, MAX_SEEDS = 2 };
#else
enum { STRIDE = 1, MAX_SEEDS = 8 };
#endif

/* The cpu's losses; the dry run's bytes; for every seed of deferred streams the eager run's bits. */
static void check_config(const char *text, int seeds, const char *const sets[4])
{
    const char *what = sets[0] ? sets[0] : "plain";
    ebb_config *config = config_of(text, sets);
    ebb_train_result cpu = train_on("cpu", config, false), said, eager;
    ebb_train_options o = train_options(THREADS);
    install(false, 1, 0);
    eager = train_on("cuda", config, false);
    check_near("first loss", cpu.loss_first, eager.loss_first, what);
    check_near("last loss", cpu.loss_last, eager.loss_last, what);
    check_near("eval loss", cpu.eval_loss, eager.eval_loss, what);
    cr_assert(fake_get_counts().launches > 0 && fake_get_counts().products > 0);
    o.device = "dry:cuda:0";
    check_ok(ebb_estimate(&said, config, &o));
    check_same_memory(&said.memory, &eager.memory, what);
    check_same_memory(&said.host_memory, &eager.host_memory, what);
    for (unsigned seed = 1; seed <= (unsigned)(seeds < MAX_SEEDS ? seeds : MAX_SEEDS); seed++) {
        install(true, seed, 0);
        ebb_train_result used = train_on("cuda", config, seed == 2);
        cr_assert_str_eq(used.gradients_sha256, eager.gradients_sha256, "seed %u: %s", seed, what);
        cr_assert(used.loss_last == eager.loss_last, "seed %u: %s", seed, what);
        check_same_memory(&said.memory, &used.memory, what);
    }
    ebb_config_free(config);
    check_nothing_left(what, 0);
}
#define CHECK(text, seeds, ...) check_config(text, seeds, (const char *const[4]){ __VA_ARGS__ })

Test(cuda_training, an_mlp) { CHECK(MLP, 8, NULL); }
Test(cuda_training, a_gpt) { CHECK(GPT, 3, NULL); }
Test(cuda_training, in_f64_with_micro_batches) { CHECK(GPT, 1, "train.precision=f64", "train.accumulate=3"); }
Test(cuda_training, in_mixed_precision)
{
    CHECK(GPT, 1, "train.precision=bf16", "memory.recompute=[\"cast\"]", "train.loss_chunks=2");
    CHECK(GPT, 1, "train.precision=f16", "train.loss_scale={\"init\":1e9,\"interval\":2}"); /* skips steps */
    CHECK(MLP, 2, "train.precision=f16", "memory.checkpoint=every:1");
}
Test(cuda_training, a_llama_like_gpt)
{
    CHECK(GPT, 1, "model.norm=rmsnorm", "model.position=rope", "model.activation=swiglu", "model.kv_heads=1");
}
Test(cuda_training, checkpoints_and_recipes)
{
    CHECK(GPT, 1, "memory.checkpoint=every:1", "memory.recompute=[\"gelu\",\"layernorm\"]");
    CHECK(MLP, 2, "memory.recompute=[\"gelu\"]");
}
Test(cuda_training, offload)
{
    CHECK(MLP, 8, "memory.offload=all", "data.prefetch=0");
    CHECK(GPT, 2, "memory.offload=[\"linear\",\"layernorm\"]", "memory.checkpoint=every:1");
}
Test(cuda_training, a_fused_optimizer_and_a_loss_in_chunks)
{
    CHECK(GPT, 1, "train.fuse_optimizer=true", "train.clip_norm=null", "train.loss_chunks=3");
}
Test(cuda_training, loaders_of_any_ring)
{
    CHECK(MLP, 2, "data.workers=0");
    CHECK(MLP, 4, "data.workers=3", "data.prefetch=4");
}
Test(cuda_training, expandable_segments) { CHECK(GPT, 1, "memory.allocator={\"expandable_segments\":true}"); }
Test(cuda_training, an_offset_plan) { CHECK(GPT, 1, "memory.offset_plan=true", "memory.checkpoint=every:1"); }

/* Launched steps have the bits of called ones, in whatever order streams run, and the dry run's bytes. */
static void check_captured(const char *text, const char *const sets[3])
{
    const char *what = sets[0] ? sets[0] : "plain";
    const char *const with[4] = { "train.capture=true", sets[0], sets[1], sets[2] };
    ebb_config *config = config_of(text, (const char *const[4]){ sets[0], sets[1], sets[2] });
    ebb_config *captured = config_of(text, with);
    ebb_train_result calls, launches, said;
    ebb_train_options o = train_options(THREADS);
    for (unsigned seed = 0; seed < 3; seed++) {
        install(seed > 0, seed, 0);
        o.device = "cuda";
        check_ok(ebb_train(&calls, config, &o));
        check_ok(ebb_train(&launches, captured, &o));
        cr_assert(calls.loss_last == launches.loss_last && calls.eval_loss == launches.eval_loss, "%.9g, not %.9g: %s",
                  launches.loss_last, calls.loss_last, what);
        o.device = "dry:cuda:0";
        check_ok(ebb_estimate(&said, captured, &o));
        check_same_memory(&said.memory, &launches.memory, what);
    }
    ebb_config_free(config);
    ebb_config_free(captured);
    check_nothing_left(what, 0);
}
#define CHECK_CAPTURED(text, ...) check_captured(text, (const char *const[3]){ __VA_ARGS__ })

Test(cuda_training, captured_steps)
{
    CHECK_CAPTURED(MLP, "train.steps=10", "train.optimizer.weight_decay=0.1");
    CHECK_CAPTURED(GPT, "train.steps=6", "train.schedule={\"type\":\"cosine\",\"warmup\":2}", "model.dropout=0.1");
    CHECK_CAPTURED(GPT, "train.steps=5", "train.accumulate=2", "memory.checkpoint=every:1");
    CHECK_CAPTURED(GPT, "train.precision=f64", "train.clip_norm=null", "train.fuse_optimizer=true");
    CHECK_CAPTURED(MLP, "train.steps=5", "train.precision=f64",
                   "train.optimizer={\"type\":\"adamw\",\"lr\":0.01,\"weight_decay\":2}");
}

/* The clip factor is the device's: of norms above the limit, and of norms below, which leave gradients alone.  By sgd,
 * which does not forgive a factor as Adam does. */
Test(cuda_training, captured_steps_clip)
{
    CHECK_CAPTURED(MLP, "train.steps=4", "train.clip_norm=0.1");
    CHECK_CAPTURED(MLP, "train.steps=4", "train.clip_norm=1000");
}

/* ---- limits ------------------------------------------------------------------------------------------- */

Test(cuda_training, the_devices_memory_is_the_limit)
{
    const char *const sets[4] = { "train.batch=11", "model.width=160" };
    ebb_train_result result;
    ebb_train_options o = train_options(THREADS);
    install(false, 1, 8);
    ebb_config *config = config_of(GPT, sets);
    o.device = "cuda";
    check_fails(ebb_train(&result, config, &o), EBB_ENOMEM);
    check_message("limit");
    o.device = "dry:cuda:0";
    check_fails(ebb_estimate(&result, config, &o), EBB_ENOMEM);
    ebb_config_free(config);
    check_nothing_left("limit", 1);
}

/* ---- any CUDA call fails --------------------------------------------------------------------------------- */

#define TINY_GPT "{\"seed\":1,\"model\":{\"type\":\"gpt\",\"layers\":1,\"heads\":1,\"width\":8,\"context\":4,\"vocab\":12}," \
                 "\"data\":{\"type\":\"synthetic\",\"kind\":\"tokens\",\"items\":2,\"eval_items\":0,\"seed\":1}," \
                 "\"train\":{\"steps\":1,\"batch\":2,\"clip_norm\":1.0,\"optimizer\":{\"type\":\"adamw\",\"lr\":1e-3}}," \
                 "\"memory\":{\"checkpoint\":\"every:1\",\"offload\":[\"linear\"]}}"
#define TINY_MLP "{\"seed\":1,\"model\":{\"type\":\"mlp\",\"input\":3,\"hidden\":[4],\"output\":2}," \
                 "\"data\":{\"type\":\"synthetic\",\"kind\":\"samples\",\"items\":4,\"eval_items\":2,\"seed\":1}," \
                 "\"train\":{\"steps\":2,\"batch\":2,\"optimizer\":{\"type\":\"sgd\",\"lr\":0.1}}}"

/* When training has ended, and closing begins. */
static bool failed_in_training;
static ebb_status note_end(void *user, ebb_context *ctx)
{
    (void)user, (void)ctx;
    failed_in_training = fake_get_counts().failed;
    return EBB_OK;
}

/* What errors must have said that they were for, in some run of a sweep; said[i] of purposes[i]. */
static const char *const *purposes;
static bool said[8];

static void note_purpose(void)
{
    for (int i = 0; purposes && purposes[i]; i++)
        if (strncmp(ebb_message(), purposes[i], strlen(purposes[i])) == 0) said[i] = true;
}

/* The run is told of the failure; or that may be absorbed, and its results are those of `good`. */
static void check_told(ebb_status st, const ebb_train_result *result, const ebb_train_result *good, long n,
                       const fake_counts *c)
{
    if (st == EBB_OK) {
        bool absorbed = fake_may_be_absorbed(c->failed_call, !failed_in_training);
        cr_assert(absorbed, "call %ld, %s, failed and nobody was told", n, c->failed_call);
        cr_assert(result->loss_last == good->loss_last && result->eval_loss == good->eval_loss, "call %ld, %s: %.9g",
                  n, c->failed_call, result->loss_last);
        return;
    }
    bool known = st == EBB_EDEVICE || st == EBB_ENOMEM || st == EBB_EUNSUPPORTED; /* the last: no mapped pages */
    cr_assert(known && ebb_message()[0] != '\0', "call %ld, %s: %s: %s", n, c->failed_call, ebb_status_name(st),
              ebb_message());
    cr_assert(strncmp(ebb_message(), "cuda:0: ", 8) != 0, "call %ld, %s: what it was for is not said: %s", n,
              c->failed_call, ebb_message());
    note_purpose();
}

static bool all_said(void)
{
    for (int i = 0; purposes && purposes[i]; i++)
        if (!said[i]) return false;
    return true;
}

/* Runs with the n-th call failing, for every n up to the end, in steps of `step` from call 1.  The number of the last. */
static long sweep_once(const ebb_config *config, long first, long step)
{
    const ebb_observer observer = { .on_end = note_end };
    ebb_train_options o = train_options(THREADS);
    o.device = "cuda";
    o.observer = &observer;
    install(false, 1, 0);
    ebb_train_result good;
    check_ok(ebb_train(&good, config, &o));
    for (long n = first;; n += step * STRIDE) {
        ebb_train_result result;
        install(n % 2 == 0, (unsigned)n, 0);
        fake_options options = fake_get_options();
        options.fail_nth = n;
        options.refuse_launches = (n - first) / (step * STRIDE) % 2 == 0;
        fake_set_options(&options);
        ebb_status st = ebb_train(&result, config, &o);
        fake_counts c = fake_get_counts();
        cr_assert(fake_alive(&c) == 0 && c.used_bytes == 0, "call %ld: %ld alive", n, fake_alive(&c));
        if (!c.failed) {
            check_ok(st);
            return n;
        }
        check_told(st, &result, &good, n, &c);
    }
}

/* Threads that poll change the numbers of calls, so that one sweep may miss a kind of them. */
static void sweep(const char *text, const char *const sets[4], long first, long step)
{
    enum { SWEEPS = 5 };
    ebb_config *config = config_of(text, sets);
    long n = sweep_once(config, first, step);
    cr_assert(n > 100, "%ld calls", n);
    for (int again = 1; again < SWEEPS && !all_said(); again++) sweep_once(config, first, step);
    for (int i = 0; purposes && purposes[i]; i++) cr_assert(said[i], "no error began with \"%s\"", purposes[i]);
    ebb_config_free(config);
    check_nothing_left("sweep", n);
}
#define SWEEP(text, first, step, ...) sweep(text, (const char *const[4]){ __VA_ARGS__ }, first, step)

Test(cuda_training, any_call_of_an_mlp_may_fail, .timeout = 100)
{
    static const char *const every[] = {
        "opening device cuda:0: ", "device libraries: ", "zeros of a batch: ", "copies of batches: ",
        "copy of a loss: ", "waiting for the device: ", NULL,
    };
    if (STRIDE == 1) purposes = every;
    SWEEP(TINY_MLP, 1, 1, NULL);
}
Test(cuda_training, any_call_under_expandable_segments_may_fail, .timeout = 100)
{
    SWEEP(TINY_MLP, 1, 3, "memory.allocator={\"expandable_segments\":true}");
}
Test(cuda_training, any_call_of_a_captured_step_may_fail, .timeout = 100)
{
    SWEEP(TINY_MLP, 1, 2, "train.capture=true", "train.steps=4"); /* clipping is slow on the emulator */
}
Test(cuda_training, any_call_of_a_gpt_may_fail, .timeout = 100) { SWEEP(TINY_GPT, 1, 7, NULL); }
