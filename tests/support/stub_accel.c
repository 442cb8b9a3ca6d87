/* support/stub_accel.c: the table of functions, and what each puts into a stream. */
#include "support/stub_accel.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "device/blas.h"
#include "device/plugin.h"
#include "optim/optim.h"
#include "support/stub_memory.h"
#include "support/stub_streams.h"
#include "tensor/context.h"
#include "tensor/tensor.h"

enum { LENT_FILL = 0x5A };

static stub_options options;
static stub_counts counts;
static unsigned char *lent;
static ebb_status failed; /* bad data that a kernel found, until synchronize() */
static char failure[512];
static int device;        /* its address is the open device */

static void *copy_of(const void *from, size_t bytes)
{
    void *copy = malloc(bytes ? bytes : 1);
    cr_assert(copy != NULL, "stub: no memory");
    memcpy(copy, from, bytes);
    return copy;
}

/* ---- kernels -------------------------------------------------------------------------------- */

typedef struct kernel {
    ebb_call call;
    int pass;
    bool varies; /* its offset is ahead of the call's, by what the launch says */
} kernel;

static void run_kernel(void *arg)
{
    kernel *k = arg;
    ebb_call *c = &k->call;
    if (k->varies) c->rng_offset += stub_numbers().rng_ahead;
    const ebb_kernel *cpu = &c->op->cpu;
    size_t bytes = cpu->workspace ? cpu->workspace(c, k->pass, ebb_context_threads(c->ctx)) : 0;
    c->workspace = bytes ? malloc(bytes) : NULL;
    c->workspace_bytes = bytes;
    ebb_status st = k->pass == EBB_FORWARD ? cpu->forward(c) : cpu->backward(c);
    if (st != EBB_OK && failed == EBB_OK) {
        failed = st;
        snprintf(failure, sizeof failure, "%s", ebb_message());
    }
    free(c->workspace);
}

static ebb_status put_kernel(const ebb_call *call, int pass)
{
    const char *failing = pass == options.fail_pass ? options.fail_kernel : NULL;
    if (failing && strcmp(call->op->name, failing) == 0 && options.passes_before-- == 0) return ebb_fail(EBB_EDEVICE, "stub:0: launch failed");
    kernel k = { *call, pass, stub_is_varying() };
    counts.kernels++;
    stub_put(NULL, run_kernel, copy_of(&k, sizeof k), sizeof k);
    return EBB_OK;
}

static ebb_status forward(void *self, const ebb_call *call)
{
    (void)self;
    return put_kernel(call, EBB_FORWARD);
}

static ebb_status backward(void *self, const ebb_call *call)
{
    (void)self;
    return put_kernel(call, EBB_BACKWARD);
}

/* ---- work that is not an op ----------------------------------------------------------------- */

typedef struct bytes_job {
    enum { FILL, COPY, ADD } kind;
    ebb_arg to, from;
    double value;
} bytes_job;

static void run_bytes(void *arg)
{
    const bytes_job *job = arg;
    if (job->kind == FILL) ebb__host_arg_fill(&job->to, job->value);
    if (job->kind == COPY) ebb__host_arg_copy(&job->to, &job->from);
    if (job->kind == ADD) ebb__host_arg_add(&job->to, &job->from);
}

static ebb_status put_bytes(bytes_job job)
{
    stub_put(NULL, run_bytes, copy_of(&job, sizeof job), sizeof job);
    return EBB_OK;
}

static ebb_status fill(void *self, const ebb_arg *to, double value)
{
    (void)self;
    return put_bytes((bytes_job){ FILL, *to, *to, value });
}

static ebb_status arg_copy(void *self, const ebb_arg *to, const ebb_arg *from)
{
    (void)self;
    return put_bytes((bytes_job){ COPY, *to, *from, 0 });
}

static ebb_status arg_add(void *self, const ebb_arg *to, const ebb_arg *from)
{
    (void)self;
    return put_bytes((bytes_job){ ADD, *to, *from, 0 });
}

typedef struct update_job {
    ebb__step step;
    ebb__update_fn *update;
    ebb__accel_param param;
    bool varies;
} update_job;

