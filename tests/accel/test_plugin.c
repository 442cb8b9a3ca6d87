/* Finding, loading and refusing plugins. */
#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "device/device.h"
#include "device/plugin.h"
#include "support/stub_accel.h"

static void check_refused(const char *file, const char *why)
{
    ebb__device device = { 0 };
    char path[1024];
    snprintf(path, sizeof path, "%s/%s", EBB_PLUGINS, file);
    setenv("EBB_PLUGIN_PATH", path, 1);
    check_fails(ebb__device_open(&device, "cuda", 1), EBB_EDEVICE);
    check_message("device cuda");
    check_message(why);
    check_no_live_blocks();
}

Test(plugin, one_of_another_interface_is_refused_by_both_numbers)
{
    char ours[32], theirs[32];
    snprintf(ours, sizeof ours, "this ebb has %d", EBB__ACCEL_ABI);
    snprintf(theirs, sizeof theirs, "number %d", EBB__ACCEL_ABI + 6);
    check_refused("plugin_other_abi.so", ours);
    check_message(theirs);
    check_refused("plugin_no_table.so", "has nothing for this ebb");
}

Test(plugin, what_is_no_plugin_of_the_device_is_refused)
{
    check_refused("plugin_no_entry.so", "has no ebb_accel_plugin()");
    check_refused("plugin_of_another.so", "the plugin of npu");
}

Test(plugin, without_a_driver_no_plugin_is_looked_for)
{
    ebb__device device = { 0 };
    if (dlopen(ebb__accel_kind_at(0)->driver, RTLD_LAZY)) cr_skip("there is a driver");
    temp_folder folder = temp_folder_make();
    write_text(temp_path(&folder, "libebb_cuda.so"), "not loaded");
    setenv("EBB_PLUGIN_PATH", folder.path, 1);
    check_fails(ebb__device_open(&device, "cuda", 1), EBB_EDEVICE);
    check_message("no NVIDIA driver (libcuda.so.1");
    unsetenv("EBB_PLUGIN_PATH");
    check_fails(ebb__device_open(&device, "cuda", 1), EBB_EDEVICE);
    check_message("no NVIDIA driver (libcuda.so.1");
    temp_folder_remove(&folder);
    check_no_live_blocks();
}

/* Driver or not. */
Test(plugin, a_path_that_is_not_there_is_named)
{
    check_refused("no_such_folder", "EBB_PLUGIN_PATH: there is no \"");
    check_message("/no_such_folder\"; it names the plugin's folder or file");
    check_refused("no_such_folder/libebb_cuda.so", "/no_such_folder/libebb_cuda.so\"");
}

Test(plugin, a_folder_without_the_plugin_is_named)
{
    ebb__device device = { 0 };
    temp_folder folder = temp_folder_make();
    setenv("EBB_PLUGIN_PATH", folder.path, 1);
    check_fails(ebb__device_open(&device, "cuda", 1), EBB_EDEVICE);
    check_message("device cuda: EBB_PLUGIN_PATH: there is no libebb_cuda.so in \"/");
    check_message(folder.path);
    temp_folder_remove(&folder);
    check_no_live_blocks();
}

Test(plugin, a_plugin_says_itself_why_it_has_no_device)
{
    ebb__device device = { 0 };
    stub_install((stub_options){ .no_driver = true });
    check_fails(ebb__device_open(&device, "cuda", 1), EBB_EDEVICE);
    check_message("no driver");
    check_fails(ebb__device_open(&device, "dry:cuda:0", 1), EBB_EDEVICE);
    check_no_live_blocks();
}

Test(plugin, devices_are_opened_by_name_and_number)
{
    ebb__device device = { 0 };
    stub_install((stub_options){ .seed = 1 });
    check_ok(ebb__device_open(&device, "cuda", 2));
    cr_assert_str_eq(device.name, "cuda:0");
    cr_assert(!device.dry && device.accel && device.threads && !device.provider.touchable);
    ebb__device_close(&device);
    check_fails(ebb__device_open(&device, "cuda:1", 2), EBB_EDEVICE);
    check_message("has 1");
    check_fails(ebb__device_open(&device, "cuda:first", 2), EBB_EDEVICE);
    check_message("expected a number");
    check_ok(ebb__device_open(&device, "dry:cuda:0", 2));
    cr_assert(device.dry && device.accel && !device.threads);
    cr_assert(device.accel->facts.capacity_bytes == (size_t)256 << 20);
    ebb__device_close(&device);
    cr_assert(stub_counts_get().open == 0);
    check_no_live_blocks();
}

