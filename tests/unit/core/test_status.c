/* Messages and call sites: per thread, in fixed buffers. */
#include <ebb/status.h>
#include <pthread.h>
#include <signal.h>
#include <string.h>

#include "core/assert.h"
#include "core/site.h"
#include "support/support.h"

Test(status, the_message_is_empty_before_the_first_failure) { cr_assert_str_empty(ebb_message()); }

Test(status, fail_returns_the_status_and_keeps_the_message)
{
    cr_assert_eq(ebb_fail(EBB_ESHAPE, "matmul: inner %d vs %d", 3, 4), EBB_ESHAPE);
    cr_assert_str_eq(ebb_message(), "matmul: inner 3 vs 4");
}

Test(status, the_message_may_be_an_argument_of_the_next_one)
{
    (void)ebb_fail(EBB_EIO, "inner");
    (void)ebb_fail(EBB_EIO, "outer: %s", ebb_message());
    cr_assert_str_eq(ebb_message(), "outer: inner");
}

Test(status, a_long_message_is_cut_between_characters_and_marked)
{
    char text[6000];
    for (size_t i = 0; i + 2 < sizeof text; i += 2) memcpy(text + i, "\xC3\xA9", 2);
    text[5998] = '\0';
    for (int shift = 0; shift < 2; shift++) {
        (void)ebb_fail(EBB_EINVAL, "%.*s%s", shift, "x", text);
        size_t length = strlen(ebb_message());
        cr_assert(length > 4000 && length < 4096);
        cr_assert_str_eq(ebb_message() + length - 3, "...");
        cr_assert_eq((length - 3 - (size_t)shift) % 2, 0, "a character was cut in two");
    }
}

Test(status, every_code_has_its_name)
{
    cr_assert_str_eq(ebb_status_name(EBB_OK), "OK");
    cr_assert_str_eq(ebb_status_name(EBB_EINVAL), "EINVAL");
    cr_assert_str_eq(ebb_status_name(EBB_ESHAPE), "ESHAPE");
    cr_assert_str_eq(ebb_status_name(EBB_EDTYPE), "EDTYPE");
    cr_assert_str_eq(ebb_status_name(EBB_ENOMEM), "ENOMEM");
    cr_assert_str_eq(ebb_status_name(EBB_EBUDGET), "EBUDGET");
    cr_assert_str_eq(ebb_status_name(EBB_EDEVICE), "EDEVICE");
    cr_assert_str_eq(ebb_status_name(EBB_EUNSUPPORTED), "EUNSUPPORTED");
    cr_assert_str_eq(ebb_status_name(EBB_EIO), "EIO");
    cr_assert_str_eq(ebb_status_name(EBB_EFORMAT), "EFORMAT");
    cr_assert_str_eq(ebb_status_name(EBB_ESTATE), "ESTATE");
    cr_assert_str_eq(ebb_status_name((ebb_status)-99), "unknown");
    cr_assert_str_eq(ebb_status_name((ebb_status)1), "unknown");
}

static void *fail_elsewhere(void *arg)
{
    (void)arg;
    (void)ebb_fail(EBB_EIO, "elsewhere");
    ebb_call_site("elsewhere.c", 2);
    return NULL;
}

Test(status, another_thread_has_its_own_message_and_site)
{
    pthread_t other;
    (void)ebb_fail(EBB_EINVAL, "here");
    ebb_call_site("here.c", 1);
    cr_assert_eq(pthread_create(&other, NULL, fail_elsewhere, NULL), 0);
    pthread_join(other, NULL);
    cr_assert_str_eq(ebb_message(), "here");
    cr_assert_str_eq(ebb__site_get().file, "here.c");
}

static ebb__site inside[3];

static ebb_status look(int i, ebb_status status)
{
    inside[i] = ebb__site_get();
    return status;
}

enum { TRY_LINE = __LINE__ + 3 };
static ebb_status try_twice(ebb_status second)
{
    EBB_TRY(look(0, EBB_OK));
    (void)look(1, EBB_OK);
    EBB_TRY(look(2, second));
    return EBB_OK;
}

Test(status, try_passes_the_error_on_and_records_the_line)
{
    check_ok(try_twice(EBB_OK));
    cr_assert_str_eq(inside[0].file, __FILE__);
    cr_assert_eq(inside[0].line, TRY_LINE);
    cr_assert_null(inside[1].file, "a call without EBB_TRY() has no line");
    cr_assert_eq(inside[2].line, TRY_LINE + 2);
    cr_assert_eq(try_twice(EBB_ESTATE), EBB_ESTATE);
    cr_assert_null(ebb__site_get().file, "after an error neither");
}

static ebb_status around(void)
{
    EBB_TRY(try_twice(EBB_OK));
    return EBB_OK;
}

Test(status, inside_another_try_the_line_is_that_ones)
{
    check_ok(around());
    cr_assert_eq(inside[0].line, TRY_LINE);
    cr_assert(inside[1].line > TRY_LINE + 4, "the line in around(), not the last one in try_twice()");
}

Test(status, a_failed_assert_aborts, .signal = SIGABRT) { ebb__assert_failed("1 == 2", "x.c", 3); }
