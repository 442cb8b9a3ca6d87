/* What a calibration makes of its samples. */
#include <math.h>

#include "support/support.h"
#include "train/measure.h"

static void check_near(double value, double expected) { cr_assert(fabs(value - expected) < 1e-9, "%.12g, not %.12g", value, expected); }

Test(measure, a_median_is_of_the_middle_whatever_the_order)
{
    check_near(ebb__median((double[]){ 9, 1, 5 }, 3), 5);
    check_near(ebb__median((double[]){ 4, 100, 1, 2 }, 4), 3);
    check_near(ebb__median((double[]){ 7 }, 1), 7);
    check_near(ebb__median(NULL, 0), 0);
}

Test(measure, an_error_shrinks_with_the_root_of_the_runs)
{
    double samples[64];
    for (int i = 0; i < 64; i++) samples[i] = i % 2 ? 90 : 110;
    ebb__measure few = ebb__measure_of(samples, 16, 1), more = ebb__measure_of(samples, 64, 1);
    check_near(few.ns, 100);
    check_near(few.error, 1.4826 * 1.2533 * 10 / 4);
    check_near(more.error, few.error / 2);
    check_near(ebb__measure_of(samples, 64, 4).error, few.error); /* 16 runs of 4 steps */
}

Test(measure, one_step_that_is_far_off_changes_little)
{
    double samples[9] = { 100, 101, 99, 100, 102, 98, 100, 100, 100 };
    ebb__measure before = ebb__measure_of(samples, 9, 1);
    samples[8] = 1e9;
    ebb__measure after = ebb__measure_of(samples, 9, 1);
    check_near(after.ns, before.ns);
    cr_assert(after.error < 1);
}

Test(measure, a_sure_strain_is_taken_and_an_unsure_one_is_near_1)
{
    check_near(ebb__strain((ebb__measure){ 130, 0 }, 100), 1.3);
    check_near(ebb__strain((ebb__measure){ 50, 0 }, 100), 0.5);
    check_near(ebb__strain((ebb__measure){ 50, 40 }, 100), 0.75); /* as unsure as factors differ */
    cr_assert(fabs(ebb__strain((ebb__measure){ 190, 1000 }, 100) - 1) < 0.01);
}

Test(measure, a_strain_is_bounded)
{
    check_near(ebb__strain((ebb__measure){ -20, 0 }, 100), 0.1);
    check_near(ebb__strain((ebb__measure){ 900, 0 }, 100), 2);
    check_near(ebb__strain((ebb__measure){ 900, 0 }, 0), 1); /* nothing was made again */
}
