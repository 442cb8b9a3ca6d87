/* inspect.c: what is alive, and why. */
#include <stdio.h>
#include <string.h>

#include "autograd/node.h"
#include "core/mem.h"

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

/* ---- why ---------------------------------------------------------------------------------- */

typedef struct text { char *buf; size_t cap, n; } text;

static void put(text *t, const char *part)
{
    size_t n = strlen(part);
    for (size_t i = 0; i < n; i++, t->n++)
        if (t->n + 1 < t->cap) t->buf[t->n] = part[i];
    if (t->cap) t->buf[t->n + 1 < t->cap ? t->n : t->cap - 1] = 0;
}

static void put_node(text *t, const ebb_node *node)
{
    char part[96];
    snprintf(part, sizeof part, "%s #%llu", node->record->op->name, (unsigned long long)node->seq);
    put(t, part);
}

static void put_handle(text *t, const ebb_tensor *h)
{
    char part[160], shape[96];
    if (h->name) snprintf(part, sizeof part, "handle '%s'", h->name);
    else snprintf(part, sizeof part, "handle %s", ebb_tensor_describe(h, shape, sizeof shape));
    put(t, part);
}

static bool is_handle(const ebb_tensor *t) { return atomic_load(&t->refs) > t->engine_refs; }

static const ebb_tensor *handle_of_node(const ebb_node *node)
{
    for (const ebb_tensor *t = node->ctx->tensors; t; t = t->next)
        if (t->node == node && is_handle(t)) return t;
    return NULL;
}

/* A node that reads from `node`; the oldest, so that paths are the same each time. */
static const ebb_node *consumer_of(const ebb_node *node)
{
    for (const ebb_node *c = node->next; c; c = c->next)
        for (int i = 0; i < c->record->n_in; i++)
            if (c->edges[i].node == node) return c;
    return NULL;
}

enum { SHOWN_ENDS = 3 }; /* nodes shown at each end of a long path */

/* "handle 'loss' -> add #12 -> linear #7": from a live handle down to the node. */
static void put_path(text *t, const ebb_node *node)
{
    const ebb_node *low[SHOWN_ENDS], *high[SHOWN_ENDS]; /* nearest to the node; nearest to the handle, as a ring */
    size_t n = 0;
    const ebb_tensor *handle = NULL;
    for (const ebb_node *at = node; at && !handle; at = consumer_of(at), n++) {
        if (n < SHOWN_ENDS) low[n] = at;
        high[n % SHOWN_ENDS] = at;
        handle = handle_of_node(at);
    }
    if (handle) put_handle(t, handle);
    else put(t, "(no handle)");
    for (size_t i = n; i-- > 0;) {
        if (n > 2 * SHOWN_ENDS && i == n - SHOWN_ENDS - 1) put(t, " -> ...");
        if (i >= SHOWN_ENDS && i < n - SHOWN_ENDS) continue;
        put(t, " -> ");
        put_node(t, i < SHOWN_ENDS ? low[i] : high[i % SHOWN_ENDS]);
    }
}

static void why_tensor(text *out, const ebb_tensor *t)
{
    if (is_handle(t)) {
        put_handle(out, t);
        put(out, "\n");
        return;
    }
    for (const ebb_tensor *leaf = t->ctx->tensors; leaf; leaf = leaf->next)
        if (leaf->grad == t) {
            put(out, "gradient of ");
            put_handle(out, leaf);
            put(out, "\n");
            return;
        }
    for (const ebb_node *node = t->ctx->nodes; node; node = node->next)
        for (int i = 0; i < node->record->n_in; i++)
            if (node->edges[i].leaf == t) {
                put_path(out, node);
                put(out, ", which accumulates into this leaf\n");
                return;
            }
}

static void why_node(text *out, const ebb_node *node, const ebb_storage *storage)
{
    for (int k = 0; k < node->n_slots; k++) {
        if (node->slots[k].storage != storage) continue;
        put_path(out, node);
        put(out, ", slot ");
        put(out, ebb__slot_name(node, k));
        put(out, "\n");
    }
}

size_t ebb_why(const ebb_storage *storage, char *buf, size_t buf_bytes)
{
    text out = { buf, buf_bytes, 0 };
    if (buf_bytes) buf[0] = 0;
    for (const ebb_tensor *t = storage->ctx->tensors; t; t = t->next)
        if (t->storage == storage) why_tensor(&out, t);
    int in_nodes = 0;
    for (const ebb_node *node = storage->ctx->nodes; node; node = node->next) {
        why_node(&out, node, storage);
        for (int k = 0; k < node->n_slots; k++) in_nodes += node->slots[k].storage == storage;
    }
    if (storage->kept + storage->refilled > in_nodes)
        put(&out, storage->pack ? "a saver that packs it: its copy is under way, or it is needed again\n"
                                : "a checkpoint segment, to recompute from it\n");
    return out.n;
}
