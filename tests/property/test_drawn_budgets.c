/* Budgets against the frontier and uniform segments, for models that are small and odd. */
#include <stdio.h>

#include "drawn_config.h"
#include "planner_check.h"
#include "support/cases.h"
#include "support/training.h"

static void check_seeds(uint64_t from, uint64_t to)
{
    for (uint64_t seed = from; seed < to; seed++) {
        drawn_config drawn;
        char name[32];
        drawn_config_make(&drawn, seed);
        snprintf(name, sizeof(name), "seed %llu", (unsigned long long)seed);
        /* An offset plan is packed anew in each of hundreds of dry runs: minutes. */
        ebb_config *config = config_of(drawn.json, (const char *const[4]){ "memory.limit=null", "memory.host_limit=null",
                                                                           "memory.offset_plan=false" });
        planner_check(name, config, drawn.threads, seed % 2);
        ebb_config_free(config);
    }
    check_no_live_blocks();
}

enum { SEEDS = CASES(24, 6) };

Test(drawn_budgets, reserved_and_allocated_bytes) { check_seeds(0, SEEDS); }

/* Small batches and steps of the allocator: reserved bytes jump, and the smallest plan is not the one that allocates
 * least. */
static const char *const coarse[] = {
    "{\"seed\":1,\"model\":{\"type\":\"mlp\",\"input\":8,\"hidden\":[16,200,16],\"output\":2,\"activation\":\"silu\"},"
    "\"data\":{\"type\":\"synthetic\",\"kind\":\"samples\",\"items\":2048,\"seed\":63},"
    "\"train\":{\"steps\":3,\"batch\":1024,\"accumulate\":2,\"optimizer\":{\"type\":\"sgd\",\"lr\":0.01,\"momentum\":0.9}},"
    "\"memory\":{\"recompute\":[\"gelu\"]}}",
    "{\"seed\":1,\"model\":{\"type\":\"mlp\",\"input\":100,\"hidden\":[512,64,512,16,200,512],\"output\":10,"
    "\"activation\":\"gelu_erf\"},"
    "\"data\":{\"type\":\"synthetic\",\"kind\":\"samples\",\"items\":1024,\"seed\":6},"
    "\"train\":{\"steps\":2,\"batch\":1024,\"optimizer\":{\"type\":\"adamw\",\"lr\":0.01}},"
    "\"memory\":{\"allocator\":{\"roundup_power2_divisions\":4}}}",
};

Test(drawn_budgets, where_reserved_bytes_jump)
{
    for (size_t i = 0; i < sizeof(coarse) / sizeof(coarse[0]); i++)
        for (int allocated = 0; allocated < 2; allocated++) {
            ebb_config *config = config_of(coarse[i], (const char *const[4]){ NULL });
            planner_check(coarse[i], config, 1, allocated);
            ebb_config_free(config);
        }
    check_no_live_blocks();
}
