/* json_read.c: an object into a struct, by its table of fields. */
#include <ebb/memory.h>
#include <math.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include "core/assert.h"
#include "core/json.h"
#include "core/mem.h"

enum {
    TEXT_BYTES = 1024, /* lists in messages; a longer one is cut and ends with ", ..." */
    SHOWN_BYTES = 60   /* of a string value */
};

/* Whole numbers up to here are exact as double, and no other whole number rounds to them. */
static const double MAX_WHOLE = 9007199254740991.0; /* 2^53 - 1 */

/* Where a value is, for messages. */
typedef struct place {
    const char *path, *key;
} place;

typedef struct text {
    char at[TEXT_BYTES];
    size_t used;
} text;

static void append(text *t, const char *fmt, ...) EBB_PRINTF(2, 3);
static void append(text *t, const char *fmt, ...)
{
    va_list args;
    va_start(args, fmt);
    int n = vsnprintf(t->at + t->used, sizeof t->at - t->used, fmt, args);
    va_end(args);
    if (n > 0) t->used += (size_t)n;
    if (t->used >= sizeof t->at) t->used = sizeof t->at - 1;
}

static void append_word(text *t, const char *word)
{
    static const char more[] = ", ...";
    if (t->used + strlen(word) + sizeof more + 2 < sizeof t->at)
        append(t, "%s%s", t->used > 0 ? ", " : "", word);
    else if (strcmp(t->at + t->used - 3, "...") != 0)
        append(t, "%s", more);
}

/* ---- what came ---------------------------------------------------------------------------- */

/* Control characters would break the line that the message is printed on. */
static void append_string(text *t, const char *value)
{
    size_t n = strlen(value), shown = n <= SHOWN_BYTES ? n : SHOWN_BYTES;
    while (shown > 0 && shown < n && ((unsigned char)value[shown] & 0xC0) == 0x80) shown--;
    append(t, "\"");
    for (size_t i = 0; i < shown; i++)
        append(t, "%c", (unsigned char)value[i] < ' ' ? ' ' : value[i]);
    append(t, shown < n ? "...\"" : "\"");
}

static void append_number(text *t, double value)
{
    char digits[32];
    for (int precision = 6; precision <= 17; precision++) { /* the shortest that reads back */
        snprintf(digits, sizeof digits, "%.*g", precision, value);
        double back;
        if (sscanf(digits, "%lf", &back) == 1 && back == value) break;
    }
    if (fabs(value) <= MAX_WHOLE && value == floor(value))
        append(t, "%.0f", value);
    else
        append(t, "%s", digits);
}

static void append_value(text *t, const cJSON *item)
{
    if (!item)
        append(t, "nothing");
    else if (cJSON_IsString(item))
        append_string(t, item->valuestring);
    else if (cJSON_IsNumber(item))
        append_number(t, item->valuedouble);
    else if (cJSON_IsBool(item))
        append(t, cJSON_IsTrue(item) ? "true" : "false");
    else if (cJSON_IsNull(item))
        append(t, "null");
    else if (cJSON_IsArray(item))
        append(t, "an array of %d", cJSON_GetArraySize(item));
    else
        append(t, "an object");
}

static ebb_status expected(place at, const char *what, const cJSON *item)
{
    text got = { .used = 0 };
    append_value(&got, item);
    return ebb_fail(EBB_EINVAL, "%s%s%s: expected %s, got %s", at.path,
                    *at.path && *at.key ? "." : "", at.key, what, got.at);
}

/* ---- what is allowed ------------------------------------------------------------------------ */

static bool has_bounds(const ebb__field *field) { return field->min != field->max; }

static void append_bounds(text *t, const ebb__field *field)
{
    if (!has_bounds(field)) return;
    bool low = isfinite(field->min), high = isfinite(field->max);
    append(t, low && high ? " in " : low ? " of at least " : high ? " of at most " : "");
    if (low) append_number(t, field->min);
    if (low && high) append(t, "..");
    if (high) append_number(t, field->max);
}

/* Every double is finite after this: 1e999 is valid JSON, and cJSON makes it infinite. */
static bool in_bounds(const ebb__field *field, const cJSON *item)
{
    double value = item->valuedouble;
    if (!isfinite(value)) return false;
    return !has_bounds(field) || (value >= field->min && value <= field->max);
}

static bool is_whole(const cJSON *item)
{
    return fabs(item->valuedouble) <= MAX_WHOLE && item->valuedouble == floor(item->valuedouble);
}

