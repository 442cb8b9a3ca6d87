/* cuda/test_larger.c: shapes that ops' own cases are too small for: wide loads and what is left behind them,
 * sums shared by warps, blocks and several blocks, transposed copies of many squares. */
#include "cuda/cuda_case.h"
#include "ops/attrs.h"
#include "ops/cuda/reduce_plan.h"
#include "support/support.h"

#include <ebb/ops.h>

#define NORMAL(...) {__VA_ARGS__, EBB_CASE_NORMAL, 0, false, false}
#define STRIDED(...) {__VA_ARGS__, EBB_CASE_NORMAL, 0, true, false}
#define POSITIVE(...) {__VA_ARGS__, EBB_CASE_POSITIVE, 0, false, false}
#define ATTRS(name) &name, sizeof name
#define COUNT(table) ((int)(sizeof(table) / sizeof(table)[0]))

static void check_cases(const char *name, const ebb_op_case *cases, int n)
{
    const ebb_op *op = ebb_op_find(name);
    with_context(ctx)
    {
        cuda_case_run run = { .ctx = ctx, .cuda = emulated_device_new(), .seeds = 1 };
        for (int dtype = EBB_F32; dtype <= EBB_BF16; dtype++)
            for (int k = 0; k < n; k++)
                cr_expect(cuda_case_check(&run, op, &cases[k], (ebb_dtype)dtype), "%s refuses %s", name, cases[k].name);
        emulated_device_free(run.cuda);
    }
}

/* ---- elementwise ------------------------------------------------------------------------- */

static const ebb_op_case unary_cases[] = {
    {"wide, and a rest", 1, {NORMAL(1, {16 * 1024 + 5})}, NULL, 0, EBB_OK},
    {"more than the grid", 1, {NORMAL(2, {72, 256})}, NULL, 0, EBB_OK},
};
Test(cuda_larger, unary_ops)
{
    check_cases("silu", unary_cases, COUNT(unary_cases));
    check_cases("exp", unary_cases, COUNT(unary_cases));
}

static const ebb_op_case binary_cases[] = {
    {"rows and a row, wide", 2, {NORMAL(2, {70, 64}), POSITIVE(1, {64})}, NULL, 0, EBB_OK},
    {"a row and rows, odd", 2, {NORMAL(1, {67}), POSITIVE(2, {70, 67})}, NULL, 0, EBB_OK},
    {"rows and a column", 2, {NORMAL(2, {40, 72}), POSITIVE(2, {40, 1})}, NULL, 0, EBB_OK},
    {"rows and a scalar", 2, {NORMAL(2, {90, 128}), POSITIVE(0, {0})}, NULL, 0, EBB_OK},
    {"many rows and a row: shared sums", 2, {NORMAL(2, {700, 40}), POSITIVE(1, {40})}, NULL, 0, EBB_OK},
    {"both broadcast, wide", 2, {NORMAL(3, {6, 1, 32}), POSITIVE(3, {1, 5, 32})}, NULL, 0, EBB_OK},
    {"batches and a matrix", 2, {NORMAL(3, {9, 16, 24}), POSITIVE(2, {16, 24})}, NULL, 0, EBB_OK},
    {"strided rows and a row", 2, {STRIDED(3, {8, 16, 24}), POSITIVE(1, {24})}, NULL, 0, EBB_OK},
};
Test(cuda_larger, add) { check_cases("add", binary_cases, COUNT(binary_cases)); }
Test(cuda_larger, mul) { check_cases("mul", binary_cases, COUNT(binary_cases)); }
Test(cuda_larger, div) { check_cases("div", binary_cases, COUNT(binary_cases)); }

/* ---- sums -------------------------------------------------------------------------------- */

static const ebb__reduce_attrs all = {0}, first = {1, {0}, 0, 0}, last = {1, {-1}, 0, 0}, middle = {1, {1}, 0, 0},
                               outer = {2, {0, -1}, 0, 0};
static const ebb_op_case sum_cases[] = {
    {"a thread per sum", 1, {NORMAL(2, {600, 7})}, ATTRS(last), EBB_OK},
    {"a warp per sum", 1, {NORMAL(2, {40, 333})}, ATTRS(last), EBB_OK},
    {"a warp per sum, wide", 1, {NORMAL(2, {40, 512})}, ATTRS(last), EBB_OK},
    {"a block per sum", 1, {NORMAL(2, {3, 2003})}, ATTRS(last), EBB_OK},
    {"a block per sum, wide", 1, {NORMAL(2, {3, 2048})}, ATTRS(last), EBB_OK},
    {"blocks share a sum, more than a warp has lanes", 1, {NORMAL(1, {300003})}, ATTRS(all), EBB_OK},
    {"blocks share a sum, wide", 1, {NORMAL(1, {40000})}, ATTRS(all), EBB_OK},
    {"blocks share rows", 1, {NORMAL(2, {2, 16 * 1024})}, ATTRS(last), EBB_OK},
    {"columns", 1, {NORMAL(2, {50, 67})}, ATTRS(first), EBB_OK},
    {"columns, wide", 1, {NORMAL(2, {50, 320})}, ATTRS(first), EBB_OK},
    {"blocks share columns, more than a warp has lanes", 1, {NORMAL(2, {4200, 9})}, ATTRS(first), EBB_OK},
    {"blocks share columns, wide", 1, {NORMAL(2, {700, 64})}, ATTRS(first), EBB_OK},
    {"columns of matrices", 1, {NORMAL(3, {5, 150, 24})}, ATTRS(middle), EBB_OK},
    {"outer axes", 1, {NORMAL(3, {30, 20, 48})}, ATTRS(outer), EBB_OK},
    {"strided rows", 1, {STRIDED(3, {20, 12, 40})}, ATTRS(last), EBB_OK},
    {"strided columns", 1, {STRIDED(3, {20, 12, 40})}, ATTRS(middle), EBB_OK},
};
Test(cuda_larger, sum) { check_cases("sum", sum_cases, COUNT(sum_cases)); }
Test(cuda_larger, mean) { check_cases("mean", sum_cases, COUNT(sum_cases)); }

