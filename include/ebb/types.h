/* ebb/types.h: the words that every other header uses. */
#ifndef EBB_TYPES_H
#define EBB_TYPES_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
#define EBB_BEGIN_DECLS extern "C" {
#define EBB_END_DECLS }
#else
#define EBB_BEGIN_DECLS
#define EBB_END_DECLS
#endif

#define EBB_API __attribute__((visibility("default")))
#define EBB_NODISCARD __attribute__((warn_unused_result))
#define EBB_PRINTF(fmt, first) __attribute__((format(printf, fmt, first)))

#define EBB_VERSION "0.1.0"

enum {
    EBB_MAX_DIMS = 6,   /* dimensions of a tensor */
    EBB_MAX_IN = 8,     /* inputs of an op */
    EBB_MAX_OUT = 4,    /* outputs of an op, auxiliary ones included */
    EBB_ATTR_BYTES = 128 /* plain attributes of a call */
};

typedef enum ebb_dtype {
    EBB_F32, EBB_F64, EBB_F16, EBB_BF16, EBB_I32, EBB_I64, EBB_U8,
    EBB_N_DTYPES
} ebb_dtype;

typedef struct ebb_context ebb_context; /* opaque; single owner */
typedef struct ebb_tensor ebb_tensor;   /* opaque; counted reference */
typedef struct ebb_storage ebb_storage; /* opaque; the counted bytes behind tensors */
typedef struct ebb_node ebb_node;       /* opaque; one recorded call */
typedef struct ebb_op ebb_op;           /* descriptor of an op, see ebb/op.h */

EBB_BEGIN_DECLS

/* Bytes of one element; name as users write it ("f32"). */
EBB_API size_t ebb_dtype_bytes(ebb_dtype dtype);
EBB_API const char *ebb_dtype_name(ebb_dtype dtype);
EBB_API bool ebb_dtype_is_float(ebb_dtype dtype);

EBB_END_DECLS
#endif
