/* Savers that pack: offload, rounding ones, the user's own. */
#include <math.h>
#include <string.h>

#include <ebb/checkpoint.h>

#include "support/support.h"

enum { N = 1000, BYTES = 8 * N, ROUNDED = 8192 };

static void vector(ebb_tensor **out, ebb_context *ctx, double from)
{
    double values[N];
    for (int i = 0; i < N; i++) values[i] = from + (i % 37) * 0.01 - (i % 11) * 0.03;
    check_ok(ebb_from_data(out, ctx, EBB_F64, 1, (int64_t[]){ N }, values));
    check_ok(ebb_set_requires_grad(*out, true));
}

static ebb_recompute_stats stats_of(const ebb_context *ctx)
{
    ebb_recompute_stats stats;
    ebb_recompute_stats_get(ctx, &stats);
    return stats;
}

static size_t activations(const ebb_context *ctx)
{
    ebb_memory_stats m;
    ebb_memory_stats_get(ctx, &m);
    return m.by_category[EBB_CAT_ACTIVATION];
}

static size_t host_bytes(const ebb_context *ctx)
{
    ebb_memory_stats m;
    ebb_host_memory_stats_get(ctx, &m);
    return m.allocated_bytes;
}

/* Binds *loss to the sum of `depth` tanh over x. */
static void tanh_chain(ebb_tensor **loss, ebb_tensor *x, int depth)
{
    EBB_LOCAL(h);
    ebb_bind(&h, x);
    for (int i = 0; i < depth; i++) check_ok(ebb_tanh(&h, h));
    check_ok(ebb_sum(loss, h, 0, NULL, false));
}

/* The gradient of x through four tanh, with what is said of tanh. */
static void gradient(double out[N], ebb_context *ctx, ebb_saver saver, const ebb_packer *packer)
{
    EBB_LOCAL(x);
    EBB_LOCAL(loss);
    vector(&x, ctx, 0.2);
    check_ok(ebb_op_saver(ctx, "tanh", saver, packer));
    tanh_chain(&loss, x, 4);
    check_ok(ebb_backward(loss));
    check_ok(ebb_read(ebb_grad(x), out, BYTES));
    cr_assert_eq(activations(ctx), 0);
    cr_assert_eq(host_bytes(ctx), 0);
}

/* ---- offload ------------------------------------------------------------------------------- */

Test(offload, keeps_at_most_the_last_one_on_the_device_and_fetches_the_rest)
{
    with_context(ctx) {
        EBB_LOCAL(x);
        EBB_LOCAL(loss);
        vector(&x, ctx, 0.2);
        check_ok(ebb_op_saver(ctx, "tanh", EBB_SAVER_OFFLOAD, NULL));
        tanh_chain(&loss, x, 10);
        cr_assert_eq(ebb_saved_bytes(ctx), 0, "slots hold packs");
        cr_assert_eq(activations(ctx), ROUNDED, "the last copy may be under way");
        cr_assert_eq(host_bytes(ctx), 10 * ROUNDED);
        cr_assert_eq(stats_of(ctx).offloaded_bytes, 10 * BYTES);
        ebb_memory_reset_peak(ctx);
        check_ok(ebb_backward(loss));
        ebb_memory_stats m;
        ebb_memory_stats_get(ctx, &m);
        cr_assert_leq(m.by_category_at_peak[EBB_CAT_ACTIVATION], 3 * ROUNDED, "one open, one on its way");
        cr_assert_eq(stats_of(ctx).fetched_bytes, 9 * BYTES, "the last one had not left");
        cr_assert_eq(host_bytes(ctx), 0);
        check_ok(ebb_op_saver(ctx, "tanh", EBB_SAVER_KEEP, NULL));
    }
}

Test(offload, changes_no_bit)
{
    with_context(ctx) {
        double plain[N], offloaded[N];
        gradient(plain, ctx, EBB_SAVER_KEEP, NULL);
        gradient(offloaded, ctx, EBB_SAVER_OFFLOAD, NULL);
        cr_assert_arr_eq(plain, offloaded, BYTES);
    }
}

Test(offload, a_storage_that_two_nodes_save_is_copied_once)
{
    with_context(ctx) {
        EBB_LOCAL(x);
        EBB_LOCAL(h);
        EBB_LOCAL(loss);
        vector(&x, ctx, 0.3);
        check_ok(ebb_op_saver(ctx, "sigmoid", EBB_SAVER_OFFLOAD, NULL));
        check_ok(ebb_sigmoid(&h, x));
        check_ok(ebb_mul(&h, h, h));
        check_ok(ebb_sum(&loss, h, 0, NULL, false));
        cr_assert_eq(stats_of(ctx).offloaded_bytes, BYTES, "saved by sigmoid, and twice by mul");
        check_ok(ebb_backward(loss));
    }
}

