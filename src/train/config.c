#include "train/config.h"

#include <limits.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "alloc/options.h"
#include "checkpoint/plan_file.h"
#include "checkpoint/policy.h"
#include "core/mem.h"

/* ---- tables ------------------------------------------------------------------------------ */

static const char *const precisions[] = { "f32", "f64", "bf16", "f16", NULL };
/* By precision: the dtype that parameters have, and that of autocast (f32: off). */
static const struct { ebb_dtype parameters, autocast; } dtypes[] = {
    { EBB_F32, EBB_F32 }, { EBB_F64, EBB_F32 }, { EBB_F32, EBB_BF16 }, { EBB_F32, EBB_F16 },
};

#define MAX_COUNT 1e12

/* clang-format off */
#define FIELD(name, type, member, ...) { .key = name, .offset = offsetof(type, member), __VA_ARGS__ }
#define TOP(name, member, ...) FIELD(name, ebb__top_keys, member, __VA_ARGS__)
#define TRAIN(name, member, ...) FIELD(name, ebb__train_keys, member, __VA_ARGS__)
#define MEMORY(name, member, ...) FIELD(name, ebb__memory_keys, member, __VA_ARGS__)
#define TEXT(size) .kind = EBB__STRING, .bytes = size
#define INT(low, high) .kind = EBB__INT, .min = low, .max = high
#define CHOICE(words) .kind = EBB__CHOICE, .choices = words
#define JSON .kind = EBB__JSON
#define BOOL .kind = EBB__BOOL

const ebb__field ebb__top_fields[] = {
    TOP("$schema", schema, TEXT(EBB__SCHEMA_BYTES)),
    TOP("name", name, TEXT(EBB__NAME_BYTES)),
    TOP("seed", seed, INT(0, 9007199254740991.0)),
    TOP("model", model, JSON, .required = true),
    TOP("data", data, JSON, .required = true),
    TOP("train", train, JSON),
    TOP("memory", memory, JSON),
};
const int ebb__n_top_fields = sizeof(ebb__top_fields) / sizeof(ebb__top_fields[0]);

const ebb__field ebb__train_fields[] = {
    TRAIN("steps", steps, INT(1, MAX_COUNT)),
    TRAIN("batch", batch, INT(1, 1e9)),
    TRAIN("accumulate", accumulate, INT(1, 1e9)),
    TRAIN("precision", precision, CHOICE(precisions)),
    TRAIN("loss_scale", loss_scale, JSON),
    TRAIN("optimizer", optimizer, JSON),
    TRAIN("schedule", schedule, JSON),
    TRAIN("clip_norm", clip_json, JSON),
    TRAIN("eval_every", eval_every, INT(0, MAX_COUNT)),
    TRAIN("save_every", save_every, INT(0, MAX_COUNT)),
    TRAIN("fuse_optimizer", fuse_optimizer, BOOL),
    TRAIN("capture", capture, BOOL),
    TRAIN("loss_chunks", loss_chunks, INT(1, 65536)),
};
const int ebb__n_train_fields = sizeof(ebb__train_fields) / sizeof(ebb__train_fields[0]);

const ebb__field ebb__memory_fields[] = {
    MEMORY("checkpoint", checkpoint, JSON),
    MEMORY("recompute", recompute, JSON),
    MEMORY("offload", offload, JSON),
    MEMORY("compress", compress, JSON),
    MEMORY("limit", limit_bytes, .kind = EBB__SIZE),
    MEMORY("host_limit", host_limit_bytes, .kind = EBB__SIZE),
    MEMORY("offset_plan", offset_plan, BOOL),
    MEMORY("allocator", allocator, JSON),
};
const int ebb__n_memory_fields = sizeof(ebb__memory_fields) / sizeof(ebb__memory_fields[0]);
/* clang-format on */

/* ---- train ------------------------------------------------------------------------------- */

static ebb_status read_clip(ebb__train_keys *c)
{
    const cJSON *clip = c->clip_json;
    if (!clip || cJSON_IsNull(clip)) return EBB_OK;
    if (!cJSON_IsNumber(clip) || !(clip->valuedouble >= 0) || clip->valuedouble > 1e30)
        return ebb_fail(EBB_EINVAL,
                        "train.clip_norm: expected a number from 0, or null (0 and null: no "
                        "clipping)");
    c->clip_norm = clip->valuedouble;
    return EBB_OK;
}

