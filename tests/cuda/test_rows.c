/* cuda/test_rows.c: shapes that ops' own cases are too small for: rows that a block shares, wide loads, sums by
 * parts, tiles of attention; and halves, where the CPU has no kernels of its own: against its f32. */
#include "cuda/cuda_case.h"
#include "ops/attrs.h"
#include "support/support.h"

#include <ebb/ops.h>

#define NORMAL(...) {__VA_ARGS__, EBB_CASE_NORMAL, 0, false, false}
#define INDEX(max, ...) {__VA_ARGS__, EBB_CASE_INDEX, max, false, false}
#define LABEL(max, ...) {__VA_ARGS__, EBB_CASE_LABEL, max, false, false}
#define MASK(...) {__VA_ARGS__, EBB_CASE_MASK, 0, false, false}
#define ATTRS(name) &name, sizeof name
#define COUNT(table) ((int)(sizeof(table) / sizeof(table)[0]))

/* In every dtype that the op takes on the CPU. */
static void check_cases(const char *name, const ebb_op_case *cases, int n)
{
    const ebb_op *op = ebb_op_find(name);
    with_context(ctx)
    {
        cuda_case_run run = { .ctx = ctx, .cuda = emulated_device_new(), .seeds = 1 };
        for (int dtype = EBB_F32; dtype <= EBB_BF16; dtype++) {
            for (int k = 0; k < n; k++) {
                bool taken = cuda_case_check(&run, op, &cases[k], (ebb_dtype)dtype);
                cr_expect(taken || dtype > EBB_F64, "%s refuses %s", name, cases[k].name);
            }
        }
        emulated_device_free(run.cuda);
    }
}

/* ---- rows -------------------------------------------------------------------------------- */

static const ebb__softmax_attrs last = {-1}, first = {0};
static const ebb_op_case softmax_cases[] = {
    {"a warp per row, wide", 1, {NORMAL(2, {21, 256})}, ATTRS(last), EBB_OK},
    {"a warp per row, odd", 1, {NORMAL(2, {21, 333})}, ATTRS(last), EBB_OK},
    {"a block per row, wide", 1, {NORMAL(2, {5, 2056})}, ATTRS(last), EBB_OK},
    {"a block per row, odd", 1, {NORMAL(2, {5, 3001})}, ATTRS(last), EBB_OK},
    {"more rows than groups", 1, {NORMAL(2, {500, 8})}, ATTRS(last), EBB_OK},
    {"columns", 1, {NORMAL(2, {50, 70})}, ATTRS(first), EBB_OK},
    {"more tiles than blocks", 1, {NORMAL(2, {9, 2000})}, ATTRS(first), EBB_OK},
};
Test(cuda_rows, softmax) { check_cases("softmax", softmax_cases, COUNT(softmax_cases)); }
Test(cuda_rows, log_softmax) { check_cases("log_softmax", softmax_cases, COUNT(softmax_cases)); }

static const ebb__norm_attrs eps = {1e-5};
#define NORM(rows, cols) 3, {NORMAL(2, {rows, cols}), NORMAL(1, {cols}), NORMAL(1, {cols})}, ATTRS(eps), EBB_OK
static const ebb_op_case layernorm_cases[] = {
    {"a warp per row, wide", NORM(50, 64)},
    {"a warp per row, odd", NORM(50, 67)},
    {"a block per row, sums in shared memory", NORM(21, 768)},
    {"a block per row, odd", NORM(21, 1027)},
    {"a block per row, sums in the scratch", NORM(17, 6200)},
    {"many rows", NORM(900, 12)},
};
Test(cuda_rows, layernorm) { check_cases("layernorm", layernorm_cases, COUNT(layernorm_cases)); }

