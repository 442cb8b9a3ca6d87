/* optim/accel.c: what the optimizers have an accelerator's plugin do: one call for all parameters. */
#include <ebb/autograd.h>
#include <string.h>

#include "core/mem.h"
#include "optim/optim.h"
#include "tensor/tensor.h"

/* Written anew for each call, with room for every parameter. */
struct ebb__optim_lists {
    ebb__accel_param *params;
    ebb_arg *grads, *all; /* all: a second list, for clipping */
};

ebb_status ebb__optim_accel_open(ebb_optim *o)
{
    const ebb__accelerator *accel = o->ctx->device.accel;
    if (!accel || !accel->table || o->n == 0) return EBB_OK;
    o->lists = ebb__calloc(1, sizeof *o->lists);
    if (!o->lists) return EBB_ENOMEM;
    o->lists->params = ebb__calloc((size_t)o->n, sizeof *o->lists->params);
    o->lists->grads = ebb__calloc((size_t)o->n, sizeof *o->lists->grads);
    o->lists->all = ebb__calloc((size_t)o->n, sizeof *o->lists->all);
    return o->lists->params && o->lists->grads && o->lists->all ? EBB_OK : EBB_ENOMEM;
}

void ebb__optim_accel_close(ebb_optim *o)
{
    if (!o->lists) return;
    ebb__free(o->lists->params);
    ebb__free(o->lists->grads);
    ebb__free(o->lists->all);
    ebb__free(o->lists);
}

static ebb__accel_step step_of(const ebb_optim *o)
{
    const ebb__step *s = &o->step;
    return (ebb__accel_step){
        .kind = o->kind == &ebb__optim_sgd ? EBB__ACCEL_SGD : EBB__ACCEL_ADAMW,
        .lr = s->lr, .beta1 = s->beta1, .beta2 = s->beta2, .eps = s->eps, .correction1 = s->correction1,
        .root_correction2 = s->root_correction2, .momentum = s->momentum, .nesterov = s->nesterov,
    };
}

ebb_status ebb__optim_accel_update(const ebb_optim *o, const ebb__param *params, int n)
{
    const ebb__accelerator *accel = o->ctx->device.accel;
    int given = 0;
    for (int i = 0; i < n; i++) {
        const ebb__param *p = &params[i];
        const ebb_tensor *grad = ebb_grad(p->tensor); /* of a leaf: contiguous */
        if (!grad || ebb_tensor_elems(grad) == 0) continue;
        o->lists->params[given++] = (ebb__accel_param){
            .w = ebb_tensor_data(p->tensor), .g = ebb_tensor_data(grad),
            .s0 = p->states[0] ? ebb_tensor_data(p->states[0]) : NULL,
            .s1 = p->states[1] ? ebb_tensor_data(p->states[1]) : NULL,
            .n = ebb_tensor_elems(grad), .dtype = ebb_tensor_dtype(p->tensor), .keep = ebb__optim_keep(o, p),
            .decays = p->decays,
        };
    }
    ebb__accel_step step = step_of(o);
    if (!given) return EBB_OK;
    return ebb__device_doing("optimizer step", accel->table->update(accel->self, &step, o->lists->params, given));
}

/* Fills the list of gradients; each one once where they are to be scaled. */
static int list_grads(const ebb_optim *o, bool once)
{
    int n = 0;
    for (int i = 0; i < o->n; i++) {
        const ebb_tensor *grad = ebb_grad(o->params[i].tensor);
        if (!grad || ebb_tensor_elems(grad) == 0 || (once && ebb__optim_is_scaled_before(o, i))) continue;
        ebb__tensor_arg(grad, &o->lists->grads[n++]);
    }
    return n;
}

ebb_status ebb__optim_accel_sum_squares(const ebb_optim *o, double *sum)
{
    const ebb__accelerator *accel = o->ctx->device.accel;
    int n = o->lists ? list_grads(o, false) : 0;
    *sum = 0;
    if (!n) return EBB_OK;
    return ebb__device_doing("norm of the gradients", accel->table->sum_squares(accel->self, o->lists->grads, n, sum));
}

ebb_status ebb__optim_accel_scale(const ebb_optim *o, double factor)
{
    const ebb__accelerator *accel = o->ctx->device.accel;
    int n = o->lists ? list_grads(o, true) : 0;
    if (!n) return EBB_OK;
    return ebb__device_doing("scaling the gradients", accel->table->scale(accel->self, o->lists->grads, n, factor));
}

ebb_status ebb__optim_accel_clip(const ebb_optim *o, double max_norm, double *sum)
{
    const ebb__accelerator *accel = o->ctx->device.accel;
    int n = o->lists ? list_grads(o, false) : 0;
    if (n == 0) return EBB_OK;
    memcpy(o->lists->all, o->lists->grads, (size_t)n * sizeof *o->lists->all);
    int n_scaled = list_grads(o, true);
    ebb_status st = accel->table->clip(accel->self, o->lists->all, n, o->lists->grads, n_scaled, max_norm, sum);
    return ebb__device_doing("clipping the gradients", st);
}

void ebb__optim_accel_numbers(const ebb_optim *o, ebb__accel_numbers *out)
{
    *out = (ebb__accel_numbers){ .step = step_of(o), .keep = 1 - o->step.lr * o->options.weight_decay };
}
