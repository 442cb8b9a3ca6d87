/* support/stub_streams.c: which stream goes on next is drawn; a stream whose first piece waits for another
 * one's ticket cannot.  One thread runs work at a time; the lock is recursive, since work may be a user's. */
#include "support/stub_streams.h"

#include <pthread.h>
#include <stdlib.h>
#include <string.h>

#include "support/stub_memory.h"

typedef struct task {
    struct task *next;
    void (*work)(void *arg); /* NULL: wait for `other` to have done `ticket` */
    void *arg;
    size_t bytes; /* of arg */
    ebb__accel_stream *other;
    uint64_t ticket;
} task;

struct ebb__accel_stream {
    task *first, *last;
    uint64_t given, done;
    bool open;
};

struct ebb__accel_graph {
    task *first, *last;
};

enum { MAX_STREAMS = 32, NOW_AND_THEN = 7 };

static pthread_mutex_t lock;
static pthread_once_t once = PTHREAD_ONCE_INIT;
static ebb__accel_stream streams[MAX_STREAMS]; /* [0]: the compute stream */
static uint64_t state;
static bool eager, running;
static ebb__accel_graph *capture;
static bool varying;
static ebb__accel_numbers given;
static uint64_t breaches;
static int graphs;

static void make_lock(void)
{
    pthread_mutexattr_t a;
    pthread_mutexattr_init(&a);
    pthread_mutexattr_settype(&a, PTHREAD_MUTEX_RECURSIVE);
    pthread_mutex_init(&lock, &a);
    pthread_mutexattr_destroy(&a);
}

static void enter(void)
{
    pthread_once(&once, make_lock);
    pthread_mutex_lock(&lock);
}

static void leave(void) { pthread_mutex_unlock(&lock); }

static uint32_t draw(uint32_t below) /* a linear congruential generator is enough */
{
    state = state * 6364136223846793005u + 1442695040888963407u;
    return (uint32_t)(state >> 33) % below;
}

static ebb__accel_stream *or_compute(ebb__accel_stream *s) { return s ? s : &streams[0]; }

/* ---- running -------------------------------------------------------------------------------- */

static bool can_go_on(const ebb__accel_stream *s)
{
    return s->first && (s->first->work || s->first->other->done >= s->first->ticket);
}

static void free_task(task *t)
{
    free(t->arg);
    free(t);
}

static bool run_one(void)
{
    ebb__accel_stream *ready[MAX_STREAMS];
    uint32_t n = 0;
    for (int i = 0; i < MAX_STREAMS; i++)
        if (can_go_on(&streams[i])) ready[n++] = &streams[i];
    if (n == 0) return false;
    ebb__accel_stream *s = ready[draw(n)];
    task *t = s->first;
    s->first = t->next;
    if (!s->first) s->last = NULL;
    if (t->work) t->work(t->arg);
    s->done++;
    free_task(t);
    return true;
}

/* Until the stream has done the ticket; NULL: all of them everything. */
static void run_until(const ebb__accel_stream *s, uint64_t ticket)
{
    if (running) return; /* work that frees or waits: never the library's */
    running = true;
    stub_memory_open(true);
    while (!s || s->done < ticket) {
        if (run_one()) continue;
        cr_assert(!s, "stub: a stream waits for what never comes");
        break;
    }
    stub_memory_open(false);
    running = false;
}

void stub_run_all(void)
{
    enter();
    run_until(NULL, 0);
    leave();
}

void stub_run_compute(void)
{
    enter();
    run_until(&streams[0], streams[0].given);
    leave();
}

static void run_some(void)
{
    if (running || draw(NOW_AND_THEN)) return;
    running = true;
    stub_memory_open(true);
    for (uint32_t n = draw(6); n > 0; n--) run_one();
    stub_memory_open(false);
    running = false;
}

static task *new_task(void (*work)(void *arg), void *arg, size_t bytes)
{
    task *t = calloc(1, sizeof *t);
    cr_assert(t != NULL, "stub: no memory");
    t->work = work;
    t->arg = arg;
    t->bytes = bytes;
    return t;
}

static void append(ebb__accel_stream *s, task *t)
{
    if (s->last) s->last->next = t;
    else s->first = t;
    s->last = t;
    s->given++;
    if (eager) run_until(NULL, 0);
    else run_some();
}

void stub_put(ebb__accel_stream *stream, void (*work)(void *arg), void *arg, size_t bytes)
{
    enter();
    task *t = new_task(work, arg, bytes);
    if (capture && !stream) {
        if (capture->last) capture->last->next = t;
        else capture->first = t;
        capture->last = t;
    } else {
        append(or_compute(stream), t);
    }
    leave();
}

