/* The bytes of pickles and JSON, by hand. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "report/emit.h"
#include "report/strings.h"
#include "support/support.h"

static void write_sample(ebb__emit *e)
{
    static const uint64_t numbers[] = { 0,     255,        256,         65535,
                                        65536, 2147483647, 2147483648u, 1099511627776u };
    ebb__emit_dict(e);
    ebb__emit_key(e, "n");
    ebb__emit_list(e);
    for (size_t i = 0; i < sizeof numbers / sizeof numbers[0]; i++) ebb__emit_number(e, numbers[i]);
    ebb__emit_end(e);
    ebb__emit_key(e, "t");
    ebb__emit_text(e, "a\"<");
    ebb__emit_key(e, "b");
    ebb__emit_bool(e, true);
    ebb__emit_end(e);
}

static char *emitted(bool pickle, size_t *bytes, void (*fill)(ebb__emit *e))
{
    temp_folder folder = temp_folder_make();
    const char *path = temp_path(&folder, "x");
    ebb__emit emit;
    ebb__out out = ebb__out_begin(path);
    ebb__emit_begin(&emit, &out, pickle);
    fill(&emit);
    ebb__emit_finish(&emit);
    check_ok(ebb__out_end(&out));
    char *text = read_text(path, bytes);
    temp_folder_remove(&folder);
    return text;
}

Test(emit, json_is_written_with_commas_and_escapes)
{
    size_t bytes = 0;
    char *text = emitted(false, &bytes, write_sample);
    cr_assert_str_eq(
        text, "{\"n\": [0,\n255,\n256,\n65535,\n65536,\n2147483647,\n2147483648,\n1099511627776], "
              "\"t\": \"a\\u0022\\u003c\", \"b\": true}\n");
    free(text);
    check_no_live_blocks();
}

Test(emit, a_pickle_uses_the_shortest_number_that_fits)
{
    static const unsigned char expected[] =
        "\x80\x02}(X\x01\0\0\0nq\0](K\0K\xffM\0\x01M\xff\xffJ\0\0\x01\0J\xff\xff\xff\x7f"
        "\x8a\x08\0\0\0\x80\0\0\0\0\x8a\x08\0\0\0\0\0\x01\0\0"
        "eX\x01\0\0\0tq\x01X\x03\0\0\0a\"<q\x02X\x01\0\0\0bq\x03\x88u.";
    size_t bytes = 0;
    char *text = emitted(true, &bytes, write_sample);
    cr_assert(bytes == sizeof expected - 1, "%zu bytes, not %zu", bytes, sizeof expected - 1);
    cr_assert(memcmp(text, expected, bytes) == 0);
    free(text);
    check_no_live_blocks();
}

static void write_long_list(ebb__emit *e)
{
    ebb__emit_list(e);
    for (int i = 0; i < EBB__EMIT_BATCH + 1; i++) ebb__emit_text(e, "same");
    ebb__emit_end(e);
}

/* The reader passes a batch as the arguments of a call, so that it must be bounded. */
Test(emit, a_long_list_comes_in_batches_and_texts_once)
{
    size_t bytes = 0, n_batches = 0, n_texts = 0;
    char *text = emitted(true, &bytes, write_long_list);
    for (size_t i = 0; i + 4 <= bytes; i++) n_texts += memcmp(text + i, "same", 4) == 0;
    for (size_t i = 2; i < bytes; i++) n_batches += text[i] == '(';
    cr_assert(n_texts == 1, "%zu", n_texts);
    cr_assert(n_batches == 2, "%zu", n_batches);
    free(text);
}

Test(strings, each_text_has_one_index_and_none_is_the_empty_one)
{
    ebb__strings s = { 0 };
    uint32_t a, b, c, none;
    char name[32];
    check_ok(ebb__strings_add(&s, &none, NULL));
    check_ok(ebb__strings_add(&s, &a, "linear"));
    for (int i = 0; i < 500; i++) {
        snprintf(name, sizeof name, "blocks.%d", i);
        check_ok(ebb__strings_add(&s, &b, name));
    }
    check_ok(ebb__strings_add(&s, &c, "linear"));
    cr_assert(none == 0 && a == c && a == 1 && s.n == 502);
    cr_assert_str_eq(s.texts[b], "blocks.499");
    ebb__strings_deinit(&s);
    check_no_live_blocks();
}
