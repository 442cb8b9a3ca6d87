/* dtype.c: one row for each element type. */
#include <ebb/types.h>

typedef struct dtype_row {
    const char *name;
    size_t bytes;
    bool is_float;
} dtype_row;

static const dtype_row rows[EBB_N_DTYPES] = {
    [EBB_F32] = { "f32", 4, true },  [EBB_F64] = { "f64", 8, true },
    [EBB_F16] = { "f16", 2, true },  [EBB_BF16] = { "bf16", 2, true },
    [EBB_I32] = { "i32", 4, false }, [EBB_I64] = { "i64", 8, false },
    [EBB_U8] = { "u8", 1, false },
};

/* A value from outside the enum (a caller's mistake) gives this row. */
static const dtype_row unknown = { "unknown", 0, false };

static const dtype_row *row(ebb_dtype dtype)
{
    return (unsigned)dtype < EBB_N_DTYPES ? &rows[dtype] : &unknown;
}

size_t ebb_dtype_bytes(ebb_dtype dtype) { return row(dtype)->bytes; }

const char *ebb_dtype_name(ebb_dtype dtype) { return row(dtype)->name; }

bool ebb_dtype_is_float(ebb_dtype dtype) { return row(dtype)->is_float; }
