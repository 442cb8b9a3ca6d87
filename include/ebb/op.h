/* ebb/op.h: what an op is.  A user's own op is as good as ours: fill an `ebb_op`, call ebb_apply().
 *
 * What backward needs is data: `needs[i]` says which inputs and outputs the gradient of input i
 * reads.  The recorder saves the union over the gradients that are really needed; backward
 * computes one input's gradient at a time, from the last input to the first, and releases a slot
 * as soon as no later gradient needs it. */
#ifndef EBB_OP_H
#define EBB_OP_H

#include <ebb/tensor.h>

/* One tensor of a call.  `data` is NULL where absent: on a dry device, for an input or output
 * that `needs` does not name (in backward), for an auxiliary output that nobody will read. */
typedef struct ebb_arg {
    void *data;
    ebb_dtype dtype;
    int ndim;
    int64_t elems;
    int64_t dims[EBB_MAX_DIMS];
    int64_t strides[EBB_MAX_DIMS]; /* elements; kernels see contiguous args unless the op says
                                      EBB_OP_STRIDED */
} ebb_arg;

/* A self-contained record of a call; replaying it gives the same bits. */
typedef struct ebb_call {
    const ebb_op *op;
    ebb_context *ctx;
    int n_in, n_out;
    ebb_arg in[EBB_MAX_IN];
    ebb_arg out[EBB_MAX_OUT];
    ebb_arg dout[EBB_MAX_OUT];      /* backward only; data NULL: that output has no gradient */
    ebb_arg din[EBB_MAX_IN];        /* backward only; data NULL: not asked for in this call */
    bool want[EBB_MAX_IN];          /* backward only: gradient i is asked for in this call (set on
                                       dry devices too) */
    bool accumulate[EBB_MAX_IN];    /* true: add onto din[i]; false: din[i] holds garbage, write it */
    void *workspace;                /* as many bytes as workspace() asked for, 64-byte aligned */
    size_t workspace_bytes;
    uint64_t rng_seed, rng_offset;  /* of ops that draw */
    int64_t view_offset;            /* EBB_OP_VIEW: element offset of out[0] within in[0]'s data */
    unsigned char attrs[EBB_ATTR_BYTES] __attribute__((aligned(16))); /* the op's own plain struct */
} ebb_call;

/* The attributes of a call as the op's own struct. */
#define EBB_ATTRS(call, type) ((type *)(void *)(call)->attrs)

typedef struct ebb_cost { double fwd_flops, bwd_flops, fwd_bytes, bwd_bytes; } ebb_cost;

enum { EBB_FORWARD = 0, EBB_BACKWARD = 1 };

typedef struct ebb_kernel {
    ebb_status (*forward)(const ebb_call *call);
    ebb_status (*backward)(const ebb_call *call);
    /* Bytes of scratch for a pass on `threads` threads; plain C, reads shapes only; NULL: none.
     * In backward it is asked with the same `want` and `accumulate` as the kernel. */
    size_t (*workspace)(const ebb_call *call, int pass, int threads);
} ebb_kernel;

/* Masks for `needs`. */
#define EBB_IN(i) (1u << (i))
#define EBB_OUT(i) (1u << (8 + (i)))

/* Flags. */
enum {
    EBB_OP_VIEW = 1u << 0,       /* out[0] shares in[0]'s storage; infer() sets dims, strides,
                                    view_offset; no forward kernel */
    EBB_OP_INPLACE_OK = 1u << 1, /* forward may write out[0] over in[0] (same shape and dtype), and
                                    does not fail once it has written */
    EBB_OP_RANDOM = 1u << 2,     /* draws; infer() leaves in rng_offset how many offsets it takes */
    EBB_OP_CHEAP = 1u << 3,      /* cheap to recompute against its bytes */
    EBB_OP_STATEFUL = 1u << 4,   /* changes state; never repeated by a recompute */
    EBB_OP_STRIDED = 1u << 5,    /* kernels read strided inputs and douts; otherwise the dispatcher
                                    makes them contiguous first, by a recorded call */
    EBB_OP_JOINT = 1u << 6,      /* backward computes all wanted gradients in one call */
    EBB_OP_GRAD_OVER_DOUT = 1u << 7, /* backward of input 0 may write din[0] over dout[0] when it is
                                    the last gradient computed (same shape and dtype) */
    EBB_OP_GRAD_OVER_IN = 1u << 9,  /* likewise over the saved bytes of input 0, where nobody else
                                    holds them */
    EBB_OP_NO_GRAD = 1u << 8     /* has no gradient at all (comparisons, conversions to integers) */
};

/* Per input: its gradient is dout[0] itself, perhaps seen through a view; the engine passes it on
 * without a kernel when shapes agree and nothing has to be added. */
