#include <errno.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "core/file.h"
#include "core/mem.h"
#include "train/run.h"

enum { PATH_BYTES = 1024 };

struct ebb__run_folder {
    char path[PATH_BYTES];
    FILE *metrics;
};

static ebb_status path_in(char out[PATH_BYTES], const char *folder, const char *name)
{
    int n = snprintf(out, PATH_BYTES, "%s/%s", folder, name);
    if (n < 0 || n >= PATH_BYTES) return ebb_fail(EBB_EINVAL, "%s: too long a path", folder);
    return EBB_OK;
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

/* ---- opening ------------------------------------------------------------------------------ */

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

static ebb_status write_config(const char *folder, const ebb_config *config)
{
    cJSON *root = NULL;
    EBB_TRY(ebb__config_tree(&root, config));
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

static ebb_status cut_metrics(const char *path, int64_t step)
{
    char *text = NULL;
    size_t bytes = 0;
    if (access(path, F_OK) != 0) return EBB_OK;
    EBB_TRY(ebb__file_read(&text, &bytes, path, (size_t)1 << 32));
    ebb_status st = write_whole(path, text, lines_until(text, step));
    ebb__free(text);
    return st;
}

static ebb_status open_files(ebb__run_folder *f, const ebb_config *config, int64_t resumed_step)
{
    char path[PATH_BYTES];
    if (resumed_step < 0) EBB_TRY(refuse_other_run(f->path));
    EBB_TRY(ebb__make_dirs(f->path));
    EBB_TRY(write_config(f->path, config));
    EBB_TRY(path_in(path, f->path, "metrics.jsonl"));
    if (resumed_step >= 0) EBB_TRY(cut_metrics(path, resumed_step));
    f->metrics = fopen(path, "a");
    if (!f->metrics) return ebb_fail(EBB_EIO, "%s: %s", path, strerror(errno));
    setvbuf(f->metrics, NULL, _IOLBF, 4096);
    return EBB_OK;
}

ebb_status ebb__run_folder_open(ebb__run_folder **out, const char *path, const ebb_config *config,
                                int64_t resumed_step)
{
    if (strlen(path) + 32 > PATH_BYTES) return ebb_fail(EBB_EINVAL, "%s: too long a path", path);
    ebb__run_folder *f = ebb__calloc(1, sizeof(*f));
    if (!f) return EBB_ENOMEM;
    snprintf(f->path, sizeof(f->path), "%s", path);
    ebb_status st = open_files(f, config, resumed_step);
    if (st == EBB_OK)
        *out = f;
    else
        ebb__run_folder_close(f);
    return st;
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

static ebb_status write_state(const ebb__run_folder *folder, const ebb__run_state *state)
{
    char path[PATH_BYTES], text[256];
    EBB_TRY(path_in(path, folder->path, "state.json"));
    int n = snprintf(
        text, sizeof(text),
        "{\"step\": %lld, \"loader_position\": %lld, \"items\": %lld, \"rng_offset\": \"%s\"}\n",
        (long long)state->step, (long long)state->loader_position, (long long)state->items,
        state->rng_offset);
    return write_whole(path, text, (size_t)n);
}

ebb_status ebb__run_folder_save(ebb__run_folder *folder, const ebb_model *model,
                                const ebb_optim *optim, const ebb__run_state *state)
{
    char path[PATH_BYTES];
    EBB_TRY(path_in(path, folder->path, "weights.safetensors"));
    EBB_TRY(ebb_model_save(model, path));
    EBB_TRY(path_in(path, folder->path, "optimizer.safetensors"));
    EBB_TRY(ebb_optim_save(optim, path));
    return write_state(folder, state);
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
};
/* clang-format on */

ebb_status ebb__run_state_load(ebb__run_state *out, const char *run_dir)
{
    char path[PATH_BYTES];
    cJSON *object = NULL;
    EBB_TRY(path_in(path, run_dir, "state.json"));
    EBB_TRY(ebb__json_load(&object, path));
    ebb_status st = ebb__json_read(out, object, "state", state_fields,
                                   sizeof(state_fields) / sizeof(state_fields[0]));
    cJSON_Delete(object);
    return st;
}