Test(plugin, the_dry_form_of_a_name)
{
    static const char *const names[][2] = {
        { NULL, "dry:cpu" }, { "cpu", "dry:cpu" }, { "dry:cpu", "dry:cpu" }, { "cuda", "dry:cuda:0" },
        { "cuda:1", "dry:cuda:1" }, { "dry:cuda", "dry:cuda" }, { "dry:cuda:l4-24gb", "dry:cuda:l4-24gb" },
    };
    char name[EBB__DEVICE_NAME_BYTES];
    for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
        ebb__device_dry_name(name, names[i][0]);
        cr_assert_str_eq(name, names[i][1]);
    }
}

/* ---- profiles ------------------------------------------------------------------------------- */

static const char profile[] = "{\"kind\":\"cuda\",\"name\":\"small\",\"capacity_bytes\":\"64MiB\",\"lent_bytes\":4096,"
                              "\"page_bytes\":2097152,\"compute\":\"8.0\",\"processors\":4}";

Test(profile, decides_limit_and_lent_bytes_of_a_dry_run)
{
    temp_folder folder = temp_folder_make();
    char name[600];
    write_text(temp_path(&folder, "small.json"), profile);
    snprintf(name, sizeof name, "dry:cuda:%s", temp_path(&folder, "small.json"));
    ebb_context_options o = { .struct_bytes = sizeof o, .device = name, .threads = 2, .checks = -1 };
    ebb_context *ctx = NULL;
    ebb_memory_stats stats;
    check_ok(ebb_context_new(&ctx, &o));
    cr_assert_str_eq(ebb_context_device(ctx), name);
    ebb_memory_stats_get(ctx, &stats);
    cr_assert(stats.allocated_bytes == 4096);
    {
        EBB_LOCAL(a);
        EBB_LOCAL(b);
        check_ok(ebb_empty(&a, ctx, EBB_U8, 1, (int64_t[]){ 60 << 20 }));
        check_fails(ebb_empty(&b, ctx, EBB_U8, 1, (int64_t[]){ 4 << 20 }), EBB_ENOMEM);
        check_message("64.00 MiB");
    }
    ebb_context_free(ctx);
    o.memory_limit_bytes = SIZE_MAX;
    check_ok(ebb_context_new(&ctx, &o));
    {
        EBB_LOCAL(a);
        check_ok(ebb_empty(&a, ctx, EBB_U8, 1, (int64_t[]){ 1 << 30 }));
    }
    ebb_context_free(ctx);
    temp_folder_remove(&folder);
    check_no_live_blocks();
}

/* The message says that it is a device's, then the file, then the key or what else is wrong. */
static void check_wrong(const char *text, ebb_status status, const char *why)
{
    temp_folder folder = temp_folder_make();
    ebb__device device = { 0 };
    char name[600];
    write_text(temp_path(&folder, "p.json"), text);
    snprintf(name, sizeof name, "dry:cuda:%s", temp_path(&folder, "p.json"));
    check_fails(ebb__device_open(&device, name, 1), status);
    check_message("device dry:cuda: /");
    check_message("/p.json");
    check_message(why);
    temp_folder_remove(&folder);
    check_no_live_blocks();
}

#define WITH(kind, compute, more) \
    "{\"kind\":\"" kind "\",\"name\":\"x\",\"capacity_bytes\":\"64MiB\",\"lent_bytes\":4096," \
    "\"page_bytes\":2097152,\"compute\":\"" compute "\"" more "}"

