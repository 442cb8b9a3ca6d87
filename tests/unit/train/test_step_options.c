/* Step options that save memory: how much, and that they change nothing else. */
#include <math.h>
#include <stdlib.h>

#include "train_support.h"

/* Weights outweigh activations, so that gradients matter at the peak. */
static const char wide_mlp[] =
    "{\"seed\":3,\"model\":{\"type\":\"mlp\",\"input\":60,\"hidden\":[70,80,90,80],\"output\":5},"
    "\"data\":{\"type\":\"synthetic\",\"items\":22,\"eval_items\":6},"
    "\"train\":{\"steps\":7,\"batch\":4,\"optimizer\":{\"type\":\"adamw\",\"lr\":0.01,\"weight_decay\":0.1}}}";

#define NO_CLIP "train.clip_norm=null "

typedef struct outcome {
    ebb_train_result result;
    char *weights, *state; /* the files' bytes */
    size_t weights_bytes, state_bytes;
} outcome;

static outcome run(const char *json, const char *sets)
{
    temp_folder folder = temp_folder_make();
    ebb_train_options options = default_options();
    options.out_dir = temp_path(&folder, "run");
    outcome o = { .result = train_with(json, sets, &options) };
    o.weights = read_text(temp_path(&folder, "run/weights.safetensors"), &o.weights_bytes);
    o.state = read_text(temp_path(&folder, "run/optimizer.safetensors"), &o.state_bytes);
    temp_folder_remove(&folder);
    return o;
}

static void check_same(const outcome *a, const outcome *b, const char *sets)
{
    cr_assert_str_eq(a->result.gradients_sha256, b->result.gradients_sha256, "%s", sets);
    cr_assert(a->result.loss_last == b->result.loss_last && a->result.eval_loss == b->result.eval_loss, "%s", sets);
    cr_assert(a->weights_bytes == b->weights_bytes && !memcmp(a->weights, b->weights, a->weights_bytes), "%s", sets);
    cr_assert(a->state_bytes == b->state_bytes && !memcmp(a->state, b->state, a->state_bytes), "%s", sets);
}

static void outcome_free(outcome *o)
{
    free(o->weights);
    free(o->state);
}

/* ---- the optimizer inside backward ---------------------------------------------------------- */

static void check_fused(const char *json, const char *sets)
{
    char fused_sets[512];
    snprintf(fused_sets, sizeof(fused_sets), "%s train.fuse_optimizer=true", sets);
    outcome plain = run(json, sets), fused = run(json, fused_sets);
    check_same(&plain, &fused, sets);
    cr_assert(plain.result.loss_last != plain.result.loss_first);
    cr_assert_leq(fused.result.memory.peak_allocated_bytes, plain.result.memory.peak_allocated_bytes, "%s", sets);
    outcome_free(&plain);
    outcome_free(&fused);
}

Test(fused, gives_the_same_weights_state_and_gradients)
{
    check_fused(wide_mlp, "");
    check_fused(wide_mlp, "train.precision=f64 model.dropout=0.2");
    check_fused(wide_mlp, "train.optimizer={\"type\":\"sgd\",\"lr\":0.1,\"momentum\":0.9,\"nesterov\":true}");
    check_fused(SMALL_GPT, NO_CLIP); /* tied weights are updated once */
    check_fused(SMALL_GPT, NO_CLIP "model.tie_embeddings=false model.dropout=0.1");
    check_fused(SMALL_GPT, NO_CLIP "model.frozen=[\"embed.*\",\"blocks.1.*.weight\"]");
}

/* Field case B31: decay and step counter once per group; a smaller last group too (22 = 5 * 4 + 2). */
Test(fused, steps_once_per_group_of_micro_batches)
{
    check_fused(wide_mlp, "train.accumulate=3");
    check_fused(wide_mlp, "train.accumulate=100");
    check_fused(SMALL_GPT, NO_CLIP "train.accumulate=2");
}

/* A weight must not change before the last thing that reads it, recomputes included. */
Test(fused, works_under_every_way_of_recomputing)
{
    check_fused(SMALL_GPT, NO_CLIP "memory.checkpoint=every:1");
    check_fused(SMALL_GPT, NO_CLIP "memory.checkpoint=sqrt train.accumulate=2 model.dropout=0.1");
    check_fused(SMALL_GPT, NO_CLIP "memory.recompute=[\"linear\",\"layernorm\",\"gelu\",\"add\",\"embedding\"]");
    check_fused(SMALL_GPT, NO_CLIP "memory.checkpoint=every:2 model.frozen=[\"*.weight\"] "
                                   "memory.recompute=[\"linear\",\"layernorm\",\"attention_packed\"]");
}

