/* cuda/emulated_device.h: an ebb__cuda whose kernels are emulated, and what the plugin's other files would be to
 * them: messages, products, no cuDNN.  Device pointers are the host's. */
#ifndef EBB_TESTS_CUDA_EMULATED_DEVICE_H
#define EBB_TESTS_CUDA_EMULATED_DEVICE_H

#include "device/cuda/cuda.h"
#include "support/cuda_emu/emu_control.h"

#ifdef __cplusplus
extern "C" {
#endif

/* Few processors, so that loops over the grid do loop.  Owner: the caller; emulated_device_free(). */
ebb__cuda *emulated_device_new(void);
void emulated_device_free(ebb__cuda *cuda);

#ifdef __cplusplus
}
#endif
#endif
