/* cuda/run_ops.c: cases of ops on the emulated device, without Criterion: under ThreadSanitizer, where Criterion does
 * not start, on two workers; elsewhere to look at one op alone.
 *
 * Usage: cuda_run_ops [OP|all [DTYPE]]      default: all ops, in f32 and bf16 */
#include <stdio.h>
#include <string.h>

#include "cuda/cuda_case.h"

static bool wanted(const char *name, int argc, char **argv, int at)
{
    return argc <= at || strcmp(argv[at], name) == 0 || strcmp(argv[at], "all") == 0;
}

int main(int argc, char **argv)
{
    ebb_context *ctx = NULL;
    ebb_context_options options = { .struct_bytes = sizeof options, .threads = 1, .checks = -1 };
    if (ebb_context_new(&ctx, &options) != EBB_OK) return fprintf(stderr, "%s\n", ebb_message()), 1;
    cuda_case_run run = { .ctx = ctx, .cuda = emulated_device_new(), .seeds = 1 };
    int n_cases = 0;
#ifdef __SANITIZE_THREAD__
    emu_set_workers(2);
#endif
    for (int k = 0; k < ebb_op_count() * EBB_N_DTYPES; k++) {
        const ebb_op *op = ebb_op_at(k / EBB_N_DTYPES);
        ebb_dtype dtype = (ebb_dtype)(k % EBB_N_DTYPES);
        bool by_default = dtype == EBB_F32 || dtype == EBB_BF16;
        if (!ebb_dtype_is_float(dtype) || !wanted(op->name, argc, argv, 1)) continue;
        if (argc > 2 ? strcmp(argv[2], ebb_dtype_name(dtype)) != 0 : !by_default) continue;
        for (int i = 0; i < op->n_cases; i++)
            if (op->cases[i].expect == EBB_OK) n_cases += cuda_case_check(&run, op, &op->cases[i], dtype);
    }
    printf("%d cases, %d passes, %lu threads\n", n_cases, run.n_passes, emu_threads_run());
    emulated_device_free(run.cuda);
    ebb_context_free(ctx);
    return n_cases ? 0 : 1;
}
