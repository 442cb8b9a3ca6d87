/* The JSON Schema beside the configs says what the readers say: same keys, types, choices, ranges, defaults
 * and required keys. */
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "alloc/options.h"
#include "core/json.h"
#include "data/dataset.h"
#include "nn/config.h"
#include "optim/optim.h"
#include "support/support.h"
#include "train/config.h"

static cJSON *load_schema(void)
{
    cJSON *schema = NULL;
    check_ok(ebb__json_load(&schema, EBB_SOURCE_DIR "/models/model.schema.json"));
    return schema;
}

static const cJSON *at(const cJSON *node, const char *path)
{
    char text[128];
    strcpy(text, path);
    for (char *key = strtok(text, "/"); key && node; key = strtok(NULL, "/"))
        node = cJSON_GetObjectItemCaseSensitive(node, key);
    cr_assert(node != NULL, "the schema has no %s", path);
    return node;
}

static bool lists(const cJSON *array, const char *word)
{
    for (const cJSON *item = array ? array->child : NULL; item; item = item->next)
        if (strcmp(item->valuestring, word) == 0) return true;
    return false;
}

static const char *type_of(const ebb__field *field)
{
    switch (field->kind) {
    case EBB__INT: return "integer";
    case EBB__NUMBER: return "number";
    case EBB__BOOL: return "boolean";
    case EBB__PAIR: return "array";
    default: return NULL; /* no single one */
    }
}

/* An inclusive or an exclusive bound is `bound`; none where it is infinite. */
static void check_bound(const cJSON *entry, const char *key, const char *inclusive,
                        const char *exclusive, double bound)
{
    const cJSON *have = cJSON_GetObjectItemCaseSensitive(entry, inclusive);
    if (!have) have = cJSON_GetObjectItemCaseSensitive(entry, exclusive);
    if (!isfinite(bound)) {
        cr_assert(have == NULL, "%s: the reader has no %s", key, inclusive);
        return;
    }
    cr_assert(have != NULL, "%s: no %s; the reader has %g", key, inclusive, bound);
    cr_assert_eq(have->valuedouble, bound, "%s: %s is %.17g; the reader has %.17g", key, inclusive,
                 have->valuedouble, bound);
}

static void check_bounds(const cJSON *entry, const ebb__field *field)
{
    if (field->kind == EBB__PAIR) {
        cr_assert(at(entry, "minItems")->valuedouble == 2 && at(entry, "maxItems")->valuedouble == 2);
        entry = at(entry, "items");
    } else if (field->kind != EBB__INT && field->kind != EBB__NUMBER) {
        return;
    }
    bool bounded = field->min != field->max;
    check_bound(entry, field->key, "minimum", "exclusiveMinimum", bounded ? field->min : -INFINITY);
    check_bound(entry, field->key, "maximum", "exclusiveMaximum", bounded ? field->max : INFINITY);
    if (field->kind == EBB__INT) /* what the reader of whole numbers takes at most */
        cr_assert(bounded && fabs(field->min) < 0x1p53 && fabs(field->max) < 0x1p53, "%s",
                  field->key);
}

static void check_choices(const cJSON *entry, const ebb__field *field)
{
    int n = 0;
    if (field->kind != EBB__CHOICE) return;
    for (; field->choices[n]; n++)
        cr_assert(lists(at(entry, "enum"), field->choices[n]), "%s: no %s", field->key,
                  field->choices[n]);
    cr_assert_eq(cJSON_GetArraySize(at(entry, "enum")), n, "%s", field->key);
}

static void check_field(const cJSON *object, const ebb__field *field)
{
    const cJSON *entry = cJSON_GetObjectItemCaseSensitive(at(object, "properties"), field->key);
    const char *type = type_of(field);
    cr_assert(entry != NULL, "%s is not in the schema", field->key);
    cr_assert_eq(lists(cJSON_GetObjectItemCaseSensitive(object, "required"), field->key),
                 field->required || cJSON_HasObjectItem(entry, "const"), "%s: required",
                 field->key);
    if (type) cr_assert_str_eq(at(entry, "type")->valuestring, type, "%s", field->key);
    check_choices(entry, field);
    check_bounds(entry, field);
}

