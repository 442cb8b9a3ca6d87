/* What src/device/kinds.c would be with a second kind: the one row that docs/add-a-device.md asks for.  It takes that
 * file's place in the programs of this folder. */
#include <string.h>

#include <ebb/op.h>

#include "device/plugin.h"

enum { GELU_BYTES = 3 << 20 };

static size_t npu_workspace(const ebb_call *call, int pass)
{
    (void)pass;
    return strcmp(call->op->name, "gelu") == 0 ? GELU_BYTES : 0;
}

const ebb__accel_kind ebb__accel_kinds[] = {
    { .name = "cuda", .driver = "libcuda.so.1", .lacking = "no NVIDIA driver", .profile = "h100-80gb",
      .min_compute = 80, .graphs = true },
    { .name = "npu", .driver = "libdriver_of_no_npu.so.1", .lacking = "no driver of an NPU",
      .workspace = npu_workspace },
};
const int ebb__n_accel_kinds = sizeof ebb__accel_kinds / sizeof *ebb__accel_kinds;
