/* Paths of data and of a plan: from the working folder, else from the config's folder. */
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "core/mem.h"
#include "train/config.h"

static const char *const path_keys[] = { "path", "images", "labels", "eval_images", "eval_labels" };
enum { N_PATH_KEYS = sizeof(path_keys) / sizeof(path_keys[0]) };

static const char plan_word[] = "plan:";

/* Sets `out` to what stands for the file at `path`; leaves it where there is nothing better. */
typedef void path_fn(char out[PATH_MAX], const char *path, const char *folder);

/* From the working folder, else from `folder`. */
static void find(char out[PATH_MAX], const char *path, const char *folder)
{
    if (path[0] == '/' || folder[0] == '\0' || access(path, F_OK) == 0) return;
    char there[PATH_MAX];
    int n = snprintf(there, sizeof(there), "%s/%s", folder, path);
    if (n >= 0 && (size_t)n < sizeof(there) && access(there, F_OK) == 0) memcpy(out, there, (size_t)n + 1);
}

static void make_absolute(char out[PATH_MAX], const char *path, const char *folder)
{
    (void)folder;
    char full[PATH_MAX];
    if (realpath(path, full)) memcpy(out, full, sizeof(full));
}

/* `item` is a string: `word`, then a path. */
static ebb_status replace(cJSON *item, const char *word, path_fn *fn, const char *folder)
{
    char text[PATH_MAX + sizeof(plan_word)], *path = text + strlen(word);
    path[0] = '\0';
    fn(path, item->valuestring + strlen(word), folder);
    if (path[0] == '\0') return EBB_OK;
    memcpy(text, word, strlen(word));
    return cJSON_SetValuestring(item, text) ? EBB_OK : ebb_fail(EBB_ENOMEM, "config: no memory for a path");
}

static ebb_status each_path(cJSON *root, path_fn *fn, const char *folder)
{
    cJSON *data = cJSON_GetObjectItemCaseSensitive(root, "data");
    for (int i = 0; i < N_PATH_KEYS; i++) {
        cJSON *item = cJSON_GetObjectItemCaseSensitive(data, path_keys[i]);
        if (cJSON_IsString(item) && item->valuestring[0]) EBB_TRY(replace(item, "", fn, folder));
    }
    cJSON *memory = cJSON_GetObjectItemCaseSensitive(root, "memory");
    cJSON *checkpoint = cJSON_GetObjectItemCaseSensitive(memory, "checkpoint");
    size_t length = strlen(plan_word);
    bool plan = cJSON_IsString(checkpoint) && strncmp(checkpoint->valuestring, plan_word, length) == 0;
    return plan && checkpoint->valuestring[length] ? replace(checkpoint, plan_word, fn, folder) : EBB_OK;
}

ebb_status ebb__config_resolve_paths(cJSON *root, const char *folder) { return each_path(root, find, folder); }

ebb_status ebb__config_absolute_paths(cJSON *root) { return each_path(root, make_absolute, ""); }