static ebb__step step_of(const ebb__accel_step *s, double keep)
{
    return (ebb__step){ .lr = s->lr, .keep = keep, .beta1 = s->beta1, .beta2 = s->beta2, .eps = s->eps,
                        .correction1 = s->correction1, .root_correction2 = s->root_correction2,
                        .momentum = s->momentum, .nesterov = s->nesterov };
}

static void run_update(void *arg)
{
    const update_job *job = arg;
    const ebb__accel_param *p = &job->param;
    ebb__accel_numbers given = stub_numbers();
    ebb__step step = job->varies ? step_of(&given.step, p->decays ? given.keep : 1) : job->step;
    job->update(&step, p->w, p->g, p->s0, p->s1, p->n);
}

static ebb_status update(void *self, const ebb__accel_step *s, const ebb__accel_param *params, int n)
{
    (void)self;
    if (options.fail_update) return ebb_fail(EBB_EDEVICE, "stub:0: launch failed");
    const ebb__optim_kind *kind = s->kind == EBB__ACCEL_SGD ? &ebb__optim_sgd : &ebb__optim_adamw;
    for (int i = 0; i < n; i++) {
        update_job job = {
            .step = step_of(s, params[i].keep),
            .update = params[i].dtype == EBB_F32 ? kind->update_f32 : kind->update_f64,
            .param = params[i],
            .varies = stub_is_varying(),
        };
        stub_put(NULL, run_update, copy_of(&job, sizeof job), sizeof job);
    }
    return EBB_OK;
}

/* As many threads as the cpu's runs in the tests that compare bits have. */
enum { SUM_THREADS = 2 };
static ebb__threads *sum_threads;

static ebb_status sum_squares(void *self, const ebb_arg *args, int n, double *sum)
{
    double partial[SUM_THREADS];
    (void)self;
    counts.synchronizes++;
    stub_capture_breach();
    stub_run_all();
    stub_memory_open(true);
    *sum = 0;
    for (int i = 0; i < n; i++) ebb__host_sum_squares(sum, sum_threads, &args[i], partial);
    stub_memory_open(false);
    return EBB_OK;
}

typedef struct scale_job {
    ebb_arg arg;
    double factor;
} scale_job;

static void run_scale(void *arg)
{
    const scale_job *job = arg;
    ebb__host_scale(sum_threads, &job->arg, job->factor);
}

static ebb_status scale(void *self, const ebb_arg *args, int n, double factor)
{
    (void)self;
    for (int i = 0; i < n; i++) {
        scale_job job = { args[i], factor };
        stub_put(NULL, run_scale, copy_of(&job, sizeof job), sizeof job);
    }
    return EBB_OK;
}

typedef struct clip_job {
    double max_norm, *sum; /* sum: pinned */
    int n, n_scaled;
    ebb_arg args[];        /* n, then n_scaled */
} clip_job;

static void run_clip(void *arg)
{
    const clip_job *job = arg;
    double partial[SUM_THREADS], sum = 0;
    for (int i = 0; i < job->n; i++) ebb__host_sum_squares(&sum, sum_threads, &job->args[i], partial);
    *job->sum = sum;
    double factor = job->max_norm / (sqrt(sum) + 1e-6);
    for (int i = 0; i < job->n_scaled && !(factor >= 1); i++)
        ebb__host_scale(sum_threads, &job->args[job->n + i], factor);
}

static ebb_status clip(void *self, const ebb_arg *args, int n, const ebb_arg *scaled, int n_scaled, double max_norm,
                       double *sum)
{
    (void)self;
    cr_assert(stub_memory_is_pinned(sum), "stub: clip writes to pinned memory");
    size_t bytes = sizeof(clip_job) + (size_t)(n + n_scaled) * sizeof *args;
    clip_job *job = malloc(bytes);
    cr_assert(job != NULL, "stub: no memory");
    *job = (clip_job){ max_norm, sum, n, n_scaled };
    memcpy(job->args, args, (size_t)n * sizeof *args);
    memcpy(job->args + n, scaled, (size_t)n_scaled * sizeof *args);
    stub_put(NULL, run_clip, job, bytes);
    return EBB_OK;
}

