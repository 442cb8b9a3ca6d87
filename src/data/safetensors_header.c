/* data/safetensors_header.c: checks a safetensors header; see safetensors.h. */
#include "data/safetensors.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "core/json.h"
#include "core/mem.h"
#include "data/safetensors_json.h"

static const ebb__st_dtype dtypes[] = {
    { "F32", 32, EBB_F32 },   { "F64", 64, EBB_F64 },   { "F16", 16, EBB_F16 },
    { "BF16", 16, EBB_BF16 }, { "I32", 32, EBB_I32 },   { "I64", 64, EBB_I64 },
    { "U8", 8, EBB_U8 },      { "BOOL", 8, -1 },        { "I8", 8, -1 },
    { "I16", 16, -1 },        { "U16", 16, -1 },        { "U32", 32, -1 },
    { "U64", 64, -1 },        { "F8_E4M3", 8, -1 },     { "F8_E5M2", 8, -1 },
    { "F8_E8M0", 8, -1 },     { "F8_E4M3FNUZ", 8, -1 }, { "F8_E5M2FNUZ", 8, -1 },
    { "F6_E2M3", 6, -1 },     { "F6_E3M2", 6, -1 },     { "F4", 4, -1 },
    { "C64", 64, -1 },
};
enum { N_DTYPES = sizeof dtypes / sizeof dtypes[0] };

const ebb__st_dtype *ebb__st_dtype_named(const char *name)
{
    for (int i = 0; i < N_DTYPES; i++)
        if (!strcmp(dtypes[i].name, name)) return &dtypes[i];
    return NULL;
}

const ebb__st_dtype *ebb__st_dtype_of(ebb_dtype dtype)
{
    for (int i = 0; i < N_DTYPES; i++)
        if (dtypes[i].dtype == (int)dtype) return &dtypes[i];
    return NULL;
}

ebb_status ebb__st_header_length(size_t *out, const unsigned char *prefix, uint64_t file_bytes,
                                 const char *path)
{
    if (file_bytes < EBB__ST_PREFIX_BYTES)
        return ebb_fail(EBB_EFORMAT,
                        "%s: %" PRIu64 " bytes are too few for a safetensors file (at least 8)",
                        path, file_bytes);
    uint64_t length = 0;
    for (int i = EBB__ST_PREFIX_BYTES - 1; i >= 0; i--) length = length << 8 | prefix[i];
    uint64_t left = file_bytes - EBB__ST_PREFIX_BYTES;
    if (length > EBB__ST_MAX_HEADER_BYTES)
        return ebb_fail(EBB_EFORMAT, "%s: header length %" PRIu64 " is above the limit of %u bytes",
                        path, length, EBB__ST_MAX_HEADER_BYTES);
    if (length > left)
        return ebb_fail(EBB_EFORMAT, "%s: header length %" PRIu64 " is above the limit of %" PRIu64
                        " bytes, which is all that follows in the file", path, length, left);
    *out = (size_t)length;
    return EBB_OK;
}

/* ---- one tensor -------------------------------------------------------------------------- */

/* What parsing carries along; `scratch` takes decoded strings and is as large as the header. */
typedef struct reader {
    ebb__cursor at;
    char *scratch, *names_end;
    const char *path;
} reader;

static ebb_status bad(const reader *r, const char *name, const char *what)
{
    return ebb_fail(EBB_EFORMAT, "%s: tensor '%s': %s", r->path, name, what);
}

static ebb_status read_dtype(reader *r, ebb__st_entry *e)
{
    size_t bytes;
    if (!ebb__cursor_string(&r->at, r->scratch, &bytes))
        return bad(r, e->name, "dtype must be a string");
    e->dtype = strlen(r->scratch) == bytes ? ebb__st_dtype_named(r->scratch) : NULL;
    if (!e->dtype)
        return ebb_fail(EBB_EFORMAT, "%s: tensor '%s': dtype \"%.32s\" is not one of the format's "
                        "(F32, F64, F16, BF16, I8 to I64, U8 to U64, BOOL, F8_*, F6_*, F4, C64)",
                        r->path, e->name, r->scratch);
    return EBB_OK;
}

/* Leaves the number of elements in *elems. */
static ebb_status read_shape(reader *r, ebb__st_entry *e, uint64_t *elems)
{
    if (!ebb__cursor_take(&r->at, '['))
        return bad(r, e->name, "shape must be an array of whole numbers >= 0");
    *elems = 1;
    e->ndim = 0;
    while (!ebb__cursor_take(&r->at, ']')) {
        uint64_t dim;
        if (!ebb__cursor_uint(&r->at, &dim))
            return bad(r, e->name, "shape must be an array of whole numbers >= 0 that fit 64 bits");
        if (dim > INT64_MAX || __builtin_mul_overflow(*elems, dim, elems))
            return bad(r, e->name, "shape: the number of elements overflows 64 bits");
        if (e->ndim < EBB_MAX_DIMS) e->dims[e->ndim] = (int64_t)dim;
        e->ndim++;
        ebb__cursor_take(&r->at, ',');
    }
    return EBB_OK;
}

