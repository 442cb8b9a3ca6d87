/* Bytes of an accelerator's memory: every way for host code to see and to change them. */
#include <errno.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <ebb/ebb.h>

#include "support/stub_accel.h"
#include "tensor/tensor.h"

#define stub_with_seed(seed_) stub_install((stub_options){ .seed = (seed_) })

/* The system says so without a fault. */
Test(accel_tensor, the_host_cannot_touch_the_memory)
{
    int ends[2];
    stub_with_seed(1);
    cr_assert(pipe(ends) == 0);
    with_stub(ctx) {
        EBB_LOCAL(x);
        check_ok(ebb_zeros(&x, ctx, EBB_F32, 1, (int64_t[]){ 4 }));
        cr_assert_not_null(ebb_tensor_data(x));
        cr_assert(write(ends[1], ebb_tensor_data(x), 4) == -1 && errno == EFAULT);
        double value[2];
        check_ok(ebb_read(x, value, sizeof value));
        cr_assert(write(ends[1], ebb_tensor_data(x), 4) == -1 && errno == EFAULT);
    }
    close(ends[0]);
    close(ends[1]);
}

Test(accel_tensor, values_are_written_and_read)
{
    stub_with_seed(2);
    with_stub(ctx) {
        EBB_LOCAL(x);
        EBB_LOCAL(t);
        float in[6] = { 1, 2, 3, 4, 5, 6 }, out[6];
        double value;
        check_ok(ebb_from_data(&x, ctx, EBB_F32, 2, (int64_t[]){ 2, 3 }, in));
        memset(in, 0, sizeof in); /* it has been read */
        check_ok(ebb_read(x, out, sizeof out));
        for (int i = 0; i < 6; i++) cr_assert(out[i] == (float)i + 1);
        check_ok(ebb_permute(&t, x, 2, (int[]){ 1, 0 }));
        check_ok(ebb_read(t, out, sizeof out));
        cr_assert(out[0] == 1 && out[1] == 4 && out[5] == 6 && out[4] == 3);
        for (int i = 0; i < 6; i++) in[i] = (float)(10 * i);
        check_ok(ebb_write(t, in, sizeof in));
        check_ok(ebb_read(x, out, sizeof out));
        cr_assert(out[0] == 0 && out[1] == 20 && out[3] == 10);
        check_ok(ebb_narrow(&t, x, 1, 2, 1));
        check_ok(ebb_fill(t, 7));
        check_ok(ebb_read(x, out, sizeof out));
        cr_assert(out[2] == 7 && out[5] == 7 && out[1] == 20 && out[4] == 30);
        check_ok(ebb_narrow(&t, t, 0, 1, 1));
        check_ok(ebb_item(t, &value));
        cr_assert(value == 7);
    }
}

Test(accel_tensor, a_view_is_written_without_what_lies_between)
{
    stub_with_seed(3);
    with_stub(ctx) {
        EBB_LOCAL(x);
        EBB_LOCAL(column);
        double out[6], in[2] = { -1, -2 };
        check_ok(ebb_full(&x, ctx, EBB_F64, 2, (int64_t[]){ 2, 3 }, 5));
        check_ok(ebb_narrow(&column, x, 1, 1, 1));
        check_ok(ebb_write(column, in, sizeof in));
        check_ok(ebb_read(x, out, sizeof out));
        cr_assert(out[0] == 5 && out[1] == -1 && out[2] == 5 && out[3] == 5 && out[4] == -2 && out[5] == 5);
        check_ok(ebb_copy_into(column, column));
    }
}

static void draw(float *out, const char *device, int64_t n)
{
    ebb_context_options o = { .struct_bytes = sizeof o, .device = device, .threads = 2, .seed = 6, .checks = -1 };
    ebb_context *ctx = NULL;
    check_ok(ebb_context_new(&ctx, &o));
    {
        EBB_LOCAL(u);
        EBB_LOCAL(z);
        check_ok(ebb_uniform(&u, ctx, EBB_F32, 1, &n, -1, 1));
        check_ok(ebb_normal(&z, ctx, EBB_F32, 1, &n, 0, 2));
        check_ok(ebb_read(u, out, (size_t)n * sizeof *out));
        check_ok(ebb_read(z, out + n, (size_t)n * sizeof *out));
    }
    ebb_context_free(ctx);
}

Test(accel_tensor, draws_are_the_cpus)
{
    enum { N = 1301 };
    static float cpu[2 * N], stub[2 * N];
    stub_with_seed(4);
    draw(cpu, "cpu", N);
    draw(stub, "cuda", N);
    cr_assert(memcmp(cpu, stub, sizeof cpu) == 0);
    check_no_live_blocks();
}

