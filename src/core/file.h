/* core/file.h: files are read whole or by range, and written beside and renamed. */
#ifndef EBB_CORE_FILE_H
#define EBB_CORE_FILE_H

#include <ebb/status.h>

/* Size of a regular file.  Errors: EIO (missing, a folder, not a regular file), with path and
 * reason. */
EBB_NODISCARD ebb_status ebb__file_size(size_t *out, const char *path);
/* Whole file into *out.  Owner: the caller; ebb__free().  A NUL is behind the last byte.
 * Errors: EIO (also: more than max_bytes), ENOMEM. */
EBB_NODISCARD ebb_status ebb__file_read(char **out, size_t *bytes, const char *path,
                                        size_t max_bytes);
/* Bytes [offset, offset + bytes) of a file.  Errors: EIO (also: beyond its end). */
EBB_NODISCARD ebb_status ebb__file_read_at(const char *path, size_t offset, void *buf,
                                           size_t bytes);

/* A file that appears under its name only when ebb__write_commit() succeeds: written to a temporary
 * name in the same folder, fsync'ed, renamed.  ebb__write_abort() removes the temporary; a NULL
 * writer is fine.  Symbolic links are followed; a replaced file's mode is kept.  A device, a pipe or
 * /dev/stdout is written to as it is: then bytes are there before the commit.  Errors: EIO (a folder; what
 * the system says), ENOMEM. */
typedef struct ebb__writer ebb__writer;
EBB_NODISCARD ebb_status ebb__write_begin(ebb__writer **out, const char *path);
EBB_NODISCARD ebb_status ebb__write(ebb__writer *writer, const void *data, size_t bytes);
/* Frees the writer and sets it to NULL, on errors too. */
EBB_NODISCARD ebb_status ebb__write_commit(ebb__writer **writer);
void ebb__write_abort(ebb__writer **writer);

/* mkdir -p.  Errors: EIO. */
EBB_NODISCARD ebb_status ebb__make_dirs(const char *path);

#endif
