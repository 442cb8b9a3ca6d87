/* file.c: reading files, whole or by range, and making folders. */
#include "core/file.h"

#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "core/mem.h"

static ebb_status refuse(const char *doing, const char *path, const char *why)
{
    return ebb_fail(EBB_EIO, "cannot %s %s: %s", doing, path, why);
}

/* O_NONBLOCK: opening a pipe that nobody writes must not hang; regular files ignore it. */
static ebb_status open_regular(int *out, size_t *bytes, const char *path)
{
    int fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK);
    if (fd < 0) return refuse("read", path, strerror(errno));
    struct stat info;
    const char *why = NULL;
    if (fstat(fd, &info) != 0)
        why = strerror(errno);
    else if (S_ISDIR(info.st_mode))
        why = "is a folder";
    else if (!S_ISREG(info.st_mode))
        why = "is not a regular file";
    if (why) {
        close(fd);
        return refuse("read", path, why);
    }
    *out = fd;
    *bytes = (size_t)info.st_size;
    return EBB_OK;
}

static ebb_status read_fully(int fd, const char *path, char *to, size_t bytes, off_t offset)
{
    size_t done = 0;
    while (done < bytes) {
        ssize_t n = pread(fd, to + done, bytes - done, offset + (off_t)done);
        if (n < 0 && errno == EINTR) continue;
        if (n < 0) return refuse("read", path, strerror(errno));
        if (n == 0)
            return ebb_fail(EBB_EIO, "cannot read %s: it became shorter while it was read", path);
        done += (size_t)n;
    }
    return EBB_OK;
}

ebb_status ebb__file_size(size_t *out, const char *path)
{
    struct stat info;
    if (stat(path, &info) != 0) return refuse("read", path, strerror(errno));
    if (S_ISDIR(info.st_mode)) return refuse("read", path, "is a folder");
    if (!S_ISREG(info.st_mode)) return refuse("read", path, "is not a regular file");
    *out = (size_t)info.st_size;
    return EBB_OK;
}

ebb_status ebb__file_read(char **out, size_t *bytes, const char *path, size_t max_bytes)
{
    int fd;
    size_t size;
    ebb_status st = open_regular(&fd, &size, path);
    if (st != EBB_OK) return st;
    char *text = NULL;
    if (size > max_bytes || size == SIZE_MAX) {
        st = ebb_fail(EBB_EIO, "cannot read %s: %zu bytes, at most %zu are allowed", path, size,
                      max_bytes);
        goto done;
    }
    text = ebb__malloc(size + 1);
    st = text ? read_fully(fd, path, text, size, 0) : EBB_ENOMEM;
    if (st != EBB_OK) goto done;
    text[size] = '\0';
    *out = text;
    *bytes = size;
    text = NULL;
done:
    ebb__free(text);
    close(fd);
    return st;
}

ebb_status ebb__file_read_at(const char *path, size_t offset, void *buf, size_t bytes)
{
    int fd;
    size_t size;
    ebb_status st = open_regular(&fd, &size, path);
    if (st != EBB_OK) return st;
    if (offset > size || bytes > size - offset)
        st = ebb_fail(EBB_EIO, "cannot read %s: bytes %zu + %zu are beyond its end at %zu", path,
                      offset, bytes, size);
    else
        st = read_fully(fd, path, buf, bytes, (off_t)offset);
    close(fd);
    return st;
}

/* One folder; fine where it is there already. */
static ebb_status make_dir(const char *path)
{
    if (mkdir(path, 0777) == 0) return EBB_OK;
    int error = errno; /* EEXIST, but also EROFS or EACCES for a folder that exists */
    struct stat info;
    if (stat(path, &info) != 0) return refuse("make the folder", path, strerror(error));
    if (!S_ISDIR(info.st_mode)) return refuse("make the folder", path, "is a file");
    return EBB_OK;
}

ebb_status ebb__make_dirs(const char *path)
{
    if (path[0] == '\0') return ebb_fail(EBB_EIO, "cannot make a folder: its name is empty");
    char *part = ebb__strdup(path);
    if (!part) return EBB_ENOMEM;
    ebb_status st = EBB_OK;
    for (char *at = part + 1; st == EBB_OK && *at; at++) {
        if (*at != '/') continue;
        *at = '\0';
        st = make_dir(part);
        *at = '/';
    }
    if (st == EBB_OK) st = make_dir(part);
    ebb__free(part);
    return st;
}
