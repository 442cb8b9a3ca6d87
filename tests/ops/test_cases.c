/* ops/test_cases.c: walks every op's table of cases.  An op without cases fails. */
#include "ops/case_call.h"
#include "support/support.h"
#include <criterion/criterion.h>
#include <criterion/parameterized.h>
#include <math.h>
#include <string.h>

enum { MOST_OPS = 64 };

/* A parameter is an op's index in the table: parameters may hold no pointers. */
static struct criterion_test_params every_op(void)
{
    static int indices[MOST_OPS];
    int n = ebb_op_count() < MOST_OPS ? ebb_op_count() : MOST_OPS;
    for (int i = 0; i < n; i++) indices[i] = i;
    return cr_make_param_array(int, indices, (size_t)n);
}

/* Calls `check` on each case of an op that is made to succeed and that takes this dtype. */
static void each_good_case(int index, ebb_dtype dtype, void (*check)(case_call *t))
{
    const ebb_op *op = ebb_op_at(index);
    with_context(ctx)
    {
        for (int k = 0; k < op->n_cases; k++) {
            const ebb_op_case *c = &op->cases[k];
            if (c->expect != EBB_OK) continue;
            case_call t;
            if (case_make(&t, op, c, dtype, ctx) == EBB_OK) check(&t);
            case_free(&t);
        }
    }
}

Test(op_table, names_find_their_ops_and_are_unique)
{
    cr_assert(ebb_op_count() > 0 && ebb_op_count() <= MOST_OPS);
    for (int i = 0; i < ebb_op_count(); i++) {
        const ebb_op *op = ebb_op_at(i);
        cr_expect(ebb_op_find(op->name) == op, "%s", op->name);
    }
    cr_expect_null(ebb_op_find("no such op"));
    cr_expect_null(ebb_op_find(NULL));
    cr_expect_null(ebb_op_at(-1));
    cr_expect_null(ebb_op_at(ebb_op_count()));
}

ParameterizedTestParameters(op_table, an_op_is_described_completely) { return every_op(); }
ParameterizedTest(int *index, op_table, an_op_is_described_completely)
{
    const ebb_op *op = ebb_op_at(*index);
    cr_assert(op->n_cases > 0 && op->cases, "%s has no cases", op->name);
    cr_expect(op->min_in >= 1 && op->min_in <= op->max_in && op->max_in <= EBB_MAX_IN, "%s",
              op->name);
    cr_expect(op->n_out >= 1 && op->n_out <= EBB_MAX_OUT && op->n_aux >= 0 && op->n_aux < op->n_out,
              "%s", op->name);
    cr_expect(op->infer && op->cost, "%s lacks infer or cost", op->name);
    bool view = op->flags & EBB_OP_VIEW, no_grad = op->flags & EBB_OP_NO_GRAD;
    cr_expect(view == !op->cpu.forward, "%s: a forward kernel, and a view only without", op->name);
    cr_expect(no_grad == !op->cpu.backward, "%s: a backward kernel unless it has no gradient",
              op->name);
    for (int i = 0; i < op->max_in; i++) {
        uint32_t inputs = op->needs[i] & 0xFFu, outputs = op->needs[i] >> 8;
        cr_expect(inputs >> op->max_in == 0, "%s: needs[%d] names an input it has not", op->name,
                  i);
        cr_expect(outputs >> op->n_out == 0, "%s: needs[%d] names an output it has not", op->name,
                  i);
        cr_expect(!(op->no_grad_in & EBB_IN(i)) || op->needs[i] == 0,
                  "%s: needs[%d] without gradient", op->name, i);
    }
}

