/* device/stream.c: of the cpu, a queue, a worker and two counts per stream; else the accelerator's. */
#include "device/stream.h"

#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdio.h>
#include <string.h>

#include "core/assert.h"
#include "core/mem.h"
#include "core/message.h"
#include "core/site.h"
#include "device/device.h"

struct ebb__stream {
    ebb__streams *streams;
    ebb__stream *next; /* in the device's list, which keeps closed streams to the end */
    int number;
    const char *what; /* "offload": in errors */
    ebb__accel_stream *on_accel; /* NULL: the cpu's, or closed */
    bool has_worker, ending;
    pthread_t worker;
    pthread_mutex_t lock; /* of the queue */
    pthread_cond_t changed;
    ebb__piece *first, *last;
    uint64_t given;
    _Atomic uint64_t finished;
};

struct ebb__streams {
    pthread_mutex_t lock; /* of the list */
    ebb__stream *first;
    int n;
    bool dry;
    const ebb__accel *accel; /* NULL: the cpu's */
    void *self;
    ebb_status error; /* the first */
    char message[512];
};

/* ---- errors ------------------------------------------------------------------------------ */

void ebb__streams_keep_error(ebb__streams *streams, ebb_status st, const ebb__message *before)
{
    if (st == EBB_OK) return;
    pthread_mutex_lock(&streams->lock);
    if (streams->error == EBB_OK) {
        streams->error = st;
        snprintf(streams->message, sizeof streams->message, "%s", ebb_message());
    }
    pthread_mutex_unlock(&streams->lock);
    ebb__message_put_back(before);
}

ebb_status ebb__streams_error(ebb__streams *streams)
{
    pthread_mutex_lock(&streams->lock);
    ebb_status st = streams->error;
    if (st != EBB_OK) ebb_fail(st, "%s", streams->message);
    pthread_mutex_unlock(&streams->lock);
    return st;
}

/* stream NULL: the compute stream. */
static ebb_status doing(const ebb__stream *stream, ebb_status st)
{
    return ebb__device_doing(stream ? stream->what : "the computation", st);
}

/* ---- the worker -------------------------------------------------------------------------- */

static ebb__piece *next_piece(ebb__stream *s)
{
    pthread_mutex_lock(&s->lock);
    while (!s->first && !s->ending) pthread_cond_wait(&s->changed, &s->lock);
    ebb__piece *p = s->first;
    if (p) s->first = p->next;
    if (!s->first) s->last = NULL;
    pthread_mutex_unlock(&s->lock);
    return p;
}

static void *run(void *arg)
{
    ebb__stream *s = arg;
    for (ebb__piece *p; (p = next_piece(s)) != NULL;) {
        if (p->work)
            p->work(p->arg);
        else if (p->to)
            memcpy(p->to, p->from, p->bytes);
        else
            ebb__stream_synchronize(p->other, p->ticket);
        if (!p->lent) ebb__free(p); /* a lent one is the caller's again once it counts as finished */
        pthread_mutex_lock(&s->lock);
        atomic_fetch_add(&s->finished, 1);
        pthread_cond_broadcast(&s->changed);
        pthread_mutex_unlock(&s->lock);
    }
    return NULL;
}

/* Signals are for the program's own threads. */
static int start_worker(ebb__stream *s)
{
    sigset_t all, before;
    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &before);
    int error = pthread_create(&s->worker, NULL, run, s);
    pthread_sigmask(SIG_SETMASK, &before, NULL);
    s->has_worker = error == 0;
    return error;
}

/* ---- streams ----------------------------------------------------------------------------- */

ebb_status ebb__streams_new(ebb__streams **out, bool dry)
{
    ebb__streams *streams = ebb__calloc(1, sizeof *streams);
    if (!streams) return EBB_ENOMEM;
    streams->dry = dry;
    pthread_mutex_init(&streams->lock, NULL);
    *out = streams;
    return EBB_OK;
}

void ebb__streams_use(ebb__streams *streams, const ebb__accel *accel, void *self)
{
    EBB_ASSERT(!streams->first);
    streams->accel = accel;
    streams->self = self;
}

void ebb__streams_free(ebb__streams *streams)
{
    if (!streams) return;
    for (ebb__stream *s = streams->first; s; s = s->next) ebb__stream_close(s);
    for (ebb__stream *s = streams->first, *next; s; s = next) {
        next = s->next;
        pthread_cond_destroy(&s->changed);
        pthread_mutex_destroy(&s->lock);
        ebb__free(s);
    }
    pthread_mutex_destroy(&streams->lock);
    ebb__free(streams);
}

