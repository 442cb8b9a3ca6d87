/* One value of a tree, set from the command line. */
#include <string.h>

#include "core/json.h"
#include "support/support.h"

static const char start[] = "{\"a\":{\"b\":1,\"c\":[10,20,{\"d\":0}]},\"e\":null}";

static cJSON *new_tree(void)
{
    cJSON *tree = NULL;
    check_ok(ebb__json_parse(&tree, start, strlen(start), NULL));
    return tree;
}

static void check_tree(const cJSON *tree, const char *expected)
{
    char *text = cJSON_PrintUnformatted(tree);
    cr_assert_str_eq(text, expected);
    cJSON_free(text);
}

typedef struct change {
    const char *assignment, *result;
} change;

Test(json_set, sets_what_the_path_names)
{
    static const change rows[] = {
        { "a.b=2", "{\"a\":{\"b\":2,\"c\":[10,20,{\"d\":0}]},\"e\":null}" },
        { "a.b=three", "{\"a\":{\"b\":\"three\",\"c\":[10,20,{\"d\":0}]},\"e\":null}" },
        { "a.b=", "{\"a\":{\"b\":\"\",\"c\":[10,20,{\"d\":0}]},\"e\":null}" },
        { "a.b=x=y", "{\"a\":{\"b\":\"x=y\",\"c\":[10,20,{\"d\":0}]},\"e\":null}" },
        { "a.b=\"4\"", "{\"a\":{\"b\":\"4\",\"c\":[10,20,{\"d\":0}]},\"e\":null}" },
        { "a.b={\"x\":[true]}",
          "{\"a\":{\"b\":{\"x\":[true]},\"c\":[10,20,{\"d\":0}]},\"e\":null}" },
        { "a.b=1.2.3", "{\"a\":{\"b\":\"1.2.3\",\"c\":[10,20,{\"d\":0}]},\"e\":null}" },
        { "a.c.0=11", "{\"a\":{\"b\":1,\"c\":[11,20,{\"d\":0}]},\"e\":null}" },
        { "a.c.2.d=5", "{\"a\":{\"b\":1,\"c\":[10,20,{\"d\":5}]},\"e\":null}" },
        { "a.c.2.n=5", "{\"a\":{\"b\":1,\"c\":[10,20,{\"d\":0,\"n\":5}]},\"e\":null}" },
        { "a=1", "{\"a\":1,\"e\":null}" },
        { "e=1", "{\"a\":{\"b\":1,\"c\":[10,20,{\"d\":0}]},\"e\":1}" },
        { "A=1", "{\"a\":{\"b\":1,\"c\":[10,20,{\"d\":0}]},\"e\":null,\"A\":1}" },
        { "n.m.k=1",
          "{\"a\":{\"b\":1,\"c\":[10,20,{\"d\":0}]},\"e\":null,\"n\":{\"m\":{\"k\":1}}}" },
    };
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        cJSON *tree = new_tree();
        check_ok(ebb__json_set(tree, rows[i].assignment));
        check_tree(tree, rows[i].result);
        cJSON_Delete(tree);
    }
    check_no_live_blocks();
}

Test(json_set, an_error_leaves_the_tree_as_it_was)
{
    static const struct {
        const char *assignment, *message;
    } rows[] = {
        { "a.b", "expected path=value, got \"a.b\"" },
        { "=1", "a part of the path before \"=\" is empty" },
        { "a..b=1", "empty" },
        { "a.=1", "empty" },
        { "a.b.x=1", "\"x\" is below a value that is neither an object nor an array" },
        { "e.x=1", "\"x\" is below a value" },
        { "a.c.3=1", "\"3\" is not an element of the array: it has 3" },
        { "a.c.x=1", "\"x\" is not an element" },
        { "a.c.-1=1", "\"-1\" is not an element" },
        { "a.c.1x=1", "\"1x\" is not an element" },
        { "a.c.99999999999999999999=1", "is not an element" },
        { "a.b={\"x\":1,}", "value:1:8: expected a key" },
        { "a.b=[1", "value:1:3" },
        { "a.b={\"x\":1,\"x\":1}", "duplicate" },
        { "a.b=\xFF", "byte 5 of the assignment is not valid UTF-8" },
    };
    cJSON *tree = new_tree();
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        cr_assert_eq(ebb__json_set(tree, rows[i].assignment), EBB_EINVAL, "%s", rows[i].assignment);
        check_message(rows[i].message);
    }
    check_tree(tree, start);
    cJSON_Delete(tree);
    check_no_live_blocks();
}

Test(json_set, a_path_of_very_many_parts_is_refused)
{
    static char text[3000];
    char *end = text;
    for (int i = 0; i < 600; i++) end = stpcpy(end, i ? ".a" : "b");
    strcpy(end, "=1");
    cJSON *tree = new_tree();
    check_fails(ebb__json_set(tree, text), EBB_EINVAL);
    check_message("more than 512 parts");
    cJSON_Delete(tree);
    check_no_live_blocks();
}

Test(json_set, a_root_that_is_no_object_is_refused)
{
    cJSON *tree = NULL;
    check_ok(ebb__json_parse(&tree, "3", 1, NULL));
    check_fails(ebb__json_set(tree, "a=1"), EBB_EINVAL);
    cJSON_Delete(tree);
}

/* Each kind of change, each allocation of it. */
Test(json_set, every_allocation_may_fail)
{
    static const char *const assignments[] = { "a.b=text", "n.m.k={\"x\":[1]}", "a.c.2.n=1",
                                               "a.c.0=\"x\"" };
    for (size_t i = 0; i < sizeof assignments / sizeof *assignments; i++) {
        cJSON *tree = new_tree();
        int64_t blocks = ebb_host_live_blocks();
        for (uint64_t n = 1;; n++) {
            ebb_fault_arm(n);
            ebb_status st = ebb__json_set(tree, assignments[i]);
            if (!ebb_fault_fired()) {
                ebb_fault_arm(0);
                check_ok(st);
                cr_assert_geq(n, 3);
                break;
            }
            check_fails(st, EBB_ENOMEM);
            cr_assert_eq(ebb_host_live_blocks(), blocks);
            ebb_fault_arm(0);
            check_tree(tree, start);
        }
        cJSON_Delete(tree);
        check_no_live_blocks();
    }
}