#define EBB_PASS(i) (1u << (i))

/* An input of a case: how gradcheck and the op tests make it. */
typedef struct ebb_case_in {
    int ndim;
    int64_t dims[EBB_MAX_DIMS];
    enum ebb_case_kind {
        EBB_CASE_NORMAL,   /* N(0, 1) */
        EBB_CASE_POSITIVE, /* uniform in [0.5, 2] */
        EBB_CASE_AWAY,     /* uniform in [-2, 2], at least 0.1 from 0 (for kinks) */
        EBB_CASE_INDEX,    /* i32 uniform in [0, max) */
        EBB_CASE_LABEL,    /* i32 uniform in [-1, max): -1 is ignored */
        EBB_CASE_MASK      /* u8 0 or 1 */
    } kind;
    int64_t max;           /* for INDEX and LABEL */
    bool strided;          /* made as a view with permuted strides over a larger base */
    bool no_grad;          /* do not ask for this input's gradient in this case */
} ebb_case_in;

typedef struct ebb_op_case {
    const char *name;      /* a few words */
    int n_in;
    ebb_case_in in[EBB_MAX_IN];
    const void *attrs;     /* attrs_bytes long; NULL: zeros */
    size_t attrs_bytes;
    ebb_status expect;     /* EBB_OK, or the error that infer() must give */
} ebb_op_case;

/* In which dtype an op runs under autocast (ebb/autograd.h). */
typedef enum ebb_autocast_rule {
    EBB_AUTOCAST_WIDEST, /* that of its inputs; where they differ, f32 */
    EBB_AUTOCAST_LOW,    /* autocast's: products */
    EBB_AUTOCAST_F32     /* f32: losses, sums, norms, exponentials */
} ebb_autocast_rule;

struct ebb_op {
    const char *name;
    int min_in, max_in;    /* inputs; trailing optional ones may be absent */
    int n_out, n_aux;      /* n_out outputs in all, the last n_aux of them internal and without
                              gradient (row statistics) */
    unsigned flags;
    unsigned pass;         /* EBB_PASS mask */
    uint32_t needs[EBB_MAX_IN]; /* EBB_IN | EBB_OUT masks */
    unsigned no_grad_in;   /* EBB_IN mask of inputs that never have a gradient (indices, masks) */
    /* Sets out[] (dtype, ndim, dims; strides for views), checks every user mistake. */
    ebb_status (*infer)(ebb_call *call);
    void (*cost)(const ebb_call *call, ebb_cost *cost);
    ebb_kernel cpu;
    /* Bytes of scratch of the op's kernels on CUDA, which are in the plugin; here so that dry runs know
     * it without one.  NULL: none. */
    size_t (*cuda_workspace)(const ebb_call *call, int pass);
    const ebb_op_case *cases;
    int n_cases;
    ebb_autocast_rule autocast;
};

EBB_BEGIN_DECLS

/* Runs `op`.  outs: n_outs variables, the op's non-auxiliary outputs in order; NULL entries are not
 * wanted.  attrs: copied (attrs_bytes <= EBB_ATTR_BYTES).
 * Errors: what infer() says; EDTYPE, EDEVICE (inputs of two contexts); ENOMEM; EINVAL (two outputs
 * bound to one variable). */
EBB_API EBB_NODISCARD ebb_status ebb_apply(const ebb_op *op, ebb_tensor **outs[], int n_outs,
                                           ebb_tensor *const ins[], int n_ins,
                                           const void *attrs, size_t attrs_bytes);

/* The table of built-in ops. */
EBB_API int ebb_op_count(void);
EBB_API const ebb_op *ebb_op_at(int index);
EBB_API const ebb_op *ebb_op_find(const char *name); /* NULL: no such op */

/* Helpers for infer(): fill `arg` as a contiguous tensor. */
EBB_API EBB_NODISCARD ebb_status ebb_arg_set(ebb_arg *arg, ebb_dtype dtype, int ndim, const int64_t *dims);
EBB_API bool ebb_arg_is_contiguous(const ebb_arg *arg);
EBB_API char *ebb_arg_describe(const ebb_arg *arg, char *buf, size_t buf_bytes); /* "f32[2, 3]" */

/* For CPU kernels: runs fn over [0, n) in at most `threads` contiguous ranges, whose borders depend
 * only on n, grain (least items per range) and the context's thread count. */
typedef void ebb_range_fn(void *arg, int64_t begin, int64_t end, int thread);
EBB_API void ebb_parallel(const ebb_call *call, int64_t n, int64_t grain, ebb_range_fn *fn, void *arg);

EBB_END_DECLS
#endif
