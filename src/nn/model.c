#include "nn/model.h"

#include <stdio.h>
#include <string.h>

#include "checkpoint/policy.h"
#include "core/assert.h"
#include "core/mem.h"
#include "tensor/context.h"

const ebb__arch *const ebb__archs[] = { &ebb__mlp, &ebb__gpt };
const int ebb__n_archs = sizeof(ebb__archs) / sizeof(ebb__archs[0]);

/* ---- lifetime ---------------------------------------------------------------------------- */

static ebb_status name_blocks(ebb_model *model)
{
    int n = model->info.blocks;
    model->block_names = ebb__calloc((size_t)n, sizeof(*model->block_names));
    model->cap_ranges = 2 * n;
    model->ranges = ebb__calloc((size_t)model->cap_ranges, sizeof(*model->ranges));
    if (!model->block_names || !model->ranges) return EBB_ENOMEM;
    for (int i = 0; i < n; i++)
        snprintf(model->block_names[i], sizeof(model->block_names[i]), "%s.%d",
                 model->config.arch->block_name, i);
    return EBB_OK;
}

static ebb_status build(ebb_model *model, const cJSON *object, uint64_t seed)
{
    EBB_TRY(ebb__model_config_read(&model->config, object));
    EBB_TRY(model->config.arch->info(&model->info, &model->config));
    EBB_TRY(name_blocks(model));
    return ebb__model_make_params(model, seed);
}

ebb_status ebb_model_new(ebb_model **out, ebb_context *ctx, const char *model_json, ebb_dtype dtype,
                         uint64_t seed)
{
    if (dtype != EBB_F32 && dtype != EBB_F64)
        return ebb_fail(EBB_EUNSUPPORTED, "model: parameters of dtype %s; f32 and f64 are built",
                        ebb_dtype_name(dtype));
    cJSON *object = NULL;
    EBB_TRY(ebb__json_parse(&object, model_json, strlen(model_json), "model"));
    ebb_model *model = ebb__calloc(1, sizeof(*model));
    ebb_status st = EBB_ENOMEM;
    if (model) {
        model->ctx = ctx;
        model->dtype = dtype;
        model->training = true;
        model->loss_chunks = 1;
        st = build(model, object, seed);
        model->config.frozen = NULL; /* it goes with the object */
    }
    cJSON_Delete(object);
    if (st == EBB_OK)
        *out = model;
    else
        ebb_model_free(model);
    return st;
}

void ebb_model_free(ebb_model *model)
{
    if (!model) return;
    for (int i = 0; i < model->n_params; i++) ebb_drop(&model->params[i].tensor);
    ebb__free(model->params);
    ebb__free(model->names);
    ebb__free(model->weights);
    ebb__free(model->ranges);
    ebb__free(model->block_names);
    ebb__free(model);
}

ebb_model_info ebb_model_info_get(const ebb_model *model) { return model->info; }

int ebb_model_params(const ebb_model *model, const ebb_named_tensor **params)
{
    if (params) *params = model->params;
    return model->n_params;
}

void ebb_model_train_mode(ebb_model *model, bool on) { model->training = on; }

/* ---- files ------------------------------------------------------------------------------- */

ebb_status ebb_model_save(const ebb_model *model, const char *path)
{
    return ebb_safetensors_save(path, model->params, model->n_params);
}

static ebb_status check_entry(const ebb_safetensors_entry *e, const ebb_tensor *t, const char *path)
{
    bool same = e->known_dtype && e->dtype == ebb_tensor_dtype(t) && e->ndim == ebb_tensor_ndim(t);
    for (int i = 0; same && i < e->ndim; i++) same = e->dims[i] == ebb_tensor_dims(t)[i];
    if (same) return EBB_OK;
    char want[96];
    ebb_tensor_describe(t, want, sizeof(want));
    return ebb_fail(EBB_EFORMAT,
                    "%s: \"%.60s\" is %s with %d dims (first %lld), the model wants %s", path,
                    e->name, e->dtype_name, e->ndim, e->ndim ? (long long)e->dims[0] : 0LL, want);
}

