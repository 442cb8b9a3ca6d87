/* Datasets: idx, text, synthetic. */
#include "support/support.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <zlib.h>

#include <ebb/data.h>

#include "data/dataset.h"

/* ---- idx files made here ----------------------------------------------------------------- */

enum { N = 5, ROW = 6 }; /* five images of 2 x 3 */

static size_t idx_bytes(unsigned char *to, int ndim, const uint32_t *dims, unsigned first,
                        unsigned step)
{
    size_t n = 1, at = 4;
    memcpy(to, (unsigned char[]){ 0, 0, 8, (unsigned char)ndim }, 4);
    for (int i = 0; i < ndim; i++) {
        for (int shift = 24; shift >= 0; shift -= 8) to[at++] = (unsigned char)(dims[i] >> shift);
        n *= dims[i];
    }
    for (size_t i = 0; i < n; i++) to[at++] = (unsigned char)(first + step * i);
    return at;
}

static void write_gzip(const char *path, const void *data, size_t bytes)
{
    gzFile file = gzopen(path, "wb");
    cr_assert(file && gzwrite(file, data, (unsigned)bytes) == (int)bytes && gzclose(file) == Z_OK);
}

/* Images 0, 7, 14, ...; labels 0, 1, 2, 3, 4. */
static void write_idx(const temp_folder *folder, bool gzip)
{
    unsigned char raw[256];
    void (*write)(const char *, const void *, size_t) = gzip ? write_gzip : write_file;
    size_t n = idx_bytes(raw, 3, (uint32_t[]){ N, 2, 3 }, 0, 7);
    write(temp_path(folder, "images"), raw, n);
    n = idx_bytes(raw, 1, (uint32_t[]){ N }, 0, 1);
    write(temp_path(folder, "labels"), raw, n);
}

static ebb_status open_idx(ebb_dataset **out, const temp_folder *folder, const char *more,
                           int64_t width, int64_t classes)
{
    char json[2048];
    snprintf(json, sizeof json,
             "{\"type\":\"idx\",\"images\":\"%s/images\",\"labels\":\"%s/labels\"%s}", folder->path,
             folder->path, more);
    return ebb_dataset_open(out, json, false, width, classes, 1);
}

static ebb_status open_and_load(const temp_folder *folder, int64_t width, int64_t classes)
{
    ebb_dataset *data = NULL;
    ebb_status st = open_idx(&data, folder, "", width, classes);
    if (st == EBB_OK) st = ebb_dataset_load(data);
    ebb_dataset_close(data);
    return st;
}

Test(idx, plain_and_gzip_files_give_pixels_in_0_to_1_and_labels)
{
    for (int gzip = 0; gzip < 2; gzip++) {
        temp_folder folder = temp_folder_make();
        ebb_dataset *data = NULL;
        float x[ROW];
        double y[ROW];
        int32_t label;
        write_idx(&folder, gzip);
        check_ok(open_idx(&data, &folder, "", ROW, 10));
        ebb_dataset_info info = ebb_dataset_info_get(data);
        cr_assert(!info.tokens && info.n_train == N && info.n_eval == 0 && info.width == ROW &&
                  info.classes == 10);
        check_ok(ebb_dataset_load(data));
        check_ok(data->kind->fill(data, false, 3, x, EBB_F32, &label));
        check_ok(data->kind->fill(data, false, 3, y, EBB_F64, &label));
        cr_assert(label == 3);
        for (int i = 0; i < ROW; i++) {
            double pixel = (7 * (3 * ROW + i) % 256) / 255.0;
            cr_assert(fabs((double)x[i] - pixel) < 1e-7 && fabs(y[i] - pixel) < 1e-15);
        }
        ebb_dataset_close(data);
        temp_folder_remove(&folder);
        check_no_live_blocks();
    }
}

