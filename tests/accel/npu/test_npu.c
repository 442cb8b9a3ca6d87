/* A second kind of accelerator: a row of kinds.c and a plugin's table are all that the library needs of it. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <ebb/device.h>

#include "device/device.h"
#include "device/plugin.h"
#include "support/stub_accel.h"
#include "support/training.h"

#define MLP "{\"seed\":3,\"model\":{\"type\":\"mlp\",\"input\":12,\"hidden\":[24,16],\"output\":5," \
            "\"activation\":\"gelu_tanh\",\"dropout\":0.1}," \
            "\"data\":{\"type\":\"synthetic\",\"kind\":\"samples\",\"items\":50,\"eval_items\":20,\"seed\":1}," \
            "\"train\":{\"steps\":4,\"batch\":8,\"optimizer\":{\"type\":\"sgd\",\"lr\":0.1}}}"
#define PROFILE(kind, more) \
    "{\"kind\":\"" kind "\",\"name\":\"small\",\"capacity_bytes\":\"64MiB\",\"lent_bytes\":0,\"page_bytes\":0," \
    "\"processors\":4" more "}"

static void install(void)
{
    stub_install((stub_options){ .seed = 1, .kind = "npu", .no_graphs = true, .no_pages = true });
}

static bool find_device(ebb_device_info *out, const char *name)
{
    for (int i = 0; ebb_device_info_get(out, i); i++)
        if (strcmp(out->name, name) == 0) return true;
    return false;
}

Test(npu, is_listed_beside_the_others)
{
    ebb_device_info d;
    cr_assert_str_eq(ebb_device_kind(0), "cpu");
    cr_assert_str_eq(ebb_device_kind(1), "cuda");
    cr_assert_str_eq(ebb_device_kind(2), "npu");
    cr_assert_null(ebb_device_kind(3));
    cr_assert_null(ebb_device_kind(-1));
    cr_assert(find_device(&d, "npu") && !d.available);
    cr_assert(strstr(d.reason, "no driver of an NPU (libdriver_of_no_npu.so.1"), "%s", d.reason);
    install();
    cr_assert(find_device(&d, "npu:0") && d.available);
    cr_assert(find_device(&d, "dry:cuda:l4-24gb") && d.available, "profiles are of the kind that they say");
    cr_assert_not(find_device(&d, "dry:npu:l4-24gb"));
}

Test(npu, its_plugin_is_loaded_by_its_name)
{
    const ebb__accel *table = NULL;
    setenv("EBB_PLUGIN_PATH", EBB_PLUGINS "/plugin_of_another.so", 1);
    check_ok(ebb__accel_load(&table, ebb__accel_kind_named("npu")));
    cr_assert_str_eq(table->name, "npu");
    setenv("EBB_PLUGIN_PATH", EBB_PLUGINS, 1);
    ebb__device device = { 0 };
    check_fails(ebb__device_open(&device, "cuda", 1), EBB_EDEVICE);
}

Test(npu, which_ops_it_has)
{
    bool has;
    stub_install((stub_options){ .kind = "npu", .without = "gelu" });
    check_ok(ebb_device_has_op(&has, "npu", ebb_op_find("gelu"), EBB_FORWARD));
    cr_assert_not(has);
    check_ok(ebb_device_has_op(&has, "npu", ebb_op_find("tanh"), EBB_BACKWARD));
    cr_assert(has);
    check_fails(ebb_device_has_op(&has, "tpu", ebb_op_find("gelu"), EBB_FORWARD), EBB_EDEVICE);
    check_message("\"tpu\"");
}

Test(npu, an_unknown_name_is_refused_with_all_kinds)
{
    ebb__device device = { 0 };
    check_fails(ebb__device_open(&device, "tpu", 1), EBB_EDEVICE);
    check_message("there are: cpu, cuda, npu, dry:cpu, dry:cuda, dry:npu");
}

/* ---- profiles ------------------------------------------------------------------------------- */

/* The status of opening a dry device by a profile of that text. */
static ebb_status open_dry(const char *text)
{
    temp_folder folder = temp_folder_make();
    ebb__device device = { 0 };
    char name[600];
    write_text(temp_path(&folder, "p.json"), text);
    snprintf(name, sizeof name, "dry:npu:%s", temp_path(&folder, "p.json"));
    ebb_status st = ebb__device_open(&device, name, 1);
    if (st == EBB_OK) ebb__device_close(&device);
    temp_folder_remove(&folder);
    check_no_live_blocks();
    return st;
}