/* ---- one reader for each kind: checks, then writes where `to` is not NULL -------------------- */

static ebb_status read_int(void *to, const cJSON *item, const ebb__field *field, place at)
{
    if (cJSON_IsNumber(item) && is_whole(item) && in_bounds(field, item)) {
        if (to) *(int64_t *)to = (int64_t)item->valuedouble;
        return EBB_OK;
    }
    text what = { .used = 0 };
    append(&what, "a whole number");
    append_bounds(&what, field);
    if (cJSON_IsNumber(item) && fabs(item->valuedouble) > MAX_WHOLE)
        append(&what, " (beyond 2^53 - 1 whole numbers are not exact)");
    return expected(at, what.at, item);
}

static ebb_status read_number(void *to, const cJSON *item, const ebb__field *field, place at)
{
    if (cJSON_IsNumber(item) && in_bounds(field, item)) {
        if (to) *(double *)to = item->valuedouble;
        return EBB_OK;
    }
    text what = { .used = 0 };
    append(&what,
           cJSON_IsNumber(item) && !isfinite(item->valuedouble) ? "a finite number" : "a number");
    append_bounds(&what, field);
    return expected(at, what.at, item);
}

static ebb_status read_bool(void *to, const cJSON *item, const ebb__field *field, place at)
{
    (void)field;
    if (!cJSON_IsBool(item)) return expected(at, "true or false", item);
    if (to) *(bool *)to = cJSON_IsTrue(item);
    return EBB_OK;
}

static ebb_status read_string(void *to, const cJSON *item, const ebb__field *field, place at)
{
    if (!cJSON_IsString(item)) return expected(at, "a string", item);
    size_t bytes = strlen(item->valuestring) + 1;
    if (bytes > field->bytes) {
        text what = { .used = 0 };
        append(&what, "a string of at most %zu bytes (it has %zu)", field->bytes - 1, bytes - 1);
        return expected(at, what.at, item);
    }
    if (to) memcpy(to, item->valuestring, bytes);
    return EBB_OK;
}

static ebb_status read_choice(void *to, const cJSON *item, const ebb__field *field, place at)
{
    text what = { .used = 0 };
    for (int i = 0; field->choices[i]; i++) {
        if (cJSON_IsString(item) && strcmp(item->valuestring, field->choices[i]) == 0) {
            if (to) *(int *)to = i;
            return EBB_OK;
        }
        append_word(&what, field->choices[i]);
    }
    text one_of = { .used = 0 };
    append(&one_of, "one of %.900s", what.at);
    return expected(at, one_of.at, item);
}

static ebb_status read_size(void *to, const cJSON *item, const ebb__field *field, place at)
{
    size_t bytes = 0;
    bool is_nothing = cJSON_IsNull(item) && !field->required, good = is_nothing;
    if (cJSON_IsString(item)) good = ebb_size_parse(&bytes, item->valuestring) == EBB_OK;
    if (cJSON_IsNumber(item) && is_whole(item) && item->valuedouble >= 0) {
        good = true;
        bytes = (size_t)item->valuedouble;
    }
    bool too_small = has_bounds(field) && (double)bytes < field->min;
    bool too_large = has_bounds(field) && (double)bytes > field->max;
    if (good && (is_nothing || !(too_small || too_large))) {
        if (to) *(size_t *)to = bytes;
        return EBB_OK;
    }
    text what = { .used = 0 };
    append(&what, "a number of bytes");
    append_bounds(&what, field);
    append(&what, field->required ? " or a size such as \"512MiB\" or \"1.5GiB\""
                                  : ", a size such as \"512MiB\" or \"1.5GiB\", or null");
    return expected(at, what.at, item);
}

static ebb_status read_json(void *to, const cJSON *item, const ebb__field *field, place at)
{
    (void)field;
    (void)at;
    if (to) *(const cJSON **)to = item;
    return EBB_OK;
}

static ebb_status read_pair(void *to, const cJSON *item, const ebb__field *field, place at)
{
    bool good = cJSON_IsArray(item) && cJSON_GetArraySize(item) == 2;
    double pair[2] = { 0, 0 };
    for (int i = 0; good && i < 2; i++) {
        const cJSON *part = cJSON_GetArrayItem(item, i);
        good = cJSON_IsNumber(part) && in_bounds(field, part);
        pair[i] = part->valuedouble;
    }
    if (good) {
        if (to) memcpy(to, pair, sizeof pair);
        return EBB_OK;
    }
    text what = { .used = 0 };
    append(&what, "an array of two numbers");
    append_bounds(&what, field);
    return expected(at, what.at, item);
}

