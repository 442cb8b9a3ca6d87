/* Faults that users of other engines met, where they concern several folders at once.  (Most of the
 * field cases are beside the tests of the part that they touch.) */
#include <math.h>
#include <string.h>

#include <ebb/ebb.h>

#include "support/support.h"

#define DIMS(...) (int)(sizeof((int64_t[]){__VA_ARGS__}) / sizeof(int64_t)), (int64_t[]){__VA_ARGS__}
#define NEAR(t, tolerance, ...)                                                              \
    check_near(t, (int)(sizeof((double[]){__VA_ARGS__}) / sizeof(double)), (double[]){__VA_ARGS__}, tolerance)

static void check_near(ebb_tensor *t, int n, const double *want, double tolerance)
{
    cr_assert_not_null(t);
    cr_assert_eq(ebb_tensor_elems(t), n);
    EBB_LOCAL(wide);
    double got[32];
    check_ok(ebb_detach(&wide, t));
    check_ok(ebb_cast(&wide, wide, EBB_F64));
    check_ok(ebb_read(wide, got, sizeof(double) * (size_t)n));
    for (int i = 0; i < n; i++)
        cr_assert(fabs(got[i] - want[i]) <= tolerance, "element %d is %.9g, not %.9g", i, got[i], want[i]);
}

static void leaf(ebb_tensor **out, ebb_context *ctx, ebb_dtype dtype, int ndim, const int64_t *dims,
                 const double *data)
{
    check_ok(ebb_from_data(out, ctx, EBB_F64, ndim, dims, data));
    check_ok(ebb_cast(out, *out, dtype));
    check_ok(ebb_set_requires_grad(*out, true));
}

static void segment_begin(ebb_context *ctx, ebb_saver (*policy)(void *, const ebb_op *, const ebb_call *))
{
    ebb_checkpoint_options o = { .struct_bytes = sizeof(o), .policy = policy };
    check_ok(ebb_segment_begin(ctx, &o));
}

static void backward_of_sum(ebb_tensor *y)
{
    EBB_LOCAL(loss);
    check_ok(ebb_sum(&loss, y, 0, NULL, false));
    check_ok(ebb_backward(loss));
}

/* ---- B05: a segment returns a view that was changed in place --------------------------------- */

Test(field_cases, b05_a_view_is_not_changed_in_place_and_the_other_form_keeps_its_gradient)
{
    with_context(ctx) {
        for (int segment = 0; segment < 2; segment++) {
            EBB_LOCAL(x);
            EBB_LOCAL(p);
            EBB_LOCAL(t);
            EBB_LOCAL(v);
            leaf(&x, ctx, EBB_F64, DIMS(5), (double[5]){ 0 });
            leaf(&p, ctx, EBB_F64, 0, NULL, (double[]){ 1 });
            if (segment) segment_begin(ctx, NULL);
            check_ok(ebb_add(&t, x, p));
            check_ok(ebb_narrow(&v, t, 0, 0, 5));
            check_fails(ebb_fill(v, 0), EBB_ESTATE);
            check_message("ebb_full"); /* what to use in its place */
            ebb_drop(&t);
            check_ok(ebb_relu(&v, v));
            if (segment) ebb_segment_end(ctx);
            backward_of_sum(v);
            NEAR(ebb_grad(p), 0, 5);
            NEAR(ebb_grad(x), 0, 1, 1, 1, 1, 1);
        }
    }
}

static ebb_status norm_relu(void *user, ebb_tensor **out, ebb_tensor *x)
{
    ebb_tensor **p = user;
    EBB_LOCAL(h);
    EBB_TRY(ebb_layernorm(&h, x, p[0], p[1], 1e-5));
    EBB_TRY(ebb_reshape(&h, h, DIMS(5)));
    return ebb_relu(out, h);
}

