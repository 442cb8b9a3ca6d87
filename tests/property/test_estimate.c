/* What a dry run says of memory is what the run then uses, to the byte. */
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#include "estimate_check.h"
#include "support/cases.h"
#include "support/training.h"
#include "train/run.h"

static void check_text(const char *text, const char *const sets[4], const char *what)
{
    ebb_config *config = config_of(text, sets);
    check_estimate(config, 1, NULL, what);
    ebb_config_free(config);
}

Test(estimate, drawn_configs_use_what_was_said)
{
    check_drawn_estimates(1, CASES(40, 15));
}

Test(estimate, steps_that_are_skipped_do_not_change_what_is_said)
{
    /* 1000 epochs with a partial last batch and evaluations, said in a few steps. */
    const char *text =
        "{\"model\":{\"type\":\"mlp\",\"input\":9,\"hidden\":[20],\"output\":3},"
        "\"data\":{\"type\":\"synthetic\",\"kind\":\"samples\",\"items\":22,\"eval_items\":7,\"workers\":0},"
        "\"train\":{\"steps\":3000,\"batch\":4,\"accumulate\":2,\"eval_every\":17}}";
    check_text(text, (const char *const[4]){ NULL }, "3000 steps");
    check_no_live_blocks();
}

/* Groups of up to 7, the last of an epoch shorter and with a smaller batch; copies, recomputes, a last one that is
 * unlike the others. */
Test(estimate, micro_batches_that_are_left_out_do_not_change_what_is_said)
{
    const char *text =
        "{\"model\":{\"type\":\"gpt\",\"layers\":3,\"heads\":2,\"width\":16,\"context\":8,\"vocab\":11,\"dropout\":0.1},"
        "\"data\":{\"type\":\"synthetic\",\"kind\":\"tokens\",\"items\":29,\"eval_items\":0,\"workers\":0},"
        "\"train\":{\"steps\":5,\"batch\":2,\"clip_norm\":null}}";
    static const char *const more[] = { "train.fuse_optimizer=true", "memory.checkpoint=sqrt", "memory.offload=all",
                                        "memory.recompute=[\"gelu\"]", "train.precision=bf16" };
    char accumulate[32], what[96];
    for (int i = 0; i < 35; i++) {
        snprintf(accumulate, sizeof accumulate, "train.accumulate=%d", 1 + i / 5);
        snprintf(what, sizeof what, "%s %s", accumulate, more[i % 5]);
        check_text(text, (const char *const[4]){ accumulate, more[i % 5] }, what);
    }
    check_no_live_blocks();
}

/* An offset plan follows a group event by event: what was left out of one would be followed as what comes later. */
Test(estimate, an_offset_plan_follows_whole_groups)
{
    static const char *const configs[] = { "gpt-synthetic.json", "mlp-synthetic.json" };
    char path[512], accumulate[32];
    for (int i = 0; i < 12; i++) {
        snprintf(path, sizeof path, "%s/models/%s", EBB_SOURCE_DIR, configs[i % 2]);
        snprintf(accumulate, sizeof accumulate, "train.accumulate=%d", 3 + i);
        const char *const sets[] = { "memory.offset_plan=true", "train.steps=2", "data.items=75", accumulate };
        ebb_config *config = NULL;
        check_ok(ebb_config_load(&config, path, sets, 4));
        check_estimate(config, 1, NULL, accumulate);
        ebb_config_free(config);
    }
    check_no_live_blocks();
}

/* Two micro-batches of the first step and of the second tell what 64 do. */
Test(estimate, of_many_micro_batches_few_are_run)
{
    const char *text =
        "{\"model\":{\"type\":\"mlp\",\"input\":9,\"hidden\":[20],\"output\":3},"
        "\"data\":{\"type\":\"synthetic\",\"kind\":\"samples\",\"items\":512,\"eval_items\":0,\"workers\":0},"
        "\"train\":{\"steps\":2,\"batch\":4,\"accumulate\":64}}";
    ebb_config *config = config_of(text, (const char *const[4]){ NULL });
    ebb_train_options options = train_options(1);
    ebb_train_result *said = calloc(1, sizeof *said);
    ebb__run run = { 0 };
    check_ok(ebb__run_dry(&run, said, config, &options));
    cr_assert_gt(said->flops, 0);
    cr_assert(run.left_out.flops >= 2 * said->flops * 61 / 64, "left out %g of %g", run.left_out.flops, 2 * said->flops);
    ebb__run_close(&run);
    ebb_config_free(config);
    free(said);
    check_no_live_blocks();
}

