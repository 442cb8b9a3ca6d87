/* op_embedding.c: rows of a table by index.  table [V, C], index i32 or i64 [...] -> [..., C].
 * The gradient of the table is the sum of dy rows per index.  Threads own columns, and each goes
 * through the indices in order, so sums repeat bit by bit.  Half tables are summed in f32. */
#include <ebb/ops.h>
#include <string.h>
#include "ops/cuda/scratch.h"
#include "ops/halves.h"
#include "ops/index.h"
#include "ops/kernels.h"
#include "ops/lanes.h"
#include "ops/table.h"

enum { TABLE, INDEX };
enum { COPY_GRAIN = 1 << 13, COLS_AT_ONCE = 256 };

static ebb_status infer(ebb_call *call)
{
    const ebb_arg *table = &call->in[TABLE], *index = &call->in[INDEX];
    char text[96];
    ebb_status st = ebb__require_float_dtype(call, TABLE);
    if (st == EBB_OK) st = ebb__require_index_dtype(call, INDEX);
    if (st != EBB_OK) return st;
    if (table->ndim != 2) {
        return ebb_fail(EBB_ESHAPE, "embedding: the table is %s; it must be [V, C]",
                        ebb_arg_describe(table, text, sizeof text));
    }
    if (index->ndim >= EBB_MAX_DIMS) {
        return ebb_fail(EBB_ESHAPE, "embedding: the index is %s; it may have %d dims at most",
                        ebb_arg_describe(index, text, sizeof text), EBB_MAX_DIMS - 1);
    }
    int64_t dims[EBB_MAX_DIMS];
    memcpy(dims, index->dims, sizeof dims);
    dims[index->ndim] = table->dims[1];
    return ebb_arg_set(&call->out[0], table->dtype, index->ndim + 1, dims);
}

static void cost(const ebb_call *call, ebb_cost *k)
{
    double n = (double)call->out[0].elems, size = (double)ebb_dtype_bytes(call->in[TABLE].dtype);
    double table = (double)call->in[TABLE].elems * size;
    *k = (ebb_cost){ .bwd_flops = n, .fwd_bytes = 2 * n * size, .bwd_bytes = 3 * n * size + table };
}

static ebb_status check_indices(const ebb_call *call)
{
    const ebb_arg *index = &call->in[INDEX];
    int64_t rows = call->in[TABLE].dims[0];
    for (int64_t i = 0; i < index->elems; i++) {
        int64_t row = ebb__index_at(index, i);
        if (row >= 0 && row < rows) continue;
        return ebb_fail(EBB_EINVAL, "embedding: index %lld at position %lld is outside [0, %lld)", (long long)row,
                        (long long)i, (long long)rows);
    }
    return EBB_OK;
}

static void copy_rows(void *arg, int64_t begin, int64_t end, int thread)
{
    (void)thread;
    const ebb_call *call = arg;
    size_t row_bytes = (size_t)call->in[TABLE].dims[1] * ebb_dtype_bytes(call->in[TABLE].dtype);
    const char *table = call->in[TABLE].data;
    char *to = call->out[0].data;
    for (int64_t i = begin; i < end; i++) {
        memcpy(to + (size_t)i * row_bytes, table + (size_t)ebb__index_at(&call->in[INDEX], i) * row_bytes, row_bytes);
    }
}

static ebb_status forward(const ebb_call *call)
{
    ebb_status st = check_indices(call);
    if (st != EBB_OK || call->out[0].elems == 0) return st;
    ebb_parallel(call, call->in[INDEX].elems, 1 + COPY_GRAIN / call->in[TABLE].dims[1], copy_rows,
                 (void *)(uintptr_t)call);
    return EBB_OK;
}

/* ---- backward --------------------------------------------------------------------------------- */

/* Where sums go: the gradient itself, or f32 in place of halves. */
typedef struct target {
    const ebb_call *call;
    void *sums; /* [V, C] in the compute dtype */
} target;

static void add_f32(float *to, const float *from, int64_t n)
{
    EBB__IVDEP for (int64_t j = 0; j < n; j++) to[j] += from[j];
}

static void add_f64(double *to, const double *from, int64_t n)
{
    EBB__IVDEP for (int64_t j = 0; j < n; j++) to[j] += from[j];
}