Test(field_cases, b05_layernorm_and_relu_in_a_segment_train_gain_and_bias)
{
    with_context(ctx) {
        for (int segment = 0; segment < 2; segment++) {
            EBB_LOCAL(x);
            EBB_LOCAL(gain);
            EBB_LOCAL(bias);
            EBB_LOCAL(weight);
            EBB_LOCAL(y);
            EBB_LOCAL(sum);
            leaf(&x, ctx, EBB_F64, DIMS(1, 5), (double[]){ 1, 2, 3, 4, 6 });
            leaf(&gain, ctx, EBB_F64, DIMS(5), (double[]){ 1, 1, 1, 1, 1 });
            leaf(&bias, ctx, EBB_F64, DIMS(5), (double[5]){ 0 });
            check_ok(ebb_from_data(&weight, ctx, EBB_F64, DIMS(5), (double[]){ 1, 2, 3, 4, 5 }));
            ebb_tensor *params[] = { gain, bias };
            if (segment) check_ok(ebb_checkpoint(&y, x, norm_relu, params, NULL));
            else check_ok(norm_relu(params, &y, x));
            check_ok(ebb_mul(&y, y, weight));
            check_ok(ebb_sum(&sum, y, 0, NULL, false));
            NEAR(sum, 1e-6, 9.997280);
            check_ok(ebb_backward(sum));
            NEAR(ebb_grad(x), 1e-6, .439850, -.235639, -.911129, .738330, -.031412);
            NEAR(ebb_grad(gain), 1e-6, 0, 0, 0, 1.859959, 8.137321);
            NEAR(ebb_grad(bias), 1e-6, 0, 0, 0, 4, 5);
        }
    }
}

/* ---- B08: what a policy keeps is then written over ------------------------------------------- */

static ebb_saver keep_matmul(void *user, const ebb_op *op, const ebb_call *call)
{
    (void)user, (void)call;
    return strcmp(op->name, "matmul") == 0 ? EBB_SAVER_KEEP : EBB_SAVER_RECOMPUTE;
}

/* elu(y) = relu(y) + exp(-relu(-y)) - 1, by rebinding: where nothing is recorded an op may write over
 * its input, and must not here. */
static void elu(ebb_tensor **y)
{
    EBB_LOCAL(positive);
    EBB_LOCAL(one);
    check_ok(ebb_relu(&positive, *y));
    check_ok(ebb_full(&one, ebb_tensor_context(*y), EBB_F64, 0, NULL, 1));
    check_ok(ebb_neg(y, *y));
    check_ok(ebb_relu(y, *y));
    check_ok(ebb_neg(y, *y));
    check_ok(ebb_exp(y, *y));
    check_ok(ebb_add(y, *y, positive));
    check_ok(ebb_sub(y, *y, one));
}

Test(field_cases, b08_a_kept_output_is_not_written_over)
{
    with_context(ctx) {
        for (int segment = 0; segment < 3; segment++) {
            EBB_LOCAL(x);
            EBB_LOCAL(y);
            EBB_LOCAL(zeros);
            EBB_LOCAL(loss);
            leaf(&x, ctx, EBB_F64, DIMS(2, 2), (double[]){ 0.5, -1, 1, 0.25 });
            check_ok(ebb_zeros(&zeros, ctx, EBB_F64, DIMS(2, 2)));
            if (segment) segment_begin(ctx, segment == 2 ? keep_matmul : NULL);
            check_ok(ebb_matmul(&y, x, x));
            check_fails(ebb_copy_into(y, zeros), EBB_ESTATE);
            check_message("matmul");
            elu(&y);
            check_ok(ebb_sigmoid(&y, y));
            if (segment) ebb_segment_end(ctx);
            check_ok(ebb_sum(&loss, y, 0, NULL, false));
            NEAR(loss, 1e-6, 1.773742);
            check_ok(ebb_backward(loss));
            NEAR(ebb_grad(x), 1e-6, 0.217895, 0.282292, -0.036191, 0.152342);
        }
    }
}

/* ---- B17: a weight cast to half outside a segment and inside --------------------------------- */

static ebb_status half_layer(void *user, ebb_tensor **out, ebb_tensor *x)
{
    EBB_LOCAL(w);
    EBB_LOCAL(y);
    EBB_TRY(ebb_cast(&w, user, EBB_F16));
    EBB_TRY(ebb_matmul(&y, x, w));
    return ebb_relu(out, y);
}

Test(field_cases, b17_a_weight_cast_to_half_inside_and_outside_a_segment)
{
    with_context(ctx) {
        for (int segment = 0; segment < 2; segment++) {
            EBB_LOCAL(w);
            EBB_LOCAL(w16);
            EBB_LOCAL(x);
            EBB_LOCAL(y);
            leaf(&w, ctx, EBB_F32, DIMS(2, 2), (double[]){ 0.5, 0.25, 2, 1 });
            check_ok(ebb_full(&x, ctx, EBB_F16, DIMS(1, 2), 1));
            check_ok(ebb_cast(&w16, w, EBB_F16));
            check_ok(ebb_matmul(&y, x, w16));
            NEAR(y, 0, 2.5, 1.25);
            if (segment) check_ok(ebb_checkpoint(&y, y, half_layer, w, NULL));
            else check_ok(half_layer(w, &y, y));
            NEAR(y, 0, 3.75, 1.875);
            EBB_LOCAL(loss);
            check_ok(ebb_sum(&loss, y, 0, NULL, false));
            NEAR(loss, 0, 5.625);
            check_ok(ebb_backward(loss));
            NEAR(ebb_grad(w), 0, 3.25, 5.5, 2.0, 4.25);
            cr_assert_eq(ebb_tensor_dtype(ebb_grad(w)), EBB_F32);
        }
    }
}