static size_t estimated_peak(const char *json, const char *sets)
{
    ebb_train_options options = default_options();
    ebb_train_result result;
    ebb_config *config = config_of(json, sets);
    check_ok(ebb_estimate(&result, config, &options));
    ebb_config_free(config);
    return result.memory.peak_allocated_bytes;
}

Test(fused, never_has_all_gradients_alive)
{
    size_t weights = (60 * 70 + 70 * 80 + 80 * 90 + 90 * 80 + 80 * 5) * sizeof(float);
    size_t plain = estimated_peak(wide_mlp, "train.batch=1"),
           fused = estimated_peak(wide_mlp, "train.batch=1 train.fuse_optimizer=true");
    cr_assert_leq(fused + weights / 2, plain);
    /* With accumulation they are kept from the first micro-batch on. */
    plain = estimated_peak(wide_mlp, "train.batch=1 train.accumulate=2");
    fused = estimated_peak(wide_mlp, "train.batch=1 train.accumulate=2 train.fuse_optimizer=true");
    cr_assert_leq(fused, plain);
    cr_assert_gt(fused + weights / 4, plain);
}

Test(fused, a_run_can_be_resumed)
{
    temp_folder folder = temp_folder_make();
    const char *const sets = "train.fuse_optimizer=true train.save_every=3";
    ebb_train_options options = default_options();
    options.out_dir = temp_path(&folder, "part");
    options.steps = 3;
    train_with(wide_mlp, sets, &options);
    options.out_dir = NULL;
    options.resume_dir = temp_path(&folder, "part");
    options.steps = 7;
    ebb_train_result rest = train_with(wide_mlp, sets, &options), whole = train_once(wide_mlp, "");
    cr_assert(rest.loss_last == whole.loss_last && rest.eval_loss == whole.eval_loss);
    temp_folder_remove(&folder);
}

/* Its updates cannot be undone: the run ends with the error, and nothing is left. */
static void check_faults(const char *json, const char *sets)
{
    ebb_config *config = config_of(json, sets);
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
        cr_assert(done || st == EBB_ENOMEM, "allocation %llu: %s", (unsigned long long)n, ebb_status_name(st));
        cr_assert_eq(ebb_host_live_blocks(), before, "allocation %llu leaks", (unsigned long long)n);
    }
    cr_assert(done);
    ebb_config_free(config);
}

Test(fused, every_failed_allocation_ends_the_run_and_leaves_nothing)
{
    check_faults(SMALL_GPT, NO_CLIP "model.layers=2 train.steps=1 train.batch=1 data.items=2 data.eval_items=1 "
                                    "train.accumulate=2 memory.checkpoint=every:1 train.fuse_optimizer=true "
                                    "train.loss_chunks=3 data.workers=0 data.prefetch=0");
}

static ebb_status step_one(void *optim, ebb_tensor *param)
{
    ebb_status st = ebb_optim_step_one(optim, param);
    ebb_drop_grad(param);
    return st;
}

static ebb_status fail(void *user, ebb_tensor *param)
{
    (void)user, (void)param;
    return ebb_fail(EBB_EIO, "the hook fails");
}

/* What was updated stays so; what was not keeps its value; nothing more is stepped. */
Test(fused, a_backward_that_fails_midway_leaves_parameters_of_two_steps)
{
    with_context(ctx)
    {
        EBB_LOCAL(early);
        EBB_LOCAL(late);
        EBB_LOCAL(loss);
        ebb_optim *optim = NULL;
        double value = 0;
        ebb_optim_options options = { .struct_bytes = sizeof(options), .kind = EBB_SGD, .lr = 1 };
        check_ok(ebb_full(&early, ctx, EBB_F32, 0, NULL, 2));
        check_ok(ebb_full(&late, ctx, EBB_F32, 0, NULL, 3));
        check_ok(ebb_set_requires_grad(early, true));
        check_ok(ebb_set_requires_grad(late, true));
        ebb_named_tensor params[] = { { "early", early }, { "late", late } };
        check_ok(ebb_optim_new(&optim, ctx, params, 2, &options));
        check_ok(ebb_hook_add(late, &(ebb_hook){ .user = optim, .on_accumulated = step_one }, NULL));
        check_ok(ebb_hook_add(early, &(ebb_hook){ .on_accumulated = fail }, NULL));
        check_ok(ebb_tanh(&loss, early));
        check_ok(ebb_mul(&loss, loss, late)); /* backward comes to `late` first */
        check_ok(ebb_optim_step_begin(optim, 1));
        check_fails(ebb_backward(loss), EBB_EIO);
        check_ok(ebb_item(late, &value));
        cr_assert_float_eq(value, 3 - 0.9640276, 1e-6);
        check_ok(ebb_item(early, &value));
        cr_assert(value == 2 && !ebb_grad(early) && !ebb_grad(late));
        check_fails(ebb_optim_step_begin(optim, 1), EBB_ESTATE);
        cr_assert_eq(ebb_optim_steps(optim), 1);
        check_ok(ebb_optim_step_one(optim, loss)); /* not listed: left alone */
        ebb_optim_free(optim);
    }
}

