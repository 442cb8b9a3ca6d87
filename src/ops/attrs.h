/* ops/attrs.h: the attributes of the built-in ops, as they lie in ebb_call.attrs: what the kernels of
 * every device read. */
#ifndef EBB_OPS_ATTRS_H
#define EBB_OPS_ATTRS_H

#include <ebb/op.h>

typedef struct ebb__cast_attrs {
    int dtype;
} ebb__cast_attrs;

typedef struct ebb__cat_attrs {
    int64_t axis;
} ebb__cat_attrs; /* after infer(): not negative */

typedef struct ebb__cross_entropy_attrs {
    double normalizer;
} ebb__cross_entropy_attrs;

typedef struct ebb__dropout_attrs {
    double p;
} ebb__dropout_attrs;

typedef struct ebb__linear_cross_entropy_attrs {
    double normalizer;
    int64_t chunks;
} ebb__linear_cross_entropy_attrs;

typedef struct ebb__matmul_attrs {
    bool trans_a, trans_b;
} ebb__matmul_attrs;

typedef struct ebb__norm_attrs {
    double eps;
} ebb__norm_attrs;

typedef struct ebb__reduce_attrs {
    int n_axes; /* 0: all */
    int axes[EBB_MAX_DIMS];
    int keep_dims;
    uint32_t mask;
} ebb__reduce_attrs;

typedef struct ebb__rope_attrs {
    int64_t head_dim, heads, position; /* heads 0: all */
    double base;
} ebb__rope_attrs;

typedef struct ebb__reshape_attrs {
    int ndim;
    int64_t dims[EBB_MAX_DIMS]; /* after infer(): none is -1 */
} ebb__reshape_attrs;

typedef struct ebb__permute_attrs {
    int n;
    int axes[EBB_MAX_DIMS]; /* out axis d is in axis axes[d]; after infer(): not negative */
} ebb__permute_attrs;

typedef struct ebb__narrow_attrs {
    int64_t axis, start, length;
} ebb__narrow_attrs; /* after infer(): axis >= 0 */

typedef struct ebb__softmax_attrs {
    int64_t axis;
} ebb__softmax_attrs; /* after infer(): not negative */

typedef struct ebb__scale_attrs {
    double factor;
} ebb__scale_attrs;

typedef struct ebb__gelu_attrs {
    int kind;
} ebb__gelu_attrs;

typedef struct ebb__attention_attrs {
    int64_t heads, kv_heads; /* kv_heads 0: heads */
    bool causal;
    double scale;            /* 0: 1 / sqrt(head_dim) */
} ebb__attention_attrs;

#endif
