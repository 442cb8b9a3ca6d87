/* backward.c: the walk: from roots to leaves, in reverse order of creation, never recursive.
 *
 * A first pass finds the reachable nodes and refuses a released graph before anything is touched.
 * Consumers are always younger than what they read, so youngest first is a valid order.  After each
 * node its saved slots are released, before the next node runs. */
#include <stdlib.h>
#include <string.h>

#include "autograd/gradient.h"
#include "autograd/hooks.h"
#include "autograd/saver.h"
#include "core/assert.h"
#include "core/mem.h"
#include "tensor/upward.h"

/* ---- finding what to walk ----------------------------------------------------------------- */

static ebb_status add_leaf(ebb__walk *w, ebb_tensor *leaf)
{
    if (leaf->stamp != w->number) {
        ebb_status st = ebb__grow(&w->leaves, &w->cap_leaves, w->n_leaves + 1, sizeof w->leaves[0]);
        if (st != EBB_OK) return st;
        w->leaves[w->n_leaves++] = leaf;
        ebb__engine_retain(leaf);
        leaf->stamp = w->number;
        leaf->uses = 0;
        leaf->target = 0;
    }
    leaf->uses++;
    return EBB_OK;
}

static ebb_status add_node(ebb__walk *w, ebb_node *node)
{
    if (node->stamp == w->number) return EBB_OK;
    if (node->released && node->n_slots)
        return ebb_fail(EBB_ESTATE,
                        "backward: the saved tensors of %s #%llu%s%s were already released by backward %llu; "
                        "give retain_graph to that backward, or detach what links to its graph",
                        node->record->op->name, (unsigned long long)node->seq, node->record->scope ? " in " : "",
                        node->record->scope ? node->record->scope : "", (unsigned long long)node->released_by);
    ebb_status st = ebb__grow(&w->nodes, &w->cap_nodes, w->n_nodes + 1, sizeof w->nodes[0]);
    if (st != EBB_OK) return st;
    w->nodes[w->n_nodes++] = node;
    ebb__node_retain(node);
    node->stamp = w->number;
    node->wanted = w->options.n_targets == 0;
    return EBB_OK;
}

/* Breadth first over w->nodes, which is its own queue. */
static ebb_status discover(ebb__walk *w)
{
    for (size_t at = 0; at < w->n_nodes; at++) {
        ebb_node *node = w->nodes[at];
        for (int i = 0; i < node->record->n_in; i++) {
            ebb_status st = EBB_OK;
            if (node->edges[i].node) st = add_node(w, node->edges[i].node);
            else if (node->edges[i].leaf) st = add_leaf(w, node->edges[i].leaf);
            if (st != EBB_OK) return st;
        }
    }
    return EBB_OK;
}

static int youngest_first(const void *a, const void *b)
{
    uint64_t x = (*(ebb_node *const *)a)->seq, y = (*(ebb_node *const *)b)->seq;
    return x < y ? 1 : x > y ? -1 : 0;
}

static int target_of(const ebb__walk *w, const ebb_node *node, int out)
{
    for (int k = 0; k < w->options.n_targets; k++)
        if (w->options.targets[k]->node == node && w->options.targets[k]->out == out) return 1 + k;
    return 0;
}

/* The first place in the list of the tensor that stands at place k. */
static int same_target(const ebb__walk *w, int k)
{
    ebb_tensor *const *t = w->options.targets;
    int first = 0;
    while (t[first] != t[k] && !(t[k]->node && t[first]->node == t[k]->node && t[first]->out == t[k]->out)) first++;
    return first;
}

/* Oldest first: a node is wanted when one of its gradients leads to a target. */
static void mark_wanted(ebb__walk *w)
{
    for (int k = 0; k < w->options.n_targets; k++) {
        ebb_tensor *t = w->options.targets[k];
        if (!t->node && t->stamp == w->number) t->target = 1 + same_target(w, k);
    }
    for (size_t at = w->n_nodes; at-- > 0;) {
        ebb_node *node = w->nodes[at];
        for (int i = 0; i < node->record->n_in; i++) {
            const ebb__edge *e = &node->edges[i];
            if (e->leaf && e->leaf->target) node->wanted = true;
            if (e->node && (e->node->wanted || target_of(w, e->node, e->out))) node->wanted = true;
        }
    }
}

/* ---- roots -------------------------------------------------------------------------------- */

