/* data/safetensors_write.c: writes tensors in the order given: equal input gives equal bytes. */
#include <inttypes.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "core/file.h"
#include "core/mem.h"
#include "core/site.h"
#include "data/safetensors.h"
#include "tensor/host_view.h"

typedef struct text { char *bytes; size_t used, cap; } text;

static ebb_status put(text *t, const char *bytes, size_t n)
{
    ebb_status st = ebb__grow(&t->bytes, &t->cap, t->used + n, 1);
    if (st != EBB_OK) return st;
    memcpy(t->bytes + t->used, bytes, n);
    t->used += n;
    return EBB_OK;
}

static ebb_status put_format(text *t, const char *fmt, ...) EBB_PRINTF(2, 3);
static ebb_status put_format(text *t, const char *fmt, ...)
{
    char line[128];
    va_list args;
    va_start(args, fmt);
    int n = vsnprintf(line, sizeof line, fmt, args);
    va_end(args);
    return put(t, line, (size_t)n);
}

static ebb_status put_string(text *t, const char *s)
{
    EBB__TRY(put(t, "\"", 1));
    for (; *s; s++) {
        unsigned char ch = (unsigned char)*s;
        if (ch == '"' || ch == '\\') EBB__TRY(put_format(t, "\\%c", ch));
        else if (ch < 0x20) EBB__TRY(put_format(t, "\\u%04x", ch));
        else EBB__TRY(put(t, s, 1));
    }
    return put(t, "\"", 1);
}

static size_t tensor_bytes(const ebb_tensor *t)
{
    return (size_t)ebb_tensor_elems(t) * ebb_dtype_bytes(ebb_tensor_dtype(t));
}

static ebb_status put_entry(text *t, const ebb_named_tensor *named, uint64_t begin)
{
    const ebb_tensor *x = named->tensor;
    EBB__TRY(put_string(t, named->name));
    EBB__TRY(put_format(t, ":{\"dtype\":\"%s\",\"shape\":[",
                        ebb__st_dtype_of(ebb_tensor_dtype(x))->name));
    for (int i = 0; i < ebb_tensor_ndim(x); i++)
        EBB__TRY(put_format(t, "%s%" PRId64, i ? "," : "", ebb_tensor_dims(x)[i]));
    return put_format(t, "],\"data_offsets\":[%" PRIu64 ",%" PRIu64 "]}", begin,
                      begin + tensor_bytes(x));
}

/* The prefix, the JSON, and spaces so that the data starts at a multiple of 8. */
static ebb_status build_header(text *t, const ebb_named_tensor *tensors, int n, const char *path)
{
    unsigned char prefix[EBB__ST_PREFIX_BYTES] = { 0 };
    uint64_t begin = 0;
    EBB__TRY(put(t, (const char *)prefix, sizeof prefix));
    EBB__TRY(put(t, "{", 1));
    for (int i = 0; i < n; i++) {
        if (i) EBB__TRY(put(t, ",", 1));
        EBB__TRY(put_entry(t, &tensors[i], begin));
        begin += tensor_bytes(tensors[i].tensor);
    }
    EBB__TRY(put(t, "}", 1));
    while (t->used % 8) EBB__TRY(put(t, " ", 1));
    uint64_t length = t->used - sizeof prefix;
    if (length > EBB__ST_MAX_HEADER_BYTES)
        return ebb_fail(EBB_EINVAL,
                        "%s: a header of %" PRIu64 " bytes is above the limit of %u bytes", path,
                        length, EBB__ST_MAX_HEADER_BYTES);
    for (size_t i = 0; i < sizeof prefix; i++) t->bytes[i] = (char)(length >> 8 * i & 0xFF);
    return EBB_OK;
}

/* ---- what may be written ----------------------------------------------------------------- */

/* Length of the UTF-8 sequence at s, 0 when it is none (overlong forms and surrogates included). */
static int utf8_length(const unsigned char *s)
{
    if (s[0] < 0x80) return 1;
    int n = 0;
    if (s[0] >= 0xC2 && s[0] <= 0xDF) n = 2;
    else if ((s[0] & 0xF0) == 0xE0) n = 3;
    else if (s[0] >= 0xF0 && s[0] <= 0xF4) n = 4;
    for (int i = 1; i < n; i++)
        if ((s[i] & 0xC0) != 0x80) return 0;
    if ((s[0] == 0xE0 && s[1] < 0xA0) || (s[0] == 0xED && s[1] > 0x9F)) return 0;
    if ((s[0] == 0xF0 && s[1] < 0x90) || (s[0] == 0xF4 && s[1] > 0x8F)) return 0;
    return n;
}

