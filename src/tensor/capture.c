/* tensor/capture.c: graphs: what the device captures, and the memory that it works in. */
#include "tensor/capture.h"

#include "core/mem.h"
#include "core/message.h"
#include "core/site.h"
#include "device/plugin.h"
#include "tensor/context.h"

struct ebb_graph {
    ebb_context *ctx; /* counted */
    ebb__accel_graph *graph; /* NULL: dry */
    int number;       /* of its memory in the pool */
};

/* NULL: dry. */
static const ebb__accel *table_of(const ebb_context *ctx) { return ctx->device.accel->table; }
static void *self_of(const ebb_context *ctx) { return ctx->device.accel->self; }

ebb_status ebb__capture_possible(const ebb_context *ctx, const char *what)
{
    const ebb__accelerator *accel = ctx->device.accel;
    bool has = accel && (accel->table ? accel->table->capture_begin != NULL : accel->kind->graphs);
    if (has) return EBB_OK;
    return ebb_fail(EBB_EUNSUPPORTED, "%s: device %s has no graphs; accelerators have, such as cuda", what,
                    ctx->device.name);
}

static ebb_status begin(ebb_context *ctx, bool varies)
{
    const ebb__accelerator *accel = ctx->device.accel;
    EBB__TRY(ebb__capture_possible(ctx, "capture"));
    EBB__TRY(ebb__pool_capture_begin(ctx->pool, &ctx->capture));
    ebb_status st = accel->table ? accel->table->capture_begin(accel->self, varies) : EBB_OK;
    st = ebb__device_doing("capture", st);
    if (st != EBB_OK) {
        ebb__pool_capture_end(ctx->pool);
        ebb__pool_capture_release(ctx->pool, ctx->capture);
        return st;
    }
    ctx->device.capturing = true;
    return EBB_OK;
}

ebb_status ebb_capture_begin(ebb_context *ctx) { return begin(ctx, false); }
ebb_status ebb__capture_begin_varying(ebb_context *ctx) { return begin(ctx, true); }

/* What the device has captured; both NULL and OK on a dry one. */
static ebb_status end_on_device(ebb__accel_graph **out, const ebb_context *ctx)
{
    *out = NULL;
    return table_of(ctx) ? ebb__device_doing("capture", table_of(ctx)->capture_end(self_of(ctx), out)) : EBB_OK;
}

static void throw_away(ebb_context *ctx, ebb__accel_graph *graph, int number)
{
    if (graph) table_of(ctx)->graph_free(self_of(ctx), graph);
    ebb__pool_capture_release(ctx->pool, number);
}

ebb_status ebb_capture_end(ebb_graph **out, ebb_context *ctx)
{
    if (!ctx->device.capturing) return ebb_fail(EBB_ESTATE, "capture: none runs");
    ebb__accel_graph *captured;
    ebb_status st = end_on_device(&captured, ctx);
    ctx->device.capturing = false;
    ebb__pool_capture_end(ctx->pool);
    ebb_graph *graph = st == EBB_OK && out ? ebb__malloc(sizeof *graph) : NULL;
    if (!graph) {
        throw_away(ctx, st == EBB_OK ? captured : NULL, ctx->capture);
        return st == EBB_OK && out ? EBB_ENOMEM : st;
    }
    atomic_fetch_add(&ctx->refs, 1);
    *graph = (ebb_graph){ ctx, captured, ctx->capture };
    *out = graph;
    return EBB_OK;
}

ebb_status ebb__graph_launch_with(ebb_graph *graph, const ebb__accel_numbers *numbers)
{
    const ebb_context *ctx = graph->ctx;
    static const char what[] = "graph_launch";
    EBB__TRY(ebb__device_not_capturing(&ctx->device, what));
    if (!graph->graph) return EBB_OK;
    return ebb__device_doing(what, table_of(ctx)->graph_launch(self_of(ctx), graph->graph, numbers));
}

ebb_status ebb_graph_launch(ebb_graph *graph) { return ebb__graph_launch_with(graph, NULL); }

void ebb_graph_free(ebb_graph *graph)
{
    if (!graph) return;
    ebb_context *ctx = graph->ctx;
    ebb__message before; /* who frees it has nobody to tell */
    ebb__message_keep(&before);
    if (graph->graph) (void)table_of(ctx)->synchronize(self_of(ctx));
    throw_away(ctx, graph->graph, graph->number);
    ebb__message_put_back(&before);
    ebb__free(graph);
    ebb__context_release(ctx);
}
