/* ebb/stream.h: work beside the computation, and memory that it still reads.
 * A stream does what it is given in order, on a thread of its own (on an accelerator, a stream of it;
 * nothing on a dry device); work may not call ebb.  A tensor
 * that a stream works with may be dropped at once if the stream was recorded: its memory is not used
 * again before the stream has done all it had been given when the last reference went. */
#ifndef EBB_STREAM_H
#define EBB_STREAM_H

#include <ebb/tensor.h>

typedef struct ebb_stream ebb_stream; /* opaque; single owner */

EBB_BEGIN_DECLS

/* Owner: *out is the caller's; ebb_stream_free() before the context's.  Errors: ENOMEM. */
EBB_API EBB_NODISCARD ebb_status ebb_stream_new(ebb_stream **out, ebb_context *ctx);
EBB_API void ebb_stream_free(ebb_stream *stream); /* finishes its work first; NULL is a no-op */

/* Gives work to the stream: host code, which cannot touch an accelerator's memory.  Errors: ENOMEM; then it was
 * not taken. */
EBB_API EBB_NODISCARD ebb_status ebb_stream_call(ebb_stream *stream, void (*work)(void *arg),
                                                 void *arg);
/* Copies a contiguous tensor's bytes to `dst`, which has room for them, and records the stream.
 * Errors: EINVAL, ENOMEM. */
EBB_API EBB_NODISCARD ebb_status ebb_stream_copy_out(ebb_stream *stream, void *dst, ebb_tensor *t);
EBB_API void ebb_stream_synchronize(ebb_stream *stream); /* waits for all it has been given */

/* The stream works with the tensor's storage.  A run that uses it is not exactly predictable: when
 * memory comes back depends on time.  Errors: EDEVICE (of another context), ENOMEM. */
EBB_API EBB_NODISCARD ebb_status ebb_record_stream(ebb_tensor *t, ebb_stream *stream);

EBB_END_DECLS
#endif
