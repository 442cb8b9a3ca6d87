#include "train/run.h"

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>

#include "core/mem.h"
#include "nn/model.h"
#include "tensor/context.h"
#include "train/offset_plan.h"

double ebb__now_ms(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec * 1e3 + (double)t.tv_nsec * 1e-6;
}

ebb_status ebb__check_options(const ebb_train_options *options)
{
    if (!options || options->struct_bytes != sizeof(*options))
        return ebb_fail(EBB_EINVAL,
                        "train options: struct_bytes must be sizeof(ebb_train_options), %zu",
                        sizeof(*options));
    if (options->threads < 0)
        return ebb_fail(EBB_EINVAL, "threads: %d; 0 means all cores", options->threads);
    if (options->steps < 0)
        return ebb_fail(EBB_EINVAL, "steps: %lld; from 1", (long long)options->steps);
    return EBB_OK;
}

ebb__group ebb__group_at(int64_t step, int64_t n_items, int64_t batch, int64_t accumulate)
{
    int64_t batches = n_items / batch + (n_items % batch != 0);
    int64_t groups = batches / accumulate + (batches % accumulate != 0);
    int64_t epoch = step / groups, index = step % groups, start = index * accumulate;
    ebb__group g = { .first = epoch * batches + start,
                     .n = accumulate,
                     .items = accumulate * batch,
                     .items_before = epoch * n_items + start * batch };
    if (index < groups - 1) return g;
    g.n = batches - start;
    g.items = n_items - start * batch;
    g.epoch_end = true;
    return g;
}

/* What a run does with its pool's requests beside serving them. */
typedef enum pool_use { POOL_PLAIN, POOL_RECORDED, POOL_PLANNED } pool_use;

/* ---- context and model -------------------------------------------------------------------- */

static ebb_status open_context(ebb__run *run, const char *device, pool_use use)
{
    bool dry = device && strncmp(device, "dry:", 4) == 0, host = !device || strcmp(device, "cpu") == 0;
    if (run->options->check_recompute && run->config->rounds)
        return ebb_fail(EBB_EINVAL,
                        "memory.compress: it rounds what a recompute starts from, so its bits are not those of "
                        "forward, and checking recomputes would only find that; check them with memory.compress none");
    size_t limit = run->config->memory.limit_bytes, host_limit = run->config->memory.host_limit_bytes;
    if (limit == 0 && host) limit = ebb__host_available_bytes();
    if (host_limit == 0 && !dry) host_limit = ebb__host_available_bytes();
    ebb_context_options o = {
        .struct_bytes = sizeof(o),
        .device = device,
        .threads = run->options->threads,
        .seed = (uint64_t)run->config->top.seed,
        .memory_limit_bytes = limit,
        .host_limit_bytes = host_limit,
        .check_recompute = run->options->check_recompute,
        .checks = -1,
        .allocator = run->config->memory.allocator_conf,
    };
    /* What a plan packs may fit where a pool does not. */
    if (use == POOL_RECORDED) o.memory_limit_bytes = SIZE_MAX;
    EBB_TRY(ebb_context_new(&run->ctx, &o));
    run->dry = ebb_context_is_dry(run->ctx);
    for (int i = 0; i < run->config->n_savers; i++)
        EBB_TRY(ebb_op_saver(run->ctx, run->config->savers[i].op, run->config->savers[i].saver, NULL));
    return ebb_recompute_ops(run->ctx, run->config->recompute, run->config->n_recompute);
}

static ebb_status follow_budget(ebb__run *run, const char *device)
{
    ebb_train_options options = *run->options;
    options.device = device;
    options.steps = run->steps;
    EBB_TRY(ebb_plan_make(&run->plan, run->config, &options, run->config->budget_bytes, false));
    run->planned = *run->config;
    run->planned.plan = run->plan;
    run->planned.budget_bytes = 0;
    run->config = &run->planned;
    return EBB_OK;
}

