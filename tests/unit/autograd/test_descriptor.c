/* Descriptors of users' ops that are wrong. */
#include <ebb/autograd.h>

#include "support/support.h"

static ebb_status bad_size(ebb_call *c)
{
    c->out[0] = (ebb_arg){ .dtype = EBB_F64, .ndim = 1, .dims = { -4 } };
    return EBB_OK;
}

static ebb_status outside(ebb_call *c)
{
    c->out[0] = (ebb_arg){ .dtype = EBB_F64, .ndim = 1, .dims = { 2 }, .strides = { 1 } };
    c->view_offset = 3;
    return EBB_OK;
}

static ebb_status no_forward(const ebb_call *c)
{
    (void)c;
    return EBB_OK;
}

Test(descriptor, wrong_ones_are_refused)
{
    static const ebb_op good = { .name = "own", .min_in = 1, .max_in = 1, .n_out = 1, .infer = bad_size,
                                 .cpu = { .forward = no_forward } };
    with_context(ctx) {
        EBB_LOCAL(x);
        EBB_LOCAL(y);
        ebb_tensor **outs[] = { &y };
        check_ok(ebb_zeros(&x, ctx, EBB_F64, 1, (int64_t[]){ 4 }));
        ebb_op ops[6] = { good, good, good, good, good, good };
        ebb_status expected[6] = { EBB_ESHAPE, EBB_EINVAL, EBB_EINVAL, EBB_EINVAL, EBB_EINVAL, EBB_ESHAPE };
        ops[1].min_in = 0;
        ops[2].n_out = 6;
        ops[3].infer = NULL;
        ops[4].cpu.forward = NULL;
        ops[5].flags = EBB_OP_VIEW | EBB_OP_STRIDED;
        ops[5].infer = outside;
        for (int k = 0; k < 6; k++) check_fails(ebb_apply(&ops[k], outs, 1, &x, 1, NULL, 0), expected[k]);
        cr_assert_null(y);
    }
}
