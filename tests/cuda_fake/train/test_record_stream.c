/* ebb_record_stream() on the CUDA plugin: memory that a stream still reads is not used again before it has, whatever
 * the order in which streams run.  Where it is, a copy brings the bytes of the tensor that came after. */
#include <stdatomic.h>
#include <string.h>

#include <ebb/ebb.h>

#include "cuda_fake.h"
#include "cuda_fake/absorbed.h"
#include "device/plugin.h"
#include "support/support.h"
#include "tensor/tensor.h"

enum { SEEDS = 16, N = 4096 };

ebb__accel_entry ebb_accel_plugin;

static void install(bool deferred, unsigned seed, long fail_nth)
{
    fake_options options = fake_get_options();
    options.deferred = deferred;
    options.seed = seed;
    options.fail_nth = fail_nth;
    fake_set_options(&options);
    ebb__accel_register(ebb_accel_plugin(EBB__ACCEL_ABI));
}

static ebb_context *open_cuda(bool deferred, unsigned seed, size_t limit_bytes)
{
    ebb_context *ctx = NULL;
    ebb_context_options o = { .struct_bytes = sizeof o, .device = "cuda", .threads = 1, .seed = 1,
                              .memory_limit_bytes = limit_bytes };
    install(deferred, seed, 0);
    check_ok(ebb_context_new(&ctx, &o));
    return ctx;
}

static void close_cuda(ebb_context *ctx)
{
    ebb_context_free(ctx);
    fake_counts counts = fake_get_counts();
    cr_assert(fake_alive(&counts) == 0, "%ld alive", fake_alive(&counts));
    check_no_live_blocks();
}

/* Host work that lasts until the test lets it go: what is behind it in its stream is certain to come late. */
static void wait_for_gate(void *arg)
{
    const atomic_bool *gate = arg;
    while (!atomic_load(gate)) {}
}

static void check_all(const float *values, int n, float expected, const char *what, unsigned seed)
{
    for (int i = 0; i < n; i++)
        cr_assert(values[i] == expected, "%s, seed %u: element %d is %g, not %g", what, seed, i, (double)values[i],
                  (double)expected);
}

static ebb_tensor *filled(ebb_context *ctx, double value)
{
    ebb_tensor *t = NULL;
    check_ok(ebb_full(&t, ctx, EBB_F32, 1, (int64_t[]){ N }, value));
    return t;
}

/* Also says that the compute stream has come so far. */
static void check_tensor(ebb_tensor *t, float expected, unsigned seed)
{
    static float values[N];
    check_ok(ebb_read(t, values, sizeof values));
    check_all(values, N, expected, "a tensor", seed);
}

/* A copy that stands behind a closed gate, on the last of `n_streams`; others have copied long since. */
static void drop_while_a_stream_reads(ebb_context *ctx, int n_streams, unsigned seed)
{
    enum { MOST = 3 };
    static float host[MOST][N];
    atomic_bool gate = false;
    ebb_stream *streams[MOST];
    ebb_tensor *read = filled(ctx, 1);
    const void *place = ebb_tensor_data(read);
    for (int i = 0; i < n_streams; i++) {
        check_ok(ebb_stream_new(&streams[i], ctx));
        if (i == n_streams - 1) check_ok(ebb_stream_call(streams[i], wait_for_gate, &gate));
        check_ok(ebb_stream_copy_out(streams[i], host[i], read));
        if (i < n_streams - 1) ebb_stream_synchronize(streams[i]);
    }
    ebb_drop(&read);
    ebb_tensor *next = filled(ctx, 2);
    check_tensor(next, 2, seed);
    atomic_store(&gate, true);
    for (int i = 0; i < n_streams; i++) ebb_stream_synchronize(streams[i]);
    for (int i = 0; i < n_streams; i++) check_all(host[i], N, 1, "a copy", seed);
    ebb_tensor *last = filled(ctx, 3);
    cr_assert(ebb_tensor_data(last) == place, "seed %u: the memory did not come back", seed);
    cr_assert_not(ebb_memory_is_exact(ctx));
    ebb_drop(&next);
    ebb_drop(&last);
    for (int i = 0; i < n_streams; i++) ebb_stream_free(streams[i]);
}

Test(cuda_record_stream, memory_is_not_used_again_while_a_stream_reads_it)
{
    for (unsigned seed = 0; seed < SEEDS; seed++) {
        ebb_context *ctx = open_cuda(seed > 0, seed, 0);
        drop_while_a_stream_reads(ctx, 1, seed);
        close_cuda(ctx);
    }
}

Test(cuda_record_stream, the_last_of_several_streams_decides)
{
    for (unsigned seed = 0; seed < SEEDS; seed++) {
        ebb_context *ctx = open_cuda(seed > 0, seed, 0);
        drop_while_a_stream_reads(ctx, 3, seed);
        close_cuda(ctx);
    }
}