static void check_object(const cJSON *object, const char *path, const ebb__field *fields, int n)
{
    cr_assert_eq(cJSON_GetArraySize(at(object, "properties")), n, "%s", path);
    cr_assert(cJSON_IsFalse(at(object, "additionalProperties")), "%s", path);
    for (int i = 0; i < n; i++) check_field(object, &fields[i]);
}

static void check_table(const char *path, const ebb__field *fields, int n)
{
    cJSON *schema = load_schema();
    check_object(path[0] ? at(schema, path) : schema, path, fields, n);
    cJSON_Delete(schema);
}

Test(schema, agrees_with_the_table_of_an_mlp)
{
    check_table("$defs/mlp", ebb__mlp_fields, ebb__n_mlp_fields);
}
Test(schema, agrees_with_the_table_of_a_gpt)
{
    check_table("$defs/gpt", ebb__gpt_fields, ebb__n_gpt_fields);
}
Test(schema, agrees_with_the_table_of_the_top)
{
    check_table("", ebb__top_fields, ebb__n_top_fields);
}
Test(schema, agrees_with_the_table_of_train)
{
    check_table("properties/train", ebb__train_fields, ebb__n_train_fields);
}
Test(schema, agrees_with_the_table_of_memory)
{
    check_table("properties/memory", ebb__memory_fields, ebb__n_memory_fields);
}

Test(schema, agrees_with_the_tables_of_optimizer_and_schedule)
{
    check_table("properties/train/properties/optimizer", ebb__optim_fields, ebb__n_optim_fields);
    check_table("properties/train/properties/schedule", ebb__schedule_fields,
                ebb__n_schedule_fields);
}
/* A number, an object or null; each default of the object is the reader's. */
Test(schema, agrees_with_the_table_of_loss_scale)
{
    cJSON *schema = load_schema();
    const cJSON *forms = at(schema, "properties/train/properties/loss_scale/anyOf");
    const cJSON *object = cJSON_GetArrayItem(forms, 1), *properties = at(object, "properties");
    ebb_loss_scale s;
    cr_assert_eq(cJSON_GetArraySize(forms), 3);
    check_object(object, "loss_scale", ebb__loss_scale_fields, ebb__n_loss_scale_fields);
    check_bound(cJSON_GetArrayItem(forms, 0), "loss_scale", "minimum", "-", 1);
    check_bound(cJSON_GetArrayItem(forms, 0), "loss_scale", "maximum", "-", 1e30);
    check_ok(ebb_loss_scale_parse(&s, "1", "loss_scale"));
    check_ok(ebb_loss_scale_parse(&s, "1e30", "loss_scale"));
    check_ok(ebb_loss_scale_parse(&s, "{}", "loss_scale"));
    cr_assert(at(properties, "init/default")->valuedouble == s.scale &&
              at(properties, "growth/default")->valuedouble == s.growth &&
              at(properties, "backoff/default")->valuedouble == s.backoff &&
              at(properties, "interval/default")->valueint == s.interval);
    cJSON_Delete(schema);
}
Test(schema, agrees_with_the_table_of_every_kind_of_data)
{
    check_table("$defs/idx", ebb__dataset_idx.fields, ebb__dataset_idx.n_fields);
    check_table("$defs/text", ebb__dataset_text.fields, ebb__dataset_text.n_fields);
    check_table("$defs/synthetic", ebb__dataset_synthetic.fields, ebb__dataset_synthetic.n_fields);
}

/* ---- what no table says: values at and beyond the schema's bounds go through the reader -------- */

