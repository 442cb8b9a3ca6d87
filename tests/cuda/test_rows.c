/* cuda/test_rows.c: shapes that ops' own cases are too small for: rows that a block shares, wide loads, sums by
 * parts, tiles of attention. */
#include "cuda/cuda_case.h"
#include "ops/attrs.h"
#include "support/support.h"

#include <ebb/ops.h>
#include <math.h>

#define NORMAL(...) {__VA_ARGS__, EBB_CASE_NORMAL, 0, false, false}
#define INDEX(max, ...) {__VA_ARGS__, EBB_CASE_INDEX, max, false, false}
#define LABEL(max, ...) {__VA_ARGS__, EBB_CASE_LABEL, max, false, false}
#define MASK(...) {__VA_ARGS__, EBB_CASE_MASK, 0, false, false}
#define ATTRS(name) &name, sizeof name

/* In two dtypes that divide the shape differently; ops' own cases go through all. */
static void check_cases(const char *name, const ebb_op_case *cases, int n, ebb_dtype other, double first_dout)
{
    const ebb_op *op = ebb_op_find(name);
    const ebb_dtype dtypes[] = { EBB_F32, other };
    with_context(ctx)
    {
        cuda_case_run run = { .ctx = ctx, .cuda = emulated_device_new(), .seeds = 1, .first_dout = first_dout };
        for (int k = 0; k < 2 * n; k++)
            cr_expect(cuda_case_check(&run, op, &cases[k / 2], dtypes[k % 2]), "%s refuses %s", name, cases[k / 2].name);
        emulated_device_free(run.cuda);
    }
}
#define CHECK(name, cases, other) check_cases(name, cases, (int)(sizeof(cases) / sizeof(cases)[0]), other, 0)

/* ---- rows -------------------------------------------------------------------------------- */

static const ebb__softmax_attrs last = {-1}, first = {0};
static const ebb_op_case softmax_cases[] = {
    {"a warp per row, wide", 1, {NORMAL(2, {21, 256})}, ATTRS(last), EBB_OK},
    {"a warp per row, odd", 1, {NORMAL(2, {21, 333})}, ATTRS(last), EBB_OK},
    {"a block per row, wide", 1, {NORMAL(2, {5, 2056})}, ATTRS(last), EBB_OK},
    {"a block per row, odd", 1, {NORMAL(2, {5, 3001})}, ATTRS(last), EBB_OK},
    {"a block per row, more rows than blocks", 1, {NORMAL(2, {49, 1028})}, ATTRS(last), EBB_OK},
    {"more rows than groups", 1, {NORMAL(2, {500, 8})}, ATTRS(last), EBB_OK},
    {"columns", 1, {NORMAL(2, {50, 70})}, ATTRS(first), EBB_OK},
    {"more tiles than blocks", 1, {NORMAL(2, {9, 2000})}, ATTRS(first), EBB_OK},
};
Test(cuda_rows, softmax) { CHECK("softmax", softmax_cases, EBB_BF16); }
Test(cuda_rows, log_softmax) { CHECK("log_softmax", softmax_cases, EBB_BF16); }

static const ebb__norm_attrs eps = {1e-5};
#define NORM(rows, cols) 3, {NORMAL(2, {rows, cols}), NORMAL(1, {cols}), NORMAL(1, {cols})}, ATTRS(eps), EBB_OK
static const ebb_op_case layernorm_cases[] = {
    {"a warp per row, wide", NORM(50, 64)},
    {"a warp per row, odd", NORM(50, 67)},
    {"a block per row, sums in shared memory", NORM(5, 768)},
    {"a block per row, odd", NORM(3, 1027)},
    {"a block per row, sums in the scratch", NORM(2, 6200)},
    {"many rows", NORM(300, 12)},
};
Test(cuda_rows, layernorm) { CHECK("layernorm", layernorm_cases, EBB_BF16); }

