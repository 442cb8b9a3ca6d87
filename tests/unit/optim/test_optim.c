/* Updates.  The expected trajectories were computed apart from ebb, in 40 decimal digits, from the
 * update rules as their papers write them (moments as b m + (1 - b) g, bias-corrected). */
#include "optim_support.h"

#include <ebb/memory.h>

#include "tensor/context.h"

enum { STEPS = 5, N = 3 };

static const double start[N] = { 0.5, -1.25, 2 };
static const double grads[STEPS][N] = {
    { 0.1, -0.2, 3 }, { -0.4, 0.5, 1 }, { 0.25, 0, -2 }, { 0.05, 1.5, 0.5 }, { -1, -0.75, 0.125 },
};

/* Steps through all gradients and checks w after steps 3 and 5. */
static void follow(ebb_dtype dtype, const ebb_optim_options *options, const double after3[N],
                   const double after5[N], double tolerance)
{
    with_context(ctx) {
        EBB_LOCAL(w);
        ebb_optim *optim = NULL;
        make_param(&w, ctx, dtype, N, start);
        check_ok(ebb_optim_new(&optim, ctx, &(ebb_named_tensor){ "w", w }, 1, options));
        for (int t = 0; t < STEPS; t++) {
            give_grad(w, grads[t]);
            check_ok(ebb_optim_step(optim, options->lr));
            const double *expected = t == 2 ? after3 : t == 4 ? after5 : NULL;
            for (int i = 0; i < N && expected; i++)
                cr_assert(fabs(value_at(w, i) - expected[i]) <= tolerance,
                          "step %d, w[%d] = %.15g, expected %.15g", t + 1, i, value_at(w, i),
                          expected[i]);
        }
        cr_assert(ebb_optim_steps(optim) == STEPS);
        ebb_optim_free(optim);
    }
}

Test(optim, adamw_follows_the_reference_trajectory)
{
    static const double after3[N] = { 0.445749056222095, -1.19256457839155, 1.73254645446606 };
    static const double after5[N] = { 0.480336504116479, -1.25561519816602, 1.64691035101325 };
    ebb_optim_options options = adamw_options(0.1);
    options.weight_decay = 0.1;
    follow(EBB_F64, &options, after3, after5, 1e-14);
    follow(EBB_F32, &options, after3, after5, 1e-6);
}

Test(optim, sgd_with_momentum_follows_the_reference_trajectory)
{
    static const double after3[N] = { 0.5223904895, -1.28706172875, 1.191975698 };
    static const double after5[N] = { 0.61680762091149, -1.54356097235423, 0.854832638579698 };
    ebb_optim_options options = sgd_options(0.1);
    options.momentum = 0.9;
    options.weight_decay = 0.01;
    follow(EBB_F64, &options, after3, after5, 1e-14);
    follow(EBB_F32, &options, after3, after5, 1e-6);
}

Test(optim, sgd_with_nesterov_follows_the_reference_trajectory)
{
    static const double after3[N] = { 0.5249815805, -1.31297091075, 1.072878428 };
    static const double after5[N] = { 0.70485239332058, -1.61836115389941, 0.706999474022428 };
    ebb_optim_options options = sgd_options(0.1);
    options.momentum = 0.9;
    options.nesterov = true;
    options.weight_decay = 0.01;
    follow(EBB_F64, &options, after3, after5, 1e-14);
    follow(EBB_F32, &options, after3, after5, 1e-6);
}

/* B31: decay and t count optimizer steps, whatever was accumulated into the gradient before. */
Test(optim, the_first_step_of_sgd_with_decay_and_of_adamw)
{
    with_context(ctx) {
        ebb_optim_options sgd = sgd_options(0.1), adamw = adamw_options(0.1);
        ebb_optim *optim = NULL;
        EBB_LOCAL(a);
        EBB_LOCAL(b);
        sgd.weight_decay = 0.1;
        adamw.beta2 = 0.999;
        make_param(&a, ctx, EBB_F64, 1, (double[]){ 1 });
        make_param(&b, ctx, EBB_F64, 1, (double[]){ 1 });
        for (int micro = 0; micro < 3; micro++) { /* three thirds of 1 */
            EBB_LOCAL(loss);
            EBB_LOCAL(part);
            check_ok(ebb_add(&loss, a, b));
            check_ok(ebb_scale(&part, loss, 1.0 / 3));
            check_ok(ebb_sum(&loss, part, 0, NULL, false));
            check_ok(ebb_backward(loss));
        }
        check_ok(ebb_optim_new(&optim, ctx, &(ebb_named_tensor){ "a", a }, 1, &sgd));
        check_ok(ebb_optim_step(optim, 0.1));
        cr_assert(fabs(value_at(a, 0) - 0.89) < 1e-12, "%.15g", value_at(a, 0));
        ebb_optim_free(optim);
        check_ok(ebb_optim_new(&optim, ctx, &(ebb_named_tensor){ "b", b }, 1, &adamw));
        check_ok(ebb_optim_step(optim, 0.1));
        cr_assert(fabs(value_at(b, 0) - 0.9) < 1e-8, "%.15g", value_at(b, 0));
        cr_assert(ebb_optim_steps(optim) == 1);
        ebb_optim_free(optim);
    }
}