static ebb_status check_step_options(const ebb_config *config)
{
    const ebb__train_keys *c = &config->train;
    const ebb_model_info *model = &config->model;
    if (c->fuse_optimizer && c->clip_norm > 0)
        return ebb_fail(EBB_EINVAL,
                        "train.fuse_optimizer: with train.clip_norm no gradient can be applied before the "
                        "last one is known, as the norm is over all of them; set clip_norm to null");
    if (c->fuse_optimizer && config->loss_scale.scale > 0)
        return ebb_fail(EBB_EINVAL,
                        "train.fuse_optimizer: with train.loss_scale%s no gradient can be applied before the last "
                        "one is known, as one that is inf or NaN skips the whole step; set loss_scale to null",
                        c->loss_scale ? "" : " (on by default in f16)");
    if (c->loss_chunks > 1 && strcmp(model->type, "gpt") != 0)
        return ebb_fail(EBB_EUNSUPPORTED, "train.loss_chunks: %lld; only a gpt's loss comes in chunks",
                        (long long)c->loss_chunks);
    return EBB_OK;
}

/* The text of `value`, or "{}" where it is absent.  Owner: the caller; cJSON_free(). */
static char *text_of(const cJSON *value)
{
    return value ? cJSON_PrintUnformatted(value) : ebb__strdup("{}");
}

static ebb_status read_optimizer(ebb_config *config)
{
    char *text = text_of(config->train.optimizer);
    if (!text) return EBB_ENOMEM;
    config->optim.struct_bytes = sizeof(config->optim);
    ebb_status st = ebb_optim_options_parse(&config->optim, text, "train.optimizer");
    cJSON_free(text);
    return st;
}

/* f16 is scaled unless the config says otherwise: its smallest number is 6e-8. */
static ebb_status read_loss_scale(ebb_config *config)
{
    const cJSON *value = config->train.loss_scale;
    bool by_default = !value && ebb__config_autocast(config) == EBB_F16;
    char *text = value || by_default ? text_of(value) : ebb__strdup("null");
    if (!text) return EBB_ENOMEM;
    ebb_status st = ebb_loss_scale_parse(&config->loss_scale, text, "train.loss_scale");
    cJSON_free(text);
    return st;
}

static ebb_status read_schedule(ebb_config *config)
{
    ebb_schedule *s = &config->schedule;
    *s = (ebb_schedule){ .kind = EBB_SCHED_CONSTANT };
    if (config->train.schedule) {
        char *text = text_of(config->train.schedule);
        if (!text) return EBB_ENOMEM;
        ebb_status st = ebb_schedule_parse(s, text, "train.schedule");
        cJSON_free(text);
        if (st != EBB_OK) return st;
    }
    s->lr = config->optim.lr;
    s->steps = config->train.steps;
    return EBB_OK;
}

static ebb_status read_train(ebb_config *config)
{
    ebb__train_keys *c = &config->train;
    *c = (ebb__train_keys){ .steps = 200, .batch = 16, .accumulate = 1, .loss_chunks = 1 };
    if (config->top.train)
        EBB_TRY(
            ebb__json_read(c, config->top.train, "train", ebb__train_fields, ebb__n_train_fields));
    EBB_TRY(read_clip(c));
    EBB_TRY(read_loss_scale(config));
    EBB_TRY(check_step_options(config));
    EBB_TRY(read_optimizer(config));
    return read_schedule(config);
}

/* ---- memory ------------------------------------------------------------------------------ */

static ebb_status read_plan(ebb_config *config, const char *path)
{
    char sha256[65];
    if (path[0] == '\0')
        return ebb_fail(EBB_EINVAL, "memory.checkpoint: \"plan:\": expected \"plan:FILE\", such as \"plan:plan.json\"");
    EBB_TRY(ebb__config_sha256(sha256, config));
    EBB_TRY(ebb__plan_load(&config->own_plan, path, config->model.blocks, sha256));
    config->plan = config->own_plan;
    return EBB_OK;
}

static ebb_status read_budget(ebb_config *config, const char *text)
{
    if (ebb_size_parse(&config->budget_bytes, text) == EBB_OK && config->budget_bytes > 0) return EBB_OK;
    return ebb_fail(EBB_EINVAL,
                    "memory.checkpoint: \"budget:%.40s\": expected \"budget:SIZE\", such as \"budget:512MiB\"", text);
}

