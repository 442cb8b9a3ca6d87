/* saver.c: what the recorder and the slots ask: keep, or promise? */
#include "autograd/saver.h"

#include "checkpoint/check.h"
#include "checkpoint/pack.h"
#include "checkpoint/policy.h"
#include "core/assert.h"
#include "core/mem.h"
#include "tensor/upward.h"

ebb_status ebb__saver_begin(ebb__recording *r, const ebb_call *call, ebb_tensor *const ins[])
{
    for (ebb__segment *s = call->ctx->segment; s; s = s->parent) {
        ebb_status st = ebb__segment_reserve(s, call->n_in, call->n_out);
        if (st == EBB_OK) st = ebb__segment_ask(s, call);
        if (st != EBB_OK) return st;
    }
    ebb_status st = r->node ? ebb__recipe_begin(r, call, ins) : EBB_OK;
    return st == EBB_OK ? ebb__policy_reserve(r, call, ins) : st;
}

bool ebb__saver_recomputes_outputs(const ebb_context *ctx)
{
    return ctx->segment && ctx->segment->saver == EBB_SAVER_RECOMPUTE;
}

/* Outer segments first: an inner one's externals may be the outer one's values. */
static void append_outermost_first(ebb__segment *s, ebb__recording *r, ebb_tensor *const ins[],
                                   ebb_tensor *const outs[])
{
    if (s->parent) append_outermost_first(s->parent, r, ins, outs);
    ebb__segment_append(s, r->record, ins, outs, s->saver);
}

void ebb__saver_commit(ebb__recording *r, ebb_tensor *const ins[], ebb_tensor *const outs[])
{
    ebb__policy_attach(r, outs);
    if (r->in_segment) append_outermost_first(ins[0]->ctx->segment, r, ins, outs);
    if (r->recipe) ebb__recipe_commit(r, ins, outs);
}

void ebb__saver_end(ebb__recording *r)
{
    ebb__segment_release(r->recipe);
    r->recipe = NULL;
    for (int i = 0; i < EBB_MAX_IN + EBB_MAX_OUT; i++) {
        ebb__pack_release(r->packs[i]);
        r->packs[i] = NULL;
    }
}

void ebb__saver_storage_gone(ebb_storage *s)
{
    if (s->pack) s->pack->source = NULL;
    ebb__contract_storage_gone(s);
}

void ebb__saver_deinit(ebb_context *ctx)
{
    ebb__host_close(ctx);
    ebb__contract_records_free(ctx);
    ebb__free(ctx->op_savers);
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

void ebb__promise_take(ebb__slot *slot, ebb__promise promise, ebb_storage *storage)
{
    ebb__segment *s = promise.segment;
    EBB_ASSERT(slot->state == EBB_SLOT_EMPTY);
    slot->state = EBB_SLOT_PROMISED;
    slot->promise = promise;
    slot->prev = NULL;
    slot->next = s->promises;
    if (slot->next) slot->next->prev = slot;
    s->promises = slot;
    if (ebb__segment_makes(s, promise.value)) {
        s->ctx->promised_bytes += slot->bytes;
        if (s->contract) ebb__contract_promise(s->contract, storage, slot->bytes);
    }
    slot->hash = ebb__check_hash(storage);
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

void ebb__saver_backward_end(ebb_context *ctx)
{
    while (ctx->filled) {
        ebb__segment *s = ctx->filled;
        ctx->filled = s->next_filled;
        s->in_filled = false;
        for (ebb__slot *slot = s->promises; slot && ctx->retain_graph; slot = slot->next) ebb__slot_unfill(slot);
    }
    ebb__packs_rest(ctx);
}

ebb_status ebb__segment_allows_change(const ebb_tensor *t, const char *what)
{
    const ebb__segment *s = t->ctx->segment;
    ebb__pack_before_change(t->storage);
    if (t->storage->replayed)
        return ebb_fail(EBB_ESTATE, "%s: a checkpoint segment or an op recipe may make these bytes again, as they were "
                        "made, so they may not be changed in place; make a new tensor", what);
    if (!s || t->storage->id >= s->first_tensor_id) return EBB_OK;
    return ebb_fail(EBB_ESTATE, "%s: inside segment '%s' a tensor from outside may not be changed in place, since a "
                    "recompute would read the changed bytes; make a new one", what, s->name);
}