static ebb_status open_run(ebb__run *run, const ebb_config *config, const ebb_train_options *options,
                           const char *device, pool_use use)
{
    *run = (ebb__run){ .config = config, .options = options };
    EBB_TRY(ebb__check_options(options));
    run->steps = options->steps > 0 ? options->steps : config->train.steps;
    run->schedule = config->schedule;
    run->schedule.steps = run->steps;
    run->loss_scale = config->loss_scale;
    if (config->budget_bytes) EBB_TRY(follow_budget(run, device));
    config = run->config;
    EBB_TRY(open_context(run, device, use));
    if (use == POOL_RECORDED) EBB_TRY(ebb__trace_start(ebb__context_pool(run->ctx), EBB__PLAN_EVENTS));
    if (use == POOL_PLANNED) EBB_TRY(ebb__offset_plan_follow(run, device));
    EBB_TRY(ebb_model_new(&run->model, run->ctx, config->model_json, ebb__config_dtype(config),
                          (uint64_t)config->top.seed));
    EBB_TRY(ebb_model_set_loss_chunks(run->model, config->train.loss_chunks));
    if (config->plan) return ebb__model_follow(run->model, config->plan);
    return ebb_model_set_checkpoint(run->model, config->ranges, config->n_ranges);
}

ebb_status ebb__run_open(ebb__run *run, const ebb_config *config, const ebb_train_options *options,
                         const char *device)
{
    return open_run(run, config, options, device, POOL_PLAIN);
}

ebb_status ebb__run_open_planned(ebb__run *run, const ebb_config *config, const ebb_train_options *options,
                                 const char *device)
{
    return open_run(run, config, options, device, POOL_PLANNED);
}

ebb_status ebb__run_open_recorded(ebb__run *run, const ebb_config *config, const ebb_train_options *options,
                                  const char *device)
{
    return open_run(run, config, options, device, POOL_RECORDED);
}

/* ---- a run folder ------------------------------------------------------------------------- */

/* What a step keeps is nothing to a run that takes none: a plan's file may be gone. */
static ebb_status load_trained_config(ebb_config **out, const char *path, const ebb_train_options *options)
{
    size_t n = (size_t)options->n_sets;
    const char **sets = ebb__calloc(n + 1, sizeof(*sets));
    if (!sets) return EBB_ENOMEM;
    for (size_t i = 0; i < n; i++) sets[i] = options->sets[i];
    sets[n] = "memory.checkpoint=none";
    ebb_status st = ebb_config_load(out, path, sets, (int)n + 1);
    ebb__free(sets);
    return st;
}

ebb_status ebb__run_open_trained(ebb__run *run, ebb_config **config, const char *run_dir,
                                 const ebb_train_options *options)
{
    char path[EBB__RUN_PATH_BYTES];
    EBB_TRY(ebb__check_options(options));
    EBB_TRY(ebb__run_file(path, run_dir, "config.json"));
    EBB_TRY(load_trained_config(config, path, options));
    EBB_TRY(ebb__run_open(run, *config, options, options->device));
    EBB_TRY(ebb__run_file(path, run_dir, "weights.safetensors"));
    return ebb_model_load(run->model, path);
}

/* ---- data --------------------------------------------------------------------------------- */

static ebb_status open_loader(ebb_loader **out, ebb__run *run, bool eval, int64_t first_batch)
{
    const ebb_config *c = run->config;
    ebb_loader_options o = {
        .struct_bytes = sizeof(o),
        .eval = eval,
        .batch = c->train.batch,
        .workers = c->workers,
        .prefetch = c->prefetch,
        .seed = (uint64_t)c->top.seed,
        .first_batch = first_batch,
        .dtype = ebb__config_dtype(c),
    };
    return ebb_loader_new(out, run->ctx, run->data, &o);
}

ebb_status ebb__run_open_data(ebb__run *run)
{
    const ebb_config *c = run->config;
    EBB_TRY(ebb_dataset_open(&run->data, c->data_json, c->model.tokens, c->model.width,
                             c->model.classes, (uint64_t)c->top.seed));
    run->info = ebb_dataset_info_get(run->data);
    if (!run->dry) EBB_TRY(ebb_dataset_load(run->data));
    return run->info.n_eval > 0 ? open_loader(&run->eval, run, true, 0) : EBB_OK;
}

/* ---- training ----------------------------------------------------------------------------- */

static ebb__group group_of_step(const ebb__run *run, int64_t step)
{
    const ebb__train_keys *t = &run->config->train;
    return ebb__group_at(step, run->info.n_train, t->batch, t->accumulate);
}

