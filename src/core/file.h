/* core/file.h: files are read whole or by range, and written beside and renamed. */
#ifndef EBB_CORE_FILE_H
#define EBB_CORE_FILE_H

#include <ebb/status.h>

/* Size of a regular file.  Errors: EIO (missing, a folder, not a regular file), message with path and reason. */
EBB_NODISCARD ebb_status ebb__file_size(size_t *out, const char *path);
/* Whole file into *out (ebb__malloc'ed, NUL-terminated).  Errors: EIO (also: more than max_bytes), ENOMEM. */
EBB_NODISCARD ebb_status ebb__file_read(char **out, size_t *bytes, const char *path, size_t max_bytes);
EBB_NODISCARD ebb_status ebb__file_read_at(const char *path, size_t offset, void *buf, size_t bytes);

/* A file that appears under its name only when ebb__write_commit() succeeds: written to a temporary
 * name in the same folder, fsync'ed, renamed.  ebb__write_abort() (NULL is fine) removes the temporary. */
typedef struct ebb__writer ebb__writer;
EBB_NODISCARD ebb_status ebb__write_begin(ebb__writer **out, const char *path);
EBB_NODISCARD ebb_status ebb__write(ebb__writer *writer, const void *data, size_t bytes);
EBB_NODISCARD ebb_status ebb__write_commit(ebb__writer **writer); /* frees it and sets NULL, on errors too */
void ebb__write_abort(ebb__writer **writer);

/* mkdir -p.  Errors: EIO. */
EBB_NODISCARD ebb_status ebb__make_dirs(const char *path);

#endif
