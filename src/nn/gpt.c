/* gpt: a decoder-only transformer with norms ahead of attention and mlp (Radford et al., 2019).
 * Letters: B batch, T positions, C width, H heads, KV heads of keys and values, D head width, F mlp
 * width, V vocabulary.  Blocks, as memory.checkpoint counts them, are the transformer blocks. */
#include <math.h>
#include <stdarg.h>
#include <stdio.h>

#include "nn/fields.h"
#include "nn/model.h"

typedef struct affine {
    ebb_tensor *weight, *bias;
} affine; /* bias NULL where the config has none */

typedef struct block_weights {
    affine norm1, qkv, attn_out;  /* [C]; [(H + 2 KV) D, C]; [C, H D] */
    affine norm2, up, gate, down; /* [C]; [F, C]; [F, C], swiglu only; [C, F] */
} block_weights;

typedef struct gpt_weights {
    ebb_tensor *tokens, *positions; /* [V, C]; [T, C], learned positions only */
    affine norm;                    /* [C] */
    ebb_tensor *head;               /* [V, C]; NULL when tied to `tokens` */
    block_weights blocks[];
} gpt_weights;

/* ---- config ------------------------------------------------------------------------------ */

static void defaults(ebb__model_config *c)
{
    c->gpt.norm_eps = 1e-5;
    c->gpt.rope_base = 10000;
    c->gpt.bias = true;
    c->gpt.tie_embeddings = true;
}

static ebb_status check(ebb__model_config *config, const cJSON *object)
{
    (void)object;
    ebb__gpt_config *c = &config->gpt;
    if (c->kv_heads == 0) c->kv_heads = c->heads;
    if (c->heads % c->kv_heads != 0)
        return ebb_fail(EBB_EINVAL, "model.kv_heads: %lld does not divide model.heads %lld",
                        (long long)c->kv_heads, (long long)c->heads);
    if (c->head_dim == 0) {
        if (c->width % c->heads != 0)
            return ebb_fail(EBB_EINVAL,
                            "model.heads: %lld does not divide model.width %lld; change "
                            "one, or give model.head_dim",
                            (long long)c->heads, (long long)c->width);
        c->head_dim = c->width / c->heads;
    }
    if (c->ffn_width == 0) c->ffn_width = 4 * c->width;
    if (c->position == EBB__POS_ROPE && c->head_dim % 2 != 0)
        return ebb_fail(EBB_EINVAL, "model.head_dim: rope pairs dimensions, so %lld must be even",
                        (long long)c->head_dim);
    return EBB_OK;
}

static ebb_status fill(cJSON *object, const ebb__model_config *c)
{
    (void)object, (void)c;
    return EBB_OK;
}

static ebb_status count(void *user, const ebb__param_spec *spec)
{
    int64_t *total = user, elems = spec->dims[0];
    bool over = spec->ndim == 2 && __builtin_mul_overflow(elems, spec->dims[1], &elems);
    if (over || __builtin_add_overflow(*total, elems, total))
        return ebb_fail(EBB_EINVAL, "model: more than 2^63 parameters");
    return EBB_OK;
}

static ebb_status params(const ebb__model_config *c, void *weights, ebb__param_fn *emit,
                         void *user);

static ebb_status info(ebb_model_info *out, const ebb__model_config *c)
{
    *out = (ebb_model_info){ .type = "gpt",
                             .tokens = true,
                             .width = c->gpt.context,
                             .classes = c->gpt.vocab,
                             .blocks = (int)c->gpt.layers };
    return params(c, NULL, count, &out->parameters);
}

static size_t weights_bytes(const ebb__model_config *c)
{
    return sizeof(gpt_weights) + (size_t)c->gpt.layers * sizeof(block_weights);
}

/* ---- parameters -------------------------------------------------------------------------- */

/* Where emitted parameters go, and the name that they start with ("blocks.3."). */
typedef struct emitter {
    const ebb__gpt_config *c;
    ebb__param_fn *emit;
    void *user;
    char prefix[24];
} emitter;

static ebb_status emit_one(const emitter *e, ebb_tensor **slot, const char *name, ebb__init init,
                           double scale, int64_t rows, int64_t cols /* 0: a vector */)
{
    ebb__param_spec spec = {
        .ndim = cols ? 2 : 1, .dims = { rows, cols }, .init = init, .scale = scale, .slot = slot
    };
    snprintf(spec.name, sizeof(spec.name), "%s%s", e->prefix, name);
    return e->emit(e->user, &spec);
}

static ebb_status emit_norm(const emitter *e, affine *slot, const char *name)
{
    char full[32];
    snprintf(full, sizeof(full), "%s.weight", name);
    EBB_TRY(emit_one(e, slot ? &slot->weight : NULL, full, EBB__INIT_ONE, 0, e->c->width, 0));
    if (e->c->norm != EBB__LAYERNORM || !e->c->bias) return EBB_OK;
    snprintf(full, sizeof(full), "%s.bias", name);
    return emit_one(e, slot ? &slot->bias : NULL, full, EBB__INIT_ZERO, 0, e->c->width, 0);
}

