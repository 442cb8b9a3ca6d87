/* mlp: layers of linear, activation and dropout; the last layer is linear alone.
 * Blocks, as memory.checkpoint counts them, are the layers. */
#include <math.h>
#include <stdio.h>

#include "nn/fields.h"
#include "nn/model.h"

typedef struct layer {
    ebb_tensor *weight, *bias;
} layer; /* [out, in], [out] */

static void defaults(ebb__model_config *c) { c->mlp.activation = EBB__ACT_RELU; }

static ebb_status check(ebb__model_config *c, const cJSON *object)
{
    (void)object;
    const cJSON *list = c->mlp.hidden_json;
    if (!list) return EBB_OK;
    if (!cJSON_IsArray(list))
        return ebb_fail(EBB_EINVAL,
                        "model.hidden: expected a list of layer widths, such as [1024, 1024]");
    int n = 0;
    for (const cJSON *item = list->child; item; item = item->next, n++) {
        if (n == EBB__MAX_HIDDEN)
            return ebb_fail(EBB_EINVAL, "model.hidden: more than %d layers", EBB__MAX_HIDDEN);
        double width = cJSON_IsNumber(item) ? item->valuedouble : 0;
        if (width < 1 || width > 16777216 || width != floor(width))
            return ebb_fail(EBB_EINVAL,
                            "model.hidden[%d]: expected a whole number from 1 to 16777216", n);
        c->mlp.hidden[n] = (int64_t)width;
    }
    c->mlp.n_hidden = n;
    return EBB_OK;
}

static ebb_status fill(cJSON *object, const ebb__model_config *c)
{
    (void)c;
    return ebb__fields_add(object, "hidden", cJSON_CreateArray());
}

static int n_layers(const ebb__model_config *c) { return c->mlp.n_hidden + 1; }
static int64_t width_before(const ebb__model_config *c, int i)
{
    return i == 0 ? c->mlp.input : c->mlp.hidden[i - 1];
}
static int64_t width_after(const ebb__model_config *c, int i)
{
    return i == c->mlp.n_hidden ? c->mlp.output : c->mlp.hidden[i];
}

static ebb_status info(ebb_model_info *out, const ebb__model_config *c)
{
    *out = (ebb_model_info){ .type = "mlp",
                             .tokens = false,
                             .width = c->mlp.input,
                             .classes = c->mlp.output,
                             .blocks = n_layers(c) };
    for (int i = 0; i < n_layers(c); i++)
        out->parameters += (width_before(c, i) + 1) * width_after(c, i);
    return EBB_OK;
}

static size_t weights_bytes(const ebb__model_config *c)
{
    return (size_t)n_layers(c) * sizeof(layer);
}

static ebb_status params(const ebb__model_config *c, void *weights, ebb__param_fn *emit, void *user)
{
    layer *layers = weights;
    for (int i = 0; i < n_layers(c); i++) {
        int64_t in = width_before(c, i), out = width_after(c, i);
        /* Kaiming uniform with a = sqrt(5), as PyTorch's Linear: weight and bias within
         * 1/sqrt(fan_in).  He et al., arXiv 1502.01852. */
        double bound = 1 / sqrt((double)in);
        ebb__param_spec w = { .ndim = 2,
                              .dims = { out, in },
                              .init = EBB__INIT_UNIFORM,
                              .scale = bound,
                              .slot = layers ? &layers[i].weight : NULL };
        ebb__param_spec b = { .ndim = 1,
                              .dims = { out },
                              .init = EBB__INIT_UNIFORM,
                              .scale = bound,
                              .slot = layers ? &layers[i].bias : NULL };
        snprintf(w.name, sizeof(w.name), "layers.%d.weight", i);
        snprintf(b.name, sizeof(b.name), "layers.%d.bias", i);
        EBB_TRY(emit(user, &w));
        EBB_TRY(emit(user, &b));
    }
    return EBB_OK;
}

static ebb_status enter(ebb_tensor **x, const ebb_model *model, ebb_tensor *inputs) /* [B, in] */
{
    int64_t want = model->config.mlp.input;
    if (ebb_tensor_ndim(inputs) != 2 || ebb_tensor_dim(inputs, 1) != want) {
        char text[96];
        return ebb_fail(EBB_ESHAPE, "mlp: inputs are %s, expected [B, %lld]",
                        ebb_tensor_describe(inputs, text, sizeof(text)), (long long)want);
    }
    ebb_bind(x, inputs);
    return EBB_OK;
}

static ebb_status block(ebb_tensor **out, const ebb_model *model, int index, ebb_tensor *x)
{
    const layer *l = (const layer *)model->weights + index;
    const ebb__mlp_config *c = &model->config.mlp;
    EBB_TRY(ebb_linear(out, x, l->weight, l->bias));
    if (index == c->n_hidden) return EBB_OK;
    EBB_TRY(ebb__activate(out, *out, (ebb__act)c->activation));
    return ebb__model_dropout(out, model, *out, c->dropout);
}

static ebb_status leave(ebb_tensor **logits, const ebb_model *model, ebb_tensor *x)
{
    (void)model;
    ebb_bind(logits, x);
    return EBB_OK;
}

const ebb__arch ebb__mlp = {
    .type = "mlp",
    .tokens = false,
    .block_name = "layers",
    .fields = ebb__mlp_fields,
    .n_fields = &ebb__n_mlp_fields,
    .defaults = defaults,
    .check = check,
    .fill = fill,
    .info = info,
    .weights_bytes = weights_bytes,
    .params = params,
    .enter = enter,
    .block = block,
    .leave = leave,
};
