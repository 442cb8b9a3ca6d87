/* Copies, fills, sums, optimizer steps through the table; bad data that a kernel finds. */
#include "fake_device.h"

#include <math.h>
#include <signal.h>
#include <string.h>
#include "ops/attrs.h"

enum { N = 1000 };

Test(work, fills_copies_and_adds)
{
    with_fake(d, .deferred = true) {
        const ebb__accel *t = d.table;
        float *p = fake_new(&d, 3 * N * sizeof(float)), got[N];
        ebb_arg a = fake_arg(p, EBB_F32, N, 0, 0), b = fake_arg(p + N, EBB_F32, N, 0, 0);
        plugin_ok(t->fill(d.self, &a, 1.5));
        plugin_ok(t->arg_copy(d.self, &b, &a));
        plugin_ok(t->arg_add(d.self, &b, &a));
        plugin_ok(t->scale(d.self, &b, 1, 2));
        fake_get(&d, got, p + N, sizeof got);
        for (int i = 0; i < N; i++) cr_assert(got[i] == 6);
        fake_delete(&d, p, 3 * N * sizeof(float));
    }
}

Test(work, copies_strided_and_repeated_rows)
{
    with_fake(d) {
        float rows[6] = { 0, 1, 2, 3, 4, 5 }, got[6];
        float *p = fake_new_from(&d, rows, sizeof rows), *to = fake_new(&d, sizeof rows);
        ebb_arg out = fake_arg(to, EBB_F32, 3, 2, 0), in = fake_arg(p, EBB_F32, 3, 2, 0);
        in.strides[0] = 1, in.strides[1] = 3; /* transposed */
        plugin_ok(d.table->arg_copy(d.self, &out, &in));
        fake_get(&d, got, to, sizeof got);
        for (int i = 0; i < 6; i++) cr_assert(got[i] == rows[i % 2 * 3 + i / 2], "%d: %g", i, (double)got[i]);
        in.strides[0] = 0, in.strides[1] = 1; /* one row for all */
        plugin_ok(d.table->arg_copy(d.self, &out, &in));
        fake_get(&d, got, to, sizeof got);
        for (int i = 0; i < 6; i++) cr_assert(got[i] == rows[i % 2]);
        fake_delete(&d, p, sizeof rows);
        fake_delete(&d, to, sizeof rows);
    }
}

Test(work, sums_squares_of_many_the_same_each_time)
{
    with_fake(d, .deferred = true) {
        enum { ARGS = 40 };
        ebb_arg args[ARGS];
        float values[N];
        unsigned seed = 3;
        double expected = 0, sum = 0, again = 0;
        for (int i = 0; i < ARGS; i++) {
            for (int j = 0; j < N; j++) {
                values[j] = (float)fake_random(&seed);
                expected += (double)values[j] * (double)values[j];
            }
            args[i] = fake_arg(fake_new_from(&d, values, sizeof values), EBB_F32, N, 0, 0);
        }
        plugin_ok(d.table->sum_squares(d.self, args, ARGS, &sum));
        plugin_ok(d.table->sum_squares(d.self, args, ARGS, &again));
        cr_assert(fabs(sum - expected) <= 1e-6 * expected, "%.12g, not %.12g", sum, expected);
        cr_assert(memcmp(&sum, &again, sizeof sum) == 0);
        for (int i = 0; i < ARGS; i++) fake_delete(&d, args[i].data, sizeof values);
    }
}

/* ---- optimizer -------------------------------------------------------------------------------------- */

typedef struct param_values {
    double w[N], g[N], m[N], v[N];
} param_values;

static void adamw(param_values *p, const ebb__accel_step *s, double keep)
{
    for (int i = 0; i < N; i++) {
        p->m[i] = s->beta1 * p->m[i] + (1 - s->beta1) * p->g[i];
        p->v[i] = s->beta2 * p->v[i] + (1 - s->beta2) * p->g[i] * p->g[i];
        double root = sqrt(p->v[i]) / s->root_correction2 + s->eps;
        p->w[i] = p->w[i] * keep - s->lr / s->correction1 * p->m[i] / root;
    }
}