static const ebb_op_case rmsnorm_cases[] = {
    {"a warp per row", 2, {NORMAL(2, {50, 64}), NORMAL(1, {64})}, ATTRS(eps), EBB_OK},
    {"a block per row", 2, {NORMAL(2, {21, 1200}), NORMAL(1, {1200})}, ATTRS(eps), EBB_OK},
};
Test(cuda_rows, rmsnorm) { check_cases("rmsnorm", rmsnorm_cases, COUNT(rmsnorm_cases)); }

static const ebb_op_case mse_cases[] = {
    {"several turns of several blocks", 2, {NORMAL(2, {101, 409}), NORMAL(2, {101, 409})}, NULL, 0, EBB_OK},
    {"wide", 2, {NORMAL(1, {40960}), NORMAL(1, {40960})}, NULL, 0, EBB_OK},
};
Test(cuda_rows, mse) { check_cases("mse", mse_cases, COUNT(mse_cases)); }

static const ebb__dropout_attrs some = {0.3};
static const ebb_op_case dropout_cases[] = {
    {"a rest of three", 1, {NORMAL(1, {50003})}, ATTRS(some), EBB_OK},
};
Test(cuda_rows, dropout) { check_cases("dropout", dropout_cases, COUNT(dropout_cases)); }

static const ebb__rope_attrs heads = {.head_dim = 72, .heads = 3, .base = 10000, .position = 100000},
                             far = {.head_dim = 8, .base = 500000, .position = INT64_C(1) << 40};
static const ebb_op_case rope_cases[] = {
    {"more than a warp's pairs", 1, {NORMAL(3, {3, 60, 360})}, ATTRS(heads), EBB_OK},
};
Test(cuda_rows, rope) { check_cases("rope", rope_cases, COUNT(rope_cases)); }

/* A position of 2^40 is exact to its last bit in the angle, as far as f64 goes. */
static const ebb_op_case far_cases[] = {
    {"far positions", 1, {NORMAL(3, {1, 4, 8})}, ATTRS(far), EBB_OK},
};
Test(cuda_rows, rope_far_away)
{
    with_context(ctx)
    {
        cuda_case_run run = { .ctx = ctx, .cuda = emulated_device_new(), .seeds = 1 };
        cr_expect(cuda_case_check(&run, ebb_op_find("rope"), &far_cases[0], EBB_F32));
        emulated_device_free(run.cuda);
    }
}

/* ---- losses and tables ------------------------------------------------------------------- */

static const ebb__cross_entropy_attrs counted = {0};
static const ebb_op_case cross_entropy_cases[] = {
    {"a warp per row", 2, {NORMAL(2, {60, 65}), LABEL(65, 1, {60})}, ATTRS(counted), EBB_OK},
    {"a block per row, wide", 2, {NORMAL(2, {20, 2048}), LABEL(2048, 1, {20})}, ATTRS(counted), EBB_OK},
    {"a block per row, odd", 2, {NORMAL(2, {20, 1601}), LABEL(1601, 1, {20})}, ATTRS(counted), EBB_OK},
    {"more rows than adders", 2, {NORMAL(2, {2500, 3}), LABEL(3, 1, {2500})}, ATTRS(counted), EBB_OK},
};
Test(cuda_rows, cross_entropy) { check_cases("cross_entropy", cross_entropy_cases, COUNT(cross_entropy_cases)); }

static const ebb__linear_cross_entropy_attrs three = {0, 3};
static const ebb_op_case linear_cross_entropy_cases[] = {
    {"three parts", 3, {NORMAL(2, {40, 12}), NORMAL(2, {130, 12}), LABEL(130, 1, {40})}, ATTRS(three), EBB_OK},
};
Test(cuda_rows, linear_cross_entropy)
{
    check_cases("linear_cross_entropy", linear_cross_entropy_cases, COUNT(linear_cross_entropy_cases));
}

