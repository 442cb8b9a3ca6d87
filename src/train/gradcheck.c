/* Finite differences against an op's backward, in f64, over the op's own cases.
 * The loss is a fixed weighted sum of the outputs.  Beside the values of the gradients two habits of
 * the engine are checked: adding onto a gradient that is there, and one input's gradient alone.  And
 * before all that: that `needs` names what backward reads (gradcheck_needs.c). */
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "core/mem.h"
#include "tensor/context.h"
#include "train/gradcheck.h"

static const double TOLERANCE = 1e-6;  /* relative, by norm */
static const double SAME = 1e-12;      /* between two ways to the same gradient */
static const double NORM_FLOOR = 1e-3; /* a smaller norm counts as this much */

/* ---- analytic gradients ------------------------------------------------------------------- */

static ebb_status backward(ebb__probe *p, ebb_tensor *outs[EBB_MAX_OUT])
{
    ebb_tensor *roots[EBB_MAX_OUT], *grads[EBB_MAX_OUT];
    int n = 0;
    EBB_TRY(ebb__probe_run(p, outs));
    for (int j = 0; j < p->n_out; j++) {
        if (!p->weights[j] || !ebb_requires_grad(outs[j])) continue;
        roots[n] = outs[j];
        grads[n++] = p->weights[j];
    }
    ebb_backward_options options = { .struct_bytes = sizeof(options), .grads = grads };
    return n > 0 ? ebb_backward_ex(roots, n, &options) : EBB_OK;
}

/* Which inputs ask for a gradient: all that can, or one. */
static ebb_status ask(ebb__probe *p, int only)
{
    for (int i = 0; i < p->n_in; i++) {
        if (!p->in[i].differentiable) continue;
        EBB_TRY(ebb_set_requires_grad(p->in[i].leaf, only < 0 || only == i));
    }
    return EBB_OK;
}

static void drop_grads(ebb__probe *p)
{
    for (int i = 0; i < p->n_in; i++) ebb_drop_grad(p->in[i].leaf);
}

/* A leaf without a gradient has gradient 0. */
static ebb_status read_grad(double *out, const ebb__probe_in *in)
{
    const ebb_tensor *grad = ebb_grad(in->leaf);
    memset(out, 0, (size_t)in->elems * sizeof(*out));
    return grad ? ebb_read(grad, out, (size_t)in->elems * sizeof(*out)) : EBB_OK;
}

static ebb_status run_backward(ebb__probe *p, int only)
{
    ebb_tensor *outs[EBB_MAX_OUT] = { NULL };
    EBB_TRY(ask(p, only));
    ebb_status st = backward(p, outs);
    for (int j = 0; j < EBB_MAX_OUT; j++) ebb_drop(&outs[j]);
    return st;
}

/* ---- comparing ---------------------------------------------------------------------------- */

/* |a - scale * b| / |scale * b| by 2-norm; NaN counts as infinite. */
static double relative_error(const double *a, const double *b, double scale, int64_t n)
{
    double difference = 0, norm = 0;
    for (int64_t i = 0; i < n; i++) {
        difference += (a[i] - scale * b[i]) * (a[i] - scale * b[i]);
        norm += scale * b[i] * scale * b[i];
    }
    double error = sqrt(difference) / fmax(sqrt(norm), NORM_FLOOR);
    return isnan(error) ? INFINITY : error;
}

/* Keeps the first failure's text. */
static void fail(ebb_gradcheck_result *r, int input, const char *what, double error, double allowed)
{
    if (!r->passed) return;
    r->passed = false;
    snprintf(r->message, sizeof(r->message), "input %d: %s: relative error %.3g, allowed %.3g",
             input, what, error, allowed);
}

/* With gradients in place: another backward must double them. */
static ebb_status check_accumulation(ebb__probe *p, ebb_gradcheck_result *r)
{
    EBB_TRY(run_backward(p, -1));
    for (int i = 0; i < p->n_in; i++) {
        ebb__probe_in *in = &p->in[i];
        if (!in->differentiable) continue;
        EBB_TRY(read_grad(in->numeric, in)); /* borrowed as scratch until the differences come */
        double error = relative_error(in->numeric, in->analytic, 2, in->elems);
        if (!(error <= SAME)) fail(r, i, "adding onto a gradient gives another one", error, SAME);
    }
    return EBB_OK;
}

