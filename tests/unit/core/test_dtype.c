#include <ebb/types.h>

#include "support/support.h"

Test(dtype, each_row_has_its_bytes_name_and_kind)
{
    static const struct {
        ebb_dtype dtype;
        size_t bytes;
        const char *name;
        bool is_float;
    } rows[] = {
        { EBB_F32, 4, "f32", true },   { EBB_F64, 8, "f64", true },  { EBB_F16, 2, "f16", true },
        { EBB_BF16, 2, "bf16", true }, { EBB_I32, 4, "i32", false }, { EBB_I64, 8, "i64", false },
        { EBB_U8, 1, "u8", false },
    };
    cr_assert_eq(sizeof rows / sizeof *rows, EBB_N_DTYPES);
    for (size_t i = 0; i < EBB_N_DTYPES; i++) {
        cr_assert_eq(ebb_dtype_bytes(rows[i].dtype), rows[i].bytes);
        cr_assert_str_eq(ebb_dtype_name(rows[i].dtype), rows[i].name);
        cr_assert_eq(ebb_dtype_is_float(rows[i].dtype), rows[i].is_float);
    }
}

Test(dtype, a_value_outside_the_enum_has_no_bytes)
{
    cr_assert_eq(ebb_dtype_bytes(EBB_N_DTYPES), 0);
    cr_assert_str_eq(ebb_dtype_name((ebb_dtype)1000), "unknown");
    cr_assert_not(ebb_dtype_is_float((ebb_dtype)1000));
}
