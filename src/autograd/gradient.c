/* gradient.c: one node's backward, and the accumulation of what it gives.
 *
 * Inputs are done one at a time from the last to the first (all at once where the op says JOINT), so
 * that a slot can go as soon as no later gradient reads it.  A gradient is written straight to where
 * it accumulates: a leaf's gradient, or the gathering of the node that made the input. */
#include "autograd/gradient.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

#include "autograd/hooks.h"
#include "autograd/saver.h"

enum { COMPLETE = -1 }; /* a leaf's `uses` once its last contribution was dealt with */

/* ---- where gradients gather --------------------------------------------------------------- */

/* Leaves accumulate directly, unless a hook or a target wants this backward's gradient apart. */
static bool gathers_apart(const ebb__walk *w, const ebb_tensor *leaf)
{
    return w->options.n_targets > 0 || ebb__hooks_want_grad(leaf->hooks);
}

static ebb_tensor **place_of(const ebb__walk *w, const ebb__edge *edge)
{
    if (edge->node) return &edge->node->pending[edge->out];
    return gathers_apart(w, edge->leaf) ? &edge->leaf->pending : &edge->leaf->grad;
}

static bool edge_wanted(const ebb__walk *w, const ebb__edge *edge)
{
    if (edge->leaf) return w->options.n_targets == 0 || edge->leaf->target;
    if (!edge->node) return false;
    if (w->options.n_targets == 0 || edge->node->wanted) return true;
    for (int k = 0; k < w->options.n_targets; k++)
        if (w->options.targets[k]->node == edge->node && w->options.targets[k]->out == edge->out) return true;
    return false;
}

static void owner_is_node(ebb__owner *owner, const ebb_node *node)
{
    owner->node = node->seq;
    owner->scope = node->record->scope;
    owner->file = node->record->site.file;
    owner->line = node->record->site.line;
}

static ebb__owner gradient_owner(const ebb__walk *w, const ebb__edge *edge, const ebb_node *node)
{
    bool leaf = edge->leaf != NULL;
    ebb__owner owner = ebb__owner_now(w->ctx, leaf ? EBB_CAT_GRADIENT : EBB_CAT_TEMPORARY,
                                      node ? node->record->op->name : "backward");
    if (node) owner_is_node(&owner, node);
    return owner;
}

static void set_leaf_grad(ebb_tensor *leaf, ebb_tensor **grad)
{
    leaf->grad = *grad;
    (*grad)->engine_refs++;
    *grad = NULL;
}

/* A gathered gradient that somebody else can see must not be added to: it is copied first. */
static ebb_status make_own(ebb__walk *w, ebb_tensor **place, const ebb__owner *owner)
{
    if (ebb__tensor_is_sole(*place) && ebb_tensor_is_contiguous(*place)) return EBB_OK;
    ebb_arg from, to;
    ebb__tensor_arg(*place, &from);
    EBB_LOCAL(copy);
    ebb_status st = ebb__tensor_new(&copy, w->ctx, &from, owner);
    if (st != EBB_OK) return st;
    ebb__tensor_arg(copy, &to);
    st = ebb__arg_copy(w->ctx, &to, &from, "copy of a shared gradient");
    if (st != EBB_OK) return st;
    ebb_move(place, &copy);
    return EBB_OK;
}

/* ---- leaves that are complete ------------------------------------------------------------- */

static ebb_status hand_to_target(ebb__walk *w, ebb_tensor *leaf)
{
    if (leaf->target) ebb_move(&w->found[leaf->target - 1], &leaf->pending);
    ebb_drop(&leaf->pending);
    return EBB_OK;
}

static ebb_status leaf_complete(ebb__walk *w, ebb_tensor *leaf)
{
    ebb_status st = EBB_OK;
    bool got = leaf->pending != NULL;
    if (got) st = ebb__hooks_run_grad(leaf->hooks, leaf, &leaf->pending);
    if (st != EBB_OK) return st;
    if (w->options.n_targets) return hand_to_target(w, leaf);
    if (got) {
        ebb__owner owner = gradient_owner(w, &(ebb__edge){ .leaf = leaf }, NULL);
        if (!leaf->grad) {
            st = make_own(w, &leaf->pending, &owner);
            if (st != EBB_OK) return st;
            ebb_tensor_set_category(leaf->pending, EBB_CAT_GRADIENT);
            set_leaf_grad(leaf, &leaf->pending);
        } else {
            ebb_arg to, from;
            ebb__tensor_arg(leaf->grad, &to);
            ebb__tensor_arg(leaf->pending, &from);
            st = ebb__arg_add(w->ctx, &to, &from, "sum of gradients");
            if (st != EBB_OK) return st;
            ebb__storage_bump(leaf->grad->storage);
            ebb_drop(&leaf->pending);
        }
    }
    return leaf->grad ? ebb__hooks_run_accumulated(leaf->hooks, leaf) : EBB_OK;
}

