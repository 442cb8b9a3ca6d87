/* cuda/run_ops.c: cases of ops on the emulated device, without Criterion: under ThreadSanitizer, where Criterion does
 * not start, on two workers; elsewhere to look at one op alone.
 *
 * Usage: cuda_run_ops [OP|all [DTYPE]]      default: all ops, in f32 and bf16 */
#include <stdio.h>
#include <string.h>

#include "cuda/cuda_case.h"
#include "ops/attrs.h"

/* ---- cases beside the ops' own: all warps of a block share a row, and (where a row has but one sum) a block has more
 * than one row, or square: shared memory is then written again while a warp may still read what was there. */

enum { PROCESSORS = 1, BLOCKS = 16 * PROCESSORS, ROWS = BLOCKS + 1, LONG = 1028 };
#define NORMAL(...) {__VA_ARGS__, EBB_CASE_NORMAL, 0, false, false}
#define STRIDED(...) {__VA_ARGS__, EBB_CASE_NORMAL, 0, true, false}
#define LABEL(max, ...) {__VA_ARGS__, EBB_CASE_LABEL, max, false, false}
#define ATTRS(name) &name, sizeof name, EBB_OK

static const ebb__softmax_attrs last = {-1};
static const ebb__norm_attrs eps = {1e-5};
static const ebb__cross_entropy_attrs counted = {0};
static const ebb__linear_cross_entropy_attrs one = {0, 1};
static const struct { const char *op; ebb_op_case c; } shared[] = {
    {"softmax", {"rows", 1, {NORMAL(2, {ROWS, LONG})}, ATTRS(last)}},
    {"log_softmax", {"rows", 1, {NORMAL(2, {ROWS, LONG})}, ATTRS(last)}},
    {"layernorm", {"rows", 3, {NORMAL(2, {2, LONG}), NORMAL(1, {LONG}), NORMAL(1, {LONG})}, ATTRS(eps)}},
    {"rmsnorm", {"rows", 2, {NORMAL(2, {2, LONG}), NORMAL(1, {LONG})}, ATTRS(eps)}},
    {"cross_entropy", {"rows", 2, {NORMAL(2, {2, LONG}), LABEL(LONG, 1, {2})}, ATTRS(counted)}},
    {"linear_cross_entropy", {"rows", 3, {NORMAL(2, {2, 2}), NORMAL(2, {LONG, 2}), LABEL(LONG, 1, {2})}, ATTRS(one)}},
    {"contiguous", {"squares", 1, {STRIDED(2, {130, 130})}, NULL, 0, EBB_OK}},
};

static int check_shared(cuda_case_run *run, const ebb_op *op, ebb_dtype dtype)
{
    int n = 0;
    for (size_t i = 0; i < sizeof shared / sizeof *shared; i++)
        if (strcmp(shared[i].op, op->name) == 0) n += cuda_case_check(run, op, &shared[i].c, dtype);
    return n;
}

/* ---- the program -------------------------------------------------------------------------------------------- */

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
    run.cuda->processors = PROCESSORS;
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
        n_cases += check_shared(&run, op, dtype);
    }
    printf("%d cases, %d passes, %lu threads\n", n_cases, run.n_passes, emu_threads_run());
    emulated_device_free(run.cuda);
    ebb_context_free(ctx);
    return n_cases ? 0 : 1;
}