/* Every way to share a sum is met by the cases above. */
Test(cuda_larger, sums_are_shared_in_every_way)
{
    enum { ALONE, FEW, MANY, N_WAYS, WARP = 32 };
    int seen[2][N_WAYS] = { { 0 } };
    for (int k = 0; k < COUNT(sum_cases); k++) {
        const ebb_op_case *c = &sum_cases[k];
        const ebb__reduce_attrs *attrs = c->attrs;
        ebb_arg space, out;
        int64_t dims[EBB_MAX_DIMS];
        for (int d = 0; d < c->in[0].ndim; d++) dims[d] = attrs->n_axes ? c->in[0].dims[d] : 1;
        for (int i = 0; i < attrs->n_axes; i++) dims[(attrs->axes[i] + c->in[0].ndim) % c->in[0].ndim] = 1;
        check_ok(ebb_arg_set(&space, EBB_F32, c->in[0].ndim, c->in[0].dims));
        check_ok(ebb_arg_set(&out, EBB_F32, c->in[0].ndim, dims));
        ebb__cuda_reduce_plan plan = ebb__cuda_plan_reduction(&out, &space);
        cr_expect_eq(plan.sums * plan.terms, space.elems);
        cr_expect(plan.share * plan.splits >= plan.terms && plan.share * (plan.splits - 1) < plan.terms,
                  "%s: %lld shares of %lld make no %lld", c->name, (long long)plan.splits, (long long)plan.share,
                  (long long)plan.terms);
        seen[plan.rows][plan.splits == 1 ? ALONE : plan.splits <= WARP ? FEW : MANY]++;
    }
    for (int rows = 0; rows < 2; rows++)
        for (int way = 0; way < N_WAYS; way++) cr_expect(seen[rows][way], "rows %d, way %d", rows, way);
}

/* Scratch of a sum stays small whatever the shape. */
Test(cuda_larger, partial_sums_are_few)
{
    const int64_t sizes[] = { 1, 3, 127, 128, 1000, 50304, 1 << 20 };
    for (int i = 0; i < COUNT(sizes); i++) {
        for (int j = 0; j < COUNT(sizes); j++) {
            ebb_arg space, rows, columns;
            check_ok(ebb_arg_set(&space, EBB_F32, 2, (int64_t[]){ sizes[i], sizes[j] }));
            check_ok(ebb_arg_set(&rows, EBB_F32, 2, (int64_t[]){ sizes[i], 1 }));
            check_ok(ebb_arg_set(&columns, EBB_F32, 2, (int64_t[]){ 1, sizes[j] }));
            cr_expect_leq(ebb__cuda_reduce_bytes(&rows, &space), 1 << 20);
            cr_expect_leq(ebb__cuda_reduce_bytes(&columns, &space), 1 << 20);
        }
    }
}

/* ---- copies ------------------------------------------------------------------------------ */

static const ebb__permute_attrs turned = {3, {2, 0, 1}}, swapped = {3, {0, 2, 1}};
static const ebb_op_case permute_cases[] = {
    {"last to first", 1, {NORMAL(3, {9, 40, 70})}, ATTRS(turned), EBB_OK},
    {"matrices turned", 1, {NORMAL(3, {3, 65, 33})}, ATTRS(swapped), EBB_OK},
};
Test(cuda_larger, permute) { check_cases("permute", permute_cases, COUNT(permute_cases)); }

static const ebb_op_case contiguous_cases[] = {
    {"strided", 1, {STRIDED(3, {9, 40, 70})}, NULL, 0, EBB_OK},
    {"strided, small dims", 1, {STRIDED(4, {6, 5, 4, 3})}, NULL, 0, EBB_OK},
};
Test(cuda_larger, contiguous) { check_cases("contiguous", contiguous_cases, COUNT(contiguous_cases)); }

static const ebb__cat_attrs by_columns = {1};
static const ebb_op_case cat_cases[] = {
    {"wide columns", 2, {NORMAL(2, {30, 64}), NORMAL(2, {30, 32})}, ATTRS(by_columns), EBB_OK},
    {"odd columns", 2, {NORMAL(2, {30, 63}), NORMAL(2, {30, 2})}, ATTRS(by_columns), EBB_OK},
};
Test(cuda_larger, cat) { check_cases("cat", cat_cases, COUNT(cat_cases)); }

static const ebb__cast_attrs to_f32 = {EBB_F32}, to_f64 = {EBB_F64}, to_f16 = {EBB_F16}, to_bf16 = {EBB_BF16};
#define CASTS(attrs)                                                                    \
    {"wide, and a rest", 1, {NORMAL(1, {4099})}, ATTRS(attrs), EBB_OK},                 \
    {"rows", 1, {NORMAL(2, {64, 48})}, ATTRS(attrs), EBB_OK},                           \
    {"strided", 1, {STRIDED(3, {3, 20, 24})}, ATTRS(attrs), EBB_OK}
static const ebb_op_case cast_cases[] = {CASTS(to_f32), CASTS(to_f64), CASTS(to_f16), CASTS(to_bf16)};
Test(cuda_larger, cast) { check_cases("cast", cast_cases, COUNT(cast_cases)); }