Test(work, updates_as_adamw_says)
{
    with_fake(d) {
        static param_values p;
        static double got[N];
        unsigned seed = 11;
        ebb__accel_step step = { .kind = EBB__ACCEL_ADAMW, .lr = 0.01, .beta1 = 0.9, .beta2 = 0.95, .eps = 1e-8,
                                 .correction1 = 1 - 0.9 * 0.9, .root_correction2 = sqrt(1 - 0.95 * 0.95) };
        for (int i = 0; i < N; i++) {
            p.w[i] = fake_random(&seed), p.g[i] = fake_random(&seed);
            p.m[i] = fake_random(&seed), p.v[i] = fabs(fake_random(&seed));
        }
        ebb__accel_param param = { fake_new_from(&d, p.w, sizeof p.w), fake_new_from(&d, p.g, sizeof p.g),
                                   fake_new_from(&d, p.m, sizeof p.m), fake_new_from(&d, p.v, sizeof p.v), N, EBB_F64,
                                   0.999, true };
        plugin_ok(d.table->update(d.self, &step, &param, 1));
        adamw(&p, &step, 0.999);
        fake_get(&d, got, param.w, sizeof got);
        for (int i = 0; i < N; i++) cr_assert(fabs(got[i] - p.w[i]) < 1e-12, "%d: %.15g, not %.15g", i, got[i], p.w[i]);
        fake_get(&d, got, param.s1, sizeof got);
        for (int i = 0; i < N; i++) cr_assert(fabs(got[i] - p.v[i]) < 1e-12);
        fake_delete(&d, param.w, sizeof p.w);
        fake_delete(&d, (void *)(uintptr_t)param.g, sizeof p.g);
        fake_delete(&d, param.s0, sizeof p.m);
        fake_delete(&d, param.s1, sizeof p.v);
    }
}

/* ---- bad data ---------------------------------------------------------------------------------------- */

static const ebb__accel_op *find_op(const ebb__accel *table, const char *name)
{
    for (int i = 0; i < table->n_ops; i++)
        if (strcmp(table->ops[i].name, name) == 0) return &table->ops[i];
    cr_assert_fail("no op %s", name);
    return NULL;
}

/* table [4, 2], indices [3] */
Test(work, bad_data_is_told_at_the_next_synchronize_and_once)
{
    with_fake(d, .deferred = true) {
        float rows[8] = { 0, 1, 2, 3, 4, 5, 6, 7 }, got[6];
        int32_t good[3] = { 3, 0, 1 }, bad[3] = { 1, 4, 2 };
        ebb_call call = { .n_in = 2, .n_out = 1 };
        call.in[0] = fake_arg(fake_new_from(&d, rows, sizeof rows), EBB_F32, 4, 2, 0);
        call.in[1] = fake_arg(fake_new_from(&d, good, sizeof good), EBB_I32, 3, 0, 0);
        call.out[0] = fake_arg(fake_new(&d, sizeof got), EBB_F32, 3, 2, 0);
        const ebb__accel_op *op = find_op(d.table, "embedding");
        plugin_ok(op->forward(d.self, &call));
        fake_get(&d, got, call.out[0].data, sizeof got);
        cr_assert(got[0] == 6 && got[3] == 1 && got[5] == 3);
        fake_put(&d, call.in[1].data, bad, sizeof bad);
        plugin_ok(op->forward(d.self, &call));
        cr_assert(d.table->synchronize(d.self) == EBB_EINVAL);
        cr_assert(strstr(plugin_message(), "embedding: "), "%s", plugin_message());
        plugin_ok(d.table->synchronize(d.self));
        fake_delete(&d, call.in[0].data, sizeof rows);
        fake_delete(&d, call.in[1].data, sizeof good);
        fake_delete(&d, call.out[0].data, sizeof got);
    }
}

/* ---- a kernel that crashes ------------------------------------------------------------------------------ */

Test(work, a_crash_is_told_by_what_comes_next)
{
    fake_device d = fake_device_open((fake_changes){ 0 });
    float *p = fake_new(&d, 64);
    ebb_arg arg = fake_arg(p, EBB_F32, 16, 0, 0);
    plugin_ok(d.table->synchronize(d.self));
    fake_counts before = fake_get_counts();
    cr_assert(d.table->fill(d.self, &arg, 1) == EBB_OK);
    long calls = fake_get_counts().calls - before.calls;
    cr_assert(calls == 1, "%ld calls", calls);
    fake_delete(&d, p, 64);
    fake_device_try_close(&d);
    /* The same again, with that launch failing. */
    fake_change((fake_changes){ .fail_nth = before.calls + 1 });
    d = fake_device_try_open(0);
    p = fake_new(&d, 64);
    arg.data = p;
    cr_assert(d.table->synchronize(d.self) == EBB_OK);
    cr_assert(d.table->fill(d.self, &arg, 1) == EBB_OK);
    cr_assert(d.table->synchronize(d.self) == EBB_EDEVICE);
    cr_assert(strstr(plugin_message(), "launch failure"), "%s", plugin_message());
    fake_delete(&d, p, 64);
    fake_device_try_close(&d);
}

