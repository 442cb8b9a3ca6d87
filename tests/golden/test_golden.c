/* The gradients of small models against PyTorch's, and every way to recompute against none. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <ebb/train.h>

#include "support/support.h"

/* Folders here; see README.md. */
static const char *const cases[] = {
    "gpt-layernorm-learned-tied", "gpt-rmsnorm-rope-swiglu", "gpt-one-kv-head",
    "gpt-no-bias-gelu-erf", "gpt-relu", "gpt-silu", "gpt-wide-heads", "gpt-narrow-heads",
    "mlp-relu", "mlp-gelu-tanh", "mlp-tanh", "mlp-sigmoid",
};
enum { N_CASES = sizeof(cases) / sizeof(cases[0]) };

/* Ways to recompute, all of which must not change a bit. */
static const char *const ways[] = {
    "memory.checkpoint=\"every:1\"",
    "memory.checkpoint=\"every:2\"",
    "memory.checkpoint=\"every:9\"",
    "memory.checkpoint=\"sqrt\"",
    "memory.checkpoint=[[0,0]]",
    "memory.checkpoint=[[1,2]]",
    "memory.recompute=[\"gelu\",\"layernorm\"]",
    "memory.recompute=[\"gelu\",\"relu\",\"silu\",\"tanh\",\"sigmoid\",\"swiglu\",\"layernorm\","
    "\"rmsnorm\",\"rope\",\"add\",\"linear\",\"attention_packed\",\"embedding\"]",
};
enum { N_WAYS = sizeof(ways) / sizeof(ways[0]) };

static const char *golden_path(const char *name, const char *file)
{
    static char paths[4][512];
    static unsigned next;
    char *path = paths[next++ % 4];
    int n = snprintf(path, sizeof(paths[0]), "%s/%s/%s", EBB_GOLDEN_DIR, name, file);
    cr_assert(n > 0 && (size_t)n < sizeof(paths[0]));
    return path;
}

/* ---- running ------------------------------------------------------------------------------- */

/* `way` may be NULL. */
static double run_grads(const char *name, const char *precision, const char *way, const char *weights,
                        const char *out)
{
    char set[64];
    snprintf(set, sizeof(set), "train.precision=%s", precision);
    const char *const sets[] = { set, way };
    ebb_config *config = NULL;
    check_ok(ebb_config_load(&config, golden_path(name, "config.json"), sets, way ? 2 : 1));
    ebb_train_options options = { .struct_bytes = sizeof(options), .threads = 2 };
    double loss = NAN;
    size_t peak = 0;
    check_ok(ebb_grads(&loss, &peak, config, &options, weights, golden_path(name, "batch.safetensors"), out));
    ebb_config_free(config);
    cr_assert(peak > 0);
    return loss;
}

static double golden_loss(const char *name)
{
    double loss = NAN;
    char *text = read_text(golden_path(name, "meta.json"), NULL);
    cr_assert(sscanf(text, "{\"loss\": %lf}", &loss) == 1, "%s: no loss in meta.json", name);
    free(text);
    return loss;
}

/* Writes the weights of a case as f32. */
static void convert_weights(const char *name, const char *out)
{
    enum { MAX = 64 };
    ebb_safetensors *file = NULL;
    check_ok(ebb_safetensors_open(&file, golden_path(name, "weights.safetensors")));
    int n = ebb_safetensors_count(file);
    cr_assert(n <= MAX);
    with_context(ctx) {
        ebb_named_tensor tensors[MAX] = { 0 };
        for (int i = 0; i < n; i++) {
            tensors[i].name = ebb_safetensors_at(file, i).name;
            check_ok(ebb_safetensors_read(&tensors[i].tensor, ctx, file, i));
            check_ok(ebb_cast(&tensors[i].tensor, tensors[i].tensor, EBB_F32));
        }
        check_ok(ebb_safetensors_save(out, tensors, n));
        for (int i = 0; i < n; i++) ebb_drop(&tensors[i].tensor);
    }
    ebb_safetensors_close(file);
}

/* ---- comparing ----------------------------------------------------------------------------- */

/* Entry `index` as doubles.  Owner: the caller; free(). */
static double *read_doubles(const ebb_safetensors *file, int index, size_t *n)
{
    ebb_safetensors_entry e = ebb_safetensors_at(file, index);
    cr_assert(e.dtype == EBB_F64 || e.dtype == EBB_F32);
    *n = e.bytes / ebb_dtype_bytes(e.dtype);
    void *raw = malloc(e.bytes);
    double *values = malloc(*n * sizeof(*values));
    cr_assert(raw && values);
    check_ok(ebb_safetensors_read_data(raw, e.bytes, file, index));
    for (size_t i = 0; i < *n; i++)
        values[i] = e.dtype == EBB_F64 ? ((double *)raw)[i] : (double)((float *)raw)[i];
    free(raw);
    return values;
}