Test(profile, that_is_wrong_says_what_is)
{
    ebb__device device = { 0 };
    check_fails(ebb__device_open(&device, "dry:cuda:h101", 1), EBB_EDEVICE);
    check_message("h100-80gb");
    check_fails(ebb__device_open(&device, "dry:cuda:none/there.json", 1), EBB_EDEVICE);
    check_message("device dry:cuda: cannot read none/there.json: ");
    check_fails(ebb__device_open(&device, "dry:cuda:" EBB_PLUGINS "/", 1), EBB_EDEVICE); /* a folder */
    check_message("device dry:cuda: cannot read " EBB_PLUGINS "/: ");
    check_wrong("{}", EBB_EINVAL, "p.json: kind: this key is required");
    check_wrong("{\"kind\":}", EBB_EINVAL, "p.json:1:9: ");
    check_wrong("[]", EBB_EINVAL, "p.json: top level: ");
    check_wrong(WITH("cuda", "9.0", ""), EBB_EINVAL, "p.json: processors: this key is required");
    check_wrong(WITH("cuda", "9.0", ",\"processors\":0"), EBB_EINVAL, "p.json: processors: expected");
    check_wrong(WITH("cuda", "9.0", ",\"processors\":4,\"procesors\":4"), EBB_EINVAL, "p.json: procesors: unknown key");
    check_wrong("{\"kind\":\"cuda\",\"name\":\"x\",\"capacity_bytes\":\"64MiB\",\"lent_bytes\":0,\"page_bytes\":1,"
                "\"compute\":\"9.0\",\"processors\":1}", EBB_EINVAL, "p.json: page_bytes: 1; expected at least 4096");
    check_wrong(WITH("npu", "9.0", ",\"processors\":4"), EBB_EINVAL, "p.json: kind: \"npu\"");
    check_wrong(WITH("cuda", "new", ",\"processors\":4"), EBB_EINVAL, "p.json: compute: \"new\"");
    check_wrong(WITH("cuda", "9.10", ",\"processors\":4"), EBB_EINVAL, "p.json: compute: \"9.10\"");
}

/* None may be left out, so none may be null. */
Test(profile, has_no_key_that_may_be_null)
{
    static const char *const keys[] = { "kind", "name", "capacity_bytes", "lent_bytes", "page_bytes", "compute",
                                        "processors" };
    enum { N_KEYS = sizeof keys / sizeof *keys };
    static const char *const values[N_KEYS] = { "\"cuda\"", "\"x\"", "67108864", "4096", "2097152", "\"9.0\"", "4" };
    for (int null = 0; null < N_KEYS; null++) {
        char text[512] = "{", why[128];
        for (int i = 0; i < N_KEYS; i++) {
            size_t n = strlen(text);
            snprintf(text + n, sizeof text - n, "%s\"%s\":%s", i ? "," : "", keys[i], i == null ? "null" : values[i]);
        }
        strcat(text, "}");
        snprintf(why, sizeof why, "p.json: %s: expected ", keys[null]);
        check_wrong(text, EBB_EINVAL, why);
        check_message(", got null");
    }
}

/* A dry run of it would predict runs that the plugin refuses. */
Test(profile, of_a_device_that_the_plugin_refuses_is_refused)
{
    ebb__device device = { 0 };
    check_wrong(WITH("cuda", "7.5", ",\"processors\":40"), EBB_EDEVICE,
                "p.json: compute: \"7.5\"; the kernels are for 8.0 and later");
    check_fails(ebb__device_open(&device, "dry:cuda:t4-16gb", 1), EBB_EDEVICE);
    check_message("no profile \"t4-16gb\"");
}

Test(profile, every_one_that_is_built_in_opens)
{
    static const char *const names[] = { "dry:cuda", "dry:cuda:h100-80gb", "dry:cuda:h200-141gb", "dry:cuda:a100-80gb",
                                         "dry:cuda:a100-40gb", "dry:cuda:b200-180gb", "dry:cuda:l4-24gb",
                                         "dry:cuda:rtx4090-24gb" };
    for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
        ebb__device device = { 0 };
        check_ok(ebb__device_open(&device, names[i], 1));
        cr_assert(device.accel->facts.capacity_bytes > device.accel->facts.lent_bytes);
        cr_assert(support_contains(device.name, i ? names[i] : "dry:cuda:h100-80gb"));
        ebb__device_close(&device);
    }
    check_no_live_blocks();
}
