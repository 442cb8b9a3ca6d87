/* ops/walk.c: strided iteration and what is built directly on it. */
#include "ops/walk.h"

#include "core/assert.h"
#include <string.h>

void ebb__walk_init(ebb__walk *walk, int ndim, const int64_t *dims)
{
    walk->ndim = ndim;
    walk->n_operands = 0;
    walk->elems = 1;
    for (int d = 0; d < ndim; d++) {
        walk->dims[d] = dims[d];
        walk->elems *= dims[d];
    }
}

void ebb__walk_add(ebb__walk *walk, int ndim, const int64_t *dims, const int64_t *strides)
{
    EBB_ASSERT(walk->n_operands < EBB__WALK_OPERANDS && ndim <= walk->ndim);
    int64_t *own = walk->strides[walk->n_operands++];
    int missing = walk->ndim - ndim;
    for (int d = 0; d < walk->ndim; d++) {
        bool repeated = d < missing || dims[d - missing] == 1;
        own[d] = repeated ? 0 : strides[d - missing];
    }
}

/* Whether dims d and d + 1 are one even dim for every operand. */
static bool mergeable(const ebb__walk *walk, int d)
{
    for (int k = 0; k < walk->n_operands; k++) {
        if (walk->strides[k][d] != walk->strides[k][d + 1] * walk->dims[d + 1]) return false;
    }
    return true;
}

static void move_dim(ebb__walk *walk, int to, int from)
{
    walk->dims[to] = walk->dims[from];
    for (int k = 0; k < walk->n_operands; k++) walk->strides[k][to] = walk->strides[k][from];
}

void ebb__walk_merge(ebb__walk *walk)
{
    int kept = 0;
    for (int d = 0; d < walk->ndim; d++) {
        if (walk->dims[d] != 1) move_dim(walk, kept++, d);
    }
    int top = 0; /* dims [0, top] are merged; a merged dim takes the strides of its last part */
    for (int d = 1; d < kept; d++) {
        if (d != top + 1) move_dim(walk, top + 1, d);
        if (mergeable(walk, top)) {
            int64_t length = walk->dims[top] * walk->dims[top + 1];
            move_dim(walk, top, top + 1);
            walk->dims[top] = length;
        } else {
            top++;
        }
    }
    walk->ndim = top + 1;
    if (kept == 0) {
        walk->dims[0] = 1;
        for (int k = 0; k < walk->n_operands; k++) walk->strides[k][0] = 1;
    }
}

/* Where element `at` of the row-major order stands. */
static void locate(const ebb__walk *walk, int64_t at, int64_t *index, int64_t *offsets)
{
    for (int k = 0; k < walk->n_operands; k++) offsets[k] = 0;
    for (int d = walk->ndim - 1; d >= 0; d--) {
        index[d] = at % walk->dims[d];
        at /= walk->dims[d];
        for (int k = 0; k < walk->n_operands; k++) offsets[k] += index[d] * walk->strides[k][d];
    }
}

void ebb__walk_range(const ebb__walk *walk, int64_t begin, int64_t end, int64_t longest,
                     ebb__run_fn *fn, void *arg)
{
    if (begin >= end) return;
    int last = walk->ndim - 1;
    int64_t index[EBB_MAX_DIMS], offsets[EBB__WALK_OPERANDS];
    locate(walk, begin, index, offsets);
    while (begin < end) {
        int64_t n = walk->dims[last] - index[last];
        if (n > end - begin) n = end - begin;
        if (n > longest) n = longest;
        fn(arg, offsets, n);
        begin += n;
        index[last] += n;
        for (int k = 0; k < walk->n_operands; k++) offsets[k] += n * walk->strides[k][last];
        for (int d = last; d > 0 && index[d] == walk->dims[d]; d--) {
            index[d] = 0;
            index[d - 1]++;
            for (int k = 0; k < walk->n_operands; k++) {
                offsets[k] += walk->strides[k][d - 1] - walk->dims[d] * walk->strides[k][d];
            }
        }
    }
}

/* ---- elementwise ------------------------------------------------------------------------- */

enum { ELEMENTS_PER_THREAD = 8192 }; /* fewer are not worth waking a thread */

typedef struct elementwise_task {
    const ebb__elementwise *job;
    ebb__walk walk; /* operand 0: out; then the inputs */
    int64_t longest;
    ebb__lanes_fn *fn;
} elementwise_task;

