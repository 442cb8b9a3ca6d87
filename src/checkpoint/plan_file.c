#include "checkpoint/plan_file.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "checkpoint/policy.h"
#include "core/file.h"
#include "core/json.h"
#include "core/mem.h"

enum { PLAN_SCHEMA = 1 };

/* ---- writing -------------------------------------------------------------------------------- */

static bool add(cJSON *parent, const char *key, cJSON *value)
{
    bool added = value && (key ? cJSON_AddItemToObject(parent, key, value) : cJSON_AddItemToArray(parent, value));
    if (!added) cJSON_Delete(value);
    return added;
}

static cJSON *add_new(cJSON *parent, const char *key, cJSON *value) { return add(parent, key, value) ? value : NULL; }

static bool add_blocks(cJSON *object, int first, int last)
{
    return add(object, "blocks", cJSON_CreateIntArray((int[]){ first, last }, 2));
}

/* Segments [*next, ...) that lie within `last`, each with those inside it. */
static bool add_segments(cJSON *parent, const char *key, const ebb_plan *plan, int *next, int last)
{
    cJSON *list = add_new(parent, key, cJSON_CreateArray());
    if (!list) return false;
    while (*next < plan->n_segments && plan->segments[*next].last <= last) {
        ebb_block_range r = plan->segments[(*next)++];
        cJSON *segment = add_new(list, NULL, cJSON_CreateObject());
        if (!segment || !add_blocks(segment, r.first, r.last)) return false;
        bool more = *next < plan->n_segments && plan->segments[*next].first <= r.last;
        if (more && !add_segments(segment, "inside", plan, next, r.last)) return false;
    }
    return true;
}

static bool add_recompute(cJSON *root, const ebb_plan *plan)
{
    cJSON *list = add_new(root, "recompute", cJSON_CreateArray());
    for (int first = 0, last; list && first < plan->n_blocks; first = last + 1) {
        for (last = first; last + 1 < plan->n_blocks && plan->ops[last + 1] == plan->ops[first];) last++;
        if (!plan->ops[first]) continue;
        cJSON *item = add_new(list, NULL, cJSON_CreateObject());
        cJSON *ops = item && add_blocks(item, first, last) ? add_new(item, "ops", cJSON_CreateArray()) : NULL;
        if (!ops) return false;
        for (int i = 0; i < plan->n_names; i++)
            if ((plan->ops[first] & 1u << i) && !add(ops, NULL, cJSON_CreateString(plan->names[i]->name))) return false;
    }
    return list != NULL;
}

static bool add_offload(cJSON *root, const ebb_plan *plan)
{
    cJSON *list = add_new(root, "offload", cJSON_CreateArray());
    for (int first = 0, last; list && first < plan->n_blocks; first = last + 1) {
        for (last = first; last + 1 < plan->n_blocks && plan->offload[last + 1] == plan->offload[first];) last++;
        if (plan->offload[first] && !add(list, NULL, cJSON_CreateIntArray((int[]){ first, last }, 2))) return false;
    }
    return list != NULL;
}

static bool add_all(cJSON *root, const ebb_plan *plan)
{
    const ebb_plan_info *info = &plan->info;
    int next = 0;
    return add(root, "schema", cJSON_CreateNumber(PLAN_SCHEMA)) &&
           add(root, "config_sha256", cJSON_CreateString(plan->config_sha256)) &&
           add(root, "predicted_peak_reserved_bytes", cJSON_CreateNumber((double)info->peak_reserved_bytes)) &&
           add(root, "predicted_peak_allocated_bytes", cJSON_CreateNumber((double)info->peak_allocated_bytes)) &&
           add(root, "predicted_peak_host_bytes", cJSON_CreateNumber((double)info->peak_host_bytes)) &&
           add(root, "predicted_overhead", cJSON_CreateNumber(info->overhead)) &&
           add_segments(root, "segments", plan, &next, plan->n_blocks - 1) && add_recompute(root, plan) &&
           add_offload(root, plan);
}

char *ebb_plan_print(const ebb_plan *plan)
{
    ebb__json_init();
    cJSON *root = cJSON_CreateObject();
    char *text = root && add_all(root, plan) ? cJSON_Print(root) : NULL;
    char *copy = text ? strdup(text) : NULL; /* the caller free()s it */
    cJSON_free(text);
    cJSON_Delete(root);
    return copy;
}

ebb_status ebb_plan_save(const ebb_plan *plan, const char *path)
{
    char *text = ebb_plan_print(plan);
    if (!text) return ebb_fail(EBB_ENOMEM, "%s: no memory for the plan's text", path);
    ebb__writer *writer = NULL;
    ebb_status st = ebb__write_begin(&writer, path);
    if (st == EBB_OK) st = ebb__write(writer, text, strlen(text));
    if (st == EBB_OK) st = ebb__write(writer, "\n", 1);
    if (st == EBB_OK) st = ebb__write_commit(&writer);
    ebb__write_abort(&writer);
    free(text);
    return st;
}

/* ---- reading -------------------------------------------------------------------------------- */

