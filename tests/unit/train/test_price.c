/* What a config's own checkpointing costs: the figures of a plan that says the same. */
#include <ebb/plan.h>
#include <math.h>

#include "train_support.h"

static const char gpt[] =
    "{\"seed\":3,\"model\":{\"type\":\"gpt\",\"layers\":6,\"heads\":2,\"width\":32,\"context\":32,\"vocab\":64},"
    "\"data\":{\"type\":\"synthetic\",\"items\":40,\"eval_items\":4},"
    "\"train\":{\"steps\":3,\"batch\":16,\"optimizer\":{\"type\":\"adamw\",\"lr\":0.01}}}";

static ebb_plan_info price_of(const char *sets)
{
    ebb_config *config = config_of(gpt, sets);
    ebb_train_options options = { .struct_bytes = sizeof(options), .threads = 2 };
    ebb_train_result said;
    ebb_plan_info info;
    check_ok(ebb_plan_price(&info, config, config, &options));
    check_ok(ebb_estimate(&said, config, &options));
    cr_assert_eq(info.peak_reserved_bytes, said.memory.peak_reserved_bytes, "%s", sets);
    cr_assert_eq(info.peak_allocated_bytes, said.memory.peak_allocated_bytes, "%s", sets);
    cr_assert_eq(info.recompute_flops, said.recompute_flops, "%s", sets);
    ebb_config_free(config);
    return info;
}

Test(price, of_keeping_everything_is_nothing_and_segments_take_time)
{
    ebb_plan_info none = price_of(""), every = price_of("memory.checkpoint=every:1");
    ebb_plan_info gelu = price_of("memory.recompute=[\"gelu\"]");
    cr_assert_eq(none.overhead, 0);
    cr_assert(every.overhead > 0.1 && every.overhead < 0.6, "%g", every.overhead);
    cr_assert_eq(gelu.overhead, 0, "memory.recompute is part of what it is compared with");
    ebb_config *plain = config_of(gpt, ""), *again = config_of(gpt, "memory.recompute=[\"gelu\"]");
    ebb_train_options options = { .struct_bytes = sizeof(options), .threads = 2 };
    check_ok(ebb_plan_price(&gelu, again, plain, &options));
    cr_assert(gelu.overhead > 0.001 && gelu.overhead < every.overhead, "%g", gelu.overhead);
    ebb_config_free(plain);
    ebb_config_free(again);
    cr_assert_lt(every.peak_allocated_bytes, none.peak_allocated_bytes);
    check_no_live_blocks();
}

/* By the same model of time: the figures of a plan are those of its file. */
Test(price, of_a_plans_file_and_of_a_budget_is_what_the_planner_said)
{
    temp_folder folder = temp_folder_make();
    ebb_config *config = config_of(gpt, "");
    ebb_train_options options = { .struct_bytes = sizeof(options), .threads = 2 };
    ebb_plan *plans[48];
    char sets[1024];
    int n = 0;
    check_ok(ebb_plan_frontier(plans, 48, &n, config, &options, false));
    cr_assert_geq(n, 3);
    for (int i = 0; i < n; i += n / 2) {
        ebb_plan_info said = ebb_plan_info_get(plans[i]);
        check_ok(ebb_plan_save(plans[i], temp_path(&folder, "plan.json")));
        snprintf(sets, sizeof(sets), "memory.checkpoint=plan:%s", temp_path(&folder, "plan.json"));
        ebb_plan_info found = price_of(sets);
        cr_assert_eq(found.peak_reserved_bytes, said.peak_reserved_bytes);
        cr_assert_float_eq(found.overhead, said.overhead, 1e-9, "plan %d: %g, the planner said %g", i, found.overhead,
                           said.overhead);
        snprintf(sets, sizeof(sets), "memory.checkpoint=budget:%zu", said.peak_reserved_bytes);
        found = price_of(sets);
        cr_assert_leq(found.peak_reserved_bytes, said.peak_reserved_bytes);
        cr_assert_leq(found.overhead, said.overhead + 1e-9);
    }
    for (int i = 0; i < n; i++) ebb_plan_free(plans[i]);
    ebb_config_free(config);
    temp_folder_remove(&folder);
    check_no_live_blocks();
}

/* The limit is of a run; what it is compared with may be beyond it. */
Test(price, a_limit_is_of_the_config_and_not_of_keeping_everything)
{
    ebb_plan_info every = price_of("memory.checkpoint=every:1");
    char sets[100];
    snprintf(sets, sizeof(sets), "memory.checkpoint=every:1 memory.limit=%zu", every.peak_reserved_bytes);
    cr_assert_eq(price_of(sets).overhead, every.overhead);
    ebb_config *config = config_of(gpt, "memory.limit=2097152");
    ebb_train_options options = { .struct_bytes = sizeof(options) };
    ebb_plan_info info;
    check_fails(ebb_plan_price(&info, config, config, &options), EBB_ENOMEM);
    ebb_config_free(config);
    check_no_live_blocks();
}

Test(price, failing_allocations_are_told_and_leak_nothing)
{
    ebb_config *config = config_of(gpt, "model.layers=2 memory.checkpoint=every:1");
    ebb_train_options options = { .struct_bytes = sizeof(options), .threads = 2 };
    int64_t live = ebb_host_live_blocks();
    for (uint64_t n = 1;; n += 1 + n / 5) {
        ebb_plan_info info;
        ebb_fault_arm(n);
        ebb_status st = ebb_plan_price(&info, config, config, &options);
        bool fired = ebb_fault_fired();
        ebb_fault_arm(0);
        cr_assert_eq(st, fired ? EBB_ENOMEM : EBB_OK, "allocation %llu: %s", (unsigned long long)n, ebb_message());
        cr_assert_eq(ebb_host_live_blocks(), live, "allocation %llu leaks", (unsigned long long)n);
        if (!fired) break;
    }
    ebb_config_free(config);
    check_no_live_blocks();
}
