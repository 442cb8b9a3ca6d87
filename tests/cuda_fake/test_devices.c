/* A second device, by threads that are new to CUDA: each begins on device 0, so every function of the table has to say
 * which device it means.  The fake refuses launches and events elsewhere than on the thread's device, aborts where
 * memory is another device's, and its cudaDeviceSynchronize() waits for the thread's device alone. */
#include "fake_device.h"

#include <math.h>
#include <pthread.h>
#include <signal.h>
#include <string.h>

enum { N = 64, BYTES = N * sizeof(float), SEEDS = 8 };

typedef struct job {
    fake_device d;
    float *a, *b;                                  /* N ones, N twos */
    ebb_arg all_a, all_b, square_a, square_b;      /* the first four as [2, 2] */
    float *more;
    ebb__accel_stream *side;
    ebb__accel_graph *graph;                       /* fills a with 7 */
    uint64_t ticket;
    ebb_status (*call)(struct job *job), st;
} job;

static void *on_a_thread(void *arg)
{
    job *j = arg;
    j->st = j->call(j);
    return NULL;
}

/* `call` is the first that a new thread makes. */
static void run(job *j, ebb_status (*call)(job *j), const char *what)
{
    pthread_t thread;
    j->call = call;
    cr_assert(pthread_create(&thread, NULL, on_a_thread, j) == 0);
    pthread_join(thread, NULL);
    cr_assert(j->st == EBB_OK, "%s on a thread: %d", what, (int)j->st);
}

/* ---- calls ------------------------------------------------------------------------------------------------- */

static ebb_status fill(job *j) { return j->d.table->fill(j->d.self, &j->all_a, 7); }
static ebb_status copy(job *j) { return j->d.table->copy(j->d.self, NULL, j->b, j->a, BYTES, EBB__ON_DEVICE); }
static ebb_status arg_copy(job *j) { return j->d.table->arg_copy(j->d.self, &j->all_b, &j->all_a); }
static ebb_status arg_add(job *j) { return j->d.table->arg_add(j->d.self, &j->all_b, &j->all_a); }
static ebb_status scale(job *j) { return j->d.table->scale(j->d.self, &j->all_a, 1, 2); }
static ebb_status record(job *j) { return j->d.table->record(j->d.self, NULL, &j->ticket); }
static ebb_status stream_open(job *j) { return j->d.table->stream_open(&j->side, j->d.self); }
static ebb_status synchronize(job *j) { return j->d.table->synchronize(j->d.self); }

static ebb_status update(job *j)
{
    const ebb__accel_step step = { .kind = EBB__ACCEL_SGD, .lr = 0.25 };
    const ebb__accel_param param = { j->a, j->b, NULL, NULL, N, EBB_F32, 1, false };
    return j->d.table->update(j->d.self, &step, &param, 1);
}

static ebb_status sum_squares(job *j)
{
    double sum = 0;
    SCRIPT_TRY(j->d.table->sum_squares(j->d.self, &j->all_b, 1, &sum));
    return sum == 4 * N ? EBB_OK : EBB_ESTATE;
}

static ebb_status clip(job *j)
{
    ebb__provider pinned = j->d.table->pinned(j->d.self);
    double *sum = pinned.alloc(pinned.self, sizeof *sum);
    if (!sum) return EBB_ENOMEM;
    ebb_status st = j->d.table->clip(j->d.self, &j->all_a, 1, &j->all_a, 1, sqrt(N) / 2, sum);
    pinned.free(pinned.self, sum, sizeof *sum);
    return st;
}

static ebb_status matmul(job *j)
{
    ebb_call call = { .n_in = 2, .n_out = 1, .in = { j->square_b, j->square_b }, .out = { j->square_a } };
    for (int i = 0; i < j->d.table->n_ops; i++)
        if (strcmp(j->d.table->ops[i].name, "matmul") == 0) return j->d.table->ops[i].forward(j->d.self, &call);
    return EBB_EUNSUPPORTED;
}

static ebb_status allocate(job *j)
{
    j->more = j->d.memory.alloc(j->d.memory.self, BYTES);
    return j->more ? EBB_OK : EBB_ENOMEM;
}

static ebb_status launch(job *j)
{
    const ebb__accel_numbers numbers = { .keep = 1, .step.correction1 = 1, .step.root_correction2 = 1 };
    return j->d.table->graph_launch(j->d.self, j->graph, &numbers);
}

/* What was made on the thread is used on this one. */
static void use_what_was_made(job *j)
{
    const ebb__accel *t = j->d.table;
    if (j->more) {
        plugin_ok(t->copy(j->d.self, NULL, j->more, j->a, BYTES, EBB__ON_DEVICE));
        fake_delete(&j->d, j->more, BYTES);
    }
    if (j->side) {
        plugin_ok(t->record(j->d.self, j->side, &j->ticket));
        t->stream_close(j->d.self, j->side);
    }
}

/* ---- each of them -------------------------------------------------------------------------------------------- */

#define ROW(name, a, b) { #name, name, a, b }
static const struct { const char *name; ebb_status (*call)(job *j); float a, b; } rows[] = {
    ROW(fill, 7, 2), ROW(copy, 1, 1), ROW(arg_copy, 1, 1), ROW(arg_add, 1, 3), ROW(scale, 2, 2), ROW(record, 1, 2),
    ROW(stream_open, 1, 2), ROW(synchronize, 1, 2), ROW(update, 0.5f, 2), ROW(sum_squares, 1, 2), ROW(clip, 0.5f, 2),
    ROW(matmul, 8, 2), ROW(allocate, 1, 2), ROW(launch, 7, 2),
};