Test(idx, normalize_takes_off_the_mean_and_divides_by_the_deviation)
{
    temp_folder folder = temp_folder_make();
    ebb_dataset *data = NULL;
    double x[ROW];
    int32_t label;
    write_idx(&folder, false);
    check_ok(open_idx(&data, &folder, ",\"normalize\":[0.25,0.5],\"workers\":1,\"prefetch\":2", ROW,
                      10));
    check_ok(ebb_dataset_load(data));
    check_ok(data->kind->fill(data, false, 0, x, EBB_F64, &label));
    cr_assert(fabs(x[0] + 0.5) < 1e-15 && fabs(x[1] - (7 / 255.0 - 0.25) / 0.5) < 1e-15);
    ebb_dataset_close(data);
    check_fails(open_idx(&data, &folder, ",\"normalize\":[0,0]", ROW, 10), EBB_EINVAL);
    check_message("data.normalize");
    temp_folder_remove(&folder);
}

Test(idx, a_width_that_does_not_fit_the_images_names_model_input)
{
    temp_folder folder = temp_folder_make();
    ebb_dataset *data = NULL;
    write_idx(&folder, true);
    check_fails(open_idx(&data, &folder, "", 784, 10), EBB_EINVAL);
    check_message("model.input: 784");
    check_message("2 x 3 = 6");
    cr_assert(data == NULL);
    temp_folder_remove(&folder);
    check_no_live_blocks();
}

Test(idx, labels_out_of_range_name_file_item_label_and_what_is_allowed)
{
    temp_folder folder = temp_folder_make();
    write_idx(&folder, false);
    check_fails(open_and_load(&folder, ROW, 4), EBB_EINVAL);
    check_message("/labels: label 4 of item 4 is outside [0, 4)");
    check_ok(open_and_load(&folder, ROW, 5));
    temp_folder_remove(&folder);
    check_no_live_blocks();
}

/* What opening must say about `bytes` as the images file. */
static void check_images(const temp_folder *folder, const void *bytes, size_t n, const char *word)
{
    ebb_dataset *data = NULL;
    write_file(temp_path(folder, "images"), bytes, n);
    check_fails(open_idx(&data, folder, "", ROW, 10), EBB_EFORMAT);
    check_message(word);
    check_message("/images");
    cr_assert(data == NULL);
}

Test(idx, broken_plain_files_say_what_was_expected)
{
    temp_folder folder = temp_folder_make();
    unsigned char raw[256], bad[256];
    write_idx(&folder, false);
    size_t n = idx_bytes(raw, 3, (uint32_t[]){ N, 2, 3 }, 0, 7);
    check_images(&folder, raw, 0, "found 0 bytes");
    check_images(&folder, raw, 3, "found 3 bytes");
    check_images(&folder, raw, 15, "expected a header of 16 bytes, found 15");
    check_images(&folder, raw, n - 1, "expected 46 bytes of header and data, found 45");
    memcpy(bad, raw, n);
    bad[n] = 0;
    check_images(&folder, bad, n + 1, "found 47");
    bad[2] = 0x0D;
    check_images(&folder, bad, n, "0x00000d03, expected 0x00000803");
    memcpy(bad, raw, n);
    bad[3] = 1;
    check_images(&folder, bad, n, "2 to 4 dims");
    memcpy(bad, raw, n);
    memset(bad + 4, 0xff, 12);
    check_images(&folder, bad, n, "overflow");
    n = idx_bytes(bad, 3, (uint32_t[]){ N - 1, 2, 3 }, 0, 7);
    check_images(&folder, bad, n, "5 labels");
    temp_folder_remove(&folder);
    check_no_live_blocks();
}

