/* What steps leave behind. */
#include <ebb/leak.h>
#include <stdio.h>
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

enum { MOST_STEPS = 300 };

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
        if (window > 0 && i % period == 0) ebb_bind(&kept[i / period % window], loss);
        ebb_leak_watch_step(watch);
    }
    ebb_leak_report_get(&report, watch);
    cr_assert_eq(report.grows, ebb_leak_grows(watch));
    ebb_leak_watch_free(watch);
    for (int i = 0; i < MOST_STEPS; i++) ebb_drop(&kept[i]);
    return report;
}

static ebb_leak_report after(ebb_context *ctx, int steps, int window) { return after_periodic(ctx, steps, window, 1); }

static void check_nothing(const ebb_leak_report *r)
{
    cr_assert(!r->grows);
    cr_assert(r->bytes + r->storages + r->nodes + r->hooks + r->graph_bytes + r->bytes_per_step == 0);
    cr_assert_eq(r->n_holders, 0);
}

Test(leak, steps_that_keep_nothing_leave_nothing)
{
    with_context(ctx) {
        ebb_leak_report r = after(ctx, 20, 0);
        check_nothing(&r);
        cr_assert_eq(r.steps, 20);
    }
}

Test(leak, a_loss_per_step_is_found_with_its_line_and_its_holder)
{
    with_context(ctx) {
        ebb_leak_report r = after(ctx, 24, MOST_STEPS);
        cr_assert(r.grows);
        cr_assert_eq(r.since, 8, "the power of two before the latest one");
        /* x, tanh's output and the loss of 16 steps. */
        cr_assert_eq(r.storages, 16 * 3);
        cr_assert_eq(r.bytes, 16 * (2 * 64 * 32 * 4 + 4));
        cr_assert_eq(r.graph_bytes, 16 * 2 * 64 * 32 * 4);
        cr_assert_eq(r.nodes, 16 * 3);
        cr_assert_eq(r.bytes_per_step, 2 * 64 * 32 * 4 + 4);
        cr_assert_eq(r.cyclic, 0);
        cr_assert_eq(r.n_holders, 4, "the lines of normal, tanh, mean, and of linear's nodes");
        cr_assert_eq(r.holders[0].storages, 16);
        cr_assert_eq(r.holders[3].nodes, 16);
        cr_assert_str_eq(r.holders[3].op, "linear");
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

/* The lines of a program are told apart by a hash of their file's path, so its folder moves them about. */
Test(leak, equal_lines_are_told_in_the_programs_order_in_any_folder)
{
    with_context(ctx) {
        for (int folder = 0; folder < 32; folder++) {
            char path[64];
            ebb_leak_watch *watch = NULL;
            ebb_leak_report r;
            EBB_LOCAL(w);
            EBB_LOCAL(h);
            snprintf(path, sizeof path, "/folder-%d/steps.c", folder);
            parameter(&w, ctx);
            ebb_bind(&h, w);
            check_ok(ebb_leak_watch_new(&watch, ctx));
            for (int i = 0; i < 20; i++, ebb_leak_watch_step(watch))
                for (int line = EBB_LEAK_HOLDERS; line > 0; line--) {
                    ebb_site before = ebb_call_site(path, line);
                    check_ok(ebb_add(&h, h, w));
                    ebb_call_site(before.file, before.line);
                }
            ebb_leak_report_get(&r, watch);
            cr_assert_eq(r.n_holders, EBB_LEAK_HOLDERS);
            for (int i = 0; i < r.n_holders; i++) cr_assert_eq(r.holders[i].line, i + 1, "%s: holder %d", path, i);
            ebb_leak_watch_free(watch);
        }
    }
}

Test(leak, few_steps_say_nothing_yet)
{
    with_context(ctx) {
        for (int steps = 0; steps < EBB_LEAK_STEPS; steps++) {
            ebb_leak_report r = after(ctx, steps, MOST_STEPS);
            check_nothing(&r);
            cr_assert(r.steps == steps && r.steps < r.steps_needed);
        }
        ebb_leak_report r = after(ctx, EBB_LEAK_STEPS, MOST_STEPS);
        cr_assert(r.grows && r.steps == r.steps_needed);
    }
}

Test(leak, what_is_carried_to_the_next_step_is_none)
{
    with_context(ctx) {
        ebb_leak_report r = after(ctx, 20, 1);
        check_nothing(&r);
    }
}

Test(leak, the_last_ten_losses_are_none)
{
    with_context(ctx) {
        for (int steps = EBB_LEAK_STEPS; steps < 40; steps++) cr_assert(!after(ctx, steps, 10).grows, "%d", steps);
        cr_assert(!after(ctx, 200, 100).grows);
        cr_assert(after(ctx, 200, MOST_STEPS).grows);
    }
}

Test(leak, one_step_in_seven_is_found_in_time)
{
    with_context(ctx) {
        cr_assert(!after_periodic(ctx, 20, MOST_STEPS, 7).grows);
        cr_assert(after_periodic(ctx, 7 * 12, MOST_STEPS, 7).grows);
        for (int steps = 250; steps < 260; steps++)
            cr_assert(after_periodic(ctx, steps, MOST_STEPS, 7).grows, "%d", steps);
        cr_assert(!after_periodic(ctx, 200, 3, 7).grows, "the last three of them");
    }
}

Test(leak, what_is_made_once_is_none)
{
    with_context(ctx) {
        ebb_leak_watch *watch = NULL;
        EBB_LOCAL(first); EBB_LOCAL(second); EBB_LOCAL(third);
        check_ok(ebb_leak_watch_new(&watch, ctx));
        for (int step = 1; step < 80; step++) {
            if (step == 3) check_ok(ebb_zeros(&first, ctx, EBB_F32, EBB_SHAPE(16)));
            if (step == 6) check_ok(ebb_zeros(&second, ctx, EBB_F32, EBB_SHAPE(16)));
            if (step == 10) check_ok(ebb_zeros(&third, ctx, EBB_F32, EBB_SHAPE(16)));
            ebb_leak_watch_step(watch);
            cr_assert(!ebb_leak_grows(watch), "step %d", step);
        }
        ebb_leak_watch_free(watch);
    }
}

/* Calls `step` 40 times with a variable of its own and a parameter; the report. */
static ebb_leak_report watched(ebb_context *ctx, ebb_tensor **carried, ebb_tensor *w,
                               ebb_status (*step)(ebb_tensor **carried, ebb_tensor *w))
{
    ebb_leak_watch *watch = NULL;
    ebb_leak_report r;
    check_ok(ebb_leak_watch_new(&watch, ctx));
    for (int i = 0; i < 40; i++) {
        check_ok(step(carried, w));
        ebb_leak_watch_step(watch);
    }
    ebb_leak_report_get(&r, watch);
    ebb_leak_watch_free(watch);
    return r;
}

enum { CAT_LINE = __LINE__ + 6 };
static ebb_status append(ebb_tensor **history, ebb_tensor *w)
{
    EBB_LOCAL(x);
    EBB_TRY(ebb_detach(&x, w));
    ebb_tensor *both[2] = { *history, x };
    EBB_TRY(ebb_cat(history, 2, both, 0));
    return EBB_OK;
}

/* Each step replaces the tensor by a longer one: their number stays. */
Test(leak, growth_by_replacement_is_found)
{
    with_context(ctx) {
        EBB_LOCAL(w); EBB_LOCAL(history);
        parameter(&w, ctx);
        check_ok(ebb_zeros(&history, ctx, EBB_F32, EBB_SHAPE(32, 32)));
        check_ok(ebb_tensor_set_name(history, "start"));
        ebb_leak_report r = watched(ctx, &history, w, append);
        cr_assert(r.grows && r.since == 16);
        cr_assert_eq(r.bytes, (40 - 16) * 32 * 32 * 4);
        cr_assert_eq(r.bytes_per_step, 32 * 32 * 4);
        cr_assert_eq(r.storages, 0);
        cr_assert_eq(r.n_holders, 1);
        cr_assert_str_eq(r.holders[0].op, "cat");
        cr_assert_eq(r.holders[0].line, CAT_LINE);
        cr_assert(strstr(r.holders[0].why, "handle f32[") != NULL, "%s", r.holders[0].why);
    }
}

enum { SUM_LINE = __LINE__ + 7 };
static ebb_status add_up(ebb_tensor **total, ebb_tensor *w)
{
    EBB_LOCAL(loss);
    forward(&loss, w);
    EBB_TRY(ebb_backward(loss));
    ebb_drop_grad(w);
    EBB_TRY(ebb_add(total, *total, loss));
    return ebb_tensor_set_name(*total, "total");
}

/* total = total + loss: its bytes stay the same, its history grows. */
Test(leak, a_running_total_is_found_with_the_line_and_the_name)
{
    with_context(ctx) {
        EBB_LOCAL(w); EBB_LOCAL(total);
        parameter(&w, ctx);
        check_ok(ebb_zeros(&total, ctx, EBB_F32, 0, NULL));
        ebb_leak_report r = watched(ctx, &total, w, add_up);
        cr_assert(r.grows);
        cr_assert_eq(r.bytes, 0);
        cr_assert_eq(r.nodes, 24 * 4);
        bool add = false;
        for (int i = 0; i < r.n_holders; i++) {
            char made[64];
            snprintf(made, sizeof made, "handle 'total' (made at test_leak.c:%d) -> add #", SUM_LINE);
            cr_assert(strstr(r.holders[i].why, made) != NULL, "%s", r.holders[i].why);
            add = add || (strcmp(r.holders[i].op, "add") == 0 && r.holders[i].line == SUM_LINE);
        }
        cr_assert(add, "the line that adds up");
    }
}

/* Nine lines that leave a little do not hide the one that leaves much. */
Test(leak, the_largest_lines_are_told)
{
    with_context(ctx) {
        static ebb_tensor *kept[20][10];
        ebb_leak_watch *watch = NULL;
        ebb_leak_report r;
        check_ok(ebb_leak_watch_new(&watch, ctx));
        for (int i = 0; i < 20; i++) {
            for (int k = 0; k < 10; k++) {
                ebb_call_site("many.c", 1 + k);
                check_ok(ebb_zeros(&kept[i][k], ctx, EBB_F32, EBB_SHAPE(k == 9 ? 1000 : 1)));
                ebb_call_site(NULL, 0);
            }
            ebb_leak_watch_step(watch);
        }
        ebb_leak_report_get(&r, watch);
        cr_assert_eq(r.n_holders, EBB_LEAK_HOLDERS);
        cr_assert_eq(r.holders[0].line, 10);
        cr_assert_eq(r.holders[0].bytes, 12 * 4000);
        for (int i = 0; i < 20; i++)
            for (int k = 0; k < 10; k++) ebb_drop(&kept[i][k]);
        ebb_leak_watch_free(watch);
    }
}

/* More lines than the watch has room for. */
Test(leak, lines_without_room_still_count)
{
    with_context(ctx) {
        enum { STEPS = 20, LINES = 40 };
        static ebb_tensor *kept[STEPS][LINES];
        ebb_leak_watch *watch = NULL;
        ebb_leak_report r;
        check_ok(ebb_leak_watch_new(&watch, ctx));
        for (int i = 0; i < STEPS; i++) {
            for (int k = 0; k < LINES; k++) {
                ebb_call_site("generated.c", 1 + i * LINES + k);
                check_ok(ebb_zeros(&kept[i][k], ctx, EBB_F32, EBB_SHAPE(1)));
                ebb_call_site(NULL, 0);
            }
            ebb_leak_watch_step(watch);
        }
        ebb_leak_report_get(&r, watch);
        cr_assert(r.grows && r.storages == 12 * LINES && r.n_holders == EBB_LEAK_HOLDERS);
        for (int i = 0; i < STEPS; i++)
            for (int k = 0; k < LINES; k++) ebb_drop(&kept[i][k]);
        ebb_leak_watch_free(watch);
    }
}

/* A call without EBB_TRY() is not told by the line of another. */
Test(leak, an_unknown_line_is_not_guessed)
{
    with_context(ctx) {
        static ebb_tensor *kept[20];
        ebb_leak_watch *watch = NULL;
        ebb_leak_report r;
        EBB_LOCAL(w);
        parameter(&w, ctx);
        EBB_LOCAL(total);
        check_ok(ebb_zeros(&total, ctx, EBB_F32, 0, NULL));
        check_ok(ebb_leak_watch_new(&watch, ctx));
        for (int i = 0; i < 20; i++) {
            EBB_LOCAL(history);
            check_ok(ebb_detach(&history, w));
            check_ok(append(&history, w)); /* its lines are told */
            check_ok(ebb_zeros(&kept[i], ctx, EBB_F32, EBB_SHAPE(8)));
            ebb_leak_watch_step(watch);
        }
        ebb_leak_report_get(&r, watch);
        cr_assert_eq(r.n_holders, 1);
        cr_assert(r.holders[0].line == 0 && r.holders[0].file[0] == 0, "%s:%d", r.holders[0].file, r.holders[0].line);
        for (int i = 0; i < 20; i++) ebb_drop(&kept[i]);
        ebb_leak_watch_free(watch);
    }
}

/* ---- lists that are not leaks ------------------------------------------------------------- */

enum { LIST = 600 };

/* A list of tensors, each step makes one of its own size. */
static void keep_one(ebb_tensor *list[LIST], int at, ebb_context *ctx, unsigned seed)
{
    check_ok(ebb_zeros(&list[at], ctx, EBB_F32, EBB_SHAPE(1 + (int64_t)((seed * 2654435761u >> 8) % 5000))));
}

static void clear(ebb_tensor *list[LIST])
{
    for (int i = 0; i < LIST; i++) ebb_drop(&list[i]);
}

Test(leak, the_last_few_tensors_of_any_size_are_none)
{
    with_context(ctx) {
        for (int entries = 2; entries <= 13; entries++)
            for (unsigned seed = 0; seed < 25; seed++) {
                static ebb_tensor *list[LIST];
                ebb_leak_watch *watch = NULL;
                check_ok(ebb_leak_watch_new(&watch, ctx));
                for (int step = 1; step <= 100; step++) {
                    keep_one(list, step % entries, ctx, seed * 1000 + (unsigned)step);
                    ebb_leak_watch_step(watch);
                    cr_assert(!ebb_leak_grows(watch), "%d entries, seed %u, step %d", entries, seed, step);
                }
                ebb_leak_watch_free(watch);
                clear(list);
            }
    }
}

Test(leak, one_that_begins_late_is_found_soon)
{
    with_context(ctx) {
        static const int begins[] = { 40, 500 };
        for (int i = 0; i < 2; i++) {
            static ebb_tensor *list[LIST];
            ebb_leak_watch *watch = NULL;
            ebb_leak_report r;
            check_ok(ebb_leak_watch_new(&watch, ctx));
            for (int step = 1; step <= begins[i] + 16; step++) {
                if (step > begins[i]) keep_one(list, step, ctx, 1);
                ebb_leak_watch_step(watch);
                cr_assert(step > begins[i] || !ebb_leak_grows(watch), "step %d", step);
            }
            ebb_leak_report_get(&r, watch);
            cr_assert(r.grows && r.storages > 0 && r.n_holders == 1, "from step %d on", begins[i]);
            ebb_leak_watch_free(watch);
            clear(list);
        }
    }
}

/* The list is cleared in the last step, between it and the report, or by ebb_collect(). */
Test(leak, what_was_dropped_before_the_report_is_none)
{
    with_context(ctx) {
        for (int in_step = 0; in_step < 2; in_step++)
            for (int length = 16; length <= 40; length++) {
                static ebb_tensor *list[LIST];
                ebb_leak_watch *watch = NULL;
                ebb_leak_report r;
                check_ok(ebb_leak_watch_new(&watch, ctx));
                for (int step = 1; step <= length; step++) {
                    keep_one(list, step, ctx, 1);
                    if (step == length && in_step) clear(list);
                    ebb_leak_watch_step(watch);
                }
                cr_assert(in_step || ebb_leak_grows(watch));
                clear(list);
                ebb_leak_report_get(&r, watch);
                check_nothing(&r);
                cr_assert(!ebb_leak_grows(watch));
                ebb_leak_watch_free(watch);
            }
    }
}

Test(leak, a_list_that_is_cleared_every_few_steps_is_none_after_the_first_time)
{
    with_context(ctx) {
        for (int length = 16; length <= 64; length += 6) {
            static ebb_tensor *list[LIST];
            ebb_leak_watch *watch = NULL;
            ebb_leak_report r;
            check_ok(ebb_leak_watch_new(&watch, ctx));
            for (int step = 1; step <= 5 * length; step++) {
                keep_one(list, step, ctx, 1);
                if (step % length == 0) clear(list);
                ebb_leak_watch_step(watch);
                ebb_leak_report_get(&r, watch);
                cr_assert(!r.grows || (step < length && r.n_holders > 0), "every %d, step %d", length, step);
            }
            ebb_leak_watch_free(watch);
            clear(list);
        }
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

enum { CYCLES = 20, HOOK_LINE = __LINE__ + 5 };
static ebb_status add_hook(ebb_tensor *on, ebb_tensor **holds)
{
    ebb_hook hook = { .user = holds, .on_grad = just_look, .visit = holds ? visit : NULL,
                      .free = holds ? release : NULL };
    EBB_TRY(ebb_hook_add(on, &hook, NULL));
    return EBB_OK;
}

Test(leak, cycles_are_counted_and_told_by_their_hooks)
{
    with_context(ctx) {
        static ebb_tensor *held[CYCLES];
        ebb_leak_watch *watch = NULL;
        ebb_leak_report report;
        check_ok(ebb_leak_watch_new(&watch, ctx));
        for (int i = 0; i < CYCLES; i++) {
            EBB_LOCAL(x);
            parameter(&x, ctx);
            check_ok(ebb_tensor_set_name(x, "x"));
            check_ok(ebb_tanh(&held[i], x));
            check_ok(add_hook(x, &held[i]));
            cr_assert_eq(ebb_cyclic_tensors(ctx), 2 * (size_t)i, "x is a live handle");
            ebb_leak_watch_step(watch);
        }
        ebb_leak_report_get(&report, watch);
        cr_assert(report.grows);
        cr_assert_eq(report.cyclic, 2 * CYCLES);
        cr_assert_eq(report.hooks, report.nodes);
        const char *why = report.holders[0].why;
        cr_assert(strstr(why, "hook at test_leak.c:") && strstr(why, " on 'x', which holds f32[32, 32]"), "%s", why);
        cr_assert(strstr(why, "handle") == NULL, "no name is left: %s", why);
        cr_assert_eq(ebb_collect(ctx), 2 * CYCLES);
        ebb_leak_report_get(&report, watch);
        check_nothing(&report);
        for (int i = 0; i < CYCLES; i++) ebb_leak_watch_step(watch);
        ebb_leak_report_get(&report, watch);
        cr_assert(!report.grows && report.cyclic == 0);
        ebb_leak_watch_free(watch);
    }
}

/* A hook per step on one weight, without and with something that it holds. */
Test(leak, hooks_that_pile_up_are_told)
{
    with_context(ctx) {
        for (int holding = 0; holding < 2; holding++) {
            static ebb_tensor *held[40];
            ebb_leak_watch *watch = NULL;
            ebb_leak_report r;
            EBB_LOCAL(w);
            parameter(&w, ctx);
            check_ok(ebb_tensor_set_name(w, "weight"));
            check_ok(ebb_leak_watch_new(&watch, ctx));
            for (int i = 0; i < 40; i++) {
                if (holding) check_ok(ebb_zeros(&held[i], ctx, EBB_F32, EBB_SHAPE(100)));
                check_ok(add_hook(w, holding ? &held[i] : NULL));
                ebb_leak_watch_step(watch);
            }
            ebb_leak_report_get(&r, watch);
            cr_assert(r.grows);
            cr_assert_eq(r.hooks, 24);
            cr_assert_eq(r.bytes, holding ? 24 * 400 : 0);
            cr_assert_eq(r.n_holders, 1 + holding);
            const ebb_leak_holder *hooks = &r.holders[holding];
            cr_assert_str_eq(hooks->op, "hook");
            cr_assert_eq(hooks->line, HOOK_LINE);
            cr_assert_eq(hooks->hooks, 24);
            cr_assert_str_eq(hooks->why, "handle 'weight'\n");
            if (holding)
                cr_assert(strstr(r.holders[0].why, "on 'weight', which holds f32[100]"), "%s", r.holders[0].why);
            ebb_leak_watch_free(watch);
        }
    }
}

/* A name beside the hook: both hold it, the name is told. */
Test(leak, a_hook_is_the_holder_only_where_no_name_is)
{
    with_context(ctx) {
        static ebb_tensor *held;
        char why[256];
        EBB_LOCAL(w); EBB_LOCAL(kept); EBB_LOCAL(loss);
        parameter(&w, ctx);
        check_ok(ebb_tensor_set_name(w, "w"));
        check_ok(ebb_zeros(&kept, ctx, EBB_F32, EBB_SHAPE(4)));
        check_ok(ebb_tensor_set_name(kept, "kept"));
        const uint64_t bytes = ebb_storage_id(ebb_tensor_storage(kept));
        ebb_bind(&held, kept);
        forward(&loss, w);
        check_ok(add_hook(loss, &held));
        ebb_why(ebb_storage_find(ctx, bytes), why, sizeof why);
        cr_assert_str_eq(why, "handle 'kept'\n");
        ebb_drop(&kept);
        ebb_why(ebb_storage_find(ctx, bytes), why, sizeof why);
        cr_assert(strstr(why, " on the result of mean #3, which holds 'kept'\n"), "%s", why);
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