/* ---- copies --------------------------------------------------------------------------------- */

typedef struct copy_job {
    void *to;
    const void *from;
    size_t bytes;
    unsigned char held[]; /* of pageable memory, which the caller may reuse */
} copy_job;

static void run_copy(void *arg)
{
    copy_job *job = arg;
    memcpy(job->to, job->from ? job->from : job->held, job->bytes);
}

static ebb_status copy(void *self, ebb__accel_stream *stream, void *to, const void *from, size_t bytes,
                       ebb__accel_copy_kind kind)
{
    (void)self;
    counts.copies++;
    cr_assert(stub_memory_is_device(to) == (kind != EBB__FROM_DEVICE), "stub: a copy to the wrong side");
    cr_assert(stub_memory_is_device(from) == (kind != EBB__TO_DEVICE), "stub: a copy from the wrong side");
    bool hold = kind == EBB__TO_DEVICE && !stub_memory_is_pinned(from);
    copy_job *job = malloc(sizeof *job + (hold ? bytes : 0));
    cr_assert(job != NULL, "stub: no memory");
    *job = (copy_job){ to, hold ? NULL : from, bytes };
    if (hold) memcpy(job->held, from, bytes);
    stub_put(stream, run_copy, job, sizeof *job + (hold ? bytes : 0));
    return EBB_OK;
}

static ebb_status synchronize(void *self)
{
    (void)self;
    counts.synchronizes++;
    stub_capture_breach();
    stub_run_compute();
    ebb_status st = failed;
    failed = EBB_OK;
    return st == EBB_OK ? st : ebb_fail(st, "%s", failure);
}

typedef struct host_work {
    void (*work)(void *arg);
    void *arg;
} host_work;

static void run_host_work(void *arg)
{
    const host_work *w = arg;
    w->work(w->arg);
}

static ebb_status host_call(void *self, ebb__accel_stream *stream, void (*work)(void *arg), void *arg)
{
    host_work w = { work, arg };
    (void)self;
    stub_put(stream, run_host_work, copy_of(&w, sizeof w), sizeof w);
    return EBB_OK;
}

/* ---- the device ----------------------------------------------------------------------------- */

static ebb_status count(const ebb__accel_host *host, int *n)
{
    if (options.no_driver) return host->fail(EBB_EDEVICE, "device %s: the stub has no driver", stub_kind());
    *n = 1;
    return EBB_OK;
}

static ebb_status open_device(void **self, const ebb__accel_host *host, int ordinal)
{
    cr_assert(host->abi == EBB__ACCEL_ABI && ordinal == 0);
    cr_assert(ebb__blas_open() == EBB_OK);
    if (counts.open++ == 0) {
        ebb_status st = ebb__threads_new(&sum_threads, SUM_THREADS);
        if (st != EBB_OK) {
            counts.open--;
            return st;
        }
        stub_streams_begin(options.seed, options.eager);
    }
    *self = &device;
    return EBB_OK;
}

static void close_device(void *self)
{
    cr_assert(self == &device && counts.open > 0);
    stub_run_all();
    if (--counts.open > 0) return;
    stub_streams_end();
    ebb__threads_free(sum_threads);
    sum_threads = NULL;
    failed = EBB_OK;
}

static void facts(void *self, ebb__accel_facts *out)
{
    (void)self;
    *out = (ebb__accel_facts){ .name = "stub", .libraries = "the cpu's kernels", .compute_major = 9, .processors = 1,
                               .capacity_bytes = options.capacity_bytes, .lent_bytes = options.lent_bytes,
                               .page_bytes = options.no_pages ? 0 : 2 << 20 };
}

/* Nobody may write to it: it comes back as it was. */
static ebb_status lend(void *self, void *memory)
{
    (void)self;
    stub_memory_open(true);
    if (memory) memset(memory, LENT_FILL, options.lent_bytes);
    for (size_t i = 0; !memory && lent && i < options.lent_bytes; i++)
        cr_assert(lent[i] == LENT_FILL, "stub: byte %zu of what was lent was written to", i);
    stub_memory_open(false);
    lent = memory;
    return EBB_OK;
}

