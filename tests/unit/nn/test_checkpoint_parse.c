#include <ebb/nn.h>
#include <stdio.h>

#include "support/support.h"

enum { BLOCKS = 10 };

/* The ranges as text: "0-2 3-5". */
static void check_ranges(const char *json, int blocks, const char *expected)
{
    ebb_block_range ranges[BLOCKS];
    char text[256] = "";
    int n = -1, at = 0;
    check_ok(ebb_checkpoint_parse(ranges, &n, blocks, json, "memory.checkpoint"));
    for (int i = 0; i < n; i++)
        at += snprintf(text + at, sizeof(text) - (size_t)at, "%s%d-%d", i ? " " : "",
                       ranges[i].first, ranges[i].last);
    cr_assert_str_eq(text, expected);
}

static void check_refused(const char *json, ebb_status status, const char *message)
{
    ebb_block_range ranges[BLOCKS];
    int n;
    check_fails(ebb_checkpoint_parse(ranges, &n, BLOCKS, json, "memory.checkpoint"), status);
    check_message("memory.checkpoint");
    check_message(message);
    check_no_live_blocks();
}

Test(checkpoint_parse, none_makes_no_segment) { check_ranges("\"none\"", 10, ""); }

Test(checkpoint_parse, every_k_makes_segments_of_k_and_a_rest)
{
    check_ranges("\"every:1\"", 3, "0-0 1-1 2-2");
    check_ranges("\"every:4\"", 10, "0-3 4-7 8-9");
    check_ranges("\"every:99\"", 3, "0-2");
    check_ranges("\"every:99999999999999999999\"", 3, "0-2");
}

Test(checkpoint_parse, sqrt_rounds)
{
    check_ranges("\"sqrt\"", 1, "0-0");
    check_ranges("\"sqrt\"", 3, "0-1 2-2");
    check_ranges("\"sqrt\"", 6, "0-1 2-3 4-5");
    check_ranges("\"sqrt\"", 10, "0-2 3-5 6-8 9-9");
}

Test(checkpoint_parse, ranges_include_both_ends)
{
    check_ranges("[[0, 3], [5, 5]]", 10, "0-3 5-5");
    check_ranges("[]", 10, "");
}

Test(checkpoint_parse, wrong_values_say_what_is_allowed)
{
    check_refused("\"every:0\"", EBB_EINVAL, "every:K");
    check_refused("\"every:\"", EBB_EINVAL, "every:K");
    check_refused("\"every:2x\"", EBB_EINVAL, "every:K");
    check_refused("\"all\"", EBB_EINVAL, "sqrt");
    check_refused("3", EBB_EINVAL, "sqrt");
    check_refused("[[0, 10]]", EBB_EINVAL, "10");
    check_refused("[[3, 2]]", EBB_EINVAL, "first <= last");
    check_refused("[[0, 3], [3, 4]]", EBB_EINVAL, "overlaps");
    check_refused("[[0]]", EBB_EINVAL, "[first, last]");
    check_refused("[[0, 1.5]]", EBB_EINVAL, "[first, last]");
    check_refused("[[-1, 1]]", EBB_EINVAL, "[first, last]");
}

Test(checkpoint_parse, plans_and_budgets_need_a_whole_config)
{
    check_refused("\"plan:a.json\"", EBB_EINVAL, "whole config");
    check_refused("\"budget:1GiB\"", EBB_EINVAL, "whole config");
}
