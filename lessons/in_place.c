/* A change in place bumps the version of the storage, whatever name it goes
 * through.  Backward compares: what was saved and then changed is an error, never
 * a wrong gradient.
 *
 * In PyTorch:
 *     out = torch.sigmoid(a)
 *     out.detach().zero_()          # the version is shared
 *     out.sum().backward()          # error: modified by an inplace operation
 *     out.data.zero_()              # no error there, and a gradient of zeros */
#include "lesson.h"

#include <math.h>

LESSON(in_place, "Changed after it was saved: an error, not a wrong gradient")
{
    NAME(a);
    NAME(out);
    NAME(alias);
    NAME(loss);
    double grad[3] = { 0 };
    STEP(ebb_from_data(&a, ctx, EBB_F64, EBB_SHAPE(3), (double[]){ 1, 2, 3 }));
    STEP(ebb_set_requires_grad(a, true));
    STEP(ebb_sigmoid(&out, a));
    SAY("The gradient of sigmoid is y (1 - y), so its output is kept, with the storage's version: %u.",
        (unsigned)ebb_storage_version(ebb_tensor_storage(out)));
    REFUSED(EBB_ESTATE, ebb_fill(out, 0));

    STEP(ebb_detach(&alias, out));
    CHECK(ebb_tensor_storage(alias) == ebb_tensor_storage(out), "Without history, the same bytes.");
    STEP(ebb_fill(alias, 0));
    CHECK(ebb_storage_version(ebb_tensor_storage(out)) == 1, "The version belongs to the bytes, so "
          "out's is %u too.", (unsigned)ebb_storage_version(ebb_tensor_storage(out)));
    STEP(ebb_sum(&loss, out, EBB_ALL_AXES, false));
    REFUSED(EBB_ESTATE, ebb_backward(loss));
    CHECK(!ebb_grad(a), "No gradient was left behind; zeros would have looked like one.");
    CHECK(!ebb_gradients_valid(ctx), "The step's gradients are marked as not valid: optimizers look at that.");
    DO(ebb_gradients_reset(ctx));
    CHECK(ebb_gradients_valid(ctx), "Now the step can be done again.");

    STEP(ebb_sigmoid(&out, a));
    STEP(ebb_sum(&loss, out, EBB_ALL_AXES, false));
    STEP(ebb_backward(loss));
    STEP(ebb_read(ebb_grad(a), grad, sizeof(grad)));
    CHECK(fabs(grad[0] - 0.196612) < 1e-6 && fabs(grad[2] - 0.045177) < 1e-6,
          "Left alone: %s, %s, %s.", number(grad[0]), number(grad[1]), number(grad[2]));
    return EBB_OK;
}
