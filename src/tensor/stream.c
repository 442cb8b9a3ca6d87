/* tensor/stream.c: streams for users, and tensors that they work with. */
#include <ebb/stream.h>

#include "core/mem.h"
#include "tensor/tensor.h"

struct ebb_stream {
    ebb_context *ctx;
    ebb__stream *stream;
};

ebb_status ebb_stream_new(ebb_stream **out, ebb_context *ctx)
{
    ebb_stream *s = ebb__malloc(sizeof *s);
    if (!s) return EBB_ENOMEM;
    s->ctx = ctx;
    ebb_status st = ebb__stream_open(&s->stream, ctx->device.streams, "stream");
    if (st == EBB_OK)
        *out = s;
    else
        ebb__free(s);
    return st;
}

void ebb_stream_free(ebb_stream *stream)
{
    if (!stream) return;
    ebb__stream_close(stream->stream);
    ebb__free(stream);
}

ebb_status ebb_stream_call(ebb_stream *stream, void (*work)(void *arg), void *arg)
{
    if (!work) return ebb_fail(EBB_EINVAL, "stream: work is NULL");
    return ebb__stream_enqueue(stream->stream, work, arg);
}

ebb_status ebb_stream_copy_out(ebb_stream *stream, void *dst, ebb_tensor *t)
{
    if (!ebb_tensor_is_contiguous(t))
        return ebb_fail(EBB_EINVAL, "stream copy: the tensor is not contiguous");
    size_t item = ebb_dtype_bytes(t->dtype);
    ebb_status st = ebb_record_stream(t, stream);
    if (st != EBB_OK || t->ctx->device.dry || t->elems == 0) return st;
    return ebb__stream_enqueue_copy(stream->stream, dst, ebb_tensor_data(t), (size_t)t->elems * item,
                                    EBB__FROM_DEVICE);
}

void ebb_stream_synchronize(ebb_stream *stream)
{
    ebb__stream_synchronize(stream->stream, ebb__stream_record(stream->stream));
}

ebb_status ebb_record_stream(ebb_tensor *t, ebb_stream *stream)
{
    if (t->ctx != stream->ctx)
        return ebb_fail(EBB_EDEVICE, "record_stream: tensor and stream are of different contexts");
    return ebb__pool_record_stream(t->ctx->pool, t->storage->block,
                                   ebb__stream_number(stream->stream));
}
