/* Threads that share a pool, and streams that still read what the threads have released.
 * A block is filled with a mark, given to a stream that checks the mark later, and released at once: a
 * wrong mark means that it was used again too early. */
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "alloc/trace.h"
#include "core/rng.h"
#include "device/stream.h"

enum { N_THREADS = 3, N_STREAMS = 2, N_ROUNDS = 1500 };

static ebb__pool *pool;
static ebb__stream *streams[N_STREAMS];
static atomic_int n_wrong, n_checked, n_failed;

typedef struct reading {
    const unsigned char *data;
    size_t bytes;
    unsigned char mark;
} reading;

static void read_mark(void *arg)
{
    reading *r = arg;
    for (volatile int i = 0; i < 500; i++) {}
    bool right = r->data[0] == r->mark && memcmp(r->data, r->data + 1, r->bytes - 1) == 0;
    if (!right) atomic_fetch_add(&n_wrong, 1);
    atomic_fetch_add(&n_checked, 1);
    free(r);
}

static void need(ebb_status status)
{
    if (status == EBB_OK) return;
    if (atomic_fetch_add(&n_failed, 1) < 5) fprintf(stderr, "stress: %s\n", ebb_message());
}

static void one_block(const uint32_t word[4])
{
    ebb__block *block = NULL;
    size_t bytes = 2 + word[0] % (word[1] % 16 ? 20000u : 1500000u);
    need(ebb__pool_alloc(pool, &block, bytes, 0, NULL));
    if (!block) return;
    reading *r = malloc(sizeof *r);
    if (!r) abort();
    *r = (reading){ ebb__block_data(block), bytes, (unsigned char)word[2] };
    memset(ebb__block_data(block), r->mark, bytes);
    ebb__stream *stream = streams[word[3] % N_STREAMS];
    need(ebb__pool_record_stream(pool, block, ebb__stream_number(stream)));
    need(ebb__stream_enqueue(stream, read_mark, r));
    ebb__pool_release(pool, block);
}

static void look_around(uint64_t round)
{
    ebb_memory_stats stats;
    ebb__event event;
    if (round % 16 == 0) ebb__pool_stats(pool, &stats);
    if (round % 32 == 0) (void)ebb__trace_get(pool, round % 64, &event);
    if (round % 64 == 0)
        ebb__trace_mark(pool, EBB__ACT_PHASE, &(ebb__owner){ .phase = EBB__PHASE_FORWARD });
    if (round % 200 == 0 && !ebb__pool_check(pool)) need(EBB_ESTATE);
    if (round % 300 == 0) ebb__pool_empty_cache(pool);
}

static void *work(void *arg)
{
    for (uint64_t round = 0; round < N_ROUNDS; round++) {
        uint32_t word[4];
        ebb__philox((uint64_t)(uintptr_t)arg, round, word);
        one_block(word);
        look_around(round);
    }
    return NULL;
}

static void run(const char *conf)
{
    ebb__streams *device = NULL;
    ebb__alloc_options alloc = ebb__alloc_options_default();
    pthread_t threads[N_THREADS];
    need(ebb__alloc_options_parse(&alloc, conf, "stress"));
    need(ebb__streams_new(&device, false));
    need(ebb__pool_new(&pool, ebb__host_provider(),
                       &(ebb__pool_options){
                           .checks = 2, .alloc = &alloc, .fences = ebb__streams_fences(device) }));
    need(ebb__trace_start(pool, 256));
    for (int i = 0; i < N_STREAMS; i++) need(ebb__stream_open(&streams[i], device, "test"));
    for (int i = 0; i < N_THREADS; i++)
        if (pthread_create(&threads[i], NULL, work, (void *)(uintptr_t)(i + 1))) abort();
    for (int i = 0; i < N_THREADS; i++) pthread_join(threads[i], NULL);
    ebb__pool_free(pool); /* waits for the streams */
    ebb__streams_free(device);
}

int main(void)
{
    run("");
    run("expandable_segments:True");
    run("deferred_release_mb:2");
    int expected = 3 * N_THREADS * N_ROUNDS;
    printf("%d blocks read by streams, %d wrong, %d failures, %lld host blocks alive\n",
           atomic_load(&n_checked), atomic_load(&n_wrong), atomic_load(&n_failed),
           (long long)ebb_host_live_blocks());
    bool good =
        n_checked == expected && n_wrong == 0 && n_failed == 0 && ebb_host_live_blocks() == 0;
    return good ? 0 : 1;
}
