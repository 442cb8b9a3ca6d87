/* device/test_device.c: which devices there are, and what they bring. */
#include "device/blas.h"
#include "device/device.h"
#include "support/support.h"

Test(device, cpu_has_threads_and_touchable_memory)
{
    ebb__device device = { 0 };
    check_ok(ebb__device_open(&device, "cpu", 3));
    cr_assert_str_eq(device.name, "cpu");
    cr_assert(!device.dry);
    cr_assert(device.n_threads == 3);
    cr_assert(ebb__threads_count(device.threads) == 3);
    cr_assert(device.provider.touchable);
    ebb__device_close(&device);
    cr_assert_null(device.threads);
    check_no_live_blocks();
}

Test(device, dry_cpu_counts_threads_but_starts_none)
{
    ebb__device device = { 0 };
    check_ok(ebb__device_open(&device, "dry:cpu", 5));
    cr_assert_str_eq(device.name, "dry:cpu");
    cr_assert(device.dry);
    cr_assert(device.n_threads == 5);
    cr_assert_null(device.threads);
    cr_assert(!device.provider.touchable);
    ebb__device_close(&device);
    check_no_live_blocks();
}

Test(device, no_name_means_cpu_and_zero_threads_means_all_cores)
{
    ebb__device device = { 0 };
    check_ok(ebb__device_open(&device, NULL, 0));
    cr_assert_str_eq(device.name, "cpu");
    cr_assert(device.n_threads == ebb__cores());
    ebb__device_close(&device);
    check_ok(ebb__device_open(&device, "dry:cpu", 0));
    cr_assert(device.n_threads == ebb__cores());
    ebb__device_close(&device);
}

Test(device, an_unknown_name_is_refused_with_the_known_ones)
{
    ebb__device device = { .name = "untouched" };
    check_fails(ebb__device_open(&device, "gpu", 1), EBB_EDEVICE);
    check_message("\"gpu\"");
    check_message("cpu, cuda, dry:cpu, dry:cuda");
    cr_assert_str_eq(device.name, "untouched");
}

Test(device, a_negative_or_huge_thread_count_is_refused)
{
    ebb__device device = { 0 };
    check_fails(ebb__device_open(&device, "cpu", -1), EBB_EINVAL);
    check_fails(ebb__device_open(&device, "cpu", 1 << 20), EBB_EINVAL);
    check_message("1048576");
    check_fails(ebb__device_open(&device, "dry:cpu", -1), EBB_EINVAL);
}

Test(device, closing_what_was_never_opened_does_nothing)
{
    ebb__device device = { 0 };
    ebb__device_close(&device);
    cr_assert_null(device.name);
}

Test(device, the_serial_flavour_of_openblas_is_refused)
{
    enum { SERIAL, PTHREADS, OPENMP };
    check_fails(ebb__blas_check_flavour(SERIAL), EBB_EDEVICE);
    check_message("serial");
    check_ok(ebb__blas_check_flavour(PTHREADS));
    check_ok(ebb__blas_check_flavour(OPENMP));
}

Test(device, the_blas_library_has_a_name_with_a_version)
{
    cr_assert(support_contains(ebb__blas_name(), "OpenBLAS"), "%s", ebb__blas_name());
    cr_assert(support_contains(ebb__blas_name(), "("), "%s", ebb__blas_name());
}