static ebb_status check_root(const ebb__walk *w, int k)
{
    ebb_tensor *root = w->roots[k], *grad = w->options.grads ? w->options.grads[k] : NULL;
    char a[96], b[96];
    if (!root) return ebb_fail(EBB_EINVAL, "backward: root %d is NULL", k);
    if (root->ctx != w->roots[0]->ctx) return ebb_fail(EBB_EDEVICE, "backward: roots belong to different contexts");
    if (!ebb__tensor_wants_grad(root))
        return ebb_fail(EBB_ESTATE, "backward: root %d (%s) has no history and needs no gradient", k,
                        ebb_tensor_describe(root, a, sizeof a));
    if (!grad && root->elems != 1)
        return ebb_fail(EBB_ESHAPE,
                        "backward: root %d is %s; only a root with one element may go without a given gradient", k,
                        ebb_tensor_describe(root, a, sizeof a));
    if (!grad) return EBB_OK;
    if (grad->ctx != root->ctx)
        return ebb_fail(EBB_EDEVICE, "backward: root %d and its gradient belong to different contexts", k);
    if (grad->dtype != root->dtype)
        return ebb_fail(EBB_EDTYPE, "backward: the gradient of root %d is %s, the root %s", k,
                        ebb_tensor_describe(grad, b, sizeof b), ebb_tensor_describe(root, a, sizeof a));
    if (grad->ndim != root->ndim || memcmp(grad->dims, root->dims, (size_t)root->ndim * sizeof root->dims[0]) != 0)
        return ebb_fail(EBB_ESHAPE, "backward: the gradient of root %d is %s, the root %s", k,
                        ebb_tensor_describe(grad, b, sizeof b), ebb_tensor_describe(root, a, sizeof a));
    return EBB_OK;
}

static ebb_status find_graph(ebb__walk *w)
{
    for (int k = 0; k < w->n_roots; k++) {
        ebb_status st = check_root(w, k);
        if (st == EBB_OK) st = w->roots[k]->node ? add_node(w, w->roots[k]->node) : add_leaf(w, w->roots[k]);
        if (st != EBB_OK) return st;
    }
    ebb_status st = discover(w);
    if (st != EBB_OK) return st;
    if (w->n_nodes) qsort(w->nodes, w->n_nodes, sizeof w->nodes[0], youngest_first);
    if (w->options.n_targets) mark_wanted(w);
    return EBB_OK;
}

static ebb_status root_gradient(ebb__walk *w, int k, ebb_tensor **out)
{
    ebb_tensor *root = w->roots[k];
    if (w->options.grads && w->options.grads[k]) {
        ebb_bind(out, w->options.grads[k]);
        return EBB_OK;
    }
    return ebb__full(out, w->ctx, root->dtype, root->ndim, root->dims, 1.0, "gradient of backward's root");
}

static ebb_status seed_roots(ebb__walk *w)
{
    for (int k = 0; k < w->n_roots; k++) {
        ebb_tensor *root = w->roots[k];
        EBB_LOCAL(grad);
        ebb_status st = root_gradient(w, k, &grad);
        ebb__edge edge = { .node = root->node, .leaf = root->node ? NULL : root, .out = root->out };
        if (st == EBB_OK) st = ebb__gradient_add(w, &edge, &grad);
        if (st != EBB_OK) return st;
    }
    return EBB_OK;
}

/* ---- walking ------------------------------------------------------------------------------ */

static ebb_status finish_output(ebb__walk *w, ebb_node *node, int out)
{
    ebb_status st = ebb__hooks_run_grad(node->hooks[out], NULL, &node->pending[out]);
    int target = st == EBB_OK ? target_of(w, node, out) : 0;
    if (target) ebb_bind(&w->found[target - 1], node->pending[out]);
    return st;
}

static ebb_status walk_node(ebb__walk *w, ebb_node *node)
{
    bool reached = false;
    ebb_status st = EBB_OK;
    for (int j = 0; j < node->record->n_out && st == EBB_OK; j++) {
        if (!node->pending[j]) continue;
        reached = true;
        st = finish_output(w, node, j);
    }
    ebb__trace_mark(w->ctx->pool, EBB__ACT_NODE, &(ebb__owner){ .op = node->record->op->name,
        .scope = node->record->scope, .node = node->seq, .phase = EBB__PHASE_BACKWARD });
    if (st == EBB_OK && reached && node->wanted) st = ebb__node_backward(w, node);
    for (int j = 0; j < EBB_MAX_OUT; j++) ebb_drop(&node->pending[j]);
    if (st != EBB_OK) return st;
    if (!w->options.retain_graph) ebb__node_release_slots(node, w->number);
    else
        for (int k = 0; k < node->n_slots; k++) ebb__slot_unfill(&node->slots[k]);
    if (!(reached && node->wanted)) ebb__gradient_skip(node);
    return ebb__gradient_complete(w, node);
}

static ebb_status walk(ebb__walk *w)
{
    ebb_status st = seed_roots(w);
    for (size_t at = 0; at < w->n_nodes && st == EBB_OK; at++) st = walk_node(w, w->nodes[at]);
    return st;
}