static ebb_status start(ebb__stream *s)
{
    const ebb__accel *accel = s->streams->accel;
    if (accel) return doing(s, accel->stream_open(&s->on_accel, s->streams->self));
    int error = s->streams->dry ? 0 : start_worker(s);
    return error ? ebb_fail(EBB_ENOMEM, "stream: cannot start its thread: %s", strerror(error)) : EBB_OK;
}

ebb_status ebb__stream_open(ebb__stream **out, ebb__streams *streams, const char *what)
{
    ebb__stream *s = ebb__calloc(1, sizeof *s);
    if (!s) return EBB_ENOMEM;
    s->streams = streams;
    s->what = what;
    pthread_mutex_init(&s->lock, NULL);
    pthread_cond_init(&s->changed, NULL);
    ebb_status st = start(s);
    if (st != EBB_OK) {
        pthread_cond_destroy(&s->changed);
        pthread_mutex_destroy(&s->lock);
        ebb__free(s);
        return st;
    }
    pthread_mutex_lock(&streams->lock);
    s->number = ++streams->n;
    s->next = streams->first;
    streams->first = s;
    pthread_mutex_unlock(&streams->lock);
    *out = s;
    return EBB_OK;
}

static void close_on_accel(ebb__stream *s)
{
    ebb__streams *streams = s->streams;
    uint64_t ticket = ebb__stream_record(s);
    ebb__stream_synchronize(s, ticket);
    streams->accel->stream_close(streams->self, s->on_accel);
    s->on_accel = NULL;
}

void ebb__stream_close(ebb__stream *s)
{
    if (s->on_accel) close_on_accel(s);
    if (!s->has_worker) return;
    pthread_mutex_lock(&s->lock);
    s->ending = true;
    pthread_cond_broadcast(&s->changed);
    pthread_mutex_unlock(&s->lock);
    pthread_join(s->worker, NULL);
    s->has_worker = false;
}

int ebb__stream_number(const ebb__stream *stream) { return stream->number; }

/* ---- work and events --------------------------------------------------------------------- */

static void append(ebb__stream *s, ebb__piece *p)
{
    pthread_mutex_lock(&s->lock);
    EBB_ASSERT(!s->ending);
    if (s->last)
        s->last->next = p;
    else
        s->first = p;
    s->last = p;
    s->given++;
    pthread_cond_broadcast(&s->changed);
    pthread_mutex_unlock(&s->lock);
}

static ebb_status give(ebb__stream *s, ebb__piece what)
{
    if (s->streams->dry) return EBB_OK;
    ebb__piece *p = ebb__malloc(sizeof *p);
    if (!p) return EBB_ENOMEM;
    *p = what;
    append(s, p);
    return EBB_OK;
}

ebb_status ebb__stream_enqueue(ebb__stream *s, ebb__work *work, void *arg)
{
    ebb__streams *streams = s->streams;
    if (streams->accel) return doing(s, streams->accel->host_call(streams->self, s->on_accel, work, arg));
    return give(s, (ebb__piece){ .work = work, .arg = arg });
}

ebb_status ebb__stream_wait_event(ebb__stream *s, ebb__stream *other, uint64_t ticket)
{
    ebb__streams *streams = s->streams;
    if (streams->accel)
        return doing(s, streams->accel->stream_wait(streams->self, s->on_accel, other->on_accel, ticket));
    return give(s, (ebb__piece){ .other = other, .ticket = ticket });
}

/* The stream's later work begins after all that is computed so far. */
static ebb_status wait_for_compute(ebb__stream *s)
{
    const ebb__streams *streams = s->streams;
    uint64_t ticket;
    EBB__TRY(streams->accel->record(streams->self, NULL, &ticket));
    return streams->accel->stream_wait(streams->self, s->on_accel, NULL, ticket);
}

static ebb_status copy_on_accel(ebb__stream *s, void *to, const void *from, size_t bytes, ebb__accel_copy_kind kind)
{
    EBB__TRY(doing(s, wait_for_compute(s)));
    return doing(s, s->streams->accel->copy(s->streams->self, s->on_accel, to, from, bytes, kind));
}

ebb_status ebb__stream_enqueue_copy(ebb__stream *s, void *to, const void *from, size_t bytes,
                                    ebb__accel_copy_kind kind)
{
    if (s->streams->accel) return copy_on_accel(s, to, from, bytes, kind);
    return give(s, (ebb__piece){ .to = to, .from = from, .bytes = bytes });
}

