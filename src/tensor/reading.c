/* reading.c: values that are read later. */
#include "tensor/reading.h"

#include "core/mem.h"
#include "core/site.h"

enum { CELL_BYTES = 8, ALL_BYTES = EBB__READING_CELLS * CELL_BYTES };

_Static_assert(sizeof ((ebb__reading *)0)->dtypes / sizeof(ebb_dtype) == EBB__READING_CELLS, "a dtype per cell");

static ebb__provider pinned(const ebb_context *ctx)
{
    return ctx->device.accel->table->pinned(ctx->device.accel->self);
}

ebb_status ebb__reading_open(ebb__reading *r, const ebb_context *ctx)
{
    *r = (ebb__reading){ .ctx = ctx };
    if (ctx->device.dry || ebb__device_is_host(&ctx->device)) return EBB_OK;
    r->cells = ebb__fault() ? NULL : pinned(ctx).alloc(pinned(ctx).self, ALL_BYTES);
    return r->cells ? EBB_OK : ebb_fail(EBB_ENOMEM, "reading: no pinned memory");
}

void ebb__reading_close(ebb__reading *r)
{
    if (r->cells) pinned(r->ctx).free(pinned(r->ctx).self, r->cells, ALL_BYTES);
    *r = (ebb__reading){ 0 };
}

static ebb_status read_cells(ebb__reading *r)
{
    if (r->n > 0) EBB__TRY(ebb__device_synchronize(&r->ctx->device));
    for (int i = 0; i < r->n; i++) r->sum += ebb__value_of(r->dtypes[i], r->cells + i * CELL_BYTES);
    r->n = 0;
    return EBB_OK;
}

ebb_status ebb__reading_add(ebb__reading *r, const ebb_tensor *t)
{
    if (r->ctx->device.dry && t->elems == 1) return EBB_OK;
    if (!r->cells || t->elems != 1) { /* and the error where it is not one value */
        double value = 0;
        EBB__TRY(ebb_item(t, &value));
        r->sum += value;
        return EBB_OK;
    }
    if (r->n == EBB__READING_CELLS) EBB__TRY(read_cells(r));
    const ebb__accelerator *accel = r->ctx->device.accel;
    ebb_status st = accel->table->copy(accel->self, NULL, r->cells + r->n * CELL_BYTES, ebb_tensor_data(t),
                                       ebb_dtype_bytes(t->dtype), EBB__FROM_DEVICE);
    EBB__TRY(ebb__device_doing("copy of a loss", st));
    r->dtypes[r->n++] = t->dtype;
    return EBB_OK;
}

ebb_status ebb__reading_cell(ebb__reading *r, double **out)
{
    *out = NULL;
    if (!r->cells) return EBB_OK;
    if (r->n == EBB__READING_CELLS) return ebb_fail(EBB_EUNSUPPORTED, "reading: no cell is free");
    *out = (double *)(void *)(r->cells + r->n * CELL_BYTES);
    r->dtypes[r->n++] = EBB_F64;
    return EBB_OK;
}

void ebb__reading_again(ebb__reading *r, int n)
{
    if (r->cells) r->n = n;
}

ebb_status ebb__reading_take(ebb__reading *r, double *sum)
{
    EBB__TRY(read_cells(r));
    *sum = r->sum;
    r->sum = 0;
    return EBB_OK;
}
