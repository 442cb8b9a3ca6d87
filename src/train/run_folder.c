/* A run's folder: one writer at a time, and saves that are whole or absent.
 * A save's files are written into save.tmp/, which is renamed to save.whole/: from then on this is
 * the save.  Its files are then moved up one by one, and what is still in save.whole/ goes before
 * what is in the folder; so whoever reads by ebb__run_file() finds all files of one save, whenever
 * the process was killed. */
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include "core/file.h"
#include "core/mem.h"
#include "train/run.h"

enum { PATH_BYTES = EBB__RUN_PATH_BYTES };

static const char *const save_files[] = { "weights.safetensors", "optimizer.safetensors",
                                          "state.json" };
enum { N_SAVE_FILES = sizeof(save_files) / sizeof(save_files[0]) };

struct ebb__run_folder {
    char path[PATH_BYTES];
    FILE *metrics; /* its file is locked while the folder is open; NULL: read only, without one */
};

static ebb_status path_in(char out[PATH_BYTES], const char *folder, const char *name)
{
    int n = snprintf(out, PATH_BYTES, "%s/%s", folder, name);
    if (n < 0 || n >= PATH_BYTES) return ebb_fail(EBB_EINVAL, "%s: too long a path", folder);
    return EBB_OK;
}

static ebb_status refuse(const char *doing, const char *path)
{
    return ebb_fail(EBB_EIO, "cannot %s %s: %s", doing, path, strerror(errno));
}

ebb_status ebb__run_file(char out[PATH_BYTES], const char *run_dir, const char *name)
{
    char moving[64];
    snprintf(moving, sizeof(moving), "save.whole/%s", name);
    EBB_TRY(path_in(out, run_dir, moving));
    return access(out, F_OK) == 0 ? EBB_OK : path_in(out, run_dir, name);
}

static ebb_status write_whole(const char *path, const char *text, size_t bytes)
{
    ebb__writer *writer = NULL;
    EBB_TRY(ebb__write_begin(&writer, path));
    ebb_status st = ebb__write(writer, text, bytes);
    if (st == EBB_OK) return ebb__write_commit(&writer);
    ebb__write_abort(&writer);
    return st;
}

static ebb_status write_json(const char *folder, const char *name, const cJSON *object)
{
    char path[PATH_BYTES];
    EBB_TRY(path_in(path, folder, name));
    char *text = cJSON_Print(object);
    if (!text) return ebb_fail(EBB_ENOMEM, "%s: no memory for its text", path);
    ebb_status st = write_whole(path, text, strlen(text));
    cJSON_free(text);
    return st;
}

/* ---- saves, whole or absent --------------------------------------------------------------- */

