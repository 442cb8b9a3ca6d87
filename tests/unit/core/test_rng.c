/* Philox and what is drawn from it. */
#include "core/rng.h"

#include <math.h>
#include <string.h>

#include "support/support.h"

/* The authors' known answers for philox4x32 with 10 rounds; our upper counter words are 0. */
Test(rng, philox_gives_the_known_answer)
{
    static const uint32_t expected[4] = { 0x6627e8d5, 0xe169c58d, 0xbc57ac4c, 0x9b00dbd8 };
    uint32_t words[4];
    ebb__philox(0, 0, words);
    cr_assert_arr_eq(words, expected, sizeof words);
}

Test(rng, seed_and_counter_both_change_all_words)
{
    uint32_t a[4], b[4], c[4], d[4], e[4];
    ebb__philox(0, 0, a);
    ebb__philox(1, 0, b);
    ebb__philox(0, 1, c);
    ebb__philox((uint64_t)1 << 32, 0, d);
    ebb__philox(0, (uint64_t)1 << 32, e);
    for (int i = 0; i < 4; i++)
        cr_assert(a[i] != b[i] && a[i] != c[i] && a[i] != d[i] && a[i] != e[i] && b[i] != d[i] &&
                  c[i] != e[i]);
}

Test(rng, uniform_is_in_zero_to_one)
{
    cr_assert_eq(ebb__u01_f32(0), 0.0f);
    cr_assert_eq(ebb__u01_f32(UINT32_MAX), 1.0f - 0x1p-24f);
    cr_assert_eq(ebb__u01_f64(0, 0), 0.0);
    cr_assert_eq(ebb__u01_f64(UINT32_MAX, UINT32_MAX), 1.0 - 0x1p-53);
    cr_assert_eq(ebb__u01_f64(0x80000000u, 0), 0.5);
}

enum { N = 200000 };

Test(rng, normal_has_the_moments_of_a_normal)
{
    static double x[N];
    double sum = 0, squares = 0, cubes = 0, fourths = 0, neighbours = 0;
    ebb__normal_f64(42, 7, x, N);
    for (int i = 0; i < N; i++) {
        cr_assert(isfinite(x[i]));
        sum += x[i];
        squares += x[i] * x[i];
        cubes += x[i] * x[i] * x[i];
        fourths += x[i] * x[i] * x[i] * x[i];
        if (i > 0) neighbours += x[i] * x[i - 1];
    }
    /* Five standard errors: sqrt(1, 2, 15, 96, 1 over N). */
    cr_assert_lt(fabs(sum / N), 5 * sqrt(1.0 / N));
    cr_assert_lt(fabs(squares / N - 1), 5 * sqrt(2.0 / N));
    cr_assert_lt(fabs(cubes / N), 5 * sqrt(15.0 / N));
    cr_assert_lt(fabs(fourths / N - 3), 5 * sqrt(96.0 / N));
    cr_assert_lt(fabs(neighbours / N), 5 * sqrt(1.0 / N));
}

Test(rng, normal_draws_continue_at_the_next_counter)
{
    double whole[10], parts[10];
    ebb__normal_f64(9, 100, whole, 10);
    ebb__normal_f64(9, 100, parts, 4);
    ebb__normal_f64(9, 102, parts + 4, 6);
    cr_assert_arr_eq(whole, parts, sizeof whole);
}

Test(rng, an_odd_count_of_normals_writes_no_further)
{
    double x[4] = { 0, 0, 0, 77 }, y[4];
    ebb__normal_f64(9, 0, x, 3);
    ebb__normal_f64(9, 0, y, 4);
    cr_assert_arr_eq(x, y, 3 * sizeof *x);
    cr_assert_eq(x[3], 77);
    ebb__normal_f64(9, 0, x + 3, 0);
    cr_assert_eq(x[3], 77);
}

Test(rng, a_permutation_is_a_bijection_that_depends_on_seed_and_stream)
{
    static int64_t a[1000], b[1000], again[1000];
    bool seen[1000] = { false };
    ebb__permutation(7, 0, a, 1000);
    ebb__permutation(7, 0, again, 1000);
    cr_assert_arr_eq(a, again, sizeof a);
    for (int i = 0; i < 1000; i++) {
        cr_assert(a[i] >= 0 && a[i] < 1000 && !seen[a[i]]);
        seen[a[i]] = true;
    }
    ebb__permutation(7, 1, b, 1000);
    cr_assert_arr_neq(a, b, sizeof a);
    ebb__permutation(8, 0, b, 1000);
    cr_assert_arr_neq(a, b, sizeof a);
}

Test(rng, permutations_of_none_and_one_work)
{
    int64_t index[2] = { 5, 5 };
    ebb__permutation(1, 1, index, 0);
    cr_assert_eq(index[0], 5);
    ebb__permutation(1, 1, index, 1);
    cr_assert_eq(index[0], 0);
    cr_assert_eq(index[1], 5);
}

Test(rng, the_six_orders_of_three_are_equally_likely)
{
    enum { DRAWS = 60000 };
    int counts[27] = { 0 };
    for (uint64_t stream = 0; stream < DRAWS; stream++) {
        int64_t p[3];
        ebb__permutation(1, stream, p, 3);
        counts[p[0] * 9 + p[1] * 3 + p[2]]++;
    }
    int orders = 0;
    for (int i = 0; i < 27; i++) {
        if (counts[i] == 0) continue;
        orders++;
        /* 10000 expected, standard deviation sqrt(60000 * 1/6 * 5/6) = 91 */
        cr_assert_lt(abs(counts[i] - DRAWS / 6), 5 * 92);
    }
    cr_assert_eq(orders, 6);
}

Test(rng, a_mixed_seed_changes_half_of_its_bits)
{
    int changed = 0;
    for (uint64_t i = 0; i < 64; i++) {
        changed +=
            __builtin_popcountll(ebb__seed_mix(3, 5) ^ ebb__seed_mix(3 ^ UINT64_C(1) << i, 5));
        changed +=
            __builtin_popcountll(ebb__seed_mix(3, 5) ^ ebb__seed_mix(3, 5 ^ UINT64_C(1) << i));
    }
    /* 128 trials of 64 bits: mean 4096, standard deviation 45. */
    cr_assert(changed > 4096 - 5 * 46 && changed < 4096 + 5 * 46, "%d", changed);
    cr_assert_neq(ebb__seed_mix(1, 2), ebb__seed_mix(2, 1));
}
