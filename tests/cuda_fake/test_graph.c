/* Captured runs of the compute stream. */
#include "fake_device.h"

#include <pthread.h>

enum { N = 64 };

/* p[N, 2N) += 2 * p[0, N), by kernels, a product and a copy. */
static ebb_status work(fake_device *d, float *p)
{
    const ebb__accel *t = d->table;
    ebb_arg a = fake_arg(p, EBB_F32, N, 0, 0), b = fake_arg(p + N, EBB_F32, N, 0, 0);
    ebb_arg c = fake_arg(p + 2 * N, EBB_F32, N, 0, 0);
    SCRIPT_TRY(t->copy(d->self, NULL, p + 2 * N, p, N * sizeof(float), EBB__ON_DEVICE));
    SCRIPT_TRY(t->arg_add(d->self, &c, &a));
    return t->arg_add(d->self, &b, &c);
}

Test(graph, a_captured_run_can_be_launched_again_and_again)
{
    with_fake(d, .deferred = true) {
        const ebb__accel *t = d.table;
        float *p = fake_new(&d, 3 * N * sizeof(float)), got[N];
        ebb_arg ab = fake_arg(p, EBB_F32, 2 * N, 0, 0);
        ebb__accel_graph *graph;
        plugin_ok(t->fill(d.self, &ab, 1));
        plugin_ok(t->capture_begin(d.self, false));
        plugin_ok(work(&d, p));
        plugin_ok(t->capture_end(d.self, &graph));
        fake_get(&d, got, p + N, sizeof got);
        cr_assert(got[0] == 1, "a capture runs nothing");
        for (int i = 0; i < 3; i++) plugin_ok(t->graph_launch(d.self, graph, NULL));
        fake_get(&d, got, p + N, sizeof got);
        for (int i = 0; i < N; i++) cr_assert(got[i] == 7, "%g", (double)got[i]);
        t->graph_free(d.self, graph);
        fake_delete(&d, p, 3 * N * sizeof(float));
    }
}

Test(graph, products_are_captured_too)
{
    with_fake(d) {
        float *p = fake_new(&d, 4096), got;
        ebb_arg all = fake_arg(p, EBB_F32, 1024, 0, 0);
        ebb__accel_graph *graph;
        ebb__cuda_gemm g = { .m = 4, .n = 4, .k = 4, .batch = 1, .alpha = 1, .beta = 1, .a = p, .b = p + 64,
                             .c = p + 128, .lda = 4, .ldb = 4, .ldc = 4, .dtype = EBB_F32 };
        plugin_ok(d.table->fill(d.self, &all, 1));
        plugin_ok(d.table->capture_begin(d.self, false));
        plugin_ok(ebb__cuda_gemm_run(d.self, &g));
        plugin_ok(d.table->capture_end(d.self, &graph));
        for (int i = 0; i < 2; i++) plugin_ok(d.table->graph_launch(d.self, graph, NULL));
        fake_get(&d, &got, p + 128, sizeof got);
        cr_assert(got == 9, "%g", (double)got);
        d.table->graph_free(d.self, graph);
        fake_delete(&d, p, 4096);
    }
}

Test(graph, waiting_in_a_capture_ends_it_with_an_error)
{
    with_fake(d) {
        float *p = fake_new(&d, 3 * N * sizeof(float));
        ebb__accel_graph *graph = NULL;
        plugin_ok(d.table->capture_begin(d.self, false));
        plugin_ok(work(&d, p));
        cr_assert(d.table->synchronize(d.self) == EBB_EDEVICE);
        cr_assert(d.table->capture_end(d.self, &graph) == EBB_EDEVICE);
        cr_assert(graph == NULL);
        plugin_ok(work(&d, p));
        fake_delete(&d, p, 3 * N * sizeof(float));
    }
}

/* What the pool and other threads do meanwhile, all but freeing: that waits for the device. */
typedef struct meanwhile {
    fake_device *d;
    char *memory, *pinned;
    ebb_status st;
} meanwhile;

