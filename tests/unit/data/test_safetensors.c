/* Reading safetensors: the vectors beside the repository, and headers made here. */
#include "support/support.h"

#include <stdio.h>
#include <string.h>

#include <ebb/data.h>

#include "core/json.h"
#include "core/mem.h"

/* Writes prefix, header text and `data_bytes` zero bytes (or *data); returns the path. */
static const char *made(const temp_folder *folder, const char *header, const void *data,
                        size_t data_bytes)
{
    static unsigned char bytes[4096];
    size_t n = strlen(header);
    cr_assert(8 + n + data_bytes <= sizeof bytes);
    memset(bytes, 0, sizeof bytes);
    for (int i = 0; i < 8; i++) bytes[i] = (unsigned char)((uint64_t)n >> 8 * i);
    memcpy(bytes + 8, header, n);
    if (data) memcpy(bytes + 8 + n, data, data_bytes);
    const char *path = temp_path(folder, "made.safetensors");
    write_file(path, bytes, 8 + n + data_bytes);
    return path;
}

/* ---- vectors ----------------------------------------------------------------------------- */

Test(safetensors, every_shared_vector_gets_its_verdict)
{
    char path[512];
    cJSON *verdicts = NULL;
    int n = 0;
    need_shared(path, "data/safetensors/expected.json");
    check_ok(ebb__json_load(&verdicts, path));
    for (const cJSON *v = verdicts->child; v; v = v->next, n++) {
        ebb_safetensors *file = NULL;
        char relative[256];
        snprintf(relative, sizeof relative, "data/safetensors/%s", v->string);
        support_shared_path(path, sizeof path, EBB_SHARED_DIR, relative);
        ebb_status st = ebb_safetensors_open(&file, path);
        bool ok = !strncmp(v->valuestring, "ok", 2);
        cr_expect(st == (ok ? EBB_OK : EBB_EFORMAT), "%s: %s (%s), expected %s", v->string,
                  ebb_status_name(st), ebb_message(), v->valuestring);
        cr_expect(ok == (file != NULL), "%s: the variable must be set exactly on success",
                  v->string);
        if (!ok)
            cr_expect(strstr(ebb_message(), v->string), "%s: not named in \"%s\"", v->string,
                      ebb_message());
        ebb_safetensors_close(file);
    }
    cr_assert(n >= 27, "only %d vectors", n);
    cJSON_Delete(verdicts);
    check_no_live_blocks();
}

/* B69, B71: what the messages of bad vectors must say. */
Test(safetensors, messages_name_what_is_wrong)
{
    static const struct { const char *file, *words[5]; } cases[] = {
        { "own_duplicate_key", { "duplicate", "key00" } },
        { "own_header_len_u64max", { "18446744073709551615", "100000000" } },
        { "own_header_len_132095296", { "132095296", "100000000" } },
        { "invalid_header_length", { "length 60", "limit of 0" } },
        { "own_gap", { "'b'", "[8, 12]", "hole", "4" } },
        { "json_attack_overlap", { "'weight_1'", "[0, 16]", "overlaps", "'weight_0'" } },
        { "metadata_incomplete_buffer", { "ends at 16", "50" } },
        { "own_negative_offset", { "'a'", "data_offsets" } },
        { "own_float_shape", { "'a'", "shape" } },
        { "invalid_info", { "'test'", "[0, 4]", "0 bytes" } },
    };
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        char path[512], relative[128];
        ebb_safetensors *file = NULL;
        snprintf(relative, sizeof relative, "data/safetensors/%s.safetensors", cases[i].file);
        need_shared(path, relative);
        check_fails(ebb_safetensors_open(&file, path), EBB_EFORMAT);
        for (int w = 0; w < 5 && cases[i].words[w]; w++)
            cr_expect(strstr(ebb_message(), cases[i].words[w]), "%s: \"%s\" lacks \"%s\"",
                      cases[i].file, ebb_message(), cases[i].words[w]);
    }
}

/* B71: a wrong length is found before anything is allocated by it. */
Test(safetensors, a_false_header_length_allocates_next_to_nothing)
{
    temp_folder folder = temp_folder_make();
    const unsigned char lies[][10] = {
        { 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, '{', '}' },
        { 0x40, 0x9d, 0xdf, 0x07, 0, 0, 0, 0, '{', '}' },
        { 3, 0, 0, 0, 0, 0, 0, 0, '{', '}' },
    };
    for (int i = 0; i < 3; i++) {
        ebb_safetensors *file = NULL;
        const char *path = temp_path(&folder, "lie.safetensors");
        write_file(path, lies[i], 10);
        ebb_fault_arm(3); /* the file's struct and its path are allocated; no third is asked for */
        check_fails(ebb_safetensors_open(&file, path), EBB_EFORMAT);
        cr_assert(!ebb_fault_fired());
        ebb_fault_arm(0);
        check_message("header length");
    }
    temp_folder_remove(&folder);
    check_no_live_blocks();
}

