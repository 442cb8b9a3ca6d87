/* A plugin that the library must refuse; how it is wrong is a macro. */
#include "device/accel.h"

static const ebb__accel table = {
#ifdef OTHER_ABI
    .abi = EBB__ACCEL_ABI + 6,
#else
    .abi = EBB__ACCEL_ABI,
#endif
#ifdef OF_ANOTHER
    .name = "npu",
#else
    .name = "cuda",
#endif
};

#ifdef NO_ENTRY
EBB_API const ebb__accel *another_name(int abi);
EBB_API const ebb__accel *another_name(int abi)
#else
EBB_API const ebb__accel *ebb_accel_plugin(int abi);
EBB_API const ebb__accel *ebb_accel_plugin(int abi)
#endif
{
    (void)abi;
#ifdef NO_TABLE
    (void)table;
    return NULL;
#else
    return &table;
#endif
}
