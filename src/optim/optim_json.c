/* optim/optim_json.c: the "optimizer" object of a config. */
#include <float.h>
#include <math.h>
#include <string.h>

#include "core/json.h"
#include "optim/optim.h"

static const char *const kinds[] = { [EBB_SGD] = "sgd", [EBB_ADAMW] = "adamw", NULL };
static const char *const decay_rules[] = {
    [EBB_DECAY_ALL] = "all", [EBB_DECAY_MATRICES] = "matrices", [EBB_DECAY_NONE] = "none", NULL
};

typedef struct optim_config {
    int kind, decay;
    double lr, betas[2], eps, weight_decay, momentum;
    bool nesterov;
} optim_config;

#define FIELD(name, member, ...) \
    { .key = name, .offset = offsetof(optim_config, member), __VA_ARGS__ }
/* Both optimizers' keys are known whatever the type is, so that one config can vary the type. */
const ebb__field ebb__optim_fields[] = {
    FIELD("type", kind, .kind = EBB__CHOICE, .choices = kinds),
    FIELD("lr", lr, .kind = EBB__NUMBER, .min = 0, .max = 1e6),
    FIELD("betas", betas, .kind = EBB__PAIR, .min = 0, .max = 1),
    FIELD("eps", eps, .kind = EBB__NUMBER, .min = 0, .max = 1),
    FIELD("weight_decay", weight_decay, .kind = EBB__NUMBER, .min = 0, .max = 1e6),
    FIELD("decay", decay, .kind = EBB__CHOICE, .choices = decay_rules),
    FIELD("momentum", momentum, .kind = EBB__NUMBER, .min = 0, .max = 1),
    FIELD("nesterov", nesterov, .kind = EBB__BOOL),
};
#undef FIELD
const int ebb__n_optim_fields = sizeof ebb__optim_fields / sizeof ebb__optim_fields[0];

static ebb_status out_of_range(const char *path, const char *key, double value, const char *allowed)
{
    return ebb_fail(EBB_EINVAL, "%s.%s: %g; must be %s", path, key, value, allowed);
}

/* NaN fails every comparison, so each is written such that NaN is refused. */
ebb_status ebb__optim_options_check(const ebb_optim_options *o, const char *path)
{
    if ((int)o->kind < EBB_SGD || o->kind > EBB_ADAMW)
        return out_of_range(path, "type", o->kind, "sgd or adamw");
    if ((int)o->decay < EBB_DECAY_ALL || o->decay > EBB_DECAY_NONE)
        return out_of_range(path, "decay", o->decay, "all, matrices or none");
    if (!(o->lr > 0 && o->lr <= DBL_MAX)) return out_of_range(path, "lr", o->lr, "> 0 and finite");
    if (!(o->weight_decay >= 0 && o->weight_decay <= DBL_MAX))
        return out_of_range(path, "weight_decay", o->weight_decay, ">= 0 and finite");
    if (o->kind == EBB_ADAMW) {
        if (!(o->beta1 >= 0 && o->beta1 < 1))
            return out_of_range(path, "betas[0]", o->beta1, "in [0, 1)");
        if (!(o->beta2 >= 0 && o->beta2 < 1))
            return out_of_range(path, "betas[1]", o->beta2, "in [0, 1)");
        if (!(o->eps > 0 && o->eps <= DBL_MAX))
            return out_of_range(path, "eps", o->eps, "> 0 and finite");
    } else {
        if (!(o->momentum >= 0 && o->momentum < 1))
            return out_of_range(path, "momentum", o->momentum, "in [0, 1)");
        if (o->nesterov && !(o->momentum > 0))
            return ebb_fail(EBB_EINVAL, "%s.nesterov: true needs momentum > 0", path);
    }
    return EBB_OK;
}

ebb_status ebb_optim_options_parse(ebb_optim_options *out, const char *json, const char *path)
{
    optim_config c = { .kind = EBB_ADAMW, .decay = EBB_DECAY_MATRICES, .lr = 1e-3,
                       .betas = { 0.9, 0.999 }, .eps = 1e-8 };
    cJSON *object = NULL;
    ebb_status st = ebb__json_parse(&object, json, strlen(json), path);
    if (st != EBB_OK) return st;
    st = ebb__json_read(&c, object, path, ebb__optim_fields, ebb__n_optim_fields);
    cJSON_Delete(object);
    if (st != EBB_OK) return st;
    ebb_optim_options options = {
        .struct_bytes = sizeof options,
        .kind = (ebb_optim_kind)c.kind, .decay = (ebb_decay_rule)c.decay,
        .lr = c.lr, .weight_decay = c.weight_decay,
        .beta1 = c.betas[0], .beta2 = c.betas[1], .eps = c.eps,
        .momentum = c.momentum, .nesterov = c.nesterov,
    };
    st = ebb__optim_options_check(&options, path);
    if (st == EBB_OK) *out = options;
    return st;
}
