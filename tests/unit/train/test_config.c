#include <stdlib.h>
#include <unistd.h>

#include "core/json.h"
#include "train_support.h"

static void check_refused(const char *json, const char *set, ebb_status status, const char *message)
{
    temp_folder folder = temp_folder_make();
    const char *path = temp_path(&folder, "config.json");
    ebb_config *config = NULL;
    write_text(path, json);
    check_fails(ebb_config_load(&config, path, &set, set ? 1 : 0), status);
    check_message(message);
    cr_assert(config == NULL);
    temp_folder_remove(&folder);
    check_no_live_blocks();
}

Test(config, unknown_keys_are_refused_with_path_and_nearest_key)
{
    check_refused(SMALL_MLP, "trian.steps=3", EBB_EINVAL,
                  "trian: unknown key; did you mean \"train\"");
    check_refused(SMALL_MLP, "train.step=3", EBB_EINVAL,
                  "train.step: unknown key; did you mean \"steps\"");
    check_refused(SMALL_MLP, "train.optimizer.lrr=3", EBB_EINVAL, "train.optimizer.lrr");
    check_refused(SMALL_MLP, "train.schedule.warmups=3", EBB_EINVAL, "train.schedule.warmups");
    check_refused(SMALL_MLP, "memory.limits=3", EBB_EINVAL, "did you mean \"limit\"");
}

Test(config, values_out_of_range_are_refused_with_their_path)
{
    check_refused(SMALL_MLP, "train.batch=0", EBB_EINVAL, "train.batch");
    check_refused(SMALL_MLP, "train.batch=1e300", EBB_EINVAL, "train.batch");
    check_refused(SMALL_MLP, "train.batch=\"4\"", EBB_EINVAL, "train.batch");
    check_refused(SMALL_MLP, "train.steps=1.5", EBB_EINVAL, "train.steps");
    check_refused(SMALL_MLP, "train.clip_norm=-1", EBB_EINVAL, "train.clip_norm");
    check_refused(SMALL_MLP, "train.clip_norm=true", EBB_EINVAL, "train.clip_norm");
    check_refused(SMALL_MLP, "seed=-1", EBB_EINVAL, "seed");
    check_refused(SMALL_MLP, "memory.checkpoint=sometimes", EBB_EINVAL, "memory.checkpoint");
    check_refused(SMALL_MLP, "memory.checkpoint=[[0,3]]", EBB_EINVAL, "memory.checkpoint[0]");
    check_refused(SMALL_MLP, "memory.recompute=[\"gellu\"]", EBB_EINVAL, "did you mean \"gelu\"");
    check_refused(SMALL_MLP, "memory.recompute=gelu", EBB_EINVAL, "memory.recompute");
    check_refused(SMALL_MLP, "memory.limit=lots", EBB_EINVAL, "memory.limit");
    check_refused(SMALL_MLP, "model=3", EBB_EINVAL, "model");
    check_refused(SMALL_MLP, "data=[]", EBB_EINVAL, "data");
    check_refused(SMALL_MLP, "train=[]", EBB_EINVAL, "train");
}

Test(config, offload_takes_none_all_or_a_list_of_ops)
{
    check_refused(SMALL_MLP, "memory.offload=host", EBB_EINVAL, "memory.offload: expected \"none\", \"all\", \"auto\" or a list");
    check_refused(SMALL_MLP, "memory.offload=[\"linaer\"]", EBB_EINVAL, "did you mean \"linear\"");
    check_refused(SMALL_MLP, "memory.host_limit=-1", EBB_EINVAL, "memory.host_limit");
}

Test(config, compress_takes_a_word_or_one_per_op)
{
    check_refused(SMALL_MLP, "memory.compress=fp8", EBB_EINVAL, "memory.compress: expected \"none\", \"bf16\", \"int8\" or");
    check_refused(SMALL_MLP, "memory.compress=[\"gelu\"]", EBB_EINVAL, "memory.compress: expected");
    check_refused(SMALL_MLP, "memory.compress={\"linaer\":\"bf16\"}", EBB_EINVAL, "did you mean \"linear\"");
    check_refused(SMALL_MLP, "memory.compress.gelu=none", EBB_EINVAL, "memory.compress.gelu: expected \"bf16\" or \"int8\"");
}

