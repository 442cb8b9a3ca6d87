/* cuda/test_optim.c: optimizer steps, sum of squares and scaling on the emulated device, against the CPU's. */
#include "cuda/emulated_device.h"
#include "optim/optim.h"
#include "support/support.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

/* More tensors than one launch takes; none, one, odd and many elements; both dtypes; odd addresses. */
enum { N_TENSORS = 101, MOST = 9001 };
static const int64_t sizes[] = { 5, 0, 1, 64, 4099, 1024, 17, MOST, 3, 8192 };

typedef struct tensor {
    ebb_dtype dtype;
    int64_t n;
    double keep;
    char *base[4];      /* w, g, s0, s1 */
    char *at[4];        /* within */
} tensor;

static double value_of(int i, int part, int64_t k)
{
    double x = sin((double)(k * 13 + part * 7 + i * 3 + 1));
    return part == 3 ? x * x : x; /* the second moment is not negative */
}

enum { ALL_PARTS = 15 };

/* odd: the parts (bits) that lie at odd addresses. */
static void make(tensor *t, int i, unsigned odd)
{
    t->dtype = i % 3 == 2 ? EBB_F64 : EBB_F32;
    t->n = sizes[i % (int)(sizeof sizes / sizeof sizes[0])];
    t->keep = i % 2 ? 1 : 0.99;
    size_t bytes = ebb_dtype_bytes(t->dtype);
    for (int part = 0; part < 4; part++) {
        size_t shift = odd >> part & 1 ? bytes : 0;
        t->base[part] = malloc((size_t)t->n * bytes + shift + 1);
        t->at[part] = t->base[part] + shift;
        for (int64_t k = 0; k < t->n; k++) {
            double x = value_of(i, part, k);
            float f = (float)x;
            memcpy(t->at[part] + (size_t)k * bytes, t->dtype == EBB_F64 ? (void *)&x : (void *)&f, bytes);
        }
    }
}

/* Of each four one with all parts at odd addresses, and one with one of them. */
static tensor *make_all(bool shift_all)
{
    tensor *all = calloc(N_TENSORS, sizeof *all);
    for (int i = 0; i < N_TENSORS; i++)
        make(&all[i], i, shift_all || i % 4 == 3 ? ALL_PARTS : i % 4 == 1 ? 1u << i / 4 % 4 : 0);
    return all;
}

static void free_all(tensor *all)
{
    for (int i = 0; i < N_TENSORS; i++)
        for (int part = 0; part < 4; part++) free(all[i].base[part]);
    free(all);
}

static double get(const tensor *t, int part, int64_t k)
{
    return t->dtype == EBB_F64 ? ((const double *)(const void *)t->at[part])[k]
                               : (double)((const float *)(const void *)t->at[part])[k];
}

static void check_near(const tensor *got, const tensor *want, const char *what)
{
    for (int i = 0; i < N_TENSORS; i++) {
        double tolerance = want[i].dtype == EBB_F64 ? 1e-12 : 1e-6;
        for (int part = 0; part < 4; part++)
            for (int64_t k = 0; k < want[i].n; k++) {
                double a = get(&got[i], part, k), b = get(&want[i], part, k);
                cr_assert(fabs(a - b) <= tolerance * (1 + fabs(b)), "%s: tensor %d part %d, %lld: %.9g, not %.9g",
                          what, i, part, (long long)k, a, b);
            }
    }
}

static void check_update(ebb__cuda *cuda, const ebb__optim_kind *kind, const ebb__accel_step *step, int states,
                         const char *what)
{
    tensor *want = make_all(false);
    ebb__accel_param params[N_TENSORS];
    for (int i = 0; i < N_TENSORS; i++) {
        tensor *t = &want[i];
        ebb__step numbers = { .lr = step->lr, .keep = t->keep, .beta1 = step->beta1, .beta2 = step->beta2,
                              .eps = step->eps, .correction1 = step->correction1,
                              .root_correction2 = step->root_correction2, .momentum = step->momentum,
                              .nesterov = step->nesterov };
        (t->dtype == EBB_F64 ? kind->update_f64 : kind->update_f32)(&numbers, t->at[0], t->at[1],
                                                                    states > 0 ? t->at[2] : NULL,
                                                                    states > 1 ? t->at[3] : NULL, t->n);
    }
    for (int order = 0; order < EMU_N_ORDERS; order++) {
        emu_set_order((emu_order)order, 1);
        tensor *got = make_all(false);
        for (int i = 0; i < N_TENSORS; i++)
            params[i] = (ebb__accel_param){ got[i].at[0], got[i].at[1], states > 0 ? got[i].at[2] : NULL,
                                            states > 1 ? got[i].at[3] : NULL, got[i].n, got[i].dtype, got[i].keep, false };
        check_ok(ebb__cuda_update(cuda, step, params, N_TENSORS));
        check_near(got, want, what);
        free_all(got);
    }
    free_all(want);
}