static ebb_status emit_linear(const emitter *e, affine *slot, const char *name, double std,
                              int64_t out, int64_t in)
{
    char full[32];
    snprintf(full, sizeof(full), "%s.weight", name);
    EBB_TRY(emit_one(e, slot ? &slot->weight : NULL, full, EBB__INIT_NORMAL, std, out, in));
    if (!e->c->bias) return EBB_OK;
    snprintf(full, sizeof(full), "%s.bias", name);
    return emit_one(e, slot ? &slot->bias : NULL, full, EBB__INIT_ZERO, 0, out, 0);
}

/* Radford et al. (2019): N(0, 0.02), and projections into the residual stream scaled down by the
 * square root of their number. */
#define STD 0.02

static ebb_status emit_block(const emitter *e, block_weights *w)
{
    const ebb__gpt_config *c = e->c;
    double residual = STD / sqrt(2.0 * (double)c->layers);
    int64_t packed = (c->heads + 2 * c->kv_heads) * c->head_dim;
    EBB_TRY(emit_norm(e, w ? &w->norm1 : NULL, "norm1"));
    EBB_TRY(emit_linear(e, w ? &w->qkv : NULL, "attn.qkv", STD, packed, c->width));
    EBB_TRY(emit_linear(e, w ? &w->attn_out : NULL, "attn.out", residual, c->width,
                        c->heads * c->head_dim));
    EBB_TRY(emit_norm(e, w ? &w->norm2 : NULL, "norm2"));
    EBB_TRY(emit_linear(e, w ? &w->up : NULL, "mlp.up", STD, c->ffn_width, c->width));
    if (c->activation == EBB__ACT_SWIGLU)
        EBB_TRY(emit_linear(e, w ? &w->gate : NULL, "mlp.gate", STD, c->ffn_width, c->width));
    return emit_linear(e, w ? &w->down : NULL, "mlp.down", residual, c->width, c->ffn_width);
}

static ebb_status params(const ebb__model_config *config, void *weights, ebb__param_fn *emit,
                         void *user)
{
    const ebb__gpt_config *c = &config->gpt;
    gpt_weights *w = weights;
    emitter e = { .c = c, .emit = emit, .user = user };
    EBB_TRY(emit_one(&e, w ? &w->tokens : NULL, "embed.tokens.weight", EBB__INIT_NORMAL, STD,
                     c->vocab, c->width));
    if (c->position == EBB__POS_LEARNED)
        EBB_TRY(emit_one(&e, w ? &w->positions : NULL, "embed.positions.weight", EBB__INIT_NORMAL,
                         STD, c->context, c->width));
    for (int i = 0; i < c->layers; i++) {
        snprintf(e.prefix, sizeof(e.prefix), "blocks.%d.", i);
        EBB_TRY(emit_block(&e, w ? &w->blocks[i] : NULL));
    }
    e.prefix[0] = '\0';
    EBB_TRY(emit_norm(&e, w ? &w->norm : NULL, "norm"));
    if (c->tie_embeddings) return EBB_OK;
    return emit_one(&e, w ? &w->head : NULL, "head.weight", EBB__INIT_NORMAL, STD, c->vocab,
                    c->width);
}

/* ---- forward ----------------------------------------------------------------------------- */

static ebb_status normalize(ebb_tensor **out, const ebb__gpt_config *c, ebb_tensor *x,
                            const affine *w)
{
    if (c->norm == EBB__RMSNORM) return ebb_rmsnorm(out, x, w->weight, c->norm_eps);
    return ebb_layernorm(out, x, w->weight, w->bias, c->norm_eps);
}

/* x + dropout(out(attention(rope(qkv(norm1(x)))))) */
static ebb_status attention_half(ebb_tensor **out, const ebb_model *model, const block_weights *w,
                                 ebb_tensor *x) /* [B, T, C] */
{
    const ebb__gpt_config *c = &model->config.gpt;
    ebb_attention_options attention = { .heads = c->heads,
                                        .kv_heads = c->kv_heads,
                                        .causal = true };
    EBB_LOCAL(h);
    EBB_TRY(normalize(&h, c, x, &w->norm1));
    EBB_TRY(ebb_linear(&h, h, w->qkv.weight, w->qkv.bias)); /* [B, T, (H + 2 KV) D] */
    if (c->position == EBB__POS_ROPE) {
        ebb_rope_options rope = { .head_dim = c->head_dim,
                                  .heads = c->heads + c->kv_heads,
                                  .base = c->rope_base };
        EBB_TRY(ebb_rope(&h, h, &rope));
    }
    EBB_TRY(ebb_attention_packed(&h, h, &attention)); /* [B, T, H D] */
    EBB_TRY(ebb_linear(&h, h, w->attn_out.weight, w->attn_out.bias));
    EBB_TRY(ebb__model_dropout(&h, model, h, c->dropout));
    return ebb_add(out, x, h);
}

