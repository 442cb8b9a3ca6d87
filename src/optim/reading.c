/* optim/reading.c: elements of a tensor in row-major order, whatever its strides. */
#include <string.h>

#include "optim/optim.h"

ebb__reading ebb__reading_of(const ebb_tensor *t)
{
    ebb__reading r = { .contiguous = ebb_tensor_is_contiguous(t),
                       .elem_bytes = ebb_dtype_bytes(ebb_tensor_dtype(t)) };
    r.arg.data = ebb_tensor_data(t);
    r.arg.ndim = ebb_tensor_ndim(t);
    for (int i = 0; i < r.arg.ndim; i++) {
        r.arg.dims[i] = ebb_tensor_dims(t)[i];
        r.arg.strides[i] = ebb_tensor_strides(t)[i];
    }
    return r;
}

int64_t ebb__reading_step(const ebb__reading *r, int64_t left)
{
    return r->contiguous || left < EBB__BLOCK_ELEMS ? left : EBB__BLOCK_ELEMS;
}

void *ebb__reading_at(const ebb__reading *r, int64_t i)
{
    int64_t offset = r->contiguous ? i : 0;
    for (int axis = r->arg.ndim - 1; axis >= 0 && !r->contiguous; axis--) {
        offset += i % r->arg.dims[axis] * r->arg.strides[axis];
        i /= r->arg.dims[axis];
    }
    return (char *)r->arg.data + offset * (int64_t)r->elem_bytes;
}

const void *ebb__reading_block(const ebb__reading *r, int64_t first, int64_t n, void *buf)
{
    if (r->contiguous) return ebb__reading_at(r, first);
    for (int64_t i = 0; i < n; i++)
        memcpy((char *)buf + (size_t)i * r->elem_bytes, ebb__reading_at(r, first + i),
               r->elem_bytes);
    return buf;
}