static ebb_status read_checkpoint(ebb_config *config)
{
    if (!config->memory.checkpoint) return EBB_OK;
    int blocks = config->model.blocks;
    const char *word = cJSON_GetStringValue(config->memory.checkpoint);
    if (word && strncmp(word, "plan:", 5) == 0) return read_plan(config, word + 5);
    if (word && strncmp(word, "budget:", 7) == 0) return read_budget(config, word + 7);
    config->ranges = ebb__calloc((size_t)blocks, sizeof(*config->ranges));
    char *text = text_of(config->memory.checkpoint);
    if (!config->ranges || !text) {
        cJSON_free(text);
        return EBB_ENOMEM;
    }
    ebb_status st =
        ebb_checkpoint_parse(config->ranges, &config->n_ranges, blocks, text, "memory.checkpoint");
    cJSON_free(text);
    return st;
}

/* `where`: the list's element or the object's key, for messages. */
static ebb_status check_op_name(const char *name, const char *where)
{
    const ebb_op *op = NULL;
    return ebb__op_find_named(&op, name, where);
}

/* An op's name in a list; what it is said to be is borrowed from `item`. */
static ebb_status read_op(const char **name, const cJSON *item, const char *path, int i)
{
    char where[64];
    snprintf(where, sizeof(where), "%s[%d]", path, i);
    if (!cJSON_IsString(item)) return ebb_fail(EBB_EINVAL, "%s: expected an op's name", where);
    EBB_TRY(check_op_name(item->valuestring, where));
    *name = item->valuestring;
    return EBB_OK;
}

static ebb_status read_recompute(ebb_config *config)
{
    const cJSON *list = config->memory.recompute;
    if (!list) return EBB_OK;
    if (!cJSON_IsArray(list))
        return ebb_fail(EBB_EINVAL, "memory.recompute: expected a list of op names, such as [\"gelu\"]");
    config->recompute = ebb__calloc((size_t)cJSON_GetArraySize(list), sizeof(*config->recompute));
    if (!config->recompute) return EBB_ENOMEM;
    for (const cJSON *item = list->child; item; item = item->next, config->n_recompute++)
        EBB_TRY(read_op(&config->recompute[config->n_recompute], item, "memory.recompute", config->n_recompute));
    return EBB_OK;
}

/* ---- offload and compress: a saver per op ------------------------------------------------- */

/* memory.offload is read first, so an op that is there already is offloaded.  The same op twice in
 * one list means what it says once. */
static ebb_status add_saver(ebb_config *config, const char *op, ebb_saver saver, const char *where)
{
    for (int i = 0; i < config->n_savers; i++) {
        const ebb__config_saver *known = &config->savers[i];
        if (strcmp(known->op, op) != 0) continue;
        if (known->saver == saver) return EBB_OK;
        return ebb_fail(EBB_EINVAL, "%s: memory.offload already says how the outputs of %s%s%s are kept", where,
                        *op == '*' ? "all ops" : "\"", *op == '*' ? "" : op, *op == '*' ? "" : "\"");
    }
    config->savers[config->n_savers++] = (ebb__config_saver){ op, saver };
    return EBB_OK;
}

static ebb_status read_offload(ebb_config *config)
{
    const cJSON *value = config->memory.offload;
    const char *word = cJSON_GetStringValue(value), *op = NULL;
    if (!value || (word && strcmp(word, "none") == 0)) return EBB_OK;
    config->may_offload = word && strcmp(word, "auto") == 0;
    if (config->may_offload) return EBB_OK;
    if (word && strcmp(word, "all") == 0) return add_saver(config, "*", EBB_SAVER_OFFLOAD, "memory.offload");
    if (!cJSON_IsArray(value))
        return ebb_fail(EBB_EINVAL,
                        "memory.offload: expected \"none\", \"all\", \"auto\" or a list of op names, such as "
                        "[\"gelu\"]");
    int i = 0;
    for (const cJSON *item = value->child; item; item = item->next, i++) {
        EBB_TRY(read_op(&op, item, "memory.offload", i));
        EBB_TRY(add_saver(config, op, EBB_SAVER_OFFLOAD, "memory.offload"));
    }
    return EBB_OK;
}

