/* Which texts are JSON, and where the others go wrong. */
#include <dirent.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "core/json.h"
#include "support/support.h"

static ebb_status check_text(const char *text) { return ebb__json_check(text, strlen(text), "f"); }

Test(json_scan, accepts_the_whole_grammar)
{
    static const char *const texts[] = {
        "0",
        "-0",
        "-0.5e+10",
        "1E9",
        "1e-9",
        "120",
        "true",
        "false",
        "null",
        "\"\"",
        "[]",
        "{}",
        " [ ] ",
        "\t\r\n{ } \n",
        "[1,2 , 3]",
        "{\"a\" : 1 , \"b\":[{}]}",
        "\"\\\"\\\\\\/\\b\\f\\n\\r\\t\\u00e9\"",
        "\"\\uD834\\uDD1E\"",
        "\"\xF0\x9D\x84\x9E \xC3\xA9 \xE2\x82\xAC\x7F\"",
        "\"\\u0000\"",
        "{\"a\":1,\"a\":2}",
        "{\"\":{\"\":{\"\":[]}}}",
        "1e999",
    };
    for (size_t i = 0; i < sizeof texts / sizeof *texts; i++) check_ok(check_text(texts[i]));
}

typedef struct bad {
    const char *text, *message;
} bad;

Test(json_scan, says_line_column_and_what_was_expected)
{
    static const bad rows[] = {
        { "", "f:1:1: expected a value, got the end of the text" },
        { "  \n ", "f:2:2: expected a value, got the end of the text" },
        { "nul", "f:1:1: expected a value, got 'n'" },
        { "[1,]", "f:1:4: expected a value, got ']'" },
        { "[1 2]", "f:1:4: expected ',' or ']', got '2'" },
        { "[1}", "f:1:3: expected ',' or ']', got '}'" },
        { "{\n  \"a\": 1,\n  b: 2\n}", "f:3:3: expected a key in double quotes, got 'b'" },
        { "{\"a\":1,}", "f:1:8: expected a key in double quotes, got '}'" },
        { "{\"a\" 1}", "f:1:6: expected ':' after the key, got '1'" },
        { "{\"a\":1 \"b\":2}", "f:1:8: expected ',' or '}', got '\"'" },
        { "1 2", "f:1:3: expected the end of the text after the value, got '2'" },
        { "01", "f:1:1: a number must not begin with 0" },
        { "-01", "f:1:1: a number must not begin with 0" },
        { "-", "f:1:2: expected a digit, got the end of the text" },
        { "1.", "f:1:3: expected a digit after the point, got the end of the text" },
        { "1.e5", "f:1:3: expected a digit after the point, got 'e'" },
        { "1e+", "f:1:4: expected a digit in the exponent, got the end of the text" },
        { "+1", "f:1:1: expected a value, got '+'" },
        { "[NaN]", "f:1:2: expected a value, got 'N'" },
        { "\"abc", "f:1:1: the string that begins here does not end" },
        { "\"a\tb\"", "f:1:3: the control character 0x09 must be written as \\u0009" },
        { "\"\\x\"", "f:1:3: expected one of \" \\ / b f n r t u after the backslash, got 'x'" },
        { "\"\\u12g4\"", "f:1:6: expected four hexadecimal digits after \\u, got 'g'" },
        { "\"\\", "f:1:3: expected one of" },
        { "\"\\uD800\"", "f:1:2: the surrogate \\uD800 is not part of a pair" },
        { "\"\\uD800\\n\"", "f:1:2: the surrogate \\uD800" },
        { "\"\\uD800\\u0041\"", "f:1:2: the surrogate \\uD800" },
        { "\"\\uDC00\\uD800\"", "f:1:2: the surrogate \\uDC00" },
        { "\"\xC3\xA9\xC3\xA9\xFF\"", "f:1:4: the byte 0xFF is not valid UTF-8 here" },
        { "\"\xC0\xAF\"", "f:1:2: the byte 0xC0" },
        { "\"\xED\xA0\x80\"", "f:1:2: the byte 0xED" },
        { "\"\xF4\x90\x80\x80\"", "f:1:2: the byte 0xF4" },
        { "\"\xE2\x82\"", "f:1:2: the byte 0xE2" },
        { "[\xC3\xA9]", "f:1:2: expected a value, got '\xC3\xA9'" },
        { "[\x01]", "f:1:2: expected a value, got the byte 0x01" },
        { "\xEF\xBB\xBF{}", "f:1:1: a byte order mark is not allowed" },
        { "[1,\v2]", "f:1:4: expected a value, got the byte 0x0B" },
        { "// x\n1", "f:1:1: expected a value, got '/'" },
    };
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        cr_assert_eq(check_text(rows[i].text), EBB_EFORMAT, "%s", rows[i].text);
        cr_assert(strncmp(ebb_message(), rows[i].message, strlen(rows[i].message)) == 0,
                  "%s:\n  %s\nexpected\n  %s", rows[i].text, ebb_message(), rows[i].message);
    }
}

