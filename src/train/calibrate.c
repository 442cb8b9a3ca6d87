/* Measures ops where they are used: every kernel of a few training steps is timed. */
#include <stdio.h>
#include <string.h>

#include "core/file.h"
#include "core/mem.h"
#include "train/rates.h"
#include "train/run.h"

typedef struct stopwatch {
    ebb__meter meter;
    double ns[EBB__RATES_OPS][2], roofline[EBB__RATES_OPS][2];
    double gemm_flops, gemm_ns, add_bytes, add_ns;
} stopwatch;

static void on_kernel(ebb__meter *self, const ebb_call *call, int pass, const ebb__owner *owner, const ebb_cost *cost,
                      double ns)
{
    (void)owner;
    stopwatch *w = (stopwatch *)(void *)self;
    int i = ebb__op_index(call->op);
    if (i < 0) return;
    w->ns[i][pass] += ns;
    w->roofline[i][pass] += ebb__roofline_ns(call, pass, cost);
    if (pass != EBB_FORWARD) return;
    if (strcmp(call->op->name, "linear") == 0) {
        w->gemm_flops += cost->fwd_flops;
        w->gemm_ns += ns;
    }
    if (strcmp(call->op->name, "add") == 0) {
        w->add_bytes += cost->fwd_bytes;
        w->add_ns += ns;
    }
}

/* The first step meets cold caches. */
static ebb_status watch(stopwatch *w, const ebb_config *config, const ebb_train_options *options, int *threads)
{
    enum { STEPS = 5 };
    ebb_train_options o = { .struct_bytes = sizeof(o), .threads = options->threads, .steps = STEPS };
    ebb__run run = { 0 };
    ebb_status st = ebb__run_open(&run, config, &o, NULL);
    if (st == EBB_OK) st = ebb__run_open_data(&run);
    if (st == EBB_OK) st = ebb__run_open_training(&run);
    ebb_loader *eval = run.eval;
    run.eval = NULL;
    run.steps = 1;
    if (st == EBB_OK) st = ebb__train_steps(&run);
    if (st == EBB_OK) {
        run.ctx->meter = &w->meter;
        run.first_step = 1;
        run.steps = STEPS;
        st = ebb__train_steps(&run);
        *threads = ebb_context_threads(run.ctx);
    }
    run.eval = eval;
    ebb__run_close(&run);
    return st;
}

#define GPT "{\"type\":\"gpt\",\"layers\":2,\"heads\":4,\"width\":256,\"context\":128,\"vocab\":256,\"dropout\":0.1"
#define TOKENS "\"data\":{\"type\":\"synthetic\",\"kind\":\"tokens\",\"items\":64,\"eval_items\":0},\"train\":{\"batch\":8}}"
static const char *const samples[] = {
    "{\"model\":" GPT "}," TOKENS,
    "{\"model\":" GPT ",\"norm\":\"rmsnorm\",\"position\":\"rope\",\"activation\":\"swiglu\"}," TOKENS,
    "{\"model\":{\"type\":\"mlp\",\"input\":256,\"hidden\":[512,512],\"output\":16,\"activation\":\"relu\"},"
    "\"data\":{\"type\":\"synthetic\",\"kind\":\"samples\",\"items\":4096,\"eval_items\":0},\"train\":{\"batch\":512}}",
};

static ebb_status watch_samples(stopwatch *w, const ebb_train_options *options, int *threads)
{
    for (size_t i = 0; i < sizeof(samples) / sizeof(samples[0]); i++) {
        ebb_config *config = NULL;
        EBB_TRY(ebb__config_parse(&config, samples[i]));
        ebb_status st = watch(w, config, options, threads);
        ebb_config_free(config);
        if (st != EBB_OK) return st;
    }
    return EBB_OK;
}

static double ratio(double a, double b) { return b > 0 ? a / b : 1; }

static cJSON *to_json(const stopwatch *w, ebb_calibration *out)
{
    cJSON *root = cJSON_CreateObject();
    bool ok = cJSON_AddNumberToObject(root, "schema", 1) && cJSON_AddNumberToObject(root, "threads", out->threads) &&
              cJSON_AddNumberToObject(root, "gemm_gflops", out->gemm_gflops) &&
              cJSON_AddNumberToObject(root, "bandwidth_gb_s", out->bandwidth_gb_s);
    cJSON *ops = ok ? cJSON_AddObjectToObject(root, "ops") : NULL;
    for (int i = 0; ops && i < ebb_op_count() && i < EBB__RATES_OPS; i++) {
        if (w->roofline[i][0] <= 0) continue;
        double factors[2] = { ratio(w->ns[i][0], w->roofline[i][0]), ratio(w->ns[i][1], w->roofline[i][1]) };
        cJSON *pair = cJSON_CreateDoubleArray(factors, 2);
        if (!pair || !cJSON_AddItemToObject(ops, ebb_op_at(i)->name, pair)) {
            cJSON_Delete(pair);
            ops = NULL;
        }
        out->n_ops++;
    }
    if (ops) return root;
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
    ebb_status st = config ? watch(w, config, options, &out->threads) : watch_samples(w, options, &out->threads);
    out->gemm_gflops = w->gemm_ns > 0 ? w->gemm_flops / w->gemm_ns : 0;
    out->bandwidth_gb_s = w->add_ns > 0 ? w->add_bytes / w->add_ns : 0;
    if (st == EBB_OK) st = write_file(w, out);
    ebb__free(w);
    return st;
}
