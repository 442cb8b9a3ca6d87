/* What an accelerator's errors say: the op, its pass, node, scope and line; and that a dry run refuses what the device
 * would, in the same words. */
#include <stdio.h>
#include <string.h>

#include <ebb/ebb.h>

#include "support/stub_accel.h"

enum { N = 4 };

/* ---- kernels ---------------------------------------------------------------------------------- */

static int gelu_line;

/* The second one reads what the first makes: that is what a segment makes again. */
static ebb_status gelus_in_block(void *user, ebb_tensor **out, ebb_tensor *x)
{
    (void)user;
    const char *outer = ebb_scope(ebb_tensor_context(x), "block3");
    EBB_LOCAL(h);
    gelu_line = __LINE__ + 1;
    EBB_TRY(ebb_gelu(&h, x, EBB_GELU_TANH));
    EBB_TRY(ebb_gelu(out, h, EBB_GELU_TANH));
    ebb_scope(ebb_tensor_context(x), outer);
    return EBB_OK;
}

/* tanh is outside of the block. */
static ebb_status run(ebb_context *ctx, bool segment)
{
    EBB_LOCAL(x);
    EBB_LOCAL(h);
    EBB_LOCAL(loss);
    EBB_TRY(ebb_full(&x, ctx, EBB_F32, 1, (int64_t[]){ N }, 0.5));
    EBB_TRY(ebb_set_requires_grad(x, true));
    ebb_checkpoint_options o = { .struct_bytes = sizeof o };
    if (segment) EBB_TRY(ebb_checkpoint(&h, x, gelus_in_block, NULL, &o));
    else EBB_TRY(gelus_in_block(NULL, &h, x));
    EBB_TRY(ebb_tanh(&h, h));
    EBB_TRY(ebb_mul(&h, h, h));
    EBB_TRY(ebb_sum(&loss, h, 0, NULL, false));
    return ebb_backward(loss);
}

static void check_told(stub_options options, bool segment, const char *begins)
{
    char line[64];
    stub_install(options);
    with_stub(ctx) {
        check_fails(run(ctx, segment), EBB_EDEVICE);
        cr_assert(strncmp(ebb_message(), begins, strlen(begins)) == 0, "%s", ebb_message());
        check_message(": stub:0: launch failed");
    }
    if (!strstr(begins, "gelu")) return;
    snprintf(line, sizeof line, "test_errors.c:%d): stub", gelu_line);
    check_message(line);
}

Test(accel_errors, a_forward_kernel)
{
    check_told((stub_options){ .fail_kernel = "gelu" }, false, "block3: gelu forward #1 (");
}

Test(accel_errors, a_backward_kernel)
{
    check_told((stub_options){ .fail_kernel = "gelu", .fail_pass = EBB_BACKWARD, .passes_before = 1 }, false,
               "block3: gelu backward #1 (");
}

Test(accel_errors, a_recompute)
{
    check_told((stub_options){ .fail_kernel = "gelu", .passes_before = 2 }, true, "block3: gelu recompute #1 (");
}

Test(accel_errors, a_kernel_outside_of_every_scope)
{
    check_told((stub_options){ .fail_kernel = "tanh", .fail_pass = EBB_BACKWARD }, false, "tanh backward #3 (");
}

/* ---- other work ------------------------------------------------------------------------------- */

Test(accel_errors, an_optimizer_step)
{
    stub_install((stub_options){ .fail_update = true });
    with_stub(ctx) {
        EBB_LOCAL(w);
        EBB_LOCAL(loss);
        check_ok(ebb_full(&w, ctx, EBB_F32, 1, (int64_t[]){ N }, 0.5));
        check_ok(ebb_set_requires_grad(w, true));
        ebb_named_tensor learned = { "w", w };
        ebb_optim_options o = { .struct_bytes = sizeof o, .kind = EBB_SGD, .lr = 0.05 };
        ebb_optim *optim = NULL;
        check_ok(ebb_optim_new(&optim, ctx, &learned, 1, &o));
        check_ok(ebb_sum(&loss, w, 0, NULL, false));
        check_ok(ebb_backward(loss));
        check_fails(ebb_optim_step(optim, 0.05), EBB_EDEVICE);
        cr_assert_str_eq(ebb_message(), "optimizer step: stub:0: launch failed");
        ebb_optim_free(optim);
        cr_assert_str_eq(ebb_message(), "optimizer step: stub:0: launch failed");
    }
}

/* Work before it fails too when it is closed: what ended the run is still told. */
Test(accel_errors, closing_does_not_take_the_message_away)
{
    int32_t beyond[1] = { 99 };
    stub_install((stub_options){ .seed = 1 });
    with_stub(ctx) {
        EBB_LOCAL(table);
        EBB_LOCAL(index);
        EBB_LOCAL(rows);
        check_ok(ebb_full(&table, ctx, EBB_F32, 2, (int64_t[]){ 2, 2 }, 0));
        check_ok(ebb_from_data(&index, ctx, EBB_I32, 1, (int64_t[]){ 1 }, beyond));
        check_ok(ebb_embedding(&rows, table, index)); /* found bad when somebody waits */
        check_fails(ebb_fail(EBB_EINVAL, "what ended the run"), EBB_EINVAL);
    }
    cr_assert_str_eq(ebb_message(), "what ended the run");
}

/* ---- what a device cannot do --------------------------------------------------------------------- */

static void check_no_pages(const char *device)
{
    ebb_context *ctx = NULL;
    ebb_context_options o = { .struct_bytes = sizeof o, .device = device, .threads = 1,
                              .allocator = "expandable_segments:True" };
    check_fails(ebb_context_new(&ctx, &o), EBB_EUNSUPPORTED);
    cr_assert_str_eq(ebb_message(), "pool: expandable_segments: this device cannot map pages", "%s: %s", device,
                     ebb_message());
    check_no_live_blocks();
}

Test(accel_errors, a_device_that_cannot_map_pages)
{
    static const char profile[] = "{\"kind\":\"cuda\",\"name\":\"small\",\"capacity_bytes\":\"64MiB\","
                                  "\"lent_bytes\":4096,\"page_bytes\":0,\"compute\":\"8.0\",\"processors\":4}";
    temp_folder folder = temp_folder_make();
    char name[600];
    write_text(temp_path(&folder, "small.json"), profile);
    snprintf(name, sizeof name, "dry:cuda:%s", temp_path(&folder, "small.json"));
    stub_install((stub_options){ .no_pages = true });
    check_no_pages("cuda");
    check_no_pages("dry:cuda:0");
    check_no_pages(name);
    temp_folder_remove(&folder);
}
