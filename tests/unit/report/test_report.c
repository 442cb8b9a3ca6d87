#include <ebb/report.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "support/support.h"

static char *printed(void (*print)(FILE *file))
{
    char *text = NULL;
    size_t bytes = 0;
    FILE *file = open_memstream(&text, &bytes);
    cr_assert(file != NULL);
    print(file);
    fclose(file);
    return text;
}

static void print_table(FILE *file)
{
    static const char *const titles[] = { "name", ">bytes", "note" };
    ebb_table *table = NULL;
    check_ok(ebb_table_new(&table, 3, titles));
    check_ok(ebb_table_row(table, (const char *const[]){ "none", "12", "a" }));
    check_ok(ebb_table_row(table, (const char *const[]){ "every:1", "3", "" }));
    ebb_table_print(table, file);
    ebb_table_free(table);
}

Test(report, a_table_aligns_its_columns)
{
    char *text = printed(print_table);
    cr_assert_str_eq(
        text, "name     bytes  note\n--------------------\nnone        12  a\nevery:1      3  \n");
    free(text);
    check_no_live_blocks();
}

Test(report, a_table_has_a_bounded_number_of_columns)
{
    ebb_table *table = NULL;
    check_fails(ebb_table_new(&table, 0, NULL), EBB_EINVAL);
    check_fails(ebb_table_new(&table, EBB_TABLE_COLUMNS + 1, NULL), EBB_EINVAL);
    ebb_table_free(NULL);
}

static void print_memory(FILE *file)
{
    ebb_memory_stats stats = { .peak_allocated_bytes = 4096, .peak_reserved_bytes = 8192 };
    stats.by_category_at_peak[EBB_CAT_PARAMETER] = 1024;
    stats.by_category_at_peak[EBB_CAT_ACTIVATION] = 3072;
    ebb_memory_print(&stats, file);
}

Test(report, memory_lists_categories_from_the_largest_and_leaves_empty_ones_out)
{
    char *text = printed(print_memory);
    const char *activations = strstr(text, "activations"), *parameters = strstr(text, "parameters");
    cr_assert(activations && parameters && activations < parameters, "%s", text);
    cr_assert(strstr(text, "75.0 %") && strstr(text, "8.00 KiB") && !strstr(text, "optimizer"),
              "%s", text);
    free(text);
}

static void check_time(double seconds, const char *expected)
{
    char buf[32];
    cr_assert_str_eq(ebb_time_format(seconds, buf, sizeof(buf)), expected);
}

Test(report, times_are_short)
{
    check_time(1.24, "1.2 s");
    check_time(42, "42 s");
    check_time(200, "3 min 20 s");
    check_time(7500, "2 h 5 min");
    check_time(-1, "0.0 s");
}

static void check_count(double count, const char *expected)
{
    char buf[32];
    cr_assert_str_eq(ebb_count_format(count, buf, sizeof(buf)), expected);
}

Test(report, counts_have_three_digits)
{
    check_count(950, "950");
    check_count(12345, "12.3 k");
    check_count(4.56e6, "4.56 M");
    check_count(999999, "1.00 M");
    check_count(146e9, "146 G");
}

static void print_progress(FILE *file)
{
    ebb_progress_line line = { .file = file };
    ebb_progress p = { .phase = "train",
                       .step = 1,
                       .steps = 10,
                       .loss = 2.5,
                       .items_per_s = 1234,
                       .item = "tokens",
                       .allocated_bytes = 1024,
                       .peak_allocated_bytes = 2048,
                       .seconds_left = 90 };
    ebb_progress_show(&line, &p);
    ebb_progress_show(&line, &p); /* too soon: not painted */
    ebb_progress_clear(&line);
}

Test(report, the_progress_line_is_painted_over_itself_and_removed)
{
    char *text = printed(print_progress);
    cr_assert(text[0] == '\r' && strstr(text, "1/10  loss 2.5000  1.23 k tokens/s"), "%s", text);
    cr_assert(strstr(text, "mem 1.00 KiB (peak 2.00 KiB)  1 min 30 s left"), "%s", text);
    cr_assert(strstr(text + 2, "train") == NULL, "painted twice within 100 ms");
    cr_assert_eq(text[strlen(text) - 1], '\r');
    free(text);
}

static void print_nothing(FILE *file)
{
    (void)file;
    ebb_progress_line line = { .file = NULL };
    ebb_progress p = { .phase = "train", .step = 1, .steps = 1, .item = "tokens" };
    ebb_progress_show(&line, &p);
    ebb_progress_clear(&line);
    cr_assert_eq(line.shown, 0);
}

Test(report, a_progress_line_without_a_file_shows_nothing)
{
    char *text = printed(print_nothing);
    cr_assert_str_eq(text, "");
    free(text);
}

Test(report, the_build_tells_what_it_is)
{
    ebb_build_info b = ebb_build_info_get();
    cr_assert_str_eq(b.version, EBB_VERSION);
    cr_assert(b.cores >= 1 && b.n_ops == ebb_op_count() && strstr(b.blas, "OpenBLAS"));
}

Test(report, words_that_are_near_are_found)
{
    static const char *const words[] = { "train", "compare" };
    cr_assert_str_eq(ebb_nearest_word("trian", words, 2), "train");
    cr_assert(ebb_nearest_word("zzzzzzzz", words, 2) == NULL);
}

Test(report, bytes_become_utf8_text)
{
    static const struct { const char *bytes; size_t n; const char *text; } cases[] = {
        { "plain", 5, "plain" }, { "", 0, "" }, { "\xC3\xA4\xE2\x82\xAC", 5, "\xC3\xA4\xE2\x82\xAC" },
        { "a\0b", 3, "a\xEF\xBF\xBD" "b" }, { "\xE2\x82", 2, "\xEF\xBF\xBD\xEF\xBF\xBD" },
        { "\xFFz", 2, "\xEF\xBF\xBDz" },
    };
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        char text[32];
        ebb_utf8_text(text, cases[i].bytes, cases[i].n);
        cr_assert_str_eq(text, cases[i].text, "case %zu", i);
    }
}
