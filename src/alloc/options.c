/* alloc/options.c: one row per key. */
#include "alloc/options.h"

#include <ctype.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

#include "core/json.h"

enum { MIB_BITS = 20, MAX_MB = 1 << 30, MAX_DIVISIONS = 1 << 15, VALUE_BYTES = 256 };

typedef struct key {
    const char *name, *allowed;
    bool (*set)(void *field, const char *value); /* false: the value is not allowed */
    size_t offset;                               /* of the field in ebb__alloc_options */
} key;

/* ---- values ------------------------------------------------------------------------------ */

static bool read_whole(const char *text, long max, long *out)
{
    char *end;
    if (!isdigit((unsigned char)*text)) return false;
    long value = strtol(text, &end, 10);
    if (*end != '\0' || value > max) return false;
    *out = value;
    return true;
}

static bool set_mb(void *field, const char *value)
{
    long mb;
    if (!read_whole(value, MAX_MB, &mb)) return false;
    *(size_t *)field = (size_t)mb << MIB_BITS;
    return true;
}

/* More than a standard segment of 20 MiB, or its whole would never serve a small request again. */
static bool set_split_mb(void *field, const char *value)
{
    size_t bytes;
    if (!set_mb(&bytes, value) || bytes < (size_t)21 << MIB_BITS) return false;
    *(size_t *)field = bytes;
    return true;
}

static bool set_fraction(void *field, const char *value)
{
    char *end;
    double fraction = strtod(value, &end);
    if (end == value || *end != '\0' || !(fraction > 0 && fraction < 1)) return false;
    *(double *)field = fraction;
    return true;
}

static bool set_bool(void *field, const char *value)
{
    bool yes = strcasecmp(value, "true") == 0, no = strcasecmp(value, "false") == 0;
    if (yes || no) *(bool *)field = yes;
    return yes || no;
}

static bool is_power_of_2(long n) { return n > 0 && (n & (n - 1)) == 0; }

static bool read_divisions(const char *text, long *out)
{
    return read_whole(text, MAX_DIVISIONS, out) && is_power_of_2(*out);
}

static void fill(uint16_t *intervals, int from, int to, long divisions)
{
    for (int i = from; i < to; i++) intervals[i] = (uint16_t)divisions;
}

/* One "256:2" or ">:4".  *last is the interval of the entry before; -1: this is the first. */
static bool set_interval(uint16_t *intervals, char *entry, int *last)
{
    char *colon = strchr(entry, ':');
    long divisions, mb;
    if (!colon || !read_divisions(colon + 1, &divisions)) return false;
    *colon = '\0';
    if (strcmp(entry, ">") == 0) {
        fill(intervals, *last + 1, EBB__N_ROUNDING_INTERVALS, divisions);
        *last = EBB__N_ROUNDING_INTERVALS;
        return true;
    }
    if (!read_whole(entry, 1L << (EBB__N_ROUNDING_INTERVALS - 1), &mb) || !is_power_of_2(mb))
        return false;
    int at = 63 - __builtin_clzll((unsigned long long)mb);
    if (at <= *last) return false;
    fill(intervals, *last < 0 ? 0 : at, at + 1, divisions);
    *last = at;
    return true;
}

static bool set_divisions(void *field, const char *value)
{
    uint16_t intervals[EBB__N_ROUNDING_INTERVALS] = { 0 };
    size_t length = strlen(value);
    long divisions;
    if (value[0] != '[') {
        if (!read_divisions(value, &divisions)) return false;
        fill(intervals, 0, EBB__N_ROUNDING_INTERVALS, divisions);
    } else {
        char text[VALUE_BYTES], *rest = NULL;
        if (value[length - 1] != ']') return false;
        snprintf(text, sizeof text, "%.*s", (int)length - 2, value + 1);
        int last = -1;
        char *entry = strtok_r(text, ",", &rest);
        if (!entry) return false;
        for (; entry; entry = strtok_r(NULL, ",", &rest))
            if (!set_interval(intervals, entry, &last)) return false;
    }
    memcpy(field, intervals, sizeof intervals);
    return true;
}

/* ---- keys -------------------------------------------------------------------------------- */

#define MB         "a whole number of MiB"
#define AT(member) offsetof(ebb__alloc_options, member)
static const key keys[] = {
    { "deferred_release_mb", MB, set_mb, AT(deferred_release_bytes) },
    { "expandable_segments", "True or False", set_bool, AT(expandable_segments) },
    { "garbage_collection_threshold", "above 0 and below 1", set_fraction,
      AT(garbage_collection_threshold) },
    { "max_non_split_rounding_mb", MB, set_mb, AT(max_non_split_rounding_bytes) },
    { "max_split_size_mb", MB " from 21", set_split_mb, AT(max_split_bytes) },
    { "offset_plan", "True or False", set_bool, AT(offset_plan) },
    { "roundup_power2_divisions",
      "a power of 2 up to 32768, or [256:1,512:2,>:4] with powers of 2, sizes in MiB "
      "growing",
      set_divisions, AT(roundup_power2_divisions) },
};
enum { N_KEYS = sizeof keys / sizeof *keys };
#undef AT
#undef MB

