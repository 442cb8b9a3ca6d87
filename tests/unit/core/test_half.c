/* f16 and bf16 as bits. */
#include <math.h>

#include "core/half.h"
#include "core/rng.h"
#include "support/support.h"

Test(half, bf16_rounds_to_nearest_even)
{
    static const struct {
        uint32_t f32;
        uint16_t bf16;
    } rows[] = {
        { 0x3F800000, 0x3F80 },
        { 0x3F808000, 0x3F80 } /* tie: down to even */,
        { 0x3F818000, 0x3F82 } /* tie: up to even */,
        { 0x3F808001, 0x3F81 },
        { 0x3F807FFF, 0x3F80 },
        { 0x80000000, 0x8000 },
        { 0x00008000, 0x0000 },
        { 0x00018000, 0x0002 },
        { 0x00000001, 0x0000 },
        { 0x7F7FFFFF, 0x7F80 } /* the largest f32 rounds to infinity */,
        { 0x7F7F7FFF, 0x7F7F },
        { 0x7F800000, 0x7F80 },
        { 0xFF800000, 0xFF80 },
    };
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++)
        cr_assert_eq(ebb__f32_to_bf16(ebb__bits_f32(rows[i].f32)), rows[i].bf16, "%08X",
                     (unsigned)rows[i].f32);
}

Test(half, f16_rounds_to_nearest_even)
{
    static const struct {
        float f32;
        uint16_t f16;
    } rows[] = {
        { 1.0f, 0x3C00 },
        { 0x1.002p0f, 0x3C00 } /* tie: down */,
        { 0x1.006p0f, 0x3C02 } /* tie: up */,
        { 0x1.002002p0f, 0x3C01 },
        { -2.0f, 0xC000 },
        { -0.0f, 0x8000 },
        { 65504.0f, 0x7BFF },
        { 65519.0f, 0x7BFF },
        { 65520.0f, 0x7C00 } /* tie: up, to infinity */,
        { 0x1p-14f, 0x0400 },
        { 0x1p-24f, 0x0001 },
        { 0x1p-25f, 0x0000 } /* tie: down */,
        { 0x1.8p-24f, 0x0002 } /* tie: up */,
        { 0x1.000002p-25f, 0x0001 },
        { INFINITY, 0x7C00 },
        { -INFINITY, 0xFC00 },
    };
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++)
        cr_assert_eq(ebb__f32_to_f16(rows[i].f32), rows[i].f16, "%a: %04X", (double)rows[i].f32,
                     ebb__f32_to_f16(rows[i].f32));
}

Test(half, nan_stays_nan)
{
    static const uint32_t nans[] = { 0x7FC00000, 0x7F800001, 0x7FFFFFFF,
                                     0xFFFFFFFF, 0xFF800001, 0x7F80FFFF };
    for (size_t i = 0; i < sizeof nans / sizeof *nans; i++) {
        float nan = ebb__bits_f32(nans[i]);
        cr_assert(isnan(ebb__bf16_to_f32(ebb__f32_to_bf16(nan))), "%08X", (unsigned)nans[i]);
        cr_assert(isnan(ebb__f16_to_f32(ebb__f32_to_f16(nan))), "%08X", (unsigned)nans[i]);
    }
}

Test(half, all_values_come_back)
{
    for (uint32_t bits = 0; bits < 65536; bits++) {
        float from_bf16 = ebb__bf16_to_f32((uint16_t)bits),
              from_f16 = ebb__f16_to_f32((uint16_t)bits);
        cr_assert(isnan(from_bf16) || ebb__f32_to_bf16(from_bf16) == bits, "bf16 %04X",
                  (unsigned)bits);
        cr_assert(isnan(from_f16) || ebb__f32_to_f16(from_f16) == bits, "f16 %04X", (unsigned)bits);
    }
}

/* Of the two neighbours the nearer one; both exact as double. */
Test(half, random_values_go_to_the_nearer_neighbour)
{
    for (uint64_t i = 0; i < 20000; i++) {
        uint32_t words[4];
        ebb__philox(3, i, words);
        float x = ebb__bits_f32(words[0] & 0xBFFFFFFFu); /* below 2, so no overflow */
        uint16_t bf16 = ebb__f32_to_bf16(x), f16 = ebb__f32_to_f16(x);
        double error_bf16 = fabs((double)ebb__bf16_to_f32(bf16) - x);
        double error_f16 = fabs((double)ebb__f16_to_f32(f16) - x);
        for (int step = -1; step <= 1; step += 2) {
            double other_bf16 = ebb__bf16_to_f32((uint16_t)(bf16 + step));
            double other_f16 = ebb__f16_to_f32((uint16_t)(f16 + step));
            cr_assert(!(fabs(other_bf16 - x) < error_bf16), "%a", (double)x);
            cr_assert(!(fabs(other_f16 - x) < error_f16), "%a", (double)x);
        }
    }
}
