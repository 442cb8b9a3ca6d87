/* Modes: what is recorded, and what is not. */
#include <ebb/ebb.h>

#include "support/support.h"

static ebb_status square(void *user, ebb_tensor **out, ebb_tensor *x)
{
    (void)user;
    return ebb_mul(out, x, x);
}

/* In each mode that records nothing: no node, no bytes for backward, no history, also through a segment and
 * in place; and afterwards calls are recorded again. */
Test(modes, no_grad_and_inference_record_nothing)
{
    with_context(ctx) {
        const ebb_grad_mode modes[] = { EBB_NO_GRAD, EBB_INFERENCE };
        for (int i = 0; i < 2; i++) {
            EBB_LOCAL(w); EBB_LOCAL(y); EBB_LOCAL(z);
            check_ok(ebb_full(&w, ctx, EBB_F32, EBB_SHAPE(8), 1));
            check_ok(ebb_set_requires_grad(w, true));
            {
                EBB_WITH_MODE(modes[i]);
                cr_assert_eq(ebb_mode(), modes[i]);
                check_ok(ebb_mul(&y, w, w));
                check_ok(ebb_checkpoint(&z, w, square, NULL, NULL));
                check_ok(ebb_fill(w, 2));
            }
            cr_assert_eq(ebb_mode(), EBB_GRAD_ON);
            cr_assert(!ebb_requires_grad(y) && !ebb_requires_grad(z) && ebb_requires_grad(w));
            cr_assert_eq(ebb_live_nodes(ctx) + ebb_saved_bytes(ctx), 0);
            check_fails(ebb_backward(z), EBB_ESTATE);
            check_fails(ebb_fill(w, 3), EBB_ESTATE);
            check_ok(ebb_mul(&y, w, w));
            cr_assert(ebb_requires_grad(y) && ebb_live_nodes(ctx) == 1);
        }
    }
}
