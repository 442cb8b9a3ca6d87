#include "nn/config.h"

#include <string.h>

#include "core/mem.h"
#include "nn/fields.h"
#include "nn/model.h"

static const char *const gpt_acts[] = { "gelu_tanh", "gelu_erf", "relu",   "silu",
                                        "tanh",      "sigmoid",  "swiglu", NULL };
static const char *const mlp_acts[] = { "gelu_tanh", "gelu_erf", "relu", "silu",
                                        "tanh",      "sigmoid",  NULL };
static const char *const norms[] = { "layernorm", "rmsnorm", NULL };
static const char *const positions[] = { "learned", "rope", NULL };

/* Bounds keep products of dims far from 2^63; whether the memory is there is the pool's question. */
#define MAX_WIDTH 16777216.0
/* clang-format off */
#define MLP(name, member, ...) \
    { .key = name, .offset = offsetof(ebb__model_config, mlp.member), __VA_ARGS__ }
#define GPT(name, member, ...) \
    { .key = name, .offset = offsetof(ebb__model_config, gpt.member), __VA_ARGS__ }
#define TYPE .kind = EBB__STRING, .bytes = EBB__TYPE_BYTES, .required = true
#define INT(low, high) .kind = EBB__INT, .min = low, .max = high
#define NUMBER(low, high) .kind = EBB__NUMBER, .min = low, .max = high
#define CHOICE(words) .kind = EBB__CHOICE, .choices = words
#define REQUIRED .required = true

const ebb__field ebb__mlp_fields[] = {
    MLP("type", type, TYPE),
    MLP("input", input, INT(1, MAX_WIDTH), REQUIRED),
    MLP("hidden", hidden_json, .kind = EBB__JSON),
    MLP("output", output, INT(1, MAX_WIDTH), REQUIRED),
    MLP("activation", activation, CHOICE(mlp_acts)),
    MLP("dropout", dropout, NUMBER(0, 1)),
    MLP("frozen", frozen, .kind = EBB__JSON),
};
const int ebb__n_mlp_fields = sizeof(ebb__mlp_fields) / sizeof(ebb__mlp_fields[0]);

const ebb__field ebb__gpt_fields[] = {
    GPT("type", type, TYPE),
    GPT("layers", layers, INT(1, 10000), REQUIRED),
    GPT("heads", heads, INT(1, 65536), REQUIRED),
    GPT("kv_heads", kv_heads, INT(1, 65536)),
    GPT("head_dim", head_dim, INT(1, 65536)),
    GPT("width", width, INT(1, MAX_WIDTH), REQUIRED),
    GPT("ffn_width", ffn_width, INT(1, MAX_WIDTH)),
    GPT("context", context, INT(1, MAX_WIDTH), REQUIRED),
    GPT("vocab", vocab, INT(1, MAX_WIDTH), REQUIRED),
    GPT("norm", norm, CHOICE(norms)),
    GPT("norm_eps", norm_eps, NUMBER(0, 1)),
    GPT("activation", activation, CHOICE(gpt_acts)),
    GPT("position", position, CHOICE(positions)),
    GPT("rope_base", rope_base, NUMBER(1, 1e12)),
    GPT("bias", bias, .kind = EBB__BOOL),
    GPT("dropout", dropout, NUMBER(0, 1)),
    GPT("tie_embeddings", tie_embeddings, .kind = EBB__BOOL),
    GPT("frozen", frozen, .kind = EBB__JSON),
};
const int ebb__n_gpt_fields = sizeof(ebb__gpt_fields) / sizeof(ebb__gpt_fields[0]);
/* clang-format on */

static ebb_status find_arch(const ebb__arch **out, const cJSON *object)
{
    if (!cJSON_IsObject(object)) return ebb_fail(EBB_EINVAL, "model: expected an object");
    const cJSON *type = cJSON_GetObjectItemCaseSensitive(object, "type");
    if (!cJSON_IsString(type))
        return ebb_fail(EBB_EINVAL, "model.type: expected \"mlp\" or \"gpt\"");
    for (int i = 0; i < ebb__n_archs; i++) {
        if (strcmp(ebb__archs[i]->type, type->valuestring) != 0) continue;
        *out = ebb__archs[i];
        return EBB_OK;
    }
    return ebb_fail(EBB_EINVAL, "model.type: unknown \"%.40s\"; there are \"mlp\" and \"gpt\"",
                    type->valuestring);
}

static ebb_status refuse_bare_gelu(const cJSON *object)
{
    const cJSON *act = cJSON_GetObjectItemCaseSensitive(object, "activation");
    if (!cJSON_IsString(act) || strcmp(act->valuestring, "gelu") != 0) return EBB_OK;
    return ebb_fail(EBB_EINVAL,
                    "model.activation: \"gelu\" is the erf form in some frameworks and "
                    "the tanh form in others (they differ by up to 4.7e-4); write \"gelu_erf\" or "
                    "\"gelu_tanh\"");
}

static ebb_status check_frozen(const cJSON *frozen)
{
    if (!frozen) return EBB_OK;
    if (!cJSON_IsArray(frozen))
        return ebb_fail(EBB_EINVAL, "model.frozen: expected a list of parameter name patterns");
    int i = 0;
    for (const cJSON *item = frozen->child; item; item = item->next, i++) {
        if (!cJSON_IsString(item) || item->valuestring[0] == '\0')
            return ebb_fail(EBB_EINVAL,
                            "model.frozen[%d]: expected a parameter name pattern such as "
                            "\"embed.*\"",
                            i);
    }
    return EBB_OK;
}

ebb_status ebb__model_config_read(ebb__model_config *out, const cJSON *object)
{
    const ebb__arch *arch = NULL;
    EBB_TRY(find_arch(&arch, object));
    memset(out, 0, sizeof(*out));
    out->arch = arch;
    arch->defaults(out);
    EBB_TRY(refuse_bare_gelu(object));
    EBB_TRY(ebb__json_read(out, object, "model", arch->fields, *arch->n_fields));
    out->frozen = arch == &ebb__gpt ? out->gpt.frozen : out->mlp.frozen;
    EBB_TRY(check_frozen(out->frozen));
    return arch->check(out, object);
}

static ebb_status fill_read(cJSON *object, const ebb__model_config *c)
{
    const ebb__arch *arch = c->arch;
    EBB_TRY(ebb__fields_fill(object, c, arch->fields, *arch->n_fields));
    EBB_TRY(arch->fill(object, c));
    return ebb__fields_add(object, "frozen", cJSON_CreateArray());
}

ebb_status ebb__model_config_fill(cJSON *object)
{
    ebb__model_config *c = ebb__malloc(sizeof(*c));
    if (!c) return EBB_ENOMEM;
    ebb_status st = ebb__model_config_read(c, object);
    if (st == EBB_OK) st = fill_read(object, c);
    ebb__free(c);
    return st;
}

ebb_status ebb_model_inspect(ebb_model_info *info, const char *model_json)
{
    cJSON *object = NULL;
    EBB_TRY(ebb__json_parse(&object, model_json, strlen(model_json), "model"));
    ebb__model_config *c = ebb__malloc(sizeof(*c));
    ebb_status st = c ? ebb__model_config_read(c, object) : EBB_ENOMEM;
    if (st == EBB_OK) st = c->arch->info(info, c);
    ebb__free(c);
    cJSON_Delete(object);
    return st;
}