/* ---- streams -------------------------------------------------------------------------------- */

void stub_streams_begin(uint64_t seed, bool at_once)
{
    memset(streams, 0, sizeof streams);
    streams[0].open = true;
    state = seed * 2654435761u + 1;
    eager = at_once;
    breaches = 0;
}

void stub_streams_end(void)
{
    for (int i = 1; i < MAX_STREAMS; i++) cr_assert(!streams[i].open, "stub: stream %d was not closed", i);
}

ebb_status stub_stream_open(ebb__accel_stream **out, void *self)
{
    (void)self;
    enter();
    int i = 1;
    while (i < MAX_STREAMS && streams[i].open) i++;
    cr_assert(i < MAX_STREAMS, "stub: too many streams");
    uint64_t done = streams[i].done; /* tickets of a closed one stay done */
    streams[i] = (ebb__accel_stream){ .open = true, .given = done, .done = done };
    *out = &streams[i];
    leave();
    return EBB_OK;
}

void stub_stream_close(void *self, ebb__accel_stream *stream)
{
    (void)self;
    enter();
    run_until(stream, stream->given);
    stream->open = false;
    leave();
}

ebb_status stub_record(void *self, ebb__accel_stream *stream, uint64_t *ticket)
{
    (void)self;
    *ticket = or_compute(stream)->given;
    return EBB_OK;
}

bool stub_is_done(void *self, ebb__accel_stream *stream, uint64_t ticket)
{
    (void)self;
    enter();
    bool done = or_compute(stream)->done >= ticket;
    leave();
    return done;
}

ebb_status stub_wait(void *self, ebb__accel_stream *stream, uint64_t ticket)
{
    (void)self;
    enter();
    stub_capture_breach();
    run_until(or_compute(stream), ticket);
    leave();
    return EBB_OK;
}

ebb_status stub_stream_wait(void *self, ebb__accel_stream *stream, ebb__accel_stream *other, uint64_t ticket)
{
    (void)self;
    enter();
    task *t = new_task(NULL, NULL, 0);
    t->other = or_compute(other);
    t->ticket = ticket;
    append(or_compute(stream), t);
    leave();
    return EBB_OK;
}

/* ---- graphs --------------------------------------------------------------------------------- */

ebb_status stub_capture_begin(void *self, bool varies)
{
    (void)self;
    varying = varies;
    cr_assert(!capture, "stub: a capture runs already");
    capture = calloc(1, sizeof *capture);
    cr_assert(capture != NULL);
    breaches = 0;
    graphs++;
    return EBB_OK;
}

ebb_status stub_capture_end(void *self, ebb__accel_graph **out)
{
    ebb__accel_graph *graph = capture;
    cr_assert(graph != NULL, "stub: no capture runs");
    capture = NULL;
    varying = false;
    *out = graph;
    if (breaches == 0) return EBB_OK;
    stub_graph_free(self, graph);
    return ebb_fail(EBB_EDEVICE, "stub: the capture was spoilt");
}

static void set_numbers(void *arg) { given = *(const ebb__accel_numbers *)arg; }

ebb_status stub_graph_launch(void *self, ebb__accel_graph *graph, const ebb__accel_numbers *numbers)
{
    (void)self;
    enter();
    if (numbers) {
        ebb__accel_numbers *copy = malloc(sizeof *copy);
        cr_assert(copy != NULL, "stub: no memory");
        *copy = *numbers;
        append(&streams[0], new_task(set_numbers, copy, sizeof *copy));
    }
    for (const task *t = graph->first; t; t = t->next) {
        void *arg = malloc(t->bytes ? t->bytes : 1);
        cr_assert(arg != NULL, "stub: no memory");
        memcpy(arg, t->arg, t->bytes);
        append(&streams[0], new_task(t->work, arg, t->bytes));
    }
    leave();
    return EBB_OK;
}

void stub_graph_free(void *self, ebb__accel_graph *graph)
{
    (void)self;
    for (task *t = graph->first, *next; t; t = next) {
        next = t->next;
        free_task(t);
    }
    free(graph);
    graphs--;
}

bool stub_is_varying(void) { return varying; }
ebb__accel_numbers stub_numbers(void) { return given; }

void stub_capture_breach(void)
{
    if (capture) breaches++;
}

uint64_t stub_capture_breaches(void) { return breaches; }
int stub_graphs_alive(void) { return graphs; }
