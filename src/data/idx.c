/* data/idx.c: images and labels in MNIST's format, plain or gzip.
 * A file is: two zero bytes, the element type (8: unsigned byte), the number of dims, each dim as 4
 * bytes big endian, then the elements.  Images are [n, ...], labels [n]. */
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "core/mem.h"
#include "core/site.h"
#include "data/bytes.h"
#include "data/dataset.h"

enum { TYPE_U8 = 0x08, MAX_IDX_DIMS = 4, HEADER_BYTES = 4 + 4 * MAX_IDX_DIMS, TRAIN = 0, EVAL = 1 };

typedef struct idx_config {
    ebb__data_keys keys;
    char images[2][EBB__PATH_BYTES], labels[2][EBB__PATH_BYTES]; /* [TRAIN], [EVAL] */
    double normalize[2];                                         /* mean, std */
} idx_config;

static const char *const images_key[2] = { "data.images", "data.eval_images" };
static const char *const labels_key[2] = { "data.labels", "data.eval_labels" };

#define FIELD(name, member, ...) \
    { .key = name, .offset = offsetof(idx_config, member), __VA_ARGS__ }
#define A_PATH .kind = EBB__STRING, .bytes = EBB__PATH_BYTES
static const ebb__field fields[] = {
    EBB__DATA_KEYS,
    FIELD("images", images[TRAIN], A_PATH, .required = true),
    FIELD("labels", labels[TRAIN], A_PATH, .required = true),
    FIELD("eval_images", images[EVAL], A_PATH),
    FIELD("eval_labels", labels[EVAL], A_PATH),
    FIELD("normalize", normalize, .kind = EBB__PAIR, .min = -1e6, .max = 1e6),
};
#undef A_PATH
#undef FIELD
enum { N_FIELDS = sizeof fields / sizeof fields[0] };

typedef struct idx_state {
    idx_config config;
    int64_t n[2];
    unsigned char *images[2], *labels[2]; /* [n, width], [n]; NULL until load */
    float pixel_f32[256];                 /* what a byte becomes */
    double pixel_f64[256];
} idx_state;

typedef struct idx_header {
    int ndim;
    int64_t dims[MAX_IDX_DIMS];
    int64_t row;                          /* elements per item */
    size_t header_bytes, data_bytes;
} idx_header;

static uint32_t big_endian(const unsigned char *p)
{
    return (uint32_t)p[0] << 24 | (uint32_t)p[1] << 16 | (uint32_t)p[2] << 8 | p[3];
}

/* "28 x 28" */
static const char *describe_row(const idx_header *h, char buf[64])
{
    int used = 0;
    buf[0] = 0;
    for (int i = 1; i < h->ndim && used < 48; i++)
        used += snprintf(buf + used, 64 - (size_t)used, "%s%" PRId64, i > 1 ? " x " : "",
                         h->dims[i]);
    return buf;
}

static ebb_status parse_magic(idx_header *h, const unsigned char *raw, size_t got, int min_dims,
                              int max_dims, const char *key, const char *path)
{
    if (got < 4)
        return ebb_fail(EBB_EFORMAT, "%s: %s: expected an idx header, found %zu bytes", key, path,
                        got);
    h->ndim = raw[3];
    if (raw[0] || raw[1] || raw[2] != TYPE_U8 || h->ndim < min_dims || h->ndim > max_dims)
        return ebb_fail(EBB_EFORMAT, "%s: %s: magic number 0x%08" PRIx32 ", expected 0x0000080%d "
                        "(unsigned bytes, %s)", key, path, big_endian(raw), max_dims == 1 ? 1 : 3,
                        max_dims == 1 ? "1 dim" : "2 to 4 dims");
    h->header_bytes = 4 + 4 * (size_t)h->ndim;
    return EBB_OK;
}