Test(offload, a_graph_that_is_retained_goes_back_to_the_host_after_backward)
{
    with_context(ctx) {
        EBB_LOCAL(x);
        EBB_LOCAL(loss);
        double once[N], twice[N];
        ebb_backward_options retain = { .struct_bytes = sizeof retain, .retain_graph = true };
        vector(&x, ctx, 0.2);
        check_ok(ebb_op_saver(ctx, "*", EBB_SAVER_OFFLOAD, NULL));
        tanh_chain(&loss, x, 6);
        check_ok(ebb_backward_ex(&loss, 1, &retain));
        check_ok(ebb_read(ebb_grad(x), once, BYTES));
        cr_assert_leq(activations(ctx), ROUNDED);
        cr_assert_geq(host_bytes(ctx), 6 * ROUNDED);
        check_ok(ebb_backward(loss));
        check_ok(ebb_read(ebb_grad(x), twice, BYTES));
        for (int i = 0; i < N; i++) cr_assert_eq(twice[i], 2 * once[i]);
    }
}

Test(offload, what_a_handle_holds_is_not_fetched_again)
{
    with_context(ctx) {
        EBB_LOCAL(x);
        EBB_LOCAL(h);
        EBB_LOCAL(y);
        vector(&x, ctx, 0.2);
        check_ok(ebb_op_saver(ctx, "tanh", EBB_SAVER_OFFLOAD, NULL));
        check_ok(ebb_tanh(&h, x));
        check_ok(ebb_tanh(&y, h));
        check_ok(ebb_sum(&y, y, 0, NULL, false));
        check_ok(ebb_backward(y));
        cr_assert_eq(stats_of(ctx).fetched_bytes, 0);
    }
}

/* h has no history, so it may be changed: the bytes that were saved are those of before. */
Test(offload, a_change_in_place_waits_for_the_copy_and_backward_sees_the_bytes_that_were_saved)
{
    with_context(ctx) {
        EBB_LOCAL(x);
        EBB_LOCAL(h);
        EBB_LOCAL(w);
        EBB_LOCAL(y);
        check_ok(ebb_full(&x, ctx, EBB_F64, 1, (int64_t[]){ N }, 2));
        vector(&w, ctx, 1);
        check_ok(ebb_op_saver(ctx, "scale", EBB_SAVER_OFFLOAD, NULL));
        check_ok(ebb_scale(&h, x, 3));
        check_ok(ebb_mul(&y, h, w));
        check_ok(ebb_sum(&y, y, 0, NULL, false));
        check_ok(ebb_fill(h, -1));
        check_ok(ebb_backward(y));
        double got[N];
        check_ok(ebb_read(ebb_grad(w), got, sizeof got));
        for (int i = 0; i < N; i++) cr_assert_eq(got[i], 6);
    }
}

Test(offload, the_host_pool_has_a_limit_of_its_own)
{
    with_options(ctx, ((ebb_context_options){ .host_limit_bytes = 2 << 20 })) {
        EBB_LOCAL(x);
        EBB_LOCAL(h);
        check_ok(ebb_full(&x, ctx, EBB_F32, 1, (int64_t[]){ 300000 }, 0.5));
        check_ok(ebb_set_requires_grad(x, true));
        check_ok(ebb_op_saver(ctx, "tanh", EBB_SAVER_OFFLOAD, NULL));
        check_fails(ebb_tanh(&h, x), EBB_ENOMEM);
        check_message("limit");
        cr_assert_null(h);
        cr_assert_eq(ebb_live_nodes(ctx), 0);
    }
}

Test(offload, a_graph_dropped_before_backward_leaves_nothing_on_the_host)
{
    with_context(ctx) {
        EBB_LOCAL(x);
        EBB_LOCAL(loss);
        vector(&x, ctx, 0.2);
        check_ok(ebb_op_saver(ctx, "*", EBB_SAVER_OFFLOAD, NULL));
        for (int i = 0; i < 50; i++) tanh_chain(&loss, x, 5);
        ebb_drop(&loss);
        cr_assert_eq(host_bytes(ctx), 0);
        cr_assert_eq(activations(ctx), 0);
    }
}

/* ---- B11: offload around a segment ---------------------------------------------------------- */