/* What is said of one op goes before what is said of all; twice the same is a mistake. */
Test(config, offload_and_compress_may_not_both_say_it_of_an_op)
{
    static const char *const good[] = { "memory.offload=all memory.compress={\"gelu\":\"bf16\"}",
                                        "memory.offload=[\"gelu\"] memory.compress=int8",
                                        "memory.offload=[\"gelu\"] memory.compress={\"linear\":\"int8\"}" };
    for (int i = 0; i < 3; i++) ebb_config_free(config_of(SMALL_MLP, good[i]));
    ebb_config *all = config_of(SMALL_MLP, "memory.offload=all");
    ebb_config *one = config_of(SMALL_MLP, "memory.offload=[\"linear\"]"), *none = NULL;
    check_fails(ebb_config_copy(&none, all, &(const char *){ "memory.compress=bf16" }, 1), EBB_EINVAL);
    check_message("memory.compress: memory.offload already says how the outputs of all ops are kept");
    check_fails(ebb_config_copy(&none, one, &(const char *){ "memory.compress.linear=int8" }, 1), EBB_EINVAL);
    check_message("memory.compress.linear: memory.offload already says how");
    ebb_config_free(all);
    ebb_config_free(one);
    check_no_live_blocks();
}

static void check_effective(const char *sets, const char *key, const char *value)
{
    ebb_config *config = config_of(SMALL_MLP, sets);
    char *text = ebb_config_print(config);
    cJSON *root = NULL;
    check_ok(ebb__json_parse(&root, text, strlen(text), NULL));
    char *have = cJSON_PrintUnformatted(cJSON_GetObjectItem(cJSON_GetObjectItem(root, "train"), key));
    cr_assert_str_eq(have, value, "%s: train.%s is %s", sets, key, have);
    cJSON_free(have);
    cJSON_Delete(root);
    free(text);
    ebb_config_free(config);
    check_no_live_blocks();
}

Test(config, f16_scales_the_loss_unless_told_otherwise)
{
    check_effective("", "loss_scale", "null");
    check_effective("train.precision=bf16", "loss_scale", "null");
    check_effective("train.precision=f16", "loss_scale",
                    "{\"init\":65536,\"growth\":2,\"backoff\":0.5,\"interval\":2000}");
    check_effective("train.precision=f16 train.loss_scale=null", "loss_scale", "null");
    check_effective("train.precision=f16 train.loss_scale=512", "loss_scale", "512");
    check_effective("train.loss_scale={\"growth\":4}", "loss_scale",
                    "{\"growth\":4,\"init\":65536,\"backoff\":0.5,\"interval\":2000}");
    check_refused(SMALL_MLP, "train.loss_scale=0", EBB_EINVAL, "train.loss_scale");
    check_refused(SMALL_MLP, "train.loss_scale={\"grow\":4}", EBB_EINVAL, "train.loss_scale.grow");
    check_refused(SMALL_MLP, "train.precision=fp16", EBB_EINVAL, "train.precision");
}

Test(config, step_options_that_cannot_be_are_refused)
{
    check_refused(SMALL_GPT, "train.fuse_optimizer=true", EBB_EINVAL, "clip_norm"); /* which is 1 */
    check_refused(SMALL_MLP, "train.loss_chunks=2", EBB_EUNSUPPORTED, "train.loss_chunks");
    check_refused(SMALL_GPT, "train.loss_chunks=0", EBB_EINVAL, "train.loss_chunks");
}

Test(config, allocator_settings_are_checked)
{
    check_refused(SMALL_MLP, "memory.allocator.gc=1", EBB_EINVAL, "unknown key \"gc\"");
    check_refused(SMALL_MLP, "memory.allocator.max_split_size_mb=20", EBB_EINVAL, "from 21");
    check_refused(SMALL_MLP, "memory.allocator=[]", EBB_EINVAL, "expected an object");
    check_refused(SMALL_MLP, "memory.allocator.garbage_collection_threshold=0.5", EBB_EINVAL, "memory.limit");
}

Test(config, text_that_is_not_json_is_refused_with_line_and_column)
{
    check_refused("{\n  \"seed\": 01\n}", NULL, EBB_EFORMAT, "config.json:2:");
    check_refused("{\"train\": {\"lr\": 1, \"lr\": 2}}", NULL, EBB_EFORMAT, "duplicate");
    check_refused("", NULL, EBB_EFORMAT, "config.json");
}

Test(config, a_folder_or_a_missing_file_is_an_io_error)
{
    ebb_config *config = NULL;
    check_fails(ebb_config_load(&config, "/", NULL, 0), EBB_EIO);
    check_fails(ebb_config_load(&config, "/no/such/config.json", NULL, 0), EBB_EIO);
}

