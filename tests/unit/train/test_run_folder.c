#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/file.h>
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

/* ---- one writer at a time ----------------------------------------------------------------- */

Test(run_folder, a_folder_in_use_is_refused_by_name)
{
    temp_folder folder = temp_folder_make();
    char run[300], other[300];
    snprintf(run, sizeof(run), "%s/run", folder.path);
    snprintf(other, sizeof(other), "%s/other", folder.path);
    check_ok(train_into(SMALL_MLP, "", run, NULL, 2));
    int fd = open(temp_path(&folder, "run/metrics.jsonl"), O_RDWR);
    cr_assert(fd >= 0 && flock(fd, LOCK_EX) == 0);
    check_fails(train_into(SMALL_MLP, "", run, NULL, 2), EBB_ESTATE);
    check_message("another run uses this folder");
    check_message(run);
    check_fails(train_into(SMALL_MLP, "", NULL, run, 4), EBB_ESTATE);
    check_message(run);
    check_fails(train_into(SMALL_MLP, "", other, run, 4), EBB_ESTATE);
    check_message(run);
    close(fd);
    check_ok(train_into(SMALL_MLP, "", other, run, 4));
    check_ok(train_into(SMALL_MLP, "", NULL, run, 4));
    temp_folder_remove(&folder);
    check_no_live_blocks();
}

typedef struct second_run { const char *path; ebb_status as_new, resumed; } second_run;

static ebb_status start_second(void *user, ebb_context *ctx, int64_t step)
{
    (void)ctx;
    second_run *s = user;
    if (step != 2) return EBB_OK;
    s->as_new = train_into(SMALL_MLP, "", s->path, NULL, 2);
    s->resumed = train_into(SMALL_MLP, "", NULL, s->path, 9);
    return EBB_OK;
}

Test(run_folder, a_run_keeps_its_folder_to_itself_while_it_goes)
{
    temp_folder folder = temp_folder_make();
    second_run second = { .path = temp_path(&folder, "run") };
    ebb_observer observer = { .user = &second, .on_step_begin = start_second };
    ebb_train_options options = default_options();
    options.out_dir = second.path;
    options.observer = &observer;
    train_with(SMALL_MLP, "train.save_every=1", &options);
    cr_assert(second.as_new == EBB_ESTATE && second.resumed == EBB_ESTATE);
    temp_folder_remove(&folder);
}

Test(run_folder, another_spelling_of_the_folder_is_the_same_folder)
{
    temp_folder folder = temp_folder_make();
    const char *run = temp_path(&folder, "run"), *spelled = temp_path(&folder, "./run/");
    check_ok(train_into(SMALL_MLP, "", run, NULL, 2));
    check_ok(train_into(SMALL_MLP, "", spelled, run, 4));
    ebb__run_state state;
    check_ok(ebb__run_state_load(&state, run));
    cr_assert_eq(state.step, 4);
    temp_folder_remove(&folder);
}

/* ---- losses and weights that are not finite ------------------------------------------------ */

static int64_t saved_step(const char *run)
{
    ebb__run_state state;
    check_ok(ebb__run_state_load(&state, run));
    return state.step;
}

/* Makes the last `bytes` bytes of a file of f32 NaN; all behind the header for SIZE_MAX. */
static void spoil(const char *path, size_t bytes)
{
    size_t size = 0;
    uint64_t header = 0;
    char *text = read_text(path, &size);
    memcpy(&header, text, sizeof(header));
    size_t data = size - 8 - (size_t)header;
    if (bytes > data) bytes = data;
    memset(text + size - bytes, 0xff, bytes);
    write_file(path, text, size);
    free(text);
}

static void check_bad_loss(const char *json, const char *sets)
{
    temp_folder folder = temp_folder_make();
    char run[300];
    snprintf(run, sizeof(run), "%s/run", folder.path);
    check_ok(train_into(json, sets, run, NULL, 1));
    spoil(temp_path(&folder, "run/weights.safetensors"), SIZE_MAX);
    check_fails(train_into(json, sets, NULL, run, 4), EBB_ESTATE);
    check_message("step 2: the loss is ");
    check_message("nan");
    cr_assert_eq(saved_step(run), 1);
    char *text = read_text(temp_path(&folder, "run/metrics.jsonl"), NULL);
    cr_assert(strstr(text, "{\"step\":2, \"loss\":null") && !strstr(text, "\"step\":3"), "%s",
              text);
    free(text);
    temp_folder_remove(&folder);
    check_no_live_blocks();
}

Test(run_folder, a_loss_that_is_not_finite_ends_the_run_and_keeps_the_save)
{
    check_bad_loss(SMALL_MLP, "train.save_every=1");
    check_bad_loss(SMALL_MLP, "train.save_every=1 train.accumulate=2");
    check_bad_loss(SMALL_GPT, "train.save_every=1"); /* clips gradients */
}

Test(run_folder, weights_that_are_not_finite_do_not_replace_a_save)
{
    temp_folder folder = temp_folder_make();
    char run[300];
    snprintf(run, sizeof(run), "%s/run", folder.path);
    check_ok(train_into(SMALL_MLP, "", run, NULL, 1));
    spoil(temp_path(&folder, "run/optimizer.safetensors"), 16);
    check_fails(train_into(SMALL_MLP, "", NULL, run, 2), EBB_ESTATE);
    check_message("it is not saved");
    cr_assert_eq(saved_step(run), 1);
    temp_folder_remove(&folder);
    check_no_live_blocks();
}

Test(run_folder, a_dry_run_has_no_loss_to_check)
{
    ebb_train_options options = default_options();
    options.device = "dry:cpu";
    cr_assert_eq(train_with(SMALL_MLP, "", &options).steps, 6);
}

