/* Looking at storages: what is alive, by whom it was made, copies. */
#include <ebb/ebb.h>

#include "support/support.h"

typedef struct seen { int n; uint64_t ids[8]; } seen;

static void add(void *user, const ebb_storage *storage)
{
    seen *s = user;
    if (s->n < 8) s->ids[s->n] = ebb_storage_id(storage);
    s->n++;
}

Test(storage, an_id_outlives_its_bytes)
{
    with_context(ctx) {
        EBB_LOCAL(a);
        EBB_LOCAL(b);
        EBB_LOCAL(view);
        check_ok(ebb_zeros(&a, ctx, EBB_F32, EBB_SHAPE(4, 8)));
        check_ok(ebb_zeros(&b, ctx, EBB_F64, EBB_SHAPE(3)));
        check_ok(ebb_narrow(&view, a, 0, 1, 2));
        uint64_t of_a = ebb_storage_id(ebb_tensor_storage(a)), of_b = ebb_storage_id(ebb_tensor_storage(b));
        cr_assert(of_a < of_b, "ids grow");
        cr_assert(ebb_storage_find(ctx, of_a) == ebb_tensor_storage(view), "a view has its base's storage");
        ebb_drop(&a);
        cr_assert(ebb_storage_find(ctx, of_a) != NULL, "the view holds it");
        ebb_drop(&view);
        cr_assert(ebb_storage_find(ctx, of_a) == NULL);
        cr_assert(ebb_storage_find(ctx, of_b) == ebb_tensor_storage(b));
        cr_assert(ebb_storage_find(ctx, of_b + 100) == NULL);
        check_ok(ebb_zeros(&a, ctx, EBB_F32, EBB_SHAPE(4, 8)));
        cr_assert(ebb_storage_find(ctx, of_a) == NULL, "ids are not used again, though the block is");
    }
}

Test(storage, each_is_listed_once_in_order_with_who_made_it)
{
    with_context(ctx) {
        EBB_LOCAL(a);
        EBB_LOCAL(b);
        EBB_LOCAL(view);
        seen s = { 0 };
        check_ok(ebb_zeros(&a, ctx, EBB_F32, EBB_SHAPE(4, 8)));
        ebb_call_site("model.c", 7);
        ebb_scope(ctx, "blocks.1");
        check_ok(ebb_tanh(&b, a));
        ebb_call_site(NULL, 0);
        ebb_scope(ctx, NULL);
        check_ok(ebb_narrow(&view, a, 0, 1, 2));
        ebb_each_storage(ctx, add, &s);
        cr_assert_eq(s.n, 2);
        cr_assert(s.ids[0] == ebb_storage_id(ebb_tensor_storage(a)) && s.ids[1] == ebb_storage_id(ebb_tensor_storage(b)));
        ebb_storage_info info = ebb_storage_info_get(ebb_tensor_storage(b));
        cr_assert_eq(info.id, s.ids[1]);
        cr_assert_eq(info.bytes, 4 * 8 * 4);
        cr_assert_str_eq(info.op, "tanh");
        cr_assert_str_eq(info.scope, "blocks.1");
        cr_assert_str_eq(info.file, "model.c");
        cr_assert_eq(info.line, 7);
        ebb_drop(&a);
        s = (seen){ 0 };
        ebb_each_storage(ctx, add, &s);
        cr_assert_eq(s.n, 2, "the view holds a's");
        ebb_drop(&view);
        ebb_drop(&b);
        s = (seen){ 0 };
        ebb_each_storage(ctx, add, &s);
        cr_assert_eq(s.n, 0);
    }
}

Test(storage, one_figure_of_memory_is_that_of_all)
{
    with_context(ctx) {
        EBB_LOCAL(a);
        ebb_memory_stats stats;
        check_ok(ebb_zeros(&a, ctx, EBB_F32, EBB_SHAPE(1000)));
        ebb_drop(&a);
        check_ok(ebb_zeros(&a, ctx, EBB_F32, EBB_SHAPE(10)));
        ebb_memory_stats_get(ctx, &stats);
        cr_assert_eq(ebb_memory_allocated_bytes(ctx), 512);
        cr_assert_eq(ebb_memory_reserved_bytes(ctx), stats.reserved_bytes);
        cr_assert_eq(ebb_memory_peak_allocated_bytes(ctx), 4096);
    }
}

Test(copy, has_bytes_of_its_own_and_passes_its_gradient)
{
    with_context(ctx) {
        EBB_LOCAL(big);
        EBB_LOCAL(part);
        EBB_LOCAL(loss);
        double values[6] = { 1, 2, 3, 4, 5, 6 }, got[2], grad[6];
        check_ok(ebb_from_data(&big, ctx, EBB_F64, EBB_SHAPE(3, 2), values));
        check_ok(ebb_set_requires_grad(big, true));
        check_ok(ebb_narrow(&part, big, 0, 1, 1));
        check_ok(ebb_copy(&part, part));
        cr_assert(ebb_tensor_storage(part) != ebb_tensor_storage(big));
        cr_assert_eq(ebb_storage_bytes(ebb_tensor_storage(part)), 16);
        check_ok(ebb_read(part, got, sizeof got));
        cr_assert(got[0] == 3 && got[1] == 4);
        check_ok(ebb_sum(&loss, part, EBB_ALL_AXES, false));
        check_ok(ebb_backward(loss));
        check_ok(ebb_read(ebb_grad(big), grad, sizeof grad));
        for (int i = 0; i < 6; i++) cr_assert_eq(grad[i], i == 2 || i == 3);
    }
}
