#include <stdlib.h>
#include <string.h>

#include "cli.h"

int cli_load_config(ebb_config **out, const cli_args *args)
{
    ebb_status st = ebb_config_load(out, args->operands[0], args->sets, args->n_sets);
    return st == EBB_OK ? CLI_DONE : cli_fail_config(args, st);
}

/* The key of the data file that `message` tells of; NULL: none. */
static const char *data_key(const cJSON *root, const char *message)
{
    const cJSON *data = cJSON_GetObjectItemCaseSensitive(root, "data");
    for (const cJSON *item = data ? data->child : NULL; item; item = item->next) {
        if (!cJSON_IsString(item) || strcmp(item->string, "type") == 0) continue;
        if (item->valuestring[0] && strstr(message, item->valuestring)) return item->string;
    }
    return NULL;
}

int cli_fail_run(const cli_args *args, ebb_status status, const ebb_config *config)
{
    char key[128] = "";
    char *text = status == EBB_EIO ? ebb_config_print(config) : NULL;
    cJSON *root = text ? cJSON_Parse(text) : NULL;
    const char *found = strncmp(ebb_message(), "data.", 5) ? data_key(root, ebb_message()) : NULL;
    if (found) snprintf(key, sizeof(key), "data.%s", found);
    cJSON_Delete(root);
    free(text);
    return key[0] ? cli_fail_about(args, status, key) : cli_fail(args, status);
}

ebb_train_options cli_train_options(const cli_args *args)
{
    return (ebb_train_options){
        .struct_bytes = sizeof(ebb_train_options),
        .device = args->device,
        .threads = (int)args->threads,
        .steps = args->steps,
        .out_dir = args->out,
        .resume_dir = args->resume,
        .check_recompute = args->check_recompute,
    };
}
