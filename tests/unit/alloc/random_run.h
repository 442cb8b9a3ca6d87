/* random_run.h: random requests, releases, stream uses and cache calls on a pool, which a naive pool may
 * follow step by step. */
#ifndef EBB_TESTS_RANDOM_RUN_H
#define EBB_TESTS_RANDOM_RUN_H

#include "naive_pool.h"
#include "pool_rig.h"

enum { MAX_LIVE = 300 };

typedef struct random_run {
    pool_rig rig;
    naive_pool *naive; /* NULL: no comparison */
    ebb__block *live[MAX_LIVE];
    unsigned char mark[MAX_LIVE];
    int n_live, target; /* the number of live blocks wanders towards target */
    bool fill;          /* write to the memory and verify it at release */
    int n_streams;      /* 0: two streams, no block is used on both */
    fake_fences fences; /* of the pool; the naive pool has its own */
    uint64_t seed, step;
} random_run;

/* conf: allocator options. */
random_run *random_run_new(rig_kind kind, size_t limit_bytes, int checks, uint64_t seed,
                           const char *conf);
void random_step(random_run *run);
void random_run_end(random_run *run); /* releases everything and asserts that it went back */

/* n_steps on a dry pool, compared with the naive pool after each. */
void compare_with_naive(size_t limit_bytes, int n_steps, uint64_t seed, const char *conf,
                        int n_streams);

/* Every allocator option, alone and together; `limit_mib` 0: none. */
typedef struct random_case {
    const char *conf;
    size_t limit_mib;
    int n_streams;
} random_case;
extern const random_case random_cases[];
extern const int n_random_cases;

#endif
