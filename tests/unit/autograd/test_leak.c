/* What steps leave behind, and the calls that it is found with. */
#include <ebb/leak.h>
#include <string.h>

#include "support/support.h"

/* loss = mean(tanh(x w)), x [64, 32] made here: a step's graph, without backward. */
static void forward(ebb_tensor **loss, ebb_tensor *w)
{
    EBB_LOCAL(x);
    check_ok(ebb_normal(&x, ebb_tensor_context(w), EBB_F32, EBB_SHAPE(64, 32), 0, 1));
    check_ok(ebb_linear(loss, x, w, NULL));
    check_ok(ebb_tanh(loss, *loss));
    check_ok(ebb_mean(loss, *loss, EBB_ALL_AXES, false));
    check_ok(ebb_tensor_set_name(*loss, "loss"));
}

static void parameter(ebb_tensor **w, ebb_context *ctx)
{
    check_ok(ebb_normal(w, ctx, EBB_F32, EBB_SHAPE(32, 32), 0, 0.1));
    check_ok(ebb_set_requires_grad(*w, true));
}

enum { MOST_STEPS = 200 };

/* `steps` steps of which every `period`-th keeps its loss; the `window` latest are held.  The report at the end. */
static ebb_leak_report after_periodic(ebb_context *ctx, int steps, int window, int period)
{
    static ebb_tensor *kept[MOST_STEPS];
    ebb_leak_watch *watch = NULL;
    ebb_leak_report report;
    EBB_LOCAL(w);
    parameter(&w, ctx);
    check_ok(ebb_leak_watch_new(&watch, ctx));
    for (int i = 0; i < steps; i++) {
        EBB_LOCAL(loss);
        forward(&loss, w);
        if (window > 0 && i % period == 0) ebb_bind(&kept[i % window], loss);
        ebb_leak_watch_step(watch);
    }
    ebb_leak_report_get(&report, watch);
    ebb_leak_watch_free(watch);
    for (int i = 0; i < MOST_STEPS; i++) ebb_drop(&kept[i]);
    return report;
}

static ebb_leak_report after(ebb_context *ctx, int steps, int window) { return after_periodic(ctx, steps, window, 1); }

Test(leak, steps_that_keep_nothing_leave_nothing)
{
    with_context(ctx) {
        ebb_leak_report r = after(ctx, 20, 0);
        cr_assert(!r.grows && r.n == 0 && r.bytes == 0 && r.nodes == 0 && r.n_holders == 0);
        cr_assert_eq(r.steps, 20);
    }
}

Test(leak, a_loss_per_step_is_found_with_its_line_and_its_holder)
{
    with_context(ctx) {
        ebb_leak_report r = after(ctx, 10, MOST_STEPS);
        cr_assert(r.grows);
        /* x, tanh's output and the loss of steps 2 to 9. */
        cr_assert_eq(r.n, 8 * 3);
        cr_assert_eq(r.bytes, 8 * (2 * 64 * 32 * 4 + 4));
        cr_assert_eq(r.graph_bytes, 8 * 2 * 64 * 32 * 4);
        cr_assert_eq(r.nodes, 8 * 3);
        cr_assert_eq(r.bytes_per_step, 2 * 64 * 32 * 4 + 4);
        cr_assert_eq(r.cyclic, 0);
        cr_assert_eq(r.n_holders, 3);
        cr_assert_eq(r.holders[0].n, 8);
        bool normal = false;
        for (int i = 0; i < r.n_holders; i++) {
            if (strcmp(r.holders[i].op, "normal") != 0) continue;
            normal = true;
            cr_assert(strstr(r.holders[i].why, "handle 'loss' -> mean #") != NULL, "%s", r.holders[i].why);
            cr_assert(strstr(r.holders[i].why, "slot in0\n") != NULL, "%s", r.holders[i].why);
        }
        cr_assert(normal, "x is among the holders");
    }
}