static ebb_status read_offsets(reader *r, ebb__st_entry *e)
{
    ebb__cursor *at = &r->at;
    if (!ebb__cursor_take(at, '[') || !ebb__cursor_uint(at, &e->begin) ||
        !ebb__cursor_take(at, ',') || !ebb__cursor_uint(at, &e->end) || !ebb__cursor_take(at, ']'))
        return bad(r, e->name, "data_offsets must be two whole numbers >= 0");
    return EBB_OK;
}

/* The bytes that dtype and shape ask for must be those between the offsets. */
static ebb_status check_size(const reader *r, const ebb__st_entry *e, uint64_t elems,
                             uint64_t data_bytes)
{
    uint64_t bits;
    if (__builtin_mul_overflow(elems, (uint64_t)e->dtype->bits, &bits))
        return bad(r, e->name, "the size in bits overflows 64 bits");
    if (bits % 8) return bad(r, e->name, "its elements do not fill whole bytes");
    if (e->begin > e->end || e->end > data_bytes)
        return ebb_fail(EBB_EFORMAT,
                        "%s: tensor '%s': data_offsets [%" PRIu64 ", %" PRIu64
                        "] do not lie in order within the file's %" PRIu64 " bytes of data",
                        r->path, e->name, e->begin, e->end, data_bytes);
    if (e->end - e->begin != bits / 8)
        return ebb_fail(EBB_EFORMAT,
                        "%s: tensor '%s': data_offsets [%" PRIu64 ", %" PRIu64 "] hold %" PRIu64
                        " bytes, but its dtype and shape need %" PRIu64,
                        r->path, e->name, e->begin, e->end, e->end - e->begin, bits / 8);
    return EBB_OK;
}

/* Keys other than the three are stepped over, as the reference reader does. */
static ebb_status read_entry(reader *r, ebb__st_entry *e, uint64_t data_bytes)
{
    if (!ebb__cursor_take(&r->at, '{'))
        return bad(r, e->name, "must be an object with dtype, shape and data_offsets");
    bool has_dtype = false, has_shape = false, has_offsets = false;
    uint64_t elems = 0;
    while (!ebb__cursor_take(&r->at, '}')) {
        size_t bytes;
        if (!ebb__cursor_string(&r->at, r->scratch, &bytes) || !ebb__cursor_take(&r->at, ':'))
            return bad(r, e->name, "broken object");
        ebb_status st = EBB_OK;
        if (!strcmp(r->scratch, "dtype")) has_dtype = true, st = read_dtype(r, e);
        else if (!strcmp(r->scratch, "shape")) has_shape = true, st = read_shape(r, e, &elems);
        else if (!strcmp(r->scratch, "data_offsets")) has_offsets = true, st = read_offsets(r, e);
        else ebb__cursor_skip_value(&r->at);
        if (st != EBB_OK) return st;
        ebb__cursor_take(&r->at, ',');
    }
    if (!has_dtype) return bad(r, e->name, "dtype is missing");
    if (!has_shape) return bad(r, e->name, "shape is missing");
    if (!has_offsets) return bad(r, e->name, "data_offsets is missing");
    return check_size(r, e, elems, data_bytes);
}

static ebb_status check_metadata(reader *r)
{
    ebb_status refused = EBB_EFORMAT;
    if (!ebb__cursor_take(&r->at, '{'))
        return ebb_fail(refused, "%s: __metadata__ must be an object of strings", r->path);
    while (!ebb__cursor_take(&r->at, '}')) {
        size_t bytes;
        if (!ebb__cursor_string(&r->at, r->scratch, &bytes) || !ebb__cursor_take(&r->at, ':'))
            return ebb_fail(refused, "%s: __metadata__: broken object", r->path);
        if (ebb__cursor_peek(&r->at) != '"')
            return ebb_fail(refused, "%s: __metadata__: the value of \"%.64s\" must be a string",
                            r->path, r->scratch);
        ebb__cursor_skip_value(&r->at);
        ebb__cursor_take(&r->at, ',');
    }
    return EBB_OK;
}

/* ---- the whole header -------------------------------------------------------------------- */

