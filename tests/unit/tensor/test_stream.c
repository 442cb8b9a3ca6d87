/* Streams: work beside the computation, and memory that it still reads. */
#include <ebb/stream.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>

#include "support/support.h"
#include "tensor/tensor.h"

/* Work that lasts until the test lets it go. */
static void wait_for_gate(void *arg)
{
    const atomic_bool *gate = arg;
    while (!atomic_load(gate)) {}
}

typedef struct note {
    int *log;
    int *n;
    int value;
} note;

static void take_note(void *arg)
{
    note *n = arg;
    n->log[(*n->n)++] = n->value;
}

Test(stream, work_is_done_in_order)
{
    with_context(ctx)
    {
        enum { N = 100 };
        static int log[N];
        static note notes[N];
        int n = 0;
        ebb_stream *stream = NULL;
        check_ok(ebb_stream_new(&stream, ctx));
        for (int i = 0; i < N; i++) {
            notes[i] = (note){ log, &n, i };
            check_ok(ebb_stream_call(stream, take_note, &notes[i]));
        }
        ebb_stream_synchronize(stream);
        cr_assert(n == N);
        for (int i = 0; i < N; i++) cr_assert(log[i] == i);
        check_fails(ebb_stream_call(stream, NULL, NULL), EBB_EINVAL);
        ebb_stream_free(stream);
        ebb_stream_free(NULL);
    }
}

Test(stream, an_event_of_another_stream_is_waited_for)
{
    with_context(ctx)
    {
        atomic_bool gate = false;
        int log[2], n = 0;
        note late = { log, &n, 1 };
        ebb__stream *a = NULL, *b = NULL;
        check_ok(ebb__stream_open(&a, ctx->device.streams, "a"));
        check_ok(ebb__stream_open(&b, ctx->device.streams, "b"));
        cr_assert(ebb__stream_number(a) == 1 && ebb__stream_number(b) == 2);
        check_ok(ebb__stream_enqueue(a, wait_for_gate, &gate));
        uint64_t ticket = ebb__stream_record(a);
        check_ok(ebb__stream_wait_event(b, a, ticket));
        check_ok(ebb__stream_enqueue(b, take_note, &late));
        uint64_t done = ebb__stream_record(b);
        cr_assert_not(ebb__stream_query(a, ticket) || ebb__stream_query(b, done));
        atomic_store(&gate, true);
        ebb__stream_synchronize(b, done);
        cr_assert(n == 1 && ebb__stream_query(a, ticket) && ebb__stream_query(b, done));
        ebb__stream_close(a);
        ebb__stream_close(b);
    }
}

/* Case B39: without the record the second tensor would take the first one's bytes while the copy still
 * reads them. */
Test(stream, a_copy_behind_a_delay_reads_what_was_there_when_the_tensor_was_dropped)
{
    enum { ELEMS = 16 << 20 }; /* 64 MiB */
    float *host = malloc(ELEMS * sizeof *host);
    cr_assert(host != NULL);
    with_context(ctx)
    {
        atomic_bool gate = false;
        ebb_stream *stream = NULL;
        EBB_LOCAL(a);
        EBB_LOCAL(b);
        EBB_LOCAL(c);
        check_ok(ebb_stream_new(&stream, ctx));
        check_ok(ebb_full(&a, ctx, EBB_F32, 1, (int64_t[]){ ELEMS }, 1.0));
        const void *place = ebb_tensor_data(a);
        check_ok(ebb_stream_call(stream, wait_for_gate, &gate));
        check_ok(ebb_stream_copy_out(stream, host, a));
        ebb_drop(&a);
        check_ok(ebb_full(&b, ctx, EBB_F32, 1, (int64_t[]){ ELEMS }, 2.0));
        cr_assert(ebb_tensor_data(b) != place, "the block was reused before the copy was done");
        atomic_store(&gate, true);
        ebb_stream_synchronize(stream);
        for (int i = 0; i < ELEMS; i++) cr_assert(host[i] == 1.0f, "element %d is %g", i, host[i]);
        check_ok(ebb_full(&c, ctx, EBB_F32, 1, (int64_t[]){ ELEMS }, 3.0));
        cr_assert(ebb_tensor_data(c) == place, "the block did not come back");
        cr_assert_not(ebb_memory_is_exact(ctx));
        ebb_stream_free(stream);
    }
    free(host);
}

Test(stream, a_dry_device_has_streams_that_do_nothing)
{
    with_device(ctx, "dry:cpu")
    {
        ebb_stream *stream = NULL;
        EBB_LOCAL(a);
        check_ok(ebb_stream_new(&stream, ctx));
        check_ok(ebb_zeros(&a, ctx, EBB_F32, 1, (int64_t[]){ 100 }));
        check_ok(ebb_stream_copy_out(stream, NULL, a));
        ebb_stream_synchronize(stream);
        ebb_stream_free(stream);
    }
}

Test(stream, a_stream_of_another_context_is_refused)
{
    with_context(ctx)
    {
        EBB_LOCAL(a);
        check_ok(ebb_zeros(&a, ctx, EBB_F32, 1, (int64_t[]){ 100 }));
        with_context(other)
        {
            ebb_stream *stream = NULL;
            check_ok(ebb_stream_new(&stream, other));
            check_fails(ebb_record_stream(a, stream), EBB_EDEVICE);
            ebb_stream_free(stream);
        }
    }
}

static void find_freed(void *user, const char *key, uint64_t value)
{
    if (strcmp(key, "allocated_bytes.small_pool.freed") == 0) *(uint64_t *)user = value;
}

Test(stream, statistics_are_public_under_pytorchs_names)
{
    with_context(ctx)
    {
        uint64_t freed = 1;
        EBB_LOCAL(a);
        check_ok(ebb_zeros(&a, ctx, EBB_F32, 1, (int64_t[]){ 1000 }));
        ebb_memory_reset_accumulated(ctx);
        ebb_memory_each_stat(ctx, find_freed, &freed);
        cr_assert(freed == 0);
        ebb_drop(&a);
        ebb_memory_each_stat(ctx, find_freed, &freed);
        cr_assert(freed == 4096);
    }
}