static ebb_status square(ebb_tensor **out, ebb_tensor *x) { return ebb_mul(out, x, x); }

static ebb_status fourth_power(void *user, ebb_tensor **out, ebb_tensor *x)
{
    (void)user;
    EBB_TRY(square(out, x));
    return square(out, *out);
}

static uint64_t powers(ebb_context *ctx, bool offload, bool segment)
{
    EBB_LOCAL(a);
    EBB_LOCAL(h);
    EBB_LOCAL(c);
    double value, grad;
    uint64_t before = stats_of(ctx).offloaded_bytes;
    check_ok(ebb_full(&a, ctx, EBB_F64, 0, NULL, 2));
    check_ok(ebb_set_requires_grad(a, true));
    check_ok(ebb_op_saver(ctx, "mul", offload ? EBB_SAVER_OFFLOAD : EBB_SAVER_KEEP, NULL));
    check_ok(square(&h, a));
    if (offload || !segment) { /* KEEP said of an op would hold inside the segment too */
        check_ok(segment ? ebb_checkpoint(&h, h, fourth_power, NULL, NULL) : fourth_power(NULL, &h, h));
    } else {
        check_ok(ebb_op_saver(ctx, "*", EBB_SAVER_KEEP, NULL));
        check_ok(ebb_checkpoint(&h, h, fourth_power, NULL, NULL));
    }
    check_ok(square(&c, h));
    uint64_t traffic = stats_of(ctx).offloaded_bytes - before;
    check_ok(ebb_item(c, &value));
    check_ok(ebb_backward(c));
    check_ok(ebb_item(ebb_grad(a), &grad));
    cr_assert_eq(value, 65536);
    cr_assert_eq(grad, 524288);
    return traffic;
}

Test(offload, b11_inner_tensors_of_a_segment_are_not_offloaded)
{
    with_context(ctx) {
        cr_assert_eq(powers(ctx, false, false), 0);
        cr_assert_eq(powers(ctx, false, true), 0);
        cr_assert_eq(powers(ctx, true, false), 3 * 8, "a^2, a^4, a^8 (a is the user's)");
        cr_assert_eq(powers(ctx, true, true), 2 * 8, "the segment's input and its result");
    }
}

/* ---- policies ------------------------------------------------------------------------------ */

static ebb_saver offload_exp(void *user, const ebb_op *op, const ebb_call *call)
{
    (void)user, (void)call;
    return strcmp(op->name, "exp") == 0 ? EBB_SAVER_OFFLOAD : EBB_SAVER_RECOMPUTE;
}

static ebb_status exp_tanh(void *user, ebb_tensor **out, ebb_tensor *x)
{
    (void)user;
    EBB_LOCAL(h);
    EBB_TRY(ebb_exp(&h, x));
    return ebb_tanh(out, h);
}

Test(policy, a_segment_offloads_what_its_policy_says_and_recomputes_from_it)
{
    with_context(ctx) {
        EBB_LOCAL(x);
        EBB_LOCAL(y);
        ebb_checkpoint_options o = { .struct_bytes = sizeof o, .policy = offload_exp };
        vector(&x, ctx, 0.1);
        check_ok(ebb_checkpoint(&y, x, exp_tanh, NULL, &o));
        check_ok(ebb_sum(&y, y, 0, NULL, false));
        cr_assert_eq(stats_of(ctx).offloaded_bytes, BYTES);
        check_ok(ebb_backward(y));
        cr_assert_eq(stats_of(ctx).recomputed_ops, 1, "tanh, from the output of exp");
    }
}

Test(policy, an_op_that_must_be_kept_is_not_run_again_in_any_segment)
{
    with_context(ctx) {
        EBB_LOCAL(x);
        EBB_LOCAL(y);
        vector(&x, ctx, 0.1);
        check_ok(ebb_op_saver(ctx, "exp", EBB_SAVER_KEEP, NULL));
        check_ok(ebb_checkpoint(&y, x, exp_tanh, NULL, NULL));
        check_ok(ebb_sum(&y, y, 0, NULL, false));
        check_ok(ebb_backward(y));
        cr_assert_eq(stats_of(ctx).recomputed_ops, 1);
    }
}

static ebb_saver nonsense(void *user, const ebb_op *op, const ebb_call *call)
{
    (void)op, (void)call;
    return *(ebb_saver *)user;
}

