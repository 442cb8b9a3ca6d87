/* ops/walk.h: visiting the elements of several tensors together, whatever their strides.
 * A walk is a shape and, per operand, a stride for each dim (0 where it is broadcast).  Dims that
 * every operand crosses evenly are merged, so that contiguous tensors become one long run. */
#ifndef EBB_OPS_WALK_H
#define EBB_OPS_WALK_H

#include "ops/lanes.h"
#include <ebb/op.h>

enum { EBB__WALK_OPERANDS = 4 };

typedef struct ebb__walk {
    int ndim; /* at least 1 after ebb__walk_merge() */
    int n_operands;
    int64_t elems; /* product of dims */
    int64_t dims[EBB_MAX_DIMS];
    int64_t strides[EBB__WALK_OPERANDS][EBB_MAX_DIMS]; /* in elements of that operand */
} ebb__walk;

void ebb__walk_init(ebb__walk *walk, int ndim, const int64_t *dims);
/* Adds an operand, broadcast to the walk's shape (dims aligned at the right; a dim of 1 repeats). */
void ebb__walk_add(ebb__walk *walk, int ndim, const int64_t *dims, const int64_t *strides);
/* Drops dims of 1 and merges what can be merged; call it after the last operand. */
void ebb__walk_merge(ebb__walk *walk);

/* A run of n elements along the walk's last dim; offsets[k] is where it starts in operand k. */
typedef void ebb__run_fn(void *arg, const int64_t *offsets, int64_t n);
/* Visits elements [begin, end) in row-major order in runs of at most `longest`. */
void ebb__walk_range(const ebb__walk *walk, int64_t begin, int64_t end, int64_t longest,
                     ebb__run_fn *fn, void *arg);

static inline int64_t ebb__walk_stride(const ebb__walk *walk, int operand)
{
    return walk->strides[operand][walk->ndim - 1];
}

/* out (+)= f(in...), all of float dtypes with one compute type; inputs are broadcast to out. */
typedef struct ebb__elementwise {
    const ebb_arg *out; /* of any strides, none 0 */
    bool accumulate;
    int n_in; /* 1 to 3 */
    const ebb_arg *in[EBB__WALK_OPERANDS - 1];
    ebb__lanes_fn *f32, *f64;
    const void *params;
} ebb__elementwise;
void ebb__run_elementwise(const ebb_call *call, const ebb__elementwise *job);

/* to = from, of one shape and dtype, whatever their strides; any dtype.  accumulate: to += from,
 * float dtypes only. */
void ebb__copy_or_add(const ebb_call *call, const ebb_arg *to, const ebb_arg *from,
                      bool accumulate);

/* Cost of an elementwise op: flops per element of out[0]; bytes from shapes and `needs`. */
void ebb__cost_elementwise(const ebb_call *call, ebb_cost *cost, double fwd_flops,
                           double bwd_flops);

#endif