/* Sets "path=value" into a small config; true: it is accepted. */
static bool accepts(const char *model, const char *path, double value)
{
    char set[200];
    ebb_config *config = NULL;
    temp_folder folder = temp_folder_make();
    const char *file = temp_path(&folder, "c.json"), *sets[] = { set, "memory.limit=1073741824" };
    write_text(file, model);
    snprintf(set, sizeof(set), "%s=%.17g", path, value);
    ebb_status st = ebb_config_load(&config, file, sets, 2);
    cr_assert(st == EBB_OK || st == EBB_EINVAL, "%s: %s", set, ebb_message());
    ebb_config_free(config);
    temp_folder_remove(&folder);
    return st == EBB_OK;
}

static void check_edge(const char *model, const char *path, const cJSON *entry, const char *bound,
                       double away)
{
    char exclusive[32];
    snprintf(exclusive, sizeof(exclusive), "exclusiveM%s", bound + 1);
    const cJSON *edge = cJSON_GetObjectItemCaseSensitive(entry, bound);
    const cJSON *open = cJSON_GetObjectItemCaseSensitive(entry, exclusive);
    cr_assert(edge || open, "%s has no %s", path, bound);
    double value = edge ? edge->valuedouble : open->valuedouble;
    double step = strcmp(at(entry, "type")->valuestring, "integer") == 0
                      ? 1
                      : fmax(1e-9, fabs(value) * 1e-9);
    cr_assert_eq(accepts(model, path, value), edge != NULL, "%s: %s %.17g", path, bound, value);
    cr_assert(!accepts(model, path, value + away * step), "%s: beyond %s", path, bound);
    cr_assert(accepts(model, path, value - away * step), "%s: within %s", path, bound);
}

static void check_edges(const char *model, const char *path, const cJSON *entry)
{
    check_edge(model, path, entry, "minimum", -1);
    check_edge(model, path, entry, "maximum", 1);
}

#define MLP(optimizer)                                                                           \
    "{\"model\":{\"type\":\"mlp\",\"input\":4,\"output\":2,\"hidden\":[1]},\"train\":{\"optimizer\":" \
    "{\"type\":\"" optimizer "\"}},\"data\":{\"type\":\"synthetic\",\"items\":4},"                 \
    "\"memory\":{\"allocator\":{}}}"

Test(schema, has_the_bounds_that_are_checked_elsewhere)
{
    cJSON *schema = load_schema();
    const cJSON *train = at(schema, "properties/train/properties");
    const cJSON *optimizer = at(train, "optimizer/properties");
    const cJSON *allocator = at(schema, "properties/memory/properties/allocator/properties");
    static const char *const in_allocator[] = {
        "max_split_size_mb", "max_non_split_rounding_mb", "garbage_collection_threshold",
        "deferred_release_mb",
    };
    check_edges(MLP("sgd"), "model.hidden.0", at(schema, "$defs/mlp/properties/hidden/items"));
    check_edges(MLP("sgd"), "train.optimizer.lr", at(optimizer, "lr"));
    check_edges(MLP("sgd"), "train.optimizer.momentum", at(optimizer, "momentum"));
    check_edges(MLP("sgd"), "train.optimizer.weight_decay", at(optimizer, "weight_decay"));
    cJSON *clip = cJSON_Duplicate(at(train, "clip_norm"), true); /* a number or null */
    cJSON_ReplaceItemInObject(clip, "type", cJSON_CreateString("number"));
    check_edges(MLP("sgd"), "train.clip_norm", clip);
    cJSON_Delete(clip);
    for (size_t i = 0; i < sizeof(in_allocator) / sizeof(*in_allocator); i++) {
        char path[100];
        snprintf(path, sizeof(path), "memory.allocator.%s", in_allocator[i]);
        check_edges(MLP("sgd"), path, at(allocator, in_allocator[i]));
    }
    cJSON_Delete(schema);
}

/* ---- defaults -------------------------------------------------------------------------------- */

/* Every value that the effective config has and the config as written has not is the schema's
 * default; where the schema has none, its description says what it is. */
