/* Captured graphs: the bits of the calls, memory of their own, and captures that fail. */
#include <string.h>

#include <ebb/ebb.h>

#include "support/stub_accel.h"

enum { N = 16 };

static ebb_tensor *filled(ebb_context *ctx, double value, int64_t n)
{
    ebb_tensor *t = NULL;
    check_ok(ebb_full(&t, ctx, EBB_F32, 2, (int64_t[]){ n, n }, value));
    return t;
}

/* y = gelu(x w) + w, through intermediates that are dropped. */
static ebb_status compute(ebb_tensor **y, ebb_tensor *x, ebb_tensor *w)
{
    EBB_LOCAL(h);
    EBB_TRY(ebb_matmul(&h, x, w));
    EBB_TRY(ebb_gelu(&h, h, EBB_GELU_TANH));
    return ebb_add(y, h, w);
}

static void check_equal(const ebb_tensor *a, const ebb_tensor *b)
{
    static float x[N * N], y[N * N];
    check_ok(ebb_read(a, x, sizeof x));
    check_ok(ebb_read(b, y, sizeof y));
    cr_assert(memcmp(x, y, sizeof x) == 0, "%g, not %g", (double)y[0], (double)x[0]);
}

Test(capture, a_launch_does_what_the_calls_do)
{
    for (uint64_t seed = 1; seed < 4; seed++) {
        stub_install((stub_options){ .seed = seed });
        with_stub(ctx) {
            ebb_tensor *x = filled(ctx, 0.1, N), *w = filled(ctx, 0.2, N), *y = NULL;
            ebb_graph *graph = NULL;
            uint64_t kernels = stub_counts_get().kernels;
            check_ok(ebb_capture_begin(ctx));
            check_ok(compute(&y, x, w));
            check_ok(ebb_capture_end(&graph, ctx));
            cr_assert(stub_counts_get().kernels == kernels + 3);
            for (int round = 0; round < 4; round++) {
                EBB_LOCAL(want);
                EBB_LOCAL(noise);
                check_ok(ebb_fill(x, 0.05 * round));
                check_ok(ebb_graph_launch(graph));
                check_ok(compute(&want, x, w));
                check_ok(ebb_full(&noise, ctx, EBB_F32, 2, (int64_t[]){ N, N }, -9)); /* not over the graph's */
                check_equal(want, y);
            }
            cr_assert(stub_counts_get().frees_in_capture == 0);
            ebb_drop(&y);
            ebb_drop(&x);
            ebb_drop(&w);
            ebb_graph_free(graph);
        }
        cr_assert(stub_counts_get().graphs == 0);
    }
}

static ebb_status train_step(ebb_optim *optim, ebb_tensor *x, ebb_tensor *w, ebb_tensor **loss)
{
    EBB_LOCAL(h);
    EBB_TRY(ebb_matmul(&h, x, w));
    EBB_TRY(ebb_tanh(&h, h));
    EBB_TRY(ebb_mul(&h, h, h));
    EBB_TRY(ebb_sum(loss, h, 0, NULL, false));
    EBB_TRY(ebb_backward(*loss));
    EBB_TRY(ebb_optim_step(optim, 0.01));
    ebb_drop_grad(w);
    return EBB_OK;
}

/* w after three steps; captured: the second and third are launches of a graph. */
static void three_steps(float *out, bool captured)
{
    stub_install((stub_options){ .seed = 11 });
    with_stub(ctx) {
        ebb_tensor *x = filled(ctx, 0.1, N), *w = filled(ctx, 0.2, N), *loss = NULL;
        ebb_optim *optim = NULL;
        ebb_graph *graph = NULL;
        ebb_optim_options o = { .struct_bytes = sizeof o, .kind = EBB_SGD, .lr = 0.01, .momentum = 0.9 };
        ebb_named_tensor named = { "w", w };
        check_ok(ebb_set_requires_grad(w, true));
        check_ok(ebb_optim_new(&optim, ctx, &named, 1, &o));
        check_ok(train_step(optim, x, w, &loss));
        if (captured) {
            check_ok(ebb_capture_begin(ctx));
            check_ok(train_step(optim, x, w, &loss));
            check_ok(ebb_capture_end(&graph, ctx));
        }
        for (int i = 0; i < 2; i++) check_ok(captured ? ebb_graph_launch(graph) : train_step(optim, x, w, &loss));
        check_ok(ebb_read(w, out, N * N * sizeof *out));
        ebb_graph_free(graph);
        ebb_optim_free(optim);
        ebb_drop(&loss);
        ebb_drop(&x);
        ebb_drop(&w);
    }
}

Test(capture, training_steps_can_be_launched)
{
    static float calls[N * N], launches[N * N];
    three_steps(calls, false);
    three_steps(launches, true);
    cr_assert(memcmp(calls, launches, sizeof calls) == 0);
}

static size_t reserved(const ebb_context *ctx)
{
    ebb_memory_stats s;
    ebb_memory_stats_get(ctx, &s);
    return s.reserved_bytes;
}

