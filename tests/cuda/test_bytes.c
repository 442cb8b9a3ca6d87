/* cuda/test_bytes.c: fill, copy and add on the emulated device, for every dtype and over strides. */
#include "cuda/emulated_device.h"
#include "ops/case_call.h"
#include "support/support.h"

#include <stdlib.h>
#include <string.h>

enum { MOST_ELEMS = 64 * 1024 };

/* A window into a larger array: dims and, for each, how far apart its elements are. */
typedef struct window {
    const char *name;
    int ndim;
    int64_t dims[EBB_MAX_DIMS], strides[EBB_MAX_DIMS];
} window;

static const window windows[] = {
    { "a scalar", 0, { 0 }, { 0 } },
    { "nothing", 2, { 3, 0 }, { 1, 1 } },
    { "contiguous", 2, { 33, 40 }, { 40, 1 } },
    { "odd", 1, { 517 }, { 1 } },
    { "wide rows apart", 2, { 20, 64 }, { 96, 1 } },
    { "odd rows apart", 2, { 20, 63 }, { 95, 1 } },
    { "every third", 1, { 300 }, { 3 } },
    { "turned", 2, { 70, 45 }, { 1, 70 } },
    { "turned in the middle", 3, { 9, 33, 40 }, { 40, 360, 1 } },
    { "six dims", 6, { 2, 3, 1, 2, 2, 3 }, { 60, 20, 20, 9, 4, 1 } },
};
enum { N_WINDOWS = (int)(sizeof windows / sizeof windows[0]) };

static ebb_arg arg_of(const window *w, ebb_dtype dtype, void *data, bool contiguous)
{
    ebb_arg arg = { 0 };
    check_ok(ebb_arg_set(&arg, dtype, w->ndim, w->dims));
    if (!contiguous) memcpy(arg.strides, w->strides, sizeof arg.strides);
    arg.data = data;
    return arg;
}

/* An array of small whole numbers, which every dtype holds. */
static void *numbers(ebb_dtype dtype, int64_t n)
{
    void *data = malloc((size_t)n * ebb_dtype_bytes(dtype));
    ebb_arg whole = { .data = data, .dtype = dtype, .ndim = 1, .elems = n, .dims = { n }, .strides = { 1 } };
    for (int64_t i = 0; i < n; i++) case_set(&whole, i, (double)(i * 7 % 100));
    return data;
}

/* All of `got` is `want` but for the window, whose elements are `value` or, where `from` is given, its (plus
 * `want`'s own). */
static void check_window(const window *w, ebb_dtype dtype, const void *got, const void *want, const ebb_arg *from,
                         double value, bool added)
{
    size_t bytes = (size_t)MOST_ELEMS * ebb_dtype_bytes(dtype);
    void *expected = malloc(bytes);
    memcpy(expected, want, bytes);
    ebb_arg part = arg_of(w, dtype, expected, false);
    for (int64_t i = 0; i < part.elems; i++)
        case_set(&part, i, (from ? case_get(from, i) : value) + (added ? case_get(&part, i) : 0));
    cr_expect_arr_eq(got, expected, bytes, "%s, %s", w->name, ebb_dtype_name(dtype));
    free(expected);
}

typedef enum what { FILL, COPY, ADD } what;

static void check(what job, const window *w, ebb_dtype dtype, double value)
{
    ebb__cuda *cuda = emulated_device_new();
    void *before = numbers(dtype, MOST_ELEMS), *data = numbers(dtype, MOST_ELEMS), *source = numbers(dtype, MOST_ELEMS);
    for (int order = 0; order < EMU_N_ORDERS; order++) {
        emu_set_order((emu_order)order, 1);
        memcpy(data, before, (size_t)MOST_ELEMS * ebb_dtype_bytes(dtype));
        ebb_arg to = arg_of(w, dtype, data, false), from = arg_of(w, dtype, source, true);
        if (job == FILL) check_ok(ebb__cuda_fill(cuda, &to, value));
        if (job == COPY) check_ok(ebb__cuda_arg_copy(cuda, &to, &from));
        if (job == ADD) check_ok(ebb__cuda_arg_add(cuda, &to, &from));
        check_window(w, dtype, data, before, job == FILL ? NULL : &from, value, job == ADD);
        if (job == FILL) continue;
        memcpy(data, before, (size_t)MOST_ELEMS * ebb_dtype_bytes(dtype));
        ebb_arg back = arg_of(w, dtype, data, true), window_from = arg_of(w, dtype, source, false);
        if (job == COPY) check_ok(ebb__cuda_arg_copy(cuda, &back, &window_from));
        if (job == ADD) check_ok(ebb__cuda_arg_add(cuda, &back, &window_from));
        window plain = *w;
        memcpy(plain.strides, back.strides, sizeof plain.strides);
        check_window(&plain, dtype, data, before, &window_from, 0, job == ADD);
    }
    free(before);
    free(data);
    free(source);
    emulated_device_free(cuda);
}

Test(cuda_bytes, fill_reaches_the_window_and_nothing_else)
{
    for (int k = 0; k < N_WINDOWS; k++)
        for (int dtype = 0; dtype < EBB_N_DTYPES; dtype++) {
            check(FILL, &windows[k], (ebb_dtype)dtype, 0);
            check(FILL, &windows[k], (ebb_dtype)dtype, 3);
        }
}

Test(cuda_bytes, copies_move_every_dtype)
{
    for (int k = 0; k < N_WINDOWS; k++)
        for (int dtype = 0; dtype < EBB_N_DTYPES; dtype++) check(COPY, &windows[k], (ebb_dtype)dtype, 0);
}

Test(cuda_bytes, sums_are_added_in_place)
{
    for (int k = 0; k < N_WINDOWS; k++)
        for (int dtype = 0; dtype <= EBB_BF16; dtype++) check(ADD, &windows[k], (ebb_dtype)dtype, 0);
}

Test(cuda_bytes, adding_integers_is_refused)
{
    ebb__cuda *cuda = emulated_device_new();
    int32_t data[4] = { 0 };
    ebb_arg arg = arg_of(&(window){ "four", 1, { 4 }, { 1 } }, EBB_I32, data, true);
    check_fails(ebb__cuda_arg_add(cuda, &arg, &arg), EBB_EDTYPE);
    emulated_device_free(cuda);
}
