/* cuda/test_bad_data.c: what kernels do with values and dtypes that they cannot take. */
#include "cuda/cuda_case.h"
#include "ops/attrs.h"
#include "ops/cuda/bad_data.h"
#include "support/support.h"

#include <stdlib.h>
#include <string.h>

/* A call of `op` over f32 inputs of ones, but for its indices; each buffer is of exactly its size. */
typedef struct bad_call {
    const ebb_op *op;
    int n_in;
    ebb_arg in[EBB_MAX_IN];
    const int32_t *indices; /* of the last input */
    const void *attrs;
    size_t attrs_bytes;
} bad_call;

static ebb_arg ones(ebb_dtype dtype, int ndim, const int64_t *dims)
{
    ebb_arg arg = { 0 };
    check_ok(ebb_arg_set(&arg, dtype, ndim, dims));
    arg.data = malloc((size_t)arg.elems * ebb_dtype_bytes(dtype));
    for (int64_t i = 0; i < arg.elems; i++) case_set(&arg, i, 1);
    return arg;
}
#define ONES(dtype, ...) \
    ones(dtype, (int)(sizeof((int64_t[]){ __VA_ARGS__ }) / sizeof(int64_t)), (int64_t[]){ __VA_ARGS__ })

static void *scratch_of(ebb_call *call, int pass)
{
    call->workspace_bytes = call->op->cuda_workspace ? call->op->cuda_workspace(call, pass) : 0;
    call->workspace = call->workspace_bytes ? aligned_alloc(64, (call->workspace_bytes + 63) / 64 * 64) : NULL;
    return call->workspace;
}

/* Forward and, where gradients are asked for, backward; the word that forward left. */
static unsigned report_of(const bad_call *bad, ebb__cuda *cuda)
{
    ebb_call call = { .op = bad->op, .n_in = bad->n_in, .n_out = bad->op->n_out };
    const ebb__accel_op *row = cuda_row(bad->op);
    if (bad->attrs) memcpy(call.attrs, bad->attrs, bad->attrs_bytes);
    memcpy(call.in, bad->in, sizeof call.in);
    const ebb_arg *last = &call.in[call.n_in - 1];
    for (int64_t i = 0; i < last->elems; i++) case_set(last, i, bad->indices[i]);
    check_ok(call.op->infer(&call));
    for (int j = 0; j < call.n_out; j++) {
        call.out[j] = ones(call.out[j].dtype, call.out[j].ndim, call.out[j].dims);
        call.dout[j] = ones(call.out[j].dtype, call.out[j].ndim, call.out[j].dims);
    }
    void *scratch = scratch_of(&call, EBB_FORWARD);
    check_ok(row->forward(cuda, &call));
    free(scratch);
    unsigned report = *cuda->error;
    *cuda->error = 0;
    for (int i = 0; i < call.n_in - 1; i++) {
        call.want[i] = true;
        call.din[i] = ones(call.in[i].dtype, call.in[i].ndim, call.in[i].dims);
    }
    scratch = scratch_of(&call, EBB_BACKWARD);
    check_ok(row->backward(cuda, &call)); /* stays inside its buffers */
    free(scratch);
    for (int i = 0; i < call.n_in; i++) free(call.din[i].data), free(call.in[i].data);
    for (int j = 0; j < call.n_out; j++) free(call.out[j].data), free(call.dout[j].data);
    return report;
}

#define check_report(call, id, what)                                                                       \
    do {                                                                                                   \
        ebb__cuda *cuda_ = emulated_device_new();                                                          \
        unsigned got_ = report_of(&(call), cuda_);                                                         \
        cr_expect_eq(got_, ebb__cuda_bad_code(EBB__CUDA_ROW_##id, what), "%s: %#x", #id, got_);            \
        emulated_device_free(cuda_);                                                                       \
    } while (0)

Test(cuda_bad_data, an_index_outside_of_the_table_is_reported)
{
    const int32_t beyond[] = { 1, 5, 0 }, below[] = { 1, 2, -2 };
    for (int k = 0; k < 2; k++) {
        bad_call call = { .op = ebb_op_find("embedding"), .n_in = 2, .indices = k ? below : beyond,
                          .in = { ONES(EBB_F32, 5, 3), ONES(EBB_I32, 3) } };
        check_report(call, embedding, EBB__CUDA_BAD_INDEX);
    }
}

Test(cuda_bad_data, a_target_that_is_no_class_is_reported)
{
    const int32_t beyond[] = { 4, -1, 5 }, below[] = { -2, 1, 2 };
    const ebb__cross_entropy_attrs counted = { 0 };
    const ebb__linear_cross_entropy_attrs two = { 0, 2 };
    for (int k = 0; k < 2; k++) {
        bad_call loss = { .op = ebb_op_find("cross_entropy"), .n_in = 2, .indices = k ? below : beyond,
                          .attrs = &counted, .attrs_bytes = sizeof counted,
                          .in = { ONES(EBB_F32, 3, 5), ONES(EBB_I32, 3) } };
        check_report(loss, cross_entropy, EBB__CUDA_BAD_TARGET);
        bad_call with_product = { .op = ebb_op_find("linear_cross_entropy"), .n_in = 3, .indices = k ? below : beyond,
                                  .attrs = &two, .attrs_bytes = sizeof two,
                                  .in = { ONES(EBB_F32, 3, 4), ONES(EBB_F32, 5, 4), ONES(EBB_I32, 3) } };
        check_report(with_product, linear_cross_entropy, EBB__CUDA_BAD_TARGET);
    }
}

Test(cuda_bad_data, a_report_has_a_text)
{
    cr_expect_str_eq(ebb__cuda_bad_text(ebb__cuda_bad_code(3, EBB__CUDA_BAD_INDEX)), "an index is outside the table");
    cr_expect_str_eq(ebb__cuda_bad_text(0xff), "bad data");
}

Test(cuda_bad_data, a_dtype_without_kernels_is_refused)
{
    ebb__cuda *cuda = emulated_device_new();
    ebb_arg numbers = ONES(EBB_I32, 4), result = ONES(EBB_I32, 4);
    ebb_call call = { .op = ebb_op_find("gelu"), .n_in = 1, .n_out = 1, .in = { numbers }, .out = { result } };
    cuda->op = "gelu";
    check_fails(cuda_row(call.op)->forward(cuda, &call), EBB_EDTYPE);
    check_message("gelu");
    free(numbers.data);
    free(result.data);
    emulated_device_free(cuda);
}
