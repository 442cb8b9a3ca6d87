#include "checkpoint/plan_file.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

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

static ebb_status read_blocks(ebb_block_range *out, const cJSON *pair, int blocks, const char *path)
{
    const cJSON *a = cJSON_GetArrayItem(pair, 0), *b = cJSON_GetArrayItem(pair, 1);
    bool right = cJSON_IsArray(pair) && cJSON_GetArraySize(pair) == 2 && cJSON_IsNumber(a) && cJSON_IsNumber(b) &&
                 a->valuedouble == a->valueint && b->valuedouble == b->valueint;
    if (!right || a->valueint < 0 || a->valueint > b->valueint || b->valueint >= blocks)
        return ebb_fail(EBB_EFORMAT, "%s: expected [first, last], 0 <= first <= last < %d", path, blocks);
    *out = (ebb_block_range){ a->valueint, b->valueint };
    return EBB_OK;
}

static ebb_status read_item_blocks(ebb_block_range *out, const item_keys *keys, const ebb_plan *plan, const char *path)
{
    char here[544];
    snprintf(here, sizeof(here), "%s.blocks", path);
    return read_blocks(out, keys->blocks, plan->n_blocks, here);
}

enum { MAX_DEPTH = 128 };

static ebb_status read_segments(ebb_plan *plan, const cJSON *list, ebb_block_range within, int depth, const char *path)
{
    int i = 0, next = within.first;
    if (list && !cJSON_IsArray(list)) return ebb_fail(EBB_EFORMAT, "%s: expected a list of segments", path);
    if (depth > MAX_DEPTH) return ebb_fail(EBB_EFORMAT, "%s: segments nest deeper than %d", path, MAX_DEPTH);
    for (const cJSON *item = list ? list->child : NULL; item; item = item->next, i++) {
        item_keys keys = { 0 };
        ebb_block_range r = { 0, 0 };
        char here[512];
        snprintf(here, sizeof(here), "%.400s[%d]", path, i);
        EBB_TRY(ebb__json_read(&keys, item, here, segment_fields, 2));
        EBB_TRY(read_item_blocks(&r, &keys, plan, here));
        bool whole = depth > 0 && r.first == within.first && r.last == within.last;
        if (r.first < next || r.last > within.last || whole || plan->n_segments == 2 * plan->n_blocks)
            return ebb_fail(EBB_EFORMAT, "%s: [%d, %d]: segments come in order without overlap, and one inside "
                            "another holds fewer blocks; here blocks %d to %d are free", here, r.first, r.last, next,
                            within.last);
        plan->segments[plan->n_segments++] = r;
        next = r.last + 1;
        char inside[544];
        snprintf(inside, sizeof(inside), "%s.inside", here);
        EBB_TRY(read_segments(plan, keys.inside, r, depth + 1, inside));
    }
    return EBB_OK;
}

static ebb_status read_ops(uint32_t *mask, ebb_plan *plan, const cJSON *list, const char *path)
{
    *mask = 0;
    if (!cJSON_IsArray(list)) return ebb_fail(EBB_EFORMAT, "%s.ops: expected a list of op names", path);
    for (const cJSON *item = list->child; item; item = item->next) {
        const ebb_op *op = cJSON_IsString(item) ? ebb_op_find(item->valuestring) : NULL;
        if (!op) return ebb_fail(EBB_EFORMAT, "%s.ops: no op \"%.40s\"", path, cJSON_IsString(item) ? item->valuestring : "");
        uint32_t bit = ebb__plan_op(plan, op);
        if (!bit) return ebb_fail(EBB_EFORMAT, "%s.ops: more than %d different ops", path, EBB__MAX_PLAN_OPS);
        *mask |= bit;
    }
    return EBB_OK;
}

static ebb_status read_recompute(ebb_plan *plan, const cJSON *list)
{
    int i = 0;
    if (list && !cJSON_IsArray(list)) return ebb_fail(EBB_EFORMAT, "plan.recompute: expected a list");
    for (const cJSON *item = list ? list->child : NULL; item; item = item->next, i++) {
        item_keys keys = { 0 };
        ebb_block_range r = { 0, 0 };
        uint32_t ops = 0;
        char here[64];
        snprintf(here, sizeof(here), "plan.recompute[%d]", i);
        EBB_TRY(ebb__json_read(&keys, item, here, recompute_fields, 2));
        EBB_TRY(read_item_blocks(&r, &keys, plan, here));
        EBB_TRY(read_ops(&ops, plan, keys.ops, here));
        for (int b = r.first; b <= r.last; b++) plan->ops[b] |= ops;
    }
    return EBB_OK;
}

