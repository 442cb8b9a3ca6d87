/* ops/accel_ops.c: from an op to the plugin's row for it.  Rows are found by name once per context, then by
 * the op's address. */
#include "ops/accel_ops.h"

#include <ebb/device.h>
#include <stdio.h>
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
    const ebb__accel_kind *named = ebb__accel_kind_named(kind);
    if (!named) return ebb_fail(EBB_EDEVICE, "no kind of device is named \"%.60s\"", kind);
    EBB__TRY(ebb__accel_load(&table, named));
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
    const ebb__accel_kind *kind = call->ctx->device.accel->kind;
    if (kind->workspace) *bytes = kind->workspace(call, pass);
    return EBB_OK;
}

static const char *pass_name(int pass, const ebb__owner *owner)
{
    if (pass == EBB_BACKWARD) return "backward";
    return owner->phase == EBB__PHASE_RECOMPUTE ? "recompute" : "forward";
}

/* A kernel knows neither its node nor who called it. */
static ebb_status failed(ebb_status st, const ebb_call *call, int pass, const ebb__owner *owner)
{
    char node[32] = "", line[512] = "";
    if (owner->node) snprintf(node, sizeof node, " #%llu", (unsigned long long)owner->node);
    if (owner->file) snprintf(line, sizeof line, " (%.400s:%d)", owner->file, owner->line);
    return ebb_fail(st, "%s%s%s %s%s%s: %s", owner->scope ? owner->scope : "", owner->scope ? ": " : "", call->op->name,
                    pass_name(pass, owner), node, line, ebb_message());
}

static ebb_status run_and_check(const ebb_call *call, ebb__accel_kernel *run)
{
    const ebb__device *device = &call->ctx->device;
    EBB__TRY(run(device->accel->self, call));
    /* Else an error is told later, where nobody knows whose it was. */
    return call->ctx->checks >= 3 && !device->capturing ? ebb__device_synchronize(device) : EBB_OK;
}

ebb_status ebb__accel_run(const ebb_call *call, int pass, const ebb__owner *owner)
{
    const ebb__accelerator *accel = call->ctx->device.accel;
    const row *found = NULL;
    if (!accel->table) return EBB_OK;
    EBB__TRY(find(&found, call));
    const ebb__accel_op *kernels = found ? found->kernels : NULL;
    ebb__accel_kernel *run = !kernels ? NULL : pass == EBB_FORWARD ? kernels->forward : kernels->backward;
    if (!run) return missing(call, pass);
    ebb_status st = run_and_check(call, run);
    return st == EBB_OK ? st : failed(st, call, pass, owner);
}
