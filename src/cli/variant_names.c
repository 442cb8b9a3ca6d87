/* What the rows of a table are called: the variants' values, or what tells them apart. */
#include <stdlib.h>
#include <string.h>

#include "cli.h"

enum { WORDS_BYTES = 512 };

static void append(char *words, const char *prefix, const char *key, const char *equals, const char *value)
{
    size_t n = strlen(words);
    snprintf(words + n, WORDS_BYTES - n, "%s%s%s%s%s%s", n ? ", " : "", value ? "" : "no ", prefix, key, equals,
             value ? value : "");
}

static void append_leaf(char *words, const char *prefix, const cJSON *leaf)
{
    char *text = cJSON_IsString(leaf) ? NULL : cJSON_PrintUnformatted(leaf);
    append(words, prefix, leaf->string, "=", text ? text : cJSON_IsString(leaf) ? leaf->valuestring : "?");
    cJSON_free(text);
}

static const cJSON *member(const cJSON *object, const char *key)
{
    return cJSON_IsObject(object) ? cJSON_GetObjectItemCaseSensitive(object, key) : NULL;
}

/* The same in all `others`? */
static bool is_common(const cJSON *leaf, const cJSON *const others[], int n)
{
    bool common = true;
    for (int k = 0; k < n; k++) common = common && cJSON_Compare(leaf, member(others[k], leaf->string), true);
    return common;
}

/* "recompute=["gelu"], no offload": leaves of `object` that another lacks or has otherwise. */
static void put_differing(char *words, const char *prefix, const cJSON *object, const cJSON *const others[], int n)
{
    for (const cJSON *item = object->child; item; item = item->next) {
        const cJSON *theirs[CLI_MAX_VARIANTS];
        char inside[128];
        if (is_common(item, others, n)) continue;
        if (!cJSON_IsObject(item)) {
            append_leaf(words, prefix, item);
            continue;
        }
        for (int k = 0; k < n; k++) theirs[k] = member(others[k], item->string);
        snprintf(inside, sizeof(inside), "%.60s%.60s.", prefix, item->string);
        put_differing(words, inside, item, theirs, n);
    }
    for (int k = 0; k < n; k++)
        for (const cJSON *item = cJSON_IsObject(others[k]) ? others[k]->child : NULL; item; item = item->next) {
            bool told = member(object, item->string) != NULL;
            for (int before = 0; before < k; before++) told = told || member(others[before], item->string);
            if (!told) append(words, prefix, item->string, "", NULL);
        }
}

/* A longer name loses its middle. */
static void shorten(char out[CLI_NAME_BYTES], const char *name, int room)
{
    int n = (int)strlen(name), head = (room - 3) / 2;
    if (n <= room) memcpy(out, name, (size_t)n + 1);
    else snprintf(out, CLI_NAME_BYTES, "%.*s...%s", head, name, name + n - (room - 3 - head));
}

/* False: an object or a list has lost its middle, which may be what matters. */
static bool name_one(char out[CLI_NAME_BYTES], const cli_variant variants[], cJSON *const values[], int n, int i,
                     int room)
{
    char words[WORDS_BYTES] = "";
    const cJSON *others[CLI_MAX_VARIANTS];
    int n_others = 0;
    for (int k = 0; k < n; k++)
        if (k != i && values[k]) others[n_others++] = values[k];
    if (values[i] && n_others && strlen(variants[i].value) > (size_t)room)
        put_differing(words, "", values[i], others, n_others);
    const char *name = words[0] ? words : variants[i].value;
    shorten(out, name, room);
    return strlen(name) <= (size_t)room || !strchr("{[", variants[i].value[0]);
}

/* Names that do not tell which row it is get its number. */
static bool number_unclear(char names[][CLI_NAME_BYTES], const bool clear[], int n, int room)
{
    bool numbers[CLI_MAX_VARIANTS], any = false;
    for (int i = 0; i < n; i++) {
        numbers[i] = !clear[i];
        for (int k = 0; k < n; k++) numbers[i] = numbers[i] || (k != i && strcmp(names[i], names[k]) == 0);
    }
    for (int i = 0; i < n; i++) {
        char numbered[CLI_NAME_BYTES + 16];
        if (!numbers[i]) continue;
        snprintf(numbered, sizeof(numbered), "%d: %s", i + 1, names[i]);
        shorten(names[i], numbered, room);
        any = true;
    }
    return any;
}

bool cli_variant_names(char names[][CLI_NAME_BYTES], const cli_variant variants[], int n, int room)
{
    cJSON *values[CLI_MAX_VARIANTS];
    bool clear[CLI_MAX_VARIANTS];
    for (int i = 0; i < n; i++) values[i] = variants[i].value[0] == '{' ? cJSON_Parse(variants[i].value) : NULL;
    for (int i = 0; i < n; i++) clear[i] = name_one(names[i], variants, values, n, i, room);
    for (int i = 0; i < n; i++) cJSON_Delete(values[i]);
    return number_unclear(names, clear, n, room);
}
