/* Writing safetensors. */
#include "support/support.h"

#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <ebb/data.h>
#include <ebb/ops.h>

static uint64_t header_length(const char *bytes)
{
    uint64_t n = 0;
    for (int i = 7; i >= 0; i--) n = n << 8 | (unsigned char)bytes[i];
    return n;
}

Test(safetensors_write, the_file_is_exactly_what_the_format_says)
{
    temp_folder folder = temp_folder_make();
    with_context(ctx) {
        EBB_LOCAL(a);
        EBB_LOCAL(b);
        size_t n;
        check_ok(ebb_full(&a, ctx, EBB_F32, 1, (int64_t[]){ 2 }, 1.0));
        check_ok(ebb_full(&b, ctx, EBB_U8, 0, NULL, 7));
        ebb_named_tensor named[] = { { "z", a }, { "a\"\\\n", b } };
        check_ok(ebb_safetensors_save(temp_path(&folder, "f"), named, 2));
        char *bytes = read_text(temp_path(&folder, "f"), &n);
        const char *expected =
            "{\"z\":{\"dtype\":\"F32\",\"shape\":[2],\"data_offsets\":[0,8]},"
            "\"a\\\"\\\\\\u000a\":{\"dtype\":\"U8\",\"shape\":[],\"data_offsets\":[8,9]}}";
        size_t length = header_length(bytes);
        cr_assert((8 + length) % 8 == 0);
        cr_assert(!strncmp(bytes + 8, expected, strlen(expected)), "%s", bytes + 8);
        for (size_t i = strlen(expected); i < length; i++) cr_assert(bytes[8 + i] == ' ');
        cr_assert(n == 8 + length + 9);
        cr_assert(!memcmp(bytes + 8 + length, "\0\0\x80\x3f\0\0\x80\x3f\x07", 9));
        free(bytes);
    }
    temp_folder_remove(&folder);
}

Test(safetensors_write, no_tensors_make_the_empty_file_of_the_reference_writer)
{
    temp_folder folder = temp_folder_make();
    size_t n;
    check_ok(ebb_safetensors_save(temp_path(&folder, "f"), NULL, 0));
    char *bytes = read_text(temp_path(&folder, "f"), &n);
    cr_assert(n == 16 && !memcmp(bytes, "\x08\0\0\0\0\0\0\0{}      ", 16));
    free(bytes);
    temp_folder_remove(&folder);
    check_no_live_blocks();
}

/* B24a */
Test(safetensors_write, a_small_view_writes_its_own_bytes_only)
{
    temp_folder folder = temp_folder_make();
    with_context(ctx) {
        EBB_LOCAL(big);
        EBB_LOCAL(view);
        size_t n;
        check_ok(ebb_zeros(&big, ctx, EBB_F32, 2, (int64_t[]){ 10000, 8 }));
        check_ok(ebb_narrow(&view, big, 0, 0, 10));
        ebb_named_tensor named = { "v", view };
        check_ok(ebb_safetensors_save(temp_path(&folder, "f"), &named, 1));
        char *bytes = read_text(temp_path(&folder, "f"), &n);
        cr_assert(n - 8 - header_length(bytes) == 320, "%zu bytes", n);
        free(bytes);
    }
    temp_folder_remove(&folder);
}

Test(safetensors_write, a_view_that_is_not_contiguous_is_written_in_row_major_order)
{
    temp_folder folder = temp_folder_make();
    with_context(ctx) {
        EBB_LOCAL(x);
        EBB_LOCAL(view);
        EBB_LOCAL(back);
        ebb_safetensors *file = NULL;
        const float values[6] = { 1, 2, 3, 4, 5, 6 };
        float got[4];
        check_ok(ebb_from_data(&x, ctx, EBB_F32, 2, (int64_t[]){ 2, 3 }, values));
        check_ok(ebb_transpose(&view, x, 0, 1));
        check_ok(ebb_narrow(&view, view, 0, 1, 2)); /* [[2, 5], [3, 6]] */
        ebb_named_tensor named = { "v", view };
        check_ok(ebb_safetensors_save(temp_path(&folder, "f"), &named, 1));
        check_ok(ebb_safetensors_open(&file, temp_path(&folder, "f")));
        check_ok(ebb_safetensors_read(&back, ctx, file, 0));
        ebb_safetensors_close(file);
        check_ok(ebb_read(back, got, sizeof got));
        cr_assert(got[0] == 2 && got[1] == 5 && got[2] == 3 && got[3] == 6);
    }
    temp_folder_remove(&folder);
}

Test(safetensors_write, every_dtype_comes_back_bit_for_bit)
{
    temp_folder folder = temp_folder_make();
    with_context(ctx) {
        ebb_tensor *tensors[EBB_N_DTYPES] = { NULL };
        ebb_named_tensor named[EBB_N_DTYPES];
        unsigned char data[EBB_N_DTYPES][24], back[24];
        ebb_safetensors *file = NULL;
        for (int d = 0; d < EBB_N_DTYPES; d++) {
            for (int i = 0; i < 24; i++) data[d][i] = (unsigned char)(37 * d + 11 * i);
            check_ok(ebb_from_data(&tensors[d], ctx, (ebb_dtype)d, 1, (int64_t[]){ 3 }, data[d]));
            named[d] = (ebb_named_tensor){ ebb_dtype_name((ebb_dtype)d), tensors[d] };
        }
        check_ok(ebb_safetensors_save(temp_path(&folder, "f"), named, EBB_N_DTYPES));
        check_ok(ebb_safetensors_open(&file, temp_path(&folder, "f")));
        for (int d = 0; d < EBB_N_DTYPES; d++) {
            EBB_LOCAL(t);
            int index = ebb_safetensors_find(file, ebb_dtype_name((ebb_dtype)d));
            size_t bytes = 3 * ebb_dtype_bytes((ebb_dtype)d);
            check_ok(ebb_safetensors_read(&t, ctx, file, index));
            cr_assert(ebb_tensor_dtype(t) == (ebb_dtype)d);
            check_ok(ebb_read(t, back, bytes));
            cr_assert(!memcmp(back, data[d], bytes), "%s", ebb_dtype_name((ebb_dtype)d));
            ebb_drop(&tensors[d]);
        }
        ebb_safetensors_close(file);
    }
    temp_folder_remove(&folder);
}

