#include "train/rates.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/* Measured on two server cores with AVX-512; only their ratios matter to a plan. */
#define FLOPS_PER_NS 50.0
#define BYTES_PER_NS 10.0
#define COPY_BYTES_PER_NS 8.0
#define UPDATE_BYTES_PER_NS 1.5
#define RECIPE_FACTOR 1.1 /* over a forward */

/* Of a calibration: a file that says otherwise was not measured. */
#define LEAST_FACTOR 1e-4
#define MOST_FACTOR 1e6

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

ebb__rate ebb__rate_of(const ebb_call *call, int pass)
{
    if (pass == EBB_BACKWARD) return EBB__RATE_BACKWARD;
    if (call->ctx->phase != EBB__PHASE_RECOMPUTE) return EBB__RATE_FORWARD;
    return call->ctx->in_recipe ? EBB__RATE_RECIPE : EBB__RATE_REPLAY;
}

static double roofline(double flops, double bytes)
{
    return ebb__cost_is_bytes(flops, bytes) ? bytes / BYTES_PER_NS : flops / FLOPS_PER_NS;
}

bool ebb__cost_is_bytes(double flops, double bytes) { return bytes / BYTES_PER_NS > flops / FLOPS_PER_NS; }

double ebb__roofline_ns(const ebb_call *call, int pass, const ebb_cost *cost)
{
    if (pass == EBB_FORWARD) return roofline(cost->fwd_flops, cost->fwd_bytes);
    int wanted = 0, of = 0;
    for (int i = 0; i < call->n_in; i++) {
        wanted += call->want[i];
        of += !(call->op->no_grad_in & EBB_IN(i));
    }
    double ns = roofline(cost->bwd_flops, cost->bwd_bytes);
    return of ? ns * wanted / of : ns;
}

