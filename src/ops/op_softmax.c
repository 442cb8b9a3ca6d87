/* ops/op_softmax.c: softmax and log-softmax along one axis.
 * softmax      y = exp(x - max) / sum       dx = y (dy - sum(dy y))
 * log_softmax  y = x - max - log(sum)       dx = dy - exp(y) sum(dy)
 * Backward reads y only.  A row of nothing but -inf gives NaN, as 0 / 0 does. */
#include <ebb/ops.h>
#include "ops/kernels.h"
#include "ops/table.h"
#include "ops/vmath.h"
#include "ops/walk.h"

typedef struct softmax_attrs { int64_t axis; } softmax_attrs; /* after infer(): not negative */

static ebb_status infer(ebb_call *call)
{
    ebb_status st = ebb__require_float(call);
    if (st != EBB_OK) return st;
    if (call->in[0].ndim == 0) return ebb_fail(EBB_ESHAPE, "%s: a scalar has no axis", call->op->name);
    st = ebb__resolve_axis(call, &EBB_ATTRS(call, softmax_attrs)->axis);
    return st == EBB_OK ? ebb__infer_like_first(call) : st;
}

/* ---- rows -------------------------------------------------------------------------------- */

/* Row r of a contiguous tensor: `length` elements, `stride` apart, from start(r) on. */
typedef struct rows {
    int64_t n, length, stride;
} rows;

static rows rows_of(const ebb_call *call)
{
    const ebb_arg *x = &call->out[0];
    int64_t axis = ((const softmax_attrs *)(const void *)call->attrs)->axis;
    rows r = {.length = x->dims[axis], .stride = 1};
    for (int d = (int)axis + 1; d < x->ndim; d++) r.stride *= x->dims[d];
    r.n = r.length ? x->elems / r.length : 0;
    return r;
}

static int64_t start(const rows *r, int64_t row)
{
    return row / r->stride * r->stride * r->length + row % r->stride;
}

/* lanes[i] = exp(lanes[i] - shift) from x */
static void exp_lanes(ebb_dtype dtype, void *to, const void *x, double shift, int64_t n)
{
    if (dtype == EBB_F64) {
        const double *from = x;
        for (int64_t i = 0; i < n; i++) ((double *)to)[i] = ebb__exp(from[i] - shift);
    } else {
        const float *from = x;
        float *out = to;
        const float s = (float)shift;
        EBB__IVDEP for (int64_t i = 0; i < n; i++) out[i] = ebb__expf(from[i] - s);
    }
}

/* to[i] = x[i] * factor + term */
static void affine_lanes(ebb_dtype dtype, void *to, const void *x, double factor, double term, int64_t n)
{
    if (dtype == EBB_F64) {
        const double *from = x;
        for (int64_t i = 0; i < n; i++) ((double *)to)[i] = from[i] * factor + term;
    } else {
        const float *from = x;
        float *out = to;
        const float f = (float)factor, t = (float)term;
        EBB__IVDEP for (int64_t i = 0; i < n; i++) out[i] = from[i] * f + t;
    }
}

typedef struct forward_task {
    const ebb_arg *x, *y;
    rows rows;
    bool log;
} forward_task;

/* A run of at most EBB__LANES elements of a row. */
#define EACH_RUN(length, i, n)                                                                       \
    for (int64_t i = 0, n = (length) < EBB__LANES ? (length) : EBB__LANES; n > 0;                    \
         i += n, n = (length) - i < EBB__LANES ? (length) - i : EBB__LANES)