/* Field case B45: memory that lacks while a capture runs, and idle blocks are in the cache. */
Test(capture, no_memory_is_given_back_while_it_runs)
{
    stub_install((stub_options){ .seed = 1, .capacity_bytes = 100 << 20, .lent_bytes = 4096 });
    with_stub(ctx) {
        EBB_LOCAL(idle);
        EBB_LOCAL(x);
        EBB_LOCAL(big);
        ebb_graph *graph = NULL;
        int64_t n = 50 << 20;
        check_ok(ebb_empty(&idle, ctx, EBB_U8, 1, &n));
        ebb_drop(&idle);
        check_ok(ebb_full(&x, ctx, EBB_F32, 1, (int64_t[]){ 4 }, 1));
        uint64_t frees = stub_counts_get().frees;
        check_ok(ebb_capture_begin(ctx));
        check_ok(ebb_neg(&x, x));
        ebb_memory_empty_cache(ctx);
        check_fails(ebb_empty(&big, ctx, EBB_U8, 1, &n), EBB_ENOMEM);
        check_ok(ebb_neg(&x, x));
        cr_assert(stub_counts_get().frees == frees && stub_counts_get().frees_in_capture == 0);
        check_ok(ebb_capture_end(&graph, ctx)); /* not spoilt */
        check_ok(ebb_graph_launch(graph));
        ebb_graph_free(graph);
        check_ok(ebb_empty(&big, ctx, EBB_U8, 1, &n));
    }
}

/* Field case B46: what a capture that failed has asked for. */
Test(capture, one_that_is_thrown_away_gives_its_memory_back)
{
    stub_install((stub_options){ .seed = 1 });
    with_stub(ctx) {
        EBB_LOCAL(x);
        EBB_LOCAL(held);
        EBB_LOCAL(bad);
        check_ok(ebb_full(&x, ctx, EBB_F32, 1, (int64_t[]){ 4 }, 1));
        size_t before = reserved(ctx);
        check_ok(ebb_capture_begin(ctx));
        check_ok(ebb_empty(&held, ctx, EBB_U8, 1, (int64_t[]){ 64 << 20 }));
        check_fails(ebb_matmul(&bad, x, held), EBB_EDTYPE);
        check_ok(ebb_capture_end(NULL, ctx));
        ebb_drop(&held);
        ebb_memory_empty_cache(ctx);
        cr_assert(reserved(ctx) == before, "%zu, before %zu", reserved(ctx), before);
        check_ok(ebb_empty(&held, ctx, EBB_U8, 1, (int64_t[]){ 64 << 20 }));
        cr_assert(stub_counts_get().graphs == 0);
    }
}

/* A live graph's memory stays, however empty it looks; then it is like any other. */
Test(capture, memory_is_the_graphs_while_it_lives)
{
    stub_install((stub_options){ .seed = 1 });
    with_stub(ctx) {
        EBB_LOCAL(x);
        EBB_LOCAL(y);
        ebb_graph *graph = NULL;
        check_ok(ebb_full(&x, ctx, EBB_F32, 1, (int64_t[]){ 4 }, 1));
        size_t before = reserved(ctx);
        check_ok(ebb_capture_begin(ctx));
        check_ok(ebb_neg(&y, x));
        check_ok(ebb_capture_end(&graph, ctx));
        ebb_drop(&y);
        ebb_memory_empty_cache(ctx);
        cr_assert(reserved(ctx) > before);
        check_ok(ebb_neg(&y, x)); /* in the context's own memory */
        check_ok(ebb_graph_launch(graph));
        double sum = 0;
        check_ok(ebb_sum(&y, y, 0, NULL, false));
        check_ok(ebb_item(y, &sum));
        cr_assert(sum == -4);
        ebb_graph_free(graph);
        ebb_memory_empty_cache(ctx);
        cr_assert(reserved(ctx) == before);
    }
}

Test(capture, what_waits_is_refused_while_it_runs)
{
    stub_install((stub_options){ .seed = 1 });
    with_stub(ctx) {
        EBB_LOCAL(x);
        ebb_graph *graph = NULL;
        float values[4];
        check_fails(ebb_capture_end(&graph, ctx), EBB_ESTATE);
        check_ok(ebb_full(&x, ctx, EBB_F32, 1, (int64_t[]){ 4 }, 1));
        check_ok(ebb_capture_begin(ctx));
        check_fails(ebb_capture_begin(ctx), EBB_ESTATE);
        check_fails(ebb_read(x, values, sizeof values), EBB_ESTATE);
        check_message("captured");
        check_fails(ebb_write(x, values, sizeof values), EBB_ESTATE);
        check_ok(ebb_capture_end(NULL, ctx));
        check_ok(ebb_read(x, values, sizeof values));
        cr_assert(stub_counts_get().frees_in_capture == 0);
    }
    with_context(ctx) check_fails(ebb_capture_begin(ctx), EBB_EUNSUPPORTED);
}

Test(capture, a_dry_device_knows_its_memory)
{
    size_t real = 0, dry = 0;
    for (int i = 0; i < 2; i++) {
        ebb_context *ctx = NULL;
        stub_install((stub_options){ .seed = 2 });
        ebb_context_options o = { .struct_bytes = sizeof o, .device = i ? "dry:cuda:0" : "cuda", .threads = 2, .checks = -1 };
        check_ok(ebb_context_new(&ctx, &o));
        ebb_tensor *x = filled(ctx, 0.1, N), *w = filled(ctx, 0.2, N), *y = NULL;
        ebb_graph *graph = NULL;
        check_ok(ebb_capture_begin(ctx));
        check_ok(compute(&y, x, w));
        check_ok(ebb_capture_end(&graph, ctx));
        check_ok(ebb_graph_launch(graph));
        ebb_drop(&y);
        ebb_drop(&x);
        ebb_drop(&w);
        *(i ? &dry : &real) = reserved(ctx);
        ebb_graph_free(graph);
        ebb_context_free(ctx);
    }
    cr_assert(real == dry && real > 0);
    check_no_live_blocks();
}