Test(idx, broken_gzip_files_are_format_errors)
{
    temp_folder folder = temp_folder_make();
    unsigned char raw[256];
    size_t n;
    write_idx(&folder, true);
    char *good = read_text(temp_path(&folder, "images"), &n);

    write_file(temp_path(&folder, "images"), good, n - 12);
    check_fails(open_and_load(&folder, ROW, 10), EBB_EFORMAT);
    check_message("cut off");
    write_file(temp_path(&folder, "images"), good, 12);
    check_fails(open_and_load(&folder, ROW, 10), EBB_EFORMAT);
    good[n - 6] ^= 1; /* of the checksum */
    write_file(temp_path(&folder, "images"), good, n);
    check_fails(open_and_load(&folder, ROW, 10), EBB_EFORMAT);
    check_message("corrupt");
    good[n - 6] ^= 1;
    good[12] ^= 0x55;
    write_file(temp_path(&folder, "images"), good, n);
    check_fails(open_and_load(&folder, ROW, 10), EBB_EFORMAT);

    size_t bytes = idx_bytes(raw, 3, (uint32_t[]){ N, 2, 3 }, 0, 7);
    write_gzip(temp_path(&folder, "images"), raw, bytes - 1);
    check_fails(open_and_load(&folder, ROW, 10), EBB_EFORMAT);
    check_message("expected 30 bytes of data, found 29");
    write_gzip(temp_path(&folder, "images"), raw, bytes + 1);
    check_fails(open_and_load(&folder, ROW, 10), EBB_EFORMAT);
    check_message("found more");
    memset(raw + 4, 0x7f, 4); /* more images than any file of this size can hold */
    write_gzip(temp_path(&folder, "images"), raw, bytes);
    check_fails(open_and_load(&folder, ROW, 10), EBB_EFORMAT);
    check_message("found at most");
    free(good);
    temp_folder_remove(&folder);
    check_no_live_blocks();
}

Test(idx, gzip_files_of_several_members_are_read_through)
{
    temp_folder folder = temp_folder_make();
    unsigned char raw[256];
    size_t n = idx_bytes(raw, 3, (uint32_t[]){ N, 2, 3 }, 0, 7), first, second;
    write_idx(&folder, true);
    write_gzip(temp_path(&folder, "a"), raw, 20);
    write_gzip(temp_path(&folder, "b"), raw + 20, n - 20);
    char *a = read_text(temp_path(&folder, "a"), &first),
         *b = read_text(temp_path(&folder, "b"), &second);
    char *both = malloc(first + second);
    memcpy(both, a, first);
    memcpy(both + first, b, second);
    write_file(temp_path(&folder, "images"), both, first + second);
    check_ok(open_and_load(&folder, ROW, 10));
    free(a);
    free(b);
    free(both);
    temp_folder_remove(&folder);
}

Test(idx, evaluation_files_come_in_pairs_and_are_a_split_of_their_own)
{
    temp_folder folder = temp_folder_make();
    ebb_dataset *data = NULL;
    char more[1024];
    int32_t label;
    float x[ROW];
    write_idx(&folder, false);
    snprintf(more, sizeof more, ",\"eval_images\":\"%s/images\"", folder.path);
    check_fails(open_idx(&data, &folder, more, ROW, 10), EBB_EINVAL);
    check_message("data.eval_labels");
    snprintf(more, sizeof more, ",\"eval_images\":\"%s/images\",\"eval_labels\":\"%s/labels\"",
             folder.path, folder.path);
    check_ok(open_idx(&data, &folder, more, ROW, 10));
    cr_assert(ebb_dataset_info_get(data).n_eval == N);
    check_ok(ebb_dataset_load(data));
    check_ok(data->kind->fill(data, true, 2, x, EBB_F32, &label));
    cr_assert(label == 2);
    ebb_dataset_close(data);
    temp_folder_remove(&folder);
    check_no_live_blocks();
}

Test(idx, fashion_mnist_reads)
{
    char images[512], labels[512], json[1200];
    ebb_dataset *data = NULL;
    int seen[10] = { 0 };
    float x[784];
    need_shared(images, "data/img/fashion-mnist/t10k-images-idx3-ubyte.gz");
    need_shared(labels, "data/img/fashion-mnist/t10k-labels-idx1-ubyte.gz");
    snprintf(json, sizeof json, "{\"type\":\"idx\",\"images\":\"%s\",\"labels\":\"%s\"}", images,
             labels);
    check_ok(ebb_dataset_open(&data, json, false, 784, 10, 1));
    check_ok(ebb_dataset_load(data));
    for (int i = 0; i < 10000; i++) {
        int32_t label;
        check_ok(data->kind->fill(data, false, i, x, EBB_F32, &label));
        seen[label]++;
    }
    for (int c = 0; c < 10; c++) cr_assert(seen[c] == 1000, "class %d: %d", c, seen[c]);
    ebb_dataset_close(data);
}

