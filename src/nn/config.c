#include "nn/config.h"

#include <string.h>

#include "core/mem.h"
#include "nn/fields.h"
#include "nn/model.h"

static const char *const gpt_acts[] = { "gelu_tanh", "gelu_erf", "relu", "silu", "tanh", "sigmoid",
                                        "swiglu", NULL };
static const char *const mlp_acts[] = { "gelu_tanh", "gelu_erf", "relu", "silu", "tanh", "sigmoid",
                                        NULL };
static const char *const norms[] = { "layernorm", "rmsnorm", NULL };
static const char *const positions[] = { "learned", "rope", NULL };

/* Bounds keep products of dims far from 2^63; whether the memory is there is the pool's question. */
#define MAX_WIDTH 16777216.0
#define AT(member) offsetof(ebb__model_config, member)

const ebb__field ebb__mlp_fields[] = {
    { .key = "type", .kind = EBB__STRING, .offset = AT(mlp.type), .bytes = sizeof(((ebb__mlp_config *)0)->type), .required = true },
    { .key = "input", .kind = EBB__INT, .offset = AT(mlp.input), .min = 1, .max = MAX_WIDTH, .required = true },
    { .key = "hidden", .kind = EBB__JSON, .offset = AT(mlp.hidden_json) },
    { .key = "output", .kind = EBB__INT, .offset = AT(mlp.output), .min = 1, .max = MAX_WIDTH, .required = true },
    { .key = "activation", .kind = EBB__CHOICE, .offset = AT(mlp.activation), .choices = mlp_acts },
    { .key = "dropout", .kind = EBB__NUMBER, .offset = AT(mlp.dropout), .min = 0, .max = 1 },
    { .key = "frozen", .kind = EBB__JSON, .offset = AT(mlp.frozen) },
};
const int ebb__n_mlp_fields = sizeof(ebb__mlp_fields) / sizeof(ebb__mlp_fields[0]);

const ebb__field ebb__gpt_fields[] = {
    { .key = "type", .kind = EBB__STRING, .offset = AT(gpt.type), .bytes = sizeof(((ebb__gpt_config *)0)->type), .required = true },
    { .key = "layers", .kind = EBB__INT, .offset = AT(gpt.layers), .min = 1, .max = 10000, .required = true },
    { .key = "heads", .kind = EBB__INT, .offset = AT(gpt.heads), .min = 1, .max = 65536, .required = true },
    { .key = "kv_heads", .kind = EBB__INT, .offset = AT(gpt.kv_heads), .min = 1, .max = 65536 },
    { .key = "head_dim", .kind = EBB__INT, .offset = AT(gpt.head_dim), .min = 1, .max = 65536 },
    { .key = "width", .kind = EBB__INT, .offset = AT(gpt.width), .min = 1, .max = MAX_WIDTH, .required = true },
    { .key = "ffn_width", .kind = EBB__INT, .offset = AT(gpt.ffn_width), .min = 1, .max = MAX_WIDTH },
    { .key = "context", .kind = EBB__INT, .offset = AT(gpt.context), .min = 1, .max = MAX_WIDTH, .required = true },
    { .key = "vocab", .kind = EBB__INT, .offset = AT(gpt.vocab), .min = 1, .max = MAX_WIDTH, .required = true },
    { .key = "norm", .kind = EBB__CHOICE, .offset = AT(gpt.norm), .choices = norms },
    { .key = "norm_eps", .kind = EBB__NUMBER, .offset = AT(gpt.norm_eps), .min = 0, .max = 1 },
    { .key = "activation", .kind = EBB__CHOICE, .offset = AT(gpt.activation), .choices = gpt_acts },
    { .key = "position", .kind = EBB__CHOICE, .offset = AT(gpt.position), .choices = positions },
    { .key = "rope_base", .kind = EBB__NUMBER, .offset = AT(gpt.rope_base), .min = 1, .max = 1e12 },
    { .key = "bias", .kind = EBB__BOOL, .offset = AT(gpt.bias) },
    { .key = "dropout", .kind = EBB__NUMBER, .offset = AT(gpt.dropout), .min = 0, .max = 1 },
    { .key = "tie_embeddings", .kind = EBB__BOOL, .offset = AT(gpt.tie_embeddings) },
    { .key = "frozen", .kind = EBB__JSON, .offset = AT(gpt.frozen) },
};
const int ebb__n_gpt_fields = sizeof(ebb__gpt_fields) / sizeof(ebb__gpt_fields[0]);

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
    return ebb_fail(EBB_EINVAL, "model.activation: \"gelu\" is the erf form in some frameworks and "
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
            return ebb_fail(EBB_EINVAL, "model.frozen[%d]: expected a parameter name pattern such as "
                            "\"embed.*\"", i);
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
