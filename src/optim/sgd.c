/* optim/sgd.c: stochastic gradient descent with momentum.
 * In PyTorch's form of Sutskever et al. 2013, weight decay decoupled:
 *     w *= 1 - lr wd;   b = momentum b + g;   w -= lr (nesterov ? g + momentum b : b). */
#include "optim/optim.h"

static int n_states(const ebb_optim_options *options)
{
    return options->momentum > 0 ? 1 : 0;
}

#define DEFINE_UPDATE(name, real)                                                                  \
    static void name(const ebb__step *step, void *weights, const void *grads, void *buffer,        \
                     void *none, int64_t n)                                                        \
    {                                                                                              \
        (void)none;                                                                                \
        real *restrict w = weights, *restrict b = buffer;                                          \
        const real *restrict g = grads;                                                            \
        const real lr = (real)step->lr, keep = (real)step->keep, momentum = (real)step->momentum;  \
        if (!b) {                                                                                  \
            for (int64_t i = 0; i < n; i++) w[i] = w[i] * keep - lr * g[i];                        \
        } else if (step->nesterov) {                                                               \
            for (int64_t i = 0; i < n; i++) {                                                      \
                b[i] = momentum * b[i] + g[i];                                                     \
                w[i] = w[i] * keep - lr * (g[i] + momentum * b[i]);                                \
            }                                                                                      \
        } else {                                                                                   \
            for (int64_t i = 0; i < n; i++) {                                                      \
                b[i] = momentum * b[i] + g[i];                                                     \
                w[i] = w[i] * keep - lr * b[i];                                                    \
            }                                                                                      \
        }                                                                                          \
    }

DEFINE_UPDATE(update_f32, float)
DEFINE_UPDATE(update_f64, double)

const ebb__optim_kind ebb__optim_sgd = {
    .name = "sgd", .states = { "momentum" }, .n_states = n_states,
    .update_f32 = update_f32, .update_f64 = update_f64,
};