Test(leak, two_steps_say_nothing_yet)
{
    with_context(ctx) {
        for (int steps = 0; steps <= 4; steps++) cr_assert(!after(ctx, steps, MOST_STEPS).grows, "%d steps", steps);
        cr_assert(after(ctx, 5, MOST_STEPS).grows);
    }
}

Test(leak, what_is_carried_to_the_next_step_is_none)
{
    with_context(ctx) {
        ebb_leak_report r = after(ctx, 20, 1);
        cr_assert(!r.grows && r.n == 0);
    }
}

Test(leak, the_last_ten_losses_are_none)
{
    with_context(ctx) {
        ebb_leak_report r = after(ctx, 200, 10);
        cr_assert(!r.grows, "%zu storages of 10 steps, as many as long ago", r.n);
        cr_assert_eq(r.n, 9 * 3);
        cr_assert(after(ctx, 200, MOST_STEPS).grows);
    }
}

Test(leak, one_step_in_seven_is_found_in_time)
{
    with_context(ctx) {
        cr_assert(!after_periodic(ctx, 10, MOST_STEPS, 7).grows);
        cr_assert(after_periodic(ctx, 60, MOST_STEPS, 7).grows);
        cr_assert(!after_periodic(ctx, 200, 21, 7).grows, "the last three of them");
    }
}

Test(leak, what_is_made_once_is_none)
{
    with_context(ctx) {
        ebb_leak_watch *watch = NULL;
        ebb_leak_report report;
        EBB_LOCAL(buffer);
        check_ok(ebb_leak_watch_new(&watch, ctx));
        for (int step = 1; step < 80; step++) {
            if (step == 5) check_ok(ebb_zeros(&buffer, ctx, EBB_F32, EBB_SHAPE(16)));
            ebb_leak_watch_step(watch);
            ebb_leak_report_get(&report, watch);
            cr_assert(!report.grows, "step %d", step);
        }
        cr_assert_eq(report.n, 1);
        ebb_leak_watch_free(watch);
    }
}

/* A hook whose data hold a result of the tensor that it hangs on. */
static ebb_status just_look(void *user, ebb_tensor *t, ebb_tensor **grad)
{
    (void)user;
    (void)t;
    (void)grad;
    return EBB_OK;
}
static void visit(void *user, ebb_visitor *visitor) { ebb_visit(visitor, *(ebb_tensor **)user); }
static void release(void *user) { ebb_drop(user); }

Test(leak, cycles_are_counted)
{
    with_context(ctx) {
        static ebb_tensor *held[8];
        ebb_leak_watch *watch = NULL;
        ebb_leak_report report;
        check_ok(ebb_leak_watch_new(&watch, ctx));
        for (int i = 0; i < 8; i++) {
            EBB_LOCAL(x);
            parameter(&x, ctx);
            check_ok(ebb_tanh(&held[i], x));
            ebb_hook hook = { .user = &held[i], .on_grad = just_look, .visit = visit, .free = release };
            check_ok(ebb_hook_add(x, &hook, NULL));
            cr_assert_eq(ebb_cyclic_tensors(ctx), 2 * (size_t)i, "x is a live handle");
            ebb_leak_watch_step(watch);
        }
        ebb_leak_report_get(&report, watch);
        cr_assert(report.grows);
        cr_assert_eq(report.cyclic, 16);
        cr_assert_eq(ebb_collect(ctx), 16);
        ebb_leak_report_get(&report, watch);
        cr_assert(!report.grows && report.n == 0 && report.cyclic == 0);
        ebb_leak_watch_free(watch);
    }
}

Test(leak, a_watch_may_find_no_memory)
{
    with_context(ctx) {
        ebb_leak_watch *watch = NULL;
        ebb_fault_arm(1);
        check_status(ebb_leak_watch_new(&watch, ctx), EBB_ENOMEM);
        ebb_fault_arm(0);
        cr_assert_null(watch);
        ebb_leak_watch_free(NULL);
    }
}

/* ---- looking at storages ------------------------------------------------------------------ */

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
