/* Attention tile by tile, the T x T scores never in memory (Dao et al., arXiv 2205.14135).
 *
 * Forward, per head and tile of query rows: over tiles of keys, scores S = q k^T, a running maximum
 * and sum per row, out = sum of exp(S - max) v, rescaled as the maximum grows.
 * Backward, per head and tile of query rows, with P = exp(S - lse) found again and
 * delta = rowsum(dout * out):
 *   dv += P^T dout,  dP = dout v^T,  dS = P * (dP - delta) * scale,  dq += dS k,  dk += dS^T q.
 * The query heads that share a kv head are worked on by one thread, so sums need no atomics.
 * Tiles above the diagonal are skipped. */
#include "ops/attention.h"

#include "ops/lanes.h"
#include "ops/rows.h"

/* Of 32 to 128 by 64 to 256, the fastest over causal and full, T = 256 and 1024, D = 64: smaller tiles
 * waste less above the diagonal, larger ones make faster products. */
enum { TILE_Q = 64, TILE_K = 128 };

static int64_t min64(int64_t a, int64_t b) { return a < b ? a : b; }
static int64_t max64(int64_t a, int64_t b) { return a > b ? a : b; }

static int64_t tile_q(const ebb__attention *a) { return min64(a->t_q, TILE_Q); }
static int64_t tile_k(const ebb__attention *a) { return min64(a->t_k, TILE_K); }

/* Elements of one thread's scratch, in whole cache lines: two tiles of scores, a tile of rows of
 * head_dim, and two numbers per row. */
typedef struct scratch_layout {
    int64_t scores, second_scores, rows, row_a, row_b, total;
} scratch_layout;

static int64_t lines(int64_t elems) { return (elems + 15) / 16 * 16; }

static scratch_layout layout(const ebb__attention *a, int pass)
{
    scratch_layout l = { 0 };
    int64_t scores = lines(tile_q(a) * tile_k(a));
    l.second_scores = l.scores + scores;
    l.rows = l.second_scores + (pass == EBB_BACKWARD ? scores : 0);
    l.row_a = l.rows + lines(tile_q(a) * a->head_dim);
    l.row_b = l.row_a + lines(tile_q(a));
    l.total = l.row_b + lines(tile_q(a));
    return l;
}

size_t ebb__attention_workspace(const ebb__attention *a, int pass, int threads)
{
    return (size_t)threads * (size_t)layout(a, pass).total * ebb_dtype_bytes(a->dtype);
}

/* Columns that rows [0, i] may see at most. */
static int64_t visible_columns(const ebb__attention *a, int64_t i)
{
    if (!a->causal) return a->t_k;
    return max64(0, min64(a->t_k, i + (a->t_k - a->t_q) + 1));
}

#define REAL float
#define F(name) name##_f32
#define DTYPE EBB_F32
#include "ops/attention.inc"

#define REAL double
#define F(name) name##_f64
#define DTYPE EBB_F64
#include "ops/attention.inc"

/* Forward divides by tiles of query rows, backward by kv heads. */
void ebb__attention_forward(const ebb__attention *a)
{
    int64_t tiles = (a->t_q + TILE_Q - 1) / TILE_Q;
    ebb_parallel(a->call, a->batch * a->heads * tiles, 1, a->dtype == EBB_F64 ? forward_tiles_f64 : forward_tiles_f32,
                 (void *)(uintptr_t)a);
}

void ebb__attention_backward(const ebb__attention *a)
{
    ebb_parallel(a->call, a->batch * a->kv_heads, 1, a->dtype == EBB_F64 ? backward_heads_f64 : backward_heads_f32,
                 (void *)(uintptr_t)a);
}