/* |got - want| / |want|, over the whole parameter. */
static double relative_error(const ebb_safetensors *got, int at, const ebb_safetensors *want, int index)
{
    size_t n_got, n_want;
    double *g = read_doubles(got, at, &n_got), *w = read_doubles(want, index, &n_want);
    cr_assert(n_got == n_want);
    double error = 0, norm = 0;
    for (size_t i = 0; i < n_want; i++) {
        error += (g[i] - w[i]) * (g[i] - w[i]);
        norm += w[i] * w[i];
    }
    free(g);
    free(w);
    cr_assert(norm > 0, "%s: PyTorch's gradient is zero", ebb_safetensors_at(want, index).name);
    return sqrt(error / norm);
}

static void check_gradients(const char *name, const char *path, double tolerance)
{
    ebb_safetensors *got = NULL, *want = NULL;
    check_ok(ebb_safetensors_open(&got, path));
    check_ok(ebb_safetensors_open(&want, golden_path(name, "grads.safetensors")));
    int n = ebb_safetensors_count(want);
    cr_assert(n > 0 && ebb_safetensors_count(got) == n, "%s: %d gradients, not %d", name,
              ebb_safetensors_count(got), n);
    for (int i = 0; i < n; i++) {
        ebb_safetensors_entry e = ebb_safetensors_at(want, i);
        int at = ebb_safetensors_find(got, e.name);
        cr_assert(at >= 0, "%s: no gradient of %s", name, e.name);
        ebb_safetensors_entry g = ebb_safetensors_at(got, at);
        cr_assert(g.ndim == e.ndim && memcmp(g.dims, e.dims, sizeof(int64_t) * (size_t)e.ndim) == 0,
                  "%s: %s has another shape", name, e.name);
        double error = relative_error(got, at, want, i);
        cr_assert(error <= tolerance, "%s: %s is off by %.2e of its norm", name, e.name, error);
    }
    ebb_safetensors_close(got);
    ebb_safetensors_close(want);
}

static void check_same_file(const char *a, const char *b, const char *name, const char *way)
{
    size_t a_bytes, b_bytes;
    char *x = read_text(a, &a_bytes), *y = read_text(b, &b_bytes);
    cr_assert(a_bytes == b_bytes && memcmp(x, y, a_bytes) == 0, "%s: %s changes the gradients", name, way);
    free(x);
    free(y);
}

/* ---- tests --------------------------------------------------------------------------------- */

Test(golden, gradients_in_f64_are_those_of_pytorch)
{
    temp_folder folder = temp_folder_make();
    for (int c = 0; c < N_CASES; c++) {
        double loss = run_grads(cases[c], "f64", NULL, golden_path(cases[c], "weights.safetensors"),
                                temp_path(&folder, "g"));
        cr_assert(fabs(loss - golden_loss(cases[c])) < 1e-12 * loss, "%s: loss %.15g", cases[c], loss);
        check_gradients(cases[c], temp_path(&folder, "g"), 1e-10);
    }
    temp_folder_remove(&folder);
}

Test(golden, gradients_in_f32_are_close_to_those_of_pytorch_in_f64)
{
    temp_folder folder = temp_folder_make();
    for (int c = 0; c < N_CASES; c++) {
        convert_weights(cases[c], temp_path(&folder, "w"));
        double loss = run_grads(cases[c], "f32", NULL, temp_path(&folder, "w"), temp_path(&folder, "g"));
        cr_assert(fabs(loss - golden_loss(cases[c])) < 1e-6 * loss, "%s: loss %.9g", cases[c], loss);
        check_gradients(cases[c], temp_path(&folder, "g"), 1e-5);
    }
    temp_folder_remove(&folder);
}

static void check_every_way(const char *precision)
{
    temp_folder folder = temp_folder_make();
    for (int c = 0; c < N_CASES; c++) {
        bool single = strcmp(precision, "f32") == 0;
        if (single) convert_weights(cases[c], temp_path(&folder, "w"));
        for (int w = -1; w < N_WAYS; w++) {
            const char *out = temp_path(&folder, w < 0 ? "none" : "way");
            const char *way = w < 0 ? NULL : ways[w];
            const char *weights = single ? temp_path(&folder, "w")
                                         : golden_path(cases[c], "weights.safetensors");
            run_grads(cases[c], precision, way, weights, out);
            if (way) check_same_file(temp_path(&folder, "none"), temp_path(&folder, "way"), cases[c], way);
        }
    }
    temp_folder_remove(&folder);
}

Test(golden, recomputing_does_not_change_a_bit_in_f64) { check_every_way("f64"); }

Test(golden, recomputing_does_not_change_a_bit_in_f32) { check_every_way("f32"); }