/* B70 */
Test(safetensors, data_that_is_not_aligned_in_the_file_reads_right)
{
    temp_folder folder = temp_folder_make();
    const float values[2] = { 1, -2 };
    const char *path = made(
        &folder, "{\"w\":{\"dtype\":\"F32\",\"shape\":[2],\"data_offsets\":[0,8]}}   ", values, 8);
    with_context(ctx) {
        EBB_LOCAL(w);
        ebb_safetensors *file = NULL;
        float got[2];
        check_ok(ebb_safetensors_open(&file, path));
        check_ok(ebb_safetensors_read(&w, ctx, file, 0));
        ebb_safetensors_close(file);
        check_ok(ebb_read(w, got, sizeof got));
        cr_assert(got[0] == 1 && got[1] == -2, "%g %g", (double)got[0], (double)got[1]);
        cr_assert(!strcmp(ebb_tensor_name(w), "w"));
    }
    temp_folder_remove(&folder);
}

/* ---- headers made here ------------------------------------------------------------------- */

static const struct bad_header {
    const char *header;
    int data_bytes;
    const char *word;
} bad_headers[] = {
    { "[]", 0, "object" },
    { "", 0, "" },
    { "{\"a\":1}", 0, "'a'" },
    { "{\"a\":{}}", 0, "dtype is missing" },
    { "{\"a\":{\"dtype\":\"F32\",\"data_offsets\":[0,4]}}", 4, "shape is missing" },
    { "{\"a\":{\"dtype\":\"F32\",\"shape\":[1]}}", 4, "data_offsets is missing" },
    { "{\"a\":{\"dtype\":\"f32\",\"shape\":[1],\"data_offsets\":[0,4]}}", 4, "\"f32\"" },
    { "{\"a\":{\"dtype\":7,\"shape\":[1],\"data_offsets\":[0,4]}}", 4, "dtype must be a string" },
    { "{\"a\":{\"dtype\":\"F32\",\"shape\":1,\"data_offsets\":[0,4]}}", 4, "shape must be" },
    { "{\"a\":{\"dtype\":\"F32\",\"shape\":[1e0],\"data_offsets\":[0,4]}}", 4, "shape must be" },
    { "{\"a\":{\"dtype\":\"F32\",\"shape\":[-1],\"data_offsets\":[0,4]}}", 4, "shape must be" },
    { "{\"a\":{\"dtype\":\"F32\",\"shape\":[\"1\"],\"data_offsets\":[0,4]}}", 4, "shape must be" },
    { "{\"a\":{\"dtype\":\"F32\",\"shape\":[1],\"data_offsets\":[0,4,8]}}", 4,
      "data_offsets must be" },
    { "{\"a\":{\"dtype\":\"F32\",\"shape\":[1],\"data_offsets\":[0]}}", 4, "data_offsets must be" },
    { "{\"a\":{\"dtype\":\"F32\",\"shape\":[1],\"data_offsets\":[4,0]}}", 4, "[4, 0]" },
    { "{\"a\":{\"dtype\":\"F32\",\"shape\":[1],\"data_offsets\":[0,18446744073709551616]}}", 4,
      "data_offsets must be" },
    { "{\"a\":{\"dtype\":\"F32\",\"shape\":[1],\"data_offsets\":[18446744073709551612,"
      "18446744073709551615]}}",
      4, "4 bytes" },
    { "{\"a\":{\"dtype\":\"F32\",\"shape\":[2],\"data_offsets\":[0,8]}}", 4, "4 bytes of data" },
    { "{\"a\":{\"dtype\":\"F32\",\"shape\":[4611686018427387904],\"data_offsets\":[0,0]}}", 0,
      "overflows" },
    { "{\"a\":{\"dtype\":\"F32\",\"shape\":[0,4294967296,4294967296],\"data_offsets\":[0,0]}}", 1,
      "bytes of data" },
    { "{\"a\":{\"dtype\":\"F32\",\"shape\":[9223372036854775808,0],\"data_offsets\":[0,0]}}", 0,
      "overflows" },
    { "{\"a\":{\"dtype\":\"F4\",\"shape\":[3],\"data_offsets\":[0,2]}}", 2, "whole bytes" },
    { "{\"__metadata__\":[]}", 0, "__metadata__" },
    { "{\"__metadata__\":{\"a\":1}}", 0, "\"a\" must be a string" },
    { "{\"__metadata__\":{\"a\":{\"b\":\"c\"}}}", 0, "must be a string" },
    { "{\"a\":{\"dtype\":\"U8\",\"shape\":[1],\"data_offsets\":[0,1]},"
      "\"\\u0061\":{\"dtype\":\"U8\",\"shape\":[1],\"data_offsets\":[1,2]}}",
      2, "duplicate" },
    { "{\"a\\u0000b\":{\"dtype\":\"U8\",\"shape\":[1],\"data_offsets\":[0,1]}}", 1, "" },
};