Test(accel_tensor, files_are_written_and_read)
{
    temp_folder folder = temp_folder_make();
    const char *path = temp_path(&folder, "t.safetensors");
    stub_with_seed(5);
    with_stub(ctx) {
        EBB_LOCAL(x);
        EBB_LOCAL(t);
        EBB_LOCAL(back);
        ebb_safetensors *file = NULL;
        int32_t in[6] = { 1, 2, 3, 4, 5, 6 }, out[6];
        check_ok(ebb_from_data(&x, ctx, EBB_I32, 2, (int64_t[]){ 2, 3 }, in));
        check_ok(ebb_permute(&t, x, 2, (int[]){ 1, 0 }));
        ebb_named_tensor named[] = { { "x", x }, { "t", t } };
        check_ok(ebb_safetensors_save(path, named, 2));
        check_ok(ebb_safetensors_open(&file, path));
        check_ok(ebb_safetensors_read(&back, ctx, file, ebb_safetensors_find(file, "t")));
        check_ok(ebb_read(back, out, sizeof out));
        cr_assert(out[0] == 1 && out[1] == 4 && out[2] == 2 && out[5] == 6);
        ebb_safetensors_close(file);
    }
    temp_folder_remove(&folder);
}

Test(accel_tensor, values_are_printed)
{
    char *text = NULL;
    size_t bytes = 0;
    stub_with_seed(6);
    with_stub(ctx) {
        EBB_LOCAL(x);
        FILE *file = open_memstream(&text, &bytes);
        check_ok(ebb_full(&x, ctx, EBB_F32, 1, (int64_t[]){ 2 }, 1.5));
        ebb_tensor_print(x, file);
        fclose(file);
        cr_assert(support_contains(text, "[1.5, 1.5]"), "%s", text);
        free(text);
    }
}

/* The stream still has to copy when the tensor is dropped and its memory asked for again. */
Test(accel_tensor, a_users_stream_copies_what_was_there)
{
    enum { N = 4096, ROUNDS = 20 };
    static float out[ROUNDS][N];
    for (uint64_t seed = 1; seed < 6; seed++) {
        stub_with_seed(seed);
        with_stub(ctx) {
            ebb_stream *stream = NULL;
            check_ok(ebb_stream_new(&stream, ctx));
            for (int r = 0; r < ROUNDS; r++) {
                EBB_LOCAL(x);
                EBB_LOCAL(again);
                check_ok(ebb_full(&x, ctx, EBB_F32, 1, (int64_t[]){ N }, r));
                check_ok(ebb_stream_copy_out(stream, out[r], x));
                ebb_drop(&x);
                check_ok(ebb_full(&again, ctx, EBB_F32, 1, (int64_t[]){ N }, -1));
            }
            ebb_stream_synchronize(stream);
            for (int r = 0; r < ROUNDS; r++)
                for (int i = 0; i < N; i++) cr_assert(out[r][i] == (float)r, "round %d: %g", r, (double)out[r][i]);
            ebb_stream_free(stream);
        }
    }
}

/* ---- gradients and support ------------------------------------------------------------------- */

static void take_result(void *user, const ebb_gradcheck_result *r)
{
    ++*(int *)user;
    cr_assert(r->passed, "%s, %s: %s", r->op, r->op_case, r->message);
}

Test(accel_tensor, gradients_are_checked_on_the_device)
{
    static const char *const names[] = { "gelu", "linear", "cross_entropy", "embedding", "narrow" };
    for (int i = 0; i < 5; i++) {
        int n = 0;
        stub_with_seed((uint64_t)i);
        check_ok(ebb_gradcheck(ebb_op_find(names[i]), "cuda", 1, take_result, &n));
        cr_assert(n > 0 && stub_counts_get().kernels > 0 && stub_counts_get().device_bytes == 0);
    }
    check_fails(ebb_gradcheck(ebb_op_find("gelu"), "dry:cuda", 1, take_result, NULL), EBB_EUNSUPPORTED);
    check_no_live_blocks();
}

Test(accel_tensor, devices_and_their_ops_are_listed)
{
    ebb_device_info d;
    bool has, found = false;
    stub_install((stub_options){ .seed = 1, .without = "gelu" });
    cr_assert(ebb_device_info_get(&d, 0) && strcmp(d.name, "cpu") == 0 && d.available);
    cr_assert(ebb_device_info_get(&d, 1) && strcmp(d.name, "cuda:0") == 0 && d.available);
    cr_assert(d.memory_bytes == (size_t)256 << 20 && support_contains(d.description, "stub"));
    for (int i = 2; ebb_device_info_get(&d, i); i++) found |= strcmp(d.name, "dry:cuda:h100-80gb") == 0;
    cr_assert(found);
    check_ok(ebb_device_has_op(&has, "cuda", ebb_op_find("gelu"), EBB_FORWARD));
    cr_assert(!has);
    check_ok(ebb_device_has_op(&has, "cuda", ebb_op_find("linear"), EBB_BACKWARD));
    cr_assert(has);
    check_ok(ebb_device_has_op(&has, "cuda", ebb_op_find("permute"), EBB_FORWARD));
    cr_assert(has);
    check_fails(ebb_device_has_op(&has, "npu", ebb_op_find("gelu"), EBB_FORWARD), EBB_EDEVICE);
    stub_install((stub_options){ .no_driver = true });
    cr_assert(ebb_device_info_get(&d, 1) && strcmp(d.name, "cuda") == 0 && !d.available);
    cr_assert(support_contains(d.reason, "no driver"));
    check_no_live_blocks();
}

