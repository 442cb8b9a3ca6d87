/* ops/accel_ops.c: from an op to the plugin's row for it.  Rows are found by name once per context, then by
 * the op's address. */
#include "ops/accel_ops.h"

#include <ebb/device.h>
#include <stdlib.h>
#include <string.h>

#include "core/mem.h"
#include "core/site.h"
#include "device/plugin.h"

typedef struct row {
    const ebb_op *op;
    const ebb__accel_op *kernels; /* NULL: the plugin has none */
} row;

struct ebb__accel_ops {
    int n;
    row rows[]; /* sorted by op */
};

static int by_op(const void *a, const void *b)
{
    uintptr_t x = (uintptr_t)((const row *)a)->op, y = (uintptr_t)((const row *)b)->op;
    return (x > y) - (x < y);
}

static const ebb__accel_op *find_named(const ebb__accel *table, const char *name)
{
    for (int i = 0; i < table->n_ops; i++)
        if (strcmp(table->ops[i].name, name) == 0) return &table->ops[i];
    return NULL;
}

/* ebb's own ops; on a dry accelerator without their kernels. */
static ebb_status make_rows(ebb_context *ctx)
{
    const ebb__accel *table = ctx->device.accel->table;
    int n = ebb_op_count();
    struct ebb__accel_ops *ops = ebb__malloc(sizeof *ops + (size_t)n * sizeof ops->rows[0]);
    if (!ops) return EBB_ENOMEM;
    ops->n = n;
    for (int i = 0; i < n; i++)
        ops->rows[i] = (row){ ebb_op_at(i), table ? find_named(table, ebb_op_at(i)->name) : NULL };
    qsort(ops->rows, (size_t)n, sizeof ops->rows[0], by_op);
    ctx->accel_ops = ops;
    return EBB_OK;
}

/* *out NULL: not one of ebb's own. */
static ebb_status find(const row **out, const ebb_call *call)
{
    ebb_context *ctx = call->ctx;
    if (!ctx->accel_ops) EBB__TRY(make_rows(ctx));
    row key = { .op = call->op };
    *out = bsearch(&key, ctx->accel_ops->rows, (size_t)ctx->accel_ops->n, sizeof key, by_op);
    return EBB_OK;
}

ebb_status ebb_device_has_op(bool *has, const char *kind, const ebb_op *op, int pass)
{
    bool nothing = pass == EBB_FORWARD ? op->flags & EBB_OP_VIEW : op->flags & EBB_OP_NO_GRAD;
    const ebb__accel *table = NULL;
    *has = nothing || (pass == EBB_FORWARD ? op->cpu.forward : op->cpu.backward) != NULL;
    if (strcmp(kind, "cpu") == 0) return EBB_OK;
    for (int k = 0; ebb__accel_kind_at(k) && !table; k++)
        if (strcmp(ebb__accel_kind_at(k)->name, kind) == 0) EBB__TRY(ebb__accel_load(&table, ebb__accel_kind_at(k)));
    if (!table) return ebb_fail(EBB_EDEVICE, "no kind of device is named \"%.60s\"", kind);
    const ebb__accel_op *kernels = find_named(table, op->name);
    *has = nothing || (kernels && (pass == EBB_FORWARD ? kernels->forward : kernels->backward));
    return EBB_OK;
}

static ebb_status missing(const ebb_call *call, int pass)
{
    return ebb_fail(EBB_EUNSUPPORTED, "%s: has no %s kernel for device %s", call->op->name,
                    pass == EBB_FORWARD ? "forward" : "backward", call->ctx->device.name);
}

ebb_status ebb__accel_workspace(size_t *bytes, const ebb_call *call, int pass)
{
    const row *found = NULL;
    *bytes = 0;
    EBB__TRY(find(&found, call));
    if (!found) return missing(call, pass);
    if (call->op->cuda_workspace) *bytes = call->op->cuda_workspace(call, pass);
    return EBB_OK;
}

ebb_status ebb__accel_run(const ebb_call *call, int pass)
{
    const ebb__accelerator *accel = call->ctx->device.accel;
    const row *found = NULL;
    if (!accel->table) return EBB_OK;
    EBB__TRY(find(&found, call));
    const ebb__accel_op *kernels = found ? found->kernels : NULL;
    ebb__accel_kernel *run = !kernels ? NULL : pass == EBB_FORWARD ? kernels->forward : kernels->backward;
    if (!run) return missing(call, pass);
    EBB__TRY(run(accel->self, call));
    /* Else an error is told later, where nobody knows whose it was. */
    bool wait = call->ctx->checks >= 3 && !call->ctx->device.capturing;
    return wait ? ebb__device_synchronize(&call->ctx->device) : EBB_OK;
}
