#include "train/measure.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

static int by_value(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

double ebb__median(const double *samples, int n)
{
    double sorted[EBB__MOST_SAMPLES];
    if (n <= 0) return 0;
    memcpy(sorted, samples, (size_t)n * sizeof(sorted[0]));
    qsort(sorted, (size_t)n, sizeof(sorted[0]), by_value);
    return (sorted[(n - 1) / 2] + sorted[n / 2]) / 2;
}

ebb__measure ebb__measure_of(const double *samples, int n, int alike)
{
    /* Of a normal distribution: over its median distance, over the mean's error. */
    const double SIGMA = 1.4826, OF_MEDIAN = 1.2533;
    double away[EBB__MOST_SAMPLES];
    ebb__measure m = { .ns = ebb__median(samples, n) };
    for (int i = 0; i < n; i++) away[i] = fabs(samples[i] - m.ns);
    if (n > 0) m.error = SIGMA * OF_MEDIAN * ebb__median(away, n) / sqrt((double)n / alike);
    return m;
}

/* The estimate of least squared error where factors are normal around 1. */
double ebb__strain(ebb__measure longer, double again_ns)
{
    const double LEAST = 0.1, MOST = 2, EXPECTED_OFF = 0.4;
    if (again_ns <= 0) return 1;
    double off = longer.error / again_ns, expected = EXPECTED_OFF * EXPECTED_OFF;
    double trust = expected / (expected + off * off);
    double factor = 1 + trust * (longer.ns / again_ns - 1);
    return factor < LEAST ? LEAST : factor > MOST ? MOST : factor;
}
