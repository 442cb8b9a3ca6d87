/* ops/op_softmax.c: softmax and log-softmax along one axis.
 * softmax      y = exp(x - max) / sum       dx = y (dy - sum(dy y))
 * log_softmax  y = x - max - log(sum)       dx = dy - exp(y) sum(dy)
 * Backward reads y only.  A row of nothing but -inf gives NaN, as 0 / 0 does. */
#include "ops/attrs.h"
#include "ops/kernels.h"
#include "ops/table.h"
#include "ops/vmath.h"
#include "ops/walk.h"
#include <ebb/ops.h>

static ebb_status infer(ebb_call *call)
{
    ebb_status st = ebb__require_float(call);
    if (st != EBB_OK) return st;
    if (call->in[0].ndim == 0)
        return ebb_fail(EBB_ESHAPE, "%s: a scalar has no axis", call->op->name);
    st = ebb__resolve_axis(call, &EBB_ATTRS(call, ebb__softmax_attrs)->axis);
    return st == EBB_OK ? ebb__infer_like_first(call) : st;
}

/* ---- formulas on lanes ---------------------------------------------------------------------- */

typedef struct formula {
    ebb__lanes_fn *f32, *f64;
} formula;

#define FORMULA_1(name, f32_expr, f64_expr)                                                        \
    EBB__LANES_FN_1(name##_f32, float, f32_expr)                                                   \
    EBB__LANES_FN_1(name##_f64, double, f64_expr)                                                  \
    static const formula name = { name##_f32, name##_f64 };
#define FORMULA_2(name, f32_expr, f64_expr)                                                        \
    EBB__LANES_FN_2(name##_f32, float, f32_expr)                                                   \
    EBB__LANES_FN_2(name##_f64, double, f64_expr)                                                  \
    static const formula name = { name##_f32, name##_f64 };
#define FORMULA_3(name, f32_expr, f64_expr)                                                        \
    EBB__LANES_FN_3(name##_f32, float, f32_expr)                                                   \
    EBB__LANES_FN_3(name##_f64, double, f64_expr)                                                  \
    static const formula name = { name##_f32, name##_f64 };

/* A row has one maximum, sum and so on: p. */
FORMULA_1(exp_less, ebb__expf(a - p), ebb__exp(a - p))
FORMULA_1(times, a *p, a *p)
FORMULA_1(less, a - p, a - p)
FORMULA_2(softmax_grad, b *(a - p), b *(a - p)) /* dy, y */
FORMULA_2(log_softmax_grad, a - ebb__expf(b) * p, a - ebb__exp(b) * p)
/* Columns side by side have one each: the last operand. */
FORMULA_2(larger, b > a ? b : a, b > a ? b : a)
FORMULA_2(exp_less_each, ebb__expf(a - b), ebb__exp(a - b))
FORMULA_2(times_each, a *b, a *b)
FORMULA_3(less_each, (a - b) - c, (a - b) - c)
FORMULA_3(softmax_grad_each, b *(a - c), b *(a - c)) /* dy, y, sum */
FORMULA_3(log_softmax_grad_each, a - ebb__expf(b) * c, a - ebb__exp(b) * c)

static void apply(const formula *f, ebb_dtype dtype, void *out, int64_t n, double p, const void *a,
                  const void *b, const void *c)
{
    const void *in[3] = { a, b, c };
    (dtype == EBB_F64 ? f->f64 : f->f32)(out, in, n, false, &p);
}

/* ---- the tensor as rows or columns ---------------------------------------------------------- */

/* Softmax runs along `length` elements that lie `stride` apart.  Stride 1: n rows, one by one.
 * Else: n tiles of up to COLUMNS columns side by side, so that memory is read in runs. */
typedef struct task {
    const ebb_arg *x, *y, *dy, *dx; /* forward: x, y; backward: y, dy, dx */
    int64_t length, stride, tiles_across, n;
    bool accumulate, log;
} task;

enum { COLUMNS = 128 };

static task task_of(const ebb_call *call, bool log)
{
    const ebb_arg *shape = &call->out[0];
    int64_t axis = ((const ebb__softmax_attrs *)(const void *)call->attrs)->axis;
    task t = { .length = shape->dims[axis], .stride = 1, .log = log };
    for (int d = (int)axis + 1; d < shape->ndim; d++) t.stride *= shape->dims[d];
    t.tiles_across = t.stride == 1 ? 1 : (t.stride + COLUMNS - 1) / COLUMNS;
    if (shape->elems) t.n = shape->elems / (t.length * t.stride) * t.tiles_across;
    return t;
}

/* Tile i: where its first element lies, and how many columns it has. */
static int64_t tile_at(const task *t, int64_t i, int64_t *columns)
{
    int64_t first = i % t->tiles_across * COLUMNS;
    *columns = t->stride - first < COLUMNS ? t->stride - first : COLUMNS;
    return i / t->tiles_across * t->stride * t->length + first;
}

static const void *load(const ebb_arg *arg, int64_t at, int64_t n, ebb__lanes *buf)
{
    return ebb__lanes_read(arg->dtype, arg->data, at, 1, n, buf);
}

/* Where n results go: straight to their place, or through `buf`; store() finishes. */
static void *place(const ebb_arg *arg, int64_t at, ebb__lanes *buf)
{
    if (!ebb__is_compute_dtype(arg->dtype)) return buf;
    return (char *)arg->data + (size_t)at * ebb_dtype_bytes(arg->dtype);
}

static void store(const ebb_arg *arg, int64_t at, int64_t n, const void *lanes)
{
    ebb__lanes_write(arg->dtype, arg->data, at, 1, n, lanes);
}

/* The gradient of n elements; `in`: dy, y and for columns their sums. */
static void write_gradient(const task *t, const formula *f, int64_t at, int64_t n, double p,
                           const void *const in[])
{
    ebb_dtype dtype = t->dx->dtype;
    ebb__lanes buf;
    void *to = place(t->dx, at, &buf);
    if (t->accumulate) load(t->dx, at, n, &buf); /* fills buf where `to` is buf */
    (dtype == EBB_F64 ? f->f64 : f->f32)(to, in, n, t->accumulate, &p);
    store(t->dx, at, n, to);
}

/* A run of at most EBB__LANES elements of a row. */
#define EACH_RUN(length, i, n)                                                                     \
    for (int64_t i = 0, n = (length) < EBB__LANES ? (length) : EBB__LANES; n > 0;                  \
         i += n, n = (length)-i < EBB__LANES ? (length)-i : EBB__LANES)

/* ---- rows ----------------------------------------------------------------------------------- */

/* The largest element, and the sum of exp(x - largest).  keep: y becomes the exponentials. */
static void row_statistics(const task *t, int64_t at, bool keep, double *top, double *sum)
{
    ebb_dtype dtype = t->x->dtype;
    ebb__lanes buf, exps;
    *top = -INFINITY;
    *sum = 0;
    EACH_RUN(t->length, i, n)
    {
        double here = ebb__lanes_max(dtype, load(t->x, at + i, n, &buf), n);
        *top = here > *top ? here : *top;
    }
    EACH_RUN(t->length, i, n)
    {
        void *to = keep ? place(t->y, at + i, &exps) : &exps;
        apply(&exp_less, dtype, to, n, *top, load(t->x, at + i, n, &buf), NULL, NULL);
        *sum += ebb__lanes_sum(dtype, to, n);
    }
}

static void forward_row(const task *t, int64_t at)
{
    ebb_dtype dtype = t->x->dtype;
    bool keep = !t->log && ebb__is_compute_dtype(dtype); /* halves would lose bits in y */
    ebb__lanes buf, result;
    double top, sum;
    row_statistics(t, at, keep, &top, &sum);
    EACH_RUN(t->length, i, n)
    {
        const void *from = load(keep ? t->y : t->x, at + i, n, &buf);
        void *to = place(t->y, at + i, &result);
        if (t->log) {
            apply(&less, dtype, to, n, top, from, NULL,
                  NULL); /* first the large part, which is exact */
            apply(&less, dtype, to, n, log(sum), to, NULL, NULL);
        } else {
            if (!keep) apply(&exp_less, dtype, to, n, top, from, NULL, NULL);
            apply(&times, dtype, to, n, 1 / sum, keep ? from : to, NULL, NULL);
        }
        store(t->y, at + i, n, to);
    }
}

static void backward_row(const task *t, int64_t at)
{
    ebb_dtype dtype = t->y->dtype;
    ebb__lanes dy_buf, y_buf;
    double sum = 0;
    EACH_RUN(t->length, i, n)
    {
        const void *dy = load(t->dy, at + i, n, &dy_buf);
        sum += t->log ? ebb__lanes_sum(dtype, dy, n)
                      : ebb__lanes_dot(dtype, dy, load(t->y, at + i, n, &y_buf), n);
    }
    EACH_RUN(t->length, i, n)
    {
        const void *in[2] = { load(t->dy, at + i, n, &dy_buf), load(t->y, at + i, n, &y_buf) };
        write_gradient(t, t->log ? &log_softmax_grad : &softmax_grad, at + i, n, sum, in);
    }
}

/* ---- columns -------------------------------------------------------------------------------- */

/* Fills lanes with a value, or with f(sums). */
static void fill(ebb_dtype dtype, ebb__lanes *lanes, int64_t n, double value)
{
    for (int64_t i = 0; i < n; i++) {
        if (dtype == EBB_F64)
            lanes->f64[i] = value;
        else
            lanes->f32[i] = (float)value;
    }
}

static void from_sums(ebb_dtype dtype, ebb__lanes *lanes, int64_t n, const double *sums,
                      double (*f)(double))
{
    for (int64_t i = 0; i < n; i++) {
        if (dtype == EBB_F64)
            lanes->f64[i] = f(sums[i]);
        else
            lanes->f32[i] = (float)f(sums[i]);
    }
}

static double itself(double x) { return x; }
static double inverse(double x) { return 1 / x; }

static void forward_columns(const task *t, int64_t at, int64_t n)
{
    ebb_dtype dtype = t->x->dtype;
    bool keep = !t->log && ebb__is_compute_dtype(dtype);
    int64_t end = at + t->length * t->stride;
    ebb__lanes buf, result, tops, last; /* last: 1 / sum, or log(sum) */
    double sums[COLUMNS] = { 0 };
    fill(dtype, &tops, n, -INFINITY);
    for (int64_t k = at; k < end; k += t->stride) {
        apply(&larger, dtype, &tops, n, 0, &tops, load(t->x, k, n, &buf), NULL);
    }
    for (int64_t k = at; k < end; k += t->stride) {
        void *to = keep ? place(t->y, k, &result) : &result;
        apply(&exp_less_each, dtype, to, n, 0, load(t->x, k, n, &buf), &tops, NULL);
        ebb__lanes_add(sums, dtype, to, n);
    }
    from_sums(dtype, &last, n, sums, t->log ? log : inverse);
    for (int64_t k = at; k < end; k += t->stride) {
        const void *from = load(keep ? t->y : t->x, k, n, &buf);
        void *to = place(t->y, k, &result);
        if (t->log) {
            apply(&less_each, dtype, to, n, 0, from, &tops, &last);
        } else {
            if (!keep) apply(&exp_less_each, dtype, to, n, 0, from, &tops, NULL);
            apply(&times_each, dtype, to, n, 0, keep ? from : to, &last, NULL);
        }
        store(t->y, k, n, to);
    }
}

static void backward_columns(const task *t, int64_t at, int64_t n)
{
    ebb_dtype dtype = t->y->dtype;
    int64_t end = at + t->length * t->stride;
    ebb__lanes dy_buf, y_buf, product, last;
    double sums[COLUMNS] = { 0 };
    for (int64_t k = at; k < end; k += t->stride) {
        const void *dy = load(t->dy, k, n, &dy_buf);
        if (!t->log) apply(&times_each, dtype, &product, n, 0, dy, load(t->y, k, n, &y_buf), NULL);
        ebb__lanes_add(sums, dtype, t->log ? dy : &product, n);
    }
    from_sums(dtype, &last, n, sums, itself);
    for (int64_t k = at; k < end; k += t->stride) {
        const void *in[3] = { load(t->dy, k, n, &dy_buf), load(t->y, k, n, &y_buf), &last };
        write_gradient(t, t->log ? &log_softmax_grad_each : &softmax_grad_each, k, n, 0, in);
    }
}

/* ---- entry points --------------------------------------------------------------------------- */

static void forward_range(void *arg, int64_t begin, int64_t end, int thread)
{
    (void)thread;
    const task *t = arg;
    for (int64_t i = begin; i < end; i++) {
        int64_t columns, at = tile_at(t, i, &columns);
        if (t->stride == 1)
            forward_row(t, at);
        else
            forward_columns(t, at, columns);
    }
}

static void backward_range(void *arg, int64_t begin, int64_t end, int thread)
{
    (void)thread;
    const task *t = arg;
    for (int64_t i = begin; i < end; i++) {
        int64_t columns, at = tile_at(t, i, &columns);
        if (t->stride == 1)
            backward_row(t, at);
        else
            backward_columns(t, at, columns);
    }
}

static void run(const ebb_call *call, task *t, ebb_range_fn *fn)
{
    int64_t work =
        t->length * (t->stride < COLUMNS ? t->stride : COLUMNS); /* elements of an item */
    ebb_parallel(call, t->n, 4096 / (work + 1) + 1, fn, t);
}

static ebb_status forward(const ebb_call *call, bool log)
{
    task t = task_of(call, log);
    t.x = &call->in[0];
    t.y = &call->out[0];
    run(call, &t, forward_range);
    return EBB_OK;
}

static ebb_status backward(const ebb_call *call, bool log)
{
    if (!call->din[0].data) return EBB_OK;
    task t = task_of(call, log);
    t.y = &call->out[0];
    t.dy = &call->dout[0];
    t.dx = &call->din[0];
    t.accumulate = call->accumulate[0];
    run(call, &t, backward_range);
    return EBB_OK;
}

static ebb_status softmax_forward(const ebb_call *call) { return forward(call, false); }
static ebb_status softmax_backward(const ebb_call *call) { return backward(call, false); }
static ebb_status log_softmax_forward(const ebb_call *call) { return forward(call, true); }
static ebb_status log_softmax_backward(const ebb_call *call) { return backward(call, true); }

static void cost(const ebb_call *call, ebb_cost *cost) { ebb__cost_elementwise(call, cost, 20, 5); }

/* ---- cases ------------------------------------------------------------------------------- */

static const ebb__softmax_attrs last = {-1}, first = {0}, middle = {1}, beyond = {2}, below = {-3};
#define NORMAL(...) {{__VA_ARGS__, EBB_CASE_NORMAL, 0, false, false}}
#define STRIDED(...) {{__VA_ARGS__, EBB_CASE_NORMAL, 0, true, false}}
#define INDEX(...) {{__VA_ARGS__, EBB_CASE_INDEX, 9, false, false}}
#define ATTRS(name) &name, sizeof name
static const ebb_op_case cases[] = {
    {"rows of 17", 1, NORMAL(2, {5, 17}), ATTRS(last), EBB_OK},
    {"rows of 33", 1, NORMAL(3, {2, 3, 33}), ATTRS(last), EBB_OK},
    {"a row longer than a buffer", 1, NORMAL(2, {1, 1100}), ATTRS(last), EBB_OK},
    {"first axis", 1, NORMAL(2, {17, 5}), ATTRS(first), EBB_OK},
    {"more columns than a tile", 1, NORMAL(2, {3, 150}), ATTRS(first), EBB_OK},
    {"middle axis", 1, NORMAL(3, {3, 7, 4}), ATTRS(middle), EBB_OK},
    {"six dims", 1, NORMAL(6, {2, 3, 1, 2, 2, 1}), ATTRS(middle), EBB_OK},
    {"one element", 1, NORMAL(1, {1}), ATTRS(last), EBB_OK},
    {"no rows", 1, NORMAL(2, {0, 3}), ATTRS(last), EBB_OK},
    {"rows of nothing", 1, NORMAL(2, {3, 0}), ATTRS(last), EBB_OK},
    {"strided", 1, STRIDED(3, {3, 4, 5}), ATTRS(middle), EBB_OK},
    {"axis outside", 1, NORMAL(2, {2, 3}), ATTRS(beyond), EBB_EINVAL},
    {"axis below", 1, NORMAL(2, {2, 3}), ATTRS(below), EBB_EINVAL},
    {"a scalar", 1, NORMAL(0, {0}), ATTRS(last), EBB_ESHAPE},
    {"indices are refused", 1, INDEX(1, {3}), ATTRS(last), EBB_EDTYPE},
};

#define FLAGS (EBB_OP_INPLACE_OK | EBB_OP_GRAD_OVER_DOUT | EBB_OP_CHEAP)

const ebb_op ebb_op_softmax = {
    .name = "softmax", .min_in = 1, .max_in = 1, .n_out = 1, .flags = FLAGS, .needs = {EBB_OUT(0)},
    .infer = infer, .cost = cost, .cpu = {softmax_forward, softmax_backward, NULL},
    .cases = cases, .n_cases = (int)(sizeof cases / sizeof cases[0]),
    .autocast = EBB_AUTOCAST_F32,
};
const ebb_op ebb_op_log_softmax = {
    .name = "log_softmax", .min_in = 1, .max_in = 1, .n_out = 1,
    .flags = FLAGS, .needs = {EBB_OUT(0)},
    .infer = infer, .cost = cost, .cpu = {log_softmax_forward, log_softmax_backward, NULL},
    .cases = cases, .n_cases = (int)(sizeof cases / sizeof cases[0]),
    .autocast = EBB_AUTOCAST_F32,
};

ebb_status ebb_softmax(ebb_tensor **out, ebb_tensor *x, int axis)
{
    ebb__softmax_attrs attrs = { axis };
    return ebb__apply_one(&ebb_op_softmax, out, &x, 1, &attrs, sizeof attrs);
}
ebb_status ebb_log_softmax(ebb_tensor **out, ebb_tensor *x, int axis)
{
    ebb__softmax_attrs attrs = { axis };
    return ebb__apply_one(&ebb_op_log_softmax, out, &x, 1, &attrs, sizeof attrs);
}
