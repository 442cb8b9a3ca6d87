/* write.c: files that appear under their name only when they are complete; and devices and pipes, which are
 * written to as they are. */
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "core/file.h"
#include "core/mem.h"

enum { BUFFER_BYTES = 1 << 16, MAX_NAMES = 1000 };

struct ebb__writer {
    int fd;
    mode_t mode; /* of the file that is replaced; 0: there is none */
    char *path;  /* what will be replaced: symbolic links followed */
    char *temp;  /* in the same folder; NULL: written straight to what is there */
    size_t held; /* bytes waiting in buffer */
    char buffer[BUFFER_BYTES];
};

static ebb_status refuse(const char *path, const char *why)
{
    return ebb_fail(EBB_EIO, "cannot write %s: %s", path, why);
}

/* What the standard streams are called: opened anew, a file behind one would be written from its start. */
static int stream_of(const char *path)
{
    if (strcmp(path, "/dev/stdout") == 0) return STDOUT_FILENO;
    return strcmp(path, "/dev/stderr") == 0 ? STDERR_FILENO : -1;
}

/* Renaming replaces whatever has the name, so that must be nothing or a regular file; a device or a pipe
 * stays and gets the bytes.  A symbolic link is followed first, as opening it would. */
static ebb_status find_target(ebb__writer *w, const char *path, bool *straight)
{
    struct stat info;
    char target[PATH_MAX];
    if (*path == '\0') return refuse("a file", "its name is empty");
    *straight = stream_of(path) >= 0;
    if (*straight) {
        w->path = ebb__strdup(path);
        return w->path ? EBB_OK : EBB_ENOMEM;
    }
    if (stat(path, &info) == 0) {
        if (S_ISDIR(info.st_mode)) return refuse(path, "is a folder");
        *straight = !S_ISREG(info.st_mode);
        w->mode = info.st_mode & 07777;
    } else if (errno != ENOENT) {
        return refuse(path, strerror(errno));
    }
    if (lstat(path, &info) == 0 && S_ISLNK(info.st_mode)) {
        if (!realpath(path, target)) return refuse(path, "is a link to nothing");
        path = target;
    }
    w->path = ebb__strdup(path);
    return w->path ? EBB_OK : EBB_ENOMEM;
}

static ebb_status open_temp(ebb__writer *w)
{
    static atomic_uint counter;
    size_t bytes = strlen(w->path) + 64;
    w->temp = ebb__malloc(bytes);
    if (!w->temp) return EBB_ENOMEM;
    for (int i = 0; i < MAX_NAMES && w->fd < 0; i++) { /* a name may be left from a dead process */
        snprintf(w->temp, bytes, "%s.tmp.%ld.%u", w->path, (long)getpid(),
                 atomic_fetch_add(&counter, 1));
        w->fd = open(w->temp, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0666);
        if (w->fd < 0 && errno != EEXIST) break;
    }
    return w->fd < 0 ? refuse(w->path, strerror(errno)) : EBB_OK;
}

static ebb_status open_straight(ebb__writer *w)
{
    int stream = stream_of(w->path);
    w->fd = stream >= 0 ? fcntl(stream, F_DUPFD_CLOEXEC, 0) : open(w->path, O_WRONLY | O_CLOEXEC);
    return w->fd < 0 ? refuse(w->path, strerror(errno)) : EBB_OK;
}

static void free_writer(ebb__writer *w)
{
    ebb__free(w->temp);
    ebb__free(w->path);
    ebb__free(w);
}

ebb_status ebb__write_begin(ebb__writer **out, const char *path)
{
    ebb__writer *w = ebb__malloc(sizeof *w);
    if (!w) return EBB_ENOMEM;
    w->fd = -1;
    w->mode = 0;
    w->path = w->temp = NULL;
    w->held = 0;
    bool straight = false;
    ebb_status st = find_target(w, path, &straight);
    if (st == EBB_OK) st = straight ? open_straight(w) : open_temp(w);
    if (st != EBB_OK) {
        free_writer(w);
        return st;
    }
    *out = w;
    return EBB_OK;
}

static ebb_status write_fully(ebb__writer *w, const char *from, size_t bytes)
{
    while (bytes > 0) {
        ssize_t n = write(w->fd, from, bytes);
        if (n < 0 && errno == EINTR) continue;
        if (n < 0) return refuse(w->path, strerror(errno));
        from += n;
        bytes -= (size_t)n;
    }
    return EBB_OK;
}

static ebb_status flush(ebb__writer *w)
{
    size_t held = w->held;
    w->held = 0;
    return write_fully(w, w->buffer, held);
}

ebb_status ebb__write(ebb__writer *w, const void *data, size_t bytes)
{
    if (bytes > BUFFER_BYTES - w->held) {
        ebb_status st = flush(w);
        if (st != EBB_OK) return st;
    }
    if (bytes >= BUFFER_BYTES) return write_fully(w, data, bytes);
    if (bytes > 0) memcpy(w->buffer + w->held, data, bytes);
    w->held += bytes;
    return EBB_OK;
}

/* Some file systems cannot sync and say EINVAL: the bytes are as safe there as they get. */
static bool synced(int fd) { return fsync(fd) == 0 || errno == EINVAL; }

/* The new name itself survives a power cut once its folder is synced.  Best effort: the file is
 * complete and in place either way. */
static void sync_folder(char *path)
{
    char *slash = strrchr(path, '/');
    if (slash) slash[slash == path] = '\0';
    int fd = open(slash ? path : ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (fd < 0) return;
    (void)fsync(fd);
    close(fd);
}

static ebb_status finish(ebb__writer *w)
{
    ebb_status st = flush(w);
    if (st != EBB_OK) return st;
    if (w->temp && w->mode && fchmod(w->fd, w->mode) != 0) return refuse(w->path, strerror(errno));
    if (w->temp && !synced(w->fd)) return refuse(w->path, strerror(errno));
    int fd = w->fd;
    w->fd = -1;
    if (close(fd) != 0) return refuse(w->path, strerror(errno));
    if (w->temp && rename(w->temp, w->path) != 0) return refuse(w->path, strerror(errno));
    return EBB_OK;
}

ebb_status ebb__write_commit(ebb__writer **writer)
{
    ebb__writer *w = *writer;
    ebb_status st = finish(w);
    if (st != EBB_OK) {
        ebb__write_abort(writer);
        return st;
    }
    *writer = NULL;
    if (w->temp) sync_folder(w->path);
    free_writer(w);
    return EBB_OK;
}

void ebb__write_abort(ebb__writer **writer)
{
    ebb__writer *w = *writer;
    if (!w) return;
    *writer = NULL;
    if (w->fd >= 0) close(w->fd);
    if (w->temp) unlink(w->temp);
    free_writer(w);
}