static void elementwise_run(void *arg, const int64_t *offsets, int64_t n)
{
    const elementwise_task *task = arg;
    const ebb__elementwise *job = task->job;
    ebb__lanes in_bufs[EBB__WALK_OPERANDS - 1], out_buf;
    const void *in[EBB__WALK_OPERANDS - 1];
    for (int k = 0; k < job->n_in; k++) {
        int64_t stride = ebb__walk_stride(&task->walk, k + 1);
        in[k] = ebb__lanes_read(job->in[k]->dtype, job->in[k]->data, offsets[k + 1], stride, n,
                                &in_bufs[k]);
    }
    const ebb_arg *to = job->out;
    int64_t to_stride = ebb__walk_stride(&task->walk, 0);
    if (ebb__is_compute_dtype(to->dtype) && to_stride == 1) {
        char *out = (char *)to->data + (size_t)offsets[0] * ebb_dtype_bytes(to->dtype);
        task->fn(out, in, n, job->accumulate, job->params);
        return;
    }
    if (job->accumulate) ebb__lanes_read(to->dtype, to->data, offsets[0], to_stride, n, &out_buf);
    task->fn(&out_buf, in, n, job->accumulate, job->params);
    ebb__lanes_write(to->dtype, to->data, offsets[0], to_stride, n, &out_buf);
}

static void elementwise_range(void *arg, int64_t begin, int64_t end, int thread)
{
    (void)thread;
    const elementwise_task *task = arg;
    ebb__walk_range(&task->walk, begin, end, task->longest, elementwise_run, arg);
}

void ebb__run_elementwise(const ebb_call *call, const ebb__elementwise *job)
{
    elementwise_task task = { .job = job };
    const ebb_arg *out = job->out;
    task.fn = out->dtype == EBB_F64 ? job->f64 : job->f32;
    ebb__walk_init(&task.walk, out->ndim, out->dims);
    ebb__walk_add(&task.walk, out->ndim, out->dims, out->strides);
    for (int k = 0; k < job->n_in; k++) {
        ebb__walk_add(&task.walk, job->in[k]->ndim, job->in[k]->dims, job->in[k]->strides);
    }
    ebb__walk_merge(&task.walk);
    bool in_place = ebb__is_compute_dtype(out->dtype); /* no buffer is needed: runs of any length */
    for (int k = 0; k <= job->n_in; k++)
        in_place = in_place && ebb__walk_stride(&task.walk, k) == 1;
    task.longest = in_place ? INT64_MAX : EBB__LANES;
    ebb_parallel(call, task.walk.elems, ELEMENTS_PER_THREAD, elementwise_range, &task);
}

/* ---- copies ------------------------------------------------------------------------------ */

typedef struct copy_task {
    ebb__walk walk; /* operand 0: to, 1: from */
    size_t elem_bytes;
    char *to;
    const char *from;
} copy_task;

#define COPY_RUN(T)                                                                                \
    do {                                                                                           \
        T *to = (T *)(void *)task->to + offsets[0];                                                \
        const T *from = (const T *)(const void *)task->from + offsets[1];                          \
        for (int64_t i = 0; i < n; i++) to[i * to_stride] = from[i * from_stride];                 \
    } while (0)

static void copy_run(void *arg, const int64_t *offsets, int64_t n)
{
    const copy_task *task = arg;
    int64_t to_stride = ebb__walk_stride(&task->walk, 0),
            from_stride = ebb__walk_stride(&task->walk, 1);
    size_t bytes = task->elem_bytes;
    if (to_stride == 1 && from_stride == 1) {
        memcpy(task->to + (size_t)offsets[0] * bytes, task->from + (size_t)offsets[1] * bytes,
               (size_t)n * bytes);
        return;
    }
    switch (bytes) {
    case 1: COPY_RUN(uint8_t); break;
    case 2: COPY_RUN(uint16_t); break;
    case 4: COPY_RUN(uint32_t); break;
    default: EBB_ASSERT(bytes == 8); COPY_RUN(uint64_t);
    }
}

static void copy_range(void *arg, int64_t begin, int64_t end, int thread)
{
    (void)thread;
    ebb__walk_range(&((copy_task *)arg)->walk, begin, end, INT64_MAX, copy_run, arg);
}

/* Transposed copies: `from` runs along another dim than `to`.  Squares of SQUARE by SQUARE elements
 * stay in the first-level cache, so each line is fetched once. */
enum { SQUARE = 32 };

#define COPY_SQUARE(T)                                                                             \
    do {                                                                                           \
        T *to = (T *)(void *)task->to + to_at;                                                     \
        const T *from = (const T *)(const void *)task->from + from_at;                             \
        for (int64_t i = 0; i < rows; i++) {                                                       \
            for (int64_t j = 0; j < columns; j++) to[i * to_row + j] = from[i + j * from_column];  \
        }                                                                                          \
    } while (0)

/* rows along the dim before the last, columns along the last. */
static void copy_square(const copy_task *task, int64_t to_at, int64_t from_at, int64_t rows,
                        int64_t columns)
{
    int last = task->walk.ndim - 1;
    int64_t to_row = task->walk.strides[0][last - 1], from_column = task->walk.strides[1][last];
    switch (task->elem_bytes) {
    case 1: COPY_SQUARE(uint8_t); break;
    case 2: COPY_SQUARE(uint16_t); break;
    case 4: COPY_SQUARE(uint32_t); break;
    default: EBB_ASSERT(task->elem_bytes == 8); COPY_SQUARE(uint64_t);
    }
}