/* ---- what is recorded, and what a resumed run must share ----------------------------------- */

Test(run_folder, the_config_records_the_steps_that_were_asked_for)
{
    temp_folder folder = temp_folder_make();
    const char *run = temp_path(&folder, "run"), *path = temp_path(&folder, "run/config.json");
    for (int64_t steps = 3; steps <= 5; steps += 2) {
        bool first = steps == 3;
        check_ok(train_into(SMALL_MLP, "", first ? run : NULL, first ? NULL : run, steps));
        cJSON *object = NULL;
        check_ok(ebb__json_load(&object, path));
        const cJSON *train = cJSON_GetObjectItemCaseSensitive(object, "train");
        cr_assert_eq(cJSON_GetObjectItemCaseSensitive(train, "steps")->valueint, (int)steps);
        cJSON_Delete(object);
    }
    temp_folder_remove(&folder);
}

Test(run_folder, resuming_with_another_seed_is_refused)
{
    temp_folder folder = temp_folder_make();
    const char *run = temp_path(&folder, "run");
    check_ok(train_into(SMALL_MLP, "", run, NULL, 2));
    check_fails(train_into(SMALL_MLP, "seed=4", NULL, run, 4), EBB_EINVAL);
    check_message("seed is 3, this config's is 4");
    check_ok(train_into(SMALL_MLP, "", NULL, run, 4));
    temp_folder_remove(&folder);
    check_no_live_blocks();
}

Test(run_folder, a_generator_offset_that_is_no_number_is_refused)
{
    static const char *const offsets[] = { "", "x", "12x", "-1", " 1", "+1", "0x10",
                                           "18446744073709551616", "99999999999999999999999" };
    temp_folder folder = temp_folder_make();
    char run[300];
    snprintf(run, sizeof(run), "%s/run", folder.path);
    check_ok(train_into(SMALL_MLP, "", run, NULL, 2));
    for (size_t i = 0; i < sizeof(offsets) / sizeof(offsets[0]); i++) {
        char text[256];
        snprintf(text, sizeof(text),
                 "{\"step\":2,\"loader_position\":2,\"items\":8,\"rng_offset\":\"%s\"}",
                 offsets[i]);
        write_text(temp_path(&folder, "run/state.json"), text);
        check_fails(train_into(SMALL_MLP, "", NULL, run, 4), EBB_EFORMAT);
        check_message("rng_offset");
    }
    write_text(temp_path(&folder, "run/state.json"),
               "{\"step\":2,\"loader_position\":2,\"items\":8,"
               "\"rng_offset\":\"18446744073709551615\"}");
    check_ok(train_into(SMALL_MLP, "", NULL, run, 4));
    temp_folder_remove(&folder);
    check_no_live_blocks();
}

Test(run_folder, a_state_that_is_wrong_names_file_and_key)
{
    temp_folder folder = temp_folder_make();
    char run[300], said[400];
    snprintf(run, sizeof(run), "%s/run", folder.path);
    check_ok(train_into(SMALL_MLP, "", run, NULL, 2));
    write_text(temp_path(&folder, "run/state.json"),
               "{\"step\":2,\"loader_position\":null,\"items\":8,\"rng_offset\":\"1\"}");
    check_fails(train_into(SMALL_MLP, "", NULL, run, 4), EBB_EINVAL);
    snprintf(said, sizeof(said), "%s/state.json: loader_position: expected a whole number", run);
    check_message(said);
    temp_folder_remove(&folder);
    check_no_live_blocks();
}

/* ---- stopping ------------------------------------------------------------------------------ */

static bool stop_after(void *user) { return --*(int *)user < 0; }

Test(run_folder, a_stopped_run_is_saved_and_evaluated_once_and_goes_on)
{
    temp_folder folder = temp_folder_make();
    const char *run = temp_path(&folder, "run");
    ebb_train_options options = default_options();
    int before_stop = 3;
    options.stop = stop_after;
    options.user = &before_stop;
    options.out_dir = run;
    ebb_train_result r = train_with(SMALL_MLP, "train.eval_every=3", &options);
    cr_assert(r.steps == 3 && r.has_eval);
    cr_assert_eq(saved_step(run), 3);
    char *text = read_text(temp_path(&folder, "run/metrics.jsonl"), NULL);
    const char *first = strstr(text, "eval_loss");
    cr_assert(first && !strstr(first + 1, "eval_loss"), "%s", text);
    free(text);
    check_ok(train_into(SMALL_MLP, "", NULL, run, 6));
    temp_folder_remove(&folder);
}

Test(run_folder, a_stop_before_the_first_step_is_an_error)
{
    ebb_config *config = config_of(SMALL_MLP, "");
    ebb_train_options options = default_options();
    ebb_train_result result;
    int before_stop = 0;
    options.stop = stop_after;
    options.user = &before_stop;
    check_fails(ebb_train(&result, config, &options), EBB_ESTATE);
    ebb_config_free(config);
    check_no_live_blocks();
}

Test(run_folder, a_stop_ends_an_evaluation_between_batches)
{
    temp_folder folder = temp_folder_make();
    const char *run = temp_path(&folder, "run");
    check_ok(train_into(SMALL_MLP, "", run, NULL, 2));
    ebb_train_options options = default_options();
    ebb_train_result result;
    int before_stop = 1;
    options.stop = stop_after;
    options.user = &before_stop;
    check_fails(ebb_evaluate(&result, run, &options), EBB_ESTATE);
    check_message("stopped after 1 of 2 batches");
    temp_folder_remove(&folder);
    check_no_live_blocks();
}
