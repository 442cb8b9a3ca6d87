/* ops/cuda/bad_data.h: what a kernel may find wrong with data, as it stands in ebb__cuda.error:
 * (1 + the op's row in ops.def) << 8 | what.  Plain C: the plugin makes a message of it. */
#ifndef EBB_OPS_CUDA_BAD_DATA_H
#define EBB_OPS_CUDA_BAD_DATA_H

#define EBB__CUDA_BAD_DATA(X)                                                                        \
    X(EBB__CUDA_BAD_INDEX, "an index is outside the table")                                          \
    X(EBB__CUDA_BAD_TARGET, "a target is outside the classes and is not -1 (ignored)")

typedef enum ebb__cuda_bad {
    EBB__CUDA_BAD_NONE,
#define EBB__CUDA_BAD_ROW(id, text) id,
    EBB__CUDA_BAD_DATA(EBB__CUDA_BAD_ROW)
#undef EBB__CUDA_BAD_ROW
    EBB__CUDA_N_BAD
} ebb__cuda_bad;

/* The rows of ops.def: EBB__CUDA_ROW_embedding and so on. */
enum {
#define EBB_OP(id) EBB__CUDA_ROW_##id,
#include "ops/ops.def"
#undef EBB_OP
    EBB__CUDA_N_ROWS
};

static inline unsigned ebb__cuda_bad_code(int row, ebb__cuda_bad what)
{
    return (unsigned)(1 + row) << 8 | (unsigned)what;
}

/* The text of a code that a kernel left. */
static inline const char *ebb__cuda_bad_text(unsigned code)
{
    static const char *const texts[] = { "bad data",
#define EBB__CUDA_BAD_ROW(id, text) text,
                                         EBB__CUDA_BAD_DATA(EBB__CUDA_BAD_ROW)
#undef EBB__CUDA_BAD_ROW
    };
    unsigned what = code & 0xff;
    return texts[what < EBB__CUDA_N_BAD ? what : 0];
}

#endif
