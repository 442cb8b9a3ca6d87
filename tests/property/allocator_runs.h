/* allocator_runs.h: training runs under an allocator option, small enough for tests.  The options matter
 * only above a few MiB, so the models here are wider than the example configs. */
#ifndef EBB_TESTS_ALLOCATOR_RUNS_H
#define EBB_TESTS_ALLOCATOR_RUNS_H

#include <ebb/train.h>

typedef struct allocator_model {
    const char *json;
} allocator_model;
extern const allocator_model allocator_models[];
extern const int n_allocator_models;

/* A config of one of the models with memory.checkpoint and memory.allocator set.  Owner: the caller's. */
ebb_config *allocator_config(int model, const char *checkpoint, const char *allocator);

#endif
