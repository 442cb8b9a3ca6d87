/* Any bytes as JSON: never a crash, never a leak, and the answers agree with one another. */
#include <ebb/memory.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "core/json.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t bytes);

#define REQUIRE(cond)                                                                              \
    do {                                                                                           \
        if (!(cond)) {                                                                             \
            fprintf(stderr, "fuzz_json: line %d: %s; message: %s\n", __LINE__, #cond,              \
                    ebb_message());                                                                \
            abort();                                                                               \
        }                                                                                          \
    } while (0)

typedef struct sink {
    int64_t whole;
    double number, pair[2];
    bool flag;
    char text[8];
    int choice;
    size_t size;
} sink;

static const char *const choices[] = { "x", "y", NULL };

static const ebb__field fields[] = {
    { .key = "a", .kind = EBB__INT, .offset = offsetof(sink, whole), .min = -5, .max = 5 },
    { .key = "b", .kind = EBB__NUMBER, .offset = offsetof(sink, number) },
    { .key = "c", .kind = EBB__PAIR, .offset = offsetof(sink, pair) },
    { .key = "d", .kind = EBB__BOOL, .offset = offsetof(sink, flag) },
    { .key = "e", .kind = EBB__STRING, .offset = offsetof(sink, text), .bytes = 8 },
    { .key = "f", .kind = EBB__CHOICE, .offset = offsetof(sink, choice), .choices = choices },
    { .key = "g", .kind = EBB__SIZE, .offset = offsetof(sink, size) },
};

/* What cJSON prints of a tree is JSON again, but for zero characters.  Returns whether it has some. */
static bool check_print(const cJSON *tree)
{
    char *text = cJSON_PrintUnformatted(tree);
    REQUIRE(text);
    bool zero = strstr(text, EBB__JSON_ZERO) != NULL;
    REQUIRE(zero || ebb__json_check(text, strlen(text), "printed") == EBB_OK);
    cJSON_free(text);
    return zero;
}

static void check_tree(cJSON *tree)
{
    sink s = { 0 };
    bool zero = check_print(tree);
    ebb_status st = ebb__json_read(&s, tree, "p", fields, sizeof fields / sizeof *fields);
    REQUIRE(st == EBB_EINVAL || (st == EBB_OK && !zero));
    REQUIRE(memchr(s.text, '\0', sizeof s.text));
}

/* The bytes as an assignment to a small tree. */
static void check_set(const uint8_t *data, size_t bytes)
{
    static const char start[] = "{\"a\":[1,{\"b\":2}],\"c\":null}";
    cJSON *tree = NULL;
    char *text = malloc(bytes + 1);
    REQUIRE(text);
    memcpy(text, data, bytes);
    text[bytes] = '\0';
    REQUIRE(ebb__json_parse(&tree, start, strlen(start), NULL) == EBB_OK);
    ebb_status st = ebb__json_set(tree, text);
    REQUIRE(st == EBB_OK || st == EBB_EINVAL);
    check_print(tree);
    cJSON_Delete(tree);
    free(text);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t bytes)
{
    const char *text = (const char *)data;
    cJSON *tree = NULL;
    ebb_status checked = ebb__json_check(text, bytes, NULL);
    REQUIRE(checked == EBB_OK || checked == EBB_EFORMAT);
    ebb_status parsed = ebb__json_parse(&tree, text, bytes, NULL);
    REQUIRE(parsed == EBB_OK || parsed == EBB_EFORMAT);
    REQUIRE(checked == EBB_OK || parsed == EBB_EFORMAT);
    if (parsed == EBB_OK) check_tree(tree);
    cJSON_Delete(tree);
    check_set(data, bytes);
    REQUIRE(ebb_host_live_blocks() == 0);
    return 0;
}
