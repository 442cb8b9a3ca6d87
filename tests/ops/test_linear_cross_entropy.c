/* The loss in chunks against the two ops that it stands for. */
#include <math.h>
#include <string.h>

#include <ebb/autograd.h>

#include "support/support.h"

enum { ROWS = 45, WIDTH = 12, CLASSES = 300 };

typedef struct outcome {
    double loss;
    float d_inputs[ROWS * WIDTH], d_weight[CLASSES * WIDTH];
    size_t peak_bytes; /* of backward */
} outcome;

static size_t peak_since_reset(ebb_context *ctx)
{
    ebb_memory_stats m;
    ebb_memory_stats_get(ctx, &m);
    return m.peak_allocated_bytes;
}

/* chunks 0: the two ops. */
static void run(outcome *o, ebb_context *ctx, int64_t chunks, double normalizer)
{
    EBB_LOCAL(x);
    EBB_LOCAL(weight);
    EBB_LOCAL(targets);
    EBB_LOCAL(h);
    EBB_LOCAL(loss);
    int32_t index[ROWS];
    for (int i = 0; i < ROWS; i++) index[i] = i % 7 == 3 ? EBB_IGNORE : i * 37 % CLASSES;
    ebb_rng_set_offset(ctx, 0);
    check_ok(ebb_normal(&x, ctx, EBB_F32, 2, (int64_t[]){ ROWS, WIDTH }, 0, 1));
    check_ok(ebb_normal(&weight, ctx, EBB_F32, 2, (int64_t[]){ CLASSES, WIDTH }, 0, 0.3));
    check_ok(ebb_from_data(&targets, ctx, EBB_I32, 1, (int64_t[]){ ROWS }, index));
    check_ok(ebb_set_requires_grad(x, true));
    check_ok(ebb_set_requires_grad(weight, true));
    check_ok(ebb_scale(&h, x, 1.5));
    if (chunks) {
        check_ok(ebb_linear_cross_entropy(&loss, h, weight, targets, normalizer, chunks));
    } else {
        EBB_LOCAL(logits);
        check_ok(ebb_linear(&logits, h, weight, NULL));
        check_ok(ebb_cross_entropy(&loss, logits, targets, normalizer));
    }
    ebb_drop(&h);
    ebb_memory_reset_peak(ctx);
    check_ok(ebb_backward(loss));
    o->peak_bytes = peak_since_reset(ctx);
    check_ok(ebb_item(loss, &o->loss));
    check_ok(ebb_read(ebb_grad(x), o->d_inputs, sizeof o->d_inputs));
    check_ok(ebb_read(ebb_grad(weight), o->d_weight, sizeof o->d_weight));
}

static double distance(const float *a, const float *b, int n)
{
    double error = 0, norm = 0;
    for (int i = 0; i < n; i++) {
        error += ((double)a[i] - (double)b[i]) * ((double)a[i] - (double)b[i]);
        norm += (double)b[i] * (double)b[i];
    }
    return sqrt(error / norm);
}

static void check_close(const outcome *a, const outcome *b, double tolerance)
{
    cr_assert(fabs(a->loss - b->loss) <= tolerance * b->loss, "%.9g, not %.9g", a->loss, b->loss);
    cr_assert(distance(a->d_inputs, b->d_inputs, ROWS * WIDTH) <= tolerance);
    cr_assert(distance(a->d_weight, b->d_weight, CLASSES * WIDTH) <= tolerance);
}

Test(linear_cross_entropy, in_one_chunk_gives_the_bits_of_the_two_ops)
{
    static outcome two, one;
    for (int normalizer = 0; normalizer <= 50; normalizer += 50) {
        with_options(ctx, ((ebb_context_options){ .threads = 2 })) {
            run(&two, ctx, 0, normalizer);
            run(&one, ctx, 1, normalizer);
        }
        cr_assert(one.loss == two.loss);
        cr_assert(memcmp(one.d_inputs, two.d_inputs, sizeof one.d_inputs) == 0);
        cr_assert(memcmp(one.d_weight, two.d_weight, sizeof one.d_weight) == 0);
    }
}

Test(linear_cross_entropy, in_chunks_agrees_to_rounding_and_repeats_bit_by_bit)
{
    static outcome two, some, again;
    static const int chunks[] = { 2, 4, 7, ROWS, 1000 };
    with_options(ctx, ((ebb_context_options){ .threads = 2 })) {
        run(&two, ctx, 0, 0);
        for (size_t k = 0; k < sizeof(chunks) / sizeof(chunks[0]); k++) {
            run(&some, ctx, chunks[k], 0);
            run(&again, ctx, chunks[k], 0);
            check_close(&some, &two, 1e-6);
            cr_assert(some.loss == again.loss && memcmp(some.d_weight, again.d_weight, sizeof some.d_weight) == 0);
        }
    }
}

/* Of hidden's gradient nothing is allocated either: it is written over hidden. */
Test(linear_cross_entropy, backward_needs_one_chunk_of_logits)
{
    static outcome one, nine;
    with_options(ctx, ((ebb_context_options){ .threads = 1 })) {
        run(&one, ctx, 1, 0);
        run(&nine, ctx, 9, 0);
    }
    size_t logits = ROWS * CLASSES * sizeof(float);
    cr_assert(one.peak_bytes - nine.peak_bytes >= logits * 8 / 9 - 1024, "%zu and %zu", one.peak_bytes, nine.peak_bytes);
    size_t held = (2 * CLASSES + 3 * ROWS) * WIDTH * sizeof(float); /* weight and x, their gradients, hidden */
    cr_assert(nine.peak_bytes <= held + logits / 9 + 6 * 512, "%zu, held %zu", nine.peak_bytes, held);
}

Test(linear_cross_entropy, refuses_a_target_that_is_no_class)
{
    with_context(ctx) {
        EBB_LOCAL(x);
        EBB_LOCAL(weight);
        EBB_LOCAL(targets);
        EBB_LOCAL(loss);
        check_ok(ebb_zeros(&x, ctx, EBB_F32, 2, (int64_t[]){ 3, 4 }));
        check_ok(ebb_zeros(&weight, ctx, EBB_F32, 2, (int64_t[]){ 5, 4 }));
        check_ok(ebb_from_data(&targets, ctx, EBB_I32, 1, (int64_t[]){ 3 }, (int32_t[]){ 0, 4, 5 }));
        check_fails(ebb_linear_cross_entropy(&loss, x, weight, targets, 0, 2), EBB_EINVAL);
        check_message("linear_cross_entropy: target 5 of row 2");
    }
}