static ebb_status read_offload(ebb_plan *plan, const cJSON *list)
{
    int i = 0;
    if (list && !cJSON_IsArray(list))
        return ebb_fail(EBB_EFORMAT, "plan.offload: expected a list of block ranges, such as [[0, 3]]");
    for (const cJSON *item = list ? list->child : NULL; item; item = item->next, i++) {
        ebb_block_range r = { 0, 0 };
        char here[64];
        snprintf(here, sizeof(here), "plan.offload[%d]", i);
        EBB_TRY(read_blocks(&r, item, plan->n_blocks, here));
        for (int b = r.first; b <= r.last; b++) plan->offload[b] = true;
    }
    return EBB_OK;
}

static ebb_status read_plan(ebb_plan *plan, const cJSON *root, const char *path, const char *sha256)
{
    plan_keys keys = { 0 };
    EBB_TRY(ebb__json_read(&keys, root, "plan", plan_fields, sizeof(plan_fields) / sizeof(plan_fields[0])));
    if (keys.schema != PLAN_SCHEMA)
        return ebb_fail(EBB_EUNSUPPORTED, "%s: a plan of schema %lld; this ebb reads schema %d", path,
                        (long long)keys.schema, PLAN_SCHEMA);
    if (strcmp(keys.sha256, sha256) != 0)
        return ebb_fail(EBB_EINVAL, "%s: a plan for another config (config_sha256 %.12s..., this config's is %.12s...): "
                        "the model, train.batch, train.accumulate or train.precision differ; make a new one with ebb plan",
                        path, keys.sha256, sha256);
    memcpy(plan->config_sha256, keys.sha256, sizeof(keys.sha256));
    EBB_TRY(read_segments(plan, keys.segments, (ebb_block_range){ 0, plan->n_blocks - 1 }, 0, "plan.segments"));
    EBB_TRY(read_recompute(plan, keys.recompute));
    EBB_TRY(read_offload(plan, keys.offload));
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

/* ---- in words ------------------------------------------------------------------------------- */

static int depth_of(const ebb_plan *plan)
{
    int deepest = 0;
    for (int i = 0; i < plan->n_segments; i++) {
        int depth = 1;
        for (int k = 0; k < i; k++) depth += plan->segments[k].last >= plan->segments[i].last;
        if (depth > deepest) deepest = depth;
    }
    return deepest;
}

char *ebb_plan_describe(const ebb_plan *plan)
{
    char *text = NULL;
    size_t bytes = 0;
    FILE *out = open_memstream(&text, &bytes);
    if (!out) return NULL;
    int covered = 0, last = -1, recomputing = 0, offloaded = 0;
    for (int i = 0; i < plan->n_segments; i++) {
        if (plan->segments[i].first <= last) continue;
        last = plan->segments[i].last;
        covered += last - plan->segments[i].first + 1;
    }
    for (int b = 0; b < plan->n_blocks; b++) {
        recomputing += plan->ops[b] != 0;
        offloaded += plan->offload[b];
    }
    const char *before = "";
    if (plan->n_segments) {
        int depth = depth_of(plan);
        fprintf(out, "%d segment%s", plan->n_segments, plan->n_segments == 1 ? "" : "s");
        if (depth > 1) fprintf(out, ", %d deep,", depth);
        fprintf(out, " over %d of %d blocks", covered, plan->n_blocks);
        before = "; ";
    }
    if (recomputing) {
        uint32_t all = 0;
        for (int b = 0; b < plan->n_blocks; b++) all |= plan->ops[b];
        for (int i = 0; i < plan->n_names; i++) {
            if (!(all & 1u << i)) continue;
            fprintf(out, "%s%s", before, plan->names[i]->name);
            before = ", ";
        }
        fprintf(out, " in %d", recomputing);
        if (!plan->n_segments) fprintf(out, " of %d blocks", plan->n_blocks);
        before = "; ";
    }
    if (offloaded) fprintf(out, "%s%d offloaded", before, offloaded);
    if (!plan->n_segments && !recomputing && !offloaded) fprintf(out, "everything kept");
    if (fclose(out) == 0) return text;
    free(text);
    return NULL;
}
