/* cuda/slow_orders.c: every op's cases in many random orders of threads and blocks. */
#include "cuda/cuda_case.h"
#include "support/support.h"

#include <criterion/parameterized.h>

enum { MOST_OPS = 64, N_SEEDS = 20 };

static struct criterion_test_params every_op(void)
{
    static int indices[MOST_OPS];
    int n = ebb_op_count() < MOST_OPS ? ebb_op_count() : MOST_OPS;
    for (int i = 0; i < n; i++) indices[i] = i;
    return cr_make_param_array(int, indices, (size_t)n);
}

ParameterizedTestParameters(cuda_orders, no_order_changes_a_bit) { return every_op(); }
ParameterizedTest(int *index, cuda_orders, no_order_changes_a_bit)
{
    const ebb_op *op = ebb_op_at(*index);
    with_context(ctx)
    {
        cuda_case_run run = { .ctx = ctx, .cuda = emulated_device_new(), .seeds = N_SEEDS };
        for (int dtype = EBB_F32; dtype <= EBB_BF16; dtype++)
            for (int k = 0; k < op->n_cases; k++)
                if (op->cases[k].expect == EBB_OK) cuda_case_check(&run, op, &op->cases[k], (ebb_dtype)dtype);
        emulated_device_free(run.cuda);
    }
}
