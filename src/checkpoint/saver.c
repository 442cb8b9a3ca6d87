/* saver.c: what the recorder and the slots ask: keep, or promise? */
#include "autograd/saver.h"

#include "checkpoint/segment.h"
#include "core/assert.h"
#include "tensor/upward.h"

static ebb_saver ask_policy(const ebb__segment *s, const ebb_call *call)
{
    if (call->op->flags & EBB_OP_STATEFUL) return EBB_SAVER_KEEP;
    if (!s->options.policy) return EBB_SAVER_RECOMPUTE;
    return s->options.policy(s->options.user, call->op, call);
}

ebb_status ebb__saver_begin(ebb__recording *r, const ebb_call *call, ebb_tensor *const ins[])
{
    for (ebb__segment *s = call->ctx->segment; s; s = s->parent) {
        ebb_status st = ebb__segment_reserve(s, call->n_in, call->n_out);
        if (st != EBB_OK) return st;
        s->saver = ask_policy(s, call);
    }
    return r->node ? ebb__recipe_begin(r, call, ins) : EBB_OK;
}

bool ebb__saver_recomputes_outputs(const ebb_context *ctx)
{
    return ctx->segment && ctx->segment->saver == EBB_SAVER_RECOMPUTE;
}

/* Outer segments first: an inner one's externals may be the outer one's values. */
static void append_outermost_first(ebb__segment *s, ebb__recording *r, ebb_tensor *const ins[], ebb_tensor *const outs[])
{
    if (s->parent) append_outermost_first(s->parent, r, ins, outs);
    ebb__segment_append(s, r->record, ins, outs, s->saver);
}

void ebb__saver_commit(ebb__recording *r, ebb_tensor *const ins[], ebb_tensor *const outs[])
{
    if (r->in_segment) append_outermost_first(ins[0]->ctx->segment, r, ins, outs);
    if (r->recipe) ebb__recipe_commit(r, ins, outs);
}

void ebb__saver_abort(ebb__recording *r)
{
    ebb__segment_release(r->recipe);
    r->recipe = NULL;
}

ebb__promise ebb__saver_promise(const ebb_tensor *t)
{
    ebb__promise none = { 0 };
    const ebb__segment *s = t->ctx->segment;
    int32_t value;
    if (t->recipe.segment) return t->recipe;
    if (!s || t->storage->base <= EBB_CAT_INPUT || !ebb__uid_map_get(&s->map, t->id, &value)) return none;
    return (ebb__promise){ t->ctx->segment, value };
}

ebb__promise ebb__saver_output_promise(const ebb_context *ctx, int out)
{
    ebb__segment *s = ctx->segment;
    return (ebb__promise){ s, (int32_t)((s->n_entries - 1) * EBB_MAX_OUT) + out };
}

void ebb__promise_take(ebb__slot *slot, ebb__promise promise)
{
    ebb__segment *s = promise.segment;
    EBB_ASSERT(slot->state == EBB_SLOT_EMPTY);
    slot->state = EBB_SLOT_PROMISED;
    slot->promise = promise;
    slot->prev = NULL;
    slot->next = s->promises;
    if (slot->next) slot->next->prev = slot;
    s->promises = slot;
    s->ctx->promised_bytes += slot->bytes;
    ebb__segment_retain(s);
}

void ebb__promise_drop(ebb__slot *slot)
{
    ebb__segment *s = slot->promise.segment;
    if (slot->prev) slot->prev->next = slot->next;
    else s->promises = slot->next;
    if (slot->next) slot->next->prev = slot->prev;
    slot->prev = slot->next = NULL;
    slot->promise.segment = NULL;
    ebb__segment_release(s);
}

ebb_status ebb__promise_fill(ebb__slot *slot)
{
    ebb_status st = ebb__segment_fill(slot->promise.segment);
    EBB_ASSERT(st != EBB_OK || slot->state == EBB_SLOT_REFILLED);
    return st;
}

bool ebb__promise_repeatable(const ebb__slot *slot) { return !slot->promise.segment->spent; }

void ebb__promise_backward_end(ebb_context *ctx)
{
    while (ctx->filled) {
        ebb__segment *s = ctx->filled;
        ctx->filled = s->next_filled;
        s->in_filled = false;
        for (ebb__slot *slot = s->promises; slot && ctx->retain_graph; slot = slot->next) ebb__slot_unfill(slot);
    }
}

ebb_status ebb__segment_allows_change(const ebb_tensor *t, const char *what)
{
    const ebb__segment *s = t->ctx->segment;
    if (t->storage->replayed)
        return ebb_fail(EBB_ESTATE, "%s: a checkpoint segment or an op recipe may make these bytes again, as they were "
                        "made, so they may not be changed in place; make a new tensor", what);
    if (!s || t->storage->id >= s->first_tensor_id) return EBB_OK;
    return ebb_fail(EBB_ESTATE, "%s: inside segment '%s' a tensor from outside may not be changed in place, since a "
                    "recompute would read the changed bytes; make a new one", what, s->name);
}
