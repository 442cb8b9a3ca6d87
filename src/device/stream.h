/* device/stream.h: streams: work that is done in order, beside the computation.  Those of the cpu are
 * worker threads, and stream 0 is the calling thread itself, which is always done; those of an accelerator
 * are its own, and stream 0 is its compute stream.  Others are numbered from 1.
 *
 * An event is a ticket: all work that the stream had been given when the event was recorded.
 * An accelerator's stream fails only where the device does: such an error is kept, and told by
 * ebb__streams_error().
 * Thread: any thread may use any stream. */
#ifndef EBB_DEVICE_STREAM_H
#define EBB_DEVICE_STREAM_H

#include "alloc/pool.h"
#include "core/message.h"
#include "device/accel.h"

typedef struct ebb__streams ebb__streams; /* all streams of a device */
typedef struct ebb__stream ebb__stream;
typedef void ebb__work(void *arg);

/* A piece of work in a stream's queue: a call, or waiting for `other` to reach `ticket`, or a copy. */
typedef struct ebb__piece {
    struct ebb__piece *next;
    ebb__work *work;
    void *arg;
    ebb__stream *other;
    uint64_t ticket;
    void *to;
    const void *from;
    size_t bytes;
    bool lent; /* its memory is the caller's */
} ebb__piece;

/* `dry`: work is counted as done and not done.  Errors: ENOMEM. */
EBB_NODISCARD ebb_status ebb__streams_new(ebb__streams **out, bool dry);
/* They are the accelerator's; before the first is opened. */
void ebb__streams_use(ebb__streams *streams, const ebb__accel *accel, void *self);
void ebb__streams_free(ebb__streams *streams); /* waits for and ends every stream; NULL is fine */
/* What the pool needs to know of the streams. */
ebb__fences ebb__streams_fences(ebb__streams *streams);
/* For errors that have no caller to tell; the first is kept, with its message.  `before`: the message before the work,
 * which the thread gets again.  EBB_OK is none. */
void ebb__streams_keep_error(ebb__streams *streams, ebb_status st, const ebb__message *before);
/* The first error of a stream that had no caller to tell; OK: there was none. */
EBB_NODISCARD ebb_status ebb__streams_error(ebb__streams *streams);

/* Starts a worker.  Owner: the streams'; ebb__stream_close() ends it earlier.  `what` its work is for is said in errors
 * of the device: a literal.  Errors: ENOMEM, EDEVICE. */
EBB_NODISCARD ebb_status ebb__stream_open(ebb__stream **out, ebb__streams *streams, const char *what);
void ebb__stream_close(ebb__stream *stream); /* finishes its work first */
int ebb__stream_number(const ebb__stream *stream);

/* Gives work to the stream.  Errors: ENOMEM; then it was not taken. */
EBB_NODISCARD ebb_status ebb__stream_enqueue(ebb__stream *stream, ebb__work *work, void *arg);
/* Copies bytes, after what the computation has been given so far.  Errors: ENOMEM, EDEVICE. */
EBB_NODISCARD ebb_status ebb__stream_enqueue_copy(ebb__stream *stream, void *to, const void *from, size_t bytes,
                                                  ebb__accel_copy_kind kind);
/* The same.  `piece` is the stream's until that is
 * done: so it cannot fail. */
void ebb__stream_copy(ebb__stream *stream, ebb__piece *piece, void *to, const void *from, size_t bytes,
                      ebb__accel_copy_kind kind);
/* The computation goes on after the stream has reached the ticket.  On the cpu the calling thread waits. */
void ebb__stream_join(ebb__stream *stream, uint64_t ticket);
/* The stream's later work begins after `other` has reached the ticket.  Errors: ENOMEM. */
EBB_NODISCARD ebb_status ebb__stream_wait_event(ebb__stream *stream, ebb__stream *other,
                                                uint64_t ticket);

uint64_t ebb__stream_record(ebb__stream *stream);
bool ebb__stream_query(ebb__stream *stream, uint64_t ticket);
void ebb__stream_synchronize(ebb__stream *stream, uint64_t ticket); /* waits for it */

#endif