/* act(up(h)), or silu(gate(h)) * up(h) */
static ebb_status widen(ebb_tensor **h, const ebb__gpt_config *c, const block_weights *w)
{
    if (c->activation != EBB__ACT_SWIGLU) {
        EBB_TRY(ebb_linear(h, *h, w->up.weight, w->up.bias)); /* [B, T, F] */
        return ebb__activate(h, *h, (ebb__act)c->activation);
    }
    EBB_LOCAL(up);
    EBB_TRY(ebb_linear(&up, *h, w->up.weight, w->up.bias));
    EBB_TRY(ebb_linear(h, *h, w->gate.weight, w->gate.bias));
    return ebb_swiglu(h, *h, up);
}

/* x + dropout(down(widen(norm2(x)))) */
static ebb_status mlp_half(ebb_tensor **out, const ebb_model *model, const block_weights *w,
                           ebb_tensor *x) /* [B, T, C] */
{
    const ebb__gpt_config *c = &model->config.gpt;
    EBB_LOCAL(h);
    EBB_TRY(normalize(&h, c, x, &w->norm2));
    EBB_TRY(widen(&h, c, w));
    EBB_TRY(ebb_linear(&h, h, w->down.weight, w->down.bias)); /* [B, T, C] */
    EBB_TRY(ebb__model_dropout(&h, model, h, c->dropout));
    return ebb_add(out, x, h);
}

static ebb_status block(ebb_tensor **out, const ebb_model *model, int index, ebb_tensor *x)
{
    const block_weights *w = &((const gpt_weights *)model->weights)->blocks[index];
    /* From here on x may be gone: *out may be the only name that it had. */
    EBB_TRY(attention_half(out, model, w, x));
    return mlp_half(out, model, w, *out);
}

static ebb_status check_inputs(const ebb__gpt_config *c, const ebb_tensor *tokens)
{
    char text[96];
    if (ebb_tensor_ndim(tokens) != 2 || ebb_tensor_dim(tokens, 1) > c->context)
        return ebb_fail(EBB_ESHAPE, "gpt: inputs are %s, expected [B, T] with T <= %lld",
                        ebb_tensor_describe(tokens, text, sizeof(text)), (long long)c->context);
    return EBB_OK;
}

static ebb_status enter(ebb_tensor **x, const ebb_model *model, ebb_tensor *tokens) /* i32 [B, T] */
{
    const ebb__gpt_config *c = &model->config.gpt;
    const gpt_weights *w = model->weights;
    EBB_TRY(check_inputs(c, tokens));
    EBB_TRY(ebb_embedding(x, w->tokens, tokens)); /* [B, T, C] */
    if (c->position == EBB__POS_LEARNED) {
        EBB_LOCAL(positions); /* [T, C] */
        int64_t length = ebb_tensor_dim(tokens, 1);
        if (length < c->context)
            EBB_TRY(ebb_narrow(&positions, w->positions, 0, 0, length));
        else
            ebb_bind(&positions, w->positions);
        EBB_TRY(ebb_add(x, *x, positions));
    }
    return ebb__model_dropout(x, model, *x, c->dropout);
}

static ebb_status leave(ebb_tensor **logits, const ebb_model *model, ebb_tensor *x) /* [B, T, C] */
{
    const gpt_weights *w = model->weights;
    EBB_TRY(normalize(logits, &model->config.gpt, x, &w->norm)); /* x may be gone from here on */
    return ebb_linear(logits, *logits, w->head ? w->head : w->tokens, NULL); /* [B, T, V] */
}

static ebb_status loss(ebb_tensor **out, const ebb_model *model, ebb_tensor *x, /* [B, T, C] */
                       ebb_tensor *targets, double normalizer)
{
    const gpt_weights *w = model->weights;
    EBB_TRY(normalize(out, &model->config.gpt, x, &w->norm)); /* x may be gone from here on */
    return ebb_linear_cross_entropy(out, *out, w->head ? w->head : w->tokens, targets, normalizer,
                                    model->loss_chunks);
}

const ebb__arch ebb__gpt = {
    .type = "gpt",
    .tokens = true,
    .block_name = "blocks",
    .fields = ebb__gpt_fields,
    .n_fields = &ebb__n_gpt_fields,
    .defaults = defaults,
    .check = check,
    .fill = fill,
    .info = info,
    .weights_bytes = weights_bytes,
    .params = params,
    .enter = enter,
    .block = block,
    .leave = leave,
    .loss = loss,
};
