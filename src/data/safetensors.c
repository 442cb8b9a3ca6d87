/* data/safetensors.c: opens and reads safetensors files. */
#include "data/safetensors.h"

#include <inttypes.h>

#include "core/file.h"
#include "core/mem.h"
#include "core/site.h"
#include "tensor/host_view.h"

_Static_assert(__BYTE_ORDER__ == __ORDER_LITTLE_ENDIAN__, "safetensors holds little-endian values");

struct ebb_safetensors {
    char *path;
    size_t data_start;     /* offset of the data in the file */
    ebb__st_header header;
};

static ebb_status read_header(ebb_safetensors *file)
{
    size_t file_bytes, header_bytes;
    unsigned char prefix[EBB__ST_PREFIX_BYTES];
    ebb_status st = ebb__file_size(&file_bytes, file->path);
    if (st != EBB_OK) return st;
    size_t got = file_bytes < sizeof prefix ? file_bytes : sizeof prefix;
    st = ebb__file_read_at(file->path, 0, prefix, got);
    if (st == EBB_OK) st = ebb__st_header_length(&header_bytes, prefix, file_bytes, file->path);
    if (st != EBB_OK) return st;

    char *text = ebb__malloc(header_bytes);
    if (!text) return EBB_ENOMEM;
    file->data_start = EBB__ST_PREFIX_BYTES + header_bytes;
    st = ebb__file_read_at(file->path, EBB__ST_PREFIX_BYTES, text, header_bytes);
    if (st == EBB_OK)
        st = ebb__st_header_parse(&file->header, text, header_bytes, file_bytes - file->data_start,
                                  file->path);
    ebb__free(text);
    return st;
}

ebb_status ebb_safetensors_open(ebb_safetensors **out, const char *path)
{
    if (!out || !path) return ebb_fail(EBB_EINVAL, "safetensors_open: an argument is NULL");
    ebb_safetensors *file = ebb__calloc(1, sizeof *file);
    if (!file) return EBB_ENOMEM;
    file->path = ebb__strdup(path);
    ebb_status st = file->path ? read_header(file) : EBB_ENOMEM;
    if (st == EBB_OK) *out = file;
    else ebb_safetensors_close(file);
    return st;
}

void ebb_safetensors_close(ebb_safetensors *file)
{
    if (!file) return;
    ebb__st_header_free(&file->header);
    ebb__free(file->path);
    ebb__free(file);
}

int ebb_safetensors_count(const ebb_safetensors *file)
{
    return file->header.n;
}

int ebb_safetensors_find(const ebb_safetensors *file, const char *name)
{
    return ebb__st_header_find(&file->header, name);
}

ebb_safetensors_entry ebb_safetensors_at(const ebb_safetensors *file, int index)
{
    ebb_safetensors_entry entry = { .name = "", .dtype_name = "" };
    if (index < 0 || index >= file->header.n) return entry;
    const ebb__st_entry *e = &file->header.entries[index];
    entry.name = e->name;
    entry.known_dtype = e->dtype->dtype >= 0;
    entry.dtype = entry.known_dtype ? (ebb_dtype)e->dtype->dtype : EBB_U8;
    entry.dtype_name = e->dtype->name;
    entry.ndim = e->ndim;
    for (int i = 0; i < e->ndim && i < EBB_MAX_DIMS; i++) entry.dims[i] = e->dims[i];
    entry.bytes = (size_t)(e->end - e->begin);
    return entry;
}

static ebb_status check_index(const ebb_safetensors *file, int index)
{
    if (index >= 0 && index < file->header.n) return EBB_OK;
    return ebb_fail(EBB_EINVAL, "%s: entry %d is not in [0, %d)", file->path, index,
                    file->header.n);
}

ebb_status ebb_safetensors_read_data(void *data, size_t data_bytes, const ebb_safetensors *file,
                                     int index)
{
    ebb_status st = check_index(file, index);
    if (st != EBB_OK) return st;
    const ebb__st_entry *e = &file->header.entries[index];
    if (data_bytes != e->end - e->begin)
        return ebb_fail(EBB_EINVAL, "%s: tensor '%s' has %" PRIu64 " bytes; the buffer has %zu",
                        file->path, e->name, e->end - e->begin, data_bytes);
    if (!data_bytes) return EBB_OK;
    return ebb__file_read_at(file->path, file->data_start + (size_t)e->begin, data, data_bytes);
}

/* The tensor is new and its data aligned, whatever the alignment within the file. */
static ebb_status read_tensor(ebb_tensor *t, const ebb_safetensors *file, int index)
{
    ebb__host_view view;
    EBB__TRY(ebb__host_view_of(&view, t, EBB__VIEW_WRITE));
    ebb_status st = view.data ? ebb_safetensors_read_data(view.data, view.bytes, file, index) : EBB_OK;
    return ebb__host_view_close(&view, st);
}

ebb_status ebb_safetensors_read(ebb_tensor **out, ebb_context *ctx, const ebb_safetensors *file,
                                int index)
{
    EBB_LOCAL(t);
    ebb_status st = check_index(file, index);
    if (st != EBB_OK) return st;
    const ebb__st_entry *e = &file->header.entries[index];
    if (e->dtype->dtype < 0)
        return ebb_fail(EBB_EUNSUPPORTED, "%s: tensor '%s' is %s, a dtype that ebb does not have",
                        file->path, e->name, e->dtype->name);
    if (e->ndim > EBB_MAX_DIMS)
        return ebb_fail(EBB_EUNSUPPORTED, "%s: tensor '%s' has %d dimensions; ebb has at most %d",
                        file->path, e->name, e->ndim, EBB_MAX_DIMS);
    st = ebb_empty(&t, ctx, (ebb_dtype)e->dtype->dtype, e->ndim, e->dims);
    if (st == EBB_OK) st = ebb_tensor_set_name(t, e->name);
    if (st == EBB_OK) st = read_tensor(t, file, index);
    if (st == EBB_OK) ebb_move(out, &t);
    return st;
}
