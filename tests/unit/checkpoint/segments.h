/* What the tests of segments share. */
#ifndef EBB_TESTS_SEGMENTS_H
#define EBB_TESTS_SEGMENTS_H

#include <math.h>
#include <string.h>

#include <ebb/checkpoint.h>

#include "support/support.h"

static inline double value_of(ebb_tensor *t)
{
    double value = NAN;
    check_ok(ebb_item(t, &value));
    return value;
}

static inline void scalar(ebb_tensor **out, ebb_context *ctx, double value)
{
    check_ok(ebb_full(out, ctx, EBB_F64, 0, NULL, value));
    check_ok(ebb_set_requires_grad(*out, true));
}

static inline uint64_t replayed(const ebb_context *ctx)
{
    ebb_recompute_stats stats;
    ebb_recompute_stats_get(ctx, &stats);
    return stats.recomputed_ops;
}

static inline ebb_status four_tanh(void *user, ebb_tensor **out, ebb_tensor *x)
{
    (void)user;
    EBB_LOCAL(h);
    EBB_TRY(ebb_tanh(&h, x));
    for (int i = 0; i < 3; i++) EBB_TRY(ebb_tanh(&h, h));
    ebb_move(out, &h);
    return EBB_OK;
}

/* mul's own output is not needed, so the last op of this segment never runs again. */
static inline ebb_status tanh_then_mul(void *user, ebb_tensor **out, ebb_tensor *x)
{
    EBB_LOCAL(h);
    EBB_TRY(ebb_tanh(&h, x));
    return ebb_mul(out, h, user);
}

#endif
