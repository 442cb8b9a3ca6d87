/* ops/drawn.h: tensors with drawn values whose values the test keeps in f64, for naive references. */
#ifndef EBB_TESTS_OPS_DRAWN_H
#define EBB_TESTS_OPS_DRAWN_H

#include <ebb/ebb.h>
#include <math.h>
#include <stdlib.h>
#include "core/rng.h"
#include "support/support.h"

#define DIMS(...) (int)(sizeof((int64_t[]){ __VA_ARGS__ }) / sizeof(int64_t)), (int64_t[]){ __VA_ARGS__ }

/* n values as f64.  Owner: the caller; free(). */
static inline double *read_doubles(const ebb_tensor *t)
{
    size_t n = (size_t)ebb_tensor_elems(t);
    double *values = malloc((n + 1) * sizeof *values);
    if (ebb_tensor_dtype(t) == EBB_F64) {
        check_ok(ebb_read(t, values, n * sizeof(double)));
        return values;
    }
    float *narrow = malloc((n + 1) * sizeof *narrow);
    check_ok(ebb_read(t, narrow, n * sizeof(float)));
    for (size_t i = 0; i < n; i++) values[i] = (double)narrow[i];
    free(narrow);
    return values;
}

/* *out = a leaf of N(0, 1) that asks for its gradient; returns its values (rounded to the dtype). */
static inline double *draw(ebb_tensor **out, ebb_context *ctx, ebb_dtype dtype, int ndim, const int64_t *dims)
{
    check_ok(ebb_normal(out, ctx, dtype, ndim, dims, 0, 1));
    check_ok(ebb_set_requires_grad(*out, true));
    return read_doubles(*out);
}

/* |got - want| relative to |want|, by norm. */
static inline void check_near(const ebb_tensor *got, const double *want, double tolerance, const char *what)
{
    double *values = read_doubles(got), difference = 0, norm = 0;
    for (int64_t i = 0; i < ebb_tensor_elems(got); i++) {
        difference += (values[i] - want[i]) * (values[i] - want[i]);
        norm += want[i] * want[i];
    }
    free(values);
    cr_assert(sqrt(difference) <= tolerance * sqrt(norm) + 1e-30, "%s differs by %g of %g", what, sqrt(difference),
              sqrt(norm));
}

/* Backward from y with dL/dy = dy. */
static inline void backward_from(ebb_tensor *y, ebb_tensor *dy)
{
    ebb_backward_options options = { .struct_bytes = sizeof options, .grads = (ebb_tensor *[]){ dy } };
    check_ok(ebb_backward_ex((ebb_tensor *[]){ y }, 1, &options));
}

#endif