/* ---- the loss in chunks --------------------------------------------------------------------- */

static void check_close(const ebb_train_result *a, const ebb_train_result *b, double tolerance, const char *sets)
{
    cr_assert(fabs(a->loss_first - b->loss_first) <= tolerance * b->loss_first, "%s", sets);
    cr_assert(fabs(a->loss_last - b->loss_last) <= tolerance * b->loss_last, "%s: %.9g, not %.9g", sets,
              a->loss_last, b->loss_last);
    cr_assert(fabs(a->eval_loss - b->eval_loss) <= tolerance * b->eval_loss, "%s", sets);
}

Test(chunks, give_the_loss_of_the_whole_to_rounding)
{
    static const char *const ways[] = { "", "model.tie_embeddings=false", "train.accumulate=3",
                                        "model.norm=\"rmsnorm\" model.frozen=[\"embed.*\"]",
                                        "train.fuse_optimizer=true" };
    for (size_t w = 0; w < sizeof(ways) / sizeof(ways[0]); w++) {
        char sets[256];
        snprintf(sets, sizeof(sets), NO_CLIP "train.optimizer.type=\"sgd\" %s", ways[w]);
        ebb_train_result whole = train_once(SMALL_GPT, sets);
        for (int n = 2; n <= 50; n = n * 3 + 1) { /* 2, 7, 22: of 32 rows */
            snprintf(sets, sizeof(sets), NO_CLIP "train.optimizer.type=\"sgd\" train.loss_chunks=%d %s", n, ways[w]);
            ebb_train_result parts = train_once(SMALL_GPT, sets);
            check_close(&parts, &whole, 1e-6, sets);
        }
    }
}

Test(chunks, are_bit_identical_across_checkpoint_modes)
{
    static const char *const modes[] = { "memory.checkpoint=every:1", "memory.checkpoint=sqrt",
                                         "memory.recompute=[\"layernorm\",\"gelu\",\"linear_cross_entropy\"]",
                                         "train.fuse_optimizer=true memory.checkpoint=every:2" };
    const char *const plain_sets = NO_CLIP "train.loss_chunks=3 model.dropout=0.1";
    outcome plain = run(SMALL_GPT, plain_sets);
    for (size_t m = 0; m < sizeof(modes) / sizeof(modes[0]); m++) {
        char sets[256];
        snprintf(sets, sizeof(sets), "%s %s", plain_sets, modes[m]);
        outcome other = run(SMALL_GPT, sets);
        check_same(&plain, &other, sets);
        outcome_free(&other);
    }
    outcome_free(&plain);
}

Test(chunks, save_the_logits_and_their_gradient)
{
    /* Logits of 32 rows and 4000 classes weigh 512000 bytes; in 8 chunks 64000. */
    const char *const large = "model.vocab=4000 model.width=8 train.optimizer.type=\"sgd\" ";
    char sets[256];
    snprintf(sets, sizeof(sets), "%s train.loss_chunks=8", large);
    size_t whole = estimated_peak(SMALL_GPT, large), parts = estimated_peak(SMALL_GPT, sets);
    cr_assert_leq(parts + 400000, whole, "%zu and %zu", parts, whole);
}

/* ---- the input batch ------------------------------------------------------------------------ */

