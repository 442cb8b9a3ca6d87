#include "trace_rig.h"

#include "support/support.h"

static const char json[] =
    "{\"name\": \"rig\", \"seed\": 1, \"model\": {\"type\": \"mlp\", \"input\": 12, \"hidden\": "
    "[16], \"output\": 4, "
    "\"activation\": \"relu\"}, \"data\": {\"type\": \"synthetic\", \"kind\": \"samples\", "
    "\"items\": 32, "
    "\"eval_items\": 8}, \"train\": {\"steps\": 2, \"batch\": 8}, \"memory\": {}}";

ebb_config *rig_config(void)
{
    temp_folder folder = temp_folder_make();
    const char *path = temp_path(&folder, "config.json");
    ebb_config *config = NULL;
    write_text(path, json);
    check_ok(ebb_config_load(&config, path, NULL, 0));
    temp_folder_remove(&folder);
    return config;
}

ebb_status rig_trace(ebb_trace **out, const ebb_config *config, const char *device, int64_t first,
                     int64_t steps, size_t max_events)
{
    ebb_train_options train = {
        .struct_bytes = sizeof train, .device = device, .threads = 1, .steps = steps
    };
    ebb_trace_options options = { .struct_bytes = sizeof options,
                                  .first_step = first,
                                  .max_events = max_events };
    return ebb_trace_train(out, NULL, config, &train, &options);
}