Test(policy, answers_that_are_none_are_refused)
{
    with_context(ctx) {
        EBB_LOCAL(x);
        EBB_LOCAL(y);
        ebb_saver answer = (ebb_saver)99;
        ebb_checkpoint_options o = { .struct_bytes = sizeof o, .name = "s", .policy = nonsense, .user = &answer };
        vector(&x, ctx, 0.1);
        check_fails(ebb_checkpoint(&y, x, exp_tanh, NULL, &o), EBB_EINVAL);
        check_message("'s'");
        answer = EBB_SAVER_CUSTOM;
        check_fails(ebb_checkpoint(&y, x, exp_tanh, NULL, &o), EBB_EINVAL);
        check_fails(ebb_op_saver(ctx, "tan", EBB_SAVER_OFFLOAD, NULL), EBB_EINVAL);
        check_message("did you mean \"tanh\"");
        check_fails(ebb_op_saver(ctx, "tanh", EBB_SAVER_RECOMPUTE, NULL), EBB_EINVAL);
        check_fails(ebb_op_saver(ctx, "tanh", EBB_SAVER_CUSTOM, NULL), EBB_EINVAL);
    }
}

/* ---- rounding savers ------------------------------------------------------------------------ */

/* Saves `values` by mul and reads them back as the gradient of its other input. */
static void round_trip(double *out, ebb_context *ctx, ebb_saver saver, ebb_dtype dtype, const double *values, int n)
{
    EBB_LOCAL(x);
    EBB_LOCAL(w);
    EBB_LOCAL(y);
    EBB_LOCAL(wide);
    check_ok(ebb_from_data(&x, ctx, EBB_F64, 1, (int64_t[]){ n }, values));
    check_ok(ebb_cast(&x, x, dtype));
    check_ok(ebb_op_saver(ctx, "scale", saver, NULL));
    check_ok(ebb_scale(&x, x, 1));
    check_ok(ebb_full(&w, ctx, dtype, 1, (int64_t[]){ n }, 1));
    check_ok(ebb_set_requires_grad(w, true));
    check_ok(ebb_mul(&y, x, w));
    ebb_drop(&x);
    check_ok(ebb_sum(&y, y, 0, NULL, false));
    check_ok(ebb_backward(y));
    check_ok(ebb_detach(&wide, ebb_grad(w)));
    check_ok(ebb_cast(&wide, wide, EBB_F64));
    check_ok(ebb_read(wide, out, sizeof(double) * (size_t)n));
}

static void drawn_values(double values[N])
{
    uint64_t state = 12345;
    for (int i = 0; i < N; i++) {
        state = state * 6364136223846793005u + 1442695040888963407u;
        double unit = (double)(state >> 11) * 0x1p-53 - 0.5;
        values[i] = unit * exp2((int)(state % 23) - 11); /* magnitudes over 22 binades */
    }
}

Test(rounding, bf16_is_off_by_at_most_a_256th)
{
    with_context(ctx) {
        double values[N], got[N];
        drawn_values(values);
        for (int k = 0; k < 2; k++) {
            round_trip(got, ctx, EBB_SAVER_BF16, k ? EBB_F64 : EBB_F32, values, N);
            int n_rounded = 0;
            for (int i = 0; i < N; i++) {
                cr_assert_leq(fabs(got[i] - values[i]), 0x1p-8 * fabs(values[i]));
                n_rounded += got[i] != values[i];
            }
            cr_assert_gt(n_rounded, N / 2);
        }
        cr_assert_eq(stats_of(ctx).packed_bytes, 2 * N * 2);
        cr_assert_eq(stats_of(ctx).packed_from_bytes, N * 4 + N * 8);
    }
}

Test(rounding, int8_is_off_by_at_most_a_253rd_of_the_largest_in_its_block)
{
    with_context(ctx) {
        double values[N], got[N];
        drawn_values(values);
        for (int k = 0; k < 2; k++) {
            round_trip(got, ctx, EBB_SAVER_INT8, k ? EBB_F64 : EBB_F32, values, N);
            for (int i = 0; i < N; i++) {
                double most = 0;
                for (int j = i / 64 * 64; j < N && j < i / 64 * 64 + 64; j++) most = fmax(most, fabs(values[j]));
                cr_assert_leq(fabs(got[i] - values[i]), most / 253, "element %d", i);
            }
        }
    }
}

Test(rounding, int8_of_zeros_is_zero_and_of_what_is_not_finite_is_not_a_number)
{
    with_context(ctx) {
        double values[192] = { 0 }, got[192];
        values[70] = INFINITY;
        values[130] = NAN;
        round_trip(got, ctx, EBB_SAVER_INT8, EBB_F32, values, 192);
        for (int i = 0; i < 64; i++) cr_assert_eq(got[i], 0);
        for (int i = 64; i < 192; i++) cr_assert(isnan(got[i]));
    }
}

