/* One forward and backward on a given batch, for comparing gradients with other programs.
 * Dropout is off: masks differ between programs. */
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "core/mem.h"
#include "tensor/context.h"
#include "train/run.h"

/* Reads `name` from the batch file; must have one of two dtypes and `ndim` dims. */
static ebb_status read_part(ebb_tensor **out, ebb_context *ctx, const ebb_safetensors *file,
                            const char *path, const char *name, int ndim, ebb_dtype a, ebb_dtype b)
{
    int at = ebb_safetensors_find(file, name);
    if (at < 0) return ebb_fail(EBB_EFORMAT, "%s: \"%s\" is missing", path, name);
    ebb_safetensors_entry e = ebb_safetensors_at(file, at);
    if (!e.known_dtype || (e.dtype != a && e.dtype != b) || e.ndim != ndim)
        return ebb_fail(EBB_EFORMAT, "%s: \"%s\" is %s with %d dims; expected %s%s%s with %d", path,
                        name, e.dtype_name, e.ndim, ebb_dtype_name(a), a == b ? "" : " or ",
                        a == b ? "" : ebb_dtype_name(b), ndim);
    EBB_TRY(ebb_safetensors_read(out, ctx, file, at));
    ebb_tensor_set_category(*out, EBB_CAT_INPUT);
    return EBB_OK;
}

static ebb_status read_batch(ebb_tensor **inputs, ebb_tensor **targets, ebb__run *run,
                             const ebb_safetensors *file, const char *path)
{
    if (run->config->model.tokens) {
        EBB_TRY(read_part(inputs, run->ctx, file, path, "tokens", 2, EBB_I32, EBB_I32));
        return read_part(targets, run->ctx, file, path, "targets", 2, EBB_I32, EBB_I32);
    }
    ebb_dtype dtype = ebb__config_dtype(run->config);
    EBB_TRY(read_part(inputs, run->ctx, file, path, "inputs", 2, EBB_F32, EBB_F64));
    if (ebb_tensor_dtype(*inputs) != dtype) {
        EBB_TRY(ebb_cast(inputs, *inputs, dtype));
        ebb_tensor_set_category(*inputs, EBB_CAT_INPUT);
    }
    return read_part(targets, run->ctx, file, path, "targets", 1, EBB_I32, EBB_I32);
}

static ebb_status load_batch(ebb_tensor **inputs, ebb_tensor **targets, ebb__run *run,
                             const char *path)
{
    ebb_safetensors *file = NULL;
    EBB_TRY(ebb_safetensors_open(&file, path));
    ebb_status st = read_batch(inputs, targets, run, file, path);
    ebb_safetensors_close(file);
    return st;
}

/* Each divided by the scale of the loss. */
static ebb_status unscale(const ebb_named_tensor *params, int n, double scale)
{
    for (int i = 0; i < n && scale > 0; i++) {
        EBB_LOCAL(grad);
        if (!ebb_grad(params[i].tensor)) continue;
        EBB_TRY(ebb_scale(&grad, ebb_grad(params[i].tensor), 1 / scale));
        EBB_TRY(ebb_set_grad(params[i].tensor, grad));
    }
    return EBB_OK;
}

static ebb_status save_gradients(ebb__run *run, const char *path)
{
    const ebb_named_tensor *params = NULL;
    int n = ebb_model_params(run->model, &params), n_grads = 0;
    EBB_TRY(unscale(params, n, run->loss_scale.scale));
    ebb_named_tensor *grads = ebb__calloc((size_t)n, sizeof(*grads));
    if (!grads) return EBB_ENOMEM;
    for (int i = 0; i < n; i++) {
        ebb_tensor *grad = ebb_grad(params[i].tensor);
        if (grad) grads[n_grads++] = (ebb_named_tensor){ params[i].name, grad };
    }
    ebb_status st = ebb_safetensors_save(path, grads, n_grads);
    ebb__free(grads);
    return st;
}

/* Writing the gradients would replace what they were made from. */
static ebb_status check_out(const char *out, const char *what, const char *path)
{
    struct stat x, y;
    if (stat(out, &x) != 0 || stat(path, &y) != 0) return EBB_OK;
    if (x.st_dev != y.st_dev || x.st_ino != y.st_ino) return EBB_OK;
    return ebb_fail(EBB_EINVAL, "grads: %s is the file of the %s; the gradients need another", out,
                    what);
}

static ebb_status run_grads(double *loss_value, ebb__run *run, const char *weights,
                            const char *batch, const char *out)
{
    EBB_LOCAL(inputs);
    EBB_LOCAL(targets);
    EBB_LOCAL(loss);
    if (run->dry) return ebb_fail(EBB_EUNSUPPORTED, "grads: a dry device has no values; use cpu");
    EBB_TRY(check_out(out, "weights", weights));
    EBB_TRY(check_out(out, "batch", batch));
    EBB_TRY(ebb_model_load(run->model, weights));
    EBB_TRY(load_batch(&inputs, &targets, run, batch));
    ebb_model_train_mode(run->model, false);
    EBB_TRY(ebb__run_loss(&loss, run, inputs, targets, 0));
    EBB_TRY(ebb_item(loss, loss_value));
    if (!isfinite(*loss_value)) return ebb_fail(EBB_ESTATE, "grads: the loss is %g", *loss_value);
    EBB_TRY(ebb__run_backward(run, loss));
    return save_gradients(run, out);
}

ebb_status ebb_grads(double *loss, size_t *peak_allocated_bytes, const ebb_config *config,
                     const ebb_train_options *options, const char *weights, const char *batch,
                     const char *out)
{
    ebb__run run = { 0 };
    ebb_status st = ebb__run_open(&run, config, options, options ? options->device : NULL);
    if (st == EBB_OK) st = run_grads(loss, &run, weights, batch, out);
    if (st == EBB_OK) {
        ebb_memory_stats memory;
        ebb_memory_stats_get(run.ctx, &memory);
        *peak_allocated_bytes = memory.peak_allocated_bytes;
    }
    ebb__run_close(&run);
    return st;
}
