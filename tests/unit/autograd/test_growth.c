/* The rule of the leak watch alone, on series that are made up. */
#include "autograd/growth.h"

#include <ebb/leak.h>
#include <string.h>

#include "support/cases.h"
#include "support/support.h"

enum { MOST = 1000 };

/* verdicts[n]: after n steps of the series. */
typedef size_t series(int step, int parameter);

static void judge(bool verdicts[MOST + 1], series *level, int parameter)
{
    ebb__growth g;
    memset(&g, 0, sizeof g);
    verdicts[0] = ebb__growth_goes_on(&g);
    for (int n = 1; n <= MOST; n++) {
        ebb__growth_add(&g, level(n, parameter));
        verdicts[n] = ebb__growth_goes_on(&g);
    }
}

static size_t ring(int step, int size) { return 7 + (size_t)(step < size ? step : size); }
static size_t periodic(int step, int period) { return 7 + (size_t)(step / period); }

Test(growth, rings_are_none_once_they_were_full_for_a_while)
{
    static bool grows[MOST + 1];
    for (int size = 1; size <= 100; size++) {
        judge(grows, ring, size);
        for (int n = 0; n <= MOST; n++)
            cr_assert(!grows[n] || n < 1.4 * size, "a ring of %d after %d steps", size, n);
        if (size <= 13)
            for (int n = 0; n <= MOST; n++) cr_assert(!grows[n], "a ring of %d after %d steps", size, n);
        if (size >= EBB_LEAK_STEPS) cr_assert(grows[size], "while it fills up it cannot be told from a leak");
    }
}

Test(growth, what_one_step_in_k_leaves_is_found_and_stays_found)
{
    static bool grows[MOST + 1];
    for (int period = 1; period <= 12; period++) {
        judge(grows, periodic, period);
        for (int n = 0; n < EBB_LEAK_STEPS; n++) cr_assert(!grows[n], "too early: after %d steps", n);
        bool found = false;
        for (int n = EBB_LEAK_STEPS; n <= MOST; n++) {
            cr_assert(grows[n] || n < 12 * period, "one step in %d is missed after %d steps", period, n);
            cr_assert(grows[n] || !found, "one step in %d was found, and is not after %d steps", period, n);
            found = grows[n];
        }
    }
    judge(grows, periodic, 4);
    cr_assert(grows[32], "one step in four, after 32");
}

/* One more at each of the steps 3, 6, 10, 40, 300. */
static size_t one_offs(int step, int at_all)
{
    const int steps[] = { 3, 6, 10, 40, 300 };
    size_t sum = 7;
    for (int i = 0; i < at_all; i++) sum += step >= steps[i];
    return sum;
}

/* Bytes that differ from step to step, as batches of different length do. */
static size_t noise(int step, int seed)
{
    uint64_t x = (uint64_t)step * 0x9e3779b97f4a7c15u + (uint64_t)seed * 0xbf58476d1ce4e5b9u;
    x ^= x >> 29;
    x *= 0x94d049bb133111ebu;
    return 1000 + (size_t)((x >> 40) % 500);
}

static size_t flat(int step, int level) { return step > 1 ? (size_t)level : 1; }
/* Fills up and is emptied, again and again. */
static size_t saw(int step, int length) { return 7 + (size_t)(step % length); }
static size_t falling(int step, int from) { return (size_t)(from > step ? from - step : 0); }
/* A buffer that doubles when it is full. */
static size_t doubling(int step, int first)
{
    size_t n = (size_t)first;
    while (n < (size_t)step) n *= 2;
    return n;
}

Test(growth, what_does_not_go_on_is_none)
{
    static bool grows[MOST + 1];
    const struct { const char *name; series *level; int from, to; } cases[] = {
        { "flat", flat, 1, 3 },     { "one-offs", one_offs, 1, 5 }, { "noise", noise, 1, 40 },
        { "falling", falling, 500, 501 }, { "doubling", doubling, 1, 20 }, { "saw", saw, 1, 12 },
    };
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++)
        for (int p = cases[i].from; p <= cases[i].to; p++) {
            judge(grows, cases[i].level, p);
            for (int n = 0; n <= MOST; n++) cr_assert(!grows[n], "%s, %d: after %d steps", cases[i].name, p, n);
        }
}

/* 3 more each step, in noise. */
static size_t under_noise(int step, int seed) { return 3 * (size_t)step + noise(step, seed); }
/* Nothing for 200 steps, then one each step. */
static size_t late(int step, int from) { return (size_t)(step > from ? step - from : 0) + 7; }

Test(growth, leaks_are_found_under_noise_and_when_they_begin_late)
{
    static bool grows[MOST + 1];
    for (int seed = 0; seed < 20; seed++) {
        judge(grows, under_noise, seed);
        for (int n = 670; n <= MOST; n++) /* 3 n / 4 is more than the noise */
            cr_assert(grows[n], "noise %d: after %d steps", seed, n);
    }
    judge(grows, late, 200);
    for (int n = 0; n <= 200; n++) cr_assert(!grows[n]);
    for (int n = 2 * 200 + 100; n <= MOST; n++) cr_assert(grows[n], "after %d steps", n);
    judge(grows, ring, 4 * MOST);
    cr_assert(grows[MOST], "a list of a size that was never reached");
}

/* ---- verdicts ----------------------------------------------------------------------------- */

typedef bool verdict(const ebb__growth *g);

/* The steps after which the verdict is a leak: how many, the first and the last; 0 where none. */
typedef struct told { int n, first, last; } told;

