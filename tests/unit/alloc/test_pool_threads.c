/* Several threads on one pool: each finds its own bytes, and the pool is sound afterwards. */
#include <pthread.h>
#include <string.h>

#include "core/rng.h"
#include "pool_rig.h"

enum { N_THREADS = 4, N_ROUNDS = 3000, N_HELD = 16 };

typedef struct worker {
    pool_rig *rig;
    uint64_t seed;
    bool failed;
} worker;

/* Criterion's asserts belong to the main thread, so a worker only remembers a failure. */
static void *work(void *arg)
{
    worker *w = arg;
    ebb__block *held[N_HELD] = { NULL };
    unsigned char mark = (unsigned char)w->seed;
    ebb_memory_stats stats;
    for (uint64_t i = 0; i < N_ROUNDS; i++) {
        uint32_t word[4];
        ebb__philox(w->seed, i, word);
        ebb__block **slot = &held[word[0] % N_HELD];
        if (*slot) {
            unsigned char *data = ebb__block_data(*slot);
            size_t bytes = ebb__block_requested(*slot);
            w->failed |= data[0] != mark || data[bytes - 1] != mark;
            ebb_category category = (ebb_category)(word[1] % EBB_N_CATEGORIES);
            ebb__block_set_category(w->rig->pool, *slot, category);
            ebb__pool_release(w->rig->pool, *slot);
            *slot = NULL;
        } else {
            size_t bytes = 1 + word[1] % (word[2] % 16 ? 60000u : 3000000u);
            w->failed |= ebb__pool_alloc(w->rig->pool, slot, bytes, 0, NULL) != EBB_OK;
            if (*slot) memset(ebb__block_data(*slot), mark, bytes);
        }
        if (i % 64 == 0) ebb__pool_stats(w->rig->pool, &stats);
        if (i % 256 == 0) w->failed |= !ebb__pool_check(w->rig->pool);
        if (i % 512 == 0) ebb__pool_empty_cache(w->rig->pool);
    }
    for (int i = 0; i < N_HELD; i++) ebb__pool_release(w->rig->pool, held[i]);
    return NULL;
}

Test(pool_threads, many_threads_share_a_pool)
{
    pool_rig rig;
    rig_init(&rig, RIG_HOST, 0, 1);
    pthread_t threads[N_THREADS];
    worker workers[N_THREADS];
    for (int i = 0; i < N_THREADS; i++) {
        workers[i] = (worker){ .rig = &rig, .seed = (uint64_t)i + 1 };
        cr_assert(pthread_create(&threads[i], NULL, work, &workers[i]) == 0);
    }
    for (int i = 0; i < N_THREADS; i++) {
        cr_assert(pthread_join(threads[i], NULL) == 0);
        cr_assert_not(workers[i].failed, "thread %d found foreign bytes or an unsound pool", i);
    }
    cr_assert(rig_stats(&rig).n_allocs > N_THREADS * N_ROUNDS / 3);
    rig_end(&rig);
}
