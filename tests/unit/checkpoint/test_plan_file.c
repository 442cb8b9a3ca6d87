/* Plan files: what is written is read, what is edited holds, what is wrong is told. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "checkpoint/plan_file.h"
#include "support/support.h"

static const char hash[] = "0123456789abcdef0123456789abcdef0123456789abcdef0123456789abcdef";

#define HEAD "{\"schema\":1,\"config_sha256\":\"0123456789abcdef0123456789abcdef0123456789abcdef0123456789abcdef\","

static ebb_status load(ebb_plan **out, const char *text, int blocks)
{
    temp_folder folder = temp_folder_make();
    write_text(temp_path(&folder, "p.json"), text);
    ebb_status st = ebb__plan_load(out, temp_path(&folder, "p.json"), blocks, hash);
    temp_folder_remove(&folder);
    return st;
}

static void check_refused(const char *text, ebb_status status, const char *says)
{
    ebb_plan *plan = NULL;
    check_fails(load(&plan, text, 8), status);
    check_message(says);
    check_message("p.json");
    cr_assert_null(plan);
    check_no_live_blocks();
}

static ebb_plan *some_plan(void)
{
    static const ebb_block_range segments[] = { { 0, 5 }, { 0, 3 }, { 1, 2 }, { 5, 5 }, { 7, 7 } };
    ebb_plan *plan = NULL;
    check_ok(ebb__plan_new(&plan, 8));
    memcpy(plan->segments, segments, sizeof(segments));
    plan->n_segments = 5;
    for (int b = 2; b < 5; b++) plan->ops[b] = ebb__plan_op(plan, ebb_op_find("gelu"));
    plan->offload[6] = true;
    plan->ops[6] = plan->ops[2] | ebb__plan_op(plan, ebb_op_find("layernorm"));
    memcpy(plan->config_sha256, hash, sizeof(hash));
    return plan;
}

Test(plan_file, a_plan_comes_back_as_it_was)
{
    temp_folder folder = temp_folder_make();
    ebb_plan *plan = some_plan(), *back = NULL;
    check_ok(ebb_plan_save(plan, temp_path(&folder, "p.json")));
    check_ok(ebb__plan_load(&back, temp_path(&folder, "p.json"), 8, hash));
    cr_assert_eq(back->n_segments, 5);
    cr_assert_arr_eq(back->segments, plan->segments, 5 * sizeof(plan->segments[0]));
    cr_assert_arr_eq(back->ops, plan->ops, 8 * sizeof(plan->ops[0]));
    cr_assert_arr_eq(back->offload, plan->offload, 8 * sizeof(plan->offload[0]));
    cr_assert(ebb__plan_same(back, plan));
    char *a = ebb_plan_print(plan), *b = ebb_plan_print(back);
    cr_assert_str_eq(a, b);
    char *words = ebb_plan_describe(back);
    cr_assert_str_eq(words, "5 segments, 3 deep, over 7 of 8 blocks; gelu in 4, layernorm in 1; 1 offloaded");
    free(words);
    free(a);
    free(b);
    ebb_plan_free(plan);
    ebb_plan_free(back);
    temp_folder_remove(&folder);
    check_no_live_blocks();
}

Test(plan_file, an_edited_plan_is_read)
{
    ebb_plan *plan = NULL;
    check_ok(load(&plan, HEAD "\"segments\":[{\"blocks\":[1,6],\"inside\":[{\"blocks\":[4,5]}]}],"
                              "\"recompute\":[{\"blocks\":[0,7],\"ops\":[\"gelu\"]},{\"blocks\":[2,2],\"ops\":[\"add\"]}]}", 8));
    cr_assert_eq(plan->n_segments, 2);
    cr_assert_eq(plan->segments[1].first, 4);
    cr_assert_eq(plan->ops[0], 1);
    cr_assert_eq(plan->ops[2], 3);
    ebb_plan_free(plan);
    check_ok(load(&plan, HEAD "\"segments\":[]}", 8));
    cr_assert_eq(plan->n_segments, 0);
    ebb_plan_free(plan);
    check_no_live_blocks();
}

Test(plan_file, what_is_wrong_is_told)
{
    check_refused("{}", EBB_EINVAL, "plan.schema");
    check_refused("{\"schema\":1,", EBB_EFORMAT, "p.json");
    check_refused("{\"schema\":7,\"config_sha256\":\"a\"}", EBB_EUNSUPPORTED, "schema 7");
    check_refused("{\"schema\":1,\"config_sha256\":\"a\"}", EBB_EINVAL, "another config");
    check_refused(HEAD "\"segmnts\":[]}", EBB_EINVAL, "segments");
    check_refused(HEAD "\"segments\":3}", EBB_EFORMAT, "plan.segments");
    check_refused(HEAD "\"segments\":[{\"blocks\":[0,8]}]}", EBB_EFORMAT, "last < 8");
    check_refused(HEAD "\"segments\":[{\"blocks\":[3,2]}]}", EBB_EFORMAT, "plan.segments[0].blocks");
    check_refused(HEAD "\"segments\":[{\"blocks\":[0,1.5]}]}", EBB_EFORMAT, "[first, last]");
    check_refused(HEAD "\"segments\":[{\"blocks\":[0,3]},{\"blocks\":[3,4]}]}", EBB_EFORMAT, "plan.segments[1]");
    check_refused(HEAD "\"segments\":[{\"blocks\":[0,3],\"inside\":[{\"blocks\":[2,4]}]}]}", EBB_EFORMAT,
                  "plan.segments[0].inside[0]");
    check_refused(HEAD "\"segments\":[{\"blocks\":[0,3],\"inside\":[{\"blocks\":[2,3]},{\"blocks\":[3,3]}]}]}", EBB_EFORMAT,
                  "here no block is free any more");
    check_refused(HEAD "\"segments\":[{\"blocks\":[0,3]},{\"blocks\":[2,6]}]}", EBB_EFORMAT, "here blocks 4 to 7 are free");
    check_refused(HEAD "\"segments\":[{\"blocks\":[0,3],\"inside\":[{\"blocks\":[0,3]}]}]}", EBB_EFORMAT, "fewer blocks");
    check_refused(HEAD "\"recompute\":[{\"blocks\":[0,3],\"ops\":[\"geluu\"]}]}", EBB_EFORMAT,
                  "plan.recompute[0].ops: no op \"geluu\"; did you mean \"gelu\"?");
    check_refused(HEAD "\"recompute\":[{\"blocks\":[0,3],\"ops\":[3]}]}", EBB_EFORMAT, "a list of op names");
    check_refused(HEAD "\"recompute\":{}}", EBB_EFORMAT, "plan.recompute: expected a list of");
    check_refused(HEAD "\"recompute\":[{\"blocks\":[0,3]}]}", EBB_EINVAL, "ops");
    check_refused(HEAD "\"offload\":[3]}", EBB_EFORMAT, "plan.offload[0]: expected [first, last]");
    check_refused(HEAD "\"offload\":true}", EBB_EFORMAT, "plan.offload");
    check_refused(HEAD "\"offload\":[[0,8]]}", EBB_EFORMAT, "last < 8");
    check_refused(HEAD "\"offload\":[[0,1],[4,5]],\"segments\":[{\"blocks\":[5,6]}]}", EBB_EINVAL,
                  "block 5 is offloaded, and in segment 0");
}

Test(plan_file, any_list_may_be_absent)
{
    ebb_plan *plan = NULL;
    check_ok(load(&plan, "{\"schema\":1,\"config_sha256\":\"0123456789abcdef0123456789abcdef0123456789abcdef0123456789abcdef\"}", 8));
    char *words = ebb_plan_describe(plan);
    cr_assert_str_eq(words, "everything kept");
    free(words);
    ebb_plan_free(plan);
    check_no_live_blocks();
}

/* Segments [0, blocks - 1], [0, blocks - 2] ...: as deep as `depth`. */
static char *nested_text(int depth)
{
    char *text = malloc(256 + 64 * (size_t)depth);
    int n = sprintf(text, HEAD "\"segments\":");
    for (int d = 0; d < depth; d++) n += sprintf(text + n, "[{\"blocks\":[0,%d]%s", 199 - d, d + 1 < depth ? ",\"inside\":" : "");
    for (int d = 0; d < depth; d++) n += sprintf(text + n, "}]");
    (void)sprintf(text + n, "}");
    return text;
}

