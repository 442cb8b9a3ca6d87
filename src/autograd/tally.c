#include "autograd/tally.h"

#include <string.h>

#include "autograd/hooks.h"

/* ---- lines -------------------------------------------------------------------------------- */

static uint64_t mix(uint64_t hash, const void *data, size_t bytes)
{
    const unsigned char *at = data;
    for (size_t i = 0; i < bytes; i++) hash = (hash ^ at[i]) * 0x100000001b3u;
    return hash;
}

/* Texts by what they say: a scope's is gone before the tally is. */
static uint64_t key_of(const ebb__line *l)
{
    uint64_t hash = 0xcbf29ce484222325u;
    hash = mix(hash, l->op, strlen(l->op) + 1);
    hash = mix(hash, l->scope, strlen(l->scope) + 1);
    hash = mix(hash, l->file, strlen(l->file) + 1);
    hash = mix(hash, &l->line_number, sizeof l->line_number);
    return hash ? hash : 1;
}

static int place_of(const ebb__tally *t, uint64_t key)
{
    int i = (int)(key % EBB__TALLY_LINES);
    while (t->lines[i].key && t->lines[i].key != key) i = (i + 1) % EBB__TALLY_LINES;
    return i;
}

const ebb__line *ebb__tally_find(const ebb__tally *t, uint64_t key)
{
    static const ebb__line none;
    const ebb__line *l = &t->lines[place_of(t, key)];
    return l->key ? l : &none;
}

/* One place stays free, so that looking ends.  Without room: the rest. */
static ebb__line *line_for(ebb__tally *t, const char *op, const char *scope, const char *file, int line)
{
    ebb__line l = { .op = op ? op : "", .scope = scope ? scope : "", .file = file ? file : "", .line_number = line };
    l.key = key_of(&l);
    ebb__line *at = &t->lines[place_of(t, l.key)];
    if (at->key) return at;
    if (t->n_lines == EBB__TALLY_LINES - 1) return &t->rest;
    t->n_lines++;
    *at = l;
    return at;
}

/* ---- what is counted ---------------------------------------------------------------------- */

static void count_storage(ebb__line *l, const ebb_storage *s, bool of_last_step)
{
    l->storages++;
    l->bytes += s->bytes;
    if (s->kept + s->refilled > 0) l->graph_bytes += s->bytes;
    if (!l->storage || !of_last_step) l->storage = s;
}

static void count_node(ebb__line *l, const ebb_node *node, bool of_last_step)
{
    l->nodes++;
    if (!l->node || !of_last_step) l->node = node;
}

static void count_hooks(ebb__tally *t, const struct ebb__hooks *hooks, ebb__hooked on)
{
    for (const ebb__hook_entry *e = hooks ? hooks->first : NULL; e; e = e->next) {
        ebb__line *l = line_for(t, "hook", NULL, e->site.file, e->site.line);
        l->hooks++;
        l->hooked = on;
    }
}

void ebb__tally_take(ebb__tally *t, const ebb_context *ctx, int64_t step, uint64_t last_tensor, uint64_t last_node)
{
    memset(t, 0, sizeof *t);
    t->step = step;
    for (const ebb_storage *s = ctx->storages; s; s = s->next) {
        const ebb__owner *owner = ebb__block_owner(s->block);
        ebb__line *l = line_for(t, owner->op, owner->scope, owner->file, owner->line);
        count_storage(l, s, s->id >= last_tensor);
    }
    for (const ebb_node *n = ctx->nodes; n; n = n->next) {
        const ebb__record *r = n->record;
        ebb__line *l = line_for(t, r->op->name, r->scope, r->site.file, r->site.line);
        count_node(l, n, n->seq >= last_node);
        for (int j = 0; j < EBB_MAX_OUT; j++) count_hooks(t, n->hooks[j], (ebb__hooked){ .node = n });
    }
    for (const ebb_tensor *leaf = ctx->tensors; leaf; leaf = leaf->next)
        count_hooks(t, leaf->hooks, (ebb__hooked){ .leaf = leaf });
}