static const ebb_op_case rmsnorm_cases[] = {
    {"a warp per row", 2, {NORMAL(2, {50, 64}), NORMAL(1, {64})}, ATTRS(eps), EBB_OK},
    {"a block per row", 2, {NORMAL(2, {5, 1200}), NORMAL(1, {1200})}, ATTRS(eps), EBB_OK},
};
Test(cuda_rows, rmsnorm) { CHECK("rmsnorm", rmsnorm_cases, EBB_BF16); }

static const ebb_op_case mse_cases[] = {
    {"several turns of several blocks", 2, {NORMAL(2, {101, 409}), NORMAL(2, {101, 409})}, NULL, 0, EBB_OK},
    {"wide", 2, {NORMAL(1, {40960}), NORMAL(1, {40960})}, NULL, 0, EBB_OK},
};
Test(cuda_rows, mse) { CHECK("mse", mse_cases, EBB_BF16); }

static const ebb__dropout_attrs some = {0.3};
static const ebb_op_case dropout_cases[] = {
    {"a rest of three", 1, {NORMAL(1, {50003})}, ATTRS(some), EBB_OK},
};
Test(cuda_rows, dropout) { CHECK("dropout", dropout_cases, EBB_BF16); }

static const ebb__rope_attrs heads = {.head_dim = 72, .heads = 3, .base = 10000, .position = 100000},
                             far = {.head_dim = 8, .base = 500000, .position = INT64_C(1) << 40};
static const ebb_op_case rope_cases[] = {
    {"more than a warp's pairs", 1, {NORMAL(3, {3, 60, 360})}, ATTRS(heads), EBB_OK},
};
Test(cuda_rows, rope) { CHECK("rope", rope_cases, EBB_BF16); }

/* The angle's reduction is exact: what is left is the rounding of position times frequency, in f64 both times. */
static const ebb_op_case far_cases[] = {
    {"far positions", 1, {NORMAL(3, {1, 4, 8})}, ATTRS(far), EBB_OK},
};
Test(cuda_rows, rope_far_away) { CHECK("rope", far_cases, EBB_F64); }

/* ---- losses and tables ------------------------------------------------------------------- */

static const ebb__cross_entropy_attrs counted = {0};
static const ebb_op_case cross_entropy_cases[] = {
    {"a warp per row", 2, {NORMAL(2, {60, 65}), LABEL(65, 1, {60})}, ATTRS(counted), EBB_OK},
    {"a block per row, wide", 2, {NORMAL(2, {9, 2048}), LABEL(2048, 1, {9})}, ATTRS(counted), EBB_OK},
    {"a block per row, odd", 2, {NORMAL(2, {9, 1601}), LABEL(1601, 1, {9})}, ATTRS(counted), EBB_OK},
    {"more rows than adders", 2, {NORMAL(2, {2500, 3}), LABEL(3, 1, {2500})}, ATTRS(counted), EBB_OK},
};
Test(cuda_rows, cross_entropy) { CHECK("cross_entropy", cross_entropy_cases, EBB_BF16); }

static const ebb__linear_cross_entropy_attrs three = {0, 3};
static const ebb_op_case linear_cross_entropy_cases[] = {
    {"three parts", 3, {NORMAL(2, {40, 12}), NORMAL(2, {130, 12}), LABEL(130, 1, {40})}, ATTRS(three), EBB_OK},
};
Test(cuda_rows, linear_cross_entropy) { CHECK("linear_cross_entropy", linear_cross_entropy_cases, EBB_BF16); }

static const ebb_op_case embedding_cases[] = {
    {"characters", 2, {NORMAL(2, {9, 20}), INDEX(9, 1, {300})}, NULL, 0, EBB_OK},
    {"one row of the table", 2, {NORMAL(2, {1, 5}), INDEX(1, 1, {300})}, NULL, 0, EBB_OK},
    {"more rows than a scan's turn", 2, {NORMAL(2, {1100, 3}), INDEX(1100, 1, {300})}, NULL, 0, EBB_OK},
    {"several strips", 2, {NORMAL(2, {30, 300}), INDEX(30, 2, {9, 7})}, NULL, 0, EBB_OK},
    {"a block per row", 2, {NORMAL(2, {4, 1100}), INDEX(4, 1, {7})}, NULL, 0, EBB_OK},
};
Test(cuda_rows, embedding) { CHECK("embedding", embedding_cases, EBB_BF16); }