Test(safetensors, bad_headers_are_refused_with_the_reason)
{
    temp_folder folder = temp_folder_make();
    for (size_t i = 0; i < sizeof bad_headers / sizeof bad_headers[0]; i++) {
        const struct bad_header *bad = &bad_headers[i];
        ebb_safetensors *file = NULL;
        ebb_status st =
            ebb_safetensors_open(&file, made(&folder, bad->header, NULL, (size_t)bad->data_bytes));
        cr_expect(st == EBB_EFORMAT && !file, "%s: %s", bad->header, ebb_status_name(st));
        cr_expect(strstr(ebb_message(), bad->word), "%s: \"%s\" lacks \"%s\"", bad->header,
                  ebb_message(), bad->word);
        ebb_safetensors_close(file);
    }
    temp_folder_remove(&folder);
    check_no_live_blocks();
}

Test(safetensors, names_are_decoded_and_found)
{
    temp_folder folder = temp_folder_make();
    ebb_safetensors *file = NULL;
    const char *path = made(&folder,
        "{\"b\\\"\\n\":{\"dtype\":\"U8\",\"shape\":[2],\"data_offsets\":[0,2]},"
        "\"__metadata__\":{\"x\":\"y\"},"
        "\"\\u00e9\\ud83d\\ude00\":{\"shape\":[],\"later\":[1,{\"a\":[\"]\"]}],"
        "\"dtype\":\"U8\",\"data_offsets\":[2,3]}}", NULL, 3);
    check_ok(ebb_safetensors_open(&file, path));
    cr_assert(ebb_safetensors_count(file) == 2);
    cr_assert(ebb_safetensors_find(file, "b\"\n") == 0);
    cr_assert(ebb_safetensors_find(file, "\xc3\xa9\xf0\x9f\x98\x80") == 1);
    cr_assert(ebb_safetensors_find(file, "b") == -1);
    cr_assert(ebb_safetensors_find(file, "__metadata__") == -1);
    cr_assert(!strcmp(ebb_safetensors_at(file, 0).name, "b\"\n"));
    cr_assert(ebb_safetensors_at(file, 1).ndim == 0 && ebb_safetensors_at(file, 1).bytes == 1);
    cr_assert(!strcmp(ebb_safetensors_at(file, 2).name, ""),
              "an index that is not there gives an empty entry");
    ebb_safetensors_close(file);
    temp_folder_remove(&folder);
    check_no_live_blocks();
}

Test(safetensors, what_ebb_has_no_dtype_or_rank_for_opens_but_does_not_read)
{
    temp_folder folder = temp_folder_make();
    with_context(ctx) {
        EBB_LOCAL(t);
        ebb_safetensors *file = NULL;
        unsigned char raw[2] = { 0 };
        check_ok(ebb_safetensors_open(
            &file,
            made(&folder,
                 "{\"f8\":{\"dtype\":\"F8_E4M3\",\"shape\":[2],\"data_offsets\":[0,2]},"
                 "\"bool\":{\"dtype\":\"BOOL\",\"shape\":[1],\"data_offsets\":[2,3]},"
                 "\"f4\":{\"dtype\":\"F4\",\"shape\":[1,2],\"data_offsets\":[3,4]},"
                 "\"seven\":{\"dtype\":\"U8\",\"shape\":[1,1,1,1,1,1,2],\"data_offsets\":[4,6]}}",
                 "\1\2\3\4\5\6", 6)));
        for (int i = 0; i < 3; i++) {
            cr_assert(!ebb_safetensors_at(file, i).known_dtype);
            check_fails(ebb_safetensors_read(&t, ctx, file, i), EBB_EUNSUPPORTED);
            check_message(ebb_safetensors_at(file, i).dtype_name);
        }
        cr_assert(ebb_safetensors_at(file, 3).ndim == 7);
        check_fails(ebb_safetensors_read(&t, ctx, file, 3), EBB_EUNSUPPORTED);
        check_message("'seven'");
        cr_assert(t == NULL);
        check_ok(ebb_safetensors_read_data(raw, 2, file, 3));
        cr_assert(raw[0] == 5 && raw[1] == 6);
        check_fails(ebb_safetensors_read_data(raw, 1, file, 3), EBB_EINVAL);
        check_fails(ebb_safetensors_read_data(raw, 2, file, 4), EBB_EINVAL);
        ebb_safetensors_close(file);
    }
    temp_folder_remove(&folder);
}

