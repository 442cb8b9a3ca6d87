/* ebb/device.h: which devices there are, and what they can.
 * Asking looks for plugins: where a machine has an accelerator's driver, its plugin is loaded. */
#ifndef EBB_DEVICE_H
#define EBB_DEVICE_H

#include <ebb/op.h>

typedef struct ebb_device_info {
    char name[64];        /* for ebb_context_options.device: "cpu", "cuda:0", "dry:cuda:h100-80gb" */
    char description[280]; /* of an accelerator: "NVIDIA H100 80GB HBM3; CUDA 13.0, ..." */
    bool available;
    char reason[320];     /* why it is not; else empty */
    size_t memory_bytes;  /* of an accelerator, or of the profile of a dry one; else 0 */
    size_t lent_bytes;    /* of them, what libraries take of the pool */
} ebb_device_info;

EBB_BEGIN_DECLS

/* Number `index`, from 0: the cpu; accelerators, of a kind that has none an entry that is not available; then
 * the dry ones.  False past the last. */
EBB_API bool ebb_device_info_get(ebb_device_info *out, int index);

/* The kinds of devices, from 0: "cpu", "cuda".  NULL past the last. */
EBB_API const char *ebb_device_kind(int index);

/* Whether a kind of device ("cpu", "cuda") can do a pass (EBB_FORWARD, EBB_BACKWARD) of an op; true where there
 * is nothing to do (views; ops without gradients).  Errors: EDEVICE (unknown; its plugin cannot be loaded). */
EBB_API EBB_NODISCARD ebb_status ebb_device_has_op(bool *has, const char *kind, const ebb_op *op, int pass);

EBB_END_DECLS
#endif