static ebb_status layer_in_half(void *user, ebb_tensor **out, ebb_tensor *x)
{
    EBB_TRY(ebb_matmul(out, x, user));
    cr_assert_eq(ebb_tensor_dtype(*out), EBB_F16);
    return ebb_relu(out, *out);
}

/* x, w and the loss are f32; each is cast at its use. */
static void forward_in_half(ebb_tensor **loss, ebb_tensor *x, ebb_tensor *w, bool segment)
{
    EBB_WITH_AUTOCAST(EBB_F16);
    EBB_LOCAL(y);
    check_ok(ebb_matmul(&y, x, w));
    NEAR(y, 0, 2.5, 1.25);
    if (segment) check_ok(ebb_checkpoint(&y, y, layer_in_half, w, NULL));
    else check_ok(layer_in_half(w, &y, y));
    NEAR(y, 0, 3.75, 1.875);
    check_ok(ebb_sum(loss, y, 0, NULL, false));
    cr_assert_eq(ebb_tensor_dtype(*loss), EBB_F32);
}

Test(field_cases, b17_a_recompute_is_in_the_autocast_of_its_forward)
{
    with_context(ctx) {
        for (int how = 0; how < 4; how++) {
            bool segment = how & 1, inside = how & 2;
            EBB_LOCAL(w);
            EBB_LOCAL(x);
            EBB_LOCAL(loss);
            ebb_recompute_stats stats;
            leaf(&w, ctx, EBB_F32, DIMS(2, 2), (double[]){ 0.5, 0.25, 2, 1 });
            check_ok(ebb_full(&x, ctx, EBB_F32, DIMS(1, 2), 1));
            forward_in_half(&loss, x, w, segment);
            NEAR(loss, 0, 5.625);
            cr_assert_eq(ebb_autocast(), EBB_F32);
            ebb_recompute_stats_get(ctx, &stats);
            uint64_t before = stats.recomputed_ops;
            EBB_WITH_AUTOCAST(inside ? EBB_BF16 : EBB_F32); /* another one than forward's, or none */
            check_ok(ebb_backward(loss));
            ebb_recompute_stats_get(ctx, &stats);
            cr_assert_eq(stats.recomputed_ops > before, segment);
            NEAR(ebb_grad(w), 0, 3.25, 5.5, 2.0, 4.25);
            cr_assert_eq(ebb_tensor_dtype(ebb_grad(w)), EBB_F32);
        }
    }
}

/* ---- B21: memory runs out in the middle of a backward ---------------------------------------- */

enum { LAYERS = 6, ROWS = 64, WIDE = 512, LIMIT = 64 << 20 }; /* gradients outweigh activations */

typedef struct net {
    ebb_tensor *w[LAYERS], *x;
    ebb_optim *optim;
    bool segments;
} net;

static void net_open(net *n, ebb_context *ctx, bool segments)
{
    static const char *const names[LAYERS] = { "a", "b", "c", "d", "e", "f" };
    ebb_named_tensor params[LAYERS];
    ebb_optim_options o = { .struct_bytes = sizeof(o) };
    *n = (net){ .segments = segments };
    ebb_seed(ctx, 2);
    check_ok(ebb_normal(&n->x, ctx, EBB_F32, DIMS(ROWS, WIDE), 0, 1));
    for (int i = 0; i < LAYERS; i++) {
        check_ok(ebb_normal(&n->w[i], ctx, EBB_F32, DIMS(WIDE, WIDE), 0, 0.05));
        check_ok(ebb_set_requires_grad(n->w[i], true));
        ebb_tensor_set_category(n->w[i], EBB_CAT_PARAMETER);
        params[i] = (ebb_named_tensor){ names[i], n->w[i] };
    }
    check_ok(ebb_optim_options_parse(&o, "{\"type\":\"adamw\",\"lr\":1e-3}", "optimizer"));
    check_ok(ebb_optim_new(&n->optim, ctx, params, LAYERS, &o));
}

static void net_close(net *n)
{
    ebb_optim_free(n->optim);
    for (int i = 0; i < LAYERS; i++) ebb_drop(&n->w[i]);
    ebb_drop(&n->x);
}

