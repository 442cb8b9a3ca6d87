#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#include "core/json.h"
#include "train/run.h"
#include "train_support.h"

/* "step loss" of every training line of metrics.jsonl. */
static char *losses_of(const char *run)
{
    char path[512], *out = malloc(65536);
    size_t used = 0;
    snprintf(path, sizeof(path), "%s/metrics.jsonl", run);
    FILE *file = fopen(path, "r");
    char line[1024];
    cr_assert(file && out);
    out[0] = '\0';
    while (fgets(line, sizeof(line), file)) {
        cJSON *object = NULL;
        check_ok(ebb__json_parse(&object, line, strlen(line), "line"));
        const cJSON *loss = cJSON_GetObjectItemCaseSensitive(object, "loss");
        if (loss)
            used += (size_t)snprintf(out + used, 65536 - used, "%d %.9g\n",
                                     cJSON_GetObjectItemCaseSensitive(object, "step")->valueint,
                                     loss->valuedouble);
        cJSON_Delete(object);
    }
    fclose(file);
    return out;
}

static ebb_status train_into(const char *json, const char *sets, const char *out,
                             const char *resume, int64_t steps)
{
    ebb_config *config = config_of(json, sets);
    ebb_train_options options = default_options();
    options.out_dir = out;
    options.resume_dir = resume;
    options.steps = steps;
    ebb_train_result result;
    ebb_status st = ebb_train(&result, config, &options);
    ebb_config_free(config);
    return st;
}

Test(run_folder, a_run_leaves_config_weights_optimizer_state_and_metrics)
{
    temp_folder folder = temp_folder_make();
    const char *run = temp_path(&folder, "deep/run");
    check_ok(train_into(SMALL_MLP, "train.accumulate=4 train.batch=1", run, NULL, 10));
    static const char *const files[] = { "config.json", "weights.safetensors",
                                         "optimizer.safetensors", "state.json", "metrics.jsonl" };
    for (int i = 0; i < 5; i++) {
        char path[512];
        snprintf(path, sizeof(path), "%s/%s", run, files[i]);
        cr_assert_eq(access(path, R_OK), 0, "%s", files[i]);
    }
    ebb__run_state state;
    check_ok(ebb__run_state_load(&state, run));
    cr_assert(state.step == 10 && state.loader_position == 40,
              "field case B80: position counts micro-batches");
    temp_folder_remove(&folder);
}

/* Field case B82, with and without segments; also across an epoch's end (20 items, batch 4). */
static void check_resume(const char *sets)
{
    temp_folder folder = temp_folder_make();
    const char *straight = temp_path(&folder, "straight"), *broken = temp_path(&folder, "broken");
    check_ok(train_into(SMALL_MLP, sets, straight, NULL, 10));
    check_ok(train_into(SMALL_MLP, sets, broken, NULL, 5));
    check_ok(train_into(SMALL_MLP, sets, NULL, broken, 10));
    char *a = losses_of(straight), *b = losses_of(broken);
    cr_assert_str_eq(a, b);
    cr_assert(strstr(a, "\n10 ") != NULL);
    free(a);
    free(b);
    size_t n = 0, m = 0;
    char *wa = read_text(temp_path(&folder, "straight/weights.safetensors"), &n);
    char *wb = read_text(temp_path(&folder, "broken/weights.safetensors"), &m);
    cr_assert(n == m && memcmp(wa, wb, n) == 0, "the weights differ");
    free(wa);
    free(wb);
    temp_folder_remove(&folder);
    check_no_live_blocks();
}

Test(run_folder, a_resumed_run_is_the_straight_run) { check_resume("model.dropout=0.1"); }
Test(run_folder, a_resumed_run_is_the_straight_run_with_segments)
{
    check_resume("model.dropout=0.1 memory.checkpoint=every:1");
}
Test(run_folder, a_resumed_run_is_the_straight_run_with_accumulation)
{
    check_resume("model.dropout=0.1 train.accumulate=3");
}

Test(run_folder, resuming_cuts_off_metrics_of_steps_that_are_done_again)
{
    temp_folder folder = temp_folder_make();
    const char *run = temp_path(&folder, "run");
    check_ok(train_into(SMALL_MLP, "", run, NULL, 4));
    FILE *file = fopen(temp_path(&folder, "run/metrics.jsonl"), "a");
    fputs("{\"step\":5, \"loss\":9}\n{\"step\":6, \"lo", file);
    fclose(file);
    check_ok(train_into(SMALL_MLP, "", NULL, run, 6));
    char *losses = losses_of(run);
    cr_assert(strstr(losses, "5 9\n") == NULL && strstr(losses, "\n6 ") != NULL, "%s", losses);
    free(losses);
    temp_folder_remove(&folder);
}

Test(run_folder, resuming_with_other_batches_or_past_the_end_is_refused)
{
    temp_folder folder = temp_folder_make();
    const char *run = temp_path(&folder, "run");
    check_ok(train_into(SMALL_MLP, "", run, NULL, 3));
    check_fails(train_into(SMALL_MLP, "train.batch=5", NULL, run, 9), EBB_EINVAL);
    check_message("train.batch");
    check_fails(train_into(SMALL_MLP, "", NULL, run, 3), EBB_EINVAL);
    check_message("train.steps");
    check_fails(train_into(SMALL_MLP, "model.hidden=[16]", NULL, run, 9), EBB_EFORMAT);
    check_fails(train_into(SMALL_MLP, "", NULL, temp_path(&folder, "nothing"), 9), EBB_EIO);
    temp_folder_remove(&folder);
    check_no_live_blocks();
}

Test(run_folder, a_folder_with_a_run_is_not_overwritten)
{
    temp_folder folder = temp_folder_make();
    const char *run = temp_path(&folder, "run");
    check_ok(train_into(SMALL_MLP, "", run, NULL, 2));
    check_fails(train_into(SMALL_MLP, "", run, NULL, 2), EBB_ESTATE);
    check_message("holds a run");
    temp_folder_remove(&folder);
}

Test(run_folder, a_folder_that_cannot_be_made_is_an_io_error)
{
    temp_folder folder = temp_folder_make();
    write_text(temp_path(&folder, "file"), "x");
    check_fails(train_into(SMALL_MLP, "", temp_path(&folder, "file/run"), NULL, 2), EBB_EIO);
    temp_folder_remove(&folder);
    check_no_live_blocks();
}

Test(run_folder, evaluating_a_run_gives_its_last_evaluation)
{
    temp_folder folder = temp_folder_make();
    ebb_config *config = config_of(SMALL_MLP, "");
    ebb_train_options options = default_options();
    ebb_train_result trained, evaluated;
    const char *run = temp_path(&folder, "run");
    options.out_dir = run;
    check_ok(ebb_train(&trained, config, &options));
    ebb_config_free(config);
    options.out_dir = NULL;
    check_ok(ebb_evaluate(&evaluated, run, &options));
    cr_assert(trained.eval_loss == evaluated.eval_loss &&
              trained.eval_accuracy == evaluated.eval_accuracy);
    check_fails(ebb_evaluate(&evaluated, temp_path(&folder, "no"), &options), EBB_EIO);
    temp_folder_remove(&folder);
    check_no_live_blocks();
}