static void check_printed(const char *sets, const char *path, const char *expected)
{
    ebb_config *config = config_of(SMALL_MLP, sets);
    char *text = ebb_config_print(config);
    cJSON *root = NULL;
    cr_assert(text != NULL);
    check_ok(ebb__json_parse(&root, text, strlen(text), "printed"));
    free(text);
    char parts[64];
    const cJSON *at = root;
    strcpy(parts, path);
    for (char *key = strtok(parts, "."); key; key = strtok(NULL, "."))
        at = cJSON_GetObjectItemCaseSensitive(at, key);
    char *value = cJSON_PrintUnformatted(at);
    cr_assert(value && strcmp(value, expected) == 0, "%s is %s, not %s", path, value, expected);
    cJSON_free(value);
    cJSON_Delete(root);
    ebb_config_free(config);
    check_no_live_blocks();
}

Test(config, printing_fills_in_every_default)
{
    check_printed("", "train.accumulate", "1");
    check_printed("", "train.precision", "\"f32\"");
    check_printed("", "train.clip_norm", "null");
    check_printed("", "train.optimizer.betas", "[0.9,0.999]");
    check_printed("train.optimizer={\"type\":\"sgd\"}", "train.optimizer.momentum", "0");
    check_printed("", "train.schedule.type", "\"constant\"");
    check_printed("", "memory.checkpoint", "\"none\"");
    check_printed("", "memory.limit", "null");
    check_printed("memory.limit=2MiB", "memory.limit", "\"2MiB\"");
    check_printed("", "model.activation", "\"relu\"");
    check_printed("", "data.prefetch", "2");
    check_printed("train.steps=9", "train.steps", "9");
}

Test(config, a_printed_config_reads_back_the_same)
{
    ebb_config *config = config_of(SMALL_GPT, "");
    char *first = ebb_config_print(config);
    ebb_config_free(config);
    config = config_of(first, "");
    char *second = ebb_config_print(config);
    cr_assert_str_eq(first, second);
    ebb_config_free(config);
    free(first);
    free(second);
}

Test(config, a_copy_takes_sets_before_defaults_are_derived)
{
    ebb_config *config = config_of(SMALL_GPT, ""), *copy = NULL;
    const char *sets[] = { "model.heads=4" };
    check_ok(ebb_config_copy(&copy, config, sets, 1));
    char *text = ebb_config_print(copy);
    cr_assert(strstr(text, "\"kv_heads\":\t4") != NULL, "%s", text);
    free(text);
    const char *bad[] = { "model.heads=5" };
    ebb_config *none = NULL;
    check_fails(ebb_config_copy(&none, config, bad, 1), EBB_EINVAL);
    ebb_config_free(config);
    ebb_config_free(copy);
    check_no_live_blocks();
}

Test(config, data_is_found_beside_the_config)
{
    temp_folder folder = temp_folder_make();
    write_text(temp_path(&folder, "text.txt"), "in the beginning was the word, and more");
    const char *path = temp_path(&folder, "config.json");
    write_text(
        path,
        "{\"model\":{\"type\":\"gpt\",\"layers\":1,\"heads\":1,\"width\":4,\"context\":4,\"vocab\":"
        "256},"
        "\"data\":{\"type\":\"text\",\"path\":\"text.txt\"},\"train\":{\"steps\":1,\"batch\":1}}");
    ebb_config *config = NULL;
    check_ok(ebb_config_load(&config, path, NULL, 0));
    ebb_train_options options = default_options();
    ebb_train_result result;
    check_ok(ebb_train(&result, config, &options));
    ebb_config_free(config);
    temp_folder_remove(&folder);
}

Test(config, a_failed_allocation_anywhere_leaves_nothing)
{
    temp_folder folder = temp_folder_make();
    const char *path = temp_path(&folder, "config.json"), *set = "memory.recompute=[\"gelu\"]";
    write_text(path, SMALL_GPT);
    bool done = false;
    for (uint64_t n = 1; !done && n < 5000; n++) {
        ebb_config *config = NULL;
        ebb_fault_arm(n);
        ebb_status st = ebb_config_load(&config, path, &set, 1);
        ebb_fault_arm(0);
        done = st == EBB_OK;
        cr_assert(done || st == EBB_ENOMEM, "allocation %llu: %s: %s", (unsigned long long)n,
                  ebb_status_name(st), ebb_message());
        ebb_config_free(config);
        check_no_live_blocks();
    }
    cr_assert(done);
    temp_folder_remove(&folder);
}
