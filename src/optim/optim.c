/* optim/optim.c: the list of parameters, their state, and the walk of a step. */
#include <math.h>
#include <string.h>

#include <ebb/autograd.h>
#include <ebb/memory.h>

#include "core/mem.h"
#include "core/site.h"
#include "optim/optim.h"
#include "tensor/tensor.h"

static const ebb__optim_kind *const kinds[] = { [EBB_SGD] = &ebb__optim_sgd,
                                                [EBB_ADAMW] = &ebb__optim_adamw };

/* ---- making ------------------------------------------------------------------------------ */

static const ebb__param *find_tensor(const ebb_optim *o, const ebb_tensor *t)
{
    for (int i = 0; i < o->n; i++)
        if (o->params[i].tensor == t) return &o->params[i];
    return NULL;
}

static ebb_status check_param(const ebb_optim *o, const ebb_named_tensor *named)
{
    const ebb_tensor *t = named->tensor;
    char shape[96];
    if (!named->name || !named->name[0])
        return ebb_fail(EBB_EINVAL, "optim: a parameter has no name");
    if (!t) return ebb_fail(EBB_EINVAL, "optim: parameter '%s' has no tensor", named->name);
    if (ebb_tensor_context(t) != o->ctx)
        return ebb_fail(EBB_EDEVICE, "optim: parameter '%s' belongs to another context",
                        named->name);
    if (!ebb_requires_grad(t)) return EBB_OK;
    ebb_tensor_describe(t, shape, sizeof shape);
    if (ebb_tensor_node(t))
        return ebb_fail(EBB_EINVAL,
                        "optim: parameter '%s' was made by %s; only leaves are optimized",
                        named->name, ebb_node_name(ebb_tensor_node(t)));
    if (ebb_tensor_dtype(t) != EBB_F32 && ebb_tensor_dtype(t) != EBB_F64)
        return ebb_fail(EBB_EDTYPE, "optim: parameter '%s' is %s; f32 and f64 are optimized",
                        named->name, shape);
    if (!ebb_tensor_is_contiguous(t))
        return ebb_fail(EBB_EINVAL, "optim: parameter '%s' (%s) is not contiguous", named->name,
                        shape);
    return EBB_OK;
}

/* FNV-1a: names of deep models are many and long alike. */
static uint64_t hash_name(const char *name)
{
    uint64_t h = 14695981039346656037u;
    for (; *name; name++) h = (h ^ (unsigned char)*name) * 1099511628211u;
    return h;
}

/* Two parameters may share neither a name (state is kept by name) nor, as two tensors, bytes. */
static ebb_status check_distinct(const ebb_optim *o, const ebb_named_tensor *named)
{
    uint64_t hash = hash_name(named->name);
    for (int i = 0; i < o->n; i++) {
        const ebb__param *p = &o->params[i];
        if (p->name_hash == hash && !strcmp(p->name, named->name))
            return ebb_fail(EBB_EINVAL, "optim: two parameters are named '%s'", named->name);
        if (ebb_tensor_storage(p->tensor) == ebb_tensor_storage(named->tensor))
            return ebb_fail(EBB_EINVAL, "optim: parameters '%s' and '%s' are two tensors over the "
                            "same bytes; list one of them", p->name, named->name);
    }
    return EBB_OK;
}

static ebb_status add_states(ebb_optim *o, ebb__param *p)
{
    for (int i = 0; i < o->n_states; i++) {
        EBB__TRY(ebb_zeros(&p->states[i], o->ctx, ebb_tensor_dtype(p->tensor),
                           ebb_tensor_ndim(p->tensor), ebb_tensor_dims(p->tensor)));
        ebb_tensor_set_category(p->states[i], EBB_CAT_OPTIMIZER);
    }
    return EBB_OK;
}

static ebb_status add_param(ebb_optim *o, const ebb_named_tensor *named)
{
    EBB__TRY(check_param(o, named));
    if (!ebb_requires_grad(named->tensor) || find_tensor(o, named->tensor)) return EBB_OK;
    EBB__TRY(check_distinct(o, named));
    ebb__param *p = &o->params[o->n];
    p->name = ebb__strdup(named->name);
    if (!p->name) return EBB_ENOMEM;
    p->name_hash = hash_name(p->name);
    p->tensor = ebb_retain(named->tensor);
    p->decays = o->options.decay == EBB_DECAY_ALL ||
                (o->options.decay == EBB_DECAY_MATRICES && ebb_tensor_ndim(p->tensor) >= 2);
    o->n++;
    return add_states(o, p);
}

static ebb_status fill_in(ebb_optim *o, const ebb_named_tensor *params, int n)
{
    o->params = ebb__calloc((size_t)n, sizeof *o->params);
    o->partial_sums = ebb__calloc((size_t)ebb_context_threads(o->ctx), sizeof *o->partial_sums);
    if (!o->params || !o->partial_sums) return EBB_ENOMEM;
    for (int i = 0; i < n; i++) EBB__TRY(add_param(o, &params[i]));
    EBB__TRY(ebb_zeros(&o->step_tensor, o->ctx, EBB_I64, 0, NULL));
    ebb_tensor_set_category(o->step_tensor, EBB_CAT_OPTIMIZER);
    return EBB_OK;
}

