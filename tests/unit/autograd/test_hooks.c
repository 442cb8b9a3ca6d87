/* Hooks on gradients, and cycles through them. */
#include <math.h>
#include <string.h>

#include <ebb/autograd.h>

#include "support/support.h"

static double value_of(ebb_tensor *t)
{
    double value = NAN;
    check_ok(ebb_item(t, &value));
    return value;
}

static void scalar(ebb_tensor **out, ebb_context *ctx, double value)
{
    check_ok(ebb_full(out, ctx, EBB_F64, 0, NULL, value));
    check_ok(ebb_set_requires_grad(*out, true));
}

typedef struct note { char name; double value; } note;
typedef struct journal { note entries[16]; int n; } journal;
typedef struct named { journal *log; char name; double factor; } named;

static ebb_status note_and_scale(void *user, ebb_tensor *t, ebb_tensor **grad)
{
    (void)t;
    named *n = user;
    n->log->entries[n->log->n++] = (note){ n->name, value_of(*grad) };
    return ebb_scale(grad, *grad, n->factor);
}

static ebb_status note_accumulated(void *user, ebb_tensor *leaf)
{
    named *n = user;
    n->log->entries[n->log->n++] = (note){ n->name, value_of(ebb_grad(leaf)) };
    return EBB_OK;
}

Test(hooks, run_in_order_on_complete_gradients)
{
    with_context(ctx) {
        EBB_LOCAL(x);
        EBB_LOCAL(h);
        EBB_LOCAL(y);
        journal l = { .n = 0 };
        named first = { &l, 'a', 2 }, second = { &l, 'b', 10 }, done = { &l, 'c', 0 }, inner = { &l, 'h', 1 };
        scalar(&x, ctx, 3);
        check_ok(ebb_hook_add(x, &(ebb_hook){ .user = &first, .on_grad = note_and_scale }, NULL));
        check_ok(ebb_hook_add(x, &(ebb_hook){ .user = &second, .on_grad = note_and_scale }, NULL));
        check_ok(ebb_hook_add(x, &(ebb_hook){ .user = &done, .on_accumulated = note_accumulated }, NULL));
        check_ok(ebb_scale(&h, x, 1));
        check_ok(ebb_hook_add(h, &(ebb_hook){ .user = &inner, .on_grad = note_and_scale }, NULL));
        check_ok(ebb_mul(&y, h, h)); /* h is used twice: its hook runs once, on 6 */
        check_ok(ebb_add(&y, y, x)); /* x is used twice: 6 + 1 */
        ebb_drop(&h);
        check_ok(ebb_backward(y));
        cr_assert_eq(l.n, 4);
        cr_assert_eq(l.entries[0].name, 'h');
        cr_assert_float_eq(l.entries[0].value, 6, 1e-12);
        cr_assert_eq(l.entries[1].name, 'a');
        cr_assert_float_eq(l.entries[1].value, 7, 1e-12);
        cr_assert_eq(l.entries[2].name, 'b');
        cr_assert_float_eq(l.entries[2].value, 14, 1e-12);
        cr_assert_eq(l.entries[3].name, 'c');
        cr_assert_float_eq(value_of(ebb_grad(x)), 140, 1e-12);
    }
}

static ebb_status count(void *user, ebb_tensor *leaf)
{
    (void)leaf;
    ++*(int *)user;
    return EBB_OK;
}

static ebb_status drop_the_gradient(void *user, ebb_tensor *leaf)
{
    ++*(int *)user;
    ebb_drop_grad(leaf);
    return EBB_OK;
}

Test(hooks, accumulated_runs_once_after_the_last_contribution_and_may_drop_it)
{
    with_context(ctx) {
        EBB_LOCAL(w);
        EBB_LOCAL(y);
        int calls = 0, dropped = 0;
        scalar(&w, ctx, 2);
        check_ok(ebb_hook_add(w, &(ebb_hook){ .user = &calls, .on_accumulated = count }, NULL));
        check_ok(ebb_hook_add(w, &(ebb_hook){ .user = &dropped, .on_accumulated = drop_the_gradient }, NULL));
        check_ok(ebb_mul(&y, w, w));
        check_ok(ebb_mul(&y, y, w));
        check_ok(ebb_backward(y));
        cr_assert_eq(calls, 1);
        cr_assert_eq(dropped, 1);
        cr_assert_null(ebb_grad(w));
    }
}

Test(hooks, can_be_removed)
{
    with_context(ctx) {
        EBB_LOCAL(w);
        EBB_LOCAL(y);
        int calls = 0, id = -1;
        scalar(&w, ctx, 2);
        check_ok(ebb_hook_add(w, &(ebb_hook){ .user = &calls, .on_accumulated = count }, &id));
        ebb_hook_remove(w, id);
        check_ok(ebb_mul(&y, w, w));
        check_ok(ebb_backward(y));
        cr_assert_eq(calls, 0);
    }
}

typedef struct remover { ebb_tensor *t; int id; int calls; } remover;

static ebb_status remove_it(void *user, ebb_tensor *t, ebb_tensor **grad)
{
    (void)t;
    (void)grad;
    remover *r = user;
    r->calls++;
    ebb_hook_remove(r->t, r->id);
    return EBB_OK;
}

static void free_nothing(void *user) { ((remover *)user)->calls += 100; }

