/* device/kinds.c: the kinds of accelerators: a row each, and nothing else in the library names them. */
#include "device/plugin.h"

#include <ebb/op.h>

static size_t cuda_workspace(const ebb_call *call, int pass)
{
    return call->op->cuda_workspace ? call->op->cuda_workspace(call, pass) : 0;
}

const ebb__accel_kind ebb__accel_kinds[] = {
    { .name = "cuda", .driver = "libcuda.so.1", .lacking = "no NVIDIA driver", .profile = "h100-80gb",
      .min_compute = EBB__CUDA_MIN_COMPUTE, .graphs = true, .workspace = cuda_workspace },
};
const int ebb__n_accel_kinds = sizeof ebb__accel_kinds / sizeof *ebb__accel_kinds;

_Static_assert(sizeof ebb__accel_kinds / sizeof *ebb__accel_kinds <= EBB__MAX_ACCEL_KINDS, "raise the most");