static const ebb_op_case embedding_cases[] = {
    {"characters", 2, {NORMAL(2, {9, 48}), INDEX(9, 1, {700})}, NULL, 0, EBB_OK},
    {"one row of the table", 2, {NORMAL(2, {1, 5}), INDEX(1, 1, {300})}, NULL, 0, EBB_OK},
    {"more rows than a scan's turn", 2, {NORMAL(2, {2600, 3}), INDEX(2600, 1, {1500})}, NULL, 0, EBB_OK},
    {"several strips", 2, {NORMAL(2, {30, 300}), INDEX(30, 2, {9, 7})}, NULL, 0, EBB_OK},
    {"a block per row", 2, {NORMAL(2, {12, 1100}), INDEX(12, 1, {20})}, NULL, 0, EBB_OK},
};
Test(cuda_rows, embedding) { check_cases("embedding", embedding_cases, COUNT(embedding_cases)); }

/* ---- products ---------------------------------------------------------------------------- */

static const ebb_op_case linear_cases[] = {
    {"bias sums by parts", 3, {NORMAL(2, {300, 5}), NORMAL(2, {70, 5}), NORMAL(1, {70})}, NULL, 0, EBB_OK},
};
Test(cuda_rows, linear) { check_cases("linear", linear_cases, COUNT(linear_cases)); }

static const ebb__matmul_attrs plain = {false, false}, swapped = {true, true};
static const ebb_op_case matmul_cases[] = {
    {"sums of many batches", 2, {NORMAL(2, {6, 7}), NORMAL(4, {5, 9, 7, 4})}, ATTRS(plain), EBB_OK},
    {"folded, and outer batches", 2, {NORMAL(4, {5, 9, 6, 7}), NORMAL(4, {1, 1, 7, 4})}, ATTRS(plain), EBB_OK},
    {"both broadcast, transposed", 2, {NORMAL(4, {1, 9, 7, 6}), NORMAL(4, {5, 1, 4, 7})}, ATTRS(swapped), EBB_OK},
};
Test(cuda_rows, matmul) { check_cases("matmul", matmul_cases, COUNT(matmul_cases)); }

/* ---- attention --------------------------------------------------------------------------- */

static const ebb__attention_attrs one = {.heads = 1}, causal = {.heads = 2, .causal = true},
                                  grouped = {.heads = 4, .kv_heads = 2, .causal = true};
#define ATTENTION(t_q, t_k, row_q, row_kv) NORMAL(3, {1, t_q, row_q}), NORMAL(3, {1, t_k, row_kv}), NORMAL(3, {1, t_k, row_kv})
static const ebb_op_case attention_cases[] = {
    {"tiles and a rest, causal", 3, {ATTENTION(70, 133, 16, 16)}, ATTRS(causal), EBB_OK},
    {"more queries than keys, causal", 3, {ATTENTION(100, 40, 16, 16)}, ATTRS(causal), EBB_OK},
    {"grouped heads over tiles", 3, {ATTENTION(67, 67, 48, 24)}, ATTRS(grouped), EBB_OK},
    {"mask per row over tiles", 4, {ATTENTION(66, 90, 6, 6), MASK(3, {1, 66, 90})}, ATTRS(one), EBB_OK},
};
Test(cuda_rows, attention_tiles) { check_cases("attention", attention_cases, COUNT(attention_cases)); }

static const ebb_op_case wide_cases[] = {
    {"a head of two slices", 3, {ATTENTION(18, 20, 72, 72)}, ATTRS(one), EBB_OK},
    {"a head that blocks share, odd", 3, {ATTENTION(18, 34, 133, 133)}, ATTRS(one), EBB_OK},
};
Test(cuda_rows, attention_of_wide_heads) { check_cases("attention", wide_cases, COUNT(wide_cases)); }

static const ebb_op_case packed_cases[] = {
    {"tiles, causal", 1, {NORMAL(3, {2, 70, 48})}, ATTRS(causal), EBB_OK},
    {"grouped heads", 1, {NORMAL(3, {1, 66, 64})}, ATTRS(grouped), EBB_OK},
};
Test(cuda_rows, attention_packed) { check_cases("attention_packed", packed_cases, COUNT(packed_cases)); }
