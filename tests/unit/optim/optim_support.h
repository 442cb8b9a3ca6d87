/* What the optimizer tests share. */
#ifndef OPTIM_SUPPORT_H
#define OPTIM_SUPPORT_H

#include "support/support.h"

#include <math.h>
#include <string.h>

#include <ebb/autograd.h>
#include <ebb/optim.h>
#include <ebb/ops.h>

/* A parameter [n] of f32 or f64 from doubles. */
static inline void make_param(ebb_tensor **out, ebb_context *ctx, ebb_dtype dtype, int64_t n,
                              const double *values)
{
    EBB_LOCAL(wide);
    check_ok(ebb_from_data(&wide, ctx, EBB_F64, 1, &n, values));
    check_ok(ebb_cast(out, wide, dtype));
    check_ok(ebb_set_requires_grad(*out, true));
}

static inline void give_grad(ebb_tensor *param, const double *values)
{
    EBB_LOCAL(wide);
    EBB_LOCAL(grad);
    check_ok(ebb_from_data(&wide, ebb_tensor_context(param), EBB_F64, ebb_tensor_ndim(param),
                           ebb_tensor_dims(param), values));
    check_ok(ebb_cast(&grad, wide, ebb_tensor_dtype(param)));
    check_ok(ebb_set_grad(param, grad));
}

static inline double value_at(const ebb_tensor *t, int64_t i)
{
    return ebb_tensor_dtype(t) == EBB_F32 ? (double)((const float *)ebb_tensor_data(t))[i]
                                          : ((const double *)ebb_tensor_data(t))[i];
}

static inline ebb_optim_options sgd_options(double lr)
{
    return (
        ebb_optim_options){ .struct_bytes = sizeof(ebb_optim_options), .kind = EBB_SGD, .lr = lr };
}

static inline ebb_optim_options adamw_options(double lr)
{
    return (ebb_optim_options){ .struct_bytes = sizeof(ebb_optim_options),
                                .kind = EBB_ADAMW,
                                .lr = lr,
                                .beta1 = 0.9,
                                .beta2 = 0.95,
                                .eps = 1e-8 };
}

#endif