ParameterizedTestParameters(op_table, infer_says_what_the_case_expects) { return every_op(); }
ParameterizedTest(int *index, op_table, infer_says_what_the_case_expects)
{
    const ebb_op *op = ebb_op_at(*index);
    bool some_good = false, some_bad = false;
    with_context(ctx)
    {
        for (int k = 0; k < op->n_cases; k++) {
            const ebb_op_case *c = &op->cases[k];
            case_call t;
            ebb_status st = case_make(&t, op, c, EBB_F64, ctx);
            cr_expect(st == c->expect, "%s, %s: %s, not %s (%s)", op->name, c->name,
                      ebb_status_name(st), ebb_status_name(c->expect), ebb_message());
            if (st != EBB_OK) {
                cr_expect(strncmp(ebb_message(), op->name, strlen(op->name)) == 0,
                          "%s, %s: the message does not begin with the op's name: %s", op->name,
                          c->name, ebb_message());
            }
            some_good = some_good || c->expect == EBB_OK;
            some_bad = some_bad || c->expect != EBB_OK;
            case_free(&t);
        }
    }
    cr_expect(some_good, "%s has no case that works", op->name);
    bool takes_anything = op == ebb_op_find("contiguous") || op == ebb_op_find("detach");
    cr_expect(some_bad || takes_anything, "%s has no case that fails", op->name);
}

static void check_cost(case_call *t)
{
    ebb_cost cost = { -1, -1, -1, -1 };
    t->call.op->cost(&t->call, &cost);
    double parts[] = { cost.fwd_flops, cost.bwd_flops, cost.fwd_bytes, cost.bwd_bytes };
    for (int i = 0; i < 4; i++) {
        cr_expect(isfinite(parts[i]) && parts[i] >= 0, "%s, %s: cost %d is %g", t->call.op->name,
                  t->c->name, i, parts[i]);
    }
}

ParameterizedTestParameters(op_table, costs_are_finite) { return every_op(); }
ParameterizedTest(int *index, op_table, costs_are_finite)
{
    each_good_case(*index, EBB_F64, check_cost);
}

/* ---- gradients ---------------------------------------------------------------------------- */

/* dL/dx by central differences; every element is moved. */
static double difference(case_call *t, int i, int64_t k)
{
    const double step = 1e-5;
    double x = case_get(&t->call.in[i], k);
    case_set(&t->call.in[i], k, x + step);
    double above = case_loss(t);
    case_set(&t->call.in[i], k, x - step);
    double below = case_loss(t);
    case_set(&t->call.in[i], k, x);
    return (above - below) / (2 * step);
}

static void check_gradients(case_call *t)
{
    case_forward(t);
    case_make_douts(t);
    for (int i = t->call.n_in - 1; i >= 0; i--) {
        if (!case_has_gradient(t, i)) continue;
        case_loss(t);
        case_buffer fresh = case_backward(t, i, false, 0), added = case_backward(t, i, true, 0.75);
        for (int64_t k = 0; k < fresh.arg.elems; k++) {
            double got = case_get(&fresh.arg, k), sum = case_get(&added.arg, k),
                   want = difference(t, i, k);
            double tolerance = 1e-6 * (1 + fabs(want));
            cr_assert(fabs(got - want) <= tolerance,
                      "%s, %s: gradient of input %d at %lld is %.12g, not %.12g", t->call.op->name,
                      t->c->name, i, (long long)k, got, want);
            cr_assert(fabs(sum - 0.75 - got) <= 1e-12 * (1 + fabs(got)),
                      "%s, %s: added onto 0.75, input %d at %lld is %.12g, not %.12g",
                      t->call.op->name, t->c->name, i, (long long)k, sum, got + 0.75);
        }
        case_buffer_free(&fresh);
        case_buffer_free(&added);
    }
}

ParameterizedTestParameters(op_kernels, gradients_are_finite_differences) { return every_op(); }
ParameterizedTest(int *index, op_kernels, gradients_are_finite_differences)
{
    each_good_case(*index, EBB_F64, check_gradients);
}

/* ---- dtypes ------------------------------------------------------------------------------- */

static double tolerance_of(ebb_dtype dtype)
{
    return dtype == EBB_F32 ? 2e-5 : dtype == EBB_F16 ? 1e-2 : 8e-2;
}

/* Both to the same values: the inputs of the f64 call are rounded as those of the other are. */
static void copy_inputs(case_call *to, const case_call *from)
{
    for (int i = 0; i < from->call.n_in; i++) {
        for (int64_t k = 0; k < from->call.in[i].elems; k++) {
            case_set(&to->call.in[i], k, case_get(&from->call.in[i], k));
        }
    }
}