static ebb__provider provider(void *self)
{
    (void)self;
    ebb__provider memory = stub_device_memory();
    if (options.no_pages) memory.reserve = NULL;
    return memory;
}

static ebb__provider pinned(void *self)
{
    (void)self;
    return stub_pinned_memory();
}

/* ---- the table ------------------------------------------------------------------------------ */

static ebb__accel_op ops[128];

static ebb__accel table = {
    .abi = EBB__ACCEL_ABI, .name = "cuda",
    .count = count, .open = open_device, .close = close_device, .facts = facts, .lend = lend,
    .provider = provider, .pinned = pinned,
    .stream_open = stub_stream_open, .stream_close = stub_stream_close, .record = stub_record,
    .is_done = stub_is_done, .wait = stub_wait, .stream_wait = stub_stream_wait, .host_call = host_call,
    .copy = copy, .synchronize = synchronize,
    .fill = fill, .arg_copy = arg_copy, .arg_add = arg_add, .update = update, .sum_squares = sum_squares, .scale = scale,
    .clip = clip,
    .ops = ops,
    .capture_begin = stub_capture_begin, .capture_end = stub_capture_end, .graph_launch = stub_graph_launch,
    .graph_free = stub_graph_free,
};

void stub_install(stub_options o)
{
    if (!o.capacity_bytes) o.capacity_bytes = (size_t)256 << 20;
    if (!o.lent_bytes) o.lent_bytes = (1 << 20) + 512;
    options = o;
    table.name = stub_kind();
    table.capture_begin = o.no_graphs ? NULL : stub_capture_begin;
    counts = (stub_counts){ 0 };
    table.n_ops = 0;
    for (int i = 0; i < ebb_op_count(); i++) {
        const ebb_op *op = ebb_op_at(i);
        if (o.without && strcmp(op->name, o.without) == 0) continue;
        ops[table.n_ops++] = (ebb__accel_op){ op->name, op->cpu.forward ? forward : NULL,
                                              op->cpu.backward ? backward : NULL };
    }
    stub_memory_limit(o.capacity_bytes, o.fail_memory_at);
    ebb__accel_register(&table);
}

const char *stub_kind(void) { return options.kind ? options.kind : "cuda"; }

stub_counts stub_counts_get(void)
{
    stub_counts c = counts;
    stub_memory_count(&c);
    c.frees_in_capture = stub_capture_breaches();
    c.graphs = stub_graphs_alive();
    return c;
}

void stub_counts_reset(void) { counts.kernels = counts.copies = counts.synchronizes = 0; }

stub_scope stub_begin(const char *name)
{
    ebb_context_options o = { .struct_bytes = sizeof o, .device = name, .threads = 2, .seed = 1, .checks = -1 };
    stub_scope scope = { .live_blocks = ebb_host_live_blocks(), .live = true };
    ebb_memory_stats stats;
    check_ok(ebb_context_new(&scope.ctx, &o));
    ebb_memory_stats_get(scope.ctx, &stats);
    scope.allocated_bytes = stats.allocated_bytes;
    return scope;
}

void stub_end(stub_scope *scope)
{
    ebb_memory_stats stats;
    scope->live = false;
    ebb_memory_stats_get(scope->ctx, &stats);
    cr_assert(stats.allocated_bytes == scope->allocated_bytes, "%zu bytes of the pool are alive after the test",
              stats.allocated_bytes - scope->allocated_bytes);
    ebb_context_free(scope->ctx);
    stub_counts c = stub_counts_get();
    cr_assert(c.device_bytes == 0 && c.pinned_bytes == 0 && c.open == 0, "the stub keeps %zu and %zu bytes, %d open",
              c.device_bytes, c.pinned_bytes, c.open);
    cr_assert(ebb_host_live_blocks() == scope->live_blocks, "%lld host blocks are alive after the test, %lld before",
              (long long)ebb_host_live_blocks(), (long long)scope->live_blocks);
}