static ebb_status use(meanwhile *m)
{
    const ebb__accel *t = m->d->table;
    void *self = m->d->self;
    ebb__provider pinned = t->pinned(self);
    ebb__accel_stream *side;
    uint64_t ticket;
    m->memory = m->d->memory.alloc(m->d->memory.self, N);
    m->pinned = pinned.alloc(pinned.self, N);
    if (!m->memory || !m->pinned) return plugin_host()->fail(EBB_ENOMEM, "no memory while a stream is captured");
    SCRIPT_TRY(t->stream_open(&side, self));
    SCRIPT_TRY(t->copy(self, side, m->memory, m->pinned, N, EBB__TO_DEVICE));
    SCRIPT_TRY(t->record(self, side, &ticket));
    if (!t->is_done(self, side, ticket)) return plugin_host()->fail(EBB_ESTATE, "an eager copy is not done");
    SCRIPT_TRY(t->record(self, side, &ticket));
    SCRIPT_TRY(t->wait(self, side, ticket));
    t->stream_close(self, side);
    return EBB_OK;
}

static void *use_on_a_thread(void *arg)
{
    meanwhile *m = arg;
    m->st = use(m);
    return NULL;
}

Test(graph, a_capture_forbids_no_one_to_allocate_and_to_wait)
{
    with_fake(d) {
        const ebb__accel *t = d.table;
        ebb__provider pinned = t->pinned(d.self);
        meanwhile mine = { .d = &d }, others = { .d = &d };
        float *p = fake_new(&d, 3 * N * sizeof(float));
        ebb__accel_graph *graph;
        pthread_t thread;
        plugin_ok(t->capture_begin(d.self, false));
        plugin_ok(use(&mine));
        cr_assert(pthread_create(&thread, NULL, use_on_a_thread, &others) == 0);
        pthread_join(thread, NULL);
        cr_assert(others.st == EBB_OK, "another thread's: %d", (int)others.st);
        plugin_ok(work(&d, p));
        plugin_ok(t->capture_end(d.self, &graph));
        t->graph_free(d.self, graph);
        fake_delete(&d, mine.memory, N);
        fake_delete(&d, others.memory, N);
        pinned.free(pinned.self, mine.pinned, N);
        pinned.free(pinned.self, others.pinned, N);
        fake_delete(&d, p, 3 * N * sizeof(float));
    }
}

/* What the fake is for: CUDA's other modes. */
Test(graph, a_stricter_capture_is_broken_by_that)
{
    const enum cudaStreamCaptureMode modes[] = { cudaStreamCaptureModeGlobal, cudaStreamCaptureModeThreadLocal };
    for (int i = 0; i < 2; i++) {
        with_fake(d) {
            cudaStream_t stream;
            cudaGraph_t graph;
            cr_assert(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking) == cudaSuccess);
            cr_assert(cudaStreamBeginCapture(stream, modes[i]) == cudaSuccess);
            cr_assert(d.memory.alloc(d.memory.self, N) == NULL);
            cr_assert(cudaStreamEndCapture(stream, &graph) == cudaErrorStreamCaptureInvalidated);
            (void)cudaGetLastError();
            cr_assert(cudaStreamDestroy(stream) == cudaSuccess);
        }
    }
}

static ebb_status capture_script(fake_device *d, void *arg)
{
    const ebb__accel *t = d->table;
    ebb__accel_graph *graph = NULL;
    (void)arg;
    float *p = d->memory.alloc(d->memory.self, 3 * N * sizeof(float));
    if (!p) return plugin_host()->fail(EBB_ENOMEM, "no memory");
    ebb_status st = t->capture_begin(d->self, false);
    if (st == EBB_OK) {
        ebb_status inside = work(d, p), end = t->capture_end(d->self, &graph);
        st = inside != EBB_OK ? inside : end;
    }
    if (st == EBB_OK) st = t->graph_launch(d->self, graph, NULL);
    if (st == EBB_OK) st = t->synchronize(d->self);
    t->graph_free(d->self, graph);
    d->memory.free(d->memory.self, p, 3 * N * sizeof(float));
    return st;
}

Test(graph, any_call_may_fail) { fake_sweep(capture_script, NULL, (fake_changes){ 0 }); }