/* ---- text -------------------------------------------------------------------------------- */

static ebb_status open_text(ebb_dataset **out, const temp_folder *folder, const char *more,
                            int64_t width, int64_t vocab)
{
    char json[1024];
    snprintf(json, sizeof json, "{\"type\":\"text\",\"path\":\"%s/text\"%s}", folder->path, more);
    return ebb_dataset_open(out, json, true, width, vocab, 1);
}

Test(text, windows_do_not_overlap_and_targets_are_shifted_by_one)
{
    temp_folder folder = temp_folder_make();
    ebb_dataset *data = NULL;
    int32_t tokens[3], targets[3];
    write_text(temp_path(&folder, "text"), "abcdefghijklmnopqrst"); /* 20 bytes: 15 and 5 */
    check_ok(open_text(&data, &folder, ",\"tokenizer\":\"bytes\",\"eval_fraction\":0.25", 3, 256));
    ebb_dataset_info info = ebb_dataset_info_get(data);
    cr_assert(info.tokens && info.n_train == 4 && info.n_eval == 1, "%d %d", (int)info.n_train,
              (int)info.n_eval);
    check_ok(ebb_dataset_load(data));
    check_ok(data->kind->fill(data, false, 1, tokens, EBB_I32, targets));
    cr_assert(tokens[0] == 'd' && tokens[2] == 'f' && targets[0] == 'e' && targets[2] == 'g');
    check_ok(data->kind->fill(data, true, 0, tokens, EBB_I32, targets));
    cr_assert(tokens[0] == 'p' && targets[2] == 's');
    ebb_dataset_close(data);
    temp_folder_remove(&folder);
    check_no_live_blocks();
}

Test(text, the_last_target_of_a_part_may_be_its_last_byte)
{
    temp_folder folder = temp_folder_make();
    ebb_dataset *data = NULL;
    int32_t tokens[4], targets[4];
    write_text(temp_path(&folder, "text"), "abcdefghi");
    check_ok(open_text(&data, &folder, "", 4, 256));
    cr_assert(ebb_dataset_info_get(data).n_train == 2 && ebb_dataset_info_get(data).n_eval == 0);
    check_ok(ebb_dataset_load(data));
    check_ok(data->kind->fill(data, false, 1, tokens, EBB_I32, targets));
    cr_assert(targets[3] == 'i');
    ebb_dataset_close(data);
    temp_folder_remove(&folder);
}

Test(text, what_does_not_fit_is_refused)
{
    temp_folder folder = temp_folder_make();
    ebb_dataset *data = NULL;
    write_file(temp_path(&folder, "text"), "abc\xc3", 4);
    check_fails(open_text(&data, &folder, "", 4, 256), EBB_EINVAL);
    check_message("too few");
    check_fails(open_text(&data, &folder, ",\"eval_fraction\":1", 1, 256), EBB_EINVAL);
    check_message("data.eval_fraction");
    check_fails(open_text(&data, &folder, ",\"eval_fraction\":-0.1", 1, 256), EBB_EINVAL);
    check_fails(open_text(&data, &folder, ",\"tokenizer\":\"bpe\"", 1, 256), EBB_EINVAL);
    check_message("data.tokenizer");
    check_ok(open_text(&data, &folder, "", 2, 128));
    check_fails(ebb_dataset_load(data), EBB_EINVAL);
    check_message("byte 195 at offset 3 is outside [0, 128)");
    ebb_dataset_close(data);
    data = NULL;
    check_ok(open_text(&data, &folder, "", 2, 196));
    write_text(temp_path(&folder, "text"), "ab");
    check_fails(ebb_dataset_load(data), EBB_EFORMAT);
    check_message("had 4 bytes");
    ebb_dataset_close(data);
    temp_folder_remove(&folder);
    check_no_live_blocks();
}

