/* optim/loss_scale.c: how the scale of the loss moves, and gradients divided by it. */
#include <float.h>
#include <math.h>
#include <string.h>

#include <ebb/autograd.h>

#include "core/site.h"
#include "optim/optim.h"
#include "tensor/tensor.h"

/* ---- config ------------------------------------------------------------------------------ */

typedef struct loss_scale_config {
    double init, growth, backoff;
    int64_t interval;
} loss_scale_config;

#define FIELD(name, ...) { .key = #name, .offset = offsetof(loss_scale_config, name), __VA_ARGS__ }
const ebb__field ebb__loss_scale_fields[] = {
    FIELD(init, .kind = EBB__NUMBER, .min = 1, .max = 1e30),
    FIELD(growth, .kind = EBB__NUMBER, .min = 1, .max = 65536),
    FIELD(backoff, .kind = EBB__NUMBER, .min = 0.01, .max = 1),
    FIELD(interval, .kind = EBB__INT, .min = 1, .max = 1e12),
};
#undef FIELD
const int ebb__n_loss_scale_fields = sizeof ebb__loss_scale_fields / sizeof ebb__loss_scale_fields[0];

static ebb_status read_value(ebb_loss_scale *out, const cJSON *value, const char *path)
{
    loss_scale_config c = { .init = 65536, .growth = 2, .backoff = 0.5, .interval = 2000 };
    if (cJSON_IsNull(value)) {
        *out = (ebb_loss_scale){ .growth = 1, .backoff = 1, .interval = 1 };
        return EBB_OK;
    }
    if (cJSON_IsNumber(value)) {
        if (!(value->valuedouble >= 1 && value->valuedouble <= 1e30))
            return ebb_fail(EBB_EINVAL, "%s: %g; must be in [1, 1e+30], an object or null", path, value->valuedouble);
        *out = (ebb_loss_scale){ .scale = value->valuedouble, .growth = 1, .backoff = 1, .interval = 1 };
        return EBB_OK;
    }
    if (!cJSON_IsObject(value))
        return ebb_fail(EBB_EINVAL, "%s: expected a number, an object or null", path);
    EBB__TRY(ebb__json_read(&c, value, path, ebb__loss_scale_fields, ebb__n_loss_scale_fields));
    *out = (ebb_loss_scale){ .scale = c.init, .growth = c.growth, .backoff = c.backoff, .interval = c.interval };
    return EBB_OK;
}

ebb_status ebb_loss_scale_parse(ebb_loss_scale *out, const char *json, const char *path)
{
    cJSON *value = NULL;
    EBB__TRY(ebb__json_parse(&value, json, strlen(json), path));
    ebb_status st = read_value(out, value, path);
    cJSON_Delete(value);
    return st;
}

/* ---- a step ------------------------------------------------------------------------------ */

static bool any_gradient(const ebb_optim *o)
{
    for (int i = 0; i < o->n; i++)
        if (ebb_grad(o->params[i].tensor)) return true;
    return false;
}

/* The sum of squares is finite exactly where every element is: squares of f32 are far from f64's end, and
 * gradients of f64 that large are as good as inf. */
ebb_status ebb_optim_unscale(ebb_optim *optim, double scale, ebb_gradients_found *found)
{
    double sum = 0;
    if (!(scale > 0 && scale <= DBL_MAX))
        return ebb_fail(EBB_EINVAL, "optim_unscale: scale %g must be above 0 and finite", scale);
    EBB__TRY(ebb__optim_gradients_ready(optim, "optim_unscale"));
    EBB__TRY(ebb__device_not_capturing(&optim->ctx->device, "optim_unscale"));
    EBB__TRY(ebb__optim_sum_squares(optim, &sum));
    *found = !any_gradient(optim) ? EBB_GRADIENTS_NONE
             : isfinite(sum)      ? EBB_GRADIENTS_FINITE
                                  : EBB_GRADIENTS_NOT_FINITE;
    bool divide = *found == EBB_GRADIENTS_FINITE && scale != 1 && !ebb_context_is_dry(optim->ctx);
    return divide ? ebb__optim_scale_gradients(optim, 1 / scale) : EBB_OK;
}

bool ebb_loss_scale_update(ebb_loss_scale *s, ebb_gradients_found found)
{
    if (found == EBB_GRADIENTS_NONE) return false;
    if (found == EBB_GRADIENTS_NOT_FINITE) {
        s->scale *= s->backoff;
        s->good = 0;
        return false;
    }
    if (++s->good >= s->interval) {
        s->scale *= s->growth;
        s->good = 0;
    }
    return true;
}