Test(safetensors, empty_tensors_may_lie_anywhere)
{
    temp_folder folder = temp_folder_make();
    with_context(ctx) {
        EBB_LOCAL(t);
        ebb_safetensors *file = NULL;
        check_ok(ebb_safetensors_open(&file, made(&folder,
            "{\"a\":{\"dtype\":\"U8\",\"shape\":[1],\"data_offsets\":[0,1]},"
            "\"none\":{\"dtype\":\"F32\",\"shape\":[3,0],\"data_offsets\":[1,1]},"
            "\"b\":{\"dtype\":\"U8\",\"shape\":[1],\"data_offsets\":[1,2]},"
            "\"end\":{\"dtype\":\"F32\",\"shape\":[0],\"data_offsets\":[2,2]}}", NULL, 2)));
        check_ok(ebb_safetensors_read(&t, ctx, file, 1));
        cr_assert(ebb_tensor_elems(t) == 0 && ebb_tensor_dim(t, 0) == 3);
        ebb_safetensors_close(file);
    }
    temp_folder_remove(&folder);
}

Test(safetensors, missing_files_and_folders_are_io_errors)
{
    temp_folder folder = temp_folder_make();
    ebb_safetensors *file = NULL;
    check_fails(ebb_safetensors_open(&file, temp_path(&folder, "none")), EBB_EIO);
    check_message("none");
    check_fails(ebb_safetensors_open(&file, folder.path), EBB_EIO);
    cr_assert(file == NULL);
    temp_folder_remove(&folder);
    check_no_live_blocks();
}

Test(safetensors, a_file_that_shrank_after_opening_is_an_error)
{
    temp_folder folder = temp_folder_make();
    const char *path =
        made(&folder, "{\"w\":{\"dtype\":\"F32\",\"shape\":[2],\"data_offsets\":[0,8]}}", NULL, 8);
    with_context(ctx) {
        EBB_LOCAL(w);
        ebb_safetensors *file = NULL;
        check_ok(ebb_safetensors_open(&file, path));
        write_file(path, "", 0);
        check_fails(ebb_safetensors_read(&w, ctx, file, 0), EBB_EIO);
        cr_assert(w == NULL);
        ebb_safetensors_close(file);
    }
    temp_folder_remove(&folder);
}

Test(safetensors, on_a_dry_device_headers_are_checked_and_nothing_is_read)
{
    temp_folder folder = temp_folder_make();
    const char *path =
        made(&folder, "{\"w\":{\"dtype\":\"F32\",\"shape\":[2],\"data_offsets\":[0,8]}}", NULL, 8);
    with_device(ctx, "dry:cpu") {
        EBB_LOCAL(w);
        ebb_safetensors *file = NULL;
        check_ok(ebb_safetensors_open(&file, path));
        check_ok(ebb_safetensors_read(&w, ctx, file, 0));
        cr_assert(ebb_tensor_elems(w) == 2 && !ebb_tensor_data(w));
        ebb_safetensors_close(file);
        ebb_named_tensor named = { "w", w };
        check_ok(ebb_safetensors_save(temp_path(&folder, "dry"), &named, 1));
        check_fails(ebb_safetensors_open(&file, temp_path(&folder, "dry")), EBB_EIO);
    }
    temp_folder_remove(&folder);
}

Test(safetensors, every_failed_allocation_of_open_and_read_is_enomem_and_leaks_nothing)
{
    temp_folder folder = temp_folder_make();
    const char *path = made(&folder,
        "{\"w\":{\"dtype\":\"F32\",\"shape\":[2],\"data_offsets\":[0,8]},"
        "\"v\":{\"dtype\":\"F32\",\"shape\":[1],\"data_offsets\":[8,12]}}", NULL, 12);
    uint64_t n = 0;
    bool fired = true;
    with_context(ctx) {
        EBB_LOCAL(warm); /* the pool keeps its own bookkeeping from now on */
        check_ok(ebb_zeros(&warm, ctx, EBB_F32, 0, NULL));
        while (fired) {
            EBB_LOCAL(w);
            ebb_safetensors *file = NULL;
            int64_t live = ebb_host_live_blocks();
            ebb_fault_arm(++n);
            ebb_status st = ebb_safetensors_open(&file, path);
            if (st == EBB_OK) st = ebb_safetensors_read(&w, ctx, file, 0);
            fired = ebb_fault_fired();
            ebb_fault_arm(0);
            cr_assert(st == (fired ? EBB_ENOMEM : EBB_OK), "%llu: %s", (unsigned long long)n,
                      ebb_message());
            cr_assert(fired == (w == NULL));
            ebb_safetensors_close(file);
            ebb_drop(&w);
            cr_assert(ebb_host_live_blocks() == live, "allocation %llu leaks",
                      (unsigned long long)n);
        }
    }
    cr_assert(n > 8, "only %llu allocations", (unsigned long long)n);
    temp_folder_remove(&folder);
}
