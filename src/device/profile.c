/* device/profile.c: profiles from JSON. */
#include "device/profile.h"

#include <stddef.h>
#include <stdio.h>
#include <string.h>

#include "core/json.h"
#include "core/site.h"

typedef struct keys {
    char kind[16], name[96];
    size_t capacity_bytes, lent_bytes, page_bytes;
    char compute[8]; /* "9.0" */
    int64_t processors;
} keys;

#define MAX_BYTES 9007199254740991.0
#define KEY(key_, kind_, ...) { .key = #key_, .kind = kind_, .offset = offsetof(keys, key_), .required = true, __VA_ARGS__ }
static const ebb__field fields[] = {
    KEY(kind, EBB__STRING, .bytes = sizeof((keys *)0)->kind),
    KEY(name, EBB__STRING, .bytes = sizeof((keys *)0)->name),
    KEY(capacity_bytes, EBB__SIZE, .min = 1 << 20, .max = MAX_BYTES),
    KEY(lent_bytes, EBB__SIZE, .min = 0, .max = MAX_BYTES),
    KEY(page_bytes, EBB__SIZE, .min = 4096, .max = 1 << 30),
    KEY(compute, EBB__STRING, .bytes = sizeof((keys *)0)->compute),
    KEY(processors, EBB__INT, .min = 1, .max = 1e6),
};

static ebb_status read_keys(ebb__accel_facts *out, const cJSON *root, const char *kind, const char *where)
{
    keys k = { .capacity_bytes = 0 };
    int major, minor;
    char end;
    EBB__TRY(ebb__json_read(&k, root, "", fields, sizeof fields / sizeof *fields));
    if (strcmp(k.kind, kind) != 0)
        return ebb_fail(EBB_EINVAL, "%s: kind: \"%s\"; this is to be a profile of a %s device", where, k.kind, kind);
    if (sscanf(k.compute, "%3d.%3d%c", &major, &minor, &end) != 2)
        return ebb_fail(EBB_EINVAL, "%s: compute: \"%s\"; expected two numbers, such as \"9.0\"", where, k.compute);
    *out = (ebb__accel_facts){ .compute_major = major, .compute_minor = minor, .processors = (int)k.processors,
                               .capacity_bytes = k.capacity_bytes, .lent_bytes = k.lent_bytes,
                               .page_bytes = k.page_bytes };
    memcpy(out->name, k.name, sizeof out->name);
    return EBB_OK;
}

const char *ebb__profile_name(int index)
{
    return index >= 0 && index < ebb__n_profile_texts ? ebb__profile_texts[index].name : NULL;
}

static ebb_status parse_builtin(cJSON **root, const char *kind, const char *name)
{
    char names[256] = "";
    for (int i = 0; i < ebb__n_profile_texts; i++) {
        const ebb__profile_text *t = &ebb__profile_texts[i];
        if (strcmp(t->name, name) == 0) return ebb__json_parse(root, (const char *)t->text, t->bytes, t->name);
        size_t used = strlen(names);
        snprintf(names + used, sizeof names - used, "%s%s", used ? ", " : "", t->name);
    }
    return ebb_fail(EBB_EDEVICE, "device dry:%s: no profile \"%.60s\"; there are: %s; or a FILE.json like those of "
                    "devices/", kind, name, names);
}

ebb_status ebb__profile_find(ebb__accel_facts *out, const char *kind, const char *name)
{
    cJSON *root = NULL;
    size_t n = strlen(name);
    bool file = strchr(name, '/') || (n > 5 && strcmp(name + n - 5, ".json") == 0);
    ebb_status st = file ? ebb__json_load(&root, name) : parse_builtin(&root, kind, name);
    if (st == EBB_OK) st = read_keys(out, root, kind, name);
    cJSON_Delete(root);
    return st;
}