/* EBB_SAVER_KEEP for any other word. */
static ebb_saver rounding_saver(const cJSON *value)
{
    const char *word = cJSON_GetStringValue(value);
    if (word && strcmp(word, "bf16") == 0) return EBB_SAVER_BF16;
    return word && strcmp(word, "int8") == 0 ? EBB_SAVER_INT8 : EBB_SAVER_KEEP;
}

static ebb_status read_compress(ebb_config *config)
{
    const cJSON *value = config->memory.compress;
    const char *word = cJSON_GetStringValue(value);
    if (!value || (word && strcmp(word, "none") == 0)) return EBB_OK;
    config->rounds = true;
    if (rounding_saver(value) != EBB_SAVER_KEEP)
        return add_saver(config, "*", rounding_saver(value), "memory.compress");
    if (!cJSON_IsObject(value))
        return ebb_fail(EBB_EINVAL,
                        "memory.compress: expected \"none\", \"bf16\", \"int8\" or an object that says it per "
                        "op, such as {\"gelu\": \"int8\"}");
    config->rounds = value->child != NULL;
    for (const cJSON *item = value->child; item; item = item->next) {
        char where[128];
        snprintf(where, sizeof(where), "memory.compress.%.100s", item->string);
        EBB_TRY(check_op_name(item->string, where));
        if (rounding_saver(item) == EBB_SAVER_KEEP)
            return ebb_fail(EBB_EINVAL, "%s: expected \"bf16\" or \"int8\"", where);
        EBB_TRY(add_saver(config, item->string, rounding_saver(item), where));
    }
    return EBB_OK;
}

static ebb_status read_savers(ebb_config *config)
{
    int most = cJSON_GetArraySize(config->memory.offload) + cJSON_GetArraySize(config->memory.compress) + 2;
    config->savers = ebb__calloc((size_t)most, sizeof(*config->savers));
    if (!config->savers) return EBB_ENOMEM;
    EBB_TRY(read_offload(config));
    return read_compress(config);
}

static ebb_status read_allocator(ebb__memory_keys *c)
{
    if (c->allocator && !cJSON_IsObject(c->allocator))
        return ebb_fail(EBB_EINVAL, "memory.allocator: expected an object");
    if (c->limit_bytes == 0 && cJSON_HasObjectItem(c->allocator, "garbage_collection_threshold"))
        return ebb_fail(EBB_EINVAL, "memory.allocator.garbage_collection_threshold: a share of memory.limit, "
                        "which is not given");
    return ebb__alloc_options_from_json(c->allocator_conf, sizeof(c->allocator_conf), c->allocator,
                                        "memory.allocator");
}

static ebb_status read_memory(ebb_config *config)
{
    if (config->top.memory)
        EBB_TRY(ebb__json_read(&config->memory, config->top.memory, "memory", ebb__memory_fields,
                               ebb__n_memory_fields));
    EBB_TRY(read_allocator(&config->memory));
    EBB_TRY(read_checkpoint(config));
    EBB_TRY(read_savers(config));
    return read_recompute(config);
}

/* ---- model and data ---------------------------------------------------------------------- */

static ebb_status read_model(ebb_config *config)
{
    config->model_json = cJSON_PrintUnformatted(config->top.model);
    if (!config->model_json) return EBB_ENOMEM;
    return ebb_model_inspect(&config->model, config->model_json);
}

static int small_int(const cJSON *object, const char *key, int otherwise)
{
    const cJSON *item = cJSON_GetObjectItemCaseSensitive(object, key);
    bool fits = cJSON_IsNumber(item) && item->valuedouble >= 0 && item->valuedouble <= 1024;
    return fits ? (int)item->valuedouble
                : otherwise; /* what does not fit, ebb_dataset_open() refuses */
}

static ebb_status read_data(ebb_config *config)
{
    if (!cJSON_IsObject(config->top.data)) return ebb_fail(EBB_EINVAL, "data: expected an object");
    config->workers = small_int(config->top.data, "workers", 1);
    config->prefetch = small_int(config->top.data, "prefetch", 2);
    config->data_json = cJSON_PrintUnformatted(config->top.data);
    return config->data_json ? EBB_OK : EBB_ENOMEM;
}

/* ---- the whole --------------------------------------------------------------------------- */

ebb_dtype ebb__config_dtype(const ebb_config *config)
{
    return dtypes[config->train.precision].parameters;
}

ebb_dtype ebb__config_autocast(const ebb_config *config)
{
    return dtypes[config->train.precision].autocast;
}