/* ---- synthetic --------------------------------------------------------------------------- */

Test(synthetic, items_are_pure_functions_of_seed_split_and_item)
{
    ebb_dataset *a = NULL, *b = NULL;
    int32_t x[16], y[16], targets[16], again[16];
    const char *json = "{\"type\":\"synthetic\",\"items\":10,\"eval_items\":3,\"kind\":\"tokens\"}";
    check_ok(ebb_dataset_open(&a, json, true, 16, 50, 7));
    check_ok(
        ebb_dataset_open(&b, "{\"type\":\"synthetic\",\"items\":99,\"seed\":7}", true, 16, 50, 1));
    cr_assert(ebb_dataset_info_get(a).n_train == 10 && ebb_dataset_info_get(a).n_eval == 3);
    check_ok(ebb_dataset_load(a));
    check_ok(a->kind->fill(a, false, 4, x, EBB_I32, targets));
    check_ok(b->kind->fill(b, false, 4, y, EBB_I32, again));
    cr_assert(!memcmp(x, y, sizeof x) && !memcmp(targets, again, sizeof targets));
    for (int i = 0; i < 16; i++)
        cr_assert(x[i] >= 0 && x[i] < 50 && targets[i] >= 0 && targets[i] < 50);
    cr_assert(!memcmp(x + 1, targets, 15 * sizeof *x));
    check_ok(a->kind->fill(a, false, 5, y, EBB_I32, again));
    cr_assert(memcmp(x, y, sizeof x));
    check_ok(a->kind->fill(a, true, 4, y, EBB_I32, again));
    cr_assert(memcmp(x, y, sizeof x));
    ebb_dataset_close(a);
    ebb_dataset_close(b);
    check_no_live_blocks();
}

Test(synthetic, samples_lie_in_0_to_1_and_are_nearest_to_their_class)
{
    ebb_dataset *data = NULL;
    enum { WIDTH = 33, CLASSES = 4, ITEMS = 200 };
    double mean[CLASSES][WIDTH] = { { 0 } }, x[WIDTH];
    float single[WIDTH];
    int count[CLASSES] = { 0 }, right = 0;
    int32_t label;
    check_ok(ebb_dataset_open(&data, "{\"type\":\"synthetic\",\"items\":200}", false, WIDTH,
                              CLASSES, 3));
    for (int i = 0; i < ITEMS; i++) {
        check_ok(data->kind->fill(data, false, i, x, EBB_F64, &label));
        check_ok(data->kind->fill(data, false, i, single, EBB_F32, &label));
        cr_assert(label >= 0 && label < CLASSES);
        count[label]++;
        for (int k = 0; k < WIDTH; k++) {
            cr_assert(x[k] >= 0 && x[k] < 1 && (double)single[k] == x[k]);
            mean[label][k] += x[k];
        }
    }
    for (int c = 0; c < CLASSES; c++) cr_assert(count[c] > 20, "class %d: %d", c, count[c]);
    for (int i = 0; i < ITEMS; i++) {
        int best = -1;
        double least = INFINITY;
        check_ok(data->kind->fill(data, false, i, x, EBB_F64, &label));
        for (int c = 0; c < CLASSES; c++) {
            double d = 0;
            for (int k = 0; k < WIDTH; k++) d += pow(x[k] - mean[c][k] / count[c], 2);
            if (d < least) least = d, best = c;
        }
        right += best == label;
    }
    cr_assert(right > ITEMS * 9 / 10, "%d of %d", right, ITEMS);
    ebb_dataset_close(data);
}

/* ---- configs ----------------------------------------------------------------------------- */