static ebb_status check_each_alone(ebb__probe *p, ebb_gradcheck_result *r)
{
    for (int i = 0; i < p->n_in; i++) {
        ebb__probe_in *in = &p->in[i];
        if (!in->differentiable) continue;
        drop_grads(p);
        EBB_TRY(run_backward(p, i));
        EBB_TRY(read_grad(in->numeric, in));
        double error = relative_error(in->numeric, in->analytic, 1, in->elems);
        if (!(error <= SAME)) fail(r, i, "alone it has another gradient", error, SAME);
    }
    return EBB_OK;
}

static ebb_status analytic(ebb__probe *p, ebb_gradcheck_result *r)
{
    EBB_TRY(run_backward(p, -1));
    for (int i = 0; i < p->n_in; i++)
        if (p->in[i].differentiable) EBB_TRY(read_grad(p->in[i].analytic, &p->in[i]));
    EBB_TRY(check_accumulation(p, r));
    EBB_TRY(check_each_alone(p, r));
    drop_grads(p);
    return EBB_OK;
}

/* ---- numeric gradients -------------------------------------------------------------------- */

/* Errors: truncation ~ h^2, rounding ~ epsilon / h.  Outputs in fewer bits than f64 need a wide step;
 * only conversions have them, and those are linear. */
static double step_for(const ebb__probe *p, double x)
{
    double h = p->coarsest > 0x1p-52 ? 0.25 : 1e-5;
    return h * fmax(1, fabs(x));
}

/* The outputs with one element set to `value`. */
static ebb_status values_at(double *values, ebb__probe *p, double *x, double value)
{
    EBB_TRY(ebb__device_copy(&p->ctx->device, x, &value, sizeof value, EBB__TO_DEVICE, "gradcheck"));
    return ebb__probe_values(p, values);
}

/* dL/dx of one element, which is `at`.  The difference is taken output by output, so that the rounding error
 * is that of the outputs which change. */
static ebb_status differentiate(double *out, ebb__probe *p, double *x, double at, double *plus, double *minus)
{
    double h = step_for(p, at), sum = 0;
    EBB_TRY(values_at(plus, p, x, at + h));
    EBB_TRY(values_at(minus, p, x, at - h));
    EBB_TRY(ebb__device_copy(&p->ctx->device, x, &at, sizeof at, EBB__TO_DEVICE, "gradcheck"));
    for (int64_t k = 0; k < p->out_elems; k++) sum += plus[k] - minus[k];
    *out = sum / (2 * h);
    return EBB_OK;
}

static ebb_status numeric(ebb__probe *p, double *plus, double *minus)
{
    for (int i = 0; i < p->n_in; i++) {
        ebb__probe_in *in = &p->in[i];
        double *x = in->differentiable ? ebb_tensor_data(in->leaf) : NULL, at = 0;
        for (int64_t e = 0; x && e < in->elems; e++) {
            EBB_TRY(ebb__device_copy(&p->ctx->device, &at, &x[e], sizeof at, EBB__FROM_DEVICE, "gradcheck"));
            EBB_TRY(differentiate(&in->numeric[e], p, &x[e], at, plus, minus));
        }
    }
    return EBB_OK;
}

static ebb_status take_differences(ebb__probe *p)
{
    double *values = ebb__malloc((size_t)p->out_elems * 2 * sizeof(*values));
    if (!values) return EBB_ENOMEM;
    ebb_status st = numeric(p, values, values + p->out_elems);
    ebb__free(values);
    return st;
}

static void compare(ebb__probe *p, double gradient_scale, ebb_gradcheck_result *r)
{
    double allowed = fmax(TOLERANCE, 8 * p->coarsest);
    for (int i = 0; i < p->n_in; i++) {
        ebb__probe_in *in = &p->in[i];
        if (!in->differentiable) continue;
        for (int64_t e = 0; e < in->elems; e++) in->analytic[e] *= gradient_scale;
        double error = relative_error(in->analytic, in->numeric, 1, in->elems);
        if (error > r->worst) {
            r->worst = error;
            r->worst_input = i;
        }
        if (!(error <= allowed))
            fail(r, i, "backward and finite differences differ", error, allowed);
    }
}

/* ---- cases -------------------------------------------------------------------------------- */

static bool has_differentiable(const ebb__probe *p)
{
    for (int i = 0; i < p->n_in; i++)
        if (p->in[i].differentiable) return true;
    return false;
}

