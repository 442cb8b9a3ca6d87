/* support/training.h: configs written in a test, and runs of them. */
#ifndef EBB_TESTS_TRAINING_H
#define EBB_TESTS_TRAINING_H

#include <ebb/memory.h>
#include <ebb/train.h>

#include "support/support.h"

/* A config from its text with up to 4 sets ("train.batch=4"); NULL: no more.  Owner: the caller. */
static inline ebb_config *config_of(const char *text, const char *const sets[4])
{
    temp_folder folder = temp_folder_make();
    ebb_config *config = NULL;
    int n = 0;
    while (n < 4 && sets[n]) n++;
    write_text(temp_path(&folder, "config.json"), text);
    check_ok(ebb_config_load(&config, temp_path(&folder, "config.json"), sets, n));
    temp_folder_remove(&folder);
    return config;
}

static inline ebb_train_options train_options(int threads)
{
    return (ebb_train_options){ .struct_bytes = sizeof(ebb_train_options), .threads = threads };
}

/* Trains; `out_dir` may be NULL.  Gradients are hashed. */
static inline ebb_train_result train_config(const ebb_config *config, int threads, const char *out_dir)
{
    ebb_train_result result;
    ebb_train_options options = train_options(threads);
    options.out_dir = out_dir;
    options.hash_gradients = true;
    check_ok(ebb_train(&result, config, &options));
    return result;
}

/* What a dry run said of a pool against what a run used: the peaks, and the table at the peak, which sums to it. */
void check_same_memory(const ebb_memory_stats *said, const ebb_memory_stats *used, const char *what);

#endif
