/* node.c: nodes are counted one by one, and freed without recursion. */
#include "autograd/node.h"

#include <string.h>

#include "autograd/hooks.h"
#include "core/assert.h"
#include "core/mem.h"
#include "tensor/upward.h"

static void list_add(ebb_node *node)
{
    ebb_context *ctx = node->ctx;
    pthread_mutex_lock(&ctx->lock);
    node->seq = ctx->next_node_seq++;
    node->prev = ctx->last_node;
    if (node->prev) node->prev->next = node;
    else ctx->nodes = node;
    ctx->last_node = node;
    ctx->n_nodes++;
    pthread_mutex_unlock(&ctx->lock);
}

static void list_remove(ebb_node *node)
{
    ebb_context *ctx = node->ctx;
    pthread_mutex_lock(&ctx->lock);
    if (node->prev) node->prev->next = node->next;
    else ctx->nodes = node->next;
    if (node->next) node->next->prev = node->prev;
    else ctx->last_node = node->prev;
    ctx->n_nodes--;
    pthread_mutex_unlock(&ctx->lock);
}

static uint32_t needs_of(const ebb_op *op, const ebb__edge *edges, int n_in)
{
    uint32_t needs = 0;
    for (int i = 0; i < n_in; i++)
        if (edges[i].node || edges[i].leaf) needs |= op->needs[i];
    return needs;
}

uint32_t ebb__node_needs(const ebb_node *node)
{
    return needs_of(node->record->op, node->edges, node->record->n_in);
}

static void fill_edges(ebb__edge *edges, const ebb_op *op, ebb_tensor *const ins[], int n_in)
{
    for (int i = 0; i < n_in; i++) {
        edges[i] = (ebb__edge){ 0 };
        if (op->no_grad_in & EBB_IN(i)) continue;
        edges[i].node = ins[i]->node;
        edges[i].out = ins[i]->out;
        if (!ins[i]->node && ins[i]->requires_grad) edges[i].leaf = ins[i];
    }
}

/* One allocation holds the node, its edges and its slots. */
ebb_status ebb__node_new(ebb_node **out, const ebb_call *call, ebb__record *record, ebb_tensor *const ins[])
{
    ebb__edge edges[EBB_MAX_IN];
    fill_edges(edges, call->op, ins, call->n_in);
    uint32_t needs = needs_of(call->op, edges, call->n_in);
    int n_slots = 0;
    for (int i = 0; i < call->n_in; i++) n_slots += (needs & EBB_IN(i)) != 0;
    for (int j = 0; j < call->n_out; j++) n_slots += (needs & EBB_OUT(j)) != 0;
    size_t slots_at = sizeof(ebb_node) + (size_t)call->n_in * sizeof(ebb__edge);
    ebb_node *node = ebb__calloc(1, slots_at + (size_t)n_slots * sizeof(ebb__slot));
    if (!node) return EBB_ENOMEM;
    atomic_init(&node->refs, 1);
    node->ctx = call->ctx;
    atomic_fetch_add(&call->ctx->refs, 1);
    node->edges = (ebb__edge *)(void *)(node + 1);
    node->slots = (ebb__slot *)(void *)((char *)node + slots_at);
    node->record = record;
    atomic_fetch_add(&record->refs, 1);
    memcpy(node->edges, edges, (size_t)call->n_in * sizeof edges[0]);
    for (int i = 0; i < call->n_in; i++) {
        if (edges[i].node) ebb__node_retain(edges[i].node);
        if (edges[i].leaf) ebb__engine_retain(edges[i].leaf);
        node->slot_of_in[i] = needs & EBB_IN(i) ? (signed char)node->n_slots++ : -1;
    }
    for (int j = 0; j < call->n_out; j++)
        node->slot_of_out[j] = needs & EBB_OUT(j) ? (signed char)node->n_slots++ : -1;
    list_add(node);
    *out = node;
    return EBB_OK;
}

void ebb__node_release_slots(ebb_node *node, uint64_t backward)
{
    for (int k = 0; k < node->n_slots; k++) ebb__slot_release(&node->slots[k], backward);
    node->released = true;
    node->released_by = backward;
}

static void node_free(ebb_node *node)
{
    list_remove(node);
    for (int k = 0; k < node->n_slots; k++) ebb__slot_release(&node->slots[k], 0);
    for (int j = 0; j < EBB_MAX_OUT; j++) {
        EBB_ASSERT(!node->pending[j]);
        ebb__hooks_free(node->hooks[j]);
    }
    for (int i = 0; i < node->record->n_in; i++) {
        ebb__node_release(node->edges[i].node);
        ebb__engine_drop(&node->edges[i].leaf);
    }
    ebb__record_release(node->record);
    ebb_context *ctx = node->ctx;
    ebb__free(node);
    ebb__context_release(ctx);
}

void ebb__node_retain(ebb_node *node) { atomic_fetch_add(&node->refs, 1); }

/* Freeing a node releases those before it: a list takes the place of recursion, so that a chain of
 * a million nodes needs no stack. */
void ebb__node_release(ebb_node *node)
{
    static _Thread_local ebb_node *waiting;
    static _Thread_local bool draining;
    if (!node || atomic_fetch_sub(&node->refs, 1) != 1) return;
    node->free_next = waiting;
    waiting = node;
    if (draining) return;
    draining = true;
    while (waiting) {
        ebb_node *next = waiting;
        waiting = next->free_next;
        node_free(next);
    }
    draining = false;
}

const char *ebb__slot_name(const ebb_node *node, int slot)
{
    static const char *const in_names[EBB_MAX_IN] = { "in0", "in1", "in2", "in3", "in4", "in5", "in6", "in7" };
    static const char *const out_names[EBB_MAX_OUT] = { "out0", "out1", "out2", "out3" };
    for (int i = 0; i < node->record->n_in; i++)
        if (node->slot_of_in[i] == slot) return in_names[i];
    for (int j = 0; j < node->record->n_out; j++)
        if (node->slot_of_out[j] == slot) return out_names[j];
    return "";
}