/* Every name once, with the right shape and dtype, before anything is changed. */
static ebb_status check_file(const ebb_model *model, const ebb_safetensors *file, const char *path)
{
    for (int i = 0; i < model->n_params; i++) {
        int at = ebb_safetensors_find(file, model->names[i]);
        if (at < 0)
            return ebb_fail(EBB_EFORMAT, "%s: parameter \"%s\" is missing", path, model->names[i]);
        ebb_safetensors_entry e = ebb_safetensors_at(file, at);
        EBB_TRY(check_entry(&e, model->params[i].tensor, path));
    }
    for (int f = 0; f < ebb_safetensors_count(file); f++) {
        const char *name = ebb_safetensors_at(file, f).name;
        bool known = false;
        for (int i = 0; i < model->n_params && !known; i++)
            known = strcmp(model->names[i], name) == 0;
        if (!known)
            return ebb_fail(EBB_EFORMAT, "%s: \"%.60s\" is not a parameter of this model", path,
                            name);
    }
    return EBB_OK;
}

static ebb_status read_all(ebb_model *model, const ebb_safetensors *file, const char *path)
{
    EBB_TRY(check_file(model, file, path));
    EBB_WITH_MODE(EBB_NO_GRAD);
    for (int i = 0; i < model->n_params; i++) {
        EBB_LOCAL(value);
        EBB_TRY(ebb_safetensors_read(&value, model->ctx, file,
                                     ebb_safetensors_find(file, model->names[i])));
        EBB_TRY(ebb_copy_into(model->params[i].tensor, value));
    }
    return EBB_OK;
}

ebb_status ebb_model_load(ebb_model *model, const char *path)
{
    ebb_safetensors *file = NULL;
    EBB_TRY(ebb_safetensors_open(&file, path));
    ebb_status st = read_all(model, file, path);
    ebb_safetensors_close(file);
    return st;
}

/* ---- forward ----------------------------------------------------------------------------- */

ebb_status ebb__activate(ebb_tensor **out, ebb_tensor *x, ebb__act act)
{
    switch (act) {
    case EBB__ACT_GELU_TANH: return ebb_gelu(out, x, EBB_GELU_TANH);
    case EBB__ACT_GELU_ERF: return ebb_gelu(out, x, EBB_GELU_ERF);
    case EBB__ACT_RELU: return ebb_relu(out, x);
    case EBB__ACT_SILU: return ebb_silu(out, x);
    case EBB__ACT_TANH: return ebb_tanh(out, x);
    case EBB__ACT_SIGMOID: return ebb_sigmoid(out, x);
    case EBB__ACT_SWIGLU: break; /* has two inputs; gpt.c applies it */
    }
    EBB_ASSERT(!"an activation of one input");
    return ebb_fail(EBB_EINVAL, "model: activation %d", (int)act);
}

ebb_status ebb__model_dropout(ebb_tensor **out, const ebb_model *model, ebb_tensor *x, double p)
{
    if (model->training && p > 0) return ebb_dropout(out, x, p);
    ebb_bind(out, x);
    return EBB_OK;
}

/* What a plan says of a block holds while the block runs.  Its output stays: the next block reads it at once. */
static ebb_status run_block(ebb_tensor **out, const ebb_model *model, int index, ebb_tensor *x)
{
    const ebb_op *ops[EBB__MAX_RECIPES];
    ebb_context *ctx = model->ctx;
    const ebb_op **list = ctx->recompute_ops;
    int n = ctx->n_recompute_ops;
    const char *before = ebb_scope(ctx, model->block_names[index]);
    if (model->plan && model->plan->ops[index]) {
        ctx->n_recompute_ops = ebb__plan_ops(ops, model->plan, index, list, n);
        ctx->recompute_ops = ops;
    }
    ctx->offloading = model->plan && model->plan->offload[index];
    ebb_status st = model->config.arch->block(out, model, index, x);
    if (st == EBB_OK && ctx->offloading) ebb__keep_unpacked(*out);
    ctx->offloading = false;
    ctx->recompute_ops = list;
    ctx->n_recompute_ops = n;
    ebb_scope(ctx, before);
    return st;
}

/* Blocks [at.first, at.last], the segments among them being ranges[*next, ...): outer ones first, so that
 * a segment's own ranges follow it. */
typedef struct stretch {
    const ebb_model *model;
    ebb_block_range at;
    int *next;
} stretch;

static ebb_status run_stretch(void *user, ebb_tensor **out, ebb_tensor *x);

