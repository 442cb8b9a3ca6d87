/* op_dropout.c: y = x / (1 - p), or 0 with probability p.
 * Element 4 i + w is decided by word w of Philox block rng_offset + i: 0 where the word is below
 * p * 2^32.  Backward draws the same words again, so no mask is saved. */
#include <ebb/ops.h>
#include <string.h>
#include "ops/attrs.h"
#include "ops/halves.h"
#include "ops/kernels.h"
#include "ops/lanes.h"
#include "ops/table.h"

enum {
    WORDS = 4,                     /* of a Philox block */
    BLOCKS_AT_ONCE = 16,
    ELEMS_AT_ONCE = WORDS * BLOCKS_AT_ONCE,
    GRAIN = 64                     /* groups of ELEMS_AT_ONCE per range */
};

static ebb_status infer(ebb_call *call)
{
    double p = EBB_ATTRS(call, ebb__dropout_attrs)->p;
    ebb_status st = ebb__require_float(call);
    if (st != EBB_OK) return st;
    if (!(p >= 0 && p <= 1)) return ebb_fail(EBB_EINVAL, "dropout: p is %g; it must be in [0, 1]", p);
    call->rng_offset = (uint64_t)(call->in[0].elems + WORDS - 1) / WORDS;
    return ebb__infer_like_first(call);
}

static void cost(const ebb_call *call, ebb_cost *k)
{
    double n = (double)call->in[0].elems, bytes = 2 * n * (double)ebb_dtype_bytes(call->in[0].dtype);
    *k = (ebb_cost){ .fwd_flops = 12 * n, .bwd_flops = 12 * n, .fwd_bytes = bytes, .bwd_bytes = bytes };
}

/* A 32-bit word of eight blocks, in 64-bit lanes: products need no widening then. */
typedef uint64_t lanes __attribute__((vector_size(64)));
enum { LANES = 8 };

/* Philox blocks first, first + 1, ...: words[WORDS * i + w] is word w of block first + i, as from
 * ebb__philox(). */
static void draw(uint64_t seed, uint64_t first, uint32_t words[WORDS * LANES])
{
    const lanes low = (lanes){ 0 } + 0xFFFFFFFFu;
    lanes counter = (lanes){ 0, 1, 2, 3, 4, 5, 6, 7 } + first;
    lanes c0 = counter & low, c1 = counter >> 32, c2 = { 0 }, c3 = { 0 };
    uint32_t k0 = (uint32_t)seed, k1 = (uint32_t)(seed >> 32);
    for (int round = 0; round < 10; round++) {
        lanes p0 = c0 * 0xD2511F53u, p1 = c2 * 0xCD9E8D57u;
        c0 = (p1 >> 32) ^ c1 ^ k0;
        c2 = (p0 >> 32) ^ c3 ^ k1;
        c1 = p1 & low;
        c3 = p0 & low;
        k0 += 0x9E3779B9u;
        k1 += 0xBB67AE85u;
    }
    for (int i = 0; i < LANES; i++) {
        words[WORDS * i] = (uint32_t)c0[i];
        words[WORDS * i + 1] = (uint32_t)c1[i];
        words[WORDS * i + 2] = (uint32_t)c2[i];
        words[WORDS * i + 3] = (uint32_t)c3[i];
    }
}

typedef struct job {
    const ebb_call *call;
    const void *x;
    void *y;
    bool accumulate;
    uint32_t threshold; /* words below it drop their element */
    bool drop_all;      /* p = 1 */
    double scale;
} job;

#define REAL float
#define F(name) name##_f32
#include "ops/dropout.inc"

#define REAL double
#define F(name) name##_f64
#include "ops/dropout.inc"

static void apply_halves(const job *j, int64_t first, int64_t n, const uint32_t *words)
{
    ebb_dtype dtype = j->call->in[0].dtype;
    float x[ELEMS_AT_ONCE], y[ELEMS_AT_ONCE];
    uint16_t *to = (uint16_t *)j->y + first;
    ebb__halves_widen_row(x, (const uint16_t *)j->x + first, dtype, n);
    if (j->accumulate) ebb__halves_widen_row(y, to, dtype, n);
    drop_f32(j, y, x, n, words);
    ebb__halves_narrow_row(to, y, dtype, n);
}

