/* inspect.c: what is alive. */
#include "autograd/node.h"

ebb_node *ebb_tensor_node(const ebb_tensor *t) { return t->node; }
const char *ebb_node_name(const ebb_node *node) { return node->record->op->name; }
uint64_t ebb_node_seq(const ebb_node *node) { return node->seq; }
const char *ebb_node_scope(const ebb_node *node) { return node->record->scope ? node->record->scope : ""; }
size_t ebb_live_nodes(const ebb_context *ctx) { return ctx->n_nodes; }

int ebb_node_slots(const ebb_node *node, ebb_slot_info *slots, int max)
{
    for (int k = 0; k < node->n_slots && k < max; k++) {
        const ebb__slot *slot = &node->slots[k];
        slots[k] = (ebb_slot_info){ .name = ebb__slot_name(node, k), .state = slot->state, .bytes = slot->bytes,
                                    .version = slot->version };
    }
    return node->n_slots;
}

void ebb_each_node(const ebb_context *ctx, void (*emit)(void *user, const ebb_node *node), void *user)
{
    for (const ebb_node *node = ctx->nodes; node; node = node->next) emit(user, node);
}

static bool holds(const ebb__slot *slot) { return slot->storage != NULL; }

/* Each storage once: only the first slot that holds it counts. */
static bool held_before(const ebb_context *ctx, const ebb_node *until, int until_slot)
{
    const ebb_storage *s = until->slots[until_slot].storage;
    if (s->kept + s->refilled == 1) return false;
    for (const ebb_node *node = ctx->nodes; node; node = node->next)
        for (int k = 0; k < node->n_slots; k++) {
            if (node == until && k == until_slot) return false;
            if (holds(&node->slots[k]) && node->slots[k].storage == s) return true;
        }
    return false;
}

void ebb_each_saved(const ebb_context *ctx,
                    void (*emit)(void *user, const ebb_node *node, const char *slot, const ebb_storage *storage),
                    void *user)
{
    for (const ebb_node *node = ctx->nodes; node; node = node->next)
        for (int k = 0; k < node->n_slots; k++)
            if (holds(&node->slots[k]) && !held_before(ctx, node, k))
                emit(user, node, ebb__slot_name(node, k), node->slots[k].storage);
}

static void add_bytes(void *user, const ebb_node *node, const char *slot, const ebb_storage *storage)
{
    (void)node;
    (void)slot;
    *(size_t *)user += storage->bytes;
}

size_t ebb_saved_bytes(const ebb_context *ctx)
{
    size_t bytes = 0;
    ebb_each_saved(ctx, add_bytes, &bytes);
    return bytes;
}