ebb__alloc_options ebb__alloc_options_default(void)
{
    return (ebb__alloc_options){ .max_non_split_rounding_bytes = (size_t)20 << MIB_BITS };
}

static ebb_status unknown_key(const char *name, const char *where)
{
    const char *names[N_KEYS];
    char all[400] = "";
    for (int i = 0; i < N_KEYS; i++) {
        names[i] = keys[i].name;
        size_t used = strlen(all);
        snprintf(all + used, sizeof all - used, "%s%s", i ? ", " : "", names[i]);
    }
    const char *near = ebb__nearest(name, names, N_KEYS);
    if (near)
        return ebb_fail(EBB_EINVAL, "%s: unknown key \"%s\"; did you mean \"%s\"? There are: %s",
                        where, name, near, all);
    return ebb_fail(EBB_EINVAL, "%s: unknown key \"%s\"; there are: %s", where, name, all);
}

static ebb_status set_key(ebb__alloc_options *options, const char *name, const char *value,
                          const char *where)
{
    for (int i = 0; i < N_KEYS; i++) {
        if (strcmp(keys[i].name, name) != 0) continue;
        if (keys[i].set((char *)options + keys[i].offset, value)) return EBB_OK;
        return ebb_fail(EBB_EINVAL, "%s: %s is \"%s\"; allowed: %s", where, name, value,
                        keys[i].allowed);
    }
    return unknown_key(name, where);
}

/* ---- text -------------------------------------------------------------------------------- */

/* Copies up to one of `ends` outside brackets, without spaces; returns where it stopped, NULL where
 * it does not fit. */
static const char *copy_until(char *out, size_t bytes, const char *text, const char *ends)
{
    size_t used = 0;
    int depth = 0;
    for (; *text && (depth > 0 || !strchr(ends, *text)); text++) {
        if (isspace((unsigned char)*text)) continue;
        depth += (*text == '[') - (*text == ']');
        if (used + 1 >= bytes) return NULL;
        out[used++] = *text;
    }
    out[used] = '\0';
    return text;
}

ebb_status ebb__alloc_options_parse(ebb__alloc_options *options, const char *text,
                                    const char *where)
{
    ebb__alloc_options o = *options;
    while (text && *text) {
        char name[64], value[VALUE_BYTES];
        const char *at = copy_until(name, sizeof name, text, ":,");
        if (at && *at != ':') at = NULL;
        if (at) at = copy_until(value, sizeof value, at + 1, ",");
        if (!at)
            return ebb_fail(EBB_EINVAL, "%s: expected key:value,key:value at \"%.60s\"", where,
                            text);
        ebb_status status = set_key(&o, name, value, where);
        if (status != EBB_OK) return status;
        text = *at == ',' ? at + 1 : at;
    }
    *options = o;
    return EBB_OK;
}

static bool format_value(char *out, size_t bytes, const cJSON *item)
{
    int n = -1;
    if (cJSON_IsBool(item))
        n = snprintf(out, bytes, "%s", cJSON_IsTrue(item) ? "True" : "False");
    else if (cJSON_IsNumber(item))
        n = snprintf(out, bytes, "%.17g", item->valuedouble);
    else if (cJSON_IsString(item))
        n = snprintf(out, bytes, "%s", item->valuestring);
    return n > 0 && (size_t)n < bytes;
}

ebb_status ebb__alloc_options_from_json(char *text, size_t text_bytes, const cJSON *object,
                                        const char *where)
{
    ebb__alloc_options checked = ebb__alloc_options_default();
    size_t used = 0;
    text[0] = '\0';
    for (const cJSON *item = object ? object->child : NULL; item; item = item->next) {
        char value[VALUE_BYTES];
        if (!format_value(value, sizeof value, item))
            return ebb_fail(EBB_EINVAL, "%s.%.60s: expected a number, a string or a boolean", where,
                            item->string);
        ebb_status status = set_key(&checked, item->string, value, where);
        if (status != EBB_OK) return status;
        int n = snprintf(text + used, text_bytes - used, "%s%s:%s", used ? "," : "", item->string,
                         value);
        if (n < 0 || (size_t)n >= text_bytes - used)
            return ebb_fail(EBB_EINVAL, "%s: too long", where);
        used += (size_t)n;
    }
    return EBB_OK;
}
