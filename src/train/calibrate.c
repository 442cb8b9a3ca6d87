/* Measures ops where they are used: every kernel of a few training steps is timed, in each of the ways in which
 * a plan may run it.  What a step takes more than one that keeps everything is what counts: kernels that run again
 * change the caches for those around them, and that is spread over the calls made again. */
#include <stdio.h>
#include <string.h>

#include "core/file.h"
#include "core/mem.h"
#include "train/measure.h"
#include "train/rates.h"
#include "train/run.h"

/* ---- what is measured ----------------------------------------------------------------------- */

typedef enum variant { KEEP, CHEAP_RECIPES, ALL_RECIPES, SEGMENTS, OFFLOAD, N_VARIANTS } variant;
/* Variants take turns, so that a machine that slows down slows all of them; each round begins with another one, as
 * who comes after whom counts too.  Rounds go on while a minute lasts: the differences sought are a few percent of
 * a step, about what steps of one kind differ by. */
enum { LEAST_ROUNDS = 4, MOST_ROUNDS = 16, STEPS = 2, MOST_SAMPLES = MOST_ROUNDS * STEPS };
_Static_assert((int)MOST_SAMPLES <= (int)EBB__MOST_SAMPLES, "room for a median");
#define ENOUGH_MS 60e3

/* Per sample: one step, of each sample model. */
typedef struct figures {
    double ns[EBB__RATES_OPS][EBB__N_RATES][MOST_SAMPLES];
    double roofline[EBB__RATES_OPS][EBB__N_RATES];
    double step_ns[MOST_SAMPLES];
    double copied_bytes;
    int n_samples;
} figures;

typedef struct stopwatch {
    ebb__meter meter;
    figures variants[N_VARIANTS], *now;
    double flops[EBB__RATES_OPS], bytes[EBB__RATES_OPS]; /* forward, of a step that keeps everything */
    double parameter_bytes;
    int sample, rounds, threads;
} stopwatch;

static void on_kernel(ebb__meter *self, const ebb_call *call, int pass, const ebb__owner *owner, const ebb_cost *cost,
                      double ns)
{
    (void)owner;
    stopwatch *w = (stopwatch *)(void *)self;
    ebb__rate rate = ebb__rate_of(call, pass);
    int i = ebb__op_index(call->op);
    if (i < 0) return;
    w->now->ns[i][rate][w->sample] += ns;
    if (w->sample > 0) return;
    w->now->roofline[i][rate] += ebb__roofline_ns(call, pass, cost);
    if (w->now != &w->variants[KEEP] || rate != EBB__RATE_FORWARD) return;
    w->flops[i] += cost->fwd_flops;
    w->bytes[i] += cost->fwd_bytes;
}

/* ---- runs ----------------------------------------------------------------------------------- */

/* The first step meets cold caches and memory that is new to the process. */
static ebb_status watch_run(stopwatch *w, const ebb_config *config, int threads)
{
    ebb_train_options o = { .struct_bytes = sizeof(o), .threads = threads, .steps = STEPS + 1, .skip_eval = true };
    ebb__run run = { 0 };
    ebb_status st = ebb__run_open(&run, config, &o, NULL);
    if (st == EBB_OK) st = ebb__run_open_data(&run);
    if (st == EBB_OK) st = ebb__run_open_training(&run);
    for (int step = 0; step <= STEPS && st == EBB_OK; step++) {
        run.first_step = step;
        run.steps = step + 1;
        run.ctx->meter = step > 0 ? &w->meter : NULL;
        st = ebb__train_steps(&run);
        if (step == 0 || st != EBB_OK) continue;
        w->now->step_ns[w->sample] += run.step_ms[(run.n_step_ms - 1) % EBB__STEP_MS_RING] * 1e6;
        if (w->sample++ == 0) w->now->copied_bytes += run.step_work.offloaded_bytes + run.step_work.fetched_bytes;
    }
    if (st == EBB_OK) w->threads = ebb_context_threads(run.ctx);
    ebb__run_close(&run);
    return st;
}

static bool is_cheap(const stopwatch *w, int op) { return ebb__cost_is_bytes(w->flops[op], w->bytes[op]); }

