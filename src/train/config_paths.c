/* Data paths: from the working folder, else from the config's folder. */
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "core/mem.h"
#include "train/config.h"

static const char *const path_keys[] = { "path", "images", "labels", "eval_images", "eval_labels" };
enum { N_PATH_KEYS = sizeof(path_keys) / sizeof(path_keys[0]) };

typedef ebb_status path_fn(cJSON *item, const char *folder);

static ebb_status replace(cJSON *item, const char *text)
{
    return cJSON_SetValuestring(item, text) ? EBB_OK
                                            : ebb_fail(EBB_ENOMEM, "config: no memory for a path");
}

static ebb_status each_path(cJSON *root, path_fn *fn, const char *folder)
{
    cJSON *data = cJSON_GetObjectItemCaseSensitive(root, "data");
    for (int i = 0; i < N_PATH_KEYS; i++) {
        cJSON *item = cJSON_GetObjectItemCaseSensitive(data, path_keys[i]);
        if (!cJSON_IsString(item) || item->valuestring[0] == '\0') continue;
        EBB_TRY(fn(item, folder));
    }
    return EBB_OK;
}

ebb_status ebb__config_find(char *out, size_t bytes, const char *path, const char *folder)
{
    bool here = path[0] == '/' || folder[0] == '\0' || access(path, F_OK) == 0;
    int n = here ? -1 : snprintf(out, bytes, "%s/%s", folder, path);
    if (n >= 0 && (size_t)n < bytes && access(out, F_OK) == 0) return EBB_OK;
    n = snprintf(out, bytes, "%s", path);
    return (size_t)n < bytes ? EBB_OK : ebb_fail(EBB_EINVAL, "config: too long a path: \"%.80s...\"", path);
}

static ebb_status resolve(cJSON *item, const char *folder)
{
    char found[PATH_MAX];
    EBB_TRY(ebb__config_find(found, sizeof(found), item->valuestring, folder));
    return strcmp(found, item->valuestring) == 0 ? EBB_OK : replace(item, found);
}

static ebb_status make_absolute(cJSON *item, const char *folder)
{
    (void)folder;
    char full[PATH_MAX];
    return realpath(item->valuestring, full) ? replace(item, full) : EBB_OK;
}

ebb_status ebb__config_resolve_paths(cJSON *root, const char *folder)
{
    return each_path(root, resolve, folder);
}

ebb_status ebb__config_absolute_paths(cJSON *root) { return each_path(root, make_absolute, ""); }
