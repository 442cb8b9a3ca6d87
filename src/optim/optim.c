/* optim/optim.c: the list of parameters, their state, and the walk of a step. */
#include <math.h>
#include <stdlib.h>
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

/* The parameters that are trained, each tensor once, in the order given: pointers into the caller's
 * array. */
typedef struct chosen {
    const ebb_named_tensor **at;
    size_t n;
} chosen;

static int by_place(const void *a, const void *b)
{
    const ebb_named_tensor *x = *(const ebb_named_tensor *const *)a,
                           *y = *(const ebb_named_tensor *const *)b;
    return (x > y) - (x < y);
}

static int by_storage(const void *a, const void *b)
{
    const ebb_named_tensor *x = *(const ebb_named_tensor *const *)a,
                           *y = *(const ebb_named_tensor *const *)b;
    uintptr_t s = (uintptr_t)ebb_tensor_storage(x->tensor),
              t = (uintptr_t)ebb_tensor_storage(y->tensor);
    return s != t ? (s > t) - (s < t) : by_place(a, b);
}

static int by_name(const void *a, const void *b)
{
    const ebb_named_tensor *x = *(const ebb_named_tensor *const *)a,
                           *y = *(const ebb_named_tensor *const *)b;
    int order = strcmp(x->name, y->name);
    return order ? order : by_place(a, b);
}

static void sort(chosen *c, int (*order)(const void *, const void *))
{
    if (c->n > 1) qsort(c->at, c->n, sizeof(const ebb_named_tensor *), order);
}

/* A tensor listed again (tied weights) is left out; two tensors over the same bytes are refused. */
static ebb_status drop_repeats(chosen *c)
{
    size_t kept = 0;
    sort(c, by_storage);
    for (size_t i = 0; i < c->n; i++) {
        const ebb_named_tensor *before = kept ? c->at[kept - 1] : NULL, *now = c->at[i];
        if (before && before->tensor == now->tensor) continue;
        if (before && ebb_tensor_storage(before->tensor) == ebb_tensor_storage(now->tensor))
            return ebb_fail(EBB_EINVAL, "optim: parameters '%s' and '%s' are two tensors over the "
                            "same bytes; list one of them", before->name, now->name);
        c->at[kept++] = now;
    }
    c->n = kept;
    return EBB_OK;
}

/* State is kept by name. */
static ebb_status check_names(chosen *c)
{
    sort(c, by_name);
    for (size_t i = 1; i < c->n; i++)
        if (!strcmp(c->at[i - 1]->name, c->at[i]->name))
            return ebb_fail(EBB_EINVAL, "optim: two parameters are named '%s'", c->at[i]->name);
    return EBB_OK;
}

static ebb_status choose(chosen *c, const ebb_optim *o, const ebb_named_tensor *params, int n)
{
    for (int i = 0; i < n; i++) {
        EBB__TRY(check_param(o, &params[i]));
        if (ebb_requires_grad(params[i].tensor)) c->at[c->n++] = &params[i];
    }
    EBB__TRY(drop_repeats(c));
    EBB__TRY(check_names(c));
    sort(c, by_place);
    return EBB_OK;
}

static ebb_status add_states(ebb_optim *o, ebb__param *p)
{
    for (int i = 0; i < o->n_states; i++) {
        EBB__TRY(ebb__full(&p->states[i], o->ctx, ebb_tensor_dtype(p->tensor), ebb_tensor_ndim(p->tensor),
                           ebb_tensor_dims(p->tensor), 0, "zeros of optimizer state"));
        ebb_tensor_set_category(p->states[i], EBB_CAT_OPTIMIZER);
    }
    return EBB_OK;
}

static ebb_status add_param(ebb_optim *o, const ebb_named_tensor *named)
{
    ebb__param *p = &o->params[o->n];
    p->name = ebb__strdup(named->name);
    if (!p->name) return EBB_ENOMEM;
    p->tensor = ebb_retain(named->tensor);
    p->decays = o->options.decay == EBB_DECAY_ALL ||
                (o->options.decay == EBB_DECAY_MATRICES && ebb_tensor_ndim(p->tensor) >= 2);
    o->n++;
    return add_states(o, p);
}

static ebb_status add_params(ebb_optim *o, const ebb_named_tensor *params, int n)
{
    if (n == 0) return EBB_OK;
    chosen c = { .at = ebb__malloc((size_t)n * sizeof(const ebb_named_tensor *)) };
    o->params = ebb__calloc((size_t)n, sizeof *o->params);
    ebb_status st = c.at && o->params ? choose(&c, o, params, n) : EBB_ENOMEM;
    for (size_t i = 0; i < c.n && st == EBB_OK; i++) st = add_param(o, c.at[i]);
    ebb__free(c.at);
    return st;
}