/* "memory.recompute=[...]": the ops that ran. */
static void list_ops(char *set, size_t bytes, const stopwatch *w, bool cheap_only)
{
    size_t n = (size_t)snprintf(set, bytes, "memory.recompute=[");
    const char *comma = "";
    for (int i = 0; i < ebb_op_count() && i < EBB__RATES_OPS; i++) {
        const ebb_op *op = ebb_op_at(i);
        bool ran = w->variants[KEEP].roofline[i][EBB__RATE_FORWARD] > 0;
        if (!ran || (op->flags & (EBB_OP_VIEW | EBB_OP_STATEFUL)) || (cheap_only && !is_cheap(w, i))) continue;
        if (n + strlen(op->name) + 5 > bytes) break;
        n += (size_t)snprintf(set + n, bytes - n, "%s\"%s\"", comma, op->name);
        comma = ",";
    }
    snprintf(set + n, bytes - n, "]");
}

static ebb_status watch_variant(stopwatch *w, variant v, const ebb_config *config, int threads)
{
    char recipes[1024] = "memory.recompute=[]";
    const char *sets[] = { "memory.checkpoint=none", "memory.offload=none", "memory.host_limit=null", recipes };
    if (v == SEGMENTS) sets[0] = "memory.checkpoint=every:1";
    if (v == OFFLOAD) sets[1] = "memory.offload=all";
    if (v == CHEAP_RECIPES || v == ALL_RECIPES) list_ops(recipes, sizeof(recipes), w, v == CHEAP_RECIPES);
    ebb_config *changed = NULL;
    EBB_TRY(ebb_config_copy(&changed, config, sets, 4));
    w->now = &w->variants[v];
    w->sample = w->rounds * STEPS;
    ebb_status st = watch_run(w, changed, threads);
    w->now->n_samples = w->sample;
    ebb_config_free(changed);
    return st;
}

static bool another_round(const stopwatch *w, double started_ms)
{
    return w->rounds < LEAST_ROUNDS || (w->rounds < MOST_ROUNDS && ebb__now_ms() - started_ms < ENOUGH_MS);
}

/* The first round begins with KEEP, which tells what ops there are. */
static ebb_status watch(stopwatch *w, ebb_config *const configs[], int n, int threads)
{
    const double started_ms = ebb__now_ms();
    for (int i = 0; i < n; i++)
        w->parameter_bytes +=
            (double)configs[i]->model.parameters * (double)ebb_dtype_bytes(ebb__config_dtype(configs[i]));
    for (; another_round(w, started_ms); w->rounds++)
        for (int v = 0; v < N_VARIANTS; v++)
            for (int i = 0; i < n; i++)
                EBB_TRY(watch_variant(w, (variant)((w->rounds + v) % N_VARIANTS), configs[i], threads));
    return EBB_OK;
}

#define GPT "{\"type\":\"gpt\",\"layers\":2,\"heads\":4,\"width\":256,\"context\":64,\"vocab\":256,\"dropout\":0.1"
#define TOKENS                                                                                                         \
    "\"data\":{\"type\":\"synthetic\",\"kind\":\"tokens\",\"items\":64,\"eval_items\":0},\"train\":{\"batch\":8}}"
static const char *const samples[] = {
    "{\"model\":" GPT "}," TOKENS,
    "{\"model\":" GPT ",\"norm\":\"rmsnorm\",\"position\":\"rope\",\"activation\":\"swiglu\"}," TOKENS,
    "{\"model\":{\"type\":\"mlp\",\"input\":256,\"hidden\":[512,512],\"output\":16,\"activation\":\"relu\"},"
    "\"data\":{\"type\":\"synthetic\",\"kind\":\"samples\",\"items\":4096,\"eval_items\":0},\"train\":{\"batch\":256}}",
};

static ebb_status watch_samples(stopwatch *w, int threads)
{
    enum { N = sizeof(samples) / sizeof(samples[0]) };
    ebb_config *configs[N] = { NULL };
    ebb_status st = EBB_OK;
    for (int i = 0; i < N && st == EBB_OK; i++) st = ebb__config_parse(&configs[i], samples[i]);
    if (st == EBB_OK) st = watch(w, configs, N, threads);
    for (int i = 0; i < N; i++) ebb_config_free(configs[i]);
    return st;
}