Test(cuda_optim, steps_are_the_cpus)
{
    ebb__cuda *cuda = emulated_device_new();
    const ebb__accel_step adamw = { .kind = EBB__ACCEL_ADAMW, .lr = 1e-3, .beta1 = 0.9, .beta2 = 0.95, .eps = 1e-8,
                                    .correction1 = 1 - 0.9, .root_correction2 = sqrt(1 - 0.95) };
    check_update(cuda, &ebb__optim_adamw, &adamw, 2, "adamw");
    ebb__accel_step sgd = { .kind = EBB__ACCEL_SGD, .lr = 0.05 };
    check_update(cuda, &ebb__optim_sgd, &sgd, 0, "sgd");
    sgd.momentum = 0.9;
    check_update(cuda, &ebb__optim_sgd, &sgd, 1, "sgd with momentum");
    sgd.nesterov = true;
    check_update(cuda, &ebb__optim_sgd, &sgd, 1, "sgd with nesterov");
    check_ok(ebb__cuda_update(cuda, &sgd, NULL, 0));
    emulated_device_free(cuda);
}

static void as_args(ebb_arg *args, const tensor *all)
{
    for (int i = 0; i < N_TENSORS; i++) {
        check_ok(ebb_arg_set(&args[i], all[i].dtype, 1, &all[i].n));
        args[i].data = all[i].at[1];
    }
}

Test(cuda_optim, sums_of_squares_have_the_same_bits_in_every_order_and_place)
{
    ebb__cuda *cuda = emulated_device_new();
    tensor *all = make_all(false);
    ebb_arg args[N_TENSORS];
    as_args(args, all);
    double want = 0, first = 0;
    for (int i = 0; i < N_TENSORS; i++)
        for (int64_t k = 0; k < all[i].n; k++) want += get(&all[i], 1, k) * get(&all[i], 1, k);
    for (int order = 0; order < EMU_N_ORDERS; order++) {
        emu_set_order((emu_order)order, 1);
        check_ok(ebb__cuda_sum_squares(cuda, args, N_TENSORS));
        if (order == EMU_IDENTITY) first = cuda->partials[0];
        cr_expect(cuda->partials[0] == first);
    }
    cr_expect(fabs(first - want) <= 1e-12 * want, "%.17g, not %.17g", first, want);
    tensor *shifted = make_all(true);
    as_args(args, shifted);
    check_ok(ebb__cuda_sum_squares(cuda, args, N_TENSORS));
    cr_expect(cuda->partials[0] == first);
    free_all(shifted);
    check_ok(ebb__cuda_sum_squares(cuda, args, 0));
    cr_expect(cuda->partials[0] == 0, "nothing makes %g", cuda->partials[0]);
    free_all(all);
    emulated_device_free(cuda);
}

/* A launch has as many blocks as chunks: what no launch has written is not read, nor added to. */
Test(cuda_optim, a_later_launch_of_a_sum_of_squares_may_have_more_blocks)
{
    enum { SMALL = 48, LARGE_ELEMS = 60 * 8192 - 5 };
    static float one = 3, large[LARGE_ELEMS];
    ebb__cuda *cuda = emulated_device_new();
    ebb_arg args[SMALL + 1];
    for (int64_t k = 0; k < LARGE_ELEMS; k++) large[k] = 2;
    for (int i = 0; i <= SMALL; i++) {
        int64_t n = i < SMALL ? 1 : LARGE_ELEMS;
        check_ok(ebb_arg_set(&args[i], EBB_F32, 1, &n));
        args[i].data = i < SMALL ? &one : large;
    }
    check_ok(ebb__cuda_sum_squares(cuda, args, SMALL + 1));
    cr_expect(cuda->partials[0] == SMALL * 9.0 + LARGE_ELEMS * 4.0, "%.17g", cuda->partials[0]);
    check_ok(ebb__cuda_sum_squares(cuda, args, 2)); /* after a larger one */
    cr_expect(cuda->partials[0] == 18, "%.17g", cuda->partials[0]);
    emulated_device_free(cuda);
}

Test(cuda_optim, scaling_reaches_each_element_once)
{
    ebb__cuda *cuda = emulated_device_new();
    tensor *all = make_all(false), *before = make_all(false);
    ebb_arg args[N_TENSORS];
    as_args(args, all);
    check_ok(ebb__cuda_scale(cuda, args, N_TENSORS, 0.25));
    for (int i = 0; i < N_TENSORS; i++)
        for (int64_t k = 0; k < all[i].n; k++) cr_assert(get(&all[i], 1, k) == 0.25 * get(&before[i], 1, k));
    free_all(all);
    free_all(before);
    emulated_device_free(cuda);
}
