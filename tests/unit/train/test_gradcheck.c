#include <stdio.h>
#include <string.h>

#include "support/cases.h"
#include "train_support.h"

typedef struct seen {
    int n, n_failed;
    char message[256];
    double worst;
} seen;

static void take(void *user, const ebb_gradcheck_result *r)
{
    seen *s = user;
    s->n++;
    if (r->worst > s->worst) s->worst = r->worst;
    if (r->passed) return;
    s->n_failed++;
    snprintf(s->message, sizeof(s->message), "%s, %s: %.200s", r->op, r->op_case, r->message);
}

static bool differentiable(const ebb_op *op) { return !(op->flags & EBB_OP_NO_GRAD); }

Test(gradcheck, every_op_passes)
{
    for (int i = 0; i < ebb_op_count(); i++) {
        seen s = { 0 };
        check_ok(ebb_gradcheck(ebb_op_at(i), NULL, 1, take, &s));
        cr_assert(s.n > 0 && s.n_failed == 0, "%s", s.message);
    }
    check_no_live_blocks();
}

Test(gradcheck, a_gradient_that_is_off_by_one_part_in_ten_thousand_is_caught_in_every_op)
{
    for (int i = 0; i < ebb_op_count(); i += CASES(1, 5)) { /* the accesses are those of every_op_passes */
        if (!differentiable(ebb_op_at(i))) continue;
        seen s = { 0 };
        check_ok(ebb_gradcheck(ebb_op_at(i), NULL, 1 + 1e-4, take, &s));
        cr_assert(s.n_failed > 0, "%s is not caught", ebb_op_at(i)->name);
    }
}

Test(gradcheck, an_op_without_cases_fails)
{
    ebb_op op = *ebb_op_find("exp");
    op.cases = NULL;
    op.n_cases = 0;
    seen s = { 0 };
    check_ok(ebb_gradcheck(&op, NULL, 1, take, &s));
    cr_assert(s.n == 1 && s.n_failed == 1);
    cr_assert(strstr(s.message, "no case") != NULL);
}

Test(gradcheck, cases_that_only_check_refusals_are_not_enough)
{
    static const ebb_op_case wrong[] = { { .name = "inner sizes",
                                           .n_in = 2,
                                           .expect = EBB_ESHAPE,
                                           .in = { { 2, { 2, 3 }, .kind = EBB_CASE_NORMAL },
                                                   { 2, { 4, 2 }, .kind = EBB_CASE_NORMAL } } } };
    ebb_op op = *ebb_op_find("matmul");
    op.cases = wrong;
    op.n_cases = 1;
    seen s = { 0 };
    check_ok(ebb_gradcheck(&op, NULL, 1, take, &s));
    cr_assert(s.n == 2 && s.n_failed == 1, "%s", s.message);
    cr_assert(strstr(s.message, "no case checks a gradient") != NULL);
}

static const ebb_op *square_of; /* the op whose backward is spoiled below */

static ebb_status twice_too_large(const ebb_call *call)
{
    ebb_status st = square_of->cpu.backward(call);
    for (int64_t k = 0; call->din[0].data && k < call->din[0].elems; k++)
        ((double *)call->din[0].data)[k] *= 2;
    return st;
}

Test(gradcheck, a_wrong_backward_is_caught)
{
    square_of = ebb_op_find("exp");
    ebb_op op = *square_of;
    op.cpu.backward = twice_too_large;
    seen s = { 0 };
    check_ok(ebb_gradcheck(&op, NULL, 1, take, &s));
    cr_assert(s.n_failed > 0);
}

static ebb_status forgets_to_add(const ebb_call *call)
{
    ebb_call fresh = *call;
    memset(fresh.accumulate, 0, sizeof(fresh.accumulate));
    return square_of->cpu.backward(&fresh);
}

Test(gradcheck, a_backward_that_overwrites_instead_of_adding_is_caught)
{
    square_of = ebb_op_find("exp");
    ebb_op op = *square_of;
    op.cpu.backward = forgets_to_add;
    seen s = { 0 };
    check_ok(ebb_gradcheck(&op, NULL, 1, take, &s));
    cr_assert(s.n_failed > 0);
}

static ebb_status needs_too_little(const ebb_call *call)
{
    if (!call->out[0].data) return ebb_fail(EBB_ESTATE, "exp: its output is not there");
    return square_of->cpu.backward(call);
}

Test(gradcheck, needs_that_name_too_little_are_caught)
{
    square_of = ebb_op_find("exp");
    ebb_op op = *square_of;
    op.needs[0] = 0;
    op.cpu.backward = needs_too_little;
    seen s = { 0 };
    check_ok(ebb_gradcheck(&op, NULL, 1, take, &s));
    cr_assert(s.n_failed > 0, "checks level 2 hides what needs does not name");
}

/* ---- needs that do not say what backward reads: built-in kernels, which check nothing ------- */

static void check_needs_caught(const char *name, int input, uint32_t needs, const char *message)
{
    ebb_op op = *ebb_op_find(name);
    op.needs[input] = needs;
    seen s = { 0 };
    check_ok(ebb_gradcheck(&op, NULL, 1, take, &s));
    cr_assert(s.n_failed > 0, "%s with wrong needs passes", name);
    cr_assert(strstr(s.message, message) != NULL, "%s", s.message);
}

Test(gradcheck, needs_too_small_for_a_kernel_that_checks_nothing_are_named)
{
    check_needs_caught("exp", 0, 0, "exp: needs[0] lacks output 0, which the gradient of input 0");
    check_needs_caught("mul", 1, 0, "mul: needs[1] lacks input 0, which the gradient of input 1");
    check_needs_caught("layernorm", 0, EBB_IN(0) | EBB_IN(1) | EBB_OUT(2),
                       "layernorm: needs[0] lacks output 1");
    check_needs_caught("layernorm", 1, EBB_IN(0) | EBB_OUT(1), "layernorm: needs[1] lacks output 2");
    check_needs_caught("embedding", 0, 0, "embedding: needs[0] lacks input 1");
    check_needs_caught("attention", 2, EBB_IN(0) | EBB_IN(1) | EBB_IN(3),
                       "attention: needs[2] lacks output 1");
    check_no_live_blocks();
}

Test(gradcheck, needs_too_large_are_named)
{
    check_needs_caught("scale", 0, EBB_IN(0), "scale: needs[0] names input 0");
    check_needs_caught("relu", 0, EBB_IN(0) | EBB_OUT(0), "relu: needs[0] names input 0");
    check_needs_caught("linear", 2, EBB_IN(1), "linear: needs[2] names input 1");
    check_needs_caught("permute", 0, EBB_OUT(0), "permute: needs[0] names output 0");
    check_no_live_blocks();
}