static ebb_status fill_in(ebb_optim *o, const ebb_named_tensor *params, int n)
{
    o->partial_sums = ebb__calloc((size_t)ebb_context_threads(o->ctx), sizeof *o->partial_sums);
    if (!o->partial_sums) return EBB_ENOMEM;
    EBB__TRY(add_params(o, params, n));
    EBB__TRY(ebb__optim_accel_open(o));
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

void ebb_optim_drop(ebb_optim **variable)
{
    ebb_optim_free(*variable);
    *variable = NULL;
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
    ebb__optim_accel_close(optim);
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

double ebb__optim_keep(const ebb_optim *o, const ebb__param *p)
{
    return p->decays ? 1 - o->step.lr * o->options.weight_decay : 1;
}

static void update_on_host(const ebb_optim *o, const ebb__param *p, const ebb_tensor *grad)
{
    ebb__step step = o->step;
    step.keep = ebb__optim_keep(o, p);
    update_job job = {
        .step = &step,
        .update = ebb_tensor_dtype(p->tensor) == EBB_F32 ? o->kind->update_f32
                                                         : o->kind->update_f64,
        .elem_bytes = ebb_dtype_bytes(ebb_tensor_dtype(p->tensor)),
        .w = ebb_tensor_data(p->tensor), .grad = ebb_tensor_data(grad),
    };
    for (int i = 0; i < o->n_states; i++) job.states[i] = ebb_tensor_data(p->states[i]);
    ebb__threads_run(ebb__context_threads(o->ctx), ebb_tensor_elems(p->tensor), EBB__UPDATE_GRAIN, update_range,
                     &job);
}

/* Updates n parameters; those without a gradient are left alone. */
static ebb_status update(const ebb_optim *o, const ebb__param *params, int n)
{
    const ebb__device *device = &o->ctx->device;
    for (int i = 0; i < n; i++) {
        const ebb__param *p = &params[i];
        const ebb_tensor *grad = ebb_grad(p->tensor);
        if (!grad) continue;
        ebb__storage_bump(ebb_tensor_storage(p->tensor));
        for (int s = 0; s < o->n_states; s++) ebb__storage_bump(ebb_tensor_storage(p->states[s]));
        if (ebb__device_is_host(device)) update_on_host(o, p, grad);
    }
    return o->lists ? ebb__optim_accel_update(o, params, n) : EBB_OK;
}

ebb_status ebb__optim_gradients_ready(const ebb_optim *optim, const char *what)
{
    if (ebb_gradients_valid(optim->ctx)) return EBB_OK;
    return ebb_fail(EBB_ESTATE,
                    "%s: a backward failed midway, so the gradients are not complete; call "
                    "ebb_gradients_reset() and do the accumulation group again",
                    what);
}

ebb_status ebb_optim_step_begin(ebb_optim *optim, double lr)
{
    const ebb_optim_options *options = &optim->options;
    if (!isfinite(lr) || lr < 0)
        return ebb_fail(EBB_EINVAL, "optim_step: lr %g must be finite and >= 0", lr);
    EBB__TRY(ebb__optim_gradients_ready(optim, "optim_step"));
    double t = (double)++optim->steps;
    optim->step = (ebb__step){
        .lr = lr, .beta1 = options->beta1, .beta2 = options->beta2, .eps = options->eps,
        .correction1 = 1 - pow(options->beta1, t),
        .root_correction2 = sqrt(1 - pow(options->beta2, t)),
        .momentum = options->momentum, .nesterov = options->nesterov,
    };
    return EBB_OK;
}

/* Backward completes parameters in about the reverse of their order: the search begins below the last
 * one found. */
static const ebb__param *find_tensor(ebb_optim *optim, const ebb_tensor *tensor)
{
    for (int i = 0; i < optim->n; i++) {
        int at = (optim->cursor + optim->n - 1 - i) % optim->n;
        if (optim->params[at].tensor != tensor) continue;
        optim->cursor = at;
        return &optim->params[at];
    }
    return NULL;
}

ebb_status ebb_optim_step_one(ebb_optim *optim, ebb_tensor *param)
{
    const ebb__param *p = find_tensor(optim, param);
    return p ? update(optim, p, 1) : EBB_OK;
}

ebb_status ebb_optim_step(ebb_optim *optim, double lr)
{
    EBB__TRY(ebb_optim_step_begin(optim, lr));
    return update(optim, optim->params, optim->n);
}

void ebb_optim_drop_grads(ebb_optim *optim)
{
    for (int i = 0; i < optim->n; i++) ebb_drop_grad(optim->params[i].tensor);
}

int64_t ebb_optim_steps(const ebb_optim *optim)
{
    return optim->steps;
}