void ebb__stream_copy(ebb__stream *s, ebb__piece *p, void *to, const void *from, size_t bytes,
                      ebb__accel_copy_kind kind)
{
    ebb__streams *streams = s->streams;
    if (streams->dry || bytes == 0) return;
    if (streams->accel) {
        ebb__message before;
        ebb__message_keep(&before);
        ebb__streams_keep_error(streams, copy_on_accel(s, to, from, bytes, kind), &before);
        return;
    }
    *p = (ebb__piece){ .to = to, .from = from, .bytes = bytes, .lent = true };
    append(s, p);
}

void ebb__stream_join(ebb__stream *s, uint64_t ticket)
{
    ebb__streams *streams = s->streams;
    if (!streams->accel) {
        ebb__stream_synchronize(s, ticket);
        return;
    }
    ebb__message before;
    ebb__message_keep(&before);
    ebb_status st = streams->accel->stream_wait(streams->self, NULL, s->on_accel, ticket);
    ebb__streams_keep_error(streams, doing(s, st), &before);
}

/* ---- tickets: those of an accelerator; s NULL: its compute stream ------------------------- */

static uint64_t accel_record(ebb__streams *streams, const ebb__stream *s)
{
    uint64_t ticket = 0;
    ebb__accel_stream *stream = s ? s->on_accel : NULL;
    ebb__message before;
    ebb__message_keep(&before);
    ebb__streams_keep_error(streams, doing(s, streams->accel->record(streams->self, stream, &ticket)), &before);
    return ticket;
}

static void accel_wait(ebb__streams *streams, const ebb__stream *s, uint64_t ticket)
{
    ebb__accel_stream *stream = s ? s->on_accel : NULL;
    ebb__message before;
    ebb__message_keep(&before);
    ebb__streams_keep_error(streams, doing(s, streams->accel->wait(streams->self, stream, ticket)), &before);
}

/* ---- and of any ---------------------------------------------------------------------------- */

uint64_t ebb__stream_record(ebb__stream *s)
{
    if (s->on_accel) return accel_record(s->streams, s);
    pthread_mutex_lock(&s->lock);
    uint64_t ticket = s->given;
    pthread_mutex_unlock(&s->lock);
    return ticket;
}

bool ebb__stream_query(ebb__stream *s, uint64_t ticket)
{
    ebb__streams *streams = s->streams;
    if (streams->accel) return !s->on_accel || streams->accel->is_done(streams->self, s->on_accel, ticket);
    return atomic_load(&s->finished) >= ticket;
}

void ebb__stream_synchronize(ebb__stream *s, uint64_t ticket)
{
    if (s->streams->accel) {
        if (s->on_accel) accel_wait(s->streams, s, ticket);
        return;
    }
    pthread_mutex_lock(&s->lock);
    while (atomic_load(&s->finished) < ticket) pthread_cond_wait(&s->changed, &s->lock);
    pthread_mutex_unlock(&s->lock);
}

/* ---- as the pool sees them --------------------------------------------------------------- */

static ebb__stream *by_number(ebb__streams *streams, int number)
{
    pthread_mutex_lock(&streams->lock);
    ebb__stream *s = streams->first;
    while (s && s->number != number) s = s->next;
    pthread_mutex_unlock(&streams->lock);
    return s;
}

/* Number 0, the compute stream, is no ebb__stream: the cpu's is always done. */
static bool is_accel_compute(const ebb__streams *streams, int number) { return streams->accel && number == 0; }

static uint64_t fence_record(void *self, int number)
{
    if (is_accel_compute(self, number)) return accel_record(self, NULL);
    ebb__stream *s = by_number(self, number);
    return s ? ebb__stream_record(s) : 0;
}

static bool fence_is_done(void *self, int number, uint64_t ticket)
{
    const ebb__streams *streams = self;
    if (is_accel_compute(self, number)) return streams->accel->is_done(streams->self, NULL, ticket);
    ebb__stream *s = by_number(self, number);
    return !s || ebb__stream_query(s, ticket);
}

static void fence_wait(void *self, int number, uint64_t ticket)
{
    if (is_accel_compute(self, number)) accel_wait(self, NULL, ticket);
    ebb__stream *s = by_number(self, number);
    if (s) ebb__stream_synchronize(s, ticket);
}

ebb__fences ebb__streams_fences(ebb__streams *streams)
{
    return (ebb__fences){
        .record = fence_record, .is_done = fence_is_done, .wait = fence_wait, .self = streams
    };
}