/* B52 */
Test(optim, a_parameter_that_is_listed_twice_is_one_parameter)
{
    with_context(ctx) {
        EBB_LOCAL(x);
        ebb_optim *optim = NULL;
        ebb_optim_options options = sgd_options(0.1);
        ebb_memory_stats stats;
        double norm;
        options.momentum = 0.5;
        make_param(&x, ctx, EBB_F32, 1, (double[]){ 0 });
        ebb_named_tensor twice[] = { { "embed", x }, { "head", x } };
        check_ok(ebb_optim_new(&optim, ctx, twice, 2, &options));
        ebb_memory_stats_get(ctx, &stats);
        cr_assert(stats.by_category[EBB_CAT_OPTIMIZER] == 2 * 512,
                  "one momentum and the step count, not %zu bytes",
                  stats.by_category[EBB_CAT_OPTIMIZER]);
        give_grad(x, (double[]){ 1 });
        check_ok(ebb_optim_clip(optim, 0, &norm));
        cr_assert(norm == 1, "%g", norm);
        check_ok(ebb_optim_step(optim, 0.1));
        cr_assert(fabs(value_at(x, 0) + 0.1) < 1e-7, "%g", value_at(x, 0));
        ebb_optim_free(optim);
    }
}

Test(optim, names_and_bytes_belong_to_one_parameter_each)
{
    with_context(ctx) {
        EBB_LOCAL(a);
        EBB_LOCAL(b);
        EBB_LOCAL(alias);
        EBB_LOCAL(whole);
        ebb_optim *optim = NULL;
        ebb_optim_options options = sgd_options(0.1);
        make_param(&a, ctx, EBB_F32, 2, start);
        make_param(&b, ctx, EBB_F32, 2, start);
        check_ok(ebb_detach(&alias, a));
        check_ok(ebb_set_requires_grad(alias, true));
        check_fails(
            ebb_optim_new(&optim, ctx, (ebb_named_tensor[]){ { "a", a }, { "a", b } }, 2, &options),
            EBB_EINVAL);
        check_message("'a'");
        check_fails(ebb_optim_new(&optim, ctx, (ebb_named_tensor[]){ { "a", a }, { "c", alias } },
                                  2, &options),
                    EBB_EINVAL);
        check_message("'c'");
        check_fails(ebb_optim_new(&optim, ctx, &(ebb_named_tensor){ "", a }, 1, &options),
                    EBB_EINVAL);
        check_fails(ebb_optim_new(&optim, ctx, &(ebb_named_tensor){ "a", NULL }, 1, &options),
                    EBB_EINVAL);
        check_ok(ebb_add(&whole, a, b));
        check_fails(ebb_optim_new(&optim, ctx, &(ebb_named_tensor){ "sum", whole }, 1, &options),
                    EBB_EINVAL);
        check_message("add");
        check_fails(ebb_optim_new(&optim, ctx, &(ebb_named_tensor){ "a", a }, 1, NULL), EBB_EINVAL);
        cr_assert(optim == NULL);
    }
}

Test(optim, frozen_parameters_and_those_without_gradient_stay_as_they_are)
{
    with_context(ctx) {
        EBB_LOCAL(frozen);
        EBB_LOCAL(idle);
        EBB_LOCAL(used);
        ebb_optim *optim = NULL;
        ebb_optim_options options = adamw_options(0.1);
        ebb_memory_stats stats;
        options.weight_decay = 0.5;
        make_param(&frozen, ctx, EBB_F32, 2, start);
        check_ok(ebb_set_requires_grad(frozen, false));
        make_param(&idle, ctx, EBB_F32, 2, start);
        make_param(&used, ctx, EBB_F32, 2, start);
        check_ok(ebb_optim_new(
            &optim, ctx, (ebb_named_tensor[]){ { "f", frozen }, { "i", idle }, { "u", used } }, 3,
            &options));
        ebb_memory_stats_get(ctx, &stats);
        cr_assert(stats.by_category[EBB_CAT_OPTIMIZER] == (2 * 2 + 1) * 512);
        give_grad(used, grads[0]);
        check_ok(ebb_optim_step(optim, 0.1));
        for (int i = 0; i < 2; i++) {
            cr_assert(value_at(frozen, i) == start[i] && value_at(idle, i) == start[i]);
            cr_assert(value_at(used, i) != start[i]);
        }
        cr_assert(ebb_grad(used) != NULL, "a step keeps gradients");
        ebb_optim_drop_grads(optim);
        cr_assert(ebb_grad(used) == NULL);
        ebb_optim_free(optim);
    }
}

