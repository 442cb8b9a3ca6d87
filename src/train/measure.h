/* train/measure.h: a time that was measured several times, and how sure it is. */
#ifndef EBB_TRAIN_MEASURE_H
#define EBB_TRAIN_MEASURE_H

enum { EBB__MOST_SAMPLES = 64 };

typedef struct ebb__measure {
    double ns;    /* the median */
    double error; /* its standard error, by the samples' median distance from it */
} ebb__measure;

/* Of n samples, at most EBB__MOST_SAMPLES; 0 of none. */
double ebb__median(const double *samples, int n);
/* Samples come in runs of `alike`, which err together and so count as one. */
ebb__measure ebb__measure_of(const double *samples, int n, int alike);
/* The factor by which calls made again take longer than what they take by themselves, `again_ns`, where the whole step
 * takes `longer`.  One expects 1; the less sure the measurement, the nearer to that.  From 0.1, since nothing is free
 * and a planner that thought so would have no order, to 2. */
double ebb__strain(ebb__measure longer, double again_ns);

#endif
