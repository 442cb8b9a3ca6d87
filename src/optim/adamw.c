/* optim/adamw.c: Adam with decoupled weight decay (Kingma and Ba, arXiv 1412.6980; Loshchilov and
 * Hutter, arXiv 1711.05101), eps where PyTorch has it:
 *     w *= 1 - lr wd
 *     m += (1 - beta1) (g - m);   v = beta2 v + (1 - beta2) g^2
 *     w -= lr / (1 - beta1^t) * m / (sqrt(v) / sqrt(1 - beta2^t) + eps) */
#include <math.h>

#include "optim/optim.h"

static int n_states(const ebb_optim_options *options)
{
    (void)options;
    return 2;
}

#define DEFINE_UPDATE(name, real, root)                                                            \
    static void name(const ebb__step *step, void *weights, const void *grads, void *first,         \
                     void *second, int64_t n)                                                      \
    {                                                                                              \
        real *restrict w = weights, *restrict m = first, *restrict v = second;                     \
        const real *restrict g = grads;                                                            \
        const real keep = (real)step->keep, rate = (real)(step->lr / step->correction1);           \
        const real take1 = (real)(1 - step->beta1), beta2 = (real)step->beta2;                     \
        const real take2 = (real)(1 - step->beta2), eps = (real)step->eps;                         \
        const real root_scale = (real)(1 / step->root_correction2);                                \
        for (int64_t i = 0; i < n; i++) {                                                          \
            m[i] += take1 * (g[i] - m[i]);                                                         \
            v[i] = beta2 * v[i] + take2 * g[i] * g[i];                                             \
            w[i] = w[i] * keep - rate * m[i] / (root(v[i]) * root_scale + eps);                    \
        }                                                                                          \
    }

DEFINE_UPDATE(update_f32, float, sqrtf)
DEFINE_UPDATE(update_f64, double, sqrt)

const ebb__optim_kind ebb__optim_adamw = {
    .name = "adamw", .states = { "m", "v" }, .n_states = n_states,
    .update_f32 = update_f32, .update_f64 = update_f64,
};