/* The largest element, and the sum of exp(x - largest). */
static void row_statistics(const forward_task *task, int64_t at, double *top, double *sum)
{
    const ebb_arg *x = task->x;
    int64_t stride = task->rows.stride;
    ebb__lanes buf, exps;
    *top = -INFINITY;
    *sum = 0;
    EACH_RUN(task->rows.length, i, n) {
        const void *lanes = ebb__lanes_read(x->dtype, x->data, at + i * stride, stride, n, &buf);
        double here = ebb__lanes_max(x->dtype, lanes, n);
        *top = here > *top ? here : *top;
    }
    EACH_RUN(task->rows.length, i, n) {
        const void *lanes = ebb__lanes_read(x->dtype, x->data, at + i * stride, stride, n, &buf);
        exp_lanes(x->dtype, &exps, lanes, *top, n);
        *sum += ebb__lanes_sum(x->dtype, &exps, n);
        /* Softmax in a compute dtype keeps the exponentials in y; halves would lose bits there. */
        if (!task->log && ebb__is_compute_dtype(x->dtype)) {
            ebb__lanes_write(x->dtype, task->y->data, at + i * stride, stride, n, &exps);
        }
    }
}

static void forward_range(void *arg, int64_t begin, int64_t end, int thread)
{
    (void)thread;
    const forward_task *task = arg;
    ebb_dtype dtype = task->x->dtype;
    bool kept = !task->log && ebb__is_compute_dtype(dtype);
    const ebb_arg *from = kept ? task->y : task->x;
    int64_t stride = task->rows.stride;
    ebb__lanes buf;
    for (int64_t row = begin; row < end; row++) {
        int64_t at = start(&task->rows, row);
        double top, sum;
        row_statistics(task, at, &top, &sum);
        EACH_RUN(task->rows.length, i, n) {
            const void *lanes = ebb__lanes_read(dtype, from->data, at + i * stride, stride, n, &buf);
            if (task->log) {
                affine_lanes(dtype, &buf, lanes, 1, -top, n); /* first the large part, which is exact */
                affine_lanes(dtype, &buf, &buf, 1, -log(sum), n);
            } else {
                if (!kept) exp_lanes(dtype, &buf, lanes, top, n);
                affine_lanes(dtype, &buf, kept ? lanes : &buf, 1 / sum, 0, n);
            }
            ebb__lanes_write(dtype, task->y->data, at + i * stride, stride, n, &buf);
        }
    }
}

/* ---- backward ---------------------------------------------------------------------------- */

typedef struct backward_task {
    const ebb_arg *y, *dy, *dx;
    rows rows;
    bool accumulate, log;
} backward_task;

/* In: dy, y.  p: the row's sum. */
EBB__LANES_FN_2(softmax_grad_f32, float, b * (a - p))
EBB__LANES_FN_2(softmax_grad_f64, double, b * (a - p))
EBB__LANES_FN_2(log_softmax_grad_f32, float, a - ebb__expf(b) * p)
EBB__LANES_FN_2(log_softmax_grad_f64, double, a - ebb__exp(b) * p)

static void backward_range(void *arg, int64_t begin, int64_t end, int thread)
{
    (void)thread;
    const backward_task *t = arg;
    ebb_dtype dtype = t->y->dtype;
    ebb__lanes_fn *f32 = t->log ? log_softmax_grad_f32 : softmax_grad_f32;
    ebb__lanes_fn *f64 = t->log ? log_softmax_grad_f64 : softmax_grad_f64;
    int64_t stride = t->rows.stride;
    ebb__lanes dy_buf, y_buf, dx_buf;
    for (int64_t row = begin; row < end; row++) {
        int64_t at = start(&t->rows, row);
        double sum = 0;
        EACH_RUN(t->rows.length, i, n) {
            const void *dy = ebb__lanes_read(dtype, t->dy->data, at + i * stride, stride, n, &dy_buf);
            const void *y = t->log ? NULL : ebb__lanes_read(dtype, t->y->data, at + i * stride, stride, n, &y_buf);
            sum += t->log ? ebb__lanes_sum(dtype, dy, n) : ebb__lanes_dot(dtype, dy, y, n);
        }
        EACH_RUN(t->rows.length, i, n) {
            int64_t from = at + i * stride;
            const void *in[2] = {ebb__lanes_read(dtype, t->dy->data, from, stride, n, &dy_buf),
                                 ebb__lanes_read(dtype, t->y->data, from, stride, n, &y_buf)};
            const void *old = t->accumulate ? ebb__lanes_read(dtype, t->dx->data, from, stride, n, &dx_buf) : NULL;
            if (old && old != &dx_buf) affine_lanes(dtype, &dx_buf, old, 1, 0, n);
            (dtype == EBB_F64 ? f64 : f32)(&dx_buf, in, n, t->accumulate, &sum);
            ebb__lanes_write(dtype, t->dx->data, from, stride, n, &dx_buf);
        }
    }
}

