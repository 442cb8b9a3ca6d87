/* With every allocator option a dry run predicts allocated and reserved bytes to the byte. */
#include <stdio.h>
#include <string.h>

#include "allocator_runs.h"
#include "support/cases.h"
#include "support/support.h"

static const char *const options[] = {
    "{}",
    "{\"expandable_segments\": true}",
    "{\"max_split_size_mb\": 21, \"max_non_split_rounding_mb\": 1}",
    "{\"roundup_power2_divisions\": 4}",
    "{\"deferred_release_mb\": 4}",
    "{\"garbage_collection_threshold\": 0.2}", /* of the limit that allocator_config() sets */
    "{\"offset_plan\": true}",
    "{\"offset_plan\": true, \"expandable_segments\": true}",
};
enum { N_OPTIONS = sizeof options / sizeof *options };

static void check_equal(int model, const char *checkpoint, const char *option,
                        ebb_train_result *real)
{
    ebb_config *config = allocator_config(model, checkpoint, option);
    ebb_train_options o = { .struct_bytes = sizeof o, .threads = 2, .hash_gradients = true };
    ebb_train_result dry;
    check_ok(ebb_estimate(&dry, config, &o));
    check_ok(ebb_train(real, config, &o));
    const ebb_memory_stats *a = &dry.memory, *b = &real->memory;
    cr_assert(a->peak_allocated_bytes == b->peak_allocated_bytes,
              "%d %s %s: %zu predicted, %zu measured", model, checkpoint, option,
              a->peak_allocated_bytes, b->peak_allocated_bytes);
    cr_assert(a->peak_reserved_bytes == b->peak_reserved_bytes,
              "%d %s %s: %zu predicted, %zu measured (reserved)", model, checkpoint, option,
              a->peak_reserved_bytes, b->peak_reserved_bytes);
    cr_assert(a->peak_requested_bytes == b->peak_requested_bytes);
    cr_assert(dry.host_memory.peak_allocated_bytes == real->host_memory.peak_allocated_bytes &&
              dry.host_memory.peak_reserved_bytes == real->host_memory.peak_reserved_bytes);
    if (model == 0 && strstr(option, "garbage_collection"))
        cr_assert(b->n_segment_frees > 0, "%d %s: nothing was collected", model, checkpoint);
    cr_assert(
        memcmp(a->by_category_at_peak, b->by_category_at_peak, sizeof a->by_category_at_peak) == 0);
    ebb_config_free(config);
}

/* Under AddressSanitizer each option runs with one model, collecting with the one that has something to collect. */
static bool is_asked(int model, int option) { return option == 0 || (model + option + 1) % CASES(1, 2) == 0; }

/* The options decide where blocks lie, never what is computed. */
Test(allocator_equality, dry_runs_are_exact_and_results_the_same_with_every_option)
{
    static const char *const checkpoints[] = { "none", "every:1" };
    for (int model = 0; model < n_allocator_models; model++) {
        char hash[65] = "";
        for (int i = 0; i < N_OPTIONS; i++) {
            ebb_train_result real;
            if (!is_asked(model, i)) continue;
            check_equal(model, checkpoints[i % 2], options[i], &real);
            if (i == 0) strcpy(hash, real.gradients_sha256);
            cr_assert_str_eq(real.gradients_sha256, hash);
        }
    }
    check_no_live_blocks();
}

Test(allocator_equality, an_offset_plan_needs_at_most_2_percent_more_than_is_alive)
{
    for (int model = 0; model < n_allocator_models; model++) {
        ebb_config *config = allocator_config(model, "every:1", "{\"offset_plan\": true}");
        ebb_train_options o = { .struct_bytes = sizeof o, .threads = 2 };
        ebb_train_result r;
        check_ok(ebb_estimate(&r, config, &o));
        double waste =
            (double)r.memory.peak_reserved_bytes / (double)r.memory.peak_allocated_bytes - 1;
        cr_assert(waste >= 0 && waste <= 0.02, "model %d: %.4f", model, waste);
        ebb_config_free(config);
    }
}

Test(allocator_equality, a_plan_fits_under_a_limit_that_a_pool_exceeds)
{
    ebb_config *config = allocator_config(1, "every:1", "{}"), *limited = NULL, *planned = NULL;
    ebb_train_options o = { .struct_bytes = sizeof o, .threads = 2 };
    ebb_train_result r;
    char set[64];
    check_ok(ebb_estimate(&r, config, &o));
    size_t limit = r.memory.peak_allocated_bytes + r.memory.peak_allocated_bytes / 50;
    cr_assert(limit < r.memory.peak_reserved_bytes, "the pool wastes too little here");
    snprintf(set, sizeof set, "memory.limit=%zu", limit);
    const char *sets[] = { set, "memory.offset_plan=true" };
    check_ok(ebb_config_copy(&limited, config, sets, 1));
    check_ok(ebb_config_copy(&planned, config, sets, 2));
    check_fails(ebb_train(&r, limited, &o), EBB_ENOMEM);
    check_message("largest owners: ");
    check_ok(ebb_train(&r, planned, &o));
    cr_assert(r.memory.peak_reserved_bytes <= limit);
    ebb_config_free(config);
    ebb_config_free(limited);
    ebb_config_free(planned);
}

Test(allocator_equality, a_wrong_allocator_key_names_its_path)
{
    ebb_config *config = allocator_config(0, "none", "{}");
    const char *sets[] = { "memory.allocator={\"expandable\": true}" };
    ebb_config *copy = NULL;
    check_fails(ebb_config_copy(&copy, config, sets, 1), EBB_EINVAL);
    check_message(
        "memory.allocator: unknown key \"expandable\"; did you mean \"expandable_segments\"");
    ebb_config_free(config);
}