static void open_second(job *j, bool deferred, unsigned seed)
{
    fake_change((fake_changes){ .devices = 2, .deferred = deferred, .seed = seed });
    *j = (job){ .d = fake_device_try_open(1) };
    cr_assert(j->d.st == EBB_OK, "%s", plugin_message());
    j->a = fake_new(&j->d, BYTES);
    j->b = fake_new(&j->d, BYTES);
    j->all_a = fake_arg(j->a, EBB_F32, N, 0, 0);
    j->all_b = fake_arg(j->b, EBB_F32, N, 0, 0);
    j->square_a = fake_arg(j->a, EBB_F32, 2, 2, 0);
    j->square_b = fake_arg(j->b, EBB_F32, 2, 2, 0);
    plugin_ok(j->d.table->capture_begin(j->d.self, false));
    plugin_ok(fill(j));
    plugin_ok(j->d.table->capture_end(j->d.self, &j->graph));
    plugin_ok(j->d.table->fill(j->d.self, &j->all_a, 1));
    plugin_ok(j->d.table->fill(j->d.self, &j->all_b, 2));
}

static void close_second(job *j)
{
    j->d.table->graph_free(j->d.self, j->graph);
    if (j->a) fake_delete(&j->d, j->a, BYTES);
    fake_delete(&j->d, j->b, BYTES);
    fake_device_close(&j->d);
}

Test(devices, any_call_may_be_a_threads_first)
{
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        job j;
        float a = 0, b = 0;
        open_second(&j, false, 1);
        run(&j, rows[i].call, rows[i].name);
        use_what_was_made(&j);
        fake_get(&j.d, &a, j.a, sizeof a);
        fake_get(&j.d, &b, j.b, sizeof b);
        cr_expect(fabsf(a - rows[i].a) < 1e-6f && b == rows[i].b, "%s: %g and %g", rows[i].name, (double)a, (double)b);
        close_second(&j);
    }
}

static ebb_status free_a(job *j)
{
    fake_delete(&j->d, j->a, BYTES);
    j->a = NULL;
    return EBB_OK;
}

Test(devices, memory_goes_after_the_work_of_its_device)
{
    for (unsigned seed = 1; seed <= SEEDS; seed++) {
        job j;
        float b = 0;
        open_second(&j, true, seed);
        plugin_ok(copy(&j));
        run(&j, free_a, "free");
        fake_get(&j.d, &b, j.b, sizeof b);
        cr_assert(b == 1, "seed %u: %g", seed, (double)b);
        close_second(&j);
    }
}

static ebb_status open_here(job *j)
{
    j->d = fake_device_try_open(1);
    return j->d.st;
}

/* As fake_device_try_close(), which looks for what is alive on all devices. */
static ebb_status close_here(job *j)
{
    (void)j->d.table->lend(j->d.self, NULL);
    j->d.memory.free(j->d.memory.self, j->d.lent, j->d.facts.lent_bytes);
    j->d.table->close(j->d.self);
    j->d.self = NULL;
    return EBB_OK;
}

Test(devices, threads_may_open_and_close_them)
{
    job j = { 0 };
    fake_change((fake_changes){ .devices = 2, .deferred = true });
    run(&j, open_here, "open");
    j.a = fake_new(&j.d, BYTES);
    j.all_a = fake_arg(j.a, EBB_F32, N, 0, 0);
    plugin_ok(fill(&j));
    fake_delete(&j.d, j.a, BYTES);
    run(&j, close_here, "close");
    fake_device_try_close(&j.d);
}

Test(devices, each_has_its_own_memory)
{
    fake_change((fake_changes){ .devices = 2, .mib = 64 });
    fake_device first = fake_device_try_open(0), second = fake_device_try_open(1);
    cr_assert(first.st == EBB_OK && second.st == EBB_OK);
    void *p = fake_new(&first, 48u << 20), *q = fake_new(&second, 48u << 20);
    cr_assert(first.memory.alloc(first.memory.self, 32u << 20) == NULL);
    ebb_arg on_first = fake_arg(p, EBB_F32, N, 0, 0), on_second = fake_arg(q, EBB_F32, N, 0, 0);
    plugin_ok(first.table->fill(first.self, &on_first, 1));
    plugin_ok(second.table->fill(second.self, &on_second, 2));
    plugin_ok(first.table->arg_add(first.self, &on_first, &on_first));
    float got[2];
    fake_get(&first, &got[0], p, sizeof got[0]);
    fake_get(&second, &got[1], q, sizeof got[1]);
    cr_assert(got[0] == 2 && got[1] == 2);
    fake_delete(&first, p, 48u << 20);
    fake_delete(&second, q, 48u << 20);
    (void)close_here(&(job){ .d = second });
    fake_device_close(&first);
}

/* What the fake is for. */
Test(devices, a_copy_of_anothers_memory_aborts, .signal = SIGABRT)
{
    fake_change((fake_changes){ .devices = 2 });
    fake_device first = fake_device_try_open(0), second = fake_device_try_open(1);
    char byte;
    void *p = fake_new(&first, 1);
    (void)second.table->copy(second.self, NULL, &byte, p, 1, EBB__FROM_DEVICE);
}