/* Groups of ELEMS_AT_ONCE elements. */
static void run_groups(void *arg, int64_t begin, int64_t end, int thread)
{
    (void)thread;
    const job *j = arg;
    const ebb_arg *in = &j->call->in[0];
    uint32_t words[ELEMS_AT_ONCE];
    for (int64_t group = begin; group < end; group++) {
        int64_t first = group * ELEMS_AT_ONCE;
        int64_t n = in->elems - first < ELEMS_AT_ONCE ? in->elems - first : ELEMS_AT_ONCE;
        for (int i = 0; i < BLOCKS_AT_ONCE; i += LANES) {
            uint64_t block = j->call->rng_offset + (uint64_t)(group * BLOCKS_AT_ONCE + i);
            draw(j->call->rng_seed, block, words + WORDS * i);
        }
        if (in->dtype == EBB_F32) drop_f32(j, (float *)j->y + first, (const float *)j->x + first, n, words);
        else if (in->dtype == EBB_F64) drop_f64(j, (double *)j->y + first, (const double *)j->x + first, n, words);
        else apply_halves(j, first, n, words);
    }
}

static ebb_status run(const ebb_call *call, const void *x, void *y, bool accumulate)
{
    double p = EBB_ATTRS(call, ebb__dropout_attrs)->p, threshold = p * 0x1p32;
    bool drop_all = threshold >= 0x1p32; /* p = 1, or nothing but rounding below it */
    job j = { .call = call, .x = x, .y = y, .accumulate = accumulate, .drop_all = drop_all,
              .threshold = drop_all ? 0 : (uint32_t)threshold, .scale = drop_all ? 0 : 1 / (1 - p) };
    ebb_parallel(call, (call->in[0].elems + ELEMS_AT_ONCE - 1) / ELEMS_AT_ONCE, GRAIN, run_groups, &j);
    return EBB_OK;
}

static ebb_status forward(const ebb_call *call) { return run(call, call->in[0].data, call->out[0].data, false); }

static ebb_status backward(const ebb_call *call)
{
    return run(call, call->dout[0].data, call->din[0].data, call->accumulate[0]);
}

static const ebb__dropout_attrs none = { .p = 0 }, some = { .p = 0.3 }, everything = { .p = 1 },
                                too_much = { .p = 1.5 };
#define WITH(a) .attrs = &(a), .attrs_bytes = sizeof(ebb__dropout_attrs)

static const ebb_op_case cases[] = {
    { .name = "some dropped", .n_in = 1, .in = { { 2, { 9, 11 } } }, WITH(some) },
    { .name = "none dropped", .n_in = 1, .in = { { 1, { 13 } } }, WITH(none) },
    { .name = "all dropped", .n_in = 1, .in = { { 1, { 13 } } }, WITH(everything) },
    { .name = "scalar", .n_in = 1, .in = { { 0, { 0 } } }, WITH(some) },
    { .name = "strided", .n_in = 1, .in = { { 3, { 2, 3, 5 }, .strided = true } }, WITH(some) },
    { .name = "nothing", .n_in = 1, .in = { { 2, { 0, 4 } } }, WITH(some) },
    { .name = "p above 1", .n_in = 1, .in = { { 1, { 3 } } }, WITH(too_much), .expect = EBB_EINVAL },
};

const ebb_op ebb_op_dropout = {
    .name = "dropout", .min_in = 1, .max_in = 1, .n_out = 1,
    .flags = EBB_OP_RANDOM | EBB_OP_INPLACE_OK | EBB_OP_GRAD_OVER_DOUT | EBB_OP_CHEAP,
    .infer = infer, .cost = cost, .cpu = { forward, backward, NULL },
    .cases = cases, .n_cases = sizeof cases / sizeof *cases,
};

ebb_status ebb_dropout(ebb_tensor **out, ebb_tensor *x, double p)
{
    if (p == 0 && x && ebb_dtype_is_float(ebb_tensor_dtype(x))) { /* x itself: no node, no bytes */
        ebb_bind(out, x);
        return EBB_OK;
    }
    ebb__dropout_attrs at = { .p = p };
    return ebb_apply(&ebb_op_dropout, (ebb_tensor **[]){ out }, 1, (ebb_tensor *[]){ x }, 1, &at, sizeof at);
}