static bool is_utf8(const char *s)
{
    for (int n; *s; s += n)
        if (!(n = utf8_length((const unsigned char *)s))) return false;
    return true;
}

static int compare_names(const void *a, const void *b)
{
    return strcmp(*(const char *const *)a, *(const char *const *)b);
}

static ebb_status check_unique(const char **names, int n, const char *path)
{
    qsort(names, (size_t)n, sizeof *names, compare_names);
    for (int i = 1; i < n; i++)
        if (!strcmp(names[i - 1], names[i]))
            return ebb_fail(EBB_EINVAL, "%s: duplicate tensor name '%s'", path, names[i]);
    return EBB_OK;
}

/* A dry tensor has no bytes to stand beside those of others. */
static ebb_status check_devices(const ebb_named_tensor *tensors, int n, const char *path)
{
    for (int i = 1; i < n; i++) {
        bool dry = ebb_context_is_dry(ebb_tensor_context(tensors[i].tensor));
        if (dry == ebb_context_is_dry(ebb_tensor_context(tensors[0].tensor))) continue;
        return ebb_fail(EBB_EDEVICE, "%s: tensor '%s' is on a dry device, '%s' is not; all or none may be",
                        path, tensors[dry ? i : 0].name, tensors[dry ? 0 : i].name);
    }
    return EBB_OK;
}

static ebb_status check_tensors(const ebb_named_tensor *tensors, int n, const char *path)
{
    const char **names = ebb__malloc((size_t)n * sizeof *names);
    if (!names) return EBB_ENOMEM;
    ebb_status st = EBB_OK;
    for (int i = 0; i < n && st == EBB_OK; i++) {
        names[i] = tensors[i].name;
        if (!names[i] || !tensors[i].tensor)
            st = ebb_fail(EBB_EINVAL, "%s: tensor %d has no %s", path, i,
                          names[i] ? "tensor" : "name");
        else if (!strcmp(names[i], "__metadata__"))
            st = ebb_fail(EBB_EINVAL, "%s: '__metadata__' is not a tensor's name", path);
        else if (!is_utf8(names[i]))
            st = ebb_fail(EBB_EINVAL, "%s: the name of tensor %d is not UTF-8", path, i);
    }
    if (st == EBB_OK) st = check_unique(names, n, path);
    ebb__free(names);
    return st;
}

/* ---- the bytes --------------------------------------------------------------------------- */

/* Values that lie with gaps between them are gathered in host memory; others go as they are. */
static ebb_status write_tensor(ebb__writer *writer, const ebb_tensor *t)
{
    size_t bytes = tensor_bytes(t);
    if (!bytes) return EBB_OK;
    if (ebb_tensor_is_contiguous(t)) {
        ebb__host_view view;
        EBB__TRY(ebb__host_view_of(&view, t, EBB__VIEW_READ));
        return ebb__host_view_close(&view, ebb__write(writer, view.data, bytes));
    }
    void *copy = ebb__malloc(bytes);
    if (!copy) return EBB_ENOMEM;
    ebb_status st = ebb_read(t, copy, bytes);
    if (st == EBB_OK) st = ebb__write(writer, copy, bytes);
    ebb__free(copy);
    return st;
}

static ebb_status write_file(const char *path, const text *header, const ebb_named_tensor *tensors,
                             int n)
{
    ebb__writer *writer = NULL;
    ebb_status st = ebb__write_begin(&writer, path);
    if (st == EBB_OK) st = ebb__write(writer, header->bytes, header->used);
    for (int i = 0; i < n && st == EBB_OK; i++) st = write_tensor(writer, tensors[i].tensor);
    if (st == EBB_OK) return ebb__write_commit(&writer);
    ebb__write_abort(&writer);
    return st;
}

ebb_status ebb_safetensors_save(const char *path, const ebb_named_tensor *tensors, int n)
{
    if (!path || n < 0 || (n && !tensors))
        return ebb_fail(EBB_EINVAL, "safetensors_save: an argument is NULL or negative");
    EBB__TRY(check_tensors(tensors, n, path));
    EBB__TRY(check_devices(tensors, n, path));
    if (n && ebb_context_is_dry(ebb_tensor_context(tensors[0].tensor))) return EBB_OK;
    text header = { 0 };
    ebb_status st = build_header(&header, tensors, n, path);
    if (st == EBB_OK) st = write_file(path, &header, tensors, n);
    ebb__free(header.bytes);
    return st;
}