/* Without prefetch the batch goes when no node reads it any more; with it the ring holds it. */
Test(input, goes_after_forward_where_the_first_layer_is_frozen)
{
    static const char mlp[] =
        "{\"model\":{\"type\":\"mlp\",\"input\":2000,\"hidden\":[2000,2000],\"output\":4},"
        "\"data\":{\"type\":\"synthetic\",\"items\":128},\"train\":{\"steps\":2,\"batch\":64}}";
    const size_t batch = 64 * 2000 * sizeof(float);
    const char *const frozen = "model.frozen=[\"layers.0.*\"] ";
    char sets[2][128];
    for (int i = 0; i < 2; i++) snprintf(sets[i], sizeof(sets[i]), "%sdata.prefetch=%d", frozen, i);
    size_t apart = estimated_peak(mlp, sets[1]) - estimated_peak(mlp, sets[0]);
    cr_assert(apart >= 2 * batch && apart < 2 * batch + 4096, "%zu bytes, two batches are %zu", apart, 2 * batch);
    apart = estimated_peak(mlp, "data.prefetch=1") - estimated_peak(mlp, "data.prefetch=0");
    cr_assert(apart >= batch && apart < batch + 4096, "%zu bytes, a batch is %zu", apart, batch);
}

/* ---- savers that round ---------------------------------------------------------------------- */

static size_t saved(const ebb_train_result *r) { return r->memory.by_category_at_peak[EBB_CAT_ACTIVATION]; }

/* Wide rows, so that statistics and rounding to 512 bytes do not matter. */
static const char wide_gpt[] =
    "{\"seed\":3,\"model\":{\"type\":\"gpt\",\"layers\":3,\"heads\":2,\"width\":64,\"context\":32,\"vocab\":48},"
    "\"data\":{\"type\":\"synthetic\",\"items\":40,\"eval_items\":4},"
    "\"train\":{\"steps\":4,\"batch\":8,\"optimizer\":{\"type\":\"sgd\",\"lr\":0.1}}}";

static ebb_train_result compressed(const char *sets)
{
    ebb_train_options options = default_options();
    ebb_train_result used = train_with(wide_gpt, sets, &options), said;
    ebb_config *config = config_of(wide_gpt, sets);
    check_ok(ebb_estimate(&said, config, &options));
    cr_assert_eq(said.memory.peak_allocated_bytes, used.memory.peak_allocated_bytes, "%s", sets);
    cr_assert_eq(said.memory.peak_reserved_bytes, used.memory.peak_reserved_bytes, "%s", sets);
    cr_assert_eq(saved(&said), saved(&used), "%s", sets);
    ebb_config_free(config);
    return used;
}

Test(compress, bf16_halves_what_is_saved_int8_quarters_it_and_forward_keeps_its_bits)
{
    ebb_train_result none = compressed(""), bf16 = compressed("memory.compress=bf16");
    ebb_train_result int8 = compressed("memory.compress=int8"), again = compressed("memory.compress=int8");
    cr_assert_lt(saved(&bf16), saved(&none) * 0.60, "%zu of %zu", saved(&bf16), saved(&none));
    cr_assert_lt(saved(&int8), saved(&none) * 0.36, "%zu of %zu", saved(&int8), saved(&none));
    cr_assert(bf16.loss_first == none.loss_first && int8.loss_first == none.loss_first, "forward is not rounded");
    cr_assert(strcmp(bf16.gradients_sha256, none.gradients_sha256) != 0);
    cr_assert(strcmp(int8.gradients_sha256, bf16.gradients_sha256) != 0);
    cr_assert_str_eq(int8.gradients_sha256, again.gradients_sha256, "rounding is the same each time");
    cr_assert_lt(fabs(bf16.loss_last - none.loss_last), 1e-3 * none.loss_last);
    cr_assert_lt(fabs(int8.loss_last - none.loss_last), 1e-2 * none.loss_last);
    check_no_live_blocks();
}

Test(compress, an_op_alone_saves_less_and_mixes_with_segments_recipes_and_offload)
{
    ebb_train_result none = compressed(""), gelu = compressed("memory.compress={\"gelu\":\"int8\"}");
    cr_assert_lt(saved(&gelu), saved(&none));
    ebb_train_result mixed = compressed("memory.checkpoint=[[0,1]] memory.recompute=[\"layernorm\"] "
                                        "memory.offload=[\"attention_packed\"] memory.compress=bf16");
    cr_assert_gt(mixed.recomputed_ops, 0);
    cr_assert_gt(mixed.offloaded_bytes, 0);
    cr_assert_lt(fabs(mixed.loss_last - none.loss_last), 1e-3 * none.loss_last);
    check_no_live_blocks();
}

Test(compress, recomputes_are_not_checked_where_rounding_is_asked_for)
{
    ebb_config *config = config_of(SMALL_MLP, "memory.compress=bf16");
    ebb_train_options options = default_options();
    ebb_train_result result;
    options.check_recompute = true;
    check_fails(ebb_train(&result, config, &options), EBB_EINVAL);
    check_message("memory.compress: it rounds");
    ebb_config_free(config);
    check_no_live_blocks();
}
