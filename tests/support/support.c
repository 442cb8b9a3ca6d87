#include "support/support.h"

#include <ftw.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/* ---- contexts ---------------------------------------------------------------------------- */

support_scope support_begin(ebb_context_options options)
{
    options.struct_bytes = sizeof(options);
    if (options.threads == 0) options.threads = 2;
    if (options.seed == 0) options.seed = 1;
    if (options.checks == 0) options.checks = -1;

    support_scope scope = { .live_blocks = ebb_host_live_blocks(), .live = true };
    check_ok(ebb_context_new(&scope.ctx, &options));
    return scope;
}

void support_end(support_scope *scope)
{
    scope->live = false;
    ebb_memory_stats stats;
    ebb_memory_stats_get(scope->ctx, &stats);
    cr_assert(stats.allocated_bytes == 0, "%zu bytes of the pool are alive after the test",
              stats.allocated_bytes);
    ebb_context_free(scope->ctx);
    cr_assert(ebb_host_live_blocks() == scope->live_blocks,
              "%lld host blocks are alive after the test, %lld before",
              (long long)ebb_host_live_blocks(), (long long)scope->live_blocks);
}

bool support_contains(const char *text, const char *part)
{
    return strstr(text, part) != NULL;
}

/* ---- files ------------------------------------------------------------------------------- */

bool support_shared_path(char *path, size_t path_bytes, const char *shared, const char *relative)
{
    int n = snprintf(path, path_bytes, "%s/%s", shared, relative);
    cr_assert(n >= 0 && (size_t)n < path_bytes, "%s/%s is too long a path", shared, relative);
    return access(path, R_OK) == 0;
}

temp_folder temp_folder_make(void)
{
    const char *base = getenv("TMPDIR");
    temp_folder folder;
    int n = snprintf(folder.path, sizeof(folder.path), "%s/ebb-test-XXXXXX",
                     base && base[0] ? base : "/tmp");
    cr_assert(n >= 0 && (size_t)n < sizeof(folder.path), "TMPDIR is too long a path");
    cr_assert(mkdtemp(folder.path) != NULL, "%s: no temporary folder", folder.path);
    return folder;
}

static int remove_entry(const char *path, const struct stat *info, int kind, struct FTW *ftw)
{
    (void)info, (void)kind, (void)ftw;
    return remove(path);
}

void temp_folder_remove(temp_folder *folder)
{
    nftw(folder->path, remove_entry, 16, FTW_DEPTH | FTW_PHYS);
    folder->path[0] = '\0';
}

const char *temp_path(const temp_folder *folder, const char *name)
{
    static char paths[4][512];
    static unsigned next;
    char *path = paths[next++ % 4];
    int n = snprintf(path, sizeof(paths[0]), "%s/%s", folder->path, name);
    cr_assert(n >= 0 && (size_t)n < sizeof(paths[0]), "%s is too long a name", name);
    return path;
}

void write_file(const char *path, const void *data, size_t bytes)
{
    FILE *file = fopen(path, "wb");
    cr_assert(file != NULL, "%s cannot be written", path);
    size_t written = fwrite(data, 1, bytes, file);
    cr_assert(fclose(file) == 0 && written == bytes, "%s: %zu of %zu bytes written", path, written,
              bytes);
}

void write_text(const char *path, const char *text)
{
    write_file(path, text, strlen(text));
}

char *read_text(const char *path, size_t *bytes)
{
    FILE *file = fopen(path, "rb");
    cr_assert(file != NULL, "%s cannot be read", path);
    cr_assert(fseek(file, 0, SEEK_END) == 0, "%s: no end", path);
    long size = ftell(file);
    cr_assert(size >= 0, "%s: no size", path);
    rewind(file);
    char *text = malloc((size_t)size + 1);
    cr_assert(text != NULL, "no memory for %s", path);
    size_t got = fread(text, 1, (size_t)size, file);
    fclose(file);
    cr_assert(got == (size_t)size, "%s: %zu of %ld bytes read", path, got, size);
    text[got] = '\0';
    if (bytes) *bytes = got;
    return text;
}
