/* data/dataset.c: opens the kind of dataset that a config names. */
#include "data/dataset.h"

#include <string.h>

#include "core/mem.h"

static const ebb__dataset_kind *const kinds[] = { &ebb__dataset_idx, &ebb__dataset_text,
                                                  &ebb__dataset_synthetic };
enum { N_KINDS = sizeof kinds / sizeof kinds[0] };

static ebb_status unknown_kind(const char *type)
{
    const char *names[N_KINDS];
    for (int i = 0; i < N_KINDS; i++) names[i] = kinds[i]->name;
    const char *near = ebb__nearest(type, names, N_KINDS);
    return ebb_fail(EBB_EINVAL, "data.type: \"%.64s\" is not one of idx, text, synthetic%s%s%s",
                    type, near ? "; did you mean \"" : "", near ? near : "", near ? "\"?" : "");
}

static ebb_status find_kind(const ebb__dataset_kind **out, const cJSON *object, bool tokens)
{
    if (!cJSON_IsObject(object)) return ebb_fail(EBB_EINVAL, "data: must be an object");
    const cJSON *type = cJSON_GetObjectItemCaseSensitive(object, "type");
    if (!type) return ebb_fail(EBB_EINVAL, "data.type: is missing; one of idx, text, synthetic");
    if (!cJSON_IsString(type))
        return ebb_fail(EBB_EINVAL, "data.type: must be a string: idx, text or synthetic");
    for (int i = 0; i < N_KINDS; i++) {
        if (strcmp(kinds[i]->name, type->valuestring)) continue;
        *out = kinds[i];
        if (tokens ? kinds[i]->gives_tokens : kinds[i]->gives_samples) return EBB_OK;
        return ebb_fail(EBB_EINVAL, "data.type: \"%s\" gives %s, but the model takes %s",
                        kinds[i]->name, tokens ? "samples" : "tokens",
                        tokens ? "tokens" : "samples");
    }
    return unknown_kind(type->valuestring);
}

static ebb_status open_parsed(ebb_dataset **out, const cJSON *object, const ebb_dataset_info *info,
                              uint64_t seed)
{
    const ebb__dataset_kind *kind = NULL;
    ebb_status st = find_kind(&kind, object, info->tokens);
    if (st != EBB_OK) return st;
    ebb_dataset *data = ebb__calloc(1, sizeof *data);
    if (!data) return EBB_ENOMEM;
    data->kind = kind;
    data->info = *info;
    data->seed = seed;
    st = kind->open(data, object);
    if (st == EBB_OK) *out = data;
    else ebb_dataset_close(data);
    return st;
}

ebb_status ebb_dataset_open(ebb_dataset **out, const char *data_json, bool tokens, int64_t width,
                            int64_t classes, uint64_t seed)
{
    if (!out || !data_json) return ebb_fail(EBB_EINVAL, "dataset_open: an argument is NULL");
    if (width < 1 || width > INT32_MAX || classes < 1 || classes > INT32_MAX)
        return ebb_fail(EBB_EINVAL,
                        "dataset_open: width %lld and classes %lld must lie in [1, 2^31)",
                        (long long)width, (long long)classes);
    cJSON *object = NULL;
    ebb_status st = ebb__json_parse(&object, data_json, strlen(data_json), "data");
    if (st != EBB_OK) return st;
    st = open_parsed(out, object,
                     &(ebb_dataset_info){ .tokens = tokens, .width = width, .classes = classes },
                     seed);
    cJSON_Delete(object);
    return st;
}

ebb_status ebb_dataset_load(ebb_dataset *data)
{
    if (data->loaded) return EBB_OK;
    ebb_status st = data->kind->load ? data->kind->load(data) : EBB_OK;
    data->loaded = st == EBB_OK;
    return st;
}

void ebb_dataset_close(ebb_dataset *data)
{
    if (!data) return;
    if (data->kind->close) data->kind->close(data);
    ebb__free(data);
}

ebb_dataset_info ebb_dataset_info_get(const ebb_dataset *data)
{
    return data->info;
}