/* Texts are not NUL-terminated: what is behind the end must not be read. */
Test(json_scan, reads_no_byte_beyond_the_end)
{
    static const char *const texts[] = { "[1,2]", "{\"a\":true}", "\"\\u00e9\xE2\x82\xAC\"",
                                         "-1.5e+7", "null" };
    for (size_t i = 0; i < sizeof texts / sizeof *texts; i++) {
        size_t whole = strlen(texts[i]);
        for (size_t n = 0; n <= whole; n++) {
            char *exact = malloc(n ? n : 1);
            memcpy(exact, texts[i], n);
            ebb_status st = ebb__json_check(exact, n, NULL);
            cr_assert(n == whole ? st == EBB_OK : st == EBB_OK || st == EBB_EFORMAT);
            free(exact);
        }
    }
}

Test(json_scan, a_zero_byte_is_no_end)
{
    check_fails(ebb__json_check("1\0", 2, NULL), EBB_EFORMAT);
    check_message("JSON:1:2: expected the end of the text after the value, got the byte 0x00");
    check_fails(ebb__json_check("\"\0\"", 3, NULL), EBB_EFORMAT);
    check_fails(ebb__json_check("\"\\\0\"", 4, NULL), EBB_EFORMAT);
}

static ebb_status check_nested(int depth, const char *open, const char *close)
{
    size_t n = (size_t)depth * (strlen(open) + strlen(close)) + 1;
    char *text = calloc(n + 1, 1), *end = text;
    for (int i = 0; i < depth; i++) end = stpcpy(end, open);
    *end++ = '1';
    for (int i = 0; i < depth; i++) end = stpcpy(end, close);
    ebb_status st = ebb__json_check(text, n, "f");
    free(text);
    return st;
}

Test(json_scan, nests_512_deep_and_no_deeper)
{
    check_ok(check_nested(512, "[", "]"));
    check_ok(check_nested(512, "{\"a\":", "}"));
    check_fails(check_nested(513, "[", "]"), EBB_EFORMAT);
    check_message("f:1:513: nested more than 512 deep");
    check_fails(check_nested(100000, "[", "]"), EBB_EFORMAT);
    check_fails(check_nested(100000, "{\"a\":", "}"), EBB_EFORMAT);
}

/* "PATH:LINE:COLUMN: what" with both numbers from 1. */
static bool has_position(const char *path)
{
    size_t line = 0, column = 0;
    const char *after = ebb_message() + strlen(path);
    return strncmp(ebb_message(), path, strlen(path)) == 0 &&
           sscanf(after, ":%zu:%zu: ", &line, &column) == 2 && line >= 1 && column >= 1;
}

static void check_vector(const char *folder, const char *name)
{
    char path[1024];
    size_t bytes;
    snprintf(path, sizeof path, "%s/%s", folder, name);
    char *text = read_text(path, &bytes);
    ebb_status st = ebb__json_check(text, bytes, name);
    if (name[0] == 'y') cr_assert_eq(st, EBB_OK, "%s: %s", name, ebb_message());
    if (name[0] == 'n') cr_assert_eq(st, EBB_EFORMAT, "%s was accepted", name);
    cr_assert(st == EBB_OK || (st == EBB_EFORMAT && has_position(name)), "%s", ebb_message());

    cJSON *tree = NULL;
    ebb_status parsed = ebb__json_parse(&tree, text, bytes, name);
    cr_assert(parsed == EBB_OK || (parsed == EBB_EFORMAT && has_position(name)), "%s",
              ebb_message());
    cr_assert(st == EBB_OK || parsed == EBB_EFORMAT, "%s: the tree is not stricter", name);
    /* What configs are read with accepts what is valid, but for a key given twice. */
    if (name[0] == 'y' && parsed != EBB_OK)
        cr_assert(strstr(name, "duplicated_key") && strstr(ebb_message(), "duplicate key"),
                  "%s: %s", name, ebb_message());
    cJSON_Delete(tree);
    free(text);
}

Test(json_scan, agrees_with_JSONTestSuite)
{
    char folder[512];
    need_shared(folder, "data/json/JSONTestSuite/test_parsing");
    int n = 0;
    DIR *entries = opendir(folder);
    cr_assert_not_null(entries);
    for (struct dirent *entry; (entry = readdir(entries));)
        if (strchr("yni", entry->d_name[0])) check_vector(folder, entry->d_name), n++;
    closedir(entries);
    cr_assert_gt(n, 100, "%d vectors", n);
    check_no_live_blocks();
}
