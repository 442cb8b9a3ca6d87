#include "train/rates.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define FLOPS_PER_NS 50.0
#define BYTES_PER_NS 10.0

/* Measured on two server cores with AVX-512; only their ratios matter to a plan. */
typedef struct built_in {
    const char *op;
    double forward, backward;
} built_in;
static const built_in built_ins[] = {
    { "add", 0.33, 0.54 },         { "attention_packed", 2.4, 1.5 }, { "cross_entropy", 4.0, 0.74 },
    { "dropout", 2.4, 1.7 },       { "embedding", 1.4, 0.2 },        { "gelu", 1.2, 0.81 },
    { "layernorm", 0.87, 0.9 },    { "linear", 0.85, 0.82 },         { "relu", 0.74, 0.2 },
    { "rmsnorm", 0.37, 0.95 },     { "rope", 0.84, 0.53 },           { "swiglu", 0.43, 0.46 },
};

int ebb__op_index(const ebb_op *op)
{
    int n = ebb_op_count();
    for (int i = 0; i < n && i < EBB__RATES_OPS; i++)
        if (ebb_op_at(i) == op) return i;
    return -1;
}

double ebb__roofline_ns(const ebb_call *call, int pass, const ebb_cost *cost)
{
    double flops = pass == EBB_FORWARD ? cost->fwd_flops : cost->bwd_flops;
    double bytes = pass == EBB_FORWARD ? cost->fwd_bytes : cost->bwd_bytes;
    double ns = flops / FLOPS_PER_NS > bytes / BYTES_PER_NS ? flops / FLOPS_PER_NS : bytes / BYTES_PER_NS;
    if (pass == EBB_FORWARD) return ns;
    int wanted = 0, of = 0;
    for (int i = 0; i < call->n_in; i++) {
        wanted += call->want[i];
        of += !(call->op->no_grad_in & EBB_IN(i));
    }
    return of ? ns * wanted / of : ns;
}

double ebb__rates_ns(const ebb__rates *rates, const ebb_call *call, int pass, const ebb_cost *cost)
{
    int i = ebb__op_index(call->op);
    return ebb__roofline_ns(call, pass, cost) * (i < 0 ? 1 : rates->factor[i][pass]);
}

bool ebb__rates_path(char *path, size_t bytes)
{
    const char *file = getenv("EBB_CALIBRATION"), *cache = getenv("XDG_CACHE_HOME"), *home = getenv("HOME");
    int n = -1;
    if (file && file[0]) n = snprintf(path, bytes, "%s", file);
    else if (cache && cache[0] == '/') n = snprintf(path, bytes, "%s/ebb/calibration.json", cache);
    else if (home && home[0]) n = snprintf(path, bytes, "%s/.cache/ebb/calibration.json", home);
    return n > 0 && (size_t)n < bytes;
}

static void set_factor(ebb__rates *rates, const char *op, double forward, double backward)
{
    const ebb_op *found = ebb_op_find(op);
    int i = found ? ebb__op_index(found) : -1;
    if (i < 0) return; /* of another version */
    rates->factor[i][EBB_FORWARD] = forward;
    rates->factor[i][EBB_BACKWARD] = backward;
}

static ebb_status read_ops(ebb__rates *out, const cJSON *ops, const char *path)
{
    for (const cJSON *item = ops ? ops->child : NULL; item; item = item->next) {
        const cJSON *forward = cJSON_GetArrayItem(item, 0), *backward = cJSON_GetArrayItem(item, 1);
        if (!cJSON_IsNumber(forward) || !cJSON_IsNumber(backward) || !(forward->valuedouble >= 0) ||
            !(backward->valuedouble >= 0))
            return ebb_fail(EBB_EFORMAT, "%s: ops.%.40s: expected [forward, backward], factors from 0", path, item->string);
        set_factor(out, item->string, forward->valuedouble, backward->valuedouble);
        out->info.n_ops++;
    }
    return EBB_OK;
}

typedef struct calibration_file {
    int64_t schema, threads;
    double gflops, bandwidth;
    const cJSON *ops;
} calibration_file;

static ebb_status read_file(ebb__rates *out, const char *path)
{
    calibration_file file = { 0 };
    const ebb__field fields[] = {
        { .key = "schema", .kind = EBB__INT, .offset = 0, .min = 1, .max = 1, .required = true },
        { .key = "threads", .kind = EBB__INT, .offset = offsetof(calibration_file, threads), .min = 1, .max = 1e6 },
        { .key = "gemm_gflops", .kind = EBB__NUMBER, .offset = offsetof(calibration_file, gflops), .min = 0, .max = 1e9 },
        { .key = "bandwidth_gb_s", .kind = EBB__NUMBER, .offset = offsetof(calibration_file, bandwidth), .min = 0, .max = 1e9 },
        { .key = "ops", .kind = EBB__JSON, .offset = offsetof(calibration_file, ops), .required = true },
    };
    cJSON *root = NULL;
    EBB_TRY(ebb__json_load(&root, path));
    ebb_status st = ebb__json_read(&file, root, "calibration", fields, sizeof(fields) / sizeof(fields[0]));
    if (st == EBB_OK) st = read_ops(out, file.ops, path);
    cJSON_Delete(root);
    out->info.threads = (int)file.threads;
    out->info.gemm_gflops = file.gflops;
    out->info.bandwidth_gb_s = file.bandwidth;
    return st;
}

ebb_status ebb__rates_load(ebb__rates *out)
{
    *out = (ebb__rates){ .bytes_per_ns = BYTES_PER_NS };
    for (int i = 0; i < EBB__RATES_OPS; i++) out->factor[i][0] = out->factor[i][1] = 1;
    for (size_t i = 0; i < sizeof(built_ins) / sizeof(built_ins[0]); i++)
        set_factor(out, built_ins[i].op, built_ins[i].forward, built_ins[i].backward);
    if (!ebb__rates_path(out->info.path, sizeof(out->info.path)) || access(out->info.path, F_OK) != 0) {
        out->info.path[0] = '\0';
        return EBB_OK;
    }
    EBB_TRY(read_file(out, out->info.path));
    if (out->info.bandwidth_gb_s > 0) out->bytes_per_ns = out->info.bandwidth_gb_s;
    return EBB_OK;
}
