/* ebb/tensor.h: tensors are names for counted bytes.
 * An `ebb_tensor *` variable is a name, as in Python: an op binds its result to the caller's
 * variable and drops what it held before.  Variables start as NULL.  On error a variable keeps
 * what it held.  Arguments are borrowed; whoever keeps one retains it. */
#ifndef EBB_TENSOR_H
#define EBB_TENSOR_H

#include <ebb/context.h>

EBB_BEGIN_DECLS

/* ---- lifetime ---------------------------------------------------------------------------- */

EBB_API ebb_tensor *ebb_retain(ebb_tensor *t);  /* another name for the same tensor; NULL is fine */
EBB_API void ebb_drop(ebb_tensor **var);        /* `del x`: *var becomes NULL; NULL is fine */
EBB_API void ebb_move(ebb_tensor **out, ebb_tensor **from); /* *out takes over; *from becomes NULL */
EBB_API void ebb_bind(ebb_tensor **out, ebb_tensor *t);     /* *out = retained t, old one dropped */
EBB_API int ebb_tensor_refcount(const ebb_tensor *t);

/* Declares a variable that is dropped when the scope ends, early returns included. */
#define EBB_LOCAL(name) __attribute__((cleanup(ebb_drop))) ebb_tensor *name = NULL

/* ---- making ------------------------------------------------------------------------------ */
/* "ndim, dims" of a call, written as in Python: ebb_zeros(&x, ctx, EBB_F32, EBB_SHAPE(64, 256)).  C only:
 * the array is a compound literal. */
#define EBB_SHAPE(...) \
    (int)(sizeof((int64_t[]){ __VA_ARGS__ }) / sizeof(int64_t)), (const int64_t[]){ __VA_ARGS__ }

/* All: shape dims[0..ndim), ndim 0..EBB_MAX_DIMS, dims >= 0, contiguous.
 * Errors: EINVAL, ESHAPE (negative, or the bytes overflow), ENOMEM. */

EBB_API EBB_NODISCARD ebb_status ebb_empty(ebb_tensor **out, ebb_context *ctx, ebb_dtype dtype,
                                           int ndim, const int64_t *dims);
EBB_API EBB_NODISCARD ebb_status ebb_zeros(ebb_tensor **out, ebb_context *ctx, ebb_dtype dtype,
                                           int ndim, const int64_t *dims);
EBB_API EBB_NODISCARD ebb_status ebb_full(ebb_tensor **out, ebb_context *ctx, ebb_dtype dtype,
                                          int ndim, const int64_t *dims, double value);
/* Copies n elements of `dtype` in row-major order from host memory. */
EBB_API EBB_NODISCARD ebb_status ebb_from_data(ebb_tensor **out, ebb_context *ctx, ebb_dtype dtype,
                                               int ndim, const int64_t *dims, const void *data);
/* Draws from the context's generator.  Float dtypes only. */
EBB_API EBB_NODISCARD ebb_status ebb_uniform(ebb_tensor **out, ebb_context *ctx, ebb_dtype dtype,
                                             int ndim, const int64_t *dims, double low, double high);
EBB_API EBB_NODISCARD ebb_status ebb_normal(ebb_tensor **out, ebb_context *ctx, ebb_dtype dtype,
                                            int ndim, const int64_t *dims, double mean, double std);

/* ---- looking ----------------------------------------------------------------------------- */

EBB_API ebb_context *ebb_tensor_context(const ebb_tensor *t);
EBB_API ebb_dtype ebb_tensor_dtype(const ebb_tensor *t);
EBB_API int ebb_tensor_ndim(const ebb_tensor *t);
EBB_API const int64_t *ebb_tensor_dims(const ebb_tensor *t);    /* borrowed; in elements */
EBB_API const int64_t *ebb_tensor_strides(const ebb_tensor *t); /* borrowed; in elements */
EBB_API int64_t ebb_tensor_dim(const ebb_tensor *t, int axis);  /* negative axes count from the end */
EBB_API int64_t ebb_tensor_elems(const ebb_tensor *t);
EBB_API bool ebb_tensor_is_contiguous(const ebb_tensor *t);
EBB_API ebb_storage *ebb_tensor_storage(const ebb_tensor *t);   /* borrowed */
EBB_API size_t ebb_storage_bytes(const ebb_storage *s);         /* requested; rounding not included */
EBB_API uint32_t ebb_storage_version(const ebb_storage *s);     /* grows with each change in place */
/* Unique in the context, and growing: it outlives the storage, as a weak reference does. */
EBB_API uint64_t ebb_storage_id(const ebb_storage *s);
/* The storage of that id where it is still alive, else NULL.  Borrowed. */
EBB_API const ebb_storage *ebb_storage_find(const ebb_context *ctx, uint64_t id);
/* Borrowed pointer to element 0; NULL on a dry device.  On an accelerator it is an address of the device's,
 * which host code must not touch: ebb_read() and ebb_write() copy.  Writing through it does not bump the
 * version: use ebb_copy_into() or ebb_write(). */
EBB_API void *ebb_tensor_data(const ebb_tensor *t);
EBB_API const char *ebb_tensor_name(const ebb_tensor *t);       /* "" when it has none */
EBB_API EBB_NODISCARD ebb_status ebb_tensor_set_name(ebb_tensor *t, const char *name); /* copied */
/* Copies all elements, row-major, in the tensor's dtype.  On a dry device the bytes become 0. */
EBB_API EBB_NODISCARD ebb_status ebb_read(const ebb_tensor *t, void *data, size_t data_bytes);
/* The one element of a tensor with one element, as f64.  Dry: 0.  Errors: ESHAPE. */
EBB_API EBB_NODISCARD ebb_status ebb_item(const ebb_tensor *t, double *out);
/* "f32[2, 3]" into buf; returns buf. */
EBB_API char *ebb_tensor_describe(const ebb_tensor *t, char *buf, size_t buf_bytes);
/* Prints values, shortened as NumPy does.  `file` is a FILE *. */
EBB_API void ebb_tensor_print(const ebb_tensor *t, void *file);

/* ---- changing data ----------------------------------------------------------------------- */
/* These bump the storage's version, so that a saved slot that reads it later is an error.
 * Refused (ESTATE, naming the out-of-place form) on a tensor that has history or that needs a
 * gradient while recording, through a view of such a tensor, or inside a segment on a tensor from
 * outside. */

EBB_API EBB_NODISCARD ebb_status ebb_fill(ebb_tensor *t, double value);
EBB_API EBB_NODISCARD ebb_status ebb_copy_into(ebb_tensor *t, const ebb_tensor *from); /* same shape, dtype */
EBB_API EBB_NODISCARD ebb_status ebb_write(ebb_tensor *t, const void *data, size_t data_bytes);

EBB_END_DECLS
#endif