static told told_of(verdict *is_leak, series *level, int parameter, int steps)
{
    static ebb__growth g;
    told t = { 0 };
    memset(&g, 0, sizeof g);
    for (int step = 1; step <= steps; step++) {
        ebb__growth_add(&g, level(step, parameter));
        if (!is_leak(&g)) continue;
        if (t.n++ == 0) t.first = step;
        t.last = step;
    }
    return t;
}

static uint64_t drawn(int step, int seed)
{
    uint64_t x = (uint64_t)step * 0x9e3779b97f4a7c15u + (uint64_t)seed * 0xd1342543de82ef95u + 0x632be59bd9b4e019u;
    x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9u;
    x = (x ^ (x >> 27)) * 0x94d049bb133111ebu;
    return x ^ (x >> 31);
}

/* Rings whose entries differ: parameter = seed * 100 + entries; each of 1 to 5000. */
static size_t of_sizes(int step, int parameter)
{
    size_t sum = 7;
    for (int i = 0; i < parameter % 100 && i < step; i++) sum += 1 + drawn(step - i, parameter / 100) % 5000;
    return sum;
}
/* The same of 0 to 4, and replaced each third step only. */
static size_t of_counts(int step, int parameter)
{
    size_t sum = 7;
    for (int i = 0; i < parameter % 100 && i < step; i++) sum += drawn(step - i, parameter / 100) % 5;
    return sum;
}
static size_t of_sizes_now_and_then(int step, int parameter) { return of_sizes(1 + step / 3, parameter); }
/* Begins at step 1 + seed. */
static size_t of_sizes_later(int step, int parameter)
{
    const int begins = parameter / 100;
    return step > begins ? of_sizes(step - begins, parameter) : 7;
}

Test(growth, short_rings_whose_entries_differ_are_none)
{
    enum { SEEDS = CASES(400, 20), STEPS = 400 };
    const struct { const char *name; verdict *is_leak; series *level; } cases[] = {
        { "sizes", ebb__growth_of_size, of_sizes },
        { "counts", ebb__growth_of_count, of_counts },
        { "sizes, one step in three", ebb__growth_of_size, of_sizes_now_and_then },
        { "sizes, later", ebb__growth_of_size, of_sizes_later },
    };
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++)
        for (int entries = 1; entries <= 13; entries++)
            for (int seed = 0; seed < SEEDS; seed++) {
                const told t = told_of(cases[i].is_leak, cases[i].level, seed * 100 + entries, STEPS);
                cr_expect_eq(t.n, 0, "%s, %d, seed %d: from step %d to %d", cases[i].name, entries, seed, t.first,
                             t.last);
            }
}

/* parameter = entries * 1000 + the steps before. */
static size_t ring_later(int step, int parameter)
{
    const int begins = parameter % 1000, entries = parameter / 1000;
    return ring(step > begins ? step - begins : 0, entries);
}
static size_t periodic_later(int step, int parameter)
{
    const int begins = parameter % 1000, period = parameter / 1000;
    return step > begins ? periodic(step - begins, period) : 7;
}

/* Found by then, and so at each step from then on. */
static void check_found(verdict *is_leak, int parameter, int by, const char *name)
{
    const int begins = parameter % 1000, period = parameter / 1000;
    static ebb__growth g;
    memset(&g, 0, sizeof g);
    for (int step = 1; step <= by + 600; step++) {
        ebb__growth_add(&g, periodic_later(step, parameter));
        if (step <= begins) cr_assert(!is_leak(&g), "%s: before it begins", name);
        if (step >= by) cr_assert(is_leak(&g), "%s: one step in %d from %d on, at %d", name, period, begins, step);
    }
}

Test(growth, a_leak_that_begins_at_any_step_is_found_soon)
{
    for (int period = 1; period <= 12; period++)
        for (int begins = 0; begins < 1000; begins += begins < 70 ? CASES(1, 7) : 61) {
            const int parameter = period * 1000 + begins;
            check_found(ebb__growth_of_count, parameter, begins ? begins + 18 * period : period == 1 ? 16 : 12 * period, "count");
            check_found(ebb__growth_of_size, parameter, begins + (period == 1 ? 32 : 50 * period), "size");
        }
    for (int begins = 16; begins < 1000; begins += CASES(1, 13))
        cr_assert_leq(told_of(ebb__growth_of_count, periodic_later, 1000 + begins, begins + 20).first, begins + 16);
}

Test(growth, a_ring_is_none_once_it_was_full_for_a_while_whenever_it_begins)
{
    for (int entries = 1; entries <= 60; entries += CASES(1, 4))
        for (int begins = 0; begins < 300; begins += begins < 40 ? CASES(1, 7) : 13)
            for (int of_size = 0; of_size < 2; of_size++) {
                const told t = told_of(of_size ? ebb__growth_of_size : ebb__growth_of_count, ring_later,
                                       entries * 1000 + begins, 900);
                cr_assert(t.n == 0 || entries > 13, "%d entries, from %d: %d", entries, begins, t.first);
                cr_assert(t.last < 1.4 * (begins + entries), "%d entries, from %d: %d", entries, begins, t.last);
            }
}

Test(growth, a_list_that_is_cleared_is_none_from_then_on)
{
    for (int length = 2; length <= 200; length++)
        for (int of_size = 0; of_size < 2; of_size++) {
            const told t = told_of(of_size ? ebb__growth_of_size : ebb__growth_of_count, saw, length, 8 * length);
            cr_assert_lt(t.last, length, "cleared every %d steps: %d to %d", length, t.first, t.last);
        }
}