static void check_close(const case_call *t, const char *what, int i, const ebb_arg *got,
                        const ebb_arg *want)
{
    double tolerance = tolerance_of(t->call.in[0].dtype), scale = 1;
    for (int64_t k = 0; k < want->elems; k++) scale = fmax(scale, fabs(case_get(want, k)));
    for (int64_t k = 0; k < want->elems; k++) {
        double a = case_get(got, k), b = case_get(want, k);
        cr_assert((isnan(a) && isnan(b)) || fabs(a - b) <= tolerance * scale,
                  "%s in %s, %s: %s %d at %lld is %.9g, not %.9g", t->call.op->name,
                  ebb_dtype_name(t->call.in[0].dtype), t->c->name, what, i, (long long)k, a, b);
    }
}

/* f32, f16 and bf16 give what f64 gives, within their rounding. */
static void check_against_f64(case_call *t)
{
    case_call wide;
    cr_assert(case_make(&wide, t->call.op, t->c, EBB_F64, t->call.ctx) == EBB_OK, "%s",
              ebb_message());
    copy_inputs(&wide, t);
    case_forward(t);
    case_forward(&wide);
    case_make_douts(t);
    case_make_douts(&wide);
    for (int j = 0; j < t->call.n_out - t->call.op->n_aux; j++) {
        check_close(t, "output", j, &t->call.out[j], &wide.call.out[j]);
        for (int64_t k = 0; k < t->dout[j].arg.elems; k++) {
            case_set(&wide.dout[j].arg, k, case_get(&t->dout[j].arg, k));
        }
    }
    for (int i = 0; i < t->call.n_in; i++) {
        if (!case_has_gradient(t, i)) continue;
        for (int accumulate = 0; accumulate < 2; accumulate++) {
            case_buffer got = case_backward(t, i, accumulate, 0.75),
                        want = case_backward(&wide, i, accumulate, 0.75);
            check_close(t, accumulate ? "added gradient" : "gradient", i, &got.arg, &want.arg);
            case_buffer_free(&got);
            case_buffer_free(&want);
        }
    }
    case_free(&wide);
}

ParameterizedTestParameters(op_kernels, f32_agrees_with_f64) { return every_op(); }
ParameterizedTest(int *index, op_kernels, f32_agrees_with_f64)
{
    each_good_case(*index, EBB_F32, check_against_f64);
}

ParameterizedTestParameters(op_kernels, halves_agree_with_f64) { return every_op(); }
ParameterizedTest(int *index, op_kernels, halves_agree_with_f64)
{
    each_good_case(*index, EBB_F16, check_against_f64);
    each_good_case(*index, EBB_BF16, check_against_f64);
}

/* ---- in place ----------------------------------------------------------------------------- */

static void check_same_values(const case_call *t, const char *what, const ebb_arg *got,
                              const ebb_arg *want)
{
    for (int64_t k = 0; k < want->elems; k++) {
        double a = case_get(got, k), b = case_get(want, k);
        cr_assert(a == b || (isnan(a) && isnan(b)), "%s in %s, %s: %s at %lld is %.17g, not %.17g",
                  t->call.op->name, ebb_dtype_name(want->dtype), t->c->name, what, (long long)k, a,
                  b);
    }
}

static void check_in_place(case_call *t)
{
    case_forward(t);
    case_make_douts(t);
    case_buffer over;
    if (case_forward_in_place(t, &over)) {
        check_same_values(t, "output over input", &over.arg, &t->call.out[0]);
        case_buffer_free(&over);
    }
    if (case_backward_over_dout(t, &over)) {
        case_buffer apart = case_backward(t, 0, false, 0);
        check_same_values(t, "gradient over dout", &over.arg, &apart.arg);
        case_buffer_free(&apart);
        case_buffer_free(&over);
    }
}

ParameterizedTestParameters(op_kernels, writing_over_operands_changes_nothing)
{
    return every_op();
}
ParameterizedTest(int *index, op_kernels, writing_over_operands_changes_nothing)
{
    each_good_case(*index, EBB_F32, check_in_place);
    each_good_case(*index, EBB_F64, check_in_place);
    each_good_case(*index, EBB_BF16, check_in_place);
}