Test(npu, profiles_of_its_own)
{
    ebb__device device = { 0 };
    check_ok(open_dry(PROFILE("npu", "")));
    check_fails(open_dry(PROFILE("npu", ",\"compute\":\"9.0\"")), EBB_EINVAL);
    check_message("p.json: compute: \"9.0\"; npu devices have none: leave the key out");
    check_fails(open_dry(PROFILE("cuda", ",\"compute\":\"9.0\"")), EBB_EINVAL);
    check_message("p.json: kind: \"cuda\"; this is to be a profile of a npu device");
    check_fails(ebb__device_open(&device, "dry:npu", 1), EBB_EDEVICE);
    check_message("device dry:npu: no profile is built in; dry:npu:FILE.json names one");
    check_fails(ebb__device_open(&device, "dry:npu:h101", 1), EBB_EDEVICE);
    check_message("no profile \"h101\"; there are: none;");
    check_fails(ebb__device_open(&device, "dry:npu:h100-80gb", 1), EBB_EINVAL);
    check_message("h100-80gb: kind: \"cuda\"");
    check_no_live_blocks();
}

/* ---- work ----------------------------------------------------------------------------------- */

static ebb_train_result train_on(const char *device, const ebb_config *config)
{
    ebb_train_result result;
    ebb_train_options o = train_options(2);
    o.device = device;
    o.hash_gradients = true;
    check_ok(ebb_train(&result, config, &o));
    return result;
}

Test(npu, trains_as_the_cpu_does_in_the_bytes_that_the_dry_run_says)
{
    static const char *const sets[4] = { "memory.checkpoint=every:1" };
    install();
    ebb_config *config = config_of(MLP, sets);
    ebb_train_result cpu = train_on("cpu", config), npu = train_on("npu", config), said = train_on("dry:npu:0", config);
    cr_assert_str_eq(npu.device, "npu:0");
    cr_assert_str_eq(npu.gradients_sha256, cpu.gradients_sha256);
    cr_assert(npu.loss_last == cpu.loss_last);
    check_same_memory(&said.memory, &npu.memory, "npu");
    cr_assert(npu.memory.peak_allocated_bytes >= 3 << 20, "the row's workspace is counted");
    ebb_config_free(config);
    check_no_live_blocks();
}

/* What the device refuses its dry form does. */
Test(npu, has_no_graphs_nor_pages_dry_or_not)
{
    static const char *const devices[] = { "npu", "dry:npu:0" };
    static const char *const graphs[4] = { "train.capture=true" };
    static const char *const pages[4] = { "memory.allocator={\"expandable_segments\":true}" };
    install();
    ebb_config *capture = config_of(MLP, graphs), *expandable = config_of(MLP, pages);
    ebb_train_result result;
    ebb_train_options o = train_options(2);
    for (int i = 0; i < 2; i++) {
        o.device = devices[i];
        check_fails(ebb_train(&result, capture, &o), EBB_EUNSUPPORTED);
        check_message("npu:0 has no graphs");
        check_fails(ebb_train(&result, expandable, &o), EBB_EUNSUPPORTED);
        check_message("expandable_segments: this device cannot map pages");
    }
    ebb_config_free(capture);
    ebb_config_free(expandable);
    check_no_live_blocks();
}

/* ---- the command ------------------------------------------------------------------------------ */

static void check_said(const char *arguments, const char *text)
{
    static char said[1 << 16];
    char command[1024];
    snprintf(command, sizeof command, "%s %s", EBB_PROGRAM, arguments);
    FILE *pipe = popen(command, "r");
    cr_assert_not_null(pipe);
    said[fread(said, 1, sizeof said - 1, pipe)] = '\0';
    cr_assert(pclose(pipe) == 0);
    cr_assert(strstr(said, text) != NULL, "%s: no \"%s\" in:\n%s", arguments, text, said);
}

Test(npu, the_command_tells_of_it)
{
    check_said("info", "devices   cpu, dry:cpu, dry:cuda, dry:npu\n");
    check_said("info", "\nprofiles  of dry:cuda: ");
    check_said("info", "\nnpu       not available: device npu: no driver of an NPU");
    check_said("info --ops", "  cuda               npu ");
    check_said("info --ops", "?: device npu: no driver of an NPU");
    check_said("info --ops --json", "\"npu\":");
}
