/* data/bytes.h: the bytes of a plain or gzip file, in order.
 * Which of the two is seen from the first two bytes.  Memory of the decompressor goes through
 * core/mem.h, as all else. */
#ifndef EBB_DATA_BYTES_H
#define EBB_DATA_BYTES_H

#include <ebb/status.h>

typedef struct ebb__bytes ebb__bytes;

/* Errors: EIO, ENOMEM. */
EBB_NODISCARD ebb_status ebb__bytes_open(ebb__bytes **out, const char *path);
void ebb__bytes_close(ebb__bytes *bytes); /* NULL is fine */

/* Up to n bytes; *got < n only at the end of the data.
 * Errors: EFORMAT (corrupt or cut-off gzip data; message with path), EIO, ENOMEM. */
EBB_NODISCARD ebb_status ebb__bytes_read(ebb__bytes *bytes, void *buf, size_t n, size_t *got);

/* Size of the data: exact for a plain file (true).  For gzip (false), whose size is known only at
 * its end, the most that a file of this size can hold. */
bool ebb__bytes_size(const ebb__bytes *bytes, size_t *out);

#endif