/* An item: SQUARE rows of one matrix. */
static void copy_squares_range(void *arg, int64_t begin, int64_t end, int thread)
{
    (void)thread;
    const copy_task *task = arg;
    const ebb__walk *walk = &task->walk;
    int last = walk->ndim - 1;
    int64_t height = walk->dims[last - 1], width = walk->dims[last];
    int64_t strips = (height + SQUARE - 1) / SQUARE;
    for (int64_t item = begin; item < end; item++) {
        int64_t index[EBB_MAX_DIMS], offsets[EBB__WALK_OPERANDS], top = item % strips * SQUARE;
        locate(walk, (item / strips * height + top) * width, index, offsets);
        int64_t rows = height - top < SQUARE ? height - top : SQUARE;
        for (int64_t left = 0; left < width; left += SQUARE) {
            int64_t columns = width - left < SQUARE ? width - left : SQUARE;
            copy_square(task, offsets[0] + left, offsets[1] + left * walk->strides[1][last], rows,
                        columns);
        }
    }
}

/* Whether the merged walk is a transposition; then the dim along which `from` runs becomes the one
 * before the last (a copy may visit elements in any order). */
static bool arrange_squares(ebb__walk *walk)
{
    int last = walk->ndim - 1;
    if (walk->strides[0][last] != 1 || walk->strides[1][last] == 1) return false;
    for (int d = 0; d < last; d++) {
        if (walk->strides[1][d] != 1 || walk->dims[d] < 4) continue;
        int64_t length = walk->dims[d], to = walk->strides[0][d];
        for (int m = d; m + 1 < last; m++) move_dim(walk, m, m + 1);
        walk->dims[last - 1] = length;
        walk->strides[0][last - 1] = to;
        walk->strides[1][last - 1] = 1;
        return true;
    }
    return false;
}

EBB__LANES_FN_1(same_f32, float, a)
EBB__LANES_FN_1(same_f64, double, a)

void ebb__copy_or_add(const ebb_call *call, const ebb_arg *to, const ebb_arg *from, bool accumulate)
{
    if (accumulate) {
        ebb__elementwise job = { .out = to,
                                 .accumulate = true,
                                 .n_in = 1,
                                 .in = { from },
                                 .f32 = same_f32,
                                 .f64 = same_f64 };
        ebb__run_elementwise(call, &job);
        return;
    }
    copy_task task = { .elem_bytes = ebb_dtype_bytes(to->dtype),
                       .to = to->data,
                       .from = from->data };
    ebb__walk_init(&task.walk, to->ndim, to->dims);
    ebb__walk_add(&task.walk, to->ndim, to->dims, to->strides);
    ebb__walk_add(&task.walk, from->ndim, from->dims, from->strides);
    ebb__walk_merge(&task.walk);
    if (task.walk.elems && arrange_squares(&task.walk)) {
        int last = task.walk.ndim - 1;
        int64_t height = task.walk.dims[last - 1], width = task.walk.dims[last];
        int64_t items = task.walk.elems / (height * width) * ((height + SQUARE - 1) / SQUARE);
        ebb_parallel(call, items, ELEMENTS_PER_THREAD / (SQUARE * width) + 1, copy_squares_range,
                     &task);
    } else {
        ebb_parallel(call, task.walk.elems, ELEMENTS_PER_THREAD, copy_range, &task);
    }
}

/* ---- cost -------------------------------------------------------------------------------- */

static double arg_bytes(const ebb_arg *arg)
{
    return (double)arg->elems * (double)ebb_dtype_bytes(arg->dtype);
}

void ebb__cost_elementwise(const ebb_call *call, ebb_cost *cost, double fwd_flops, double bwd_flops)
{
    const ebb_op *op = call->op;
    double out_bytes = arg_bytes(&call->out[0]);
    *cost = (ebb_cost){ .fwd_flops = fwd_flops * (double)call->out[0].elems,
                        .bwd_flops = bwd_flops * (double)call->out[0].elems,
                        .fwd_bytes = out_bytes };
    for (int i = 0; i < call->n_in; i++) {
        cost->fwd_bytes += arg_bytes(&call->in[i]);
        if (op->no_grad_in & EBB_IN(i) || op->flags & EBB_OP_NO_GRAD) continue;
        cost->bwd_bytes += out_bytes + arg_bytes(&call->in[i]); /* reads dout, writes din */
        for (int k = 0; k < call->n_in; k++) {
            if (op->needs[i] & EBB_IN(k)) cost->bwd_bytes += arg_bytes(&call->in[k]);
        }
        if (op->needs[i] & EBB_OUT(0)) cost->bwd_bytes += out_bytes;
    }
}
