/* optim/clip.c: the global L2 norm of all gradients, and scaling them down to a limit. */
#include <math.h>

#include <ebb/autograd.h>

#include "core/site.h"
#include "optim/optim.h"
#include "tensor/tensor.h"

/* Partial sums side by side: the order of additions is fixed, and vectors fit it. */
enum { LANES = 8 };

#define DEFINE_SUM(name, real)                                                                     \
    static double name(const void *data, int64_t n)                                                \
    {                                                                                              \
        const real *g = data;                                                                      \
        double lanes[LANES] = { 0 }, sum = 0;                                                      \
        int64_t i = 0;                                                                             \
        for (; i + LANES <= n; i += LANES)                                                         \
            for (int k = 0; k < LANES; k++) lanes[k] += (double)g[i + k] * (double)g[i + k];       \
        for (; i < n; i++) lanes[i % LANES] += (double)g[i] * (double)g[i];                        \
        for (int k = 0; k < LANES; k++) sum += lanes[k];                                           \
        return sum;                                                                                \
    }

DEFINE_SUM(sum_squares_f32, float)
DEFINE_SUM(sum_squares_f64, double)

typedef struct clip_job { void *grad; bool f32; double factor, *sums; } clip_job;

static void sum_range(void *arg, int64_t begin, int64_t end, int thread)
{
    clip_job *job = arg;
    job->sums[thread] = job->f32 ? sum_squares_f32((float *)job->grad + begin, end - begin)
                                 : sum_squares_f64((double *)job->grad + begin, end - begin);
}

static void scale_range(void *arg, int64_t begin, int64_t end, int thread)
{
    (void)thread;
    const clip_job *job = arg;
    if (job->f32) {
        float *g = job->grad;
        for (int64_t i = begin; i < end; i++) g[i] *= (float)job->factor;
    } else {
        double *g = job->grad;
        for (int64_t i = begin; i < end; i++) g[i] *= job->factor;
    }
}

void ebb__host_sum_squares(double *sum, ebb__threads *threads, const ebb_arg *grad, double *partial_sums)
{
    clip_job job = { .grad = grad->data, .f32 = grad->dtype == EBB_F32, .sums = partial_sums };
    ebb__threads_run(threads, grad->elems, EBB__UPDATE_GRAIN, sum_range, &job);
    int ranges = ebb__threads_ranges(threads, grad->elems, EBB__UPDATE_GRAIN);
    for (int r = 0; r < ranges; r++) *sum += job.sums[r];
}

void ebb__host_scale(ebb__threads *threads, const ebb_arg *grad, double factor)
{
    clip_job job = { .grad = grad->data, .f32 = grad->dtype == EBB_F32, .factor = factor };
    ebb__threads_run(threads, grad->elems, EBB__UPDATE_GRAIN, scale_range, &job);
}

ebb_status ebb__optim_sum_squares(const ebb_optim *o, double *out)
{
    ebb__threads *threads = ebb__context_threads(o->ctx);
    *out = 0;
    if (!ebb__device_is_host(&o->ctx->device)) return ebb__optim_accel_sum_squares(o, out);
    for (int i = 0; i < o->n; i++) {
        const ebb_tensor *grad = ebb_grad(o->params[i].tensor);
        if (!grad) continue;
        ebb_arg arg;
        ebb__tensor_arg(grad, &arg);
        ebb__host_sum_squares(out, threads, &arg, o->partial_sums);
    }
    return EBB_OK;
}

bool ebb__optim_is_scaled_before(const ebb_optim *o, int index)
{
    const ebb_tensor *grad = ebb_grad(o->params[index].tensor);
    if (ebb_tensor_refcount(grad) == 1) return false;
    for (int i = 0; i < index; i++)
        if (ebb_grad(o->params[i].tensor) == grad) return true;
    return false;
}

ebb_status ebb__optim_scale_gradients(const ebb_optim *o, double factor)
{
    ebb__threads *threads = ebb__context_threads(o->ctx);
    bool host = ebb__device_is_host(&o->ctx->device);
    for (int i = 0; i < o->n; i++) {
        const ebb_tensor *grad = ebb_grad(o->params[i].tensor);
        if (!grad || ebb__optim_is_scaled_before(o, i)) continue;
        ebb__storage_bump(ebb_tensor_storage(grad));
        ebb_arg arg;
        ebb__tensor_arg(grad, &arg);
        if (host) ebb__host_scale(threads, &arg, factor);
    }
    return host ? EBB_OK : ebb__optim_accel_scale(o, factor);
}

ebb_status ebb_optim_clip(ebb_optim *optim, double max_norm, double *norm)
{
    double sum = 0;
    if (isnan(max_norm)) return ebb_fail(EBB_EINVAL, "optim_clip: max_norm is NaN");
    EBB__TRY(ebb__optim_gradients_ready(optim, "optim_clip"));
    EBB__TRY(ebb__device_not_capturing(&optim->ctx->device, "optim_clip"));
    EBB__TRY(ebb__optim_sum_squares(optim, &sum));
    double found = sqrt(sum);
    double factor = max_norm > 0 ? max_norm / (found + 1e-6) : 1;
    /* A norm that is not finite makes gradients NaN or 0, as in PyTorch; it is seen in *norm. */
    if (!(factor >= 1) && !ebb_context_is_dry(optim->ctx)) EBB__TRY(ebb__optim_scale_gradients(optim, factor));
    if (norm) *norm = found;
    return EBB_OK;
}

ebb_status ebb__optim_clip_later(ebb_optim *optim, double max_norm, double *sum)
{
    EBB__TRY(ebb__optim_gradients_ready(optim, "optim_clip"));
    if (ebb_context_is_dry(optim->ctx)) return EBB_OK;
    for (int i = 0; i < optim->n; i++) {
        const ebb_tensor *grad = ebb_grad(optim->params[i].tensor);
        if (grad) ebb__storage_bump(ebb_tensor_storage(grad));
    }
    return ebb__optim_accel_clip(optim, max_norm, sum);
}
