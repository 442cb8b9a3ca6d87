/* data/safetensors.h: the header of a safetensors file, apart from any reading of files.
 *
 * A file is: 8 bytes N (little endian), N bytes of JSON, then the tensors' bytes without hole or
 * overlap.  The JSON maps each name to {"dtype", "shape", "data_offsets": [begin, end]}, counted
 * from the end of the header; "__metadata__" maps strings to strings. */
#ifndef EBB_DATA_SAFETENSORS_H
#define EBB_DATA_SAFETENSORS_H

#include <ebb/data.h>

/* A header longer than this is refused even where the file is long enough; the reference
 * implementation draws the same line. */
#define EBB__ST_MAX_HEADER_BYTES 100000000u
enum { EBB__ST_PREFIX_BYTES = 8 };

typedef struct ebb__st_dtype {
    const char *name;      /* as files write it */
    unsigned bits;         /* of one element */
    int dtype;             /* ebb_dtype, or -1: ebb has none such */
} ebb__st_dtype;

const ebb__st_dtype *ebb__st_dtype_named(const char *name); /* NULL: not in the format */
const ebb__st_dtype *ebb__st_dtype_of(ebb_dtype dtype);

typedef struct ebb__st_entry {
    const char *name;          /* in ebb__st_header.names */
    const ebb__st_dtype *dtype;
    int ndim;                  /* may exceed EBB_MAX_DIMS: then dims holds the first ones only */
    int64_t dims[EBB_MAX_DIMS];
    uint64_t begin, end;       /* bytes from the start of the data */
} ebb__st_entry;

typedef struct ebb__st_header {
    ebb__st_entry *entries;    /* in the order of the file */
    int *by_name;              /* indices of entries, sorted by name */
    int n;
    size_t cap;
    char *names;
} ebb__st_header;

/* Length of the JSON from the file's first bytes, checked against the file's size before anybody
 * allocates by it.  prefix has min(8, file_bytes) bytes.  Errors: EFORMAT (length and limit). */
EBB_NODISCARD ebb_status ebb__st_header_length(size_t *out, const unsigned char *prefix,
                                               uint64_t file_bytes, const char *path);
/* Checks the JSON wholly: dtypes, shapes against offsets, offsets against each other and against
 * data_bytes.  Owner: *out is the caller's; ebb__st_header_free().  Errors: EFORMAT, ENOMEM. */
EBB_NODISCARD ebb_status ebb__st_header_parse(ebb__st_header *out, const char *text, size_t bytes,
                                              uint64_t data_bytes, const char *path);
void ebb__st_header_free(ebb__st_header *header); /* zeroed headers are fine */
int ebb__st_header_find(const ebb__st_header *header, const char *name); /* -1: none */

#endif