/* ---- from samples to rates ------------------------------------------------------------------ */

static double median_of(const figures *f, const double ns[MOST_SAMPLES]) { return ebb__median(ns, f->n_samples); }

/* 0: it did not run so. */
static double factor_of(const figures *f, int op, ebb__rate rate)
{
    return f->roofline[op][rate] > 0 ? median_of(f, f->ns[op][rate]) / f->roofline[op][rate] : 0;
}

static double again_ns(const figures *f, int op)
{
    return median_of(f, f->ns[op][EBB__RATE_RECIPE]) + median_of(f, f->ns[op][EBB__RATE_REPLAY]);
}

/* Of steps of one round, so that what slows the machine down for a while is in both. */
static ebb__measure longer_by(const figures *f, const figures *than)
{
    double more[MOST_SAMPLES];
    for (int k = 0; k < f->n_samples; k++) more[k] = f->step_ns[k] - than->step_ns[k];
    return ebb__measure_of(more, f->n_samples, STEPS);
}

typedef struct strains { double cheap, dear, replay; } strains;

static strains find_strains(const stopwatch *w)
{
    double cheap = 0, dear = 0, replay = 0;
    for (int i = 0; i < EBB__RATES_OPS; i++) {
        cheap += again_ns(&w->variants[CHEAP_RECIPES], i);
        if (!is_cheap(w, i)) dear += again_ns(&w->variants[ALL_RECIPES], i);
        replay += again_ns(&w->variants[SEGMENTS], i);
    }
    const figures *v = w->variants;
    return (strains){ ebb__strain(longer_by(&v[CHEAP_RECIPES], &v[KEEP]), cheap),
                      ebb__strain(longer_by(&v[ALL_RECIPES], &v[CHEAP_RECIPES]), dear),
                      ebb__strain(longer_by(&v[SEGMENTS], &v[KEEP]), replay) };
}

/* An op that was not made again takes what its forward took. */
static void find_factors(double out[EBB__N_RATES], const stopwatch *w, int op, const strains *s)
{
    bool cheap = is_cheap(w, op);
    double forward = factor_of(&w->variants[KEEP], op, EBB__RATE_FORWARD);
    double recipe = factor_of(&w->variants[cheap ? CHEAP_RECIPES : ALL_RECIPES], op, EBB__RATE_RECIPE);
    double replay = factor_of(&w->variants[SEGMENTS], op, EBB__RATE_REPLAY);
    out[EBB__RATE_FORWARD] = forward;
    out[EBB__RATE_BACKWARD] = factor_of(&w->variants[KEEP], op, EBB__RATE_BACKWARD);
    out[EBB__RATE_RECIPE] = (recipe > 0 ? recipe : forward) * (cheap ? s->cheap : s->dear);
    out[EBB__RATE_REPLAY] = (replay > 0 ? replay : forward) * s->replay;
}

/* Parameters' bytes over the time of a step that is no kernel: the optimizer, mostly. */
static double update_speed(const stopwatch *w)
{
    double rest[MOST_SAMPLES];
    const figures *f = &w->variants[KEEP];
    for (int k = 0; k < f->n_samples; k++) {
        rest[k] = f->step_ns[k];
        for (int i = 0; i < EBB__RATES_OPS; i++)
            rest[k] -= f->ns[i][EBB__RATE_FORWARD][k] + f->ns[i][EBB__RATE_BACKWARD][k];
    }
    double ns = median_of(f, rest);
    return ns > 0 ? w->parameter_bytes / ns : 0;
}

/* Copies that hide behind kernels are taken for ten times as fast as others. */
static double copy_speed(const stopwatch *w)
{
    enum { HIDDEN = 80 };
    double longer = longer_by(&w->variants[OFFLOAD], &w->variants[KEEP]).ns, bytes = w->variants[OFFLOAD].copied_bytes;
    return longer * HIDDEN > bytes ? bytes / longer : HIDDEN;
}

