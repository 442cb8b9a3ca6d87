/* support/stub_streams.h: the stub's streams: queues of work that runs when something waits. */
#ifndef EBB_TESTS_STUB_STREAMS_H
#define EBB_TESTS_STUB_STREAMS_H

#include "device/accel.h"

void stub_streams_begin(uint64_t seed, bool eager);
void stub_streams_end(void);

/* Puts work(arg) into a stream (NULL: the compute stream); arg, of `bytes`, is malloc'ed and is freed with
 * it.  While a capture runs, work for the compute stream goes to its graph. */
void stub_put(ebb__accel_stream *stream, void (*work)(void *arg), void *arg, size_t bytes);
void stub_run_all(void);
void stub_run_compute(void);

ebb_status stub_stream_open(ebb__accel_stream **out, void *self);
void stub_stream_close(void *self, ebb__accel_stream *stream);
ebb_status stub_record(void *self, ebb__accel_stream *stream, uint64_t *ticket);
bool stub_is_done(void *self, ebb__accel_stream *stream, uint64_t ticket);
ebb_status stub_wait(void *self, ebb__accel_stream *stream, uint64_t ticket);
ebb_status stub_stream_wait(void *self, ebb__accel_stream *stream, ebb__accel_stream *other, uint64_t ticket);

ebb_status stub_capture_begin(void *self, bool varies);
ebb_status stub_capture_end(void *self, ebb__accel_graph **out);
ebb_status stub_graph_launch(void *self, ebb__accel_graph *graph, const ebb__accel_numbers *numbers);
void stub_graph_free(void *self, ebb__accel_graph *graph);
bool stub_is_varying(void);               /* a capture runs whose launches bring numbers */
ebb__accel_numbers stub_numbers(void);    /* of the launch whose work runs now */
void stub_capture_breach(void);     /* what happens would spoil a capture, where one runs */
uint64_t stub_capture_breaches(void);
int stub_graphs_alive(void);

#endif