Test(hooks, may_remove_the_next_one_or_themselves)
{
    with_context(ctx) {
        EBB_LOCAL(x);
        remover first = { NULL, 0, 0 }, second = { NULL, 0, 0 };
        scalar(&x, ctx, 3);
        first.t = second.t = x;
        check_ok(ebb_hook_add(x, &(ebb_hook){ .user = &first, .on_grad = remove_it }, &second.id));
        check_ok(ebb_hook_add(x, &(ebb_hook){ .user = &second, .on_grad = remove_it, .free = free_nothing }, &first.id));
        for (int pass = 0; pass < 2; pass++) {
            EBB_LOCAL(y);
            check_ok(ebb_mul(&y, x, x));
            check_ok(ebb_backward(y));
        }
        cr_assert_eq(first.calls, 2);
        cr_assert_eq(second.calls, 100, "removed before its turn, and freed once");
    }
}

static ebb_status refuses(void *user, ebb_tensor *t, ebb_tensor **grad)
{
    (void)user;
    (void)t;
    (void)grad;
    return ebb_fail(EBB_EUNSUPPORTED, "the hook says no");
}

static ebb_status wrong_shape(void *user, ebb_tensor *t, ebb_tensor **grad)
{
    (void)t;
    return ebb_zeros(grad, user, EBB_F64, 1, (int64_t[]){ 2 });
}

static ebb_status backward_again(void *user, ebb_tensor *t, ebb_tensor **grad)
{
    (void)t;
    (void)grad;
    return ebb_backward(user);
}

Test(hooks, errors_end_the_backward_and_leave_no_gradient)
{
    with_context(ctx) {
        EBB_LOCAL(x);
        EBB_LOCAL(w);
        EBB_LOCAL(y);
        scalar(&x, ctx, 2);
        scalar(&w, ctx, 3);
        check_ok(ebb_mul(&y, w, w));
        ebb_hook hooks[] = { { .user = ctx, .on_grad = refuses }, { .user = ctx, .on_grad = wrong_shape },
                             { .user = y, .on_grad = backward_again } };
        ebb_status expected[] = { EBB_EUNSUPPORTED, EBB_ESHAPE, EBB_ESTATE };
        for (int k = 0; k < 3; k++) {
            EBB_LOCAL(h);
            EBB_LOCAL(loss);
            int id;
            check_ok(ebb_hook_add(x, &hooks[k], &id));
            check_ok(ebb_scale(&h, x, 1));
            check_ok(ebb_mul(&loss, h, w));
            check_fails(ebb_backward(loss), expected[k]);
            cr_assert_null(ebb_grad(x));
            cr_assert_null(ebb_grad(w));
            cr_assert_not(ebb_gradients_valid(ctx));
            ebb_gradients_reset(ctx);
            ebb_hook_remove(x, id);
        }
    }
}

/* ---- cycles ------------------------------------------------------------------------------- */

typedef struct holder { ebb_tensor *held; } holder;

static ebb_status just_look(void *user, ebb_tensor *t, ebb_tensor **grad)
{
    (void)user;
    (void)t;
    (void)grad;
    return EBB_OK;
}

static void holder_visit(void *user, ebb_visitor *visitor) { ebb_visit(visitor, ((holder *)user)->held); }
static void holder_free(void *user) { ebb_drop(&((holder *)user)->held); }

/* A hook on a leaf that holds a result made from the leaf. */
static void make_cycle(ebb_context *ctx, holder *h, ebb_tensor **x)
{
    check_ok(ebb_full(x, ctx, EBB_F64, 1, (int64_t[]){ 1000 }, 0.5));
    check_ok(ebb_set_requires_grad(*x, true));
    check_ok(ebb_tanh(&h->held, *x));
    check_ok(ebb_hook_add(*x, &(ebb_hook){ .user = h, .on_grad = just_look, .visit = holder_visit, .free = holder_free }, NULL));
}

Test(collect, frees_a_cycle_that_nothing_reaches)
{
    with_context(ctx) {
        holder h = { NULL };
        EBB_LOCAL(x);
        make_cycle(ctx, &h, &x);
        cr_assert_eq(ebb_collect(ctx), 0, "x is a live handle");
        ebb_drop(&x);
        cr_assert_eq(ebb_live_nodes(ctx), 1, "counting alone does not free it");
        cr_assert_eq(ebb_collect(ctx), 2, "the leaf and the result");
        cr_assert_eq(ebb_live_nodes(ctx), 0);
        ebb_memory_stats stats;
        ebb_memory_stats_get(ctx, &stats);
        cr_assert_eq(stats.allocated_bytes, 0);
    }
}

Test(collect, keeps_what_a_handle_reaches_through_the_cycle)
{
    with_context(ctx) {
        holder h = { NULL };
        EBB_LOCAL(x);
        EBB_LOCAL(y);
        make_cycle(ctx, &h, &x);
        check_ok(ebb_scale(&y, h.held, 2));
        ebb_drop(&x);
        cr_assert_eq(ebb_collect(ctx), 0);
        cr_assert_not_null(h.held);
        ebb_drop(&y);
        cr_assert_eq(ebb_collect(ctx), 2);
    }
}

Test(collect, a_hook_on_a_result_that_holds_that_result)
{
    with_context(ctx) {
        holder h = { NULL };
        EBB_LOCAL(x);
        EBB_LOCAL(y);
        check_ok(ebb_full(&x, ctx, EBB_F64, 1, (int64_t[]){ 4 }, 1));
        check_ok(ebb_set_requires_grad(x, true));
        check_ok(ebb_tanh(&y, x));
        ebb_bind(&h.held, y);
        check_ok(ebb_hook_add(y, &(ebb_hook){ .user = &h, .on_grad = just_look, .visit = holder_visit, .free = holder_free }, NULL));
        ebb_drop(&y);
        cr_assert_eq(ebb_live_nodes(ctx), 1);
        cr_assert_eq(ebb_collect(ctx), 1);
        cr_assert_eq(ebb_live_nodes(ctx), 0);
        cr_assert_eq(ebb_tensor_refcount(x), 1);
    }
}
