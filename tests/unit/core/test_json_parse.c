/* Trees: what a tree would hide is refused; every allocation may fail. */
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "core/json.h"
#include "support/support.h"

static ebb_status parse(cJSON **out, const char *text)
{
    return ebb__json_parse(out, text, strlen(text), "c.json");
}

static void check_refused(const char *text, const char *message)
{
    cJSON *tree = NULL;
    check_fails(parse(&tree, text), EBB_EFORMAT);
    check_message(message);
    cr_assert_null(tree);
}

Test(json_parse, gives_a_tree)
{
    cJSON *tree = NULL;
    check_ok(parse(&tree, "{\"a\": [1, true, \"x\\u00e9\\uD834\\uDD1E\"], \"A\": null}"));
    const cJSON *a = cJSON_GetObjectItemCaseSensitive(tree, "a");
    cr_assert_eq(cJSON_GetArraySize(a), 3);
    cr_assert_str_eq(cJSON_GetArrayItem(a, 2)->valuestring, "x\xC3\xA9\xF0\x9D\x84\x9E");
    cr_assert(cJSON_IsNull(cJSON_GetObjectItemCaseSensitive(tree, "A")));
    cr_assert_gt(ebb_host_live_blocks(), 0, "cJSON allocates with ebb__malloc");
    cJSON_Delete(tree);
    check_no_live_blocks();
}

/* Field case B69: a config with "lr" twice. */
Test(json_parse, a_key_given_twice_is_refused)
{
    check_refused("{\"optimizer\": {\n  \"lr\": 1,\n  \"lr\": 2}}",
                  "c.json:3:3: duplicate key \"lr\"");
    check_refused("{\"a\":1,\"\\u0061\":2}", "c.json:1:8: duplicate key \"\\u0061\"");
    check_refused("{\"\xC3\xA9\":1,\"\\u00E9\":2}", "duplicate");
    check_refused("{\"\xE2\x82\xAC\":1,\"\\u20ac\":2}", "duplicate");
    check_refused("{\"\xF0\x9D\x84\x9E\":1,\"\\uD834\\uDD1E\":2}", "duplicate");
    check_refused("{\"\\n\\t\":1,\"\\u000a\\u0009\":2}", "duplicate");
    check_refused("{\"\":1,\"\":2}", "duplicate key \"\"");
    check_refused("[{\"a\":{\"a\":1},\"b\":{\"a\":1},\"a\":1}]",
                  "c.json:1:27: duplicate key \"a\"");
    check_no_live_blocks();
}

Test(json_parse, keys_that_only_look_alike_are_accepted)
{
    cJSON *tree = NULL;
    check_ok(parse(
        &tree,
        "[{\"a\":1,\"A\":1,\"aa\":1,\"\":1,\"a \":1,\"\\\\u0061\":1},{\"a\":{\"a\":{\"a\":[]}}}]"));
    cJSON_Delete(tree);
    check_no_live_blocks();
}

Test(json_parse, a_key_given_twice_is_found_among_thousands)
{
    enum { N = 20000 };
    static char text[N * 12 + 100];
    char *end = stpcpy(text, "{");
    for (int i = 0; i < N; i++) end += sprintf(end, "\"k%d\":0,", i);
    strcpy(end, "\"last\":0}");
    cJSON *tree = NULL;
    check_ok(parse(&tree, text));
    cJSON_Delete(tree);
    strcpy(end, "\"k12345\":0}");
    check_refused(text, "duplicate key \"k12345\"");
    check_no_live_blocks();
}

Test(json_parse, a_long_duplicate_key_is_shown_cut)
{
    char text[1000] = "{\"", *end = text + 2;
    for (int i = 0; i < 100; i++) end = stpcpy(end, "\xE2\x82\xAC");
    memcpy(end, "\":1,\"", 5);
    memcpy(end + 5, text + 2, 300);
    strcpy(end + 305, "\":1}");
    check_refused(text, "duplicate key \"\xE2\x82\xAC");
    cr_assert_lt(strlen(ebb_message()), 150);
    cr_assert_str_eq(ebb_message() + strlen(ebb_message()) - 4, "\xE2\x82\xAC\"",
                     "a character was cut");
}