/* ---- messages say where ---------------------------------------------------------------------------------- */

/* Opens a device whose n-th call from now on fails. */
static fake_device open_to_fail(long n, bool refuse_launches)
{
    fake_device d = fake_device_open((fake_changes){ 0 });
    long calls = fake_get_counts().calls;
    fake_device_close(&d);
    fake_change((fake_changes){ .fail_nth = calls + n, .refuse_launches = refuse_launches });
    return fake_device_try_open(0);
}

/* Memory is the first call, exp's launch the second; the next is of `op`, or a fill. */
static const struct { const char *op; long nth; bool refuse; const char *says; } failures[] = {
    { "silu", 3, true, "cuda:0: a launch failed in op silu: too many resources requested for launch" },
    { "silu", 2, false, "cuda:0: a launch failed in op silu: unspecified launch failure" }, /* exp's kernel crashed */
    { "matmul", 3, false, "cuda:0: cublasLtMatmulDescCreate failed in op matmul: the resource allocation failed" },
    { NULL, 3, true, "cuda:0: a launch failed: too many resources requested for launch" },
};

Test(work, messages_name_the_op_that_failed_and_no_other)
{
    for (size_t i = 0; i < sizeof failures / sizeof *failures; i++) {
        fake_device d = open_to_fail(failures[i].nth, failures[i].refuse);
        ebb_arg square = fake_arg(fake_new(&d, 16), EBB_F32, 2, 2, 0);
        ebb_call call = { .n_in = 2, .n_out = 1, .in = { square, square }, .out = { square } };
        plugin_ok(find_op(d.table, "exp")->forward(d.self, &call));
        ebb_status st = failures[i].op ? find_op(d.table, failures[i].op)->forward(d.self, &call)
                                       : d.table->fill(d.self, &square, 1);
        cr_assert(st != EBB_OK);
        const char *says = failures[i].says;
        cr_expect(strstr(plugin_message(), says), "\"%s\" lacks \"%s\"", plugin_message(), says);
        fake_delete(&d, square.data, 16);
        fake_device_try_close(&d);
    }
}

static ebb_status all_work(fake_device *d, void *arg)
{
    const ebb__accel *t = d->table;
    double sum;
    (void)arg;
    float *p = d->memory.alloc(d->memory.self, 64 * sizeof(float));
    if (!p) return plugin_host()->fail(EBB_ENOMEM, "no memory");
    ebb_arg a = fake_arg(p, EBB_F32, 16, 0, 0), b = fake_arg(p + 16, EBB_F32, 16, 0, 0);
    ebb__accel_step step = { .kind = EBB__ACCEL_SGD, .lr = 0.1 };
    ebb__accel_param param = { p, p + 16, NULL, NULL, 16, EBB_F32, 1, false };
    ebb_status st = t->fill(d->self, &a, 1);
    if (st == EBB_OK) st = t->arg_copy(d->self, &b, &a);
    if (st == EBB_OK) st = t->arg_add(d->self, &b, &a);
    if (st == EBB_OK) st = t->update(d->self, &step, &param, 1);
    if (st == EBB_OK) st = t->sum_squares(d->self, &a, 1, &sum);
    if (st == EBB_OK) st = t->scale(d->self, &a, 1, 0.5);
    if (st == EBB_OK) st = t->synchronize(d->self);
    d->memory.free(d->memory.self, p, 64 * sizeof(float));
    return st;
}

Test(work, any_call_may_fail) { fake_sweep(all_work, NULL, (fake_changes){ 0 }); }

/* ---- what the fake itself sees ------------------------------------------------------------------------------ */

Test(fake, a_copy_in_the_wrong_direction_aborts, .signal = SIGABRT)
{
    with_fake(d) {
        char host[8] = { 0 };
        void *p = fake_new(&d, 8);
        (void)d.table->copy(d.self, NULL, host, p, 8, EBB__TO_DEVICE);
    }
}

Test(fake, a_copy_out_of_range_aborts, .signal = SIGABRT)
{
    with_fake(d) {
        char host[16] = { 0 };
        void *p = fake_new(&d, 8);
        (void)d.table->copy(d.self, NULL, p, host, 9, EBB__TO_DEVICE);
    }
}

Test(fake, a_second_free_aborts, .signal = SIGABRT)
{
    with_fake(d) {
        void *p = fake_new(&d, 8);
        fake_delete(&d, p, 8);
        fake_delete(&d, p, 8);
    }
}

