/* Parameters: allocated in the fixed order of files, each drawn from a stream of its own. */
#include <ebb/memory.h>
#include <string.h>

#include "core/mem.h"
#include "core/rng.h"
#include "nn/model.h"
#include "tensor/host_view.h"

/* FNV-1a: each parameter draws from a stream of its own, whatever the order and the thread count. */
static uint64_t hash_name(const char *name)
{
    uint64_t h = 14695981039346656037u;
    for (; *name; name++) h = (h ^ (unsigned char)*name) * 1099511628211u;
    return h;
}

enum { DRAW_CHUNK = 1024 };

/* n draws from block `counter` on; uses at most DRAW_CHUNK / 2 blocks. */
static void draw(double *x, const ebb__param_spec *spec, uint64_t seed, uint64_t counter, int64_t n)
{
    if (spec->init == EBB__INIT_NORMAL) {
        ebb__normal_f64(seed, counter, x, n);
        for (int64_t i = 0; i < n; i++) x[i] *= spec->scale;
        return;
    }
    for (int64_t i = 0; i < n; i += 2, counter++) {
        uint32_t words[4];
        ebb__philox(seed, counter, words);
        x[i] = (2 * ebb__u01_f64(words[0], words[1]) - 1) * spec->scale;
        if (i + 1 < n) x[i + 1] = (2 * ebb__u01_f64(words[2], words[3]) - 1) * spec->scale;
    }
}

typedef struct filling {
    const ebb__param_spec *spec;
    uint64_t seed;
    void *data;
    int64_t elems;
    bool f64;
} filling;

/* Chunks [begin, end): each draws from its own place in the stream, whoever runs it. */
static void fill_chunks(void *arg, int64_t begin, int64_t end, int thread)
{
    (void)thread;
    const filling *f = arg;
    double chunk[DRAW_CHUNK];
    for (int64_t at = begin * DRAW_CHUNK; at < f->elems && at < end * DRAW_CHUNK;
         at += DRAW_CHUNK) {
        int64_t n = f->elems - at < DRAW_CHUNK ? f->elems - at : DRAW_CHUNK;
        draw(chunk, f->spec, f->seed, (uint64_t)(at / 2), n);
        for (int64_t i = 0; i < n; i++) {
            if (f->f64)
                ((double *)f->data)[at + i] = chunk[i];
            else
                ((float *)f->data)[at + i] = (float)chunk[i];
        }
    }
}

/* Drawn by the host on every device: so initial weights are the same bits. */
static ebb_status fill_random(ebb_tensor *t, const ebb__param_spec *spec, uint64_t seed)
{
    ebb__threads *threads = ebb__context_threads(ebb_tensor_context(t));
    ebb__host_view view;
    EBB_TRY(ebb__host_view_of(&view, t, EBB__VIEW_WRITE));
    filling f = { .spec = spec,
                  .seed = seed,
                  .data = view.data,
                  .elems = ebb_tensor_elems(t),
                  .f64 = ebb_tensor_dtype(t) == EBB_F64 };
    if (threads && f.data) /* else dry */
        ebb__threads_run(threads, (f.elems + DRAW_CHUNK - 1) / DRAW_CHUNK, 8, fill_chunks, &f);
    return ebb__host_view_close(&view, EBB_OK);
}

static ebb_status initialise(ebb_tensor *t, const ebb__param_spec *spec, uint64_t seed)
{
    if (spec->init == EBB__INIT_ZERO) return ebb_fill(t, 0);
    if (spec->init == EBB__INIT_ONE) return ebb_fill(t, 1);
    return fill_random(t, spec, ebb__seed_mix(seed, hash_name(spec->name)));
}

/* '*' stands for any run of characters. */
static bool matches(const char *pattern, const char *name)
{
    const char *star = NULL, *resume = NULL; /* after the last '*'; where its run may grow from */
    while (*name) {
        if (*pattern == '*') {
            star = ++pattern;
            resume = name;
        } else if (*pattern == *name) {
            pattern++;
            name++;
        } else if (star) {
            pattern = star;
            name = ++resume;
        } else {
            return false;
        }
    }
    while (*pattern == '*') pattern++;
    return *pattern == '\0';
}

static bool is_frozen(const ebb_model *model, const char *name)
{
    const cJSON *list = model->config.frozen;
    for (const cJSON *item = list ? list->child : NULL; item; item = item->next)
        if (matches(item->valuestring, name)) return true;
    return false;
}

static ebb_status check_frozen_patterns(const ebb_model *model)
{
    const cJSON *list = model->config.frozen;
    int i = 0;
    for (const cJSON *item = list ? list->child : NULL; item; item = item->next, i++) {
        bool hit = false;
        for (int p = 0; p < model->n_params && !hit; p++)
            hit = matches(item->valuestring, model->names[p]);
        if (!hit)
            return ebb_fail(EBB_EINVAL,
                            "model.frozen[%d]: \"%.60s\" matches no parameter; names look "
                            "like \"%s\", * stands for any characters",
                            i, item->valuestring, model->names[0]);
    }
    return EBB_OK;
}

static ebb_status count_one(void *user, const ebb__param_spec *spec)
{
    (void)spec;
    ++*(int *)user;
    return EBB_OK;
}

typedef struct maker {
    ebb_model *model;
    uint64_t seed;
} maker;

static ebb_status make_one(void *user, const ebb__param_spec *spec)
{
    const maker *m = user;
    ebb_model *model = m->model;
    ebb_named_tensor *param = &model->params[model->n_params];
    char *name = model->names[model->n_params];
    memcpy(name, spec->name, sizeof(spec->name));
    param->name = name;
    EBB_TRY(ebb_empty(&param->tensor, model->ctx, model->dtype, spec->ndim, spec->dims));
    model->n_params++; /* from here on ebb_model_free() drops it */
    ebb_tensor_set_category(param->tensor, EBB_CAT_PARAMETER);
    EBB_TRY(ebb_tensor_set_name(param->tensor, name));
    EBB_TRY(initialise(param->tensor, spec, m->seed));
    EBB_TRY(ebb_set_requires_grad(param->tensor, !is_frozen(model, name)));
    *spec->slot = param->tensor;
    return EBB_OK;
}

ebb_status ebb__model_make_params(ebb_model *model, uint64_t seed)
{
    const ebb__arch *arch = model->config.arch;
    int n = 0;
    EBB_TRY(arch->params(&model->config, NULL, count_one, &n));
    model->params = ebb__calloc((size_t)n, sizeof(*model->params));
    model->names = ebb__calloc((size_t)n, sizeof(*model->names));
    model->weights = ebb__calloc(1, arch->weights_bytes(&model->config));
    if (!model->params || !model->names || !model->weights) return EBB_ENOMEM;
    maker m = { model, seed };
    EBB_WITH_MODE(EBB_NO_GRAD);
    EBB_TRY(arch->params(&model->config, model->weights, make_one, &m));
    return check_frozen_patterns(model);
}