ebb_status ebb_optim_new(ebb_optim **out, ebb_context *ctx, const ebb_named_tensor *params, int n,
                         const ebb_optim_options *options)
{
    if (!out || !ctx || n < 0 || (n && !params))
        return ebb_fail(EBB_EINVAL, "optim: an argument is NULL or negative");
    if (!options || options->struct_bytes != sizeof *options)
        return ebb_fail(EBB_EINVAL, "optim: options are missing or have a wrong struct_bytes");
    EBB__TRY(ebb__optim_options_check(options, "optim"));
    ebb_optim *o = ebb__calloc(1, sizeof *o);
    if (!o) return EBB_ENOMEM;
    o->ctx = ctx;
    o->options = *options;
    o->kind = kinds[options->kind];
    o->n_states = o->kind->n_states(options);
    ebb__phase before = ebb__phase_set(ctx, EBB__PHASE_OPTIMIZER);
    ebb_status st = fill_in(o, params, n);
    ebb__phase_set(ctx, before);
    if (st == EBB_OK) *out = o;
    else ebb_optim_free(o);
    return st;
}

void ebb_optim_free(ebb_optim *optim)
{
    if (!optim) return;
    for (int i = 0; i < optim->n; i++) {
        ebb__param *p = &optim->params[i];
        for (int s = 0; s < EBB__MAX_STATES; s++) ebb_drop(&p->states[s]);
        ebb_drop(&p->tensor);
        ebb__free(p->name);
    }
    ebb_drop(&optim->step_tensor);
    ebb__free(optim->params);
    ebb__free(optim->partial_sums);
    ebb__free(optim);
}

/* ---- a step ------------------------------------------------------------------------------ */

typedef struct update_job {
    const ebb__step *step;
    ebb__update_fn *update;
    size_t elem_bytes;
    char *w, *states[EBB__MAX_STATES]; /* NULL: no such state */
    const char *grad;                  /* leaf gradients are contiguous */
} update_job;

static void update_range(void *arg, int64_t begin, int64_t end, int thread)
{
    (void)thread;
    const update_job *job = arg;
    size_t at = (size_t)begin * job->elem_bytes;
    job->update(job->step, job->w + at, job->grad + at,
                job->states[0] ? job->states[0] + at : NULL,
                job->states[1] ? job->states[1] + at : NULL, end - begin);
}

static void update_param(const ebb_optim *o, const ebb__param *p, const ebb__step *step)
{
    ebb__threads *threads = ebb__context_threads(o->ctx);
    ebb_tensor *grad = ebb_grad(p->tensor);
    if (!grad) return;
    ebb__storage_bump(ebb_tensor_storage(p->tensor));
    for (int i = 0; i < o->n_states; i++) ebb__storage_bump(ebb_tensor_storage(p->states[i]));
    if (!threads) return; /* dry */
    update_job job = {
        .step = step,
        .update = ebb_tensor_dtype(p->tensor) == EBB_F32 ? o->kind->update_f32
                                                         : o->kind->update_f64,
        .elem_bytes = ebb_dtype_bytes(ebb_tensor_dtype(p->tensor)),
        .w = ebb_tensor_data(p->tensor), .grad = ebb_tensor_data(grad),
    };
    for (int i = 0; i < o->n_states; i++) job.states[i] = ebb_tensor_data(p->states[i]);
    ebb__threads_run(threads, ebb_tensor_elems(p->tensor), EBB__UPDATE_GRAIN, update_range, &job);
}

ebb_status ebb__optim_gradients_ready(const ebb_optim *optim, const char *what)
{
    if (ebb_gradients_valid(optim->ctx)) return EBB_OK;
    return ebb_fail(EBB_ESTATE,
                    "%s: a backward failed midway, so the gradients are not complete; call "
                    "ebb_gradients_reset() and do the accumulation group again",
                    what);
}

ebb_status ebb_optim_step(ebb_optim *optim, double lr)
{
    ebb_optim *o = optim;
    const ebb_optim_options *options = &o->options;
    if (!isfinite(lr) || lr < 0)
        return ebb_fail(EBB_EINVAL, "optim_step: lr %g must be finite and >= 0", lr);
    EBB__TRY(ebb__optim_gradients_ready(o, "optim_step"));
    double t = (double)++o->steps;
    ebb__step step = {
        .lr = lr, .beta1 = options->beta1, .beta2 = options->beta2, .eps = options->eps,
        .correction1 = 1 - pow(options->beta1, t),
        .root_correction2 = sqrt(1 - pow(options->beta2, t)),
        .momentum = options->momentum, .nesterov = options->nesterov,
    };
    for (int i = 0; i < o->n; i++) {
        step.keep = o->params[i].decays ? 1 - lr * options->weight_decay : 1;
        update_param(o, &o->params[i], &step);
    }
    return EBB_OK;
}

void ebb_optim_drop_grads(ebb_optim *optim)
{
    for (int i = 0; i < optim->n; i++) ebb_drop_grad(optim->params[i].tensor);
}

int64_t ebb_optim_steps(const ebb_optim *optim)
{
    return optim->steps;
}