#ifndef __SANITIZE_ADDRESS__ /* it takes the signal itself */
Test(fake, with_protection_the_host_cannot_read_device_memory, .signal = SIGSEGV)
{
    with_fake(d, .protect = true) {
        volatile char *p = fake_new(&d, 8);
        cr_assert(p[0] == 0);
    }
}
#endif

Test(fake, with_protection_kernels_and_products_can)
{
    with_fake(d, .protect = true, .deferred = true) {
        float *p = fake_new(&d, 4096), got;
        ebb_arg arg = fake_arg(p, EBB_F32, 1024, 0, 0);
        plugin_ok(d.table->fill(d.self, &arg, 1));
        ebb__cuda_gemm g = { .m = 4, .n = 4, .k = 4, .batch = 1, .alpha = 1, .a = p, .b = p + 64, .c = p + 128,
                             .lda = 4, .ldb = 4, .ldc = 4, .dtype = EBB_F32 };
        plugin_ok(ebb__cuda_gemm_run(d.self, &g));
        fake_get(&d, &got, p + 128, sizeof got);
        cr_assert(got == 4);
        fake_delete(&d, p, 4096);
    }
}

Test(fake, memory_begins_as_nan)
{
    with_fake(d) {
        float *p = fake_new(&d, 8), got;
        fake_get(&d, &got, p, sizeof got);
        cr_assert(isnan(got));
        fake_delete(&d, p, 8);
    }
}

/* Whatever synchronize() says, it has waited: the copy's target is the caller's to free. */
static ebb_status read_back(fake_device *d, void *arg)
{
    const ebb__accel *t = d->table;
    float back[N] = { 0 };
    (void)arg;
    float *p = d->memory.alloc(d->memory.self, sizeof back);
    if (!p) return plugin_host()->fail(EBB_ENOMEM, "no memory");
    ebb_arg a = fake_arg(p, EBB_F32, N, 0, 0);
    ebb_status st = t->fill(d->self, &a, 7);
    if (st == EBB_OK) st = t->copy(d->self, NULL, back, p, sizeof back, EBB__FROM_DEVICE);
    if (st == EBB_OK) {
        st = t->synchronize(d->self);
        for (int i = 0; i < N; i++) cr_assert(back[i] == 7, "element %d is %g", i, (double)back[i]);
    }
    d->memory.free(d->memory.self, p, sizeof back);
    return st;
}

Test(work, a_failing_synchronize_has_waited) { fake_sweep(read_back, NULL, (fake_changes){ .deferred = true }); }

/* ---- an error that was an answer, or was told, is not found again by the next launch ------------------------- */

Test(work, goes_on_after_a_refusal)
{
    with_fake(d, .mib = 64) {
        float *p = fake_new(&d, N * sizeof *p);
        ebb_arg a = fake_arg(p, EBB_F32, N, 0, 0);
        cr_assert(d.memory.alloc(d.memory.self, 128u << 20) == NULL);
        plugin_ok(d.table->fill(d.self, &a, 1));
        fake_delete(&d, p, N * sizeof *p);
    }
}

Test(work, goes_on_after_a_ticket_that_is_not_done)
{
    int waiting = 0;
    for (unsigned seed = 1; seed <= 8; seed++) {
        with_fake(d, .deferred = true, .seed = seed) {
            float *p = fake_new(&d, N * sizeof *p);
            ebb_arg a = fake_arg(p, EBB_F32, N, 0, 0);
            uint64_t ticket;
            for (int i = 0; i < 4; i++) plugin_ok(d.table->fill(d.self, &a, i));
            plugin_ok(d.table->record(d.self, NULL, &ticket));
            waiting += !d.table->is_done(d.self, NULL, ticket);
            plugin_ok(d.table->fill(d.self, &a, 1));
            fake_delete(&d, p, N * sizeof *p);
        }
    }
    cr_assert(waiting > 0);
}

static ebb_status copy_and_go_on(fake_device *d, void *arg)
{
    char byte = 1;
    (void)arg;
    void *p = d->memory.alloc(d->memory.self, 64);
    if (!p) return plugin_host()->fail(EBB_ENOMEM, "no memory");
    ebb_arg a = fake_arg(p, EBB_F32, 16, 0, 0);
    ebb_status st = d->table->copy(d->self, NULL, p, &byte, 1, EBB__TO_DEVICE), next = d->table->fill(d->self, &a, 1);
    if (st != EBB_OK) cr_assert(next == EBB_OK, "%s", plugin_message());
    else st = next;
    d->memory.free(d->memory.self, p, 64);
    return st;
}

Test(work, goes_on_after_an_error_that_was_told) { fake_sweep(copy_and_go_on, NULL, (fake_changes){ 0 }); }
