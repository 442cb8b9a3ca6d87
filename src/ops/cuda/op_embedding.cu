/* ops/cuda/op_embedding.cu: rows of a table by index; formulas in ops/op_embedding.c.
 *
 * Backward adds the dy rows of each table row in the order of their positions, so that sums repeat bit by
 * bit, without float atomics: integers are counted and put in order first.
 *   count   how many indices name each row (integer atomics: any order, one result)
 *   scan    where each row's places begin, and which rows are used
 *   place   a block per range of rows goes through all indices and notes the positions of its rows in order
 *   add     a block per used row and strip of columns adds up its dy rows
 * An index outside the table is reported in forward, gives zeros there, and counts nowhere in backward. */
#include "ops/cuda/index.h"
#include "ops/cuda/rows.h"
#include "ops/cuda/scratch.h"

enum { TABLE, INDEX };

typedef unsigned long long count_t; /* what atomicAdd takes */

typedef struct lookup {
    ebb__cuda_indices index;
    int64_t n, rows, cols; /* indices; of the table */
} lookup;

static lookup lookup_of(const ebb_call *call)
{
    const ebb_arg *table = &call->in[TABLE];
    return { ebb__cuda_indices_of(&call->in[INDEX]), call->in[INDEX].elems, table->dims[0], table->dims[1] };
}

/* ---- forward -------------------------------------------------------------------------------- */

template <class T, int THREADS>
EBB_ROW_KERNEL
copy_rows(T *y, const T *table, lookup l, unsigned *error, unsigned bad_index)
{
    EBB_EACH_ROW(THREADS, i, l.n) {
        int64_t row = ebb__index(l.index, i);
        bool inside = row >= 0 && row < l.rows;
        if (!inside && threadIdx.x % THREADS == 0) ebb__report(error, bad_index);
        EBB_EACH_TURN(T, THREADS, turn, l.cols) {
            ebb__real<T> v[turn.N] = {};
            if (inside) ebb__take(turn, table + row * l.cols, ebb__real<T>(0), v);
            ebb__give(turn, y + i * l.cols, v, false);
        }
    }
}

static ebb_status forward(void *self, const ebb_call *call)
{
    ebb__cuda *cuda = (ebb__cuda *)self;
    lookup l = lookup_of(call);
    const void *table = call->in[TABLE].data;
    void *y = call->out[0].data;
    unsigned *error = cuda->error, bad_index = ebb__cuda_bad_code(EBB__CUDA_ROW_embedding, EBB__CUDA_BAD_INDEX);
    EBB_FLOATS(cuda, call->in[TABLE].dtype, T, {
        EBB_ROW_LAUNCH(cuda, copy_rows, T, l.n, l.cols, (T *)y, (const T *)table, l, error, bad_index);
    });
    return EBB_OK;
}

/* ---- places ----------------------------------------------------------------------------------- */

enum {
    SCAN_THREADS = 1024,
    BATCH = EBB__CUDA_THREADS /* indices looked at together */
};

/* counts[row]: zeros before */
EBB_ROW_KERNEL count_places(count_t *counts, lookup l)
{
    EBB_GRID_STRIDE(i, l.n) {
        int64_t row = ebb__index(l.index, i);
        if (row >= 0 && row < l.rows) atomicAdd(counts + row, (count_t)1);
    }
}

/* The sum over threads before this one, and *total over all, of v. */
EBB_DEVICE int64_t sum_before(int64_t v, int64_t *total)
{
    __shared__ int64_t of_warp[SCAN_THREADS / 32];
    int lane = threadIdx.x % 32, warp = threadIdx.x / 32;
    int64_t sum = v;
#pragma unroll
    for (int d = 1; d < 32; d *= 2) {
        long long below = __shfl_up_sync(EBB__FULL_WARP, (long long)sum, d);
        if (lane >= d) sum += below;
    }
    if (lane == 31) of_warp[warp] = sum;
    __syncthreads();
    int64_t before = 0, all = 0;
    for (int k = 0; k < SCAN_THREADS / 32; k++) {
        if (k < warp) before += of_warp[k];
        all += of_warp[k];
    }
    __syncthreads();
    *total = all;
    return before + sum - v;
}