/* Once per leaf: a node may read it twice. */
static ebb_status complete_if_last(ebb__walk *w, ebb_tensor *leaf)
{
    if (!leaf || leaf->uses != 0) return EBB_OK;
    leaf->uses = COMPLETE;
    return leaf_complete(w, leaf);
}

void ebb__gradient_skip(const ebb_node *node)
{
    for (int i = 0; i < node->record->n_in; i++)
        if (node->edges[i].leaf) node->edges[i].leaf->uses--;
}

ebb_status ebb__gradient_complete(ebb__walk *w, const ebb_node *node)
{
    ebb_status st = EBB_OK;
    for (int i = node->record->n_in - 1; i >= 0 && st == EBB_OK; i--)
        st = complete_if_last(w, node->edges[i].leaf);
    return st;
}

ebb_status ebb__gradient_finish(ebb__walk *w)
{
    ebb_status st = EBB_OK;
    for (size_t at = 0; at < w->n_leaves && st == EBB_OK; at++) {
        ebb_tensor *leaf = w->leaves[at];
        if (leaf->uses > 0) leaf->uses = 0;
        st = complete_if_last(w, leaf);
    }
    return st;
}

/* ---- adding a whole gradient -------------------------------------------------------------- */

ebb_status ebb__gradient_add(ebb__walk *w, const ebb__edge *edge, ebb_tensor **grad)
{
    ebb_tensor **place = place_of(w, edge);
    ebb__owner owner = gradient_owner(w, edge, NULL);
    ebb_status st = EBB_OK;
    if (!*place) {
        if (place == (edge->leaf ? &edge->leaf->grad : NULL)) {
            st = make_own(w, grad, &owner);
            if (st != EBB_OK) return st;
            ebb_tensor_set_category(*grad, EBB_CAT_GRADIENT);
            set_leaf_grad(edge->leaf, grad);
        } else ebb_move(place, grad);
    } else {
        bool held_by_user = edge->leaf && place == &edge->leaf->grad; /* adding in place is what is asked for */
        if (!held_by_user) st = make_own(w, place, &owner);
        if (st != EBB_OK) return st;
        ebb_arg to, from;
        ebb__tensor_arg(*place, &to);
        ebb__tensor_arg(*grad, &from);
        st = ebb__arg_add(w->ctx, &to, &from, "sum of gradients");
        if (st != EBB_OK) return st;
        ebb__storage_bump((*place)->storage);
    }
    if (edge->leaf) edge->leaf->uses--;
    return EBB_OK;
}

/* ---- one node ----------------------------------------------------------------------------- */

/* The inputs whose gradients one kernel call computes. */
typedef struct group { bool want[EBB_MAX_IN]; uint32_t later_needs; bool last; } group;

typedef struct node_run {
    ebb__walk *w;
    ebb_node *node;
    ebb_call call;
    ebb_tensor *fresh[EBB_MAX_IN]; /* gradients not yet in their place; counted */
} node_run;

static ebb_status open_slot(node_run *r, int k, ebb_arg *arg)
{
    ebb_node *node = r->node;
    char what[160];
    ebb__slot *slot = &node->slots[k];
    what[0] = '\0';
    if (ebb__slot_is_stale(slot))
        snprintf(what, sizeof what, "backward: %s #%llu%s%s: saved tensor %s", node->record->op->name,
                 (unsigned long long)node->seq, node->record->scope ? " in " : "",
                 node->record->scope ? node->record->scope : "", ebb__slot_name(node, k));
    ebb_status st = ebb__slot_open(slot, what);
    if (st == EBB_OK) arg->data = ebb__slot_data(slot, arg->dtype);
    return st;
}

/* Data is there for what `needs` declares, and absent otherwise, so that a wrong `needs` shows. */
static ebb_status open_slots(node_run *r, uint32_t needs)
{
    ebb_node *node = r->node;
    ebb_status st = EBB_OK;
    for (int i = 0; i < node->record->n_in && st == EBB_OK; i++) {
        r->call.in[i].data = NULL;
        if (needs & EBB_IN(i)) st = open_slot(r, node->slot_of_in[i], &r->call.in[i]);
    }
    for (int j = 0; j < node->record->n_out && st == EBB_OK; j++) {
        r->call.out[j].data = NULL;
        if (needs & EBB_OUT(j)) st = open_slot(r, node->slot_of_out[j], &r->call.out[j]);
    }
    return st;
}

