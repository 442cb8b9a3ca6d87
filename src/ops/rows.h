/* ops/rows.h: sums, dots and maxima of contiguous rows, in f32 and f64.
 * The compiler may not reorder float sums by itself (no -ffast-math); here the order is fixed by
 * hand: 64 bytes at a time, and f64 totals over blocks, so long rows stay accurate.  The result
 * depends only on the values and the length. */
#ifndef EBB_OPS_ROWS_H
#define EBB_OPS_ROWS_H

#include <math.h>
#include <stdint.h>
#include <string.h>
#include "ops/vmath.h"

static inline float ebb__exp_f32(float x) { return ebb__expf(x); }
static inline double ebb__exp_f64(double x) { return ebb__exp(x); }
static inline float ebb__log_f32(float x) { return ebb__logf(x); }
static inline double ebb__log_f64(double x) { return ebb__log(x); }

/* The registers of this machine. */
#if defined(__AVX512F__)
enum { EBB__VECTOR_BYTES = 64 };
#elif defined(__AVX__)
enum { EBB__VECTOR_BYTES = 32 };
#else
enum { EBB__VECTOR_BYTES = 16 };
#endif
enum { EBB__PACK_VECTORS = 64 / EBB__VECTOR_BYTES };

#define REAL float
#define F(name) name##_f32
#include "ops/rows.inc"

#define REAL double
#define F(name) name##_f64
#include "ops/rows.inc"

#endif
