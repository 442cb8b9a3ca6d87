/* A process dies, or the system refuses, at each operation on files of a run that saves: what is
 * left goes on as if nothing had happened.  The operations are counted by this program's own versions of
 * the system's calls, which the library finds first. */
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include "train/run.h"
#include "train_support.h"

typedef enum trouble { KILLED, REFUSED_ONCE, DISK_FULL, N_TROUBLES } trouble;

static struct {
    bool armed;
    trouble kind;
    int at, done; /* the operation that goes wrong, counted from 1; operations so far */
} plan;

static bool goes_wrong(void)
{
    if (!plan.armed) return false;
    plan.done++;
    return plan.done == plan.at || (plan.kind == DISK_FULL && plan.done > plan.at);
}

/* Before the operation; true: it must fail. */
static bool strike(void)
{
    if (!goes_wrong()) return false;
    if (plan.kind == KILLED) _exit(9);
    errno = ENOSPC;
    return true;
}

/* A kill leaves half of what was to be written. */
ssize_t write(int fd, const void *data, size_t bytes)
{
    if (goes_wrong()) {
        if (plan.kind == KILLED) {
            (void)syscall(SYS_write, fd, data, bytes / 2);
            _exit(9);
        }
        errno = ENOSPC;
        return -1;
    }
    return syscall(SYS_write, fd, data, bytes);
}

int rename(const char *from, const char *to)
{
    if (strike()) return -1;
    return (int)syscall(SYS_renameat2, AT_FDCWD, from, AT_FDCWD, to, 0);
}

int mkdir(const char *path, mode_t mode)
{
    if (strike()) return -1;
    return (int)syscall(SYS_mkdirat, AT_FDCWD, path, mode);
}

int rmdir(const char *path)
{
    if (plan.kind != DISK_FULL && strike()) return -1;
    return (int)syscall(SYS_unlinkat, AT_FDCWD, path, 0x200 /* AT_REMOVEDIR */);
}

int fsync(int fd)
{
    if (strike()) return -1;
    return (int)syscall(SYS_fsync, fd);
}

int ftruncate(int fd, off_t bytes)
{
    if (strike()) return -1;
    return (int)syscall(SYS_ftruncate, fd, bytes);
}

/* ---- runs --------------------------------------------------------------------------------- */

typedef struct places { temp_folder folder; char run[300], straight[300]; } places;

static places make_places(void)
{
    places p = { .folder = temp_folder_make() };
    snprintf(p.run, sizeof(p.run), "%s/run", p.folder.path);
    snprintf(p.straight, sizeof(p.straight), "%s/straight", p.folder.path);
    return p;
}

enum { STEPS = 6 };

static ebb_status train_into(const char *out, const char *resume, int64_t steps)
{
    ebb_config *config =
        config_of(SMALL_MLP, "train.save_every=2 model.dropout=0.1 data.workers=0");
    ebb_train_options options = { .struct_bytes = sizeof(options), .threads = 1, .steps = steps,
                                  .out_dir = out, .resume_dir = resume };
    ebb_train_result result;
    plan.armed = plan.at > 0;
    ebb_status st = ebb_train(&result, config, &options);
    plan.armed = false;
    ebb_config_free(config);
    return st;
}

/* In a process of its own.  Returns its exit status: 0 and -EBB_EIO are ends of its own choice. */
static int troubled(const char *out, const char *resume, trouble kind, int at, int *operations)
{
    int ends[2];
    cr_assert_eq(pipe(ends), 0);
    pid_t child = fork();
    if (child == 0) {
        plan.kind = kind;
        plan.at = at;
        plan.done = 0;
        ebb_status st = train_into(out, resume, STEPS);
        plan.at = 0;
        (void)!write(ends[1], &plan.done, sizeof(plan.done));
        _exit(st == EBB_OK ? 0 : -(int)st);
    }
    int status = 0;
    close(ends[1]);
    *operations = 0;
    (void)!read(ends[0], operations, sizeof(*operations));
    close(ends[0]);
    cr_assert_eq(waitpid(child, &status, 0), child);
    cr_assert(WIFEXITED(status), "operation %d: did not exit by itself", at);
    return WEXITSTATUS(status);
}

static void check_same_file(const places *p, const char *name, int at)
{
    char a[400], b[400];
    snprintf(a, sizeof(a), "%s/%s", p->straight, name);
    snprintf(b, sizeof(b), "%s/%s", p->run, name);
    size_t n = 0, m = 0;
    char *x = read_text(a, &n), *y = read_text(b, &m);
    cr_assert(n == m && memcmp(x, y, n) == 0, "operation %d: %s and %s differ", at, a, b);
    free(x);
    free(y);
}