/* The op must refuse the inputs, with that very status. */
static void check_refusal(ebb__probe *p, ebb_gradcheck_result *r)
{
    ebb_tensor *outs[EBB_MAX_OUT] = { NULL };
    ebb_status st = ebb__probe_run(p, outs);
    for (int j = 0; j < EBB_MAX_OUT; j++) ebb_drop(&outs[j]);
    r->passed = st == p->op_case->expect;
    if (!r->passed)
        snprintf(r->message, sizeof(r->message), "expected %s, got %s",
                 ebb_status_name(p->op_case->expect), ebb_status_name(st));
}

/* What is the same for all cases of an op. */
typedef struct check {
    ebb_context *ctx;
    const ebb_op *op;
    double gradient_scale;
    ebb__needs needs;
    bool checked; /* a case has checked a gradient */
} check;

/* Backward would read NULL where `needs` lacks something, so then no gradient is computed. */
static ebb_status check_probe(check *c, ebb__probe *p, ebb_gradcheck_result *r)
{
    if (p->op_case->expect != EBB_OK) {
        check_refusal(p, r);
        return EBB_OK;
    }
    EBB_TRY(ebb__probe_weigh(p));
    if (!has_differentiable(p)) return EBB_OK;
    c->checked = true;
    if (c->needs.lacking[0]) {
        r->passed = false;
        snprintf(r->message, sizeof(r->message), "%s", c->needs.lacking);
        return EBB_OK;
    }
    EBB_TRY(analytic(p, r));
    EBB_TRY(take_differences(p));
    compare(p, c->gradient_scale, r);
    return EBB_OK;
}

/* What goes wrong while a case runs is the op's failure, except where memory is gone. */
static ebb_status check_case(check *c, const ebb_op_case *op_case, ebb_gradcheck_result *r)
{
    ebb__probe p;
    *r = (ebb_gradcheck_result){ .op = c->op->name,
                                 .op_case = op_case->name ? op_case->name : "",
                                 .passed = true };
    ebb_status st = ebb__probe_begin(&p, c->ctx, c->op, op_case);
    if (st == EBB_OK) st = check_probe(c, &p, r);
    ebb__probe_end(&p);
    if (st == EBB_ENOMEM) return st;
    if (st != EBB_OK) {
        r->passed = false;
        snprintf(r->message, sizeof(r->message), "%s: %s", ebb_status_name(st), ebb_message());
        ebb_gradients_reset(c->ctx);
    }
    return EBB_OK;
}

static bool has_gradients(const ebb_op *op)
{
    if (op->flags & EBB_OP_NO_GRAD) return false;
    unsigned all = (1u << op->max_in) - 1;
    return (op->no_grad_in & all) != all;
}

typedef void report_fn(void *user, const ebb_gradcheck_result *result);

/* Failures of the op, whatever the case. */
static void check_whole(const check *c, report_fn *report, void *user)
{
    ebb_gradcheck_result r = { .op = c->op->name, .op_case = "" };
    if (!report) return;
    if (c->op->n_cases == 0 || (!c->checked && has_gradients(c->op))) {
        snprintf(r.message, sizeof(r.message), "%s",
                 c->op->n_cases > 0 ? "no case checks a gradient" : "no case");
        report(user, &r);
    }
    if (ebb__needs_surplus(&c->needs, c->op, r.message, sizeof(r.message))) report(user, &r);
}

static ebb_status check_op(check *c, report_fn *report, void *user)
{
    EBB_TRY(ebb__needs_check(&c->needs, c->ctx, c->op));
    for (int i = 0; i < c->op->n_cases; i++) {
        ebb_gradcheck_result r;
        EBB_TRY(check_case(c, &c->op->cases[i], &r));
        if (report) report(user, &r);
    }
    check_whole(c, report, user);
    return EBB_OK;
}

ebb_status ebb_gradcheck(const ebb_op *op, const char *device, double gradient_scale, report_fn *report, void *user)
{
    if (!op) return ebb_fail(EBB_EINVAL, "gradcheck: no op");
    check c = { .op = op, .gradient_scale = gradient_scale };
    /* checks 2: what `needs` does not name, backward does not see. */
    ebb_context_options o = { .struct_bytes = sizeof(o), .device = device, .threads = 2, .checks = 2, .seed = 7 };
    EBB_TRY(ebb_context_new(&c.ctx, &o));
    ebb_status st = ebb_context_is_dry(c.ctx) ? ebb_fail(EBB_EUNSUPPORTED, "gradcheck: a dry device has no values")
                                              : check_op(&c, report, user);
    ebb_context_free(c.ctx);
    return st;
}