Test(optim, decay_of_matrices_leaves_vectors_alone)
{
    static const double expected[3][2] = { { 0.95, 0.95 },
                                           { 0.95, 1 },
                                           { 1, 1 } }; /* [rule][matrix, vector] */
    for (int rule = 0; rule < 3; rule++) {
        with_context(ctx) {
            EBB_LOCAL(matrix);
            EBB_LOCAL(vector);
            EBB_LOCAL(zeros);
            ebb_optim *optim = NULL;
            ebb_optim_options options = sgd_options(0.1);
            options.weight_decay = 0.5;
            options.decay = (ebb_decay_rule)rule;
            check_ok(ebb_full(&matrix, ctx, EBB_F64, 2, (int64_t[]){ 1, 1 }, 1));
            check_ok(ebb_full(&vector, ctx, EBB_F64, 1, (int64_t[]){ 1 }, 1));
            check_ok(ebb_set_requires_grad(matrix, true));
            check_ok(ebb_set_requires_grad(vector, true));
            give_grad(matrix, (double[]){ 0 });
            give_grad(vector, (double[]){ 0 });
            check_ok(ebb_optim_new(&optim, ctx,
                                   (ebb_named_tensor[]){ { "m", matrix }, { "v", vector } }, 2,
                                   &options));
            check_ok(ebb_optim_step(optim, 0.1));
            cr_assert(value_at(matrix, 0) == expected[rule][0] &&
                          value_at(vector, 0) == expected[rule][1],
                      "rule %d", rule);
            ebb_optim_free(optim);
        }
    }
}

/* A parameter larger than any thread's range, odd in length. */
static void large_run(float *out, int64_t n, int threads, ebb_optim_kind kind)
{
    with_options(ctx, ((ebb_context_options){ .threads = threads })) {
        EBB_LOCAL(w);
        EBB_LOCAL(g);
        ebb_optim *optim = NULL;
        ebb_optim_options options = kind == EBB_SGD ? sgd_options(0.1) : adamw_options(0.1);
        check_ok(ebb_normal(&w, ctx, EBB_F32, 1, &n, 0, 1));
        check_ok(ebb_normal(&g, ctx, EBB_F32, 1, &n, 0, 1));
        check_ok(ebb_set_requires_grad(w, true));
        check_ok(ebb_set_grad(w, g));
        check_ok(ebb_optim_new(&optim, ctx, &(ebb_named_tensor){ "w", w }, 1, &options));
        for (int i = 0; i < 3; i++) check_ok(ebb_optim_step(optim, 0.1));
        check_ok(ebb_read(w, out, (size_t)n * sizeof *out));
        ebb_optim_free(optim);
    }
}

Test(optim, the_number_of_threads_does_not_change_an_update)
{
    enum { LARGE = 100003 };
    static float one[LARGE], three[LARGE];
    for (int kind = EBB_SGD; kind <= EBB_ADAMW; kind++) {
        large_run(one, LARGE, 1, (ebb_optim_kind)kind);
        large_run(three, LARGE, 3, (ebb_optim_kind)kind);
        cr_assert(!memcmp(one, three, sizeof one));
    }
}