typedef struct plan_keys {
    int64_t schema;
    char sha256[65];
    double reserved, allocated, host, overhead; /* for people; a run finds its own */
    const cJSON *segments, *recompute, *offload;
} plan_keys;

#define KEY(name, member, ...) { .key = name, .offset = offsetof(plan_keys, member), __VA_ARGS__ }
static const ebb__field plan_fields[] = {
    KEY("schema", schema, .kind = EBB__INT, .min = 1, .max = 1e6, .required = true),
    KEY("config_sha256", sha256, .kind = EBB__STRING, .bytes = 65, .required = true),
    KEY("predicted_peak_reserved_bytes", reserved, .kind = EBB__NUMBER),
    KEY("predicted_peak_allocated_bytes", allocated, .kind = EBB__NUMBER),
    KEY("predicted_peak_host_bytes", host, .kind = EBB__NUMBER),
    KEY("predicted_overhead", overhead, .kind = EBB__NUMBER),
    KEY("segments", segments, .kind = EBB__JSON),
    KEY("recompute", recompute, .kind = EBB__JSON),
    KEY("offload", offload, .kind = EBB__JSON),
};
#undef KEY

typedef struct item_keys { const cJSON *blocks, *inside, *ops; } item_keys;
static const ebb__field segment_fields[] = {
    { .key = "blocks", .kind = EBB__JSON, .offset = offsetof(item_keys, blocks), .required = true },
    { .key = "inside", .kind = EBB__JSON, .offset = offsetof(item_keys, inside) },
};
static const ebb__field recompute_fields[] = {
    { .key = "blocks", .kind = EBB__JSON, .offset = offsetof(item_keys, blocks), .required = true },
    { .key = "ops", .kind = EBB__JSON, .offset = offsetof(item_keys, ops), .required = true },
};

/* The place in the file that is being read, for messages: "FILE: plan.segments[3].inside[0]". */
typedef struct reader {
    ebb_plan *plan;
    char at[2048]; /* cut where it is longer */
} reader;

/* Returns what leave() takes. */
EBB_PRINTF(2, 3)
static size_t enter(reader *r, const char *fmt, ...)
{
    size_t before = strlen(r->at);
    va_list list;
    va_start(list, fmt);
    vsnprintf(r->at + before, sizeof(r->at) - before, fmt, list);
    va_end(list);
    return before;
}

static void leave(reader *r, size_t before) { r->at[before] = '\0'; }

/* A list that is absent is an empty one. */
static ebb_status check_list(const reader *r, const cJSON *list, const char *of)
{
    if (!list || cJSON_IsArray(list)) return EBB_OK;
    return ebb_fail(EBB_EFORMAT, "%s: expected a list of %s", r->at, of);
}

static ebb_status read_blocks(ebb_block_range *out, const cJSON *pair, const reader *r)
{
    const cJSON *a = cJSON_GetArrayItem(pair, 0), *b = cJSON_GetArrayItem(pair, 1);
    bool right = cJSON_IsArray(pair) && cJSON_GetArraySize(pair) == 2 && cJSON_IsNumber(a) && cJSON_IsNumber(b) &&
                 a->valuedouble == a->valueint && b->valuedouble == b->valueint;
    if (!right || a->valueint < 0 || a->valueint > b->valueint || b->valueint >= r->plan->n_blocks)
        return ebb_fail(EBB_EFORMAT, "%s: expected [first, last], 0 <= first <= last < %d", r->at, r->plan->n_blocks);
    *out = (ebb_block_range){ a->valueint, b->valueint };
    return EBB_OK;
}

static ebb_status read_item(item_keys *keys, ebb_block_range *blocks, const cJSON *item, reader *r,
                            const ebb__field *fields)
{
    EBB_TRY(ebb__json_read(keys, item, r->at, fields, 2));
    size_t before = enter(r, ".blocks");
    EBB_TRY(read_blocks(blocks, keys->blocks, r));
    leave(r, before);
    return EBB_OK;
}

static ebb_status misplaced(const reader *r, ebb_block_range wrong, int next, int last)
{
    char free[64] = "no block is free any more";
    if (next <= last) snprintf(free, sizeof(free), "blocks %d to %d are free", next, last);
    return ebb_fail(EBB_EFORMAT,
                    "%s: [%d, %d]: segments come in order without overlap, and one inside another holds fewer "
                    "blocks; here %s",
                    r->at, wrong.first, wrong.last, free);
}

static ebb_status read_segments(reader *r, const cJSON *list, ebb_block_range within, int depth)
{
    ebb_plan *plan = r->plan;
    int i = 0, next = within.first;
    EBB_TRY(check_list(r, list, "segments"));
    if (depth >= EBB__MAX_PLAN_DEPTH && list && list->child)
        return ebb_fail(EBB_EFORMAT, "%s: segments nest deeper than %d", r->at, EBB__MAX_PLAN_DEPTH);
    for (const cJSON *item = list ? list->child : NULL; item; item = item->next, i++) {
        item_keys keys = { 0 };
        ebb_block_range blocks = { 0, 0 };
        size_t before = enter(r, "[%d]", i);
        EBB_TRY(read_item(&keys, &blocks, item, r, segment_fields));
        bool whole = depth > 0 && blocks.first == within.first && blocks.last == within.last;
        if (blocks.first < next || blocks.last > within.last || whole || plan->n_segments == 2 * plan->n_blocks)
            return misplaced(r, blocks, next, within.last);
        plan->segments[plan->n_segments++] = blocks;
        next = blocks.last + 1;
        (void)enter(r, ".inside");
        EBB_TRY(read_segments(r, keys.inside, blocks, depth + 1));
        leave(r, before);
    }
    return EBB_OK;
}

