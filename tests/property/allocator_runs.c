#include "allocator_runs.h"

#include <stdio.h>
#include <string.h>

#include "support/support.h"

const allocator_model allocator_models[] = {
    { "{\"name\": \"gpt\", \"seed\": 1, \"model\": {\"type\": \"gpt\", \"layers\": 4, \"heads\": "
      "4, \"width\": 128, "
      "\"context\": 64, \"vocab\": 256}, \"data\": {\"type\": \"synthetic\", \"kind\": \"tokens\", "
      "\"items\": 60, "
      "\"eval_items\": 10}, \"train\": {\"steps\": 3, \"batch\": 16, \"eval_every\": 2, "
      "\"clip_norm\": 1.0}, "
      "\"memory\": {}}" },
    { "{\"name\": \"mlp\", \"seed\": 1, \"model\": {\"type\": \"mlp\", \"input\": 200, \"hidden\": "
      "[700, 900], "
      "\"output\": 10, \"activation\": \"relu\"}, \"data\": {\"type\": \"synthetic\", \"kind\": "
      "\"samples\", "
      "\"items\": 5000, \"eval_items\": 500}, \"train\": {\"steps\": 3, \"batch\": 800, "
      "\"accumulate\": 2}, "
      "\"memory\": {\"offload\": [\"relu\"]}}" },
};
const int n_allocator_models = sizeof allocator_models / sizeof *allocator_models;

ebb_config *allocator_config(int model, const char *checkpoint, const char *allocator)
{
    temp_folder folder = temp_folder_make();
    const char *path = temp_path(&folder, "config.json");
    char set_checkpoint[64], set_allocator[200];
    ebb_config *config = NULL;
    write_text(path, allocator_models[model].json);
    snprintf(set_checkpoint, sizeof set_checkpoint, "memory.checkpoint=%s", checkpoint);
    snprintf(set_allocator, sizeof set_allocator, "memory.allocator=%s", allocator);
    /* More than these runs need, and a fifth of it less: there is something to collect. */
    bool collects = strstr(allocator, "garbage_collection") != NULL;
    const char *sets[] = { set_checkpoint, set_allocator, "memory.limit=64MiB" };
    check_ok(ebb_config_load(&config, path, sets, collects ? 3 : 2));
    temp_folder_remove(&folder);
    return config;
}
