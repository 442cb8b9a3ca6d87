/* Sizes as text, both ways. */
#include <stdint.h>

#include "core/rng.h"
#include "support/support.h"

Test(size, parses_what_people_write)
{
    static const struct {
        const char *text;
        size_t bytes;
    } rows[] = {
        { "0", 0 },
        { "1500000", 1500000 },
        { "12B", 12 },
        { "512MiB", (size_t)512 << 20 },
        { "2GiB", (size_t)2 << 30 },
        { "1.5GiB", (size_t)3 << 29 },
        { "1.50 GiB", (size_t)3 << 29 },
        { "3 kib", 3072 },
        { "1TiB", (size_t)1 << 40 },
        { "2PiB", (size_t)2 << 50 },
        { "24GB", 24000000000 },
        { "1kB", 1000 },
        { "1.5MB", 1500000 },
        { "1TB", 1000000000000 },
        { "0.3KiB", 307 },
        { "18446744073709551615", SIZE_MAX },
    };
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        size_t bytes = 7;
        check_ok(ebb_size_parse(&bytes, rows[i].text));
        cr_assert_eq(bytes, rows[i].bytes, "%s: %zu", rows[i].text, bytes);
    }
}

Test(size, refuses_the_rest_and_says_what_is_allowed)
{
    static const char *const texts[] = {
        "",
        " ",
        "-1",
        "+1",
        "MiB",
        "1X",
        "1 MiB ",
        "1.MiB",
        ".5MiB",
        "1.5",
        "1.5B",
        "0x10",
        "1e3",
        "18446744073709551616",
        "16777216TiB",
        "99999999999999999999",
        "1,5MiB",
        "inf",
        "1.0000000000000000001MiB",
    };
    for (size_t i = 0; i < sizeof texts / sizeof *texts; i++) {
        size_t bytes = 7;
        cr_assert_eq(ebb_size_parse(&bytes, texts[i]), EBB_EINVAL, "\"%s\" passed", texts[i]);
        check_message("MiB");
        cr_assert_eq(bytes, 7, "the variable keeps what it held");
    }
}

Test(size, formats_with_two_digits)
{
    static const struct {
        size_t bytes;
        const char *text;
    } rows[] = {
        { 0, "0 B" },
        { 1023, "1023 B" },
        { 1024, "1.00 KiB" },
        { 1536, "1.50 KiB" },
        { 1048575, "1.00 MiB" },
        { 1048576, "1.00 MiB" },
        { 1043333, "1018.88 KiB" },
        { (size_t)3 << 29, "1.50 GiB" },
        { (size_t)5 << 40, "5.00 TiB" },
        { SIZE_MAX, "16.00 EiB" },
    };
    char text[32];
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++)
        cr_assert_str_eq(ebb_size_format(rows[i].bytes, text, sizeof text), rows[i].text);
}

Test(size, a_short_buffer_is_not_overrun)
{
    char text[5] = "....";
    cr_assert_str_eq(ebb_size_format(1536, text, 4), "1.5");
    cr_assert_eq(text[4], '\0');
}

Test(size, what_is_formatted_parses_to_within_half_a_percent)
{
    for (uint64_t i = 0; i < 2000; i++) {
        uint32_t words[4];
        ebb__philox(5, i, words);
        size_t bytes = (((size_t)words[0] << 32) | words[1]) >> (14 + words[2] % 50), back;
        char text[32];
        check_ok(ebb_size_parse(&back, ebb_size_format(bytes, text, sizeof text)));
        double error = (double)back - (double)bytes;
        cr_assert(error <= 0.005 * (double)bytes && error >= -0.005 * (double)bytes - 1,
                  "%zu -> %s", bytes, text);
    }
}