static ebb_status read_ops(uint32_t *mask, const cJSON *list, reader *r)
{
    size_t before = enter(r, ".ops");
    *mask = 0;
    EBB_TRY(check_list(r, list, "op names"));
    for (const cJSON *item = list->child; item; item = item->next) {
        const ebb_op *op = NULL;
        if (!cJSON_IsString(item)) return ebb_fail(EBB_EFORMAT, "%s: expected a list of op names", r->at);
        if (ebb__op_find_named(&op, item->valuestring, r->at) != EBB_OK) return EBB_EFORMAT; /* it has said so */
        uint32_t bit = ebb__plan_op(r->plan, op);
        if (!bit) return ebb_fail(EBB_EFORMAT, "%s: more than %d different ops", r->at, EBB__MAX_PLAN_OPS);
        *mask |= bit;
    }
    leave(r, before);
    return EBB_OK;
}

static ebb_status read_recompute(reader *r, const cJSON *list)
{
    int i = 0;
    EBB_TRY(check_list(r, list, "blocks and their ops, such as [{\"blocks\": [0, 3], \"ops\": [\"gelu\"]}]"));
    for (const cJSON *item = list ? list->child : NULL; item; item = item->next, i++) {
        item_keys keys = { 0 };
        ebb_block_range blocks = { 0, 0 };
        uint32_t ops = 0;
        size_t before = enter(r, "[%d]", i);
        EBB_TRY(read_item(&keys, &blocks, item, r, recompute_fields));
        EBB_TRY(read_ops(&ops, keys.ops, r));
        for (int b = blocks.first; b <= blocks.last; b++) r->plan->ops[b] |= ops;
        leave(r, before);
    }
    return EBB_OK;
}

static ebb_status read_offload(reader *r, const cJSON *list)
{
    int i = 0;
    EBB_TRY(check_list(r, list, "block ranges, such as [[0, 3]]"));
    for (const cJSON *item = list ? list->child : NULL; item; item = item->next, i++) {
        ebb_block_range blocks = { 0, 0 };
        size_t before = enter(r, "[%d]", i);
        EBB_TRY(read_blocks(&blocks, item, r));
        for (int b = blocks.first; b <= blocks.last; b++) r->plan->offload[b] = true;
        leave(r, before);
    }
    return EBB_OK;
}

static ebb_status read_lists(reader *r, const plan_keys *keys)
{
    size_t before = enter(r, ".segments");
    EBB_TRY(read_segments(r, keys->segments, (ebb_block_range){ 0, r->plan->n_blocks - 1 }, 0));
    leave(r, before);
    (void)enter(r, ".recompute");
    EBB_TRY(read_recompute(r, keys->recompute));
    leave(r, before);
    (void)enter(r, ".offload");
    EBB_TRY(read_offload(r, keys->offload));
    leave(r, before);
    return EBB_OK;
}

static ebb_status read_plan(ebb_plan *plan, const cJSON *root, const char *path, const char *sha256)
{
    plan_keys keys = { 0 };
    reader r = { .plan = plan };
    (void)enter(&r, "%s: plan", path);
    EBB_TRY(ebb__json_read(&keys, root, r.at, plan_fields, sizeof(plan_fields) / sizeof(plan_fields[0])));
    if (keys.schema != PLAN_SCHEMA)
        return ebb_fail(EBB_EUNSUPPORTED, "%s: a plan of schema %lld; this ebb reads schema %d", path,
                        (long long)keys.schema, PLAN_SCHEMA);
    if (strcmp(keys.sha256, sha256) != 0)
        return ebb_fail(
            EBB_EINVAL,
            "%s: a plan for another config (config_sha256 %.12s..., this config's is %.12s...): "
            "the model, train.batch, train.accumulate or train.precision differ; make a new one with ebb plan",
            path, keys.sha256, sha256);
    memcpy(plan->config_sha256, keys.sha256, sizeof(keys.sha256));
    EBB_TRY(read_lists(&r, &keys));
    EBB_TRY(ebb__ranges_check(plan->segments, plan->n_segments, plan->n_blocks, path));
    return ebb__plan_check_offload(plan, path);
}

ebb_status ebb__plan_load(ebb_plan **out, const char *path, int blocks, const char *sha256)
{
    cJSON *root = NULL;
    ebb_plan *plan = NULL;
    EBB_TRY(ebb__json_load(&root, path));
    ebb_status st = ebb__plan_new(&plan, blocks);
    if (st == EBB_OK) st = read_plan(plan, root, path, sha256);
    cJSON_Delete(root);
    if (st == EBB_OK) *out = plan;
    else ebb_plan_free(plan);
    return st;
}