static ebb_status read_all(reader *r, ebb__st_header *h, uint64_t data_bytes)
{
    if (!ebb__cursor_take(&r->at, '{'))
        return ebb_fail(EBB_EFORMAT, "%s: the header must be a JSON object", r->path);
    while (!ebb__cursor_take(&r->at, '}')) {
        size_t bytes;
        char *name = r->names_end;
        if (!ebb__cursor_string(&r->at, name, &bytes) || !ebb__cursor_take(&r->at, ':'))
            return ebb_fail(EBB_EFORMAT, "%s: broken header object", r->path);
        if (strlen(name) != bytes)
            return ebb_fail(EBB_EFORMAT, "%s: a tensor's name has a NUL inside: '%s'", r->path,
                            name);
        ebb_status st;
        if (!strcmp(name, "__metadata__")) {
            st = check_metadata(r);
        } else {
            st = ebb__grow(&h->entries, &h->cap, (size_t)h->n + 1, sizeof *h->entries);
            if (st != EBB_OK) return st;
            ebb__st_entry *e = &h->entries[h->n++];
            *e = (ebb__st_entry){ .name = name };
            r->names_end += bytes + 1;
            st = read_entry(r, e, data_bytes);
        }
        if (st != EBB_OK) return st;
        ebb__cursor_take(&r->at, ',');
    }
    return EBB_OK;
}

static int compare_names(const void *a, const void *b, void *entries)
{
    const ebb__st_entry *e = entries;
    return strcmp(e[*(const int *)a].name, e[*(const int *)b].name);
}

/* By place; of two at one place the empty one comes first. */
static int compare_offsets(const void *a, const void *b, void *entries)
{
    const ebb__st_entry *all = entries, *x = &all[*(const int *)a], *y = &all[*(const int *)b];
    if (x->begin != y->begin) return x->begin < y->begin ? -1 : 1;
    if (x->end != y->end) return x->end < y->end ? -1 : 1;
    return *(const int *)a < *(const int *)b ? -1 : 1;
}

static ebb_status check_tiling(const ebb__st_header *h, const int *order, uint64_t data_bytes,
                               const char *path)
{
    uint64_t end = 0;
    const char *before = "the start";
    for (int i = 0; i < h->n; i++) {
        const ebb__st_entry *e = &h->entries[order[i]];
        if (e->begin != end)
            return ebb_fail(EBB_EFORMAT,
                            "%s: tensor '%s' at [%" PRIu64 ", %" PRIu64
                            "] %s '%s', which ends at %" PRIu64,
                            path, e->name, e->begin, e->end,
                            e->begin < end ? "overlaps" : "leaves a hole after", before, end);
        end = e->end;
        before = e->name;
    }
    if (end != data_bytes)
        return ebb_fail(EBB_EFORMAT,
                        "%s: the last tensor ends at %" PRIu64 ", but the file has %" PRIu64
                        " bytes of data",
                        path, end, data_bytes);
    return EBB_OK;
}

/* Two spellings of one name ("a" and "\u0061") are one name. */
static ebb_status check_unique(const ebb__st_header *h, const char *path)
{
    for (int i = 1; i < h->n; i++) {
        const char *name = h->entries[h->by_name[i]].name;
        if (!strcmp(h->entries[h->by_name[i - 1]].name, name))
            return ebb_fail(EBB_EFORMAT, "%s: duplicate tensor name '%s'", path, name);
    }
    return EBB_OK;
}

static ebb_status check_entries(ebb__st_header *h, uint64_t data_bytes, const char *path)
{
    h->by_name = ebb__malloc((size_t)h->n * sizeof *h->by_name);
    if (!h->by_name) return EBB_ENOMEM;
    for (int i = 0; i < h->n; i++) h->by_name[i] = i;
    qsort_r(h->by_name, (size_t)h->n, sizeof *h->by_name, compare_offsets, h->entries);
    ebb_status st = check_tiling(h, h->by_name, data_bytes, path);
    if (st != EBB_OK) return st;
    qsort_r(h->by_name, (size_t)h->n, sizeof *h->by_name, compare_names, h->entries);
    return check_unique(h, path);
}

ebb_status ebb__st_header_parse(ebb__st_header *out, const char *text, size_t bytes,
                                uint64_t data_bytes, const char *path)
{
    ebb__st_header h = { 0 };
    reader r = { .at = { text, text + bytes }, .path = path };
    ebb_status st = ebb__json_check(text, bytes, path);
    if (st != EBB_OK) return st;
    /* A decoded string and its NUL never need more than the quoted text. */
    h.names = ebb__malloc(bytes);
    r.scratch = ebb__malloc(bytes);
    r.names_end = h.names;
    st = h.names && r.scratch ? read_all(&r, &h, data_bytes) : EBB_ENOMEM;
    if (st == EBB_OK) st = check_entries(&h, data_bytes, path);
    ebb__free(r.scratch);
    if (st == EBB_OK) *out = h;
    else ebb__st_header_free(&h);
    return st;
}

void ebb__st_header_free(ebb__st_header *header)
{
    ebb__free(header->entries);
    ebb__free(header->by_name);
    ebb__free(header->names);
    *header = (ebb__st_header){ 0 };
}

int ebb__st_header_find(const ebb__st_header *header, const char *name)
{
    int low = 0, high = header->n;
    while (low < high) {
        int middle = low + (high - low) / 2;
        int order = strcmp(header->entries[header->by_name[middle]].name, name);
        if (order == 0) return header->by_name[middle];
        if (order < 0) low = middle + 1;
        else high = middle;
    }
    return -1;
}
