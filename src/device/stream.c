/* device/stream.c: a queue, a worker and two counts per stream. */
#include "device/stream.h"

#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <string.h>

#include "core/assert.h"
#include "core/mem.h"

struct ebb__stream {
    ebb__streams *streams;
    ebb__stream *next; /* in the device's list, which keeps closed streams to the end */
    int number;
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
};

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

ebb_status ebb__stream_open(ebb__stream **out, ebb__streams *streams)
{
    ebb__stream *s = ebb__calloc(1, sizeof *s);
    if (!s) return EBB_ENOMEM;
    s->streams = streams;
    pthread_mutex_init(&s->lock, NULL);
    pthread_cond_init(&s->changed, NULL);
    int error = streams->dry ? 0 : start_worker(s);
    if (error) {
        pthread_cond_destroy(&s->changed);
        pthread_mutex_destroy(&s->lock);
        ebb__free(s);
        return ebb_fail(EBB_ENOMEM, "stream: cannot start its thread: %s", strerror(error));
    }
    pthread_mutex_lock(&streams->lock);
    s->number = ++streams->n;
    s->next = streams->first;
    streams->first = s;
    pthread_mutex_unlock(&streams->lock);
    *out = s;
    return EBB_OK;
}

void ebb__stream_close(ebb__stream *s)
{
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

void ebb__stream_lend(ebb__stream *s, ebb__piece *p, ebb__work *work, void *arg)
{
    if (s->streams->dry) return;
    *p = (ebb__piece){ .work = work, .arg = arg, .lent = true };
    append(s, p);
}

ebb_status ebb__stream_enqueue(ebb__stream *stream, ebb__work *work, void *arg)
{
    return give(stream, (ebb__piece){ .work = work, .arg = arg });
}

ebb_status ebb__stream_wait_event(ebb__stream *stream, ebb__stream *other, uint64_t ticket)
{
    return give(stream, (ebb__piece){ .other = other, .ticket = ticket });
}

uint64_t ebb__stream_record(ebb__stream *s)
{
    pthread_mutex_lock(&s->lock);
    uint64_t ticket = s->given;
    pthread_mutex_unlock(&s->lock);
    return ticket;
}

bool ebb__stream_query(ebb__stream *stream, uint64_t ticket)
{
    return atomic_load(&stream->finished) >= ticket;
}

void ebb__stream_synchronize(ebb__stream *s, uint64_t ticket)
{
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

static uint64_t fence_record(void *self, int number)
{
    ebb__stream *s = by_number(self, number);
    return s ? ebb__stream_record(s) : 0;
}

static bool fence_is_done(void *self, int number, uint64_t ticket)
{
    ebb__stream *s = by_number(self, number);
    return !s || ebb__stream_query(s, ticket);
}

static void fence_wait(void *self, int number, uint64_t ticket)
{
    ebb__stream *s = by_number(self, number);
    if (s) ebb__stream_synchronize(s, ticket);
}

ebb__fences ebb__streams_fences(ebb__streams *streams)
{
    return (ebb__fences){
        .record = fence_record, .is_done = fence_is_done, .wait = fence_wait, .self = streams
    };
}