/* A number in an array, given as n copies of `digit` between two texts. */
static void check_number(const char *before, char digit, size_t n, const char *after, double value)
{
    char text[2000];
    cJSON *tree = NULL;
    size_t used = (size_t)sprintf(text, "[\"-1\\\"2\", %s", before);
    memset(text + used, digit, n);
    sprintf(text + used + n, "%s ,true]", after);
    check_ok(parse(&tree, text));
    cr_assert_eq(cJSON_GetArraySize(tree), 3, "%s", text);
    cr_assert_str_eq(cJSON_GetArrayItem(tree, 0)->valuestring, "-1\"2");
    cr_assert_eq(cJSON_GetArrayItem(tree, 1)->valuedouble, value, "%s", text);
    cr_assert(cJSON_IsTrue(cJSON_GetArrayItem(tree, 2)));
    cJSON_Delete(tree);
}

Test(json_parse, a_number_of_any_length_is_read_whole)
{
    check_number("0.1", '0', 60, "", 0.1);
    check_number("0.1", '0', 61, "", 0.1);
    check_number("0.1", '0', 70, "e-5", 1e-6); /* cut short it would be 0.1 */
    check_number("-0.", '0', 90, "1", -1e-91);
    check_number("1", '0', 80, "", 1e80);
    check_number("1", '0', 80, "E-80", 1);
    check_number("-1", '0', 1500, "", -INFINITY); /* as -1e1500 is; the reader of fields refuses it */
    /* 2^53 + 1 lies between two doubles: the last digit, beyond the 63rd, says which is nearer. */
    check_number("9007199254740993.", '0', 70, "", 9007199254740992.0);
    check_number("9007199254740993.", '0', 70, "1", 9007199254740994.0);
    check_no_live_blocks();
}

Test(json_parse, a_long_number_alone_ends_with_the_text)
{
    char text[] = "0.30000000000000000000000000000000000000000000000000000000000000000001X";
    cJSON *tree = NULL;
    check_ok(ebb__json_parse(&tree, text, sizeof text - 2, "f"));
    cr_assert_eq(tree->valuedouble, 0.3);
    cJSON_Delete(tree);
    check_no_live_blocks();
}

Test(json_parse, a_zero_character_does_not_end_a_string)
{
    cJSON *tree = NULL;
    check_ok(parse(&tree, "{\"a\\u0000b\":\"\\u0000\\\\u0000\\u00001\",\"a\":\"\\\\u0000\"}"));
    cr_assert_str_eq(tree->child->string, "a" EBB__JSON_ZERO "b");
    cr_assert_str_eq(tree->child->valuestring, EBB__JSON_ZERO "\\u0000" EBB__JSON_ZERO "1");
    const cJSON *a = cJSON_GetObjectItemCaseSensitive(tree, "a");
    cr_assert_str_eq(a->valuestring, "\\u0000", "\"a\" is another key");
    cJSON_Delete(tree);
    check_refused("{\"a\\u0000b\":1,\"a\\u0000b\":2}", "duplicate");
    check_no_live_blocks();
}

Test(json_parse, every_allocation_may_fail)
{
    for (uint64_t n = 1;; n++) {
        cJSON *tree = NULL;
        ebb_fault_arm(n);
        ebb_status st = parse(&tree, "{\"a\":[1,2,{\"b\":\"te\\u0000xt\"}],\"c\":{\"d\":\"\"}}");
        if (!ebb_fault_fired()) {
            check_ok(st);
            cr_assert_gt(n, 10);
            cJSON_Delete(tree);
            check_no_live_blocks();
            return;
        }
        check_fails(st, EBB_ENOMEM);
        cr_assert_null(tree);
        check_no_live_blocks();
    }
}

Test(json_parse, loads_a_file)
{
    temp_folder folder = temp_folder_make();
    const char *path = temp_path(&folder, "a.json");
    cJSON *tree = NULL;
    write_text(path, "{\"a\": 1}\n");
    check_ok(ebb__json_load(&tree, path));
    cr_assert_eq(cJSON_GetObjectItemCaseSensitive(tree, "a")->valuedouble, 1);
    cJSON_Delete(tree);
    tree = NULL;
    write_text(path, "{\"a\": }\n");
    check_fails(ebb__json_load(&tree, path), EBB_EFORMAT);
    check_message("a.json:1:7: expected a value");
    check_fails(ebb__json_load(&tree, folder.path), EBB_EIO);
    check_message("is a folder");
    check_fails(ebb__json_load(&tree, temp_path(&folder, "none.json")), EBB_EIO);
    check_message("none.json");
    cr_assert_null(tree);
    temp_folder_remove(&folder);
    check_no_live_blocks();
}