/* counts -> where each row's places begin, over them; one block */
EBB_KERNEL void __launch_bounds__(SCAN_THREADS)
scan_counts(int64_t *counts, int64_t *used, int64_t *n_used, int64_t rows)
{
    int64_t places = 0, rows_used = 0;
    for (int64_t first = 0; first < rows; first += SCAN_THREADS) {
        int64_t row = first + threadIdx.x, count = row < rows ? counts[row] : 0, all, all_used;
        int64_t begin = places + sum_before(count, &all);
        int64_t at = rows_used + sum_before(count > 0, &all_used);
        if (row < rows) counts[row] = begin;
        if (count > 0) used[at] = row;
        places += all;
        rows_used += all_used;
    }
    if (threadIdx.x == 0) {
        counts[rows] = places;
        *n_used = rows_used;
    }
}

/* Threads of the block before this one where `flag` is set, and *total of all; in the order of threads. */
EBB_DEVICE int flags_before(bool flag, int *total)
{
    __shared__ int of_warp[EBB__CUDA_THREADS / 32];
    int lane = threadIdx.x % 32, warp = threadIdx.x / 32;
    unsigned votes = __ballot_sync(EBB__FULL_WARP, flag);
    if (lane == 0) of_warp[warp] = __popc(votes);
    __syncthreads();
    int before = __popc(votes & ((1u << lane) - 1)), all = 0;
#pragma unroll
    for (int k = 0; k < EBB__CUDA_THREADS / 32; k++) {
        if (k < warp) before += of_warp[k];
        all += of_warp[k];
    }
    *total = all;
    return before;
}

/* Rows [blockIdx.x * per_block, ...): thread r notes the places of the range's row r. */
EBB_ROW_KERNEL
note_places(int64_t *places, const int64_t *begins, lookup l, int64_t per_block)
{
    __shared__ int row_of[BATCH];
    __shared__ int64_t place_of[BATCH];
    int64_t first_row = blockIdx.x * per_block, own = first_row + threadIdx.x;
    bool owns = threadIdx.x < per_block && own < l.rows;
    int64_t next = owns ? begins[own] : 0;
    for (int64_t first = 0; first < l.n; first += BATCH) {
        int64_t i = first + threadIdx.x, row = i < l.n ? ebb__index(l.index, i) - first_row : -1;
        bool found = row >= 0 && row < per_block && first_row + row < l.rows;
        int n, at = flags_before(found, &n);
        if (found) {
            row_of[at] = (int)row;
            place_of[at] = i;
        }
        __syncthreads();
        for (int k = 0; owns && k < n; k++) {
            if (row_of[k] == (int)threadIdx.x) places[next++] = place_of[k];
        }
        __syncthreads();
    }
}

/* ---- sums ------------------------------------------------------------------------------------- */

enum { STRIP = 32, SHARERS = 8 }; /* turns of a warp; warps that share a row's places */

/* One used row and one strip of 32 * N columns.  A warp adds up every eighth place, then warp 0 the warps'. */
template <class T>
EBB_KERNEL void __launch_bounds__(STRIP *SHARERS)
add_rows(T *dtable, const T *dy, const int64_t *places, const int64_t *begins, const int64_t *used,
         const int64_t *n_used, int64_t cols, bool accumulate)
{
    typedef ebb__real<T> R;
    typedef ebb__turn<T, STRIP> strip;
    __shared__ R sums[SHARERS][STRIP * strip::N];
    int warp = threadIdx.x / STRIP;
    for (int64_t k = blockIdx.x; k < *n_used; k += gridDim.x) {
        int64_t row = used[k], end = begins[row + 1];
        strip turn(cols);
        turn.first += (int64_t)blockIdx.y * STRIP * strip::N;
        R sum[strip::N] = {};
#pragma unroll 4
        for (int64_t at = begins[row] + warp; at < end && turn.more(); at += SHARERS) {
            R v[strip::N];
            ebb__take(turn, dy + places[at] * cols, R(0), v);
#pragma unroll
            for (int j = 0; j < strip::N; j++) sum[j] += v[j];
        }
#pragma unroll
        for (int j = 0; j < strip::N; j++) sums[warp][j * STRIP + threadIdx.x % STRIP] = sum[j];
        __syncthreads();
        if (warp == 0) {
#pragma unroll
            for (int j = 0; j < strip::N; j++) {
                for (int w = 1; w < SHARERS; w++) sum[j] += sums[w][j * STRIP + threadIdx.x];
            }
            if (turn.more()) ebb__give(turn, dtable + row * cols, sum, accumulate);
        }
        __syncthreads();
    }
}