Test(rounding, integers_are_kept_as_they_are)
{
    with_context(ctx) {
        EBB_LOCAL(table);
        EBB_LOCAL(index);
        EBB_LOCAL(y);
        check_ok(ebb_op_saver(ctx, "*", EBB_SAVER_BF16, NULL));
        check_ok(ebb_full(&table, ctx, EBB_F32, 2, (int64_t[]){ 4, 2 }, 1));
        check_ok(ebb_set_requires_grad(table, true));
        check_ok(ebb_full(&index, ctx, EBB_I32, 2, (int64_t[]){ 300, 2 }, 3));
        check_ok(ebb_narrow(&index, index, 1, 0, 1));
        check_ok(ebb_contiguous(&index, index)); /* made by an op */
        check_ok(ebb_embedding(&y, table, index));
        check_ok(ebb_sum(&y, y, 0, NULL, false));
        check_ok(ebb_backward(y));
        double row[8];
        EBB_LOCAL(wide);
        check_ok(ebb_cast(&wide, ebb_grad(table), EBB_F64));
        check_ok(ebb_read(wide, row, sizeof row));
        cr_assert_eq(row[6], 300);
    }
}

/* ---- the user's own ------------------------------------------------------------------------- */

typedef struct shelf { int n_packed, n_unpacked, n_dropped; bool refuse, fail; } shelf;

static size_t shelf_bytes(void *user, const ebb_arg *x)
{
    (void)user;
    return (size_t)x->elems * ebb_dtype_bytes(x->dtype);
}

static bool shelf_pack(void *user, const ebb_arg *x, void *packed)
{
    shelf *s = user;
    if (s->refuse) return false;
    memcpy(packed, x->data, shelf_bytes(NULL, x));
    s->n_packed++;
    return true;
}

static ebb_status shelf_unpack(void *user, const ebb_arg *x, const void *packed)
{
    shelf *s = user;
    if (s->fail) return ebb_fail(EBB_EIO, "the shelf fell");
    memcpy(x->data, packed, shelf_bytes(NULL, x));
    s->n_unpacked++;
    return EBB_OK;
}

static void shelf_drop(void *user, void *packed)
{
    (void)packed;
    ((shelf *)user)->n_dropped++;
}

static ebb_packer shelf_packer(shelf *s)
{
    return (ebb_packer){ .name = "shelf", .packed_bytes = shelf_bytes, .pack = shelf_pack, .unpack = shelf_unpack,
                         .drop = shelf_drop, .user = s };
}

Test(custom, a_saver_of_the_users_packs_unpacks_and_drops)
{
    with_context(ctx) {
        double plain[N], packed[N];
        shelf s = { 0 };
        ebb_packer packer = shelf_packer(&s);
        gradient(plain, ctx, EBB_SAVER_KEEP, NULL);
        gradient(packed, ctx, EBB_SAVER_CUSTOM, &packer);
        cr_assert_arr_eq(plain, packed, BYTES);
        cr_assert_eq(s.n_packed, 4);
        cr_assert_eq(s.n_unpacked, 4);
        cr_assert_eq(s.n_dropped, 4);
    }
}

Test(custom, what_it_refuses_is_kept)
{
    with_context(ctx) {
        double plain[N], kept[N];
        shelf s = { .refuse = true };
        ebb_packer packer = shelf_packer(&s);
        gradient(plain, ctx, EBB_SAVER_KEEP, NULL);
        gradient(kept, ctx, EBB_SAVER_CUSTOM, &packer);
        cr_assert_arr_eq(plain, kept, BYTES);
        cr_assert_eq(s.n_dropped, 0);
    }
}

Test(custom, its_error_ends_backward_and_leaves_nothing)
{
    with_context(ctx) {
        EBB_LOCAL(x);
        EBB_LOCAL(loss);
        shelf s = { .fail = true };
        ebb_packer packer = shelf_packer(&s);
        vector(&x, ctx, 0.2);
        check_ok(ebb_op_saver(ctx, "tanh", EBB_SAVER_CUSTOM, &packer));
        tanh_chain(&loss, x, 3);
        check_fails(ebb_backward(loss), EBB_EIO);
        check_message("the shelf fell");
        cr_assert_null(ebb_grad(x));
        cr_assert_eq(s.n_dropped, s.n_packed);
        cr_assert_eq(activations(ctx), 0);
    }
}
