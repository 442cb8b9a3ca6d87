/* More of test_drawn_budgets.c, and chains too long to try all plans of. */
#include <stdio.h>

#include "drawn_config.h"
#include "planner_check.h"
#include "support/training.h"

Test(budgets, of_drawn_configs)
{
    for (uint64_t seed = 100; seed < 250; seed++) {
        drawn_config drawn;
        char name[32];
        drawn_config_make(&drawn, seed);
        snprintf(name, sizeof(name), "seed %llu", (unsigned long long)seed);
        ebb_config *config = config_of(drawn.json, (const char *const[4]){ "memory.limit=null", "memory.host_limit=null" });
        planner_check(name, config, drawn.threads, seed % 2);
        ebb_config_free(config);
    }
    check_no_live_blocks();
}

Test(budgets, of_deep_models)
{
    static const char deep[] =
        "{\"seed\":3,\"model\":{\"type\":\"gpt\",\"layers\":40,\"heads\":2,\"width\":32,\"context\":32,\"vocab\":64},"
        "\"data\":{\"type\":\"synthetic\",\"kind\":\"tokens\",\"items\":64,\"seed\":1},"
        "\"train\":{\"steps\":2,\"batch\":8,\"optimizer\":{\"type\":\"adamw\",\"lr\":1e-3}}}";
    static const char *const sets[][4] = { { NULL }, { "memory.offload=auto" }, { "memory.offload=[\"gelu\"]" },
                                           { "train.fuse_optimizer=true", "train.clip_norm=null" } };
    for (size_t i = 0; i < sizeof(sets) / sizeof(sets[0]); i++)
        for (int allocated = 0; allocated < 2; allocated++) {
            ebb_config *config = config_of(deep, sets[i]);
            planner_check(sets[i][0] ? sets[i][0] : "deep", config, 2, allocated);
            ebb_config_free(config);
        }
    check_no_live_blocks();
}