/* Columns [begin, end) of all rows. */
static void add_columns(void *arg, int64_t begin, int64_t end, int thread)
{
    (void)thread;
    const target *t = arg;
    const ebb_arg *index = &t->call->in[INDEX], *dy = &t->call->dout[0];
    int64_t cols = t->call->in[TABLE].dims[1];
    for (int64_t i = 0; i < index->elems; i++) {
        int64_t to = ebb__index_at(index, i) * cols + begin, from = i * cols + begin, n = end - begin;
        if (dy->dtype == EBB_F64) {
            add_f64((double *)t->sums + to, (const double *)dy->data + from, n);
        } else if (dy->dtype == EBB_F32) {
            add_f32((float *)t->sums + to, (const float *)dy->data + from, n);
        } else {
            float wide[COLS_AT_ONCE];
            for (int64_t j = 0; j < n; j += COLS_AT_ONCE) {
                int64_t some = n - j < COLS_AT_ONCE ? n - j : COLS_AT_ONCE;
                ebb__halves_widen_row(wide, (const uint16_t *)dy->data + from + j, dy->dtype, some);
                add_f32((float *)t->sums + to + j, wide, some);
            }
        }
    }
}

static void clear_range(void *arg, int64_t begin, int64_t end, int thread)
{
    (void)thread;
    memset((char *)arg + begin, 0, (size_t)(end - begin));
}

static size_t workspace(const ebb_call *call, int pass, int threads)
{
    (void)threads;
    bool half = ebb__is_half(call->in[TABLE].dtype);
    return pass == EBB_BACKWARD && half ? (size_t)call->in[TABLE].elems * sizeof(float) : 0;
}

/* The indices in order of the rows they name. */
static size_t cuda_workspace(const ebb_call *call, int pass)
{
    if (pass == EBB_FORWARD || call->in[TABLE].elems == 0 || call->in[INDEX].elems == 0) return 0;
    return ebb__cuda_embedding_layout(call->in[TABLE].dims[0], call->in[INDEX].elems).total;
}

static ebb_status backward(const ebb_call *call)
{
    const ebb_arg *din = &call->din[TABLE];
    ebb_dtype dtype = call->in[TABLE].dtype;
    int64_t elems = call->in[TABLE].elems, n_rows = call->in[INDEX].elems;
    bool half = ebb__is_half(dtype);
    target t = { call, half ? call->workspace : din->data };
    if (!call->accumulate[TABLE]) {
        int64_t bytes = elems * (int64_t)(half ? sizeof(float) : ebb_dtype_bytes(dtype));
        ebb_parallel(call, bytes, 1 << 18, clear_range, t.sums);
    } else if (half) {
        ebb__halves_widen(call, t.sums, din->data, dtype, elems);
    }
    if (elems > 0) {
        int64_t grain = 16 + (1 << 13) / (n_rows + 1); /* columns: whole cache lines, and work that pays */
        ebb_parallel(call, call->in[TABLE].dims[1], grain, add_columns, &t);
    }
    if (half) ebb__halves_narrow(call, din->data, t.sums, dtype, elems);
    return EBB_OK;
}

static const ebb_op_case cases[] = {
    { .name = "a sequence", .n_in = 2, .in = { { 2, { 5, 3 } }, { 1, { 7 }, EBB_CASE_INDEX, 5 } } },
    { .name = "a batch", .n_in = 2, .in = { { 2, { 9, 37 } }, { 2, { 2, 6 }, EBB_CASE_INDEX, 9 } } },
    { .name = "one index", .n_in = 2, .in = { { 2, { 5, 3 } }, { 0, { 0 }, EBB_CASE_INDEX, 5 } } },
    { .name = "strided", .n_in = 2,
      .in = { { 2, { 5, 4 }, .strided = true }, { 2, { 3, 2 }, EBB_CASE_INDEX, 5, .strided = true } } },
    { .name = "no indices", .n_in = 2, .in = { { 2, { 5, 3 } }, { 2, { 0, 4 }, EBB_CASE_INDEX, 5 } } },
    { .name = "rows of nothing", .n_in = 2, .in = { { 2, { 5, 0 } }, { 1, { 4 }, EBB_CASE_INDEX, 5 } } },
    { .name = "table of three dims", .n_in = 2, .in = { { 3, { 5, 3, 2 } }, { 1, { 4 }, EBB_CASE_INDEX, 5 } },
      .expect = EBB_ESHAPE },
    { .name = "index of floats", .n_in = 2, .in = { { 2, { 5, 3 } }, { 1, { 4 } } }, .expect = EBB_EDTYPE },
};

const ebb_op ebb_op_embedding = {
    .name = "embedding", .min_in = 2, .max_in = 2, .n_out = 1, .no_grad_in = EBB_IN(INDEX),
    .needs = { [TABLE] = EBB_IN(INDEX) },
    .infer = infer, .cost = cost, .cpu = { forward, backward, workspace },
    .cuda_workspace = cuda_workspace,
    .cases = cases, .n_cases = sizeof cases / sizeof *cases,
};

ebb_status ebb_embedding(ebb_tensor **out, ebb_tensor *table, ebb_tensor *index)
{
    return ebb_apply(&ebb_op_embedding, (ebb_tensor **[]){ out }, 1, (ebb_tensor *[]){ table, index }, 2, NULL, 0);
}
