/* stream.c: streams, and tickets over events.
 *
 * Each record has the next ticket and an event; a stream's events that may still be pending lie in a ring.
 * Invariant: n_marks = given - done, and the mark of ticket t is the (t - done)-th of the ring. */
#include <stdlib.h>
#include "device/cuda/table.h"

static ebb__accel_stream *or_compute(ebb__cuda_device *device, ebb__accel_stream *stream)
{
    return stream ? stream : &device->compute;
}

cudaStream_t ebb__cuda_stream_of(const ebb__cuda_device *device, const ebb__accel_stream *stream)
{
    return stream ? stream->stream : device->shared.stream;
}

/* ---- the ring (the stream's mutex is held) ------------------------------------------------------ */

static ebb__cuda_mark *mark_at(const ebb__accel_stream *s, int i) { return &s->marks[(s->first + i) % s->capacity]; }

/* NULL: done. */
static const ebb__cuda_mark *mark_of(const ebb__accel_stream *s, uint64_t ticket)
{
    return ticket > s->done && ticket <= s->given ? mark_at(s, (int)(ticket - s->done - 1)) : NULL;
}

static void pop(ebb__accel_stream *s)
{
    s->done = mark_at(s, 0)->ticket;
    s->spare[s->n_spare++] = mark_at(s, 0)->event;
    s->first = (s->first + 1) % s->capacity;
    s->n_marks--;
}

static void pop_done(ebb__accel_stream *s)
{
    while (s->n_marks > 0) {
        cudaError_t error = cudaEventQuery(mark_at(s, 0)->event);
        if (error != cudaSuccess) {
            (void)cudaGetLastError(); /* not ready is no error; a real one comes again where it can be told */
            return;
        }
        pop(s);
    }
}

/* Room for one more mark, and for all events to be spare at once. */
static bool grow(ebb__accel_stream *s)
{
    if (s->n_marks < s->capacity) return true;
    int capacity = s->capacity ? 2 * s->capacity : 16;
    ebb__cuda_mark *marks = malloc((size_t)capacity * sizeof *marks);
    cudaEvent_t *spare = malloc((size_t)capacity * sizeof *spare);
    if (!marks || !spare) {
        free(marks);
        free(spare);
        return false;
    }
    for (int i = 0; i < s->n_marks; i++) marks[i] = *mark_at(s, i);
    for (int i = 0; i < s->n_spare; i++) spare[i] = s->spare[i];
    free(s->marks);
    free(s->spare);
    s->marks = marks;
    s->spare = spare;
    s->capacity = capacity;
    s->first = 0;
    return true;
}

static ebb_status new_mark(ebb__cuda_device *device, ebb__accel_stream *s, uint64_t *ticket)
{
    const ebb__cuda *cuda = &device->shared;
    pop_done(s);
    if (!grow(s)) return EBB__CUDA_FAIL(cuda, EBB_ENOMEM, "cuda: no host memory for an event");
    if (s->n_spare == 0) {
        cudaEvent_t event;
        EBB__CUDA_TRY(cuda, cudaEventCreateWithFlags(&event, cudaEventDisableTiming));
        s->spare[s->n_spare++] = event;
    }
    cudaEvent_t event = s->spare[s->n_spare - 1];
    EBB__CUDA_TRY(cuda, cudaEventRecord(event, s->stream));
    s->n_spare--;
    s->given++;
    *mark_at(s, s->n_marks) = (ebb__cuda_mark){ s->given, event };
    s->n_marks++;
    *ticket = s->given;
    return EBB_OK;
}

/* ---- life ----------------------------------------------------------------------------------------- */

ebb_status ebb__cuda_stream_init(ebb__cuda_device *device, ebb__accel_stream *stream)
{
    *stream = (ebb__accel_stream){ 0 };
    EBB__CUDA_TRY(&device->shared, cudaStreamCreateWithFlags(&stream->stream, cudaStreamNonBlocking));
    pthread_mutex_init(&stream->mutex, NULL);
    return EBB_OK;
}

void ebb__cuda_stream_deinit(ebb__accel_stream *stream)
{
    if (!stream->stream) return;
    (void)cudaStreamSynchronize(stream->stream);
    for (int i = 0; i < stream->n_marks; i++) (void)cudaEventDestroy(mark_at(stream, i)->event);
    for (int i = 0; i < stream->n_spare; i++) (void)cudaEventDestroy(stream->spare[i]);
    (void)cudaStreamDestroy(stream->stream);
    (void)cudaGetLastError();
    pthread_mutex_destroy(&stream->mutex);
    free(stream->marks);
    free(stream->spare);
    *stream = (ebb__accel_stream){ 0 };
}