/* So that names survive a power cut in the order in which they were given; best effort. */
static void sync_folder(const char *path)
{
    int fd = open(path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (fd < 0) return;
    (void)fsync(fd);
    close(fd);
}

/* Removes the folder of a save that was not finished. */
static void discard_save(const ebb__run_folder *f)
{
    char path[PATH_BYTES];
    if (path_in(path, f->path, "save.tmp") != EBB_OK) return;
    DIR *dir = opendir(path);
    if (!dir) return;
    for (struct dirent *e; (e = readdir(dir));) (void)unlinkat(dirfd(dir), e->d_name, 0);
    closedir(dir);
    (void)rmdir(path);
}

/* Moves a whole save's files up, or those that are left of them. */
static ebb_status move_up(const ebb__run_folder *f)
{
    char whole[PATH_BYTES], from[PATH_BYTES], to[PATH_BYTES];
    EBB_TRY(path_in(whole, f->path, "save.whole"));
    if (access(whole, F_OK) != 0) return EBB_OK;
    for (int i = 0; i < N_SAVE_FILES; i++) {
        EBB_TRY(path_in(from, whole, save_files[i]));
        EBB_TRY(path_in(to, f->path, save_files[i]));
        if (rename(from, to) != 0 && errno != ENOENT) return refuse("replace", to);
    }
    sync_folder(f->path);
    return rmdir(whole) == 0 ? EBB_OK : refuse("remove", whole);
}

static bool is_left_over(const char *name)
{
    static const char *const written[] = { "config.json", "metrics.jsonl", "weights.safetensors",
                                           "optimizer.safetensors", "state.json" };
    for (size_t i = 0; i < sizeof(written) / sizeof(written[0]); i++) {
        size_t n = strlen(written[i]);
        if (strncmp(name, written[i], n) == 0 && strncmp(name + n, ".tmp.", 5) == 0) return true;
    }
    return false;
}

/* Ends what a process that died here had begun. */
static ebb_status tidy(const ebb__run_folder *f)
{
    discard_save(f);
    DIR *dir = opendir(f->path);
    if (!dir) return refuse("read", f->path);
    for (struct dirent *e; (e = readdir(dir));)
        if (is_left_over(e->d_name)) (void)unlinkat(dirfd(dir), e->d_name, 0);
    closedir(dir);
    return move_up(f);
}

/* ---- opening ------------------------------------------------------------------------------ */

/* What a file system cannot lock goes unlocked. */
static ebb_status lock(const ebb__run_folder *f, int fd, ebb__folder_use use)
{
    while (flock(fd, (use == EBB__FOLDER_READ ? LOCK_SH : LOCK_EX) | LOCK_NB) != 0) {
        if (errno == EINTR) continue;
        if (errno != EWOULDBLOCK) break;
        return ebb_fail(EBB_ESTATE, "%s: another run uses this folder now; wait for its end, or "
                        "choose another folder", f->path);
    }
    return EBB_OK;
}

/* The metrics' file is the one that is locked: it is never replaced. */
static ebb_status open_metrics(ebb__run_folder *f, ebb__folder_use use)
{
    char path[PATH_BYTES];
    bool reads = use == EBB__FOLDER_READ;
    EBB_TRY(path_in(path, f->path, "metrics.jsonl"));
    int fd = open(path, O_CLOEXEC | (reads ? O_RDONLY : O_RDWR | O_APPEND | O_CREAT), 0666);
    if (fd < 0 && reads && errno == ENOENT) return EBB_OK;
    if (fd < 0) return refuse("open", path);
    f->metrics = fdopen(fd, reads ? "r" : "a");
    if (!f->metrics) {
        close(fd);
        return refuse("open", path);
    }
    setvbuf(f->metrics, NULL, _IOLBF, 4096);
    return lock(f, fd, use);
}

static ebb_status need_save(const char *folder)
{
    char path[PATH_BYTES];
    EBB_TRY(ebb__run_file(path, folder, "state.json"));
    if (access(path, F_OK) == 0) return EBB_OK;
    return ebb_fail(EBB_EIO, "%s: holds no save to go on from (%s: %s)", folder, path,
                    strerror(errno));
}

/* What a run that made no step leaves behind is nobody's loss. */
static ebb_status refuse_other_run(const char *folder)
{
    static const char *const marks[] = { "weights.safetensors", "state.json", "metrics.jsonl" };
    for (int i = 0; i < 3; i++) {
        char path[PATH_BYTES];
        struct stat info;
        EBB_TRY(path_in(path, folder, marks[i]));
        if (stat(path, &info) == 0 && info.st_size > 0)
            return ebb_fail(EBB_ESTATE,
                            "%s: holds a run already (%s); choose another folder, remove it, or "
                            "go on from it with resume",
                            folder, marks[i]);
    }
    return EBB_OK;
}

/* The config as it is run: with the steps that the command asks for. */
static ebb_status write_config(const char *folder, const ebb_config *config, int64_t steps)
{
    cJSON *root = NULL;
    EBB_TRY(ebb__config_tree(&root, config));
    cJSON *train = cJSON_GetObjectItemCaseSensitive(root, "train");
    cJSON_SetNumberValue(cJSON_GetObjectItemCaseSensitive(train, "steps"), (double)steps);
    ebb_status st = ebb__config_absolute_paths(root);
    if (st == EBB_OK) st = write_json(folder, "config.json", root);
    cJSON_Delete(root);
    return st;
}

/* Bytes of `text` that tell of steps up to `step`: lines come in order. */
static size_t lines_until(const char *text, int64_t step)
{
    size_t keep = 0;
    for (const char *line = text; *line;) {
        const char *end = strchr(line, '\n');
        long long at = -1;
        if (!end || sscanf(line, "{\"step\":%lld", &at) != 1 || at > step) break;
        line = end + 1;
        keep = (size_t)(line - text);
    }
    return keep;
}

static ebb_status cut_metrics(const ebb__run_folder *f, int64_t step)
{
    char path[PATH_BYTES], *text = NULL;
    size_t bytes = 0;
    EBB_TRY(path_in(path, f->path, "metrics.jsonl"));
    EBB_TRY(ebb__file_read(&text, &bytes, path, (size_t)1 << 32));
    size_t keep = lines_until(text, step);
    ebb__free(text);
    if (keep < bytes && ftruncate(fileno(f->metrics), (off_t)keep) != 0)
        return refuse("shorten", path);
    return EBB_OK;
}

static ebb_status open_folder(ebb__run_folder *f, ebb__folder_use use)
{
    if (use == EBB__FOLDER_NEW)
        EBB_TRY(ebb__make_dirs(f->path));
    else
        EBB_TRY(need_save(f->path));
    EBB_TRY(open_metrics(f, use));
    if (use == EBB__FOLDER_READ) return EBB_OK;
    EBB_TRY(tidy(f));
    return use == EBB__FOLDER_NEW ? refuse_other_run(f->path) : EBB_OK;
}

ebb_status ebb__run_folder_open(ebb__run_folder **out, const char *path, ebb__folder_use use)
{
    if (strlen(path) + 64 > PATH_BYTES) return ebb_fail(EBB_EINVAL, "%s: too long a path", path);
    ebb__run_folder *f = ebb__calloc(1, sizeof(*f));
    if (!f) return EBB_ENOMEM;
    snprintf(f->path, sizeof(f->path), "%s", path);
    ebb_status st = open_folder(f, use);
    if (st == EBB_OK)
        *out = f;
    else
        ebb__run_folder_close(f);
    return st;
}

ebb_status ebb__run_folder_begin(ebb__run_folder *folder, const ebb_config *config, int64_t steps,
                                 int64_t first_step)
{
    EBB_TRY(cut_metrics(folder, first_step));
    return write_config(folder->path, config, steps);
}

void ebb__run_folder_close(ebb__run_folder *folder)
{
    if (!folder) return;
    if (folder->metrics) fclose(folder->metrics);
    ebb__free(folder);
}

/* ---- writing ------------------------------------------------------------------------------ */

ebb_status ebb__run_folder_metrics(ebb__run_folder *folder, const ebb__metric *metrics, int n)
{
    FILE *file = folder->metrics;
    for (int i = 0; i < n; i++) {
        double value = metrics[i].value;
        const char *before = i == 0 ? "{" : ", ";
        if (isfinite(value))
            fprintf(file, "%s\"%s\":%.*g", before, metrics[i].key, value == floor(value) ? 16 : 9,
                    value);
        else
            fprintf(file, "%s\"%s\":null", before, metrics[i].key);
    }
    fputs("}\n", file);
    if (ferror(file))
        return ebb_fail(EBB_EIO, "%s/metrics.jsonl: %s", folder->path, strerror(errno));
    return EBB_OK;
}

static ebb_status write_state(const char *path, const ebb__run_state *state)
{
    char text[384];
    int n = snprintf(text, sizeof(text),
                     "{\"step\": %lld, \"loader_position\": %lld, \"items\": %lld, "
                     "\"rng_offset\": \"%s\", \"seed\": %lld, \"loss_scale\": %.17g, "
                     "\"loss_scale_good\": %lld, \"skipped\": %lld}\n",
                     (long long)state->step, (long long)state->loader_position,
                     (long long)state->items, state->rng_offset, (long long)state->seed,
                     state->loss_scale, (long long)state->loss_scale_good, (long long)state->skipped);
    return write_whole(path, text, (size_t)n);
}

static ebb_status write_save(const ebb__run_folder *f, const ebb_model *model,
                             const ebb_optim *optim, const ebb__run_state *state)
{
    char path[PATH_BYTES], whole[PATH_BYTES];
    EBB_TRY(path_in(path, f->path, "save.tmp"));
    if (mkdir(path, 0777) != 0) return refuse("make the folder", path);
    EBB_TRY(path_in(path, f->path, "save.tmp/weights.safetensors"));
    EBB_TRY(ebb_model_save(model, path));
    EBB_TRY(path_in(path, f->path, "save.tmp/optimizer.safetensors"));
    EBB_TRY(ebb_optim_save(optim, path));
    EBB_TRY(path_in(path, f->path, "save.tmp/state.json"));
    EBB_TRY(write_state(path, state));
    EBB_TRY(path_in(path, f->path, "save.tmp"));
    EBB_TRY(path_in(whole, f->path, "save.whole"));
    if (rename(path, whole) != 0) return refuse("rename", path);
    sync_folder(f->path);
    return EBB_OK;
}

ebb_status ebb__run_folder_save(ebb__run_folder *folder, const ebb_model *model,
                                const ebb_optim *optim, const ebb__run_state *state)
{
    EBB_TRY(move_up(folder)); /* an earlier save, where that failed */
    ebb_status st = write_save(folder, model, optim, state);
    if (st == EBB_OK) return move_up(folder);
    discard_save(folder);
    return st;
}

/* ---- reading ------------------------------------------------------------------------------ */

/* clang-format off */
#define FIELD(name, member, ...) \
    { .key = name, .offset = offsetof(ebb__run_state, member), .required = true, __VA_ARGS__ }
static const ebb__field state_fields[] = {
    FIELD("step", step, .kind = EBB__INT, .min = 0, .max = 1e15),
    FIELD("loader_position", loader_position, .kind = EBB__INT, .min = 0, .max = 1e15),
    FIELD("items", items, .kind = EBB__INT, .min = 0, .max = 1e15),
    FIELD("rng_offset", rng_offset, .kind = EBB__STRING, .bytes = EBB__OFFSET_BYTES),
    { .key = "seed", .offset = offsetof(ebb__run_state, seed), .kind = EBB__INT,
      .max = 9007199254740991.0 },
    /* of saves before there was loss scaling: absent */
    { .key = "loss_scale", .offset = offsetof(ebb__run_state, loss_scale), .kind = EBB__NUMBER, .max = 1e308 },
    { .key = "loss_scale_good", .offset = offsetof(ebb__run_state, loss_scale_good), .kind = EBB__INT, .max = 1e12 },
    { .key = "skipped", .offset = offsetof(ebb__run_state, skipped), .kind = EBB__INT, .max = 1e15 },
};
/* clang-format on */

ebb_status ebb__run_state_load(ebb__run_state *out, const char *run_dir)
{
    char path[PATH_BYTES];
    cJSON *object = NULL;
    ebb__run_state state = { .seed = -1 };
    EBB_TRY(ebb__run_file(path, run_dir, "state.json"));
    EBB_TRY(ebb__json_load(&object, path));
    ebb_status st = ebb__json_read(&state, object, "", state_fields, sizeof(state_fields) / sizeof(state_fields[0]));
    cJSON_Delete(object);
    if (st == EBB_EINVAL) st = ebb_fail(st, "%s: %s", path, ebb_message());
    if (st == EBB_OK) *out = state;
    return st;
}
