/* record.c: the recorder: from a call to a node with edges and saved slots. */
#include <string.h>

#include "autograd/saver.h"
#include "core/mem.h"
#include "tensor/upward.h"

ebb_status ebb__record_new(ebb__record **out, const ebb_call *call)
{
    size_t n_args = (size_t)(call->n_in + call->n_out);
    ebb__record *r = ebb__malloc(sizeof *r + n_args * sizeof r->args[0]);
    if (!r) return EBB_ENOMEM;
    atomic_init(&r->refs, 1);
    r->op = call->op;
    r->n_in = call->n_in;
    r->n_out = call->n_out;
    r->rng_seed = call->rng_seed;
    r->rng_offset = call->rng_offset;
    r->view_offset = call->view_offset;
    r->scope = call->ctx->scope;
    r->site = ebb__site_get();
    r->node = 0;
    memcpy(r->attrs, call->attrs, sizeof r->attrs);
    memcpy(r->args, call->in, (size_t)call->n_in * sizeof r->args[0]);
    memcpy(r->args + call->n_in, call->out, (size_t)call->n_out * sizeof r->args[0]);
    for (size_t i = 0; i < n_args; i++) r->args[i].data = NULL;
    *out = r;
    return EBB_OK;
}

void ebb__record_release(ebb__record *r)
{
    if (r && atomic_fetch_sub(&r->refs, 1) == 1) ebb__free(r);
}

void ebb__record_to_call(const ebb__record *r, ebb_context *ctx, ebb_call *call)
{
    memset(call, 0, sizeof *call);
    call->op = r->op;
    call->ctx = ctx;
    call->n_in = r->n_in;
    call->n_out = r->n_out;
    call->rng_seed = r->rng_seed;
    call->rng_offset = r->rng_offset;
    call->view_offset = r->view_offset;
    memcpy(call->attrs, r->attrs, sizeof r->attrs);
    memcpy(call->in, r->args, (size_t)r->n_in * sizeof r->args[0]);
    memcpy(call->out, r->args + r->n_in, (size_t)r->n_out * sizeof r->args[0]);
}

bool ebb__tensor_wants_grad(const ebb_tensor *t) { return t->node || t->requires_grad; }

static bool needs_node(const ebb_call *call, ebb_tensor *const ins[])
{
    if (ebb_mode() != EBB_GRAD_ON || (call->op->flags & EBB_OP_NO_GRAD)) return false;
    for (int i = 0; i < call->n_in; i++)
        if (!(call->op->no_grad_in & EBB_IN(i)) && ebb__tensor_wants_grad(ins[i])) return true;
    return false;
}

ebb_status ebb__record_begin(ebb__recording *r, const ebb_call *call, ebb_tensor *const ins[])
{
    memset(r, 0, sizeof *r);
    bool node = needs_node(call, ins);
    r->in_segment = call->ctx->segment != NULL;
    if (!node && !r->in_segment) return EBB_OK;
    ebb_status st = ebb__record_new(&r->record, call);
    if (st == EBB_OK && node) st = ebb__node_new(&r->node, call, r->record, ins);
    if (st == EBB_OK) st = ebb__saver_begin(r, call, ins);
    if (st != EBB_OK) {
        ebb__record_abort(r);
        return st;
    }
    if (r->node && !ebb__saver_recomputes_outputs(call->ctx))
        r->keep_out = ebb__node_needs(r->node);
    return EBB_OK;
}

void ebb__record_abort(ebb__recording *r)
{
    ebb__saver_end(r);
    ebb__node_release(r->node);
    ebb__record_release(r->record);
    memset(r, 0, sizeof *r);
}

static void save_slots(ebb_node *node, ebb_tensor *const ins[], ebb_tensor *const outs[])
{
    bool promised = ebb__saver_recomputes_outputs(node->ctx);
    for (int i = 0; i < node->record->n_in; i++)
        if (node->slot_of_in[i] >= 0) ebb__slot_save(&node->slots[node->slot_of_in[i]], ins[i]);
    for (int j = 0; j < node->record->n_out; j++) {
        if (node->slot_of_out[j] < 0) continue;
        ebb__slot *slot = &node->slots[node->slot_of_out[j]];
        const ebb_arg *out = &node->record->args[node->record->n_in + j];
        slot->bytes = (size_t)out->elems * ebb_dtype_bytes(out->dtype);
        if (promised)
            ebb__promise_take(slot, ebb__saver_output_promise(node->ctx, j), outs[j] ? outs[j]->storage : NULL);
        else ebb__slot_keep(slot, outs[j]->storage, outs[j]->offset);
    }
}

void ebb__record_commit(ebb__recording *r, const ebb_call *call, ebb_tensor *const ins[], ebb_tensor *const outs[])
{
    ebb__saver_mark(call, outs);
    if (!r->record) return;
    if (r->node) {
        r->record->node = r->node->seq;
        int visible = call->n_out - call->op->n_aux;
        for (int j = 0; j < visible; j++) {
            if (!outs[j]) continue;
            ebb__node_retain(r->node);
            outs[j]->node = r->node;
            outs[j]->out = j;
        }
    }
    ebb__saver_commit(r, ins, outs);
    if (r->node) save_slots(r->node, ins, outs);
    ebb__saver_end(r);
    ebb__node_release(r->node);
    ebb__record_release(r->record);
    memset(r, 0, sizeof *r);
}
