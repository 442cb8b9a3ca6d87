/* Memory runs out at every allocation of a run with a folder. */
#include <dirent.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "support/training.h"

static const char run_json[] =
    "{\"seed\":1,\"model\":{\"type\":\"gpt\",\"layers\":2,\"heads\":2,\"width\":8,\"context\":4,"
    "\"vocab\":12},"
    "\"data\":{\"type\":\"synthetic\",\"kind\":\"tokens\",\"items\":5,\"eval_items\":3,\"seed\":1,"
    "\"workers\":0},"
    "\"train\":{\"steps\":2,\"batch\":2,\"precision\":\"f16\",\"clip_norm\":1.0,\"save_every\":1,"
    "\"optimizer\":{\"type\":\"adamw\",\"lr\":1e-3}},"
    "\"memory\":{\"checkpoint\":\"every:1\",\"recompute\":[\"gelu\",\"cast\"],"
    "\"offload\":[\"linear\",\"layernorm\"]}}";

static bool is_known(const char *name)
{
    static const char *const known[] = { ".", "..", "config.json", "metrics.jsonl", "state.json",
                                         "weights.safetensors", "optimizer.safetensors" };
    for (size_t i = 0; i < sizeof(known) / sizeof(known[0]); i++)
        if (strcmp(name, known[i]) == 0) return true;
    return false;
}

static void check_whole_file(const char *path, const char *name)
{
    if (strstr(name, ".safetensors")) {
        ebb_safetensors *file = NULL;
        check_ok(ebb_safetensors_open(&file, path));
        ebb_safetensors_close(file);
    } else if (strcmp(name, "config.json") == 0) {
        ebb_config *config = NULL;
        check_ok(ebb_config_load(&config, path, NULL, 0));
        ebb_config_free(config);
    } else if (strcmp(name, "state.json") == 0) {
        size_t bytes;
        char *text = read_text(path, &bytes);
        cr_assert(bytes > 3 && text[0] == '{' && text[bytes - 2] == '}');
        free(text);
    }
}

/* What is in a run's folder is whole, and nothing is left of what was not. */
static void check_run_folder(const char *run, uint64_t n)
{
    DIR *dir = opendir(run);
    if (!dir) return;
    for (struct dirent *e; (e = readdir(dir));) {
        char path[1024];
        snprintf(path, sizeof(path), "%s/%s", run, e->d_name);
        cr_assert(is_known(e->d_name), "allocation %llu leaves %s", (unsigned long long)n, e->d_name);
        check_whole_file(path, e->d_name);
    }
    closedir(dir);
}

/* From the text of a config to the last file. */
static ebb_status whole_run(const char *config_path, const char *run)
{
    ebb_config *config = NULL;
    ebb_train_result result;
    ebb_train_options options = train_options(1);
    options.out_dir = run;
    options.hash_gradients = true;
    EBB_TRY(ebb_config_load(&config, config_path, NULL, 0));
    ebb_status st = ebb_train(&result, config, &options);
    ebb_config_free(config);
    return st;
}

/* Returns whether the n-th allocation of a run was reached. */
static bool run_with_fault(uint64_t n)
{
    temp_folder folder = temp_folder_make();
    const char *config = temp_path(&folder, "config.json"), *run = temp_path(&folder, "run");
    write_text(config, run_json);
    ebb_fault_arm(n);
    ebb_status st = whole_run(config, run);
    bool fired = ebb_fault_fired();
    ebb_fault_arm(0);
    cr_assert(st == (fired ? EBB_ENOMEM : EBB_OK), "allocation %llu: %s: %s", (unsigned long long)n,
              ebb_status_name(st), ebb_message());
    check_run_folder(run, n);
    temp_folder_remove(&folder);
    return fired;
}

Test(run_faults, every_allocation_of_a_run_may_fail)
{
    /* Each file is synced to the disk, thousands of times in this test: in memory that costs nothing. */
    if (access("/dev/shm", W_OK) == 0) setenv("TMPDIR", "/dev/shm", 0);
    check_no_live_blocks();
    uint64_t n = 1;
    for (; run_with_fault(n); n++)
        cr_assert(ebb_host_live_blocks() == 0, "allocation %llu: %lld host blocks are alive",
                  (unsigned long long)n, (long long)ebb_host_live_blocks());
    cr_assert(n > 1000, "a run makes more than %llu allocations", (unsigned long long)n);
}
