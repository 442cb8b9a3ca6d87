/* PyTorch's spelling of the settings, as text and as JSON. */
#include <stdlib.h>
#include <string.h>

#include "core/json.h"
#include "pool_rig.h"

static ebb__alloc_options parsed(const char *text)
{
    ebb__alloc_options o = ebb__alloc_options_default();
    check_ok(ebb__alloc_options_parse(&o, text, "EBB_ALLOC_CONF"));
    return o;
}

Test(options, nothing_is_the_defaults)
{
    ebb__alloc_options o = parsed(""), d = ebb__alloc_options_default();
    cr_assert(memcmp(&o, &d, sizeof o) == 0);
    cr_assert(o.max_split_bytes == 0 && o.max_non_split_rounding_bytes == 20 * MIB &&
              !o.expandable_segments);
    check_ok(ebb__alloc_options_parse(&o, NULL, "EBB_ALLOC_CONF"));
}

Test(options, every_key_is_read)
{
    ebb__alloc_options o =
        parsed("max_split_size_mb:64, garbage_collection_threshold:0.8,expandable_segments:True,"
               "max_non_split_rounding_mb:5,roundup_power2_divisions:4,offset_plan:true,"
               "deferred_release_mb:100");
    cr_assert(o.max_split_bytes == 64 * MIB && o.garbage_collection_threshold == 0.8 &&
              o.expandable_segments);
    cr_assert(o.max_non_split_rounding_bytes == 5 * MIB && o.offset_plan &&
              o.deferred_release_bytes == 100 * MIB);
    for (int i = 0; i < EBB__N_ROUNDING_INTERVALS; i++)
        cr_assert(o.roundup_power2_divisions[i] == 4);
    cr_assert_not(parsed("expandable_segments:True,expandable_segments:False").expandable_segments);
}

/* Interval i: sizes of 2^i to 2^(i+1) MiB.  A key holds for its interval, the first also below it. */
Test(options, divisions_are_given_per_interval)
{
    ebb__alloc_options o = parsed("roundup_power2_divisions:[256:1,512:2,>:4]");
    for (int i = 0; i <= 8; i++) cr_assert(o.roundup_power2_divisions[i] == 1, "interval %d", i);
    cr_assert(o.roundup_power2_divisions[9] == 2);
    for (int i = 10; i < EBB__N_ROUNDING_INTERVALS; i++)
        cr_assert(o.roundup_power2_divisions[i] == 4);
    o = parsed("roundup_power2_divisions:[64:8,256:4]");
    cr_assert(o.roundup_power2_divisions[6] == 8 && o.roundup_power2_divisions[7] == 0);
    cr_assert(o.roundup_power2_divisions[8] == 4 && o.roundup_power2_divisions[9] == 0);
}

Test(options, an_unknown_key_names_the_nearest_and_all_that_there_are)
{
    ebb__alloc_options o = parsed("max_split_size_mb:64"), before = o;
    check_fails(
        ebb__alloc_options_parse(&o, "offset_plan:True,max_splt_size_mb:32", "EBB_ALLOC_CONF"),
        EBB_EINVAL);
    check_message(
        "EBB_ALLOC_CONF: unknown key \"max_splt_size_mb\"; did you mean \"max_split_size_mb\"?");
    check_message("garbage_collection_threshold");
    cr_assert(memcmp(&o, &before, sizeof o) == 0, "an error changed the options");
}

Test(options, wrong_values_are_refused_and_say_what_is_allowed)
{
    static const char *const wrong[][2] = {
        { "max_split_size_mb:20", "from 21" },
        { "max_split_size_mb:x", "MiB" },
        { "max_split_size_mb:", "MiB" },
        { "garbage_collection_threshold:1", "below 1" },
        { "garbage_collection_threshold:0", "above 0" },
        { "garbage_collection_threshold:nan", "above 0" },
        { "expandable_segments:1", "True or False" },
        { "roundup_power2_divisions:3", "a power of 2" },
        { "roundup_power2_divisions:[512:1,256:2]", "growing" },
        { "roundup_power2_divisions:[256:3]", "a power of 2" },
        { "roundup_power2_divisions:[]", "a power of 2" },
        { "roundup_power2_divisions:[>:2,512:1]", "growing" },
        { "deferred_release_mb:-1", "MiB" },
        { "expandable_segments", "key:value" },
        { "roundup_power2_divisions:[256:1", "power" },
        { ",", "key:value" },
        { ":", "unknown key" },
    };
    for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++) {
        ebb__alloc_options o = ebb__alloc_options_default();
        check_fails(ebb__alloc_options_parse(&o, wrong[i][0], "here"), EBB_EINVAL);
        check_message("here");
        check_message(wrong[i][1]);
    }
}

static ebb_status from_json(char *text, size_t bytes, const char *json)
{
    cJSON *root = NULL;
    check_ok(ebb__json_parse(&root, json, strlen(json), NULL));
    ebb_status status = ebb__alloc_options_from_json(text, bytes, root, "memory.allocator");
    cJSON_Delete(root);
    return status;
}

Test(options, a_json_object_has_the_same_keys)
{
    char text[200];
    check_ok(from_json(text, sizeof text,
                       "{\"expandable_segments\": true, \"max_split_size_mb\": 64, "
                       "\"garbage_collection_threshold\": 0.5, "
                       "\"roundup_power2_divisions\": \"[256:1,>:4]\"}"));
    ebb__alloc_options o = parsed(text);
    cr_assert(o.expandable_segments && o.max_split_bytes == 64 * MIB &&
              o.garbage_collection_threshold == 0.5);
    cr_assert(o.roundup_power2_divisions[8] == 1 && o.roundup_power2_divisions[9] == 4);
    check_ok(from_json(text, sizeof text, "{}"));
    cr_assert_str_eq(text, "");
    check_fails(from_json(text, sizeof text, "{\"expandable_segment\": true}"), EBB_EINVAL);
    check_message("memory.allocator: unknown key \"expandable_segment\"; did you mean "
                  "\"expandable_segments\"?");
    check_fails(from_json(text, sizeof text, "{\"expandable_segments\": null}"), EBB_EINVAL);
    check_message("memory.allocator.expandable_segments");
    check_fails(from_json(text, 8, "{\"expandable_segments\": true}"), EBB_EINVAL);
}

Test(options, a_context_takes_them_and_the_environment_comes_first)
{
    with_options(ctx, ((ebb_context_options){ .device = "dry:cpu",
                                              .allocator = "expandable_segments:True" }))
        cr_assert(ctx != NULL);
    ebb_context *ctx = NULL;
    ebb_context_options o = { .struct_bytes = sizeof o, .checks = -1, .allocator = "nothing:1" };
    check_fails(ebb_context_new(&ctx, &o), EBB_EINVAL);
    check_message("allocator: unknown key \"nothing\"");
    cr_assert(setenv("EBB_ALLOC_CONF", "expandable_segment:True", 1) == 0);
    o.allocator = NULL;
    check_fails(ebb_context_new(&ctx, &o), EBB_EINVAL);
    check_message("EBB_ALLOC_CONF");
    unsetenv("EBB_ALLOC_CONF");
    check_no_live_blocks();
}
