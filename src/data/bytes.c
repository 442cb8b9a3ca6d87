/* data/bytes.c: see bytes.h. */
#include "data/bytes.h"

#include <string.h>
#include <zlib.h>

#include "core/file.h"
#include "core/mem.h"

enum {
    CHUNK_BYTES = 64 << 10,
    GZIP_WINDOW = 15 + 16, /* zlib: 32 KiB window, gzip wrapper */
    MAX_EXPANSION = 1032   /* of deflate: at best 258 bytes from 2 bits */
};

struct ebb__bytes {
    char *path;
    size_t file_bytes, offset; /* what of the file is in `chunk` already */
    bool gzip, started;        /* started: `inflater` must be ended */
    bool between_members;      /* a gzip member has ended; another one, or the end, follows */
    z_stream inflater;         /* next_in, avail_in: what is left of `chunk`, for plain files too */
    unsigned char chunk[CHUNK_BYTES];
};

static void *zlib_alloc(void *self, unsigned n, unsigned bytes)
{
    (void)self;
    return ebb__calloc(n, bytes);
}

static void zlib_free(void *self, void *p)
{
    (void)self;
    ebb__free(p);
}

static ebb_status refill(ebb__bytes *b)
{
    size_t left = b->file_bytes - b->offset, n = left < CHUNK_BYTES ? left : CHUNK_BYTES;
    if (n) {
        ebb_status st = ebb__file_read_at(b->path, b->offset, b->chunk, n);
        if (st != EBB_OK) return st;
    }
    b->offset += n;
    b->inflater.next_in = b->chunk;
    b->inflater.avail_in = (unsigned)n;
    return EBB_OK;
}

static ebb_status start(ebb__bytes *b)
{
    ebb_status st = ebb__file_size(&b->file_bytes, b->path);
    if (st == EBB_OK) st = refill(b);
    if (st != EBB_OK) return st;
    b->gzip = b->inflater.avail_in >= 2 && b->chunk[0] == 0x1F && b->chunk[1] == 0x8B;
    if (!b->gzip) return EBB_OK;
    b->inflater.zalloc = zlib_alloc;
    b->inflater.zfree = zlib_free;
    if (inflateInit2(&b->inflater, GZIP_WINDOW) != Z_OK)
        return EBB_ENOMEM; /* set by ebb__calloc() */
    b->started = true;
    return EBB_OK;
}

ebb_status ebb__bytes_open(ebb__bytes **out, const char *path)
{
    ebb__bytes *b = ebb__calloc(1, sizeof *b);
    if (!b) return EBB_ENOMEM;
    b->path = ebb__strdup(path);
    ebb_status st = b->path ? start(b) : EBB_ENOMEM;
    if (st == EBB_OK) *out = b;
    else ebb__bytes_close(b);
    return st;
}

void ebb__bytes_close(ebb__bytes *bytes)
{
    if (!bytes) return;
    if (bytes->started) inflateEnd(&bytes->inflater);
    ebb__free(bytes->path);
    ebb__free(bytes);
}

bool ebb__bytes_size(const ebb__bytes *bytes, size_t *out)
{
    *out = bytes->file_bytes;
    if (bytes->gzip && __builtin_mul_overflow(*out, MAX_EXPANSION, out)) *out = SIZE_MAX;
    return !bytes->gzip;
}

/* Takes the next bytes of a plain file; 0 at its end. */
static ebb_status read_plain(ebb__bytes *b, unsigned char *to, size_t n, size_t *got)
{
    if (!b->inflater.avail_in) {
        ebb_status st = refill(b);
        if (st != EBB_OK) return st;
    }
    *got = n < b->inflater.avail_in ? n : b->inflater.avail_in;
    memcpy(to, b->inflater.next_in, *got);
    b->inflater.next_in += *got;
    b->inflater.avail_in -= (unsigned)*got;
    return EBB_OK;
}

/* One step of the decompressor; *got may be 0 in the middle, *end says whether the data is over. */
static ebb_status read_gzip(ebb__bytes *b, unsigned char *to, size_t n, size_t *got, bool *end)
{
    *got = 0;
    if (!b->inflater.avail_in) {
        ebb_status st = refill(b);
        if (st != EBB_OK) return st;
        *end = !b->inflater.avail_in && b->between_members;
        if (*end) return EBB_OK;
        if (!b->inflater.avail_in)
            return ebb_fail(EBB_EFORMAT, "%s: the gzip data is cut off after %zu bytes of file",
                            b->path, b->file_bytes);
    }
    if (b->between_members && inflateReset(&b->inflater) != Z_OK)
        return ebb_fail(EBB_EFORMAT, "%s: gzip", b->path);
    b->between_members = false;
    b->inflater.next_out = to;
    b->inflater.avail_out = n < (1u << 30) ? (unsigned)n : 1u << 30;
    unsigned room = b->inflater.avail_out;
    int code = inflate(&b->inflater, Z_NO_FLUSH);
    *got = room - b->inflater.avail_out;
    b->between_members = code == Z_STREAM_END;
    if (code == Z_OK || code == Z_STREAM_END || code == Z_BUF_ERROR) return EBB_OK;
    if (code == Z_MEM_ERROR) return EBB_ENOMEM; /* set by ebb__calloc() */
    return ebb_fail(EBB_EFORMAT, "%s: the gzip data is corrupt (%s)", b->path,
                    b->inflater.msg ? b->inflater.msg : "unexpected dictionary");
}

ebb_status ebb__bytes_read(ebb__bytes *bytes, void *buf, size_t n, size_t *got)
{
    unsigned char *to = buf;
    bool end = false;
    *got = 0;
    while (*got < n && !end) {
        size_t step = 0;
        ebb_status st = bytes->gzip ? read_gzip(bytes, to + *got, n - *got, &step, &end)
                                    : read_plain(bytes, to + *got, n - *got, &step);
        if (st != EBB_OK) return st;
        if (!bytes->gzip) end = step == 0;
        *got += step;
    }
    return EBB_OK;
}