Test(optim, a_step_bumps_versions_and_asks_the_pool_for_nothing)
{
    static const char *const devices[] = { "cpu", "dry:cpu" };
    size_t optimizer_bytes[2];
    for (int d = 0; d < 2; d++) {
        with_device(ctx, devices[d]) {
            EBB_LOCAL(w);
            EBB_LOCAL(g);
            ebb_optim *optim = NULL;
            ebb_optim_options options = adamw_options(0.1);
            ebb_memory_stats before, after;
            double norm = -1;
            check_ok(ebb_zeros(&w, ctx, EBB_F32, 2, (int64_t[]){ 300, 7 }));
            check_ok(ebb_set_requires_grad(w, true));
            check_ok(ebb_full(&g, ctx, EBB_F32, 2, (int64_t[]){ 300, 7 }, 1));
            check_ok(ebb_set_grad(w, g));
            check_ok(ebb_optim_new(&optim, ctx, &(ebb_named_tensor){ "w", w }, 1, &options));
            uint32_t version = ebb_storage_version(ebb_tensor_storage(w));
            uint32_t grad_version = ebb_storage_version(ebb_tensor_storage(g));
            ebb_memory_stats_get(ctx, &before);
            check_ok(ebb_optim_clip(optim, 1, &norm));
            check_ok(ebb_optim_step(optim, 0.1));
            ebb_memory_stats_get(ctx, &after);
            cr_assert(after.n_allocs == before.n_allocs);
            cr_assert(ebb_storage_version(ebb_tensor_storage(w)) == version + 1);
            cr_assert(ebb_storage_version(ebb_tensor_storage(g)) ==
                      grad_version + (d == 0 ? 1 : 0));
            cr_assert(d == 0 ? fabs(norm - sqrt(2100)) < 1e-6 : norm == 0, "%g", norm);
            optimizer_bytes[d] = after.by_category[EBB_CAT_OPTIMIZER];
            ebb_optim_free(optim);
        }
    }
    cr_assert(optimizer_bytes[0] == 2 * 8704 + 512 && optimizer_bytes[1] == optimizer_bytes[0],
              "%zu", optimizer_bytes[0]);
}

Test(optim, an_invalid_accumulation_group_is_refused_until_it_is_reset)
{
    with_context(ctx) {
        EBB_LOCAL(w);
        ebb_optim *optim = NULL;
        ebb_optim_options options = sgd_options(0.1);
        double norm;
        make_param(&w, ctx, EBB_F64, 1, (double[]){ 1 });
        check_ok(ebb_optim_new(&optim, ctx, &(ebb_named_tensor){ "w", w }, 1, &options));
        give_grad(w, (double[]){ 1 });
        ctx->gradients_invalid = true;
        check_fails(ebb_optim_step(optim, 0.1), EBB_ESTATE);
        check_message("ebb_gradients_reset()");
        check_fails(ebb_optim_clip(optim, 1, &norm), EBB_ESTATE);
        cr_assert(value_at(w, 0) == 1 && ebb_optim_steps(optim) == 0);
        ebb_gradients_reset(ctx);
        check_ok(ebb_optim_step(optim, 0.1));
        cr_assert(fabs(value_at(w, 0) - 0.9) < 1e-15);
        check_fails(ebb_optim_step(optim, (double)NAN), EBB_EINVAL);
        check_fails(ebb_optim_step(optim, -1), EBB_EINVAL);
        check_fails(ebb_optim_step(optim, (double)INFINITY), EBB_EINVAL);
        cr_assert(ebb_optim_steps(optim) == 1);
        ebb_optim_free(optim);
    }
}

Test(optim, a_saved_tensor_that_a_step_changed_is_found_by_backward)
{
    with_context(ctx) {
        EBB_LOCAL(w);
        EBB_LOCAL(y);
        ebb_optim *optim = NULL;
        ebb_optim_options options = sgd_options(0.1);
        make_param(&w, ctx, EBB_F64, 1, (double[]){ 1 });
        check_ok(ebb_optim_new(&optim, ctx, &(ebb_named_tensor){ "w", w }, 1, &options));
        check_ok(ebb_mul(&y, w, w));
        give_grad(w, (double[]){ 1 });
        check_ok(ebb_optim_step(optim, 0.1));
        check_fails(ebb_backward(y), EBB_ESTATE);
        ebb_optim_free(optim);
    }
}

Test(optim, every_failed_allocation_of_new_is_enomem_and_leaks_nothing)
{
    with_context(ctx) {
        EBB_LOCAL(a);
        EBB_LOCAL(b);
        ebb_optim_options options = adamw_options(0.1);
        uint64_t n = 0;
        make_param(&a, ctx, EBB_F32, 2, start);
        make_param(&b, ctx, EBB_F32, 3, start);
        for (bool fired = true; fired;) {
            ebb_optim *optim = NULL;
            int64_t live = ebb_host_live_blocks();
            int refs = ebb_tensor_refcount(a);
            ebb_fault_arm(++n);
            ebb_status st = ebb_optim_new(
                &optim, ctx, (ebb_named_tensor[]){ { "a", a }, { "b", b } }, 2, &options);
            fired = ebb_fault_fired();
            ebb_fault_arm(0);
            cr_assert(st == (fired ? EBB_ENOMEM : EBB_OK), "%llu: %s", (unsigned long long)n,
                      ebb_message());
            cr_assert(fired == (optim == NULL));
            ebb_optim_free(optim);
            cr_assert(ebb_host_live_blocks() == live, "allocation %llu leaks",
                      (unsigned long long)n);
            cr_assert(ebb_tensor_refcount(a) == refs);
        }
        cr_assert(n > 12);
    }
}