static double speed_of(const stopwatch *w, const char *name, const double *work)
{
    int i = ebb__op_index(ebb_op_find(name));
    const figures *f = &w->variants[KEEP];
    double ns = i < 0 ? 0 : median_of(f, f->ns[i][EBB__RATE_FORWARD]);
    return ns > 0 ? work[i] / ns : 0;
}

/* ---- the file ------------------------------------------------------------------------------- */

static bool add_ops(cJSON *ops, const stopwatch *w, ebb_calibration *out)
{
    strains s = find_strains(w);
    for (int i = 0; ops && i < ebb_op_count() && i < EBB__RATES_OPS; i++) {
        double factors[EBB__N_RATES];
        find_factors(factors, w, i, &s);
        if (factors[EBB__RATE_FORWARD] <= 0) continue;
        cJSON *list = cJSON_CreateDoubleArray(factors, EBB__N_RATES);
        if (!list || !cJSON_AddItemToObject(ops, ebb_op_at(i)->name, list)) {
            cJSON_Delete(list);
            return false;
        }
        out->n_ops++;
    }
    return ops != NULL;
}

static cJSON *to_json(const stopwatch *w, ebb_calibration *out)
{
    cJSON *root = cJSON_CreateObject();
    bool ok = cJSON_AddNumberToObject(root, "schema", EBB__CALIBRATION_SCHEMA) &&
              cJSON_AddNumberToObject(root, "threads", out->threads) &&
              cJSON_AddNumberToObject(root, "gemm_gflops", out->gemm_gflops) &&
              cJSON_AddNumberToObject(root, "bandwidth_gb_s", out->bandwidth_gb_s) &&
              cJSON_AddNumberToObject(root, "copy_gb_s", out->copy_gb_s) &&
              cJSON_AddNumberToObject(root, "update_gb_s", update_speed(w));
    if (ok && add_ops(cJSON_AddObjectToObject(root, "ops"), w, out)) return root;
    cJSON_Delete(root);
    return NULL;
}

static ebb_status write_text(const char *path, const char *text)
{
    ebb__writer *writer = NULL;
    ebb_status st = ebb__write_begin(&writer, path);
    if (st == EBB_OK) st = ebb__write(writer, text, strlen(text));
    if (st == EBB_OK) st = ebb__write_commit(&writer);
    ebb__write_abort(&writer);
    return st;
}

static ebb_status make_folder(const char *path)
{
    char folder[1024];
    snprintf(folder, sizeof(folder), "%s", path);
    char *slash = strrchr(folder, '/');
    if (!slash || slash == folder) return EBB_OK;
    *slash = '\0';
    return ebb__make_dirs(folder);
}

static ebb_status write_file(const stopwatch *w, ebb_calibration *out)
{
    ebb__json_init();
    cJSON *root = to_json(w, out);
    char *text = root ? cJSON_Print(root) : NULL;
    ebb_status st = text ? make_folder(out->path) : ebb_fail(EBB_ENOMEM, "calibrate: no memory");
    if (st == EBB_OK) st = write_text(out->path, text);
    cJSON_free(text);
    cJSON_Delete(root);
    return st;
}

ebb_status ebb_calibrate(ebb_calibration *out, const ebb_config *config, const ebb_train_options *options)
{
    *out = (ebb_calibration){ 0 };
    EBB_TRY(ebb__check_options(options));
    if (!ebb__rates_path(out->path, sizeof(out->path)))
        return ebb_fail(EBB_EINVAL, "calibrate: where to write? set EBB_CALIBRATION to a file's path");
    stopwatch *w = ebb__calloc(1, sizeof(*w));
    if (!w) return EBB_ENOMEM;
    w->meter = (ebb__meter){ .kernel = on_kernel, .timed = true };
    ebb_status st = config ? watch(w, (ebb_config *const[]){ (ebb_config *)(uintptr_t)config }, 1, options->threads)
                           : watch_samples(w, options->threads);
    if (st == EBB_OK) {
        out->threads = w->threads;
        out->gemm_gflops = speed_of(w, "linear", w->flops);
        out->bandwidth_gb_s = speed_of(w, "add", w->bytes);
        out->copy_gb_s = copy_speed(w);
        st = write_file(w, out);
    }
    ebb__free(w);
    return st;
}