ebb_status ebb__cuda_stream_open(ebb__accel_stream **out, void *self)
{
    EBB__CUDA_ENTER(device, self);
    ebb__accel_stream *stream = malloc(sizeof *stream);
    if (!stream) return EBB__CUDA_FAIL(&device->shared, EBB_ENOMEM, "cuda: no host memory for a stream");
    ebb_status st = ebb__cuda_stream_init(device, stream);
    if (st == EBB_OK) *out = stream;
    else free(stream);
    return st;
}

void ebb__cuda_stream_close(void *self, ebb__accel_stream *stream)
{
    ebb__cuda_device *device = self;
    if (!stream) return;
    (void)cudaSetDevice(device->shared.ordinal);
    ebb__cuda_stream_deinit(stream);
    free(stream);
}

/* ---- tickets ---------------------------------------------------------------------------------------- */

ebb_status ebb__cuda_record(void *self, ebb__accel_stream *stream, uint64_t *ticket)
{
    EBB__CUDA_ENTER(device, self);
    ebb__accel_stream *s = or_compute(device, stream);
    pthread_mutex_lock(&s->mutex);
    ebb_status st = new_mark(device, s, ticket);
    pthread_mutex_unlock(&s->mutex);
    return st;
}

bool ebb__cuda_is_done(void *self, ebb__accel_stream *stream, uint64_t ticket)
{
    ebb__cuda_device *device = self;
    ebb__accel_stream *s = or_compute(device, stream);
    (void)cudaSetDevice(device->shared.ordinal);
    pthread_mutex_lock(&s->mutex);
    if (ticket > s->done) pop_done(s);
    bool done = ticket <= s->done;
    pthread_mutex_unlock(&s->mutex);
    return done;
}

/* Where the wait fails the device has stopped, and with it all that the ticket stands for: it is done too, so that
 * whoever waited for memory gets it. */
ebb_status ebb__cuda_wait(void *self, ebb__accel_stream *stream, uint64_t ticket)
{
    ebb__cuda_device *device = self;
    ebb__accel_stream *s = or_compute(device, stream);
    (void)cudaSetDevice(device->shared.ordinal); /* what it may tell, waiting tells too */
    pthread_mutex_lock(&s->mutex);
    const ebb__cuda_mark *mark = mark_of(s, ticket);
    cudaEvent_t event = mark ? mark->event : NULL;
    pthread_mutex_unlock(&s->mutex);
    if (!event) return EBB_OK;
    /* Another thread may have the event recorded again meanwhile: that is later on the same stream. */
    cudaError_t error = cudaEventSynchronize(event);
    pthread_mutex_lock(&s->mutex);
    while (s->n_marks > 0 && mark_at(s, 0)->ticket <= ticket) pop(s);
    pthread_mutex_unlock(&s->mutex);
    return error == cudaSuccess ? EBB_OK : ebb__cuda_fail(&device->shared, error, "cudaEventSynchronize");
}

ebb_status ebb__cuda_stream_wait(void *self, ebb__accel_stream *stream, ebb__accel_stream *other, uint64_t ticket)
{
    EBB__CUDA_ENTER(device, self);
    ebb__accel_stream *s = or_compute(device, other);
    pthread_mutex_lock(&s->mutex); /* else the event could be recorded again before the wait takes it */
    const ebb__cuda_mark *mark = mark_of(s, ticket);
    cudaError_t error = mark ? cudaStreamWaitEvent(ebb__cuda_stream_of(device, stream), mark->event, 0) : cudaSuccess;
    pthread_mutex_unlock(&s->mutex);
    return error == cudaSuccess ? EBB_OK : ebb__cuda_fail(&device->shared, error, "cudaStreamWaitEvent");
}

ebb_status ebb__cuda_host_call(void *self, ebb__accel_stream *stream, void (*work)(void *arg), void *arg)
{
    EBB__CUDA_ENTER(device, self);
    EBB__CUDA_TRY(&device->shared, cudaLaunchHostFunc(ebb__cuda_stream_of(device, stream), work, arg));
    return EBB_OK;
}