static ebb_status layer(void *user, ebb_tensor **out, ebb_tensor *x)
{
    EBB_LOCAL(h);
    EBB_TRY(ebb_linear(&h, x, user, NULL));
    EBB_TRY(ebb_tanh(&h, h));
    return ebb_mul(out, h, h);
}

static ebb_status net_forward(ebb_tensor **loss, net *n)
{
    EBB_LOCAL(h);
    ebb_bind(&h, n->x);
    for (int i = 0; i < LAYERS; i++) {
        if (n->segments) EBB_TRY(ebb_checkpoint(&h, h, layer, n->w[i], NULL));
        else EBB_TRY(layer(n->w[i], &h, h));
    }
    return ebb_sum(loss, h, 0, NULL, false);
}

/* One step; the allocated peak of it. */
static size_t net_step(net *n, ebb_context *ctx)
{
    EBB_LOCAL(loss);
    ebb_memory_stats m;
    ebb_memory_reset_peak(ctx);
    check_ok(net_forward(&loss, n));
    check_ok(ebb_backward(loss));
    check_ok(ebb_optim_step(n->optim, 1e-3));
    ebb_optim_drop_grads(n->optim);
    ebb_drop(&loss);
    ebb_memory_stats_get(ctx, &m);
    return m.peak_allocated_bytes;
}

/* With `ballast_bytes` of the limit taken away.  True: forward passed and backward ran out. */
static bool fails_in_backward(net *n, ebb_context *ctx, size_t ballast_bytes)
{
    EBB_LOCAL(loss);
    EBB_LOCAL(ballast);
    ebb_memory_stats before, after;
    ebb_memory_stats_get(ctx, &before);
    if (ebb_zeros(&ballast, ctx, EBB_F32, DIMS((int64_t)(ballast_bytes / 4))) != EBB_OK) return false;
    if (net_forward(&loss, n) != EBB_OK) return false;
    ebb_status st = ebb_backward(loss);
    if (st == EBB_OK) {
        ebb_optim_drop_grads(n->optim);
        return false;
    }
    cr_assert_eq(st, EBB_ENOMEM);
    for (int i = 0; i < LAYERS; i++) cr_assert_null(ebb_grad(n->w[i]));
    check_fails(ebb_optim_step(n->optim, 1e-3), EBB_ESTATE);
    check_fails(ebb_backward(loss), EBB_ESTATE);
    check_message("released");
    ebb_drop(&loss);
    ebb_drop(&ballast);
    ebb_gradients_reset(ctx);
    ebb_memory_stats_get(ctx, &after);
    cr_assert_eq(after.allocated_bytes, before.allocated_bytes, "parameters, optimizer, input");
    cr_assert_eq(after.by_category[EBB_CAT_ACTIVATION] + after.by_category[EBB_CAT_RECOMPUTED] +
                 after.by_category[EBB_CAT_GRADIENT], 0);
    return true;
}

Test(field_cases, b21_after_running_out_in_backward_the_next_steps_peak_is_an_undisturbed_ones)
{
    for (int segments = 0; segments < 2; segments++) {
        size_t undisturbed = 0;
        with_options(ctx, ((ebb_context_options){ .memory_limit_bytes = LIMIT })) {
            net n;
            net_open(&n, ctx, segments);
            for (int step = 1; step <= 3; step++) undisturbed = net_step(&n, ctx);
            net_close(&n);
        }
        int n_failed = 0;
        with_options(ctx, ((ebb_context_options){ .memory_limit_bytes = LIMIT })) {
            net n;
            net_open(&n, ctx, segments);
            (void)net_step(&n, ctx);
            for (size_t mib = 46; mib >= 26; mib--) n_failed += fails_in_backward(&n, ctx, mib << 20);
            cr_assert_eq(net_step(&n, ctx), undisturbed);
            net_close(&n);
        }
        cr_assert_gt(n_failed, 0, "no size of the ballast made backward run out");
    }
}

/* ---- B24: a small view keeps its base -------------------------------------------------------- */

Test(field_cases, b24_a_saved_view_is_charged_with_the_base_it_keeps)
{
    with_context(ctx) {
        EBB_LOCAL(big);
        EBB_LOCAL(v);
        EBB_LOCAL(w);
        EBB_LOCAL(y);
        ebb_memory_stats m;
        check_ok(ebb_zeros(&big, ctx, EBB_F32, DIMS(10000, 8)));
        check_ok(ebb_narrow(&v, big, 0, 0, 10));
        check_ok(ebb_full(&w, ctx, EBB_F32, DIMS(10, 8), 2));
        check_ok(ebb_set_requires_grad(w, true));
        check_ok(ebb_mul(&y, v, w));
        ebb_drop(&big);
        ebb_drop(&v);
        ebb_memory_stats_get(ctx, &m);
        cr_assert_eq(ebb_saved_bytes(ctx), 320000);
        cr_assert(m.by_category[EBB_CAT_ACTIVATION] >= 320000, "charged with %zu",
                  m.by_category[EBB_CAT_ACTIVATION]);
        backward_of_sum(y);
        ebb_memory_stats_get(ctx, &m);
        cr_assert_eq(m.by_category[EBB_CAT_ACTIVATION], 0, "backward let the base go");
        cr_assert_lt(m.allocated_bytes, 320000);
    }
}

