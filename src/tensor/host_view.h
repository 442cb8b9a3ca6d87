/* tensor/host_view.h: device memory where host code can touch it.
 * On the cpu a view is the memory itself; on an accelerator a copy in host memory, which open() brings and
 * close() takes back; on a dry device there is none (data NULL).
 *
 *     ebb__host_view view;
 *     EBB__TRY(ebb__host_view_open(&view, ctx, device_data, bytes, EBB__VIEW_WRITE));
 *     ... view.data[0, bytes) ...
 *     return ebb__host_view_close(&view, EBB_OK); */
#ifndef EBB_TENSOR_HOST_VIEW_H
#define EBB_TENSOR_HOST_VIEW_H

#include "tensor/tensor.h"

typedef enum ebb__view_use {
    EBB__VIEW_READ,
    EBB__VIEW_WRITE, /* all of it is written: its old bytes do not come */
    EBB__VIEW_CHANGE
} ebb__view_use;

typedef struct ebb__host_view {
    void *data; /* NULL: dry, or no bytes */
    const ebb_context *ctx;
    void *device;
    size_t bytes;
    ebb__view_use use;
} ebb__host_view;

/* Errors: ENOMEM; those of ebb__device_copy().  Then there is nothing to close. */
EBB_NODISCARD ebb_status ebb__host_view_open(ebb__host_view *view, const ebb_context *ctx, void *device,
                                             size_t bytes, ebb__view_use use);
/* `so_far`: what happened since; where that is an error nothing is written back, and it is returned. */
EBB_NODISCARD ebb_status ebb__host_view_close(ebb__host_view *view, ebb_status so_far);

/* Of a contiguous tensor. */
EBB_NODISCARD ebb_status ebb__host_view_of(ebb__host_view *view, const ebb_tensor *t, ebb__view_use use);
/* Of any tensor: *arg is its shape over the view. */
EBB_NODISCARD ebb_status ebb__host_view_strided(ebb__host_view *view, ebb_arg *arg, const ebb_tensor *t,
                                                ebb__view_use use);

#endif