/* What a dry run leaves out of an evaluation, and of the steps, follows the plan all the same. */
Test(estimate, an_offset_plan_uses_what_was_said_whatever_is_cut_short)
{
    const char *text =
        "{\"model\":{\"type\":\"mlp\",\"input\":9,\"hidden\":[20,30],\"output\":3,\"dropout\":0.1},"
        "\"data\":{\"type\":\"synthetic\",\"kind\":\"samples\",\"items\":22,\"eval_items\":31,\"workers\":0,"
        "\"prefetch\":0},\"train\":{\"steps\":1,\"batch\":4},\"memory\":{\"offset_plan\":true}}";
    char steps[32], batch[32], eval[32], what[96];
    for (int i = 0; i < 60; i += CASES(1, 7)) {
        snprintf(steps, sizeof steps, "train.steps=%d", 1 + i % 5);
        snprintf(batch, sizeof batch, "train.batch=%d", 1 + i / 5);
        snprintf(eval, sizeof eval, "train.eval_every=%d", i % 3);
        snprintf(what, sizeof what, "%s %s %s", steps, batch, eval);
        const char *accumulate = i % 2 ? "train.accumulate=3" : "train.accumulate=1";
        check_text(text, (const char *const[4]){ steps, batch, eval, accumulate }, what);
    }
    check_no_live_blocks();
}

/* The one evaluation, at the end of the run, has a batch of 64 rows; training has 2 items. */
Test(estimate, an_evaluation_that_needs_more_than_training_is_foreseen)
{
    const char *text =
        "{\"model\":{\"type\":\"mlp\",\"input\":2,\"hidden\":[2000],\"output\":2},"
        "\"data\":{\"type\":\"synthetic\",\"kind\":\"samples\",\"items\":2,\"eval_items\":64,\"workers\":0},"
        "\"train\":{\"steps\":40,\"batch\":64,\"optimizer\":{\"type\":\"sgd\",\"lr\":0.1}}}";
    ebb_config *config = config_of(text, (const char *const[4]){ NULL });
    ebb_config *without = config_of(text, (const char *const[4]){ "data.eval_items=0" });
    check_estimate(config, 1, NULL, "with an evaluation");
    check_estimate(without, 1, NULL, "without an evaluation");
    ebb_train_result a, b;
    ebb_train_options options = train_options(1);
    check_ok(ebb_estimate(&a, config, &options));
    check_ok(ebb_estimate(&b, without, &options));
    cr_assert_gt(a.memory.peak_allocated_bytes, b.memory.peak_allocated_bytes + 50000);
    ebb_config_free(config);
    ebb_config_free(without);
    check_no_live_blocks();
}

/* ---- the configs that users start from ----------------------------------------------------- */

static const char *const modes[] = { "\"none\"", "\"every:1\"", "\"sqrt\"", "[[1,1]]" };

/* From any working folder. */
#define KJV "data.path=\"" EBB_SOURCE_DIR "/data/kjv.txt\""

/* Cut short, and smaller where one step of the whole is much work. */
static void check_model(const char *name, const char *const smaller[4])
{
    char path[512], set[64];
    snprintf(path, sizeof(path), "%s/models/%s", EBB_SOURCE_DIR, name);
    for (int m = 0; m < (int)(sizeof(modes) / sizeof(modes[0])); m++) {
        ebb_config *config = NULL;
        snprintf(set, sizeof(set), "memory.checkpoint=%s", modes[m]);
        const char *const sets[] = { set, "train.steps=2", smaller[0], smaller[1], smaller[2],
                                     smaller[3] };
        int n = 2;
        while (n < 6 && sets[n]) n++;
        check_ok(ebb_config_load(&config, path, sets, n));
        check_estimate(config, 2, NULL, path);
        ebb_config_free(config);
    }
    check_no_live_blocks();
}

Test(estimate, gpt_synthetic_uses_what_was_said)
{
    check_model("gpt-synthetic.json", (const char *const[4]){ NULL });
}

Test(estimate, gpt_llama_style_uses_what_was_said)
{
    check_model("gpt-llama-style.json", (const char *const[4]){ NULL });
}

Test(estimate, mlp_synthetic_uses_what_was_said)
{
    check_model("mlp-synthetic.json", (const char *const[4]){ NULL });
}

Test(estimate, gpt_kjv_uses_what_was_said)
{
    if (access(EBB_SOURCE_DIR "/data/kjv.txt", R_OK) != 0) cr_skip("data/kjv.txt is not there");
    check_model("gpt-kjv.json", (const char *const[4]){ KJV, "train.batch=2",
                                                        "data.eval_fraction=0.0001" });
}

Test(estimate, gpt_small_uses_what_was_said)
{
    if (access(EBB_SOURCE_DIR "/data/kjv.txt", R_OK) != 0) cr_skip("data/kjv.txt is not there");
    check_model("gpt-small.json", (const char *const[4]){ KJV, "train.batch=1", "model.context=64",
                                                          "data.eval_fraction=0.0001" });
}

Test(estimate, mlp_fashion_uses_what_was_said)
{
    if (access("/usr/share/datasets/fashion-mnist/train-images-idx3-ubyte.gz", R_OK) != 0)
        cr_skip("fashion-mnist is not there");
    check_model("mlp-fashion.json", (const char *const[4]){ NULL });
}