/* Without gates: tensors come and go while two streams copy them out. */
Test(cuda_record_stream, copies_of_many_tensors_are_right)
{
    enum { ROUNDS = 40 };
    static float host[ROUNDS][N];
    for (unsigned seed = 1; seed <= SEEDS; seed++) {
        ebb_context *ctx = open_cuda(true, seed, 0);
        ebb_stream *streams[2];
        for (int i = 0; i < 2; i++) check_ok(ebb_stream_new(&streams[i], ctx));
        for (int i = 0; i < ROUNDS; i++) {
            ebb_tensor *t = filled(ctx, i);
            check_ok(ebb_stream_copy_out(streams[i % 2], host[i], t));
            ebb_drop(&t);
        }
        for (int i = 0; i < 2; i++) ebb_stream_synchronize(streams[i]);
        for (int i = 0; i < ROUNDS; i++) check_all(host[i], N, (float)i, "a copy", seed);
        for (int i = 0; i < 2; i++) ebb_stream_free(streams[i]);
        close_cuda(ctx);
    }
}

/* ---- no room: the pool waits for the stream -------------------------------------------------------------- */

/* Two such tensors leave 8 KiB of a segment of 2 MiB; there is no room for another segment beside the 20 MiB of what
 * libraries are lent. */
enum { LARGE = (1 << 20) - 4096, LARGE_ELEMS = LARGE / sizeof(float), LIMIT = 22 << 20 };

static ebb_status large(ebb_tensor **out, ebb_context *ctx, double value)
{
    return ebb_full(out, ctx, EBB_F32, 1, (int64_t[]){ LARGE_ELEMS }, value);
}

/* The third tensor gets the second's memory, from which a stream still copies to `host`. */
static ebb_status take_what_a_stream_reads(ebb_context *ctx, ebb_stream *stream, float *host)
{
    EBB_LOCAL(other);
    EBB_LOCAL(read);
    EBB_LOCAL(small);
    EBB_LOCAL(next);
    static float last[LARGE_ELEMS];
    EBB_TRY(large(&other, ctx, 0));
    EBB_TRY(large(&read, ctx, 1));
    EBB_TRY(ebb_stream_copy_out(stream, host, read));
    ebb_drop(&read);
    EBB_TRY(ebb_full(&small, ctx, EBB_F32, 0, NULL, 3)); /* a launch after the ticket, which may stop the device */
    EBB_TRY(large(&next, ctx, 2));
    ebb_stream_synchronize(stream);
    EBB_TRY(ebb_read(next, last, sizeof last)); /* tells what streams could not */
    check_all(last, LARGE_ELEMS, 2, "a tensor", 0);
    return EBB_OK;
}

static void count_waits(void *user, const char *key, uint64_t value)
{
    if (strcmp(key, "num_sync_all_streams") == 0) *(uint64_t *)user += value;
}

Test(cuda_record_stream, without_room_the_stream_is_waited_for)
{
    static float host[LARGE_ELEMS];
    uint64_t waits = 0;
    for (unsigned seed = 1; seed <= SEEDS; seed++) {
        ebb_context *ctx = open_cuda(true, seed, LIMIT);
        ebb_stream *stream = NULL;
        check_ok(ebb_stream_new(&stream, ctx));
        check_ok(take_what_a_stream_reads(ctx, stream, host));
        check_all(host, LARGE_ELEMS, 1, "a copy", seed);
        ebb_memory_each_stat(ctx, count_waits, &waits);
        ebb_stream_free(stream);
        close_cuda(ctx);
    }
    cr_assert(waits > 0, "every stream was done without a wait");
}

/* ---- any CUDA call fails ------------------------------------------------------------------------------------ */

/* `counts`: before closing, which tells nobody. */
static ebb_status script(float *host, fake_counts *counts)
{
    ebb_context *ctx = NULL;
    ebb_stream *stream = NULL;
    ebb_context_options o = { .struct_bytes = sizeof o, .device = "cuda", .threads = 1, .seed = 1,
                              .memory_limit_bytes = LIMIT };
    ebb_status st = ebb_context_new(&ctx, &o);
    if (st == EBB_OK) st = ebb_stream_new(&stream, ctx);
    if (st == EBB_OK) st = take_what_a_stream_reads(ctx, stream, host);
    *counts = fake_get_counts();
    ebb_stream_free(stream);
    ebb_context_free(ctx);
    return st;
}

static void check_told(ebb_status st, const float *host, long n, const fake_counts *c)
{
    if (st == EBB_OK) {
        cr_assert(fake_may_be_absorbed(c->failed_call, false), "call %ld, %s: nobody was told", n, c->failed_call);
        check_all(host, LARGE_ELEMS, 1, "a copy", (unsigned)n);
    } else {
        cr_assert(ebb_message()[0] != '\0', "call %ld, %s", n, c->failed_call);
    }
}

/* Launches that fail are among them: then the device has stopped, and what waits for it must not wait for ever. */
static void sweep(bool deferred)
{
    static float host[LARGE_ELEMS];
    fake_counts c = { .failed = true };
    long n = 0;
    while (c.failed) {
        n++;
        install(deferred, (unsigned)n, n);
        ebb_status st = script(host, &c);
        fake_counts after = fake_get_counts();
        cr_assert(fake_alive(&after) == 0, "call %ld, %s: %ld alive", n, c.failed_call, fake_alive(&after));
        check_no_live_blocks();
        if (c.failed) check_told(st, host, n, &c);
        else check_ok(st);
    }
    cr_assert(n > 30, "%ld calls", n);
}

Test(cuda_record_stream, any_call_may_fail)
{
    sweep(false);
    sweep(true);
}
