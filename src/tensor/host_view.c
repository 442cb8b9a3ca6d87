/* host_view.c: the branch between memory that the host can touch and memory that it cannot. */
#include "tensor/host_view.h"

#include "core/assert.h"
#include "core/mem.h"
#include "core/site.h"

ebb_status ebb__host_view_open(ebb__host_view *view, const ebb_context *ctx, void *device, size_t bytes,
                               ebb__view_use use)
{
    *view = (ebb__host_view){ .ctx = ctx, .device = device, .bytes = bytes, .use = use };
    if (ctx->device.dry || bytes == 0) return EBB_OK;
    if (ebb__device_is_host(&ctx->device)) {
        view->data = device;
        return EBB_OK;
    }
    void *copy = ebb__malloc(bytes);
    if (!copy) return EBB_ENOMEM;
    ebb_status st = EBB_OK;
    if (use != EBB__VIEW_WRITE)
        st = ebb__device_copy(&ctx->device, copy, device, bytes, EBB__FROM_DEVICE, "values of a tensor to the host");
    if (st == EBB_OK) view->data = copy;
    else ebb__free(copy);
    return st;
}

ebb_status ebb__host_view_close(ebb__host_view *view, ebb_status so_far)
{
    ebb_status st = so_far;
    if (!view->data || view->data == view->device) return st;
    if (st == EBB_OK && view->use != EBB__VIEW_READ)
        st = ebb__device_copy(&view->ctx->device, view->device, view->data, view->bytes, EBB__TO_DEVICE,
                              "values of a tensor from the host");
    ebb__free(view->data);
    view->data = NULL;
    return st;
}

ebb_status ebb__host_view_of(ebb__host_view *view, const ebb_tensor *t, ebb__view_use use)
{
    EBB_ASSERT(ebb_tensor_is_contiguous(t));
    return ebb__host_view_open(view, t->ctx, ebb_tensor_data(t), (size_t)t->elems * ebb_dtype_bytes(t->dtype), use);
}

/* From element 0 to the last one, whatever lies between: strides are not negative. */
static size_t span_bytes(const ebb_tensor *t)
{
    int64_t last = 0;
    for (int i = 0; i < t->ndim; i++) last += (t->dims[i] - 1) * t->strides[i];
    return t->elems ? (size_t)(last + 1) * ebb_dtype_bytes(t->dtype) : 0;
}

ebb_status ebb__host_view_strided(ebb__host_view *view, ebb_arg *arg, const ebb_tensor *t, ebb__view_use use)
{
    bool gaps = !ebb_tensor_is_contiguous(t);
    if (gaps && use == EBB__VIEW_WRITE) use = EBB__VIEW_CHANGE; /* what lies between stays */
    EBB__TRY(ebb__host_view_open(view, t->ctx, ebb_tensor_data(t), span_bytes(t), use));
    ebb__tensor_arg(t, arg);
    arg->data = view->data;
    return EBB_OK;
}