static const struct bad_config {
    const char *json;
    bool tokens;
    ebb_status status;
    const char *word;
} bad_configs[] = {
    { "{", true, EBB_EFORMAT, "data:1:" },
    { "[]", true, EBB_EINVAL, "data" },
    { "{}", true, EBB_EINVAL, "data.type" },
    { "{\"type\":3}", true, EBB_EINVAL, "data.type" },
    { "{\"type\":\"txt\"}", true, EBB_EINVAL, "did you mean \"text\"" },
    { "{\"type\":\"text\"}", true, EBB_EINVAL, "data.path" },
    { "{\"type\":\"text\",\"path\":\"x\"}", false, EBB_EINVAL, "the model takes samples" },
    { "{\"type\":\"idx\"}", true, EBB_EINVAL, "the model takes tokens" },
    { "{\"type\":\"idx\",\"images\":\"x\"}", false, EBB_EINVAL, "data.labels" },
    { "{\"type\":\"idx\",\"images\":\"/nowhere/x\",\"labels\":\"y\"}", false, EBB_EIO,
      "/nowhere/x" },
    { "{\"type\":\"idx\",\"images\":\"/\",\"labels\":\"y\"}", false, EBB_EIO, "/" },
    { "{\"type\":\"synthetic\"}", true, EBB_EINVAL, "data.items" },
    { "{\"type\":\"synthetic\",\"items\":0}", true, EBB_EINVAL, "data.items" },
    { "{\"type\":\"synthetic\",\"items\":1,\"itens\":1}", true, EBB_EINVAL, "\"items\"" },
    { "{\"type\":\"synthetic\",\"items\":1,\"kind\":\"samples\"}", true, EBB_EINVAL, "data.kind" },
    { "{\"type\":\"synthetic\",\"items\":1,\"workers\":-1}", true, EBB_EINVAL, "data.workers" },
    { "{\"type\":\"synthetic\",\"items\":1,\"prefetch\":2000}", true, EBB_EINVAL, "data.prefetch" },
};

Test(dataset, bad_configs_are_refused_with_the_json_path)
{
    for (size_t i = 0; i < sizeof bad_configs / sizeof bad_configs[0]; i++) {
        const struct bad_config *bad = &bad_configs[i];
        ebb_dataset *data = NULL;
        ebb_status st = ebb_dataset_open(&data, bad->json, bad->tokens, 8, 16, 1);
        cr_expect(st == bad->status && !data, "%s: %s: %s", bad->json, ebb_status_name(st),
                  ebb_message());
        cr_expect(strstr(ebb_message(), bad->word), "%s: \"%s\" lacks \"%s\"", bad->json,
                  ebb_message(), bad->word);
        ebb_dataset_close(data);
    }
    check_no_live_blocks();
}

/* Opens and loads with each allocation failing in turn. */
static uint64_t fail_each(const char *json, bool tokens, int64_t width)
{
    uint64_t n = 0;
    for (bool fired = true; fired;) {
        ebb_dataset *data = NULL;
        ebb_fault_arm(++n);
        ebb_status st = ebb_dataset_open(&data, json, tokens, width, 256, 1);
        if (st == EBB_OK) st = ebb_dataset_load(data);
        fired = ebb_fault_fired();
        ebb_fault_arm(0);
        cr_assert(st == (fired ? EBB_ENOMEM : EBB_OK), "%s: %llu: %s: %s", json,
                  (unsigned long long)n, ebb_status_name(st), ebb_message());
        ebb_dataset_close(data);
        check_no_live_blocks();
    }
    return n;
}

Test(dataset, every_failed_allocation_of_open_and_load_is_enomem_and_leaks_nothing)
{
    temp_folder folder = temp_folder_make();
    char json[2048];
    write_idx(&folder, true);
    write_text(temp_path(&folder, "text"), "abcdefghi");
    snprintf(json, sizeof json,
             "{\"type\":\"idx\",\"images\":\"%s/images\",\"labels\":\"%s/labels\"}", folder.path,
             folder.path);
    cr_assert(fail_each(json, false, ROW) > 15);
    snprintf(json, sizeof json, "{\"type\":\"text\",\"path\":\"%s/text\"}", folder.path);
    cr_assert(fail_each(json, true, 2) > 5);
    cr_assert(fail_each("{\"type\":\"synthetic\",\"items\":3}", true, 2) > 3);
    temp_folder_remove(&folder);
}