/* ---- B28: the mean over a group's targets, not the mean of means ----------------------------- */

/* Binds *loss to w times the cross-entropy, over `normalizer`, of rows whose losses are `losses`; a
 * loss of 0 stands for a label that is ignored.  With logits [0, z] and target 0 the loss is
 * log(1 + e^z). */
static void losses_of(ebb_tensor **loss, ebb_tensor *w, int n, const double *losses, double normalizer)
{
    EBB_LOCAL(logits);
    EBB_LOCAL(targets);
    double z[8][2] = { { 0 } };
    int32_t t[8];
    for (int i = 0; i < n; i++) {
        t[i] = losses[i] > 0 ? 0 : EBB_IGNORE;
        if (losses[i] > 0) z[i][1] = log(expm1(losses[i]));
    }
    ebb_context *ctx = ebb_tensor_context(w);
    check_ok(ebb_from_data(&logits, ctx, EBB_F64, DIMS(n, 2), z));
    check_ok(ebb_from_data(&targets, ctx, EBB_I32, DIMS(n), t));
    check_ok(ebb_cross_entropy(loss, logits, targets, normalizer));
    check_ok(ebb_mul(loss, *loss, w));
}

Test(field_cases, b28_accumulation_divides_by_all_targets_that_count)
{
    with_context(ctx) {
        EBB_LOCAL(w);
        EBB_LOCAL(loss);
        leaf(&w, ctx, EBB_F64, 0, NULL, (double[]){ 1 });
        losses_of(&loss, w, 6, (double[]){ 1, 2, 3, 6, 0, 0 }, 0);
        NEAR(loss, 1e-12, 3);
        check_ok(ebb_backward(loss));
        NEAR(ebb_grad(w), 1e-12, 3);
        ebb_drop_grad(w);
        losses_of(&loss, w, 3, (double[]){ 1, 2, 3 }, 4);
        check_ok(ebb_backward(loss));
        losses_of(&loss, w, 3, (double[]){ 6, 0, 0 }, 4);
        check_ok(ebb_backward(loss));
        NEAR(ebb_grad(w), 1e-12, 3);
    }
}

/* ---- B74: heads as wide as the config says --------------------------------------------------- */

Test(field_cases, b74_a_model_of_12_billion_parameters_with_heads_of_128_is_made_dry)
{
    with_device(ctx, "dry:cpu") {
        ebb_model *model = NULL;
        check_ok(ebb_model_new(&model, ctx,
            "{\"type\":\"gpt\",\"layers\":40,\"heads\":32,\"kv_heads\":8,\"head_dim\":128,\"width\":5120,"
            "\"ffn_width\":14336,\"context\":1024,\"vocab\":131072,\"norm\":\"rmsnorm\","
            "\"norm_eps\":1e-5,\"activation\":\"swiglu\",\"position\":\"rope\","
            "\"rope_base\":1000000,\"bias\":false,"
            "\"tie_embeddings\":false}", EBB_F32, 1));
        cr_assert_eq(ebb_model_info_get(model).parameters, 12247782400);
        const ebb_named_tensor *params = NULL;
        int n = ebb_model_params(model, &params), qkv = 0;
        int64_t elems = 0;
        for (int i = 0; i < n; i++) {
            elems += ebb_tensor_elems(params[i].tensor);
            if (strcmp(params[i].name, "blocks.39.attn.qkv.weight") == 0) {
                qkv++; /* queries 4096 rows, keys and values 1024 each */
                cr_assert_eq(ebb_tensor_dim(params[i].tensor, 0), 4096 + 2 * 1024);
                cr_assert_eq(ebb_tensor_dim(params[i].tensor, 1), 5120);
            }
        }
        cr_assert_eq(elems, 12247782400);
        cr_assert_eq(qkv, 1);
        ebb_memory_stats m;
        ebb_memory_stats_get(ctx, &m);
        cr_assert_geq(m.by_category[EBB_CAT_PARAMETER], 12247782400u * 4);
        ebb_model_free(model);
    }
}