/* ---- what cannot be ------------------------------------------------------------------------- */

Test(accel_tensor, bad_data_is_told_where_the_device_is_waited_for)
{
    stub_with_seed(7);
    with_stub(ctx) {
        EBB_LOCAL(logits);
        EBB_LOCAL(labels);
        EBB_LOCAL(loss);
        double value;
        check_ok(ebb_zeros(&logits, ctx, EBB_F32, 2, (int64_t[]){ 2, 3 }));
        check_ok(ebb_from_data(&labels, ctx, EBB_I32, 1, (int64_t[]){ 2 }, (int32_t[]){ 1, 9 }));
        check_ok(ebb_cross_entropy(&loss, logits, labels, 0));
        check_fails(ebb_item(loss, &value), EBB_EINVAL);
        check_message("9");
        check_ok(ebb_write(labels, (int32_t[]){ 1, 2 }, 8));
        check_ok(ebb_cross_entropy(&loss, logits, labels, 0));
        check_ok(ebb_item(loss, &value)); /* told once */
        cr_assert_float_eq(value, log(3), 1e-6);
    }
    ebb_context_options o = { .struct_bytes = sizeof o, .device = "cuda", .threads = 2, .checks = 3 };
    ebb_context *ctx = NULL;
    check_ok(ebb_context_new(&ctx, &o));
    {
        EBB_LOCAL(logits);
        EBB_LOCAL(labels);
        EBB_LOCAL(loss);
        check_ok(ebb_zeros(&logits, ctx, EBB_F32, 2, (int64_t[]){ 1, 3 }));
        check_ok(ebb_full(&labels, ctx, EBB_I32, 1, (int64_t[]){ 1 }, 9));
        check_fails(ebb_cross_entropy(&loss, logits, labels, 0), EBB_EINVAL); /* at once */
    }
    ebb_context_free(ctx);
    check_no_live_blocks();
}

static ebb_saver ask_int8(void *user, const ebb_op *op, const ebb_call *call)
{
    (void)user, (void)op, (void)call;
    return EBB_SAVER_INT8;
}

static ebb_status infer_like(ebb_call *call)
{
    return ebb_arg_set(&call->out[0], call->in[0].dtype, call->in[0].ndim, call->in[0].dims);
}

static ebb_status on_cpu(const ebb_call *call)
{
    (void)call;
    return EBB_OK;
}

static void check_refusals(ebb_context *ctx)
{
    static const ebb_op own = { .name = "my_op", .min_in = 1, .max_in = 1, .n_out = 1, .infer = infer_like,
                                .cpu = { .forward = on_cpu } };
    EBB_LOCAL(x);
    EBB_LOCAL(y);
    check_fails(ebb_op_saver(ctx, "gelu", EBB_SAVER_BF16, NULL), EBB_EUNSUPPORTED);
    check_message(ebb_context_device(ctx));
    check_ok(ebb_full(&x, ctx, EBB_F32, 1, (int64_t[]){ 2 }, 1));
    check_fails(ebb_apply(&own, (ebb_tensor **[]){ &y }, 1, &x, 1, NULL, 0), EBB_EUNSUPPORTED);
    check_message("my_op: has no forward kernel for device");
    check_ok(ebb_set_requires_grad(x, true));
    ebb_checkpoint_options options = { .struct_bytes = sizeof options, .policy = ask_int8 };
    check_ok(ebb_segment_begin(ctx, &options));
    check_fails(ebb_relu(&y, x), EBB_EUNSUPPORTED);
    ebb_segment_end(ctx);
    check_ok(ebb_op_saver(ctx, "gelu", EBB_SAVER_OFFLOAD, NULL));
}

Test(accel_tensor, what_only_the_cpu_can_is_refused_in_dry_runs_too)
{
    stub_with_seed(8);
    with_stub(ctx) check_refusals(ctx);
    ebb_context_options o = { .struct_bytes = sizeof o, .device = "dry:cuda:0", .threads = 2, .checks = -1 };
    ebb_context *dry = NULL;
    check_ok(ebb_context_new(&dry, &o));
    check_refusals(dry);
    ebb_context_free(dry);
    check_no_live_blocks();
}
