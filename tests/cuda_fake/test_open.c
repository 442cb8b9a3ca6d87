/* Opening a device: facts, and why one cannot be had. */
#include "fake_device.h"

#include <string.h>
#include <ebb/ebb.h>
#include "device/plugin.h"
#include "device/profile.h"

static void refused(ebb_status expected, const char *text)
{
    void *self = NULL;
    ebb_status st = plugin_table()->open(&self, plugin_host(), 0);
    cr_assert(st == expected, "%d", (int)st);
    cr_assert(self == NULL);
    cr_assert(strstr(plugin_message(), text), "\"%s\" lacks \"%s\"", plugin_message(), text);
}

Test(open, tells_what_the_device_is)
{
    with_fake(d) {
        cr_assert_str_eq(d.facts.name, "Fake 0");
        cr_assert(strstr(d.facts.libraries, "CUDA 13."), "%s", d.facts.libraries);
        cr_assert(strstr(d.facts.libraries, "cuBLAS"), "%s", d.facts.libraries);
        cr_assert(strstr(d.facts.libraries, "cuDNN 9."), "%s", d.facts.libraries);
        cr_assert(d.facts.compute_major == 8 && d.facts.compute_minor == 0 && d.facts.processors > 0);
        cr_assert(d.facts.capacity_bytes == 1024u << 20);
        cr_assert(d.facts.page_bytes == 2u << 20);
        cr_assert(d.facts.lent_bytes > 4u << 20);
    }
}

/* Else a dry run's pool would not be the device's. */
Test(open, wants_as_much_of_the_pool_as_profiles_say)
{
    const ebb__accel_kind *cuda = ebb__accel_kind_at(0);
    cr_assert_str_eq(cuda->name, "cuda");
    cr_assert(ebb__n_profile_texts > 0);
    for (int i = 0; i < ebb__n_profile_texts; i++) {
        const char *name = ebb__profile_name(i);
        ebb__accel_facts said;
        cr_assert(ebb__profile_find(&said, cuda, name) == EBB_OK, "%s", ebb_message());
        with_fake(d, .compute = 10 * said.compute_major + said.compute_minor)
        {
            cr_expect(d.facts.lent_bytes == said.lent_bytes, "%s: %zu bytes, not %zu", name, d.facts.lent_bytes,
                      said.lent_bytes);
            cr_expect(d.facts.page_bytes == said.page_bytes, "%s: pages", name);
        }
    }
}

Test(open, has_every_op_of_ops_def)
{
    static const char *const names[] = {
#define EBB_OP(id) #id,
#include "ops/ops.def"
#undef EBB_OP
    };
    const ebb__accel *table = plugin_table();
    cr_assert(table->abi == EBB__ACCEL_ABI);
    cr_assert_str_eq(table->name, "cuda");
    cr_assert(table->n_ops == (int)(sizeof names / sizeof *names));
    for (int i = 0; i < table->n_ops; i++) cr_assert_str_eq(table->ops[i].name, names[i]);
}

/* The library compares the numbers, and its error has both. */
Test(open, gives_its_table_to_any_interface)
{
    static const int others[] = { EBB__ACCEL_ABI, EBB__ACCEL_ABI - 1, EBB__ACCEL_ABI + 1, 0, -1, 1000 };
    for (size_t i = 0; i < sizeof others / sizeof *others; i++) {
        const ebb__accel *table = ebb_accel_plugin(others[i]);
        cr_assert(table && table->abi == EBB__ACCEL_ABI, "asked for %d", others[i]);
    }
}

Test(open, without_cudnn_does_without)
{
    with_fake(d, .no_cudnn = true) cr_assert(!strstr(d.facts.libraries, "cuDNN"), "%s", d.facts.libraries);
}

Test(open, without_virtual_memory_has_no_expandable_segments)
{
    with_fake(d, .no_vmm = true) cr_assert(d.facts.page_bytes == 0 && !d.memory.reserve);
}

Test(open, says_that_there_is_no_driver)
{
    fake_options options = fake_get_options();
    int n = 17;
    options.driver = 0;
    fake_set_options(&options);
    cr_assert(plugin_table()->count(plugin_host(), &n) == EBB_EDEVICE && n == 17);
    refused(EBB_EDEVICE, "no NVIDIA driver");
}

Test(open, says_that_the_driver_is_too_old)
{
    fake_options options = fake_get_options();
    options.driver = 12020;
    fake_set_options(&options);
    refused(EBB_EDEVICE, "driver is for CUDA 12.2");
}

Test(open, says_that_there_is_no_gpu)
{
    fake_options options = fake_get_options();
    options.devices = 0;
    fake_set_options(&options);
    refused(EBB_EDEVICE, "no GPU");
}

Test(open, says_that_the_gpu_is_too_old)
{
    fake_change((fake_changes){ .compute = 75 });
    refused(EBB_EDEVICE, "compute capability 7.5; the kernels are for 8.0 and later");
}

Test(open, says_which_ordinals_there_are)
{
    void *self = NULL;
    fake_change((fake_changes){ 0 });
    cr_assert(plugin_table()->open(&self, plugin_host(), 1) == EBB_EINVAL);
    cr_assert(strstr(plugin_message(), "the last is cuda:0"), "%s", plugin_message());
}

static ebb_status nothing(fake_device *d, void *arg)
{
    (void)d, (void)arg;
    return EBB_OK;
}

Test(open, any_call_may_fail)
{
    long n = fake_sweep(nothing, NULL, (fake_changes){ 0 });
    cr_assert(n > 15, "%ld calls", n);
}