/* Only reads as much of the file as the header has. */
static ebb_status read_header(idx_header *h, ebb__bytes *file, int min_dims, int max_dims,
                              const char *key, const char *path)
{
    unsigned char raw[HEADER_BYTES];
    size_t got, more;
    EBB__TRY(ebb__bytes_read(file, raw, 4, &got));
    EBB__TRY(parse_magic(h, raw, got, min_dims, max_dims, key, path));
    EBB__TRY(ebb__bytes_read(file, raw + 4, h->header_bytes - 4, &more));
    if (more < h->header_bytes - 4)
        return ebb_fail(EBB_EFORMAT, "%s: %s: expected a header of %zu bytes, found %zu", key, path,
                        h->header_bytes, 4 + more);
    h->data_bytes = h->dims[0] = big_endian(raw + 4);
    h->row = 1;
    bool fits = true;
    for (int i = 1; i < h->ndim; i++) {
        h->dims[i] = big_endian(raw + 4 + 4 * i);
        fits = fits && !__builtin_mul_overflow(h->row, h->dims[i], &h->row) &&
               ebb__mul_size(&h->data_bytes, h->data_bytes, (size_t)h->dims[i]);
    }
    if (!fits || h->data_bytes > PTRDIFF_MAX - HEADER_BYTES)
        return ebb_fail(EBB_EFORMAT, "%s: %s: the dimensions in the header overflow", key, path);
    return EBB_OK;
}

/* The file must have the bytes that its header speaks of; of gzip only that it can have them. */
static ebb_status check_size(const idx_header *h, const ebb__bytes *file, const char *key,
                             const char *path)
{
    size_t size, expected = h->header_bytes + h->data_bytes;
    bool exact = ebb__bytes_size(file, &size);
    if (size == expected || (!exact && size > expected)) return EBB_OK;
    return ebb_fail(EBB_EFORMAT, "%s: %s: expected %zu bytes of header and data, found %s%zu", key,
                    path, expected, exact ? "" : "at most ", size);
}

static ebb_status open_file(idx_header *h, ebb__bytes **file, int min_dims, int max_dims,
                            const char *key, const char *path)
{
    ebb_status st = ebb__bytes_open(file, path);
    if (st == EBB_OK) st = read_header(h, *file, min_dims, max_dims, key, path);
    if (st == EBB_OK) st = check_size(h, *file, key, path);
    if (st == EBB_OK) return EBB_OK;
    ebb__bytes_close(*file);
    *file = NULL;
    return st;
}

static ebb_status check_header(idx_header *h, int min_dims, int max_dims, const char *key,
                               const char *path)
{
    ebb__bytes *file = NULL;
    ebb_status st = open_file(h, &file, min_dims, max_dims, key, path);
    ebb__bytes_close(file);
    return st;
}

static ebb_status check_split(ebb_dataset *data, int split)
{
    idx_state *s = data->state;
    const char *images = s->config.images[split], *labels = s->config.labels[split];
    idx_header pixels, classes;
    char row[64];
    EBB__TRY(check_header(&pixels, 2, MAX_IDX_DIMS, images_key[split], images));
    EBB__TRY(check_header(&classes, 1, 1, labels_key[split], labels));
    if (pixels.dims[0] != classes.dims[0])
        return ebb_fail(EBB_EFORMAT, "%s: %s has %" PRId64 " labels, but %s has %" PRId64 " images",
                        labels_key[split], labels, classes.dims[0], images, pixels.dims[0]);
    if (pixels.row != data->info.width)
        return ebb_fail(EBB_EINVAL, "model.input: %" PRId64 ", but %s (%s) has items of %s = %"
                        PRId64 " values", data->info.width, images_key[split], images,
                        describe_row(&pixels, row), pixels.row);
    s->n[split] = pixels.dims[0];
    return EBB_OK;
}

static ebb_status read_config(idx_config *c, const cJSON *object)
{
    c->normalize[0] = 0;
    c->normalize[1] = 1;
    EBB__TRY(ebb__json_read(c, object, "data", fields, N_FIELDS));
    if (!c->images[EVAL][0] != !c->labels[EVAL][0])
        return ebb_fail(EBB_EINVAL, "%s: is missing; eval_images and eval_labels go together",
                        c->images[EVAL][0] ? labels_key[EVAL] : images_key[EVAL]);
    if (!(c->normalize[1] > 0))
        return ebb_fail(EBB_EINVAL, "data.normalize[1]: %g; the standard deviation must be > 0",
                        c->normalize[1]);
    return EBB_OK;
}

static ebb_status idx_open(ebb_dataset *data, const cJSON *object)
{
    idx_state *s = data->state = ebb__calloc(1, sizeof *s);
    if (!s) return EBB_ENOMEM;
    EBB__TRY(read_config(&s->config, object));
    EBB__TRY(check_split(data, TRAIN));
    if (s->config.images[EVAL][0]) EBB__TRY(check_split(data, EVAL));
    if (!s->n[TRAIN])
        return ebb_fail(EBB_EINVAL, "data.images: %s has no images", s->config.images[TRAIN]);
    data->info.n_train = s->n[TRAIN];
    data->info.n_eval = s->n[EVAL];
    for (int i = 0; i < 256; i++) {
        s->pixel_f64[i] = (i / 255.0 - s->config.normalize[0]) / s->config.normalize[1];
        s->pixel_f32[i] = (float)s->pixel_f64[i];
    }
    return EBB_OK;
}

