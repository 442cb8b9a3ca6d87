/* checkpoint.c: running a function as a segment. */
#include "checkpoint/segment.h"
#include "tensor/upward.h"

ebb_status ebb_segment_begin(ebb_context *ctx, const ebb_checkpoint_options *options)
{
    ebb_checkpoint_options o = { .struct_bytes = sizeof o };
    if (options) {
        if (options->struct_bytes != sizeof o)
            return ebb_fail(EBB_EINVAL, "checkpoint: options.struct_bytes is %zu, expected %zu", options->struct_bytes,
                            sizeof o);
        o = *options;
    }
    int depth = ctx->segment ? ctx->segment->depth + 1 : 0;
    if (depth > EBB__MAX_NESTING)
        return ebb_fail(EBB_EUNSUPPORTED, "checkpoint: segments nest at most %d deep", EBB__MAX_NESTING);
    ebb__segment *s;
    ebb_status st = ebb__segment_new(&s, ctx, o.name, false);
    if (st != EBB_OK) return st;
    s->depth = depth;
    s->options = o;
    s->options.name = NULL; /* copied */
    s->parent = ctx->segment;
    ctx->segment = s;
    ctx->segment_number = s->number;
    ctx->n_segments++;
    return EBB_OK;
}

void ebb_segment_end(ebb_context *ctx)
{
    ebb__segment *s = ctx->segment;
    if (!s) return;
    ctx->segment = s->parent;
    ctx->segment_number = s->parent ? s->parent->number : 0;
    s->options = (ebb_checkpoint_options){ 0 };
    ebb__segment_close(s);
    ebb__segment_release(s);
}

ebb_status ebb_checkpoint(ebb_tensor **out, ebb_tensor *x, ebb_segment_fn *fn, void *user,
                          const ebb_checkpoint_options *options)
{
    if (ebb_mode() != EBB_GRAD_ON) return fn(user, out, x);
    EBB_LOCAL(input); /* the caller may rebind x's variable to out */
    EBB_LOCAL(result);
    input = ebb_retain(x);
    ebb_context *ctx = ebb_tensor_context(x);
    ebb_status st = ebb_segment_begin(ctx, options);
    if (st != EBB_OK) return st;
    st = fn(user, &result, input);
    ebb_segment_end(ctx);
    if (st == EBB_OK) ebb_move(out, &result);
    return st;
}

void ebb_recompute_stats_get(const ebb_context *ctx, ebb_recompute_stats *stats)
{
    *stats = (ebb_recompute_stats){ .segments = ctx->n_segments, .recomputed_ops = ctx->recomputed_ops,
                                    .recompute_flops = ctx->recompute_flops, .promised_bytes = ctx->promised_bytes,
                                    .refused_recipes = ctx->refused_recipes,
                                    .offloaded_bytes = ctx->offloaded_bytes, .fetched_bytes = ctx->fetched_bytes,
                                    .packed_from_bytes = ctx->packed_from_bytes, .packed_bytes = ctx->packed_bytes };
}

double ebb_flops(const ebb_context *ctx) { return ctx->flops; }