static int check_defaults(const cJSON *object, const cJSON *effective, const cJSON *written)
{
    int n = 0;
    for (const cJSON *entry = at(object, "properties")->child; entry; entry = entry->next) {
        const cJSON *value = cJSON_GetObjectItemCaseSensitive(effective, entry->string);
        const cJSON *given = cJSON_GetObjectItemCaseSensitive(written, entry->string);
        const cJSON *def = cJSON_GetObjectItemCaseSensitive(entry, "default");
        if (value && cJSON_HasObjectItem(entry, "properties")) n += check_defaults(entry, value, given);
        if (!value || given || cJSON_IsObject(value)) continue;
        n++;
        if (!def)
            cr_assert(strstr(at(entry, "description")->valuestring, "Default: ") != NULL,
                      "%s has a default that the schema does not tell", entry->string);
        else
            cr_assert(cJSON_Compare(def, value, true), "%s: another default", entry->string);
    }
    return n;
}

/* `kinds`: of model and data, as in $defs. */
static int defaults_of(const char *json, const char *const kinds[2])
{
    ebb_config *config = NULL;
    temp_folder folder = temp_folder_make();
    write_text(temp_path(&folder, "c.json"), json);
    check_ok(ebb_config_load(&config, temp_path(&folder, "c.json"), NULL, 0));
    cJSON *schema = load_schema(), *tree = NULL, *written = NULL;
    check_ok(ebb__config_tree(&tree, config));
    check_ok(ebb__json_parse(&written, json, strlen(json), NULL));
    int n = check_defaults(schema, tree, written);
    static const char *const keys[2] = { "model", "data" };
    for (int i = 0; i < 2; i++)
        n += check_defaults(at(at(schema, "$defs"), kinds[i]), at(tree, keys[i]),
                            at(written, keys[i]));
    cJSON_Delete(schema);
    cJSON_Delete(tree);
    cJSON_Delete(written);
    ebb_config_free(config);
    temp_folder_remove(&folder);
    return n;
}

Test(schema, tells_the_defaults_of_the_readers)
{
    static const char *const mlp[] = { "mlp", "synthetic" }, *const gpt[] = { "gpt", "synthetic" };
    int n = defaults_of("{\"model\":{\"type\":\"mlp\",\"input\":4,\"output\":2},\"data\":{\"type\":"
                        "\"synthetic\",\"items\":4},\"train\":{\"optimizer\":{\"type\":\"sgd\"},"
                        "\"schedule\":{\"type\":\"cosine\"}}}",
                        mlp);
    cr_assert_gt(n, 20, "%d defaults", n);
    n = defaults_of("{\"model\":{\"type\":\"gpt\",\"layers\":1,\"heads\":2,\"width\":8,\"context\":4,"
                    "\"vocab\":8},\"data\":{\"type\":\"synthetic\",\"items\":4}}",
                    gpt);
    cr_assert_gt(n, 30, "%d defaults", n);
}

/* Each default, set explicitly, changes nothing. */
Test(schema, tells_the_defaults_of_the_allocator)
{
    cJSON *schema = load_schema();
    const cJSON *entry = at(schema, "properties/memory/properties/allocator/properties")->child;
    for (; entry; entry = entry->next) {
        ebb__alloc_options options;
        const ebb__alloc_options start = ebb__alloc_options_default();
        char text[512];
        cJSON *object = cJSON_CreateObject();
        const cJSON *def = cJSON_GetObjectItemCaseSensitive(entry, "default");
        if (def) cJSON_AddItemToObject(object, entry->string, cJSON_Duplicate(def, true));
        memcpy(&options, &start, sizeof(options));
        check_ok(ebb__alloc_options_from_json(text, sizeof(text), object, "allocator"));
        check_ok(ebb__alloc_options_parse(&options, text, "allocator"));
        cr_assert(options.max_non_split_rounding_bytes == start.max_non_split_rounding_bytes &&
                      options.expandable_segments == start.expandable_segments &&
                      options.offset_plan == start.offset_plan &&
                      options.deferred_release_bytes == start.deferred_release_bytes,
                  "%s", text);
        cJSON_Delete(object);
    }
    cJSON_Delete(schema);
}