/* A backward that failed midway leaves no half: saved tensors and touched gradients go. */
static void undo(ebb__walk *w)
{
    for (size_t at = 0; at < w->n_nodes; at++) {
        for (int j = 0; j < EBB_MAX_OUT; j++) ebb_drop(&w->nodes[at]->pending[j]);
        ebb__node_release_slots(w->nodes[at], w->number);
    }
    for (size_t at = 0; at < w->n_leaves; at++) {
        ebb_drop(&w->leaves[at]->pending);
        if (w->options.n_targets == 0) ebb_drop_grad(w->leaves[at]);
    }
    w->ctx->gradients_invalid = true;
}

/* Targets that no path leads to get NULL; one that is listed twice is bound twice. */
static void publish_targets(ebb__walk *w)
{
    for (int k = 0; k < w->options.n_targets; k++) ebb_bind(&w->options.target_grads[k], w->found[same_target(w, k)]);
}

static ebb_status walk_init(ebb__walk *w)
{
    if (!w->options.n_targets) return EBB_OK;
    w->found = ebb__calloc((size_t)w->options.n_targets, sizeof w->found[0]);
    return w->found ? EBB_OK : EBB_ENOMEM;
}

static void walk_deinit(ebb__walk *w)
{
    for (int k = 0; w->found && k < w->options.n_targets; k++) ebb_drop(&w->found[k]);
    ebb__free(w->found);
    for (size_t at = 0; at < w->n_nodes; at++) ebb__node_release(w->nodes[at]);
    for (size_t at = 0; at < w->n_leaves; at++) ebb__engine_drop(&w->leaves[at]);
    ebb__free(w->nodes);
    ebb__free(w->leaves);
}

static ebb_status check_options(const ebb_backward_options *o, ebb_tensor *const roots[], int n_roots)
{
    if (n_roots < 1) return ebb_fail(EBB_EINVAL, "backward: no roots");
    if (o->struct_bytes != sizeof *o)
        return ebb_fail(EBB_EINVAL, "backward: options.struct_bytes is %zu, expected %zu", o->struct_bytes, sizeof *o);
    if (o->n_targets < 0 || (o->n_targets && (!o->targets || !o->target_grads)))
        return ebb_fail(EBB_EINVAL, "backward: targets and target_grads must both be given");
    for (int k = 0; k < o->n_targets; k++)
        if (!o->targets[k] || !ebb__tensor_wants_grad(o->targets[k]))
            return ebb_fail(EBB_ESTATE, "backward: target %d needs no gradient", k);
    if (!roots[0]) return ebb_fail(EBB_EINVAL, "backward: root 0 is NULL");
    for (int k = 0; k < o->n_targets; k++)
        if (o->targets[k]->ctx != roots[0]->ctx)
            return ebb_fail(EBB_EDEVICE, "backward: target %d and the roots belong to different contexts", k);
    return EBB_OK;
}

ebb_status ebb_backward_ex(ebb_tensor *const roots[], int n_roots, const ebb_backward_options *options)
{
    ebb_backward_options plain = { .struct_bytes = sizeof plain };
    if (!options) options = &plain;
    ebb_status st = check_options(options, roots, n_roots);
    if (st != EBB_OK) return st;
    ebb_context *ctx = roots[0]->ctx;
    if (ctx->walking)
        return ebb_fail(EBB_ESTATE, "backward: another backward of this context is running (a hook called it)");
    ebb__walk w = {
        .ctx = ctx, .number = ++ctx->backward_number, .options = *options, .roots = roots, .n_roots = n_roots
    };
    st = walk_init(&w);
    if (st == EBB_OK) st = find_graph(&w);
    if (st == EBB_OK) {
        EBB_WITH_MODE(EBB_NO_GRAD);
        ebb__phase before = ebb__phase_set(ctx, EBB__PHASE_BACKWARD);
        const char *scope = ctx->scope;
        ctx->retain_graph = options->retain_graph;
        ctx->walking = true;
        st = walk(&w);
        if (st == EBB_OK) st = ebb__gradient_finish(&w);
        if (st == EBB_OK) publish_targets(&w);
        else undo(&w);
        ebb__saver_backward_end(ctx);
        ctx->walking = false;
        ctx->scope = scope;
        ebb__phase_set(ctx, before);
    }
    walk_deinit(&w);
    return st;
}

ebb_status ebb_backward(ebb_tensor *root)
{
    return ebb_backward_ex(&root, 1, NULL);
}

bool ebb_gradients_valid(const ebb_context *ctx) { return !ctx->gradients_invalid; }
void ebb_gradients_reset(ebb_context *ctx) { ctx->gradients_invalid = false; }
