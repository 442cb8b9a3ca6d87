/* Tensors as names for counted bytes. */
#include <math.h>
#include <stdio.h>
#include <string.h>

#include <ebb/autograd.h>

#include "support/support.h"

static size_t allocated(const ebb_context *ctx)
{
    ebb_memory_stats stats;
    ebb_memory_stats_get(ctx, &stats);
    return stats.allocated_bytes;
}

Test(tensor, dropping_the_last_name_frees_the_bytes)
{
    with_context(ctx) {
        ebb_tensor *a = NULL, *b = NULL;
        check_ok(ebb_zeros(&a, ctx, EBB_F32, 2, (int64_t[]){ 2, 3 }));
        cr_assert_eq(allocated(ctx), 512);
        ebb_bind(&b, a);
        cr_assert_eq(ebb_tensor_refcount(a), 2);
        ebb_drop(&a);
        cr_assert_null(a);
        cr_assert_eq(allocated(ctx), 512, "another name is left");
        ebb_drop(&b);
        cr_assert_eq(allocated(ctx), 0);
    }
}

static ebb_status leaves_early(ebb_context *ctx)
{
    EBB_LOCAL(a);
    EBB_LOCAL(b);
    EBB_TRY(ebb_zeros(&a, ctx, EBB_F32, 1, (int64_t[]){ 4 }));
    EBB_TRY(ebb_zeros(&b, ctx, EBB_F32, 1, (int64_t[]){ -1 }));
    return EBB_OK;
}

Test(tensor, an_early_return_drops_local_names)
{
    with_context(ctx) {
        check_fails(leaves_early(ctx), EBB_ESHAPE);
        cr_assert_eq(allocated(ctx), 0);
    }
}

Test(tensor, on_error_a_variable_keeps_what_it_held)
{
    with_context(ctx) {
        EBB_LOCAL(x);
        check_ok(ebb_full(&x, ctx, EBB_F32, 1, (int64_t[]){ 1 }, 7));
        ebb_tensor *before = x;
        check_fails(ebb_zeros(&x, ctx, EBB_F32, 1, (int64_t[]){ -3 }), EBB_ESHAPE);
        cr_assert_eq(x, before);
        double value;
        check_ok(ebb_item(x, &value));
        cr_assert_eq(value, 7);
    }
}

Test(tensor, sizes_that_overflow_are_refused)
{
    with_context(ctx) {
        EBB_LOCAL(x);
        check_fails(ebb_empty(&x, ctx, EBB_F64, 3, (int64_t[]){ INT64_MAX, 2, 2 }), EBB_ESHAPE);
        check_fails(ebb_empty(&x, ctx, EBB_F64, 1, (int64_t[]){ INT64_MAX }), EBB_ESHAPE);
        check_fails(ebb_empty(&x, ctx, EBB_F32, 7, (int64_t[]){ 1, 1, 1, 1, 1, 1, 1 }), EBB_ESHAPE);
        check_fails(ebb_empty(&x, ctx, EBB_F32, 1, (int64_t[]){ (int64_t)1 << 55 }), EBB_ENOMEM);
        check_fails(ebb_empty(&x, ctx, EBB_F64, 3, (int64_t[]){ INT64_MAX, 2, 0 }), EBB_ESHAPE);
        check_ok(ebb_empty(&x, ctx, EBB_F64, 2, (int64_t[]){ INT64_MAX, 0 }));
        cr_assert_eq(ebb_tensor_elems(x), 0);
    }
}

Test(tensor, values_of_every_dtype_come_back)
{
    static const ebb_dtype dtypes[] = { EBB_F32, EBB_F64, EBB_F16, EBB_BF16, EBB_I32, EBB_I64, EBB_U8 };
    with_context(ctx) {
        for (size_t k = 0; k < sizeof dtypes / sizeof dtypes[0]; k++) {
            EBB_LOCAL(x);
            double value = 0;
            check_ok(ebb_full(&x, ctx, dtypes[k], 0, NULL, 5));
            check_ok(ebb_item(x, &value));
            cr_assert_eq(value, 5, "%s", ebb_dtype_name(dtypes[k]));
        }
    }
}

Test(tensor, views_share_storage_and_read_rightly)
{
    with_context(ctx) {
        EBB_LOCAL(x);
        EBB_LOCAL(t);
        EBB_LOCAL(row);
        float values[6] = { 1, 2, 3, 4, 5, 6 }, read[6];
        check_ok(ebb_from_data(&x, ctx, EBB_F32, 2, (int64_t[]){ 2, 3 }, values));
        check_ok(ebb_transpose(&t, x, 0, 1));
        cr_assert_eq(ebb_tensor_storage(t), ebb_tensor_storage(x));
        cr_assert_not(ebb_tensor_is_contiguous(t));
        check_ok(ebb_read(t, read, sizeof read));
        float transposed[6] = { 1, 4, 2, 5, 3, 6 };
        cr_assert_arr_eq(read, transposed, sizeof read);
        check_ok(ebb_narrow(&row, t, 0, 1, 1));
        check_ok(ebb_read(row, read, 2 * sizeof read[0]));
        cr_assert_eq(read[0], 2);
        cr_assert_eq(read[1], 5);
        ebb_drop(&x);
        ebb_drop(&t);
        cr_assert_eq(allocated(ctx), 512, "a small view keeps its base");
    }
}