typedef ebb_status field_reader(void *to, const cJSON *item, const ebb__field *field, place at);

static field_reader *const readers[] = {
    [EBB__INT] = read_int,       [EBB__NUMBER] = read_number, [EBB__BOOL] = read_bool,
    [EBB__STRING] = read_string, [EBB__CHOICE] = read_choice, [EBB__SIZE] = read_size,
    [EBB__JSON] = read_json,     [EBB__PAIR] = read_pair,
};

/* ---- the object ----------------------------------------------------------------------------- */

static const ebb__field *find_field(const ebb__field *fields, int n_fields, const char *key)
{
    for (int i = 0; i < n_fields; i++)
        if (strcmp(fields[i].key, key) == 0) return &fields[i];
    return NULL;
}

static const cJSON *find_item(const cJSON *object, const char *key)
{
    return cJSON_GetObjectItemCaseSensitive(object, key);
}

static ebb_status unknown_key(const char *path, const char *key, const ebb__field *fields,
                              int n_fields)
{
    text known = { .used = 0 }, meant = { .used = 0 };
    const char **keys = ebb__malloc((size_t)n_fields * sizeof *keys);
    if (!keys) return EBB_ENOMEM;
    for (int i = 0; i < n_fields; i++) {
        keys[i] = fields[i].key;
        append_word(&known, keys[i]);
    }
    const char *nearest = ebb__nearest(key, keys, n_fields);
    ebb__free(keys);
    if (nearest) append(&meant, " did you mean \"%s\"?", nearest);
    return ebb_fail(EBB_EINVAL, "%s%s%.200s: unknown key;%s known keys: %s", path, *path ? "." : "",
                    key, meant.at, known.at);
}

static bool has_zero(const cJSON *item)
{
    if (item->string && strstr(item->string, EBB__JSON_ZERO)) return true;
    if (cJSON_IsString(item) && strstr(item->valuestring, EBB__JSON_ZERO)) return true;
    for (const cJSON *child = item->child; child; child = child->next)
        if (has_zero(child)) return true;
    return false;
}

/* A key with a zero character in it is not shown: it would end the message. */
static ebb_status check_zeros(const cJSON *object, const char *path)
{
    for (const cJSON *item = object->child; item; item = item->next) {
        bool in_key = strstr(item->string, EBB__JSON_ZERO) != NULL;
        if (!in_key && !has_zero(item)) continue;
        return ebb_fail(EBB_EINVAL, "%s%s%.200s: a zero character (\\u0000) is not allowed in a %s", path,
                        *path && !in_key ? "." : "", in_key ? "" : item->string,
                        in_key ? "key" : "string or key");
    }
    return EBB_OK;
}

static ebb_status check_keys(const cJSON *object, const char *path, const ebb__field *fields,
                             int n_fields)
{
    for (const cJSON *item = object->child; item; item = item->next)
        if (!find_field(fields, n_fields, item->string))
            return unknown_key(path, item->string, fields, n_fields);
    for (int i = 0; i < n_fields; i++)
        if (fields[i].required && !find_item(object, fields[i].key))
            return ebb_fail(EBB_EINVAL, "%s%s%s: this key is required", path, *path ? "." : "",
                            fields[i].key);
    return EBB_OK;
}

/* dst NULL: only checks. */
static ebb_status read_fields(char *dst, const cJSON *object, const char *path,
                              const ebb__field *fields, int n_fields)
{
    for (int i = 0; i < n_fields; i++) {
        const ebb__field *field = &fields[i];
        const cJSON *item = find_item(object, field->key);
        if (!item) continue;
        place at = { path, field->key };
        ebb_status st = readers[field->kind](dst ? dst + field->offset : NULL, item, field, at);
        if (st != EBB_OK) return st;
    }
    return EBB_OK;
}

ebb_status ebb__json_read(void *dst, const cJSON *object, const char *path,
                          const ebb__field *fields, int n_fields)
{
    EBB_ASSERT(dst && path && n_fields > 0);
    if (!cJSON_IsObject(object))
        return expected((place){ *path ? path : "top level", "" }, "an object", object);
    ebb_status st = check_zeros(object, path);
    if (st == EBB_OK) st = check_keys(object, path, fields, n_fields);
    if (st == EBB_OK) st = read_fields(NULL, object, path, fields, n_fields);
    if (st == EBB_OK) st = read_fields(dst, object, path, fields, n_fields);
    return st;
}
