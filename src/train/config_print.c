/* The effective config: what the user wrote, and every default. */
#include <stdlib.h>
#include <string.h>

#include "core/mem.h"
#include "nn/config.h"
#include "nn/fields.h"
#include "train/config.h"

static const char *const decay_names[] = { "all", "matrices", "none" }; /* by ebb_decay_rule */
static const char *const schedule_names[] = { "constant", "linear", "cosine" }; /* by kind */

/* The object under `key`, made where it is absent. */
static ebb_status object_at(cJSON **out, cJSON *parent, const char *key)
{
    cJSON *object = cJSON_GetObjectItemCaseSensitive(parent, key);
    if (!object) {
        EBB_TRY(ebb__fields_add(parent, key, cJSON_CreateObject()));
        object = cJSON_GetObjectItemCaseSensitive(parent, key);
    }
    *out = object;
    return EBB_OK;
}

static ebb_status add_number(cJSON *object, const char *key, double value)
{
    return ebb__fields_add(object, key, cJSON_CreateNumber(value));
}

static ebb_status add_text(cJSON *object, const char *key, const char *value)
{
    return ebb__fields_add(object, key, cJSON_CreateString(value));
}

static ebb_status fill_optimizer(cJSON *train, const ebb_optim_options *o)
{
    cJSON *object = NULL;
    EBB_TRY(object_at(&object, train, "optimizer"));
    EBB_TRY(add_text(object, "type", o->kind == EBB_ADAMW ? "adamw" : "sgd"));
    EBB_TRY(add_number(object, "lr", o->lr));
    if (o->kind == EBB_ADAMW) {
        double betas[2] = { o->beta1, o->beta2 };
        EBB_TRY(ebb__fields_add(object, "betas", cJSON_CreateDoubleArray(betas, 2)));
        EBB_TRY(add_number(object, "eps", o->eps));
    } else {
        EBB_TRY(add_number(object, "momentum", o->momentum));
        EBB_TRY(ebb__fields_add(object, "nesterov", cJSON_CreateBool(o->nesterov)));
    }
    EBB_TRY(add_number(object, "weight_decay", o->weight_decay));
    return add_text(object, "decay", decay_names[o->decay]);
}

static ebb_status fill_schedule(cJSON *train, const ebb_schedule *s)
{
    cJSON *object = NULL;
    EBB_TRY(object_at(&object, train, "schedule"));
    EBB_TRY(add_text(object, "type", schedule_names[s->kind]));
    EBB_TRY(add_number(object, "warmup", (double)s->warmup));
    return s->kind == EBB_SCHED_CONSTANT ? EBB_OK : add_number(object, "min_lr", s->min_lr);
}

static ebb_status fill_loss_scale(cJSON *train, const ebb_loss_scale *s)
{
    const cJSON *given = cJSON_GetObjectItemCaseSensitive(train, "loss_scale");
    cJSON *object = NULL;
    if (given && !cJSON_IsObject(given)) return EBB_OK;
    if (s->scale == 0) return ebb__fields_add(train, "loss_scale", cJSON_CreateNull());
    EBB_TRY(object_at(&object, train, "loss_scale"));
    EBB_TRY(add_number(object, "init", s->scale));
    EBB_TRY(add_number(object, "growth", s->growth));
    EBB_TRY(add_number(object, "backoff", s->backoff));
    return add_number(object, "interval", (double)s->interval);
}

static ebb_status fill_train(cJSON *root, const ebb_config *config)
{
    cJSON *train = NULL;
    EBB_TRY(object_at(&train, root, "train"));
    EBB_TRY(ebb__fields_fill(train, &config->train, ebb__train_fields, ebb__n_train_fields));
    EBB_TRY(ebb__fields_add(train, "clip_norm", cJSON_CreateNull()));
    EBB_TRY(fill_loss_scale(train, &config->loss_scale));
    EBB_TRY(fill_optimizer(train, &config->optim));
    return fill_schedule(train, &config->schedule);
}

static ebb_status fill_memory(cJSON *root, const ebb_config *config)
{
    cJSON *memory = NULL;
    EBB_TRY(object_at(&memory, root, "memory"));
    EBB_TRY(ebb__fields_fill(memory, &config->memory, ebb__memory_fields, ebb__n_memory_fields));
    EBB_TRY(add_text(memory, "checkpoint", "none"));
    EBB_TRY(ebb__fields_add(memory, "recompute", cJSON_CreateArray()));
    EBB_TRY(add_text(memory, "offload", "none"));
    EBB_TRY(add_text(memory, "compress", "none"));
    return ebb__fields_add(memory, "allocator", cJSON_CreateObject());
}

static ebb_status fill_data(cJSON *root, const ebb_config *config)
{
    cJSON *data = cJSON_GetObjectItemCaseSensitive(root, "data");
    EBB_TRY(add_number(data, "workers", config->workers));
    return add_number(data, "prefetch", config->prefetch);
}

static ebb_status fill(cJSON *root, const ebb_config *config)
{
    EBB_TRY(ebb__fields_fill(root, &config->top, ebb__top_fields, ebb__n_top_fields));
    EBB_TRY(ebb__model_config_fill(cJSON_GetObjectItemCaseSensitive(root, "model")));
    EBB_TRY(fill_data(root, config));
    EBB_TRY(fill_train(root, config));
    return fill_memory(root, config);
}

ebb_status ebb__config_tree(cJSON **out, const ebb_config *config)
{
    cJSON *root = cJSON_Duplicate(config->root, true);
    if (!root) return ebb_fail(EBB_ENOMEM, "config: no memory for a copy");
    ebb_status st = fill(root, config);
    if (st == EBB_OK)
        *out = root;
    else
        cJSON_Delete(root);
    return st;
}

char *ebb_config_print(const ebb_config *config)
{
    cJSON *root = NULL;
    if (ebb__config_tree(&root, config) != EBB_OK) return NULL;
    char *text = cJSON_Print(root);
    char *copy = text ? strdup(text) : NULL; /* the caller free()s it */
    cJSON_free(text);
    cJSON_Delete(root);
    return copy;
}