static ebb_status read_root(ebb_config *config)
{
    EBB_TRY(ebb__config_resolve_paths(config->root, config->folder));
    config->top.seed = 1337;
    EBB_TRY(ebb__json_read(&config->top, config->root, "", ebb__top_fields, ebb__n_top_fields));
    EBB_TRY(read_model(config));
    EBB_TRY(read_data(config));
    EBB_TRY(read_train(config));
    return read_memory(config);
}

/* Numbers beyond a double's range are infinite here, and would be printed as null. */
static ebb_status check_finite(const cJSON *item, const char *path)
{
    char name[512];
    int index = 0;
    if (cJSON_IsNumber(item) && !isfinite(item->valuedouble))
        return ebb_fail(EBB_EINVAL, "%s: the number is too large", path);
    for (const cJSON *child = item->child; child; child = child->next) {
        if (cJSON_IsArray(item))
            snprintf(name, sizeof(name), "%s[%d]", path, index++);
        else
            snprintf(name, sizeof(name), "%s%s%s", path, *path ? "." : "", child->string);
        EBB_TRY(check_finite(child, name));
    }
    return EBB_OK;
}

/* The path stands in front of what is wrong, as for every other value of a config. */
static ebb_status apply_set(cJSON *root, const char *set)
{
    char reason[512];
    ebb_status st = ebb__json_set(root, set);
    int path = (int)strcspn(set, "=");
    if (st == EBB_OK || st == EBB_ENOMEM || set[path] == '\0') return st;
    snprintf(reason, sizeof(reason), "%s", ebb_message());
    return ebb_fail(st, "%.*s: %s", path, set, reason);
}

/* Takes `root` and `folder` over, on errors too. */
static ebb_status make(ebb_config **out, cJSON *root, char *folder, const char *const sets[],
                       int n_sets)
{
    ebb_config *config = ebb__calloc(1, sizeof(*config));
    if (!config) {
        cJSON_Delete(root);
        ebb__free(folder);
        return EBB_ENOMEM;
    }
    config->root = root;
    config->folder = folder;
    ebb_status st = root && folder ? EBB_OK : ebb_fail(EBB_ENOMEM, "config: out of memory");
    for (int i = 0; i < n_sets && st == EBB_OK; i++) st = apply_set(root, sets[i]);
    if (st == EBB_OK) st = check_finite(root, "");
    if (st == EBB_OK) st = read_root(config);
    if (st == EBB_OK)
        *out = config;
    else
        ebb_config_free(config);
    return st;
}

static char *folder_of(const char *path)
{
    char *folder = ebb__strdup(path);
    char *slash = folder ? strrchr(folder, '/') : NULL;
    if (!folder) return NULL;
    if (slash == folder)
        slash[1] = '\0';
    else if (slash)
        *slash = '\0';
    else
        *folder = '\0';
    return folder;
}

ebb_status ebb_config_load(ebb_config **out, const char *path, const char *const sets[], int n_sets)
{
    cJSON *root = NULL;
    EBB_TRY(ebb__json_load(&root, path));
    return make(out, root, folder_of(path), sets, n_sets);
}

ebb_status ebb_config_parse(ebb_config **out, const char *text, const char *const sets[], int n_sets)
{
    cJSON *root = NULL;
    EBB_TRY(ebb__json_parse(&root, text, strlen(text), "config"));
    return make(out, root, ebb__strdup(""), sets, n_sets);
}

ebb_status ebb__config_parse(ebb_config **out, const char *text) { return ebb_config_parse(out, text, NULL, 0); }

ebb_status ebb_config_copy(ebb_config **out, const ebb_config *config, const char *const sets[],
                           int n_sets)
{
    return make(out, cJSON_Duplicate(config->root, true), ebb__strdup(config->folder), sets,
                n_sets);
}

void ebb_config_drop(ebb_config **variable)
{
    ebb_config_free(*variable);
    *variable = NULL;
}

void ebb_config_free(ebb_config *config)
{
    if (!config) return;
    cJSON_Delete(config->root);
    cJSON_free(config->model_json);
    cJSON_free(config->data_json);
    ebb__free(config->folder);
    ebb__free(config->ranges);
    ebb_plan_free(config->own_plan);
    ebb__free(config->recompute);
    ebb__free(config->savers);
    ebb__free(config);
}

size_t ebb_config_memory_limit(const ebb_config *config) { return config->memory.limit_bytes; }