static void release_unneeded(node_run *r, uint32_t later_needs)
{
    ebb_node *node = r->node;
    if (r->w->options.retain_graph) return;
    for (int i = 0; i < node->record->n_in; i++)
        if (node->slot_of_in[i] >= 0 && !(later_needs & EBB_IN(i)))
            ebb__slot_release(&node->slots[node->slot_of_in[i]], r->w->number);
    for (int j = 0; j < node->record->n_out; j++)
        if (node->slot_of_out[j] >= 0 && !(later_needs & EBB_OUT(j)))
            ebb__slot_release(&node->slots[node->slot_of_out[j]], r->w->number);
}

/* The gradient is dout itself: handed on without a kernel, seen with the input's shape. */
static ebb_status pass_on(node_run *r, int i, bool *done)
{
    ebb_node *node = r->node;
    const ebb_arg *x = &r->call.in[i];
    ebb_tensor *dout = node->pending[0];
    *done = false;
    if (!(node->record->op->pass & EBB_PASS(i)) || !dout) return EBB_OK;
    if (x->elems != dout->elems || x->dtype != dout->dtype) return EBB_OK;
    if (node->edges[i].leaf || *place_of(r->w, &node->edges[i])) return EBB_OK;
    ebb_arg shape = *x;
    ebb__arg_contiguous(&shape);
    bool same = dout->ndim == x->ndim && memcmp(dout->dims, x->dims, (size_t)x->ndim * sizeof x->dims[0]) == 0;
    if (!same && !(node->record->op->flags & EBB_OP_VIEW)) return EBB_OK; /* broadcast: [1, 3] from [3] */
    if (!same && !ebb_tensor_is_contiguous(dout)) return EBB_OK;
    if (same) r->fresh[i] = ebb_retain(dout);
    else {
        ebb_status st = ebb__tensor_over(&r->fresh[i], dout->storage, &shape, dout->offset);
        if (st != EBB_OK) return st;
    }
    *done = true;
    return EBB_OK;
}

/* dout may become din where nobody else sees it and nothing reads it afterwards. */
static bool may_write_over_dout(const node_run *r, int i, bool last)
{
    const ebb_op *op = r->node->record->op;
    ebb_tensor *dout = r->node->pending[0];
    return i == 0 && last && (op->flags & EBB_OP_GRAD_OVER_DOUT) && dout && !r->node->edges[0].leaf &&
           dout->dtype == r->call.in[0].dtype && dout->ndim == r->call.in[0].ndim &&
           memcmp(dout->dims, r->call.in[0].dims, (size_t)dout->ndim * sizeof dout->dims[0]) == 0 &&
           ebb__tensor_is_sole(dout) && ebb_tensor_is_contiguous(dout);
}

/* Input 0's saved bytes may become din where only its slot holds them and nothing reads them later. */
static bool may_write_over_input(const node_run *r, int i, bool last)
{
    const ebb_node *node = r->node;
    if (i != 0 || !last || !(node->record->op->flags & EBB_OP_GRAD_OVER_IN) || r->w->options.retain_graph) return false;
    if (node->edges[0].leaf || node->slot_of_in[0] < 0) return false;
    const ebb__slot *slot = &node->slots[node->slot_of_in[0]];
    size_t bytes = (size_t)r->call.in[0].elems * ebb_dtype_bytes(r->call.in[0].dtype);
    return slot->storage && slot->storage->bytes == bytes && atomic_load(&slot->storage->refs) == 1 &&
           slot->storage->base > EBB_CAT_INPUT && ebb_arg_is_contiguous(&r->call.in[0]);
}

/* One kernel call must not write two gradients to one place: the later one is added afterwards. */
static bool place_is_taken(const node_run *r, int i)
{
    for (int k = 0; k < i; k++)
        if (r->call.want[k] && place_of(r->w, &r->node->edges[k]) == place_of(r->w, &r->node->edges[i])) return true;
    return false;
}

/* Sets din[i]: onto what is gathered already, over dout, or into fresh bytes. */
static ebb_status place_gradient(node_run *r, int i, bool last)
{
    ebb__walk *w = r->w;
    const ebb__edge *edge = &r->node->edges[i];
    ebb_tensor **place = place_of(w, edge);
    ebb__owner owner = gradient_owner(w, edge, r->node);
    ebb_status st = EBB_OK;
    r->call.want[i] = true;
    bool onto = *place && !place_is_taken(r, i);
    r->call.accumulate[i] = onto;
    if (onto) {
        if (!edge->leaf || place != &edge->leaf->grad) st = make_own(w, place, &owner);
        if (st == EBB_OK) ebb__tensor_arg(*place, &r->call.din[i]);
        return st;
    }
    if (may_write_over_dout(r, i, last)) r->fresh[i] = ebb_retain(r->node->pending[0]);
    else if (may_write_over_input(r, i, last))
        st = ebb__tensor_over(&r->fresh[i], r->node->slots[r->node->slot_of_in[0]].storage, &r->call.in[0], 0);
    else st = ebb__tensor_new(&r->fresh[i], w->ctx, &r->call.in[i], &owner);
    if (st == EBB_OK) ebb__tensor_arg(r->fresh[i], &r->call.din[i]);
    return st;
}