Test(safetensors_write, names_that_a_file_cannot_have_are_refused)
{
    temp_folder folder = temp_folder_make();
    with_context(ctx) {
        EBB_LOCAL(a);
        ebb_safetensors *file = NULL;
        check_ok(ebb_zeros(&a, ctx, EBB_F32, 0, NULL));
        const char *path = temp_path(&folder, "f");
        check_fails(ebb_safetensors_save(
                        path, (ebb_named_tensor[]){ { "x", a }, { "y", a }, { "x", a } }, 3),
                    EBB_EINVAL);
        check_message("duplicate tensor name 'x'");
        check_fails(ebb_safetensors_save(path, &(ebb_named_tensor){ "__metadata__", a }, 1),
                    EBB_EINVAL);
        check_fails(ebb_safetensors_save(path, &(ebb_named_tensor){ "a\xff", a }, 1), EBB_EINVAL);
        check_fails(ebb_safetensors_save(path, &(ebb_named_tensor){ "a\xed\xa0\x80", a }, 1),
                    EBB_EINVAL);
        check_fails(ebb_safetensors_save(path, &(ebb_named_tensor){ NULL, a }, 1), EBB_EINVAL);
        check_fails(ebb_safetensors_save(path, &(ebb_named_tensor){ "a", NULL }, 1), EBB_EINVAL);
        check_fails(ebb_safetensors_open(&file, path), EBB_EIO);
        check_ok(ebb_safetensors_save(
            path, &(ebb_named_tensor){ "\xc3\xa9\xe2\x82\xac\xf0\x9f\x98\x80", a }, 1));
        check_ok(ebb_safetensors_open(&file, path));
        cr_assert(ebb_safetensors_find(file, "\xc3\xa9\xe2\x82\xac\xf0\x9f\x98\x80") == 0);
        ebb_safetensors_close(file);
    }
    temp_folder_remove(&folder);
}

Test(safetensors_write, a_failed_save_leaves_the_old_file_and_no_other)
{
    temp_folder folder = temp_folder_make();
    with_context(ctx) {
        EBB_LOCAL(x);
        EBB_LOCAL(view);
        bool fired = true;
        uint64_t n = 0;
        const char *path = temp_path(&folder, "f");
        check_ok(ebb_zeros(&x, ctx, EBB_F32, 2, (int64_t[]){ 2, 3 }));
        check_ok(ebb_transpose(&view, x, 0, 1));
        ebb_named_tensor named[] = { { "x", x }, { "view", view } };
        while (fired) {
            write_text(path, "old");
            int64_t live = ebb_host_live_blocks();
            ebb_fault_arm(++n);
            ebb_status st = ebb_safetensors_save(path, named, 2);
            fired = ebb_fault_fired();
            ebb_fault_arm(0);
            cr_assert(st == (fired ? EBB_ENOMEM : EBB_OK), "%llu: %s", (unsigned long long)n,
                      ebb_message());
            cr_assert(ebb_host_live_blocks() == live, "allocation %llu leaks",
                      (unsigned long long)n);
            char *now = read_text(path, NULL);
            cr_assert(!strcmp(now, "old") == fired);
            free(now);
        }
        cr_assert(n > 4);
        check_fails(ebb_safetensors_save(temp_path(&folder, "no/such/folder"), named, 2), EBB_EIO);
    }
    temp_folder_remove(&folder);
}

Test(safetensors_write, dry_tensors_and_others_are_not_mixed)
{
    temp_folder folder = temp_folder_make();
    with_context(ctx) {
        EBB_LOCAL(x);
        const char *path = temp_path(&folder, "f");
        check_ok(ebb_zeros(&x, ctx, EBB_F32, 1, (int64_t[]){ 2 }));
        with_device(dry_ctx, "dry:cpu") {
            EBB_LOCAL(dry);
            check_ok(ebb_zeros(&dry, dry_ctx, EBB_F32, 1, (int64_t[]){ 2 }));
            ebb_named_tensor first[] = { { "x", x }, { "y", dry } };
            ebb_named_tensor last[] = { { "x", dry }, { "y", x } };
            check_fails(ebb_safetensors_save(path, first, 2), EBB_EDEVICE);
            check_message("'y' is on a dry device, 'x' is not");
            check_fails(ebb_safetensors_save(path, last, 2), EBB_EDEVICE);
            check_message("'x' is on a dry device, 'y' is not");
        }
    }
    cr_assert(access(temp_path(&folder, "f"), F_OK) != 0, "something was written");
    temp_folder_remove(&folder);
}
