/* print.c: tensors as text. */
#include <stdio.h>

#include "core/half.h"
#include "tensor/host_view.h"

char *ebb_tensor_describe(const ebb_tensor *t, char *buf, size_t buf_bytes)
{
    ebb_arg arg;
    ebb__tensor_arg(t, &arg);
    return ebb_arg_describe(&arg, buf, buf_bytes);
}

static void print_value(const ebb_arg *a, int64_t at, FILE *file)
{
    switch (a->dtype) {
    case EBB_F32: fprintf(file, "%.6g", (double)((const float *)a->data)[at]); break;
    case EBB_F64: fprintf(file, "%.10g", ((const double *)a->data)[at]); break;
    case EBB_F16: fprintf(file, "%.4g", (double)ebb__f16_to_f32(((const uint16_t *)a->data)[at])); break;
    case EBB_BF16: fprintf(file, "%.3g", (double)ebb__bf16_to_f32(((const uint16_t *)a->data)[at])); break;
    case EBB_I32: fprintf(file, "%d", ((const int32_t *)a->data)[at]); break;
    case EBB_I64: fprintf(file, "%lld", (long long)((const int64_t *)a->data)[at]); break;
    default: fprintf(file, "%u", ((const uint8_t *)a->data)[at]); break;
    }
}

enum { EDGE = 3, WHOLE = 8 }; /* long axes show EDGE values at each end */

static void print_axis(const ebb_arg *a, int axis, int64_t at, FILE *file)
{
    if (axis == a->ndim) {
        print_value(a, at, file);
        return;
    }
    int64_t n = a->dims[axis];
    bool last = axis == a->ndim - 1;
    fputc('[', file);
    for (int64_t i = 0; i < n; i++) {
        if (i) fprintf(file, "%s%*s", last ? ", " : ",\n", last ? 0 : axis + 1, "");
        if (n > WHOLE && i == EDGE) {
            fprintf(file, "...%s%*s", last ? ", " : ",\n", last ? 0 : axis + 1, "");
            i = n - EDGE;
        }
        print_axis(a, axis + 1, at + i * a->strides[axis], file);
    }
    fputc(']', file);
}

void ebb_tensor_print(const ebb_tensor *t, void *file)
{
    char shape[96];
    ebb_arg a;
    ebb__host_view view;
    ebb_status st = ebb__host_view_strided(&view, &a, t, EBB__VIEW_READ);
    fprintf(file, "%s%s%s ", ebb_tensor_name(t), *ebb_tensor_name(t) ? " " : "",
            ebb_tensor_describe(t, shape, sizeof shape));
    if (st != EBB_OK) fprintf(file, "(%s)", ebb_message());
    else if (!a.data && a.elems) fputs("(dry: no values)", file);
    else print_axis(&a, 0, 0, file);
    fputc('\n', file);
    if (st == EBB_OK) st = ebb__host_view_close(&view, st); /* only read: frees it */
}