/* ---- entry points ------------------------------------------------------------------------ */

static int64_t rows_per_thread(const rows *r) { return 4096 / (r->length + 1) + 1; }

static ebb_status forward(const ebb_call *call, bool log)
{
    forward_task task = {.x = &call->in[0], .y = &call->out[0], .rows = rows_of(call), .log = log};
    ebb_parallel(call, task.rows.n, rows_per_thread(&task.rows), forward_range, &task);
    return EBB_OK;
}

static ebb_status backward(const ebb_call *call, bool log)
{
    if (!call->din[0].data) return EBB_OK;
    backward_task task = {.y = &call->out[0], .dy = &call->dout[0], .dx = &call->din[0], .rows = rows_of(call),
                          .accumulate = call->accumulate[0], .log = log};
    ebb_parallel(call, task.rows.n, rows_per_thread(&task.rows), backward_range, &task);
    return EBB_OK;
}

static ebb_status softmax_forward(const ebb_call *call) { return forward(call, false); }
static ebb_status softmax_backward(const ebb_call *call) { return backward(call, false); }
static ebb_status log_softmax_forward(const ebb_call *call) { return forward(call, true); }
static ebb_status log_softmax_backward(const ebb_call *call) { return backward(call, true); }

static void cost(const ebb_call *call, ebb_cost *cost)
{
    ebb__cost_elementwise(call, cost, 20, 5);
}

/* ---- cases ------------------------------------------------------------------------------- */

static const softmax_attrs last = {-1}, first = {0}, middle = {1}, beyond = {2}, below = {-3};
#define NORMAL(...) {{__VA_ARGS__, EBB_CASE_NORMAL, 0, false, false}}
#define STRIDED(...) {{__VA_ARGS__, EBB_CASE_NORMAL, 0, true, false}}
#define INDEX(...) {{__VA_ARGS__, EBB_CASE_INDEX, 9, false, false}}
#define ATTRS(name) &name, sizeof name
static const ebb_op_case cases[] = {
    {"rows of 17", 1, NORMAL(2, {5, 17}), ATTRS(last), EBB_OK},
    {"rows of 33", 1, NORMAL(3, {2, 3, 33}), ATTRS(last), EBB_OK},
    {"a row longer than a buffer", 1, NORMAL(2, {1, 300}), ATTRS(last), EBB_OK},
    {"first axis", 1, NORMAL(2, {17, 5}), ATTRS(first), EBB_OK},
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
};
const ebb_op ebb_op_log_softmax = {
    .name = "log_softmax", .min_in = 1, .max_in = 1, .n_out = 1, .flags = FLAGS, .needs = {EBB_OUT(0)},
    .infer = infer, .cost = cost, .cpu = {log_softmax_forward, log_softmax_backward, NULL},
    .cases = cases, .n_cases = (int)(sizeof cases / sizeof cases[0]),
};

ebb_status ebb_softmax(ebb_tensor **out, ebb_tensor *x, int axis)
{
    softmax_attrs attrs = {axis};
    return ebb__apply_one(&ebb_op_softmax, out, &x, 1, &attrs, sizeof attrs);
}
ebb_status ebb_log_softmax(ebb_tensor **out, ebb_tensor *x, int axis)
{
    softmax_attrs attrs = {axis};
    return ebb__apply_one(&ebb_op_log_softmax, out, &x, 1, &attrs, sizeof attrs);
}