static ebb_status run_segment(ebb_tensor **x, const ebb_model *model, int *next)
{
    ebb_block_range range = model->ranges[(*next)++];
    char name[64];
    snprintf(name, sizeof(name), "%s.%d-%d", model->config.arch->block_name, range.first,
             range.last);
    ebb_checkpoint_options options = { .struct_bytes = sizeof(options), .name = name };
    stretch s = { model, range, next };
    return ebb_checkpoint(x, *x, run_stretch, &s, &options);
}

static ebb_status run_blocks(ebb_tensor **x, const stretch *s)
{
    const ebb_model *model = s->model;
    for (int i = s->at.first; i <= s->at.last;) {
        if (*s->next < model->n_ranges && model->ranges[*s->next].first == i) {
            int last = model->ranges[*s->next].last;
            EBB_TRY(run_segment(x, model, s->next));
            i = last + 1;
        } else {
            EBB_TRY(run_block(x, model, i, *x));
            i++;
        }
    }
    return EBB_OK;
}

static ebb_status run_stretch(void *user, ebb_tensor **out, ebb_tensor *x)
{
    ebb_bind(out, x); /* blocks rebind it: the first one's input is not held here */
    return run_blocks(out, user);
}

typedef ebb_status part_fn(ebb_tensor **x, const ebb_model *model, ebb_tensor *in);

static ebb_status run_part(part_fn *part, const char *scope, ebb_tensor **x, const ebb_model *model,
                           ebb_tensor *in)
{
    const char *before = ebb_scope(model->ctx, scope);
    ebb_status st = part(x, model, in);
    ebb_scope(model->ctx, before);
    return st;
}

/* All but the head. */
static ebb_status run_trunk(ebb_tensor **x, const ebb_model *model, ebb_tensor *inputs)
{
    int next = 0;
    stretch all = { model, { 0, model->info.blocks - 1 }, &next };
    EBB_TRY(run_part(model->config.arch->enter, "embed", x, model, inputs));
    return run_blocks(x, &all);
}

ebb_status ebb_model_logits(ebb_tensor **out, ebb_model *model, ebb_tensor *inputs)
{
    EBB_LOCAL(x);
    EBB_TRY(run_trunk(&x, model, inputs));
    EBB_TRY(run_part(model->config.arch->leave, "head", &x, model, x));
    ebb_move(out, &x);
    return EBB_OK;
}

ebb_status ebb_model_loss(ebb_tensor **out, ebb_model *model, ebb_tensor *inputs,
                          ebb_tensor *targets, double normalizer)
{
    const ebb__arch *arch = model->config.arch;
    bool whole = model->loss_chunks == 1;
    EBB_LOCAL(x);
    EBB_TRY(whole ? ebb_model_logits(&x, model, inputs) : run_trunk(&x, model, inputs));
    const char *before = ebb_scope(model->ctx, "head");
    ebb_status st = whole ? ebb_cross_entropy(&x, x, targets, normalizer)
                          : arch->loss(&x, model, x, targets, normalizer);
    ebb_scope(model->ctx, before);
    if (st == EBB_OK) ebb_move(out, &x);
    return st;
}

ebb_status ebb_model_set_loss_chunks(ebb_model *model, int64_t chunks)
{
    if (chunks < 1) return ebb_fail(EBB_EINVAL, "model: %lld loss chunks; from 1", (long long)chunks);
    if (chunks > 1 && !model->config.arch->loss)
        return ebb_fail(EBB_EUNSUPPORTED, "model: the loss of an %s does not come in chunks",
                        model->config.arch->type);
    model->loss_chunks = chunks;
    return EBB_OK;
}

/* ---- segments ---------------------------------------------------------------------------- */

ebb_status ebb_model_set_checkpoint(ebb_model *model, const ebb_block_range *ranges, int n)
{
    EBB_TRY(ebb__ranges_check(ranges, n, model->info.blocks, "model"));
    if (n > 0) memcpy(model->ranges, ranges, (size_t)n * sizeof(*ranges));
    model->n_ranges = n;
    model->plan = NULL;
    return EBB_OK;
}

ebb_status ebb__model_follow(ebb_model *model, const ebb_plan *plan)
{
    if (plan->n_blocks != model->info.blocks)
        return ebb_fail(EBB_EINVAL, "plan: it is for %d blocks, the model has %d", plan->n_blocks,
                        model->info.blocks);
    EBB_TRY(ebb_model_set_checkpoint(model, plan->segments, plan->n_segments));
    model->plan = plan;
    return EBB_OK;
}
