/* data/stage.c: batches through pinned memory. */
#include "data/stage.h"

#include "core/mem.h"

static size_t bytes_of(const ebb_tensor *t)
{
    return (size_t)ebb_tensor_elems(t) * ebb_dtype_bytes(ebb_tensor_dtype(t));
}

ebb_status ebb__stage_open(ebb__stage *s, const ebb_context *ctx, const ebb_tensor *inputs, const ebb_tensor *targets)
{
    enum { ALIGN = 64 };
    const ebb__accelerator *accel = ctx->device.accel;
    ebb__provider pinned = accel->table->pinned(accel->self);
    s->input_bytes = (bytes_of(inputs) + ALIGN - 1) / ALIGN * ALIGN;
    s->bytes = s->input_bytes + bytes_of(targets);
    if (s->bytes == 0) s->bytes = ALIGN;
    s->memory = ebb__fault() ? NULL : pinned.alloc(pinned.self, s->bytes);
    return s->memory ? EBB_OK : ebb_fail(EBB_ENOMEM, "loader: no %zu bytes of pinned memory for a batch", s->bytes);
}

void ebb__stage_close(ebb__stage *s, const ebb_context *ctx, ebb__stream *copies)
{
    const ebb__accelerator *accel = ctx->device.accel;
    ebb__provider pinned = accel->table->pinned(accel->self);
    if (!s->memory) return;
    ebb__stage_reuse(s, copies);
    pinned.free(pinned.self, s->memory, s->bytes);
    s->memory = NULL;
}

void *ebb__stage_inputs(const ebb__stage *s, const ebb_tensor *inputs)
{
    return s->memory ? s->memory : ebb_tensor_data(inputs);
}

void *ebb__stage_targets(const ebb__stage *s, const ebb_tensor *targets)
{
    return s->memory ? (char *)s->memory + s->input_bytes : ebb_tensor_data(targets);
}

void ebb__stage_send(ebb__stage *s, const ebb_tensor *inputs, const ebb_tensor *targets, ebb__stream *copies)
{
    if (s->sent) return;
    ebb__stream_copy(copies, &s->pieces[0], ebb_tensor_data(inputs), s->memory, bytes_of(inputs), EBB__TO_DEVICE);
    ebb__stream_copy(copies, &s->pieces[1], ebb_tensor_data(targets), (char *)s->memory + s->input_bytes,
                     bytes_of(targets), EBB__TO_DEVICE);
    s->ticket = ebb__stream_record(copies);
    s->sent = true;
}

void ebb__stage_join(const ebb__stage *s, ebb__stream *copies) { ebb__stream_join(copies, s->ticket); }

void ebb__stage_reuse(ebb__stage *s, ebb__stream *copies)
{
    if (s->sent) ebb__stream_synchronize(copies, s->ticket);
    s->sent = false;
}