static ebb_status check_state(const ebb__run *run, const ebb__run_state *state, const char *dir)
{
    if (state->seed >= 0 && state->seed != run->config->top.seed)
        return ebb_fail(EBB_EINVAL,
                        "%s: the run's seed is %lld, this config's is %lld; a resumed run keeps its "
                        "seed, which gives the order of the data and the dropout masks",
                        dir, (long long)state->seed, (long long)run->config->top.seed);
    if (ebb_optim_steps(run->optim) != state->step - state->skipped)
        return ebb_fail(EBB_EFORMAT,
                        "%s: optimizer.safetensors is of step %lld, state.json of step %lld", dir,
                        (long long)ebb_optim_steps(run->optim), (long long)(state->step - state->skipped));
    ebb__group next = group_of_step(run, state->step);
    if (next.first != state->loader_position || next.items_before != state->items)
        return ebb_fail(
            EBB_EINVAL,
            "%s: the run stopped after %lld items and %lld micro-batches; with this "
            "config's train.batch, train.accumulate and data, step %lld begins after %lld and %lld",
            dir, (long long)state->items, (long long)state->loader_position, (long long)state->step,
            (long long)next.items_before, (long long)next.first);
    if (state->step >= run->steps)
        return ebb_fail(EBB_EINVAL, "%s: has %lld steps already; train.steps is %lld", dir,
                        (long long)state->step, (long long)run->steps);
    return EBB_OK;
}

static ebb_status read_offset(uint64_t *out, const char *text, const char *dir)
{
    char *end = NULL;
    errno = 0;
    unsigned long long value = text[0] >= '0' && text[0] <= '9' ? strtoull(text, &end, 10) : 0;
    if (!end || *end || errno)
        return ebb_fail(EBB_EFORMAT,
                        "%s: state.json: rng_offset \"%s\" is not a whole number below 2^64", dir,
                        text);
    *out = value;
    return EBB_OK;
}

/* A scale that moves goes on where it was; one that stays is the config's. */
static void take_loss_scale(ebb_loss_scale *scale, const ebb__run_state *state)
{
    bool moves = scale->growth != 1 || scale->backoff != 1;
    if (scale->scale == 0 || !moves || state->loss_scale == 0) return;
    scale->scale = state->loss_scale;
    scale->good = state->loss_scale_good;
}

static ebb_status resume(ebb__run *run, const char *dir)
{
    char path[EBB__RUN_PATH_BYTES];
    ebb__run_state state = { 0 };
    uint64_t offset = 0;
    EBB_TRY(ebb__run_state_load(&state, dir));
    EBB_TRY(read_offset(&offset, state.rng_offset, dir));
    EBB_TRY(ebb__run_file(path, dir, "weights.safetensors"));
    EBB_TRY(ebb_model_load(run->model, path));
    EBB_TRY(ebb__run_file(path, dir, "optimizer.safetensors"));
    EBB_TRY(ebb_optim_load(run->optim, path));
    EBB_TRY(check_state(run, &state, dir));
    ebb_rng_set_offset(run->ctx, offset);
    take_loss_scale(&run->loss_scale, &state);
    run->skipped_before = state.skipped;
    run->first_step = run->evaluated = run->saved = state.step;
    return EBB_OK;
}

static bool same_folder(const char *a, const char *b)
{
    struct stat x, y;
    if (stat(a, &x) != 0 || stat(b, &y) != 0) return strcmp(a, b) == 0;
    return x.st_dev == y.st_dev && x.st_ino == y.st_ino;
}

/* Goes on from options.resume_dir, and has the folder open where the run goes on in it. */
static ebb_status resume_from(ebb__run *run, const char *from)
{
    const char *out = run->options->out_dir;
    if (!out || same_folder(out, from)) {
        EBB_TRY(ebb__run_folder_open(&run->folder, from, EBB__FOLDER_RESUME));
        return resume(run, from);
    }
    ebb__run_folder *source = NULL;
    EBB_TRY(ebb__run_folder_open(&source, from, EBB__FOLDER_READ));
    ebb_status st = resume(run, from);
    ebb__run_folder_close(source);
    return st;
}

static ebb_status begin_folder(ebb__run *run)
{
    const char *out = run->options->out_dir;
    if (run->dry || (!run->folder && !out)) return EBB_OK;
    if (!run->folder) EBB_TRY(ebb__run_folder_open(&run->folder, out, EBB__FOLDER_NEW));
    return ebb__run_folder_begin(run->folder, run->config, run->steps, run->first_step);
}

static ebb_status check_frozen(const ebb_named_tensor *params, int n)
{
    for (int i = 0; i < n; i++)
        if (ebb_requires_grad(params[i].tensor)) return EBB_OK;
    return ebb_fail(EBB_EINVAL, "model.frozen: its patterns name every parameter, so there is nothing to train");
}

