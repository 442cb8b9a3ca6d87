/* What a plan depends on, as one number. */
#include <stdlib.h>
#include <string.h>

#include "core/mem.h"
#include "core/sha256.h"
#include "nn/config.h"
#include "train/config.h"

static int by_key(const void *a, const void *b)
{
    return strcmp((*(const cJSON *const *)a)->string, (*(const cJSON *const *)b)->string);
}

static ebb_status add_item(ebb__sha256 *h, const cJSON *item)
{
    char *text = cJSON_PrintUnformatted(item);
    if (!text) return EBB_ENOMEM;
    ebb__sha256_add(h, item->string, strlen(item->string) + 1);
    ebb__sha256_add(h, text, strlen(text) + 1);
    cJSON_free(text);
    return EBB_OK;
}

static ebb_status add_sorted(ebb__sha256 *h, const cJSON *object)
{
    size_t n = (size_t)cJSON_GetArraySize(object), i = 0;
    const cJSON **items = ebb__calloc(n + 1, sizeof(*items));
    if (!items) return EBB_ENOMEM;
    for (const cJSON *item = object->child; item; item = item->next) items[i++] = item;
    qsort(items, n, sizeof(*items), by_key);
    ebb_status st = EBB_OK;
    for (i = 0; i < n && st == EBB_OK; i++) st = add_item(h, items[i]);
    ebb__free(items);
    return st;
}

ebb_status ebb__config_sha256(char out[65], const ebb_config *config)
{
    cJSON *model = cJSON_Duplicate(config->top.model, true);
    if (!model) return ebb_fail(EBB_ENOMEM, "config: no memory for a copy");
    ebb__sha256 h;
    ebb__sha256_init(&h);
    ebb_status st = ebb__model_config_fill(model);
    if (st == EBB_OK) st = add_sorted(&h, model);
    cJSON_Delete(model);
    int64_t train[3] = { config->train.batch, config->train.accumulate, config->train.precision };
    ebb__sha256_add(&h, train, sizeof(train));
    ebb__sha256_hex(&h, out);
    return st;
}