/* ---- loading ----------------------------------------------------------------------------- */

/* The data after the header, which must end where the header says. */
static ebb_status read_data(unsigned char *to, ebb__bytes *file, size_t bytes, const char *key,
                            const char *path)
{
    unsigned char beyond;
    size_t got, more;
    EBB__TRY(ebb__bytes_read(file, to, bytes, &got));
    if (got < bytes)
        return ebb_fail(EBB_EFORMAT, "%s: %s: cut off: expected %zu bytes of data, found %zu", key,
                        path, bytes, got);
    EBB__TRY(ebb__bytes_read(file, &beyond, 1, &more));
    if (more)
        return ebb_fail(EBB_EFORMAT, "%s: %s: expected %zu bytes of data, found more", key, path,
                        bytes);
    return EBB_OK;
}

static ebb_status load_file(unsigned char **out, int64_t n, int64_t row, const char *key,
                            const char *path)
{
    idx_header h;
    ebb__bytes *file = NULL;
    bool is_labels = row == 0;
    ebb_status st =
        open_file(&h, &file, is_labels ? 1 : 2, is_labels ? 1 : MAX_IDX_DIMS, key, path);
    if (st != EBB_OK) return st;
    unsigned char *bytes = NULL;
    if (h.dims[0] != n || (!is_labels && h.row != row))
        st = ebb_fail(EBB_EFORMAT, "%s: %s: has changed since it was opened", key, path);
    else if (!(bytes = ebb__malloc(h.data_bytes)))
        st = EBB_ENOMEM;
    else
        st = read_data(bytes, file, h.data_bytes, key, path);
    ebb__bytes_close(file);
    if (st == EBB_OK) *out = bytes;
    else ebb__free(bytes);
    return st;
}

static ebb_status check_labels(const unsigned char *labels, int64_t n, int64_t classes,
                               const char *key, const char *path)
{
    for (int64_t i = 0; i < n; i++)
        if (labels[i] >= classes)
            return ebb_fail(EBB_EINVAL, "%s: %s: label %d of item %" PRId64 " is outside [0, %"
                            PRId64 "), the model's classes", key, path, labels[i], i, classes);
    return EBB_OK;
}

static ebb_status load_split(ebb_dataset *data, int split)
{
    idx_state *s = data->state;
    const idx_config *c = &s->config;
    if (!s->labels[split])
        EBB__TRY(load_file(&s->labels[split], s->n[split], 0, labels_key[split], c->labels[split]));
    EBB__TRY(check_labels(s->labels[split], s->n[split], data->info.classes, labels_key[split],
                          c->labels[split]));
    if (s->images[split]) return EBB_OK;
    return load_file(&s->images[split], s->n[split], data->info.width, images_key[split],
                     c->images[split]);
}

static ebb_status idx_load(ebb_dataset *data)
{
    const idx_state *s = data->state;
    EBB__TRY(load_split(data, TRAIN));
    return s->config.images[EVAL][0] ? load_split(data, EVAL) : EBB_OK;
}

static ebb_status idx_fill(const ebb_dataset *data, bool eval, int64_t item, void *input,
                           ebb_dtype dtype, int32_t *targets)
{
    const idx_state *s = data->state;
    int64_t width = data->info.width;
    const unsigned char *pixels = s->images[eval] + item * width;
    if (dtype == EBB_F32)
        for (int64_t i = 0; i < width; i++) ((float *)input)[i] = s->pixel_f32[pixels[i]];
    else
        for (int64_t i = 0; i < width; i++) ((double *)input)[i] = s->pixel_f64[pixels[i]];
    targets[0] = s->labels[eval][item];
    return EBB_OK;
}

static void idx_close(ebb_dataset *data)
{
    idx_state *s = data->state;
    if (!s) return;
    for (int split = 0; split < 2; split++) {
        ebb__free(s->images[split]);
        ebb__free(s->labels[split]);
    }
    ebb__free(s);
}

const ebb__dataset_kind ebb__dataset_idx = {
    .name = "idx", .gives_samples = true,
    .fields = fields, .n_fields = N_FIELDS,
    .open = idx_open, .load = idx_load, .fill = idx_fill, .close = idx_close,
};