Test(tensor, changing_data_bumps_the_version_of_all_views)
{
    with_context(ctx) {
        EBB_LOCAL(x);
        EBB_LOCAL(v);
        check_ok(ebb_zeros(&x, ctx, EBB_F32, 1, (int64_t[]){ 4 }));
        check_ok(ebb_narrow(&v, x, 0, 1, 2));
        check_ok(ebb_fill(v, 3));
        cr_assert_eq(ebb_storage_version(ebb_tensor_storage(x)), 1);
        float read[4], expected[4] = { 0, 3, 3, 0 };
        check_ok(ebb_read(x, read, sizeof read));
        cr_assert_arr_eq(read, expected, sizeof read);
    }
}

Test(tensor, draws_are_a_function_of_seed_and_offset)
{
    with_context(ctx) {
        EBB_LOCAL(a);
        EBB_LOCAL(b);
        double x[33], y[33];
        check_ok(ebb_normal(&a, ctx, EBB_F64, 1, (int64_t[]){ 33 }, 0, 1));
        ebb_rng_set_offset(ctx, 0);
        check_ok(ebb_normal(&b, ctx, EBB_F64, 1, (int64_t[]){ 33 }, 0, 1));
        check_ok(ebb_read(a, x, sizeof x));
        check_ok(ebb_read(b, y, sizeof y));
        cr_assert_arr_eq(x, y, sizeof x);
        check_ok(ebb_normal(&b, ctx, EBB_F64, 1, (int64_t[]){ 33 }, 0, 1));
        check_ok(ebb_read(b, y, sizeof y));
        cr_assert_neq(memcmp(x, y, sizeof x), 0, "the generator moved on");
    }
}

Test(tensor, a_dry_tensor_has_size_but_no_data)
{
    with_device(ctx, "dry:cpu") {
        EBB_LOCAL(x);
        double value = 1;
        check_ok(ebb_full(&x, ctx, EBB_F32, 1, (int64_t[]){ 1 }, 7));
        cr_assert_null(ebb_tensor_data(x));
        check_ok(ebb_item(x, &value));
        cr_assert_eq(value, 0);
        cr_assert_eq(allocated(ctx), 512);
        check_ok(ebb_empty(&x, ctx, EBB_F32, 1, (int64_t[]){ (int64_t)1 << 36 }));
        cr_assert_eq(allocated(ctx), (size_t)1 << 38, "256 GiB cost nothing");
    }
}

Test(tensor, a_limit_is_kept_and_named)
{
    with_options(ctx, ((ebb_context_options){ .memory_limit_bytes = 4 << 20 })) {
        EBB_LOCAL(x);
        check_fails(ebb_empty(&x, ctx, EBB_U8, 1, (int64_t[]){ 8 << 20 }), EBB_ENOMEM);
        check_message("limit");
        check_ok(ebb_empty(&x, ctx, EBB_U8, 1, (int64_t[]){ 1 << 19 }));
    }
}

Test(tensor, contexts_do_not_mix)
{
    with_context(a) {
        EBB_LOCAL(x);
        check_ok(ebb_zeros(&x, a, EBB_F32, 0, NULL));
        with_context(b) {
            EBB_LOCAL(y);
            check_ok(ebb_zeros(&y, b, EBB_F32, 0, NULL));
            check_fails(ebb_add(&x, x, y), EBB_EDEVICE);
        }
    }
}

Test(tensor, bad_contexts_say_what_is_allowed)
{
    ebb_context *ctx = NULL;
    ebb_context_options o = { .struct_bytes = sizeof o, .device = "tpu" };
    check_fails(ebb_context_new(&ctx, &o), EBB_EDEVICE);
    check_message("dry:cpu");
    o.device = "cpu";
    o.threads = -1;
    check_fails(ebb_context_new(&ctx, &o), EBB_EINVAL);
    o.struct_bytes = 3;
    check_fails(ebb_context_new(&ctx, &o), EBB_EINVAL);
    cr_assert_null(ctx);
    check_no_live_blocks();
}

Test(tensor, printing_shortens_long_axes)
{
    with_context(ctx) {
        EBB_LOCAL(x);
        char text[512] = { 0 };
        check_ok(ebb_full(&x, ctx, EBB_F32, 1, (int64_t[]){ 100 }, 2));
        check_ok(ebb_tensor_set_name(x, "two"));
        FILE *file = fmemopen(text, sizeof text, "w");
        ebb_tensor_print(x, file);
        fclose(file);
        cr_assert_str_eq(text, "two f32[100] [2, 2, 2, ..., 2, 2, 2]\n");
    }
}
