/* device/profile.c: profiles from JSON. */
#include "device/profile.h"

#include <stddef.h>
#include <stdio.h>
#include <string.h>

#include "core/json.h"
#include "core/site.h"

typedef struct keys {
    char kind[EBB__KIND_BYTES], name[96];
    size_t capacity_bytes, lent_bytes, page_bytes;
    char compute[8]; /* "9.0" */
    int64_t processors;
} keys;

#define MAX_BYTES 9007199254740991.0
#define KEY(key_, kind_, ...) \
    { .key = #key_, .kind = kind_, .offset = offsetof(keys, key_), .required = true, __VA_ARGS__ }
static const ebb__field fields[] = {
    KEY(kind, EBB__STRING, .bytes = sizeof((keys *)0)->kind),
    KEY(name, EBB__STRING, .bytes = sizeof((keys *)0)->name),
    KEY(capacity_bytes, EBB__SIZE, .min = 1 << 20, .max = MAX_BYTES),
    KEY(lent_bytes, EBB__SIZE, .min = 0, .max = MAX_BYTES),
    KEY(page_bytes, EBB__SIZE, .min = 0, .max = 1 << 30),
    { .key = "compute", .kind = EBB__STRING, .offset = offsetof(keys, compute), .bytes = sizeof((keys *)0)->compute },
    KEY(processors, EBB__INT, .min = 1, .max = 1e6),
};

static ebb_status read_compute(ebb__accel_facts *out, const keys *k, const ebb__accel_kind *kind)
{
    unsigned major, minor;
    char end;
    int least = kind->min_compute;
    if (least == 0 && !*k->compute) return EBB_OK;
    if (least == 0)
        return ebb_fail(EBB_EINVAL, "compute: \"%s\"; %s devices have none: leave the key out", k->compute, kind->name);
    if (!*k->compute) return ebb_fail(EBB_EINVAL, "compute: this key is required, such as \"9.0\"");
    if (sscanf(k->compute, "%3u.%1u%c", &major, &minor, &end) != 2)
        return ebb_fail(EBB_EINVAL, "compute: \"%s\"; expected two numbers, such as \"9.0\"", k->compute);
    out->compute_major = (int)major;
    out->compute_minor = (int)minor;
    if (10 * out->compute_major + out->compute_minor >= least) return EBB_OK;
    return ebb_fail(EBB_EDEVICE, "compute: \"%s\"; the kernels are for %d.%d and later, and older devices are refused",
                    k->compute, least / 10, least % 10);
}

static ebb_status check_page(size_t bytes)
{
    enum { LEAST = 4096 };
    if (bytes == 0 || bytes >= LEAST) return EBB_OK;
    return ebb_fail(EBB_EINVAL, "page_bytes: %zu; expected at least %d bytes, or 0 where memory cannot be mapped page "
                    "by page", bytes, (int)LEAST);
}

/* Messages begin with the key. */
static ebb_status read_keys(ebb__accel_facts *out, const cJSON *root, const ebb__accel_kind *kind)
{
    keys k = { .capacity_bytes = 0 };
    EBB__TRY(ebb__json_read(&k, root, "", fields, sizeof fields / sizeof *fields));
    if (strcmp(k.kind, kind->name) != 0)
        return ebb_fail(EBB_EINVAL, "kind: \"%s\"; this is to be a profile of a %s device", k.kind, kind->name);
    *out = (ebb__accel_facts){ .processors = (int)k.processors, .capacity_bytes = k.capacity_bytes,
                               .lent_bytes = k.lent_bytes, .page_bytes = k.page_bytes };
    EBB__TRY(read_compute(out, &k, kind));
    EBB__TRY(check_page(k.page_bytes));
    memcpy(out->name, k.name, sizeof out->name);
    return EBB_OK;
}

const char *ebb__profile_name(int index)
{
    return index >= 0 && index < ebb__n_profile_texts ? ebb__profile_texts[index].name : NULL;
}

static ebb_status parse_text(cJSON **root, const ebb__profile_text *t)
{
    return ebb__json_parse(root, (const char *)t->text, t->bytes, t->name);
}

void ebb__profile_kind(char out[EBB__KIND_BYTES], int index)
{
    cJSON *root = NULL;
    ebb_status st = parse_text(&root, &ebb__profile_texts[index]);
    const char *kind = st == EBB_OK ? cJSON_GetStringValue(cJSON_GetObjectItemCaseSensitive(root, "kind")) : NULL;
    snprintf(out, EBB__KIND_BYTES, "%s", kind ? kind : "");
    cJSON_Delete(root);
}

/* The names of all of that kind that are built in, with commas between them. */
static void list_names(char *to, size_t bytes, const char *of)
{
    size_t used = 0;
    char kind[EBB__KIND_BYTES];
    for (int i = 0; i < ebb__n_profile_texts && used < bytes; i++) {
        ebb__profile_kind(kind, i);
        if (strcmp(kind, of) != 0) continue;
        used += (size_t)snprintf(to + used, bytes - used, "%s%s", used ? ", " : "", ebb__profile_texts[i].name);
    }
}

static ebb_status parse_builtin(cJSON **root, const char *name, const char *kind)
{
    char names[512] = "";
    for (int i = 0; i < ebb__n_profile_texts; i++) {
        const ebb__profile_text *t = &ebb__profile_texts[i];
        if (strcmp(t->name, name) == 0) return parse_text(root, t);
    }
    list_names(names, sizeof names, kind);
    return ebb_fail(EBB_EDEVICE, "no profile \"%.60s\"; there are: %s; or a FILE.json like those of devices/", name,
                    *names ? names : "none");
}

static bool is_file_name(const char *name)
{
    size_t n = strlen(name);
    return strchr(name, '/') || (n > 5 && strcmp(name + n - 5, ".json") == 0);
}

/* What is wrong with a profile is wrong with the device's name, whatever the file system or the parser call it. */
static ebb_status as_device_error(ebb_status st, const ebb__accel_kind *kind)
{
    if (st == EBB_OK || st == EBB_ENOMEM) return st;
    ebb_status code = st == EBB_EIO ? EBB_EDEVICE : st == EBB_EFORMAT ? EBB_EINVAL : st;
    return ebb_fail(code, "device dry:%s: %s", kind->name, ebb_message());
}

ebb_status ebb__profile_find(ebb__accel_facts *out, const ebb__accel_kind *kind, const char *name)
{
    cJSON *root = NULL;
    ebb_status st = is_file_name(name) ? ebb__json_load(&root, name) : parse_builtin(&root, name, kind->name);
    if (st == EBB_OK && (st = read_keys(out, root, kind)) != EBB_OK && st != EBB_ENOMEM)
        st = ebb_fail(st, "%s: %s", name, ebb_message());
    cJSON_Delete(root);
    return as_device_error(st, kind);
}
