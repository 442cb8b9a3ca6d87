/* pool_rig.h: a pool whose provider counts what it gives and can be told to refuse. */
#ifndef EBB_TESTS_POOL_RIG_H
#define EBB_TESTS_POOL_RIG_H

#include "alloc/pool.h"
#include "alloc/pool_state.h"
#include "support/support.h"

#define KIB ((size_t)1024)
#define MIB ((size_t)1 << 20)

typedef struct pool_rig {
    ebb__pool *pool;
    ebb__provider inner;
    bool dry;
    int n_refusals; /* so many next requests to the provider are refused */
    size_t n_given, n_returned, bytes_out;
    size_t n_moves;      /* of pages */
    int64_t live_blocks; /* of the host, before */
} pool_rig;

typedef struct rig_stat_query {
    const char *key;
    uint64_t value;
    bool found;
} rig_stat_query;
typedef enum rig_kind { RIG_DRY, RIG_HOST } rig_kind;

/* limit_bytes 0: none. */
void rig_init(pool_rig *rig, rig_kind kind, size_t limit_bytes, int checks);
void rig_init_with(pool_rig *rig, rig_kind kind, const ebb__pool_options *options);
/* conf: "expandable_segments:True" and so on. */
void rig_init_conf(pool_rig *rig, rig_kind kind, size_t limit_bytes, int checks, const char *conf);
/* A statistic by PyTorch's name; the test ends where there is none. */
uint64_t rig_stat(const pool_rig *rig, const char *key);
/* Asserts that the pool is sound and that everything has gone back: blocks, segments and the
 * host memory taken since rig_init(). */
void rig_end(pool_rig *rig);

/* Stream 0, category temporary, no names. */
ebb__block *rig_take(pool_rig *rig, size_t bytes);
ebb__block *rig_take_as(pool_rig *rig, size_t bytes, ebb_category category, const char *op);
ebb__block *rig_take_on(pool_rig *rig, size_t bytes, int stream);
void rig_give(pool_rig *rig, ebb__block *block);
ebb_memory_stats rig_stats(const pool_rig *rig);

#endif