ebb_status ebb__run_open_training(ebb__run *run)
{
    const ebb_named_tensor *params = NULL;
    int n = ebb_model_params(run->model, &params);
    EBB_TRY(check_frozen(params, n));
    EBB_TRY(ebb_optim_new(&run->optim, run->ctx, params, n, &run->config->optim));
    if (run->options->resume_dir && !run->dry)
        EBB_TRY(resume_from(run, run->options->resume_dir));
    EBB_TRY(open_loader(&run->train, run, false, group_of_step(run, run->first_step).first));
    if (run->options->hash_gradients && !run->dry)
        EBB_TRY(ebb__gradient_hash_new(&run->hash, run->model));
    if (run->config->train.fuse_optimizer) EBB_TRY(ebb__fused_open(run));
    EBB_TRY(ebb__reading_open(&run->losses, run->ctx));
    if (run->config->train.capture) EBB_TRY(ebb__captured_open(run));
    run->step_ms = ebb__malloc(EBB__STEP_MS_RING * sizeof(*run->step_ms));
    if (!run->step_ms) return EBB_ENOMEM;
    return begin_folder(run);
}

void ebb__run_close(ebb__run *run)
{
    ebb__run_folder_close(run->folder);
    ebb__gradient_hash_free(run->hash);
    ebb__captured_close(run);
    ebb__reading_close(&run->losses);
    ebb_loader_free(run->train);
    ebb_loader_free(run->eval);
    ebb_dataset_close(run->data);
    ebb_optim_free(run->optim);
    ebb_model_free(run->model);
    ebb_context_free(run->ctx);
    ebb_plan_free(run->plan);
    ebb__free(run->step_ms);
    *run = (ebb__run){ 0 };
}

/* ---- result ------------------------------------------------------------------------------- */

static int by_value(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

/* Without the first step (it meets cold caches) where there are more than 3. */
static double median_step_ms(const ebb__run *run)
{
    if (run->dry) return 0;
    int64_t n = run->n_step_ms < EBB__STEP_MS_RING ? run->n_step_ms : EBB__STEP_MS_RING;
    double *from = run->step_ms;
    if (run->n_step_ms > 3 && run->n_step_ms <= EBB__STEP_MS_RING) {
        from++;
        n--;
    }
    if (!from || n == 0) return 0;
    qsort(from, (size_t)n, sizeof(*from), by_value);
    return n % 2 ? from[n / 2] : (from[n / 2 - 1] + from[n / 2]) / 2;
}

void ebb__run_result(ebb_train_result *out, const ebb__run *run)
{
    *out = (ebb_train_result){
        .threads = ebb_context_threads(run->ctx),
        .steps = run->steps - run->first_step,
        .data_items = run->info.n_train,
        .micro_batch_items = run->config->train.batch * (run->info.tokens ? run->info.width : 1),
        .parameters = run->config->model.parameters,
        .loss_first = run->loss_first,
        .loss_last = run->loss_last,
        .eval_loss = run->eval_loss,
        .eval_accuracy = run->eval_accuracy,
        .has_eval = run->has_eval,
        .has_accuracy = run->has_accuracy,
        .tokens = run->config->model.tokens,
        .rounds = run->config->rounds,
        .loss_scale = run->loss_scale.scale,
        .skipped_steps = run->skipped_steps,
        .step_ms = median_step_ms(run),
        .flops = run->step_work.flops,
        .recompute_flops = run->step_work.recompute_flops,
        .recomputed_ops = (uint64_t)run->step_work.recomputed_ops,
    };
    snprintf(out->device, sizeof(out->device), "%s", ebb_context_device(run->ctx));
    ebb_memory_stats_get(run->ctx, &out->memory);
    ebb_host_memory_stats_get(run->ctx, &out->host_memory);
    out->offloaded_bytes = (uint64_t)run->step_work.offloaded_bytes;
    out->fetched_bytes = (uint64_t)run->step_work.fetched_bytes;
    if (run->options->on_segment) ebb_each_segment(run->ctx, run->options->on_segment, run->options->segment_user);
    if (!run->dry) out->outside_bytes = ebb_memory_outside_bytes(run->ctx);
    if (out->step_ms > 0) {
        int64_t items = group_of_step(run, 0).items;
        if (out->tokens) items *= run->info.width;
        out->items_per_s = (double)items / out->step_ms * 1e3;
    }
    if (run->hash) ebb__gradient_hash_hex(run->hash, out->gradients_sha256);
    const char *dir = run->options->out_dir ? run->options->out_dir : run->options->resume_dir;
    if (run->folder) snprintf(out->run_dir, sizeof(out->run_dir), "%s", dir);
}
