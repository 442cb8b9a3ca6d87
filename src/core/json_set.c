/* json_set.c: one value of a tree, named by its path ("train.optimizer.lr=3e-4"). */
#include <ctype.h>
#include <stdlib.h>
#include <string.h>

#include "core/json.h"
#include "core/json_scan.h"
#include "core/mem.h"

/* The path, cut at its dots: parts[0..n). */
typedef struct parts {
    char *at[EBB__JSON_MAX_DEPTH];
    int n;
} parts;

static ebb_status split(parts *p, char *path)
{
    p->n = 0;
    for (char *next = path; next;) {
        char *part = next;
        next = strchr(part, '.');
        if (next) *next++ = '\0';
        if (*part == '\0')
            return ebb_fail(EBB_EINVAL, "set: a part of the path before \"=\" is empty");
        if (p->n == EBB__JSON_MAX_DEPTH)
            return ebb_fail(EBB_EINVAL, "set: a path of more than %d parts", EBB__JSON_MAX_DEPTH);
        p->at[p->n++] = part;
    }
    return EBB_OK;
}

/* Text that begins like an object, an array or a string but is not one is a slip, not a string. */
static ebb_status parse_value(cJSON **out, const char *text)
{
    ebb_status st = ebb__json_parse(out, text, strlen(text), "value");
    if (st != EBB_EFORMAT) return st;
    if (*text != '\0' && strchr("{[\"", *text)) return EBB_EINVAL;
    *out = cJSON_CreateString(text);
    return *out ? EBB_OK : EBB_ENOMEM;
}

static ebb_status check_utf8(const char *text)
{
    size_t bytes = strlen(text);
    for (size_t at = 0; at < bytes;) {
        int length = ebb__utf8_length(text, bytes, at);
        if (length == 0)
            return ebb_fail(EBB_EINVAL, "set: byte %zu of the assignment is not valid UTF-8",
                            at + 1);
        at += (size_t)length;
    }
    return EBB_OK;
}

static ebb_status find_element(cJSON **out, cJSON *array, const char *part)
{
    int size = cJSON_GetArraySize(array);
    char *end = NULL;
    long index = isdigit((unsigned char)*part) ? strtol(part, &end, 10) : -1;
    if (index < 0 || index >= size || *end != '\0')
        return ebb_fail(EBB_EINVAL,
                        "set: \"%.60s\" is not an element of the array: it has %d, counted "
                        "from 0",
                        part, size);
    *out = cJSON_GetArrayItem(array, (int)index);
    return EBB_OK;
}

/* *out is what `part` names in `parent`: NULL where an object has no such key yet. */
static ebb_status find_child(cJSON **out, cJSON *parent, const char *part)
{
    if (cJSON_IsArray(parent)) return find_element(out, parent, part);
    if (!cJSON_IsObject(parent))
        return ebb_fail(EBB_EINVAL,
                        "set: \"%.60s\" is below a value that is neither an object nor an "
                        "array",
                        part);
    *out = cJSON_GetObjectItemCaseSensitive(parent, part);
    return EBB_OK;
}

/* Puts `value` under `key` into `object`, which takes it; the caller keeps it on an error. */
static ebb_status add(cJSON *object, const char *key, cJSON *value)
{
    return cJSON_AddItemToObject(object, key, value) ? EBB_OK : EBB_ENOMEM;
}

/* value -> {"c": value} -> {"b": {"c": value}} for the parts b, c.  On an error *value is as
 * deep as it got, and still the caller's. */
static ebb_status wrap(cJSON **value, char *const part[], int n)
{
    for (int i = n - 1; i >= 0; i--) {
        cJSON *object = cJSON_CreateObject();
        if (!object) return EBB_ENOMEM;
        if (add(object, part[i], *value) != EBB_OK) {
            cJSON_Delete(object);
            return EBB_ENOMEM;
        }
        *value = object;
    }
    return EBB_OK;
}

/* The new item takes over the old one's key, so that nothing is allocated and nothing can fail
 * (cJSON 1.7.15 does not check the copy of a key that it makes when it replaces an item). */
static void replace(cJSON *parent, cJSON *old, cJSON *value)
{
    value->type |= old->type & cJSON_StringIsConst;
    value->string = old->string;
    old->string = NULL;
    cJSON_ReplaceItemViaPointer(parent, old, value);
}

/* Everything that can fail comes before the one change of the tree. */
static ebb_status assign(cJSON *root, const parts *p, cJSON **value)
{
    cJSON *parent = root, *child = NULL;
    for (int i = 0;; i++) {
        ebb_status st = find_child(&child, parent, p->at[i]);
        if (st != EBB_OK) return st;
        if (child && i < p->n - 1) {
            parent = child;
            continue;
        }
        if (child) {
            replace(parent, child, *value);
        } else {
            st = wrap(value, p->at + i + 1, p->n - 1 - i);
            if (st == EBB_OK) st = add(parent, p->at[i], *value);
        }
        if (st == EBB_OK) *value = NULL;
        return st;
    }
}

ebb_status ebb__json_set(cJSON *root, const char *assignment)
{
    ebb__json_init();
    const char *equals = strchr(assignment, '=');
    if (!equals)
        return ebb_fail(EBB_EINVAL, "set: expected path=value, got \"%.100s\"", assignment);
    ebb_status st = check_utf8(assignment);
    if (st != EBB_OK) return st;
    char *path = ebb__strdup(assignment);
    if (!path) return EBB_ENOMEM;
    path[equals - assignment] = '\0';
    parts p;
    cJSON *value = NULL;
    st = split(&p, path);
    if (st == EBB_OK) st = parse_value(&value, equals + 1);
    if (st == EBB_OK) st = assign(root, &p, &value);
    cJSON_Delete(value);
    ebb__free(path);
    return st;
}