template <class T>
static ebb_status add_all(ebb__cuda *cuda, const ebb_call *call, const lookup *l)
{
    const ebb__cuda_embedding_scratch s = ebb__cuda_embedding_layout(l->rows, l->n);
    char *scratch = (char *)call->workspace;
    const int64_t *places = (const int64_t *)(scratch + s.places), *begins = (const int64_t *)(scratch + s.ends);
    const int64_t *used = (const int64_t *)(scratch + s.used), *n_used = (const int64_t *)(scratch + s.n_used);
    T *dtable = (T *)call->din[TABLE].data;
    const T *dy = (const T *)call->dout[0].data;
    bool accumulate = call->accumulate[TABLE];
    int64_t cols = l->cols, strips = ebb__ceil_div(cols, STRIP * ebb__lane_elems<T>);
    dim3 grid = dim3(ebb__grid(cuda, l->rows < l->n ? l->rows : l->n, 1), (unsigned)strips);
    EBB_LAUNCH(cuda, add_rows<T>, grid, STRIP * SHARERS, 0, dtable, dy, places, begins, used, n_used, cols, accumulate);
    return EBB_OK;
}

/* Table rows of a block that notes places: a thread notes those of one row, and as every block goes through
 * all indices, there are not to be many more than 1024. */
static int64_t rows_per_block(int64_t rows)
{
    const int64_t least = 8, most = EBB__CUDA_THREADS;
    int64_t wanted = ebb__ceil_div(rows, 1024);
    return wanted < least ? least : wanted > most ? most : wanted;
}

static ebb_status sort_places(ebb__cuda *cuda, const ebb_call *call, const lookup *l)
{
    const ebb__cuda_embedding_scratch s = ebb__cuda_embedding_layout(l->rows, l->n);
    char *scratch = (char *)call->workspace;
    int64_t *places = (int64_t *)(scratch + s.places), *counts = (int64_t *)(scratch + s.ends);
    int64_t *used = (int64_t *)(scratch + s.used), *n_used = (int64_t *)(scratch + s.n_used);
    lookup by_value = *l;
    int64_t rows = l->rows, per_block = rows_per_block(rows);
    EBB__CUDA_TRY(cuda, cudaMemsetAsync(counts, 0, (size_t)rows * sizeof *counts, cuda->stream));
    EBB_LAUNCH(cuda, count_places, ebb__grid(cuda, l->n, EBB__CUDA_THREADS), EBB__CUDA_THREADS, 0, (count_t *)counts,
               by_value);
    EBB_LAUNCH(cuda, scan_counts, 1, SCAN_THREADS, 0, counts, used, n_used, rows);
    EBB_LAUNCH(cuda, note_places, (unsigned)ebb__ceil_div(rows, per_block), EBB__CUDA_THREADS, 0, places,
               (const int64_t *)counts, by_value, per_block);
    return EBB_OK;
}

static ebb_status backward(void *self, const ebb_call *call)
{
    ebb__cuda *cuda = (ebb__cuda *)self;
    lookup l = lookup_of(call);
    const ebb_arg *din = &call->din[TABLE];
    if (!din->data || call->in[TABLE].elems == 0) return EBB_OK;
    if (!call->accumulate[TABLE]) {
        size_t bytes = (size_t)call->in[TABLE].elems * ebb__cuda_float_bytes(call->in[TABLE].dtype);
        EBB__CUDA_TRY(cuda, cudaMemsetAsync(din->data, 0, bytes, cuda->stream));
    }
    if (l.n == 0) return EBB_OK;
    ebb_status st = sort_places(cuda, call, &l);
    if (st != EBB_OK) return st;
    EBB_FLOATS(cuda, call->in[TABLE].dtype, T, return add_all<T>(cuda, call, &l));
    return EBB_OK;
}

extern "C" const ebb__accel_op ebb_cuda_embedding = { "embedding", forward, backward };
