/* support/support.h: what every test uses.
 *
 *     Test(tensor, a_dropped_tensor_gives_its_bytes_back)
 *     {
 *         with_context(ctx) {
 *             EBB_LOCAL(x);
 *             check_ok(ebb_zeros(&x, ctx, EBB_F32, 2, (int64_t[]){ 2, 3 }));
 *         }
 *     }
 *
 * Everything is checked in the test's body: Criterion passes a test whose .fini fails. */
#ifndef EBB_TESTS_SUPPORT_H
#define EBB_TESTS_SUPPORT_H

#include <criterion/criterion.h>
#include <ebb/memory.h>
#include <ebb/tensor.h>

/* ---- status ------------------------------------------------------------------------------ */

/* The call returns EBB_OK; else the test ends with ebb's message. */
#define check_ok(call) check_status((call), EBB_OK)

/* The call fails with this status and leaves a message. */
#define check_fails(call, expected)                                                       \
    do {                                                                                  \
        check_status(call, expected);                                                     \
        cr_assert(ebb_message()[0] != '\0', "%s: failed without a message", #call);       \
    } while (0)

#define check_status(call, expected)                                                      \
    do {                                                                                  \
        ebb_status check_got_ = (call);                                                   \
        cr_assert(check_got_ == (expected), "%s: %s, not %s; message: %s", #call,         \
                  ebb_status_name(check_got_), ebb_status_name(expected),                 \
                  check_got_ == EBB_OK ? "(none)" : ebb_message());                       \
    } while (0)

/* The last message contains `text`. */
#define check_message(text)                                                               \
    cr_assert(support_contains(ebb_message(), (text)), "message \"%s\" lacks \"%s\"",      \
              ebb_message(), (text))

/* ---- contexts ---------------------------------------------------------------------------- */

/* Runs the block with a new context (2 threads, seed 1).  After the block no byte of the pool and no
 * host block may be alive that was not before: leave it by its end, not by break, return or goto. */
#define with_context(var) with_device(var, "cpu")
#define with_device(var, name) with_options(var, ((ebb_context_options){ .device = (name) }))

/* As above with options; struct_bytes is filled in, threads 0 means 2, seed 0 means 1, checks 0
 * means the build's default. */
#define with_options(var, options)                                                        \
    for (support_scope support_##var = support_begin(options); support_##var.live;         \
         support_end(&support_##var))                                                     \
        for (ebb_context *var = support_##var.ctx; var != NULL; var = NULL)

/* No host block of ebb is alive: for tests without a context, as their last line. */
#define check_no_live_blocks()                                                            \
    cr_assert(ebb_host_live_blocks() == 0, "%lld host blocks are alive",                  \
              (long long)ebb_host_live_blocks())

/* ---- files ------------------------------------------------------------------------------- */

/* Skips the test where the test data beside the repository is absent; else `path` (a char array)
 * becomes its path. */
#define need_shared(path, relative)                                                       \
    do {                                                                                  \
        if (!support_shared_path((path), sizeof(path), EBB_SHARED_DIR, (relative)))       \
            cr_skip("%s is not there", (relative));                                       \
    } while (0)

/* A new folder for one test.  Owner: the caller; temp_folder_remove() deletes it and what is in it. */
typedef struct temp_folder { char path[256]; } temp_folder;
temp_folder temp_folder_make(void);
void temp_folder_remove(temp_folder *folder);
/* "FOLDER/NAME"; valid until the fourth next call. */
const char *temp_path(const temp_folder *folder, const char *name);
/* Writes bytes to a file; the test ends where that fails. */
void write_file(const char *path, const void *data, size_t bytes);
void write_text(const char *path, const char *text);
/* The file's bytes with a NUL behind them.  Owner: the caller; free(). */
char *read_text(const char *path, size_t *bytes);

/* ---- behind the macros ------------------------------------------------------------------- */

typedef struct support_scope {
    ebb_context *ctx;
    int64_t live_blocks; /* of the host, before */
    bool live;
} support_scope;

support_scope support_begin(ebb_context_options options);
void support_end(support_scope *scope);
bool support_contains(const char *text, const char *part);
bool support_shared_path(char *path, size_t path_bytes, const char *shared, const char *relative);

#endif