double ebb__rates_ns(const ebb__rates *rates, const ebb_call *call, ebb__rate rate, const ebb_cost *cost)
{
    int i = ebb__op_index(call->op);
    double ns = ebb__roofline_ns(call, rate == EBB__RATE_BACKWARD ? EBB_BACKWARD : EBB_FORWARD, cost);
    return i < 0 ? ns : ns * rates->factor[i][rate];
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

static void set_factors(ebb__rates *rates, const char *op, const double factors[EBB__N_RATES])
{
    const ebb_op *found = ebb_op_find(op);
    int i = found ? ebb__op_index(found) : -1;
    if (i >= 0) memcpy(rates->factor[i], factors, sizeof(rates->factor[i])); /* else of another version */
}

static ebb_status read_factors(double out[EBB__N_RATES], const cJSON *item, const char *path)
{
    bool right = cJSON_GetArraySize(item) == EBB__N_RATES;
    for (int k = 0; k < EBB__N_RATES && right; k++) {
        const cJSON *factor = cJSON_GetArrayItem(item, k);
        right = cJSON_IsNumber(factor) && (factor->valuedouble == 0 || (factor->valuedouble >= LEAST_FACTOR &&
                                                                        factor->valuedouble <= MOST_FACTOR));
        if (right) out[k] = factor->valuedouble;
    }
    if (right) return EBB_OK;
    return ebb_fail(EBB_EFORMAT,
                    "%s: ops.%.40s: expected [forward, backward, recipe, replay], each 0 or from %g to %g; ebb "
                    "info --calibrate writes the file anew",
                    path, item->string, LEAST_FACTOR, MOST_FACTOR);
}

static ebb_status read_ops(ebb__rates *out, const cJSON *ops, const char *path)
{
    if (!cJSON_IsObject(ops)) return ebb_fail(EBB_EFORMAT, "%s: ops: expected an object of factors by op", path);
    for (const cJSON *item = ops->child; item; item = item->next) {
        double factors[EBB__N_RATES];
        EBB_TRY(read_factors(factors, item, path));
        set_factors(out, item->string, factors);
        out->info.n_ops++;
    }
    return EBB_OK;
}

typedef struct calibration_file {
    int64_t schema, threads;
    double gflops, bandwidth, copy, update;
    const cJSON *ops;
} calibration_file;

#define KEY(name, member, ...) { .key = name, .offset = offsetof(calibration_file, member), __VA_ARGS__ }
#define SPEED .kind = EBB__NUMBER, .min = 0, .max = 1e9
static const ebb__field file_fields[] = {
    KEY("schema", schema, .kind = EBB__INT, .min = 1, .max = 1e6, .required = true),
    KEY("threads", threads, .kind = EBB__INT, .min = 1, .max = 1e6),
    KEY("gemm_gflops", gflops, SPEED),
    KEY("bandwidth_gb_s", bandwidth, SPEED),
    KEY("copy_gb_s", copy, SPEED),
    KEY("update_gb_s", update, SPEED),
    KEY("ops", ops, .kind = EBB__JSON, .required = true),
};
#undef SPEED
#undef KEY

static ebb_status read_root(ebb__rates *out, const cJSON *root, const char *path)
{
    calibration_file file = { 0 };
    EBB_TRY(ebb__json_read(&file, root, "calibration", file_fields, sizeof(file_fields) / sizeof(file_fields[0])));
    if (file.schema != EBB__CALIBRATION_SCHEMA)
        return ebb_fail(EBB_EUNSUPPORTED, "%s: a calibration of schema %lld; this ebb reads schema %d: run ebb info "
                        "--calibrate again, or remove the file", path, (long long)file.schema, EBB__CALIBRATION_SCHEMA);
    out->info.threads = (int)file.threads;
    out->info.gemm_gflops = file.gflops;
    out->info.bandwidth_gb_s = file.bandwidth;
    out->info.copy_gb_s = file.copy;
    if (file.copy > 0) out->copy_bytes_per_ns = file.copy;
    if (file.update > 0) out->update_bytes_per_ns = file.update;
    return read_ops(out, file.ops, path);
}

static void use_built_ins(ebb__rates *out)
{
    *out = (ebb__rates){ .copy_bytes_per_ns = COPY_BYTES_PER_NS, .update_bytes_per_ns = UPDATE_BYTES_PER_NS };
    for (int i = 0; i < EBB__RATES_OPS; i++)
        for (int k = 0; k < EBB__N_RATES; k++) out->factor[i][k] = k == EBB__RATE_RECIPE ? RECIPE_FACTOR : 1;
    for (size_t i = 0; i < sizeof(built_ins) / sizeof(built_ins[0]); i++) {
        const built_in *b = &built_ins[i];
        set_factors(out, b->op,
                    (double[EBB__N_RATES]){ b->forward, b->backward, b->forward * RECIPE_FACTOR, b->forward });
    }
}

/* A file that is not right is a wrong setting, whatever is wrong with it. */
static ebb_status fail_of_file(ebb_status st, const char *path)
{
    char text[1024];
    bool named = strncmp(ebb_message(), path, strlen(path)) == 0;
    snprintf(text, sizeof(text), "%s", ebb_message());
    if (st == EBB_EFORMAT) st = EBB_EINVAL;
    return st == EBB_ENOMEM ? st : ebb_fail(st, "%s%s%s", named ? "" : path, named ? "" : ": ", text);
}

ebb_status ebb__rates_load(ebb__rates *out)
{
    use_built_ins(out);
    char *path = out->info.path;
    if (!ebb__rates_path(path, sizeof(out->info.path)) || access(path, F_OK) != 0) {
        path[0] = '\0';
        return EBB_OK;
    }
    cJSON *root = NULL;
    ebb_status st = ebb__json_load(&root, path);
    if (st == EBB_OK) st = read_root(out, root, path);
    cJSON_Delete(root);
    return st == EBB_OK ? st : fail_of_file(st, path);
}
