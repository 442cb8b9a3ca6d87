/* tensor/tensor.h: storage and tensor, inside. */
#ifndef EBB_TENSOR_TENSOR_H
#define EBB_TENSOR_TENSOR_H

#include <ebb/checkpoint.h>
#include "tensor/context.h"

struct ebb__segment;
struct ebb__hooks;

/* Counted bytes from the pool.  Invariant: the block's category is ebb__storage_effective(). */
struct ebb_storage {
    atomic_int refs;
    ebb_context *ctx;        /* counted */
    ebb__block *block;
    void *data;              /* NULL: no bytes, or a dry device */
    size_t bytes;            /* requested */
    uint32_t version;
    ebb_category base;       /* what it is when nothing saves it */
    int kept, refilled;      /* saved slots of live nodes that hold it */
    const ebb_packer *packer; /* how it is kept where a node saves it; NULL: as it is */
    struct ebb__pack *pack;  /* its packed form, not counted; NULL: none */
    struct ebb__contract *contract; /* counted: of the segment that promised it; NULL: none */
    uint64_t id;             /* by order of creation, among tensors' ids */
    ebb_storage *prev, *next; /* the context's list */
    bool replayed;           /* a segment or recipe may make these bytes again, as they were made */
};

/* How a tensor's bytes can be made again: value `value` of `segment`; see checkpoint/segment.h. */
typedef struct ebb__promise { struct ebb__segment *segment; int32_t value; } ebb__promise;

struct ebb_tensor {
    atomic_int refs;
    int engine_refs;         /* of refs, those held by nodes and other tensors, not by handles */
    uint64_t id;             /* unique in the context; segments know tensors by it */
    ebb_context *ctx;
    ebb_storage *storage;    /* counted */
    ebb_dtype dtype;
    int ndim;
    int64_t elems, offset;   /* offset of element 0 in the storage, in elements */
    int64_t dims[EBB_MAX_DIMS], strides[EBB_MAX_DIMS];
    char *name;              /* NULL: none */
    ebb_tensor *prev, *next; /* the context's list */

    bool requires_grad;      /* a leaf that asks */
    ebb_node *node;          /* the call that made it; counted; NULL: leaf */
    int out;                 /* which output of the node */
    ebb_tensor *grad;        /* leaf's gradient */
    struct ebb__hooks *hooks; /* leaf's hooks; results have theirs on the node */
    ebb__promise recipe;     /* op recipe (counted segment), or segment NULL */

    /* Scratch of the backward that runs (leaves). */
    uint64_t stamp;
    int uses;                /* contributions still to come */
    ebb_tensor *pending;     /* gathered apart from `grad`: hooks or targets want it first */
    int target;              /* 1 + index into target_grads; 0: none */
};

/* ---- storage ---- */
EBB_NODISCARD ebb_status ebb__storage_new(ebb_storage **out, ebb_context *ctx, size_t bytes,
                                          const ebb__owner *owner);
void ebb__storage_retain(ebb_storage *s);
void ebb__storage_release(ebb_storage *s); /* NULL is fine */
void ebb__storage_bump(ebb_storage *s);    /* its data changed in place */
/* A saved slot takes or leaves it: +1 or -1. */
void ebb__storage_count_kept(ebb_storage *s, int change);
void ebb__storage_count_refilled(ebb_storage *s, int change);

/* ---- tensor ---- */
/* A tensor over `storage` (retained) with the shape of `shape` (dtype, dims, strides). */
EBB_NODISCARD ebb_status ebb__tensor_over(ebb_tensor **out, ebb_storage *storage, const ebb_arg *shape,
                                          int64_t offset);
/* New contiguous tensor of that shape. */
EBB_NODISCARD ebb_status ebb__tensor_new(ebb_tensor **out, ebb_context *ctx, const ebb_arg *shape,
                                         const ebb__owner *owner);
void ebb__tensor_arg(const ebb_tensor *t, ebb_arg *arg); /* with data */
void ebb__arg_contiguous(ebb_arg *arg);                  /* sets strides and elems from dims */
bool ebb__arg_same_shape(const ebb_arg *a, const ebb_arg *b);
bool ebb__dims_elems(int64_t *elems, int ndim, const int64_t *dims); /* false: negative or overflow */
/* Nobody but the holder of `t` can see its bytes. */
bool ebb__tensor_is_sole(const ebb_tensor *t);
void ebb__engine_retain(ebb_tensor *t);
void ebb__engine_drop(ebb_tensor **t);

/* ---- bytes of the device (skipped on dry ones) ---- */
/* Errors: an accelerator's, which name the scope and `what` it is for. */
EBB_NODISCARD ebb_status ebb__arg_copy(const ebb_context *ctx, const ebb_arg *to,
                                       const ebb_arg *from, const char *what); /* same shape and dtype */
EBB_NODISCARD ebb_status ebb__arg_add(const ebb_context *ctx, const ebb_arg *to,
                                      const ebb_arg *from, const char *what); /* to += from; to contiguous */
EBB_NODISCARD ebb_status ebb__arg_fill(const ebb_context *ctx, const ebb_arg *to, double value, const char *what);
/* ebb_full() for `what`: it is named where the device fails. */
EBB_NODISCARD ebb_status ebb__full(ebb_tensor **out, ebb_context *ctx, ebb_dtype dtype, int ndim, const int64_t *dims,
                                   double value, const char *what);
/* One value in host memory, as f64. */
double ebb__value_of(ebb_dtype dtype, const void *value);
/* The three in host memory, elems > 0 but for the copy. */
void ebb__host_arg_copy(const ebb_arg *to, const ebb_arg *from);
void ebb__host_arg_add(const ebb_arg *to, const ebb_arg *from);
void ebb__host_arg_fill(const ebb_arg *to, double value);

#endif