/* What was computed is in its place: bound there, counted for leaves. */
static ebb_status settle(node_run *r, int i)
{
    const ebb__edge *edge = &r->node->edges[i];
    ebb_tensor **place = place_of(r->w, edge);
    if (r->fresh[i]) return ebb__gradient_add(r->w, edge, &r->fresh[i]);
    ebb__storage_bump((*place)->storage);
    if (edge->leaf) edge->leaf->uses--;
    return EBB_OK;
}

static ebb_status run_group(node_run *r, const group *g)
{
    const ebb_op *op = r->node->record->op;
    int n_in = r->node->record->n_in;
    uint32_t needs = 0;
    bool kernel = false;
    ebb_status st = EBB_OK;
    for (int i = 0; i < n_in; i++) {
        r->call.want[i] = r->call.accumulate[i] = false;
        memset(&r->call.din[i], 0, sizeof r->call.din[i]);
        if (!g->want[i]) continue;
        bool passed;
        st = pass_on(r, i, &passed);
        if (st != EBB_OK) return st;
        if (passed) continue;
        kernel = true;
        needs |= op->needs[i];
        r->call.want[i] = true;
    }
    if (kernel) {
        st = open_slots(r, needs); /* refills first: a recompute allocates before the gradient does */
        for (int i = 0; i < n_in && st == EBB_OK; i++)
            if (r->call.want[i]) st = place_gradient(r, i, g->last);
        ebb__owner owner = ebb__owner_now(r->w->ctx, EBB_CAT_WORKSPACE, op->name);
        owner_is_node(&owner, r->node);
        if (st == EBB_OK) st = ebb__run_kernel(&r->call, EBB_BACKWARD, &owner, &r->w->ctx->flops);
        if (st != EBB_OK) return st;
    }
    release_unneeded(r, g->later_needs);
    for (int i = 0; i < n_in && st == EBB_OK; i++)
        if (g->want[i]) st = settle(r, i);
    return st;
}

static ebb_status set_douts(node_run *r)
{
    ebb_node *node = r->node;
    ebb__owner owner = ebb__owner_now(r->w->ctx, EBB_CAT_TEMPORARY, node->record->op->name);
    for (int j = 0; j < node->record->n_out; j++) {
        r->call.dout[j] = node->record->args[node->record->n_in + j];
        r->call.dout[j].data = NULL;
        if (!node->pending[j]) continue;
        if (!(node->record->op->flags & EBB_OP_STRIDED)) {
            ebb_status st = ebb__contiguous_now(&node->pending[j], &owner);
            if (st != EBB_OK) return st;
        }
        ebb__tensor_arg(node->pending[j], &r->call.dout[j]);
    }
    return EBB_OK;
}

/* backward FLOPs are given for all gradients together; a call for some of them counts its share. */
static void count_share(node_run *r, double before, int done, int of)
{
    r->w->ctx->flops = before + rint((r->w->ctx->flops - before) * done / of); /* whole, so that sums are exact */
}

ebb_status ebb__node_backward(ebb__walk *w, ebb_node *node)
{
    const ebb_op *op = node->record->op;
    if (!op->cpu.backward && !op->pass)
        return ebb_fail(EBB_EUNSUPPORTED, "backward: %s #%llu has no gradient", op->name,
                        (unsigned long long)node->seq);
    node_run r = { .w = w, .node = node };
    ebb__record_to_call(node->record, w->ctx, &r.call);
    w->ctx->scope = node->record->scope;
    bool want[EBB_MAX_IN] = { false };
    int n_in = node->record->n_in, n_grads = 0, left = 0;
    for (int i = 0; i < n_in; i++) {
        want[i] = edge_wanted(w, &node->edges[i]);
        n_grads += !(op->no_grad_in & EBB_IN(i));
        left += want[i];
    }
    ebb_status st = set_douts(&r);
    for (int i = n_in - 1; i >= 0 && st == EBB_OK && left; i--) {
        if (!want[i]) continue;
        group g = { .last = left == 1 || (op->flags & EBB_OP_JOINT) };
        int size = 1;
        if (op->flags & EBB_OP_JOINT) {
            memcpy(g.want, want, sizeof want);
            size = left;
            i = 0;
        } else g.want[i] = true;
        for (int k = 0; k < i; k++)
            if (want[k]) g.later_needs |= op->needs[k];
        double before = w->ctx->flops;
        st = run_group(&r, &g);
        count_share(&r, before, size, n_grads ? n_grads : 1);
        left -= size;
    }
    for (int i = 0; i < n_in; i++) ebb_drop(&r.fresh[i]);
    return st;
}
