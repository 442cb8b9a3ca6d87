#include "estimate_check.h"

#include "drawn_config.h"
#include "support/training.h"

void check_estimate(const ebb_config *config, int threads, const char *out_dir, const char *what)
{
    ebb_train_result said, used;
    ebb_train_options options = train_options(threads);
    options.out_dir = out_dir;
    check_ok(ebb_estimate(&said, config, &options));
    check_ok(ebb_train(&used, config, &options));
    check_same_memory(&said.memory, &used.memory, what);
    check_same_memory(&said.host_memory, &used.host_memory, what);
    cr_assert(said.parameters == used.parameters && said.parameters > 0);
    cr_assert(said.flops == used.flops && said.recompute_flops == used.recompute_flops &&
              said.recomputed_ops == used.recomputed_ops, "other work: %s", what);
}

void check_drawn_estimates(uint64_t first, int n)
{
    for (uint64_t seed = first; seed < first + (uint64_t)n; seed++) {
        drawn_config drawn;
        drawn_config_make(&drawn, seed);
        temp_folder folder = temp_folder_make();
        ebb_config *config = config_of(drawn.json, (const char *const[4]){ NULL });
        check_estimate(config, drawn.threads, drawn.save ? temp_path(&folder, "run") : NULL, drawn.json);
        ebb_config_free(config);
        temp_folder_remove(&folder);
    }
    check_no_live_blocks();
}