static void check_nothing_else(const char *run, int at)
{
    char command[700];
    snprintf(command, sizeof(command), "test \"$(ls -A '%s' | wc -l)\" = 5", run);
    cr_assert_eq(system(command), 0, "operation %d: more than a run's files in %s", at, run);
}

/* Goes on from what is left, where a save was reached, and ends like the straight run. */
static bool check_left(const places *p, int at)
{
    const char *run = p->run;
    ebb__run_state state = { 0 };
    ebb_status st = ebb__run_state_load(&state, run);
    if (st == EBB_EIO) {
        check_fails(train_into(NULL, run, STEPS), EBB_EIO);
        return false;
    }
    check_ok(st);
    cr_assert(state.step % 2 == 0 && state.step > 0);
    ebb_train_options options = { .struct_bytes = sizeof(options), .threads = 1 };
    ebb_train_result evaluated;
    check_ok(ebb_evaluate(&evaluated, run, &options));
    if (state.step == STEPS)
        check_fails(train_into(NULL, run, STEPS), EBB_EINVAL);
    else
        check_ok(train_into(NULL, run, STEPS));
    check_same_file(p, "weights.safetensors", at);
    check_same_file(p, "optimizer.safetensors", at);
    check_same_file(p, "state.json", at);
    check_nothing_else(run, at);
    return true;
}

/* `resumed`: the run that is struck goes on from step 2 of an earlier one. */
static void check_each_operation(trouble kind, bool resumed)
{
    if (access("/dev/shm", W_OK) == 0) setenv("TMPDIR", "/dev/shm", 0); /* each save is synced */
    places p = make_places();
    const char *run = p.run;
    check_ok(train_into(p.straight, NULL, STEPS));
    int gone_on = 0, operations = 0;
    bool more = true;
    for (int at = 1; more; at++) {
        char command[700];
        snprintf(command, sizeof(command), "rm -rf '%s'", run);
        cr_assert_eq(system(command), 0);
        if (resumed) check_ok(train_into(run, NULL, 2));
        int status = resumed ? troubled(NULL, run, kind, at, &operations)
                             : troubled(run, NULL, kind, at, &operations);
        cr_assert(status == 0 || status == (kind == KILLED ? 9 : -(int)EBB_EIO),
                  "operation %d: status %d", at, status);
        more = status == 9 || operations >= at;
        bool left = check_left(&p, at);
        cr_assert(left || !resumed, "operation %d: the save before is lost", at);
        gone_on += left;
    }
    cr_assert(gone_on > 30, "only %d operations after a save", gone_on);
    temp_folder_remove(&p.folder);
}

Test(save_broken, a_run_killed_at_any_operation_goes_on) { check_each_operation(KILLED, false); }
Test(save_broken, a_resumed_run_killed_at_any_operation_goes_on)
{
    check_each_operation(KILLED, true);
}
Test(save_broken, a_run_refused_any_operation_goes_on)
{
    check_each_operation(REFUSED_ONCE, false);
}
Test(save_broken, a_resumed_run_refused_any_operation_goes_on)
{
    check_each_operation(REFUSED_ONCE, true);
}
Test(save_broken, a_disk_that_is_full_from_any_operation_on_costs_no_save)
{
    check_each_operation(DISK_FULL, true);
}

Test(save_broken, what_a_dead_process_left_is_removed)
{
    places p = make_places();
    check_ok(train_into(p.run, NULL, 2));
    write_text(temp_path(&p.folder, "run/weights.safetensors.tmp.17.0"), "half");
    write_text(temp_path(&p.folder, "run/notes.tmp.txt"), "the user's");
    cr_assert_eq(mkdir(temp_path(&p.folder, "run/save.tmp"), 0777), 0);
    write_text(temp_path(&p.folder, "run/save.tmp/state.json.tmp.17.1"), "{");
    check_ok(train_into(NULL, p.run, 4));
    cr_assert(access(temp_path(&p.folder, "run/weights.safetensors.tmp.17.0"), F_OK) != 0);
    cr_assert(access(temp_path(&p.folder, "run/save.tmp"), F_OK) != 0);
    cr_assert(access(temp_path(&p.folder, "run/notes.tmp.txt"), F_OK) == 0);
    temp_folder_remove(&p.folder);
}