Test(plan_file, segments_nest_128_deep_and_no_deeper)
{
    ebb_plan *plan = NULL;
    char *most = nested_text(128), *more = nested_text(129);
    check_ok(load(&plan, most, 200));
    cr_assert_eq(plan->n_segments, 128);
    ebb_plan_free(plan);
    plan = NULL;
    check_fails(load(&plan, more, 200), EBB_EFORMAT);
    check_message("segments nest deeper than 128");
    check_message("p.json: plan.segments[0].inside");
    free(most);
    free(more);
    check_no_live_blocks();
}

/* Plans that differ in how many blocks recompute an op do not read the same. */
Test(plan_file, words_tell_in_how_many_blocks_each_op_is)
{
    ebb_plan *plan = NULL;
    check_ok(ebb__plan_new(&plan, 8));
    uint32_t gelu = ebb__plan_op(plan, ebb_op_find("gelu")), linear = ebb__plan_op(plan, ebb_op_find("linear")),
             norm = ebb__plan_op(plan, ebb_op_find("layernorm"));
    for (int b = 0; b < 7; b++) plan->ops[b] = gelu | norm | (b < 3 ? linear : 0);
    char *words = ebb_plan_describe(plan);
    cr_assert_str_eq(words, "gelu, layernorm in 7, linear in 3 of 8 blocks");
    free(words);
    ebb_plan_free(plan);
    check_no_live_blocks();
}

Test(plan_file, every_failing_allocation_is_told_and_leaks_nothing)
{
    temp_folder folder = temp_folder_make();
    ebb_plan *plan = some_plan();
    check_ok(ebb_plan_save(plan, temp_path(&folder, "p.json")));
    ebb_plan_free(plan);
    for (uint64_t n = 1;; n++) {
        plan = NULL;
        ebb_fault_arm(n);
        ebb_status st = ebb__plan_load(&plan, temp_path(&folder, "p.json"), 8, hash);
        bool fired = ebb_fault_fired();
        ebb_fault_arm(0);
        cr_assert_eq(st, fired ? EBB_ENOMEM : EBB_OK);
        ebb_plan_free(plan);
        check_no_live_blocks();
        if (!fired) break;
    }
    temp_folder_remove(&folder);
}
