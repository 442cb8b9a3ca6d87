/* The JSON Schema beside the configs says what the readers say: same keys, choices and required ones. */
#include <stdio.h>
#include <string.h>

#include "core/json.h"
#include "nn/config.h"
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

static void check_field(const cJSON *object, const ebb__field *field)
{
    const cJSON *entry = cJSON_GetObjectItemCaseSensitive(at(object, "properties"), field->key);
    cr_assert(entry != NULL, "%s is not in the schema", field->key);
    cr_assert_eq(lists(cJSON_GetObjectItemCaseSensitive(object, "required"), field->key),
                 field->required, "%s: required", field->key);
    int n = 0;
    for (; field->kind == EBB__CHOICE && field->choices[n]; n++)
        cr_assert(lists(at(entry, "enum"), field->choices[n]), "%s: no %s", field->key,
                  field->choices[n]);
    if (n > 0) cr_assert_eq(cJSON_GetArraySize(at(entry, "enum")), n, "%s", field->key);
    if ((field->kind != EBB__INT && field->kind != EBB__NUMBER) || field->min == field->max) return;
    cr_assert(at(entry, "minimum")->valuedouble == field->min &&
                  at(entry, "maximum")->valuedouble == field->max,
              "%s", field->key);
}

static void check_table(const char *path, const ebb__field *fields, int n)
{
    cJSON *schema = load_schema();
    const cJSON *object = path[0] ? at(schema, path) : schema;
    cr_assert_eq(cJSON_GetArraySize(at(object, "properties")), n, "%s", path);
    cr_assert(cJSON_IsFalse(at(object, "additionalProperties")), "%s", path);
    for (int i = 0; i < n; i++) check_field(object, &fields[i]);
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

/* Readers whose tables are their own tell their keys when they meet an unknown one:
 * "... known keys: a, b, c". */
static void check_known_keys(const char *path)
{
    const char *list = strstr(ebb_message(), "known keys: ");
    char text[1024];
    cr_assert(list != NULL, "%s", ebb_message());
    snprintf(text, sizeof(text), "%s", list + strlen("known keys: "));
    cJSON *schema = load_schema();
    const cJSON *properties = at(at(schema, path), "properties");
    int n = 0;
    for (char *key = strtok(text, ", "); key; key = strtok(NULL, ", "), n++)
        cr_assert(cJSON_HasObjectItem(properties, key), "%s: %s is not in the schema", path, key);
    cr_assert_eq(cJSON_GetArraySize(properties), n, "%s: %s", path, ebb_message());
    cJSON_Delete(schema);
}

static void check_data(const char *type, bool tokens)
{
    char json[128], path[64];
    ebb_dataset *data = NULL;
    snprintf(json, sizeof(json), "{\"type\":\"%s\",\"no such key\":1}", type);
    snprintf(path, sizeof(path), "$defs/%s", type);
    check_fails(ebb_dataset_open(&data, json, tokens, 4, 4, 1), EBB_EINVAL);
    check_known_keys(path);
}

Test(schema, agrees_with_every_kind_of_data)
{
    check_data("idx", false);
    check_data("text", true);
    check_data("synthetic", true);
}

Test(schema, agrees_with_optimizer_and_schedule)
{
    ebb_optim_options optim = { .struct_bytes = sizeof(optim) };
    ebb_schedule schedule;
    check_fails(ebb_optim_options_parse(&optim, "{\"no such key\":1}", "optimizer"), EBB_EINVAL);
    check_known_keys("properties/train/properties/optimizer");
    check_fails(ebb_schedule_parse(&schedule, "{\"no such key\":1}", "schedule"), EBB_EINVAL);
    check_known_keys("properties/train/properties/schedule");
}
