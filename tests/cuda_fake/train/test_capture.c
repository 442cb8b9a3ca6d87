/* Training steps captured as a CUDA graph and launched: the bits of the calls, memory of their own. */
#include <string.h>

#include <ebb/ebb.h>

#include "cuda_fake.h"
#include "device/plugin.h"
#include "support/support.h"

enum { N = 16, STEPS = 4 };

ebb__accel_entry ebb_accel_plugin;

static void install(unsigned seed)
{
    fake_options options = fake_get_options();
    options.deferred = true;
    options.seed = seed;
    fake_set_options(&options);
    ebb__accel_register(ebb_accel_plugin(EBB__ACCEL_ABI));
}

/* loss = mse of a linear layer with gelu and layernorm behind it; w and b learn. */
static ebb_status step(ebb_optim *optim, ebb_tensor *x, ebb_tensor *w, ebb_tensor *b, ebb_tensor *target)
{
    EBB_LOCAL(h);
    EBB_LOCAL(loss);
    EBB_TRY(ebb_linear(&h, x, w, b));
    EBB_TRY(ebb_gelu(&h, h, EBB_GELU_TANH));
    EBB_TRY(ebb_mse(&loss, h, target));
    EBB_TRY(ebb_backward(loss));
    EBB_TRY(ebb_optim_step(optim, 0.05));
    ebb_drop_grad(w);
    ebb_drop_grad(b);
    return EBB_OK;
}

static ebb_tensor *matrix(ebb_context *ctx, int ndim, double factor)
{
    float values[N * N];
    ebb_tensor *t = NULL;
    for (int i = 0; i < N * N; i++) values[i] = (float)(factor * ((i * 7) % 13 - 6));
    check_ok(ebb_full(&t, ctx, EBB_F32, ndim, (int64_t[]){ N, N }, 0));
    check_ok(ebb_write(t, values, (ndim == 2 ? N * N : N) * sizeof *values));
    return t;
}

static void train(ebb_context *ctx, float *out, bool captured)
{
    ebb_tensor *x = matrix(ctx, 2, 0.1), *w = matrix(ctx, 2, 0.05), *b = matrix(ctx, 1, 0.2), *y = matrix(ctx, 2, 0.3);
    ebb_named_tensor learned[] = { { "w", w }, { "b", b } };
    ebb_optim_options o = { .struct_bytes = sizeof o, .kind = EBB_SGD, .lr = 0.05, .momentum = 0.9 };
    ebb_optim *optim = NULL;
    ebb_graph *graph = NULL;
    check_ok(ebb_set_requires_grad(w, true));
    check_ok(ebb_set_requires_grad(b, true));
    check_ok(ebb_optim_new(&optim, ctx, learned, 2, &o));
    check_ok(step(optim, x, w, b, y));
    if (captured) {
        check_ok(ebb_capture_begin(ctx));
        check_ok(step(optim, x, w, b, y));
        check_ok(ebb_capture_end(&graph, ctx));
    }
    for (int i = 1; i < STEPS; i++) {
        EBB_LOCAL(noise); /* not over the graph's memory */
        check_ok(ebb_full(&noise, ctx, EBB_F32, 2, (int64_t[]){ N, N }, -9));
        check_ok(captured ? ebb_graph_launch(graph) : step(optim, x, w, b, y));
    }
    check_ok(ebb_read(w, out, N * N * sizeof *out));
    ebb_graph_free(graph);
    ebb_optim_free(optim);
    ebb_drop(&x);
    ebb_drop(&w);
    ebb_drop(&b);
    ebb_drop(&y);
}

/* In a context of its own; afterwards nothing is alive. */
static void run(unsigned seed, float *out, bool captured)
{
    ebb_context *ctx;
    ebb_context_options o = { .struct_bytes = sizeof o, .device = "cuda", .threads = 2, .seed = 1 };
    install(seed);
    check_ok(ebb_context_new(&ctx, &o));
    train(ctx, out, captured);
    ebb_context_free(ctx);
    fake_counts counts = fake_get_counts();
    cr_assert(fake_alive(&counts) == 0, "%ld alive", fake_alive(&counts));
}

Test(cuda_capture, launches_train_as_calls_do)
{
    static float calls[N * N], launches[N * N];
    for (unsigned seed = 1; seed <= 4; seed++) {
        run(seed, calls, false);
        run(seed + 10, launches, true);
        cr_assert(memcmp(calls, launches, sizeof calls) == 0, "seed %u: %g, not %g", seed, (double)launches[0],
                  (double)calls[0]);
    }
    cr_assert(fake_get_counts().graph_launches == 4 * (STEPS - 1));
    check_no_live_blocks();
}
