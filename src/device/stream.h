/* device/stream.h: streams of the cpu: work that worker threads do in order, beside the compute
 * threads.  Stream 0 is the calling thread itself, which is always done; others are numbered from 1.
 *
 * An event is a ticket: the number of pieces of work that the stream had been given when the event
 * was recorded.  It is done when so many have been finished.
 * Thread: any thread may use any stream. */
#ifndef EBB_DEVICE_STREAM_H
#define EBB_DEVICE_STREAM_H

#include "alloc/pool.h"

typedef struct ebb__streams ebb__streams; /* all streams of a device */
typedef struct ebb__stream ebb__stream;
typedef void ebb__work(void *arg);

/* A piece of work in a stream's queue. */
typedef struct ebb__piece {
    struct ebb__piece *next;
    ebb__work *work; /* NULL: wait for `other` to reach `ticket` */
    void *arg;
    ebb__stream *other;
    uint64_t ticket;
    bool lent; /* its memory is the caller's */
} ebb__piece;

/* `dry`: work is counted as done and not done.  Errors: ENOMEM. */
EBB_NODISCARD ebb_status ebb__streams_new(ebb__streams **out, bool dry);
void ebb__streams_free(ebb__streams *streams); /* waits for and ends every stream; NULL is fine */
/* What the pool needs to know of the streams. */
ebb__fences ebb__streams_fences(ebb__streams *streams);

/* Starts a worker.  Owner: the streams'; ebb__stream_close() ends it earlier.  Errors: ENOMEM. */
EBB_NODISCARD ebb_status ebb__stream_open(ebb__stream **out, ebb__streams *streams);
void ebb__stream_close(ebb__stream *stream); /* finishes its work first */
int ebb__stream_number(const ebb__stream *stream);

/* Gives work to the stream.  Errors: ENOMEM; then it was not taken. */
EBB_NODISCARD ebb_status ebb__stream_enqueue(ebb__stream *stream, ebb__work *work, void *arg);
/* The same with memory that the caller lends until the work is done: cannot fail. */
void ebb__stream_lend(ebb__stream *stream, ebb__piece *piece, ebb__work *work, void *arg);
/* The stream's later work begins after `other` has reached the ticket.  Errors: ENOMEM. */
EBB_NODISCARD ebb_status ebb__stream_wait_event(ebb__stream *stream, ebb__stream *other,
                                                uint64_t ticket);

uint64_t ebb__stream_record(ebb__stream *stream);
bool ebb__stream_query(ebb__stream *stream, uint64_t ticket);
void ebb__stream_synchronize(ebb__stream *stream, uint64_t ticket); /* waits for it */

#endif