/* ---- products ---------------------------------------------------------------------------- */

static const ebb_op_case linear_cases[] = {
    {"bias sums by parts", 3, {NORMAL(2, {300, 5}), NORMAL(2, {70, 5}), NORMAL(1, {70})}, NULL, 0, EBB_OK},
};
Test(cuda_rows, linear) { CHECK("linear", linear_cases, EBB_BF16); }

static const ebb__matmul_attrs plain = {false, false}, swapped = {true, true};
static const ebb_op_case matmul_cases[] = {
    {"sums of many batches", 2, {NORMAL(2, {6, 7}), NORMAL(4, {5, 9, 7, 4})}, ATTRS(plain), EBB_OK},
    {"folded, and outer batches", 2, {NORMAL(4, {5, 9, 6, 7}), NORMAL(4, {1, 1, 7, 4})}, ATTRS(plain), EBB_OK},
    {"both broadcast, transposed", 2, {NORMAL(4, {1, 9, 7, 6}), NORMAL(4, {5, 1, 4, 7})}, ATTRS(swapped), EBB_OK},
};
Test(cuda_rows, matmul) { CHECK("matmul", matmul_cases, EBB_BF16); }

/* ---- attention --------------------------------------------------------------------------- */

static const ebb__attention_attrs one = {.heads = 1}, causal = {.heads = 2, .causal = true},
                                  grouped = {.heads = 4, .kv_heads = 2, .causal = true};
#define ATTENTION(t_q, t_k, row_q, row_kv) NORMAL(3, {1, t_q, row_q}), NORMAL(3, {1, t_k, row_kv}), NORMAL(3, {1, t_k, row_kv})
static const ebb_op_case attention_cases[] = {
    {"tiles and a rest, causal", 3, {ATTENTION(66, 70, 8, 8)}, ATTRS(causal), EBB_OK},
    {"more queries than keys, causal", 3, {ATTENTION(70, 20, 8, 8)}, ATTRS(causal), EBB_OK},
    {"grouped heads over tiles", 3, {ATTENTION(33, 33, 24, 12)}, ATTRS(grouped), EBB_OK},
    {"mask per row over tiles", 4, {ATTENTION(18, 66, 6, 6), MASK(3, {1, 18, 66})}, ATTRS(one), EBB_OK},
};
Test(cuda_rows, attention_tiles) { CHECK("attention", attention_cases, EBB_F64); }

/* A gradient that is NaN reaches the keys that its query sees, and no others. */
static const ebb_op_case nan_cases[] = {
    {"causal", 3, {ATTENTION(20, 20, 8, 8)}, ATTRS(causal), EBB_OK},
};
Test(cuda_rows, attention_of_a_nan_gradient) { check_cases("attention", nan_cases, 1, EBB_F64, NAN); }

static const ebb_op_case wide_cases[] = {
    {"a head of two slices", 3, {ATTENTION(5, 18, 72, 72)}, ATTRS(one), EBB_OK},
    {"a head that blocks share, odd", 3, {ATTENTION(5, 18, 133, 133)}, ATTRS(one), EBB_OK},
};
Test(cuda_rows, attention_of_wide_heads) { CHECK("attention", wide_cases, EBB_F64); }

static const ebb_op_case packed_cases[] = {
    {"tiles, causal", 1, {NORMAL(3, {1, 66, 24})}, ATTRS(causal), EBB_OK},
    {"grouped heads", 1, {NORMAL(3, {1, 34, 32})}, ATTRS(grouped), EBB_OK},
};
Test(cuda_rows, attention_packed) { CHECK("attention_packed", packed_cases, EBB_F64); }
