/* cuda/test_ops.c: every op's CUDA kernels, emulated, against the CPU's, on the op's own cases. */
#include "cuda/cuda_case.h"
#include "support/support.h"

#include <criterion/parameterized.h>

enum { MOST_OPS = 64 };

/* A parameter is an op's index in the table: parameters may hold no pointers. */
static struct criterion_test_params every_op(void)
{
    static int indices[MOST_OPS];
    int n = ebb_op_count() < MOST_OPS ? ebb_op_count() : MOST_OPS;
    for (int i = 0; i < n; i++) indices[i] = i;
    return cr_make_param_array(int, indices, (size_t)n);
}

static void check_cases(int index, ebb_dtype dtype)
{
    const ebb_op *op = ebb_op_at(index);
    with_context(ctx)
    {
        cuda_case_run run = { .ctx = ctx, .cuda = emulated_device_new(), .seeds = 1 };
        for (int k = 0; k < op->n_cases; k++)
            if (op->cases[k].expect == EBB_OK) cuda_case_check(&run, op, &op->cases[k], dtype);
        emulated_device_free(run.cuda);
    }
}

ParameterizedTestParameters(cuda_ops, rows_agree_with_their_ops) { return every_op(); }
ParameterizedTest(int *index, cuda_ops, rows_agree_with_their_ops)
{
    const ebb_op *op = ebb_op_at(*index);
    const ebb__accel_op *row = cuda_row(op);
    cr_assert(row, "%s has no row in ops.def", op->name);
    cr_expect_str_eq(row->name, op->name);
    cr_expect(!row->forward == !op->cpu.forward, "%s: a forward kernel unless it is a view", op->name);
    cr_expect(!row->backward == !op->cpu.backward, "%s: a backward kernel unless it has no gradient", op->name);
}

ParameterizedTestParameters(cuda_ops, f32_agrees_with_the_cpu) { return every_op(); }
ParameterizedTest(int *index, cuda_ops, f32_agrees_with_the_cpu) { check_cases(*index, EBB_F32); }

ParameterizedTestParameters(cuda_ops, f64_agrees_with_the_cpu) { return every_op(); }
ParameterizedTest(int *index, cuda_ops, f64_agrees_with_the_cpu) { check_cases(*index, EBB_F64); }

#ifndef __SANITIZE_ADDRESS__ /* f16 has bf16's addresses */
ParameterizedTestParameters(cuda_ops, f16_agrees_with_the_cpu) { return every_op(); }
ParameterizedTest(int *index, cuda_ops, f16_agrees_with_the_cpu) { check_cases(*index, EBB_F16); }
#endif

ParameterizedTestParameters(cuda_ops, bf16_agrees_with_the_cpu) { return every_op(); }
ParameterizedTest(int *index, cuda_ops, bf16_agrees_with_the_cpu) { check_cases(*index, EBB_BF16); }
