/* why.c: who holds what is alive, as lines of text. */
#include <stdio.h>
#include <string.h>

#include "autograd/hooks.h"
#include "autograd/tally.h"

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

static void put_tensor(text *t, const ebb_tensor *h)
{
    char part[160], shape[96];
    if (h->name) snprintf(part, sizeof part, "'%s'", h->name);
    else snprintf(part, sizeof part, "%s", ebb_tensor_describe(h, shape, sizeof shape));
    put(t, part);
}

static void put_site(text *t, const char *file, int line)
{
    char part[160];
    const char *slash = file ? strrchr(file, '/') : NULL;
    if (!file || !line) return;
    snprintf(part, sizeof part, " at %s:%d", slash ? slash + 1 : file, line);
    put(t, part);
}

/* ---- hooks -------------------------------------------------------------------------------- */

/* What hooks' visit functions say of one tensor. */
typedef struct search {
    ebb_visitor visitor;
    const ebb_tensor *wanted;
    int n;                    /* references to it */
} search;

static void held(ebb_visitor *visitor, ebb_tensor *t)
{
    search *s = (search *)visitor;
    s->n += t == s->wanted;
}

static int references_of(const ebb__hook_entry *e, const ebb_tensor *wanted)
{
    search s = { { held }, wanted, 0 };
    if (e->hook.visit) e->hook.visit(e->hook.user, &s.visitor);
    return s.n;
}

typedef struct hook_holder { const ebb__hook_entry *entry; ebb__hooked on; } hook_holder;

/* References to `wanted` in these hooks; *first: the first hook with one, where it has none yet. */
static int search_hooks(const struct ebb__hooks *hooks, ebb__hooked on, const ebb_tensor *wanted, hook_holder *first)
{
    int sum = 0;
    for (const ebb__hook_entry *e = hooks ? hooks->first : NULL; e; e = e->next) {
        int n = references_of(e, wanted);
        if (n > 0 && !first->entry) *first = (hook_holder){ e, on };
        sum += n;
    }
    return sum;
}

static int hook_references(const ebb_tensor *wanted, hook_holder *first)
{
    const ebb_context *ctx = wanted->ctx;
    int sum = 0;
    *first = (hook_holder){ 0 };
    if (ctx->n_hooks == 0) return 0;
    for (const ebb_tensor *t = ctx->tensors; t; t = t->next)
        sum += search_hooks(t->hooks, (ebb__hooked){ .leaf = t }, wanted, first);
    for (const ebb_node *n = ctx->nodes; n; n = n->next)
        for (int j = 0; j < EBB_MAX_OUT; j++)
            sum += search_hooks(n->hooks[j], (ebb__hooked){ .node = n }, wanted, first);
    return sum;
}

/* "hook at loop.c:12 on 'w'", "hook on the result of tanh #3" */
static void put_hook(text *t, const ebb__hook_entry *e, ebb__hooked on)
{
    put(t, "hook");
    if (e) put_site(t, e->site.file, e->site.line);
    put(t, " on ");
    if (on.leaf) put_tensor(t, on.leaf);
    else {
        put(t, "the result of ");
        put_node(t, on.node);
    }
}

/* Someone outside of the engine, a name or a hook, has a reference. */
static bool is_held(const ebb_tensor *t) { return atomic_load(&t->refs) > t->engine_refs; }

/* "handle 'loss'", or "hook on 'w', which holds 'h'" where no name is left: hooks say what they hold. */
static void put_holder(text *out, const ebb_tensor *t)
{
    hook_holder hook;
    int of_hooks = hook_references(t, &hook);
    if (of_hooks > 0 && of_hooks >= atomic_load(&t->refs) - t->engine_refs) {
        put_hook(out, hook.entry, hook.on);
        put(out, ", which holds ");
    } else {
        put(out, "handle ");
    }
    put_tensor(out, t);
}

/* " (made at loop.c:12)", where that is known. */
static void put_made(text *t, const ebb_tensor *result)
{
    const ebb__site site = result->node->record->site;
    if (!site.file) return;
    put(t, " (made");
    put_site(t, site.file, site.line);
    put(t, ")");
}

/* ---- paths -------------------------------------------------------------------------------- */

static const ebb_tensor *handle_of_node(const ebb_node *node)
{
    for (const ebb_tensor *t = node->ctx->tensors; t; t = t->next)
        if (t->node == node && is_held(t)) return t;
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

/* "handle 'loss' -> add #12 -> linear #7": from what is held down to the node. */
static void put_path(text *t, const ebb_node *node, bool with_site)
{
    const ebb_node *low[SHOWN_ENDS], *high[SHOWN_ENDS]; /* nearest to the node; nearest to the handle, as a ring */
    size_t n = 0;
    const ebb_tensor *handle = NULL;
    for (const ebb_node *at = node; at && !handle; at = consumer_of(at), n++) {
        if (n < SHOWN_ENDS) low[n] = at;
        high[n % SHOWN_ENDS] = at;
        handle = handle_of_node(at);
    }
    if (handle) put_holder(t, handle);
    else put(t, "(no handle)");
    if (handle && with_site) put_made(t, handle);
    for (size_t i = n; i-- > 0;) {
        if (n > 2 * SHOWN_ENDS && i == n - SHOWN_ENDS - 1) put(t, " -> ...");
        if (i >= SHOWN_ENDS && i < n - SHOWN_ENDS) continue;
        put(t, " -> ");
        put_node(t, i < SHOWN_ENDS ? low[i] : high[i % SHOWN_ENDS]);
    }
}

static void why_tensor(text *out, const ebb_tensor *t)
{
    if (is_held(t)) {
        put_holder(out, t);
        put(out, "\n");
        return;
    }
    for (const ebb_tensor *leaf = t->ctx->tensors; leaf; leaf = leaf->next)
        if (leaf->grad == t) {
            put(out, "gradient of ");
            put(out, is_held(leaf) ? "handle " : "");
            put_tensor(out, leaf);
            put(out, "\n");
            return;
        }
    for (const ebb_node *node = t->ctx->nodes; node; node = node->next)
        for (int i = 0; i < node->record->n_in; i++)
            if (node->edges[i].leaf == t) {
                put_path(out, node, false);
                put(out, ", which accumulates into this leaf\n");
                return;
            }
}

static void why_node(text *out, const ebb_node *node, const ebb_storage *storage)
{
    for (int k = 0; k < node->n_slots; k++) {
        if (node->slots[k].storage != storage) continue;
        put_path(out, node, false);
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

size_t ebb__why_node(const ebb_node *node, char *buf, size_t buf_bytes)
{
    text out = { buf, buf_bytes, 0 };
    if (buf_bytes) buf[0] = 0;
    put_path(&out, node, true);
    put(&out, "\n");
    return out.n;
}

size_t ebb__why_hook(ebb__hooked on, char *buf, size_t buf_bytes)
{
    text out = { buf, buf_bytes, 0 };
    if (buf_bytes) buf[0] = 0;
    if (on.leaf) put_holder(&out, on.leaf);
    else put_path(&out, on.node, true);
    put(&out, "\n");
    return out.n;
}
