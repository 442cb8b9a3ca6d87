/* collect.c: cycles through hooks' user data, found by trial deletion (Bacon and Rajan, ECOOP 2001).
 *
 * A tensor whose hook holds a result made from it never reaches a count of zero by itself.  For every
 * live tensor and node, the references that come from other tensors, nodes and visited hooks are taken
 * off its count; what has references left is held from outside, and what it reaches lives.  The rest is
 * garbage: its hooks are removed, and ordinary counting frees it. */
#include <stdlib.h>

#include "autograd/hooks.h"
#include "core/mem.h"
#include "tensor/upward.h"

typedef struct item {
    const void *object;       /* ebb_tensor or ebb_node */
    bool is_node, alive;
    int outside;              /* references that nothing inside accounts for */
} item;

typedef struct collection {
    item *items;              /* sorted by address */
    size_t n;
    size_t *stack, n_stack;   /* items to mark from */
} collection;

typedef struct counter { ebb_visitor visitor; collection *c; bool marking; } counter;

static int by_address(const void *a, const void *b)
{
    uintptr_t x = (uintptr_t)((const item *)a)->object, y = (uintptr_t)((const item *)b)->object;
    return x < y ? -1 : x > y;
}

static item *find(collection *c, const void *object)
{
    item key = { .object = object };
    return object ? bsearch(&key, c->items, c->n, sizeof key, by_address) : NULL;
}

/* One reference from inside to `object`. */
static void reference(counter *v, const void *object)
{
    item *it = find(v->c, object);
    if (!it) return;
    if (!v->marking) it->outside--;
    else if (!it->alive) {
        it->alive = true;
        v->c->stack[v->c->n_stack++] = (size_t)(it - v->c->items);
    }
}

static void held(ebb_visitor *visitor, ebb_tensor *t) { reference((counter *)visitor, t); }

static void visit_item(counter *v, const item *it)
{
    if (it->is_node) {
        const ebb_node *node = it->object;
        for (int i = 0; i < node->record->n_in; i++) {
            reference(v, node->edges[i].node);
            reference(v, node->edges[i].leaf);
        }
        for (int j = 0; j < EBB_MAX_OUT; j++) {
            reference(v, node->pending[j]);
            ebb__hooks_visit(node->hooks[j], &v->visitor);
        }
    } else {
        const ebb_tensor *t = it->object;
        reference(v, t->node);
        reference(v, t->grad);
        reference(v, t->pending);
        ebb__hooks_visit(t->hooks, &v->visitor);
    }
}

static bool gather(collection *c, const ebb_context *ctx)
{
    size_t n = ctx->n_nodes;
    for (const ebb_tensor *t = ctx->tensors; t; t = t->next) n++;
    c->items = ebb__calloc(n + 1, sizeof c->items[0]);
    c->stack = c->items ? ebb__calloc(n + 1, sizeof c->stack[0]) : NULL;
    if (!c->stack) {
        ebb__free(c->items);
        return false;
    }
    for (const ebb_tensor *t = ctx->tensors; t; t = t->next)
        c->items[c->n++] = (item){ .object = t, .outside = atomic_load(&t->refs) };
    for (const ebb_node *node = ctx->nodes; node; node = node->next)
        c->items[c->n++] = (item){ .object = node, .is_node = true, .outside = atomic_load(&node->refs) };
    qsort(c->items, c->n, sizeof c->items[0], by_address);
    return true;
}

static void mark_alive(collection *c)
{
    counter v = { { held }, c, false };
    for (size_t i = 0; i < c->n; i++) visit_item(&v, &c->items[i]);
    v.marking = true;
    for (size_t i = 0; i < c->n; i++)
        if (c->items[i].outside > 0 && !c->items[i].alive) {
            c->items[i].alive = true;
            c->stack[c->n_stack++] = i;
        }
    while (c->n_stack) visit_item(&v, &c->items[c->stack[--c->n_stack]]);
}

/* Garbage is held while its hooks go, so that nothing is freed under our feet. */
static size_t break_cycles(collection *c)
{
    size_t freed = 0;
    for (size_t i = 0; i < c->n; i++) {
        const item *it = &c->items[i];
        if (it->alive) continue;
        if (it->is_node) ebb__node_retain((ebb_node *)(uintptr_t)it->object);
        else {
            ebb_retain((ebb_tensor *)(uintptr_t)it->object);
            freed++;
        }
    }
    for (size_t i = 0; i < c->n; i++) {
        const item *it = &c->items[i];
        if (it->alive) continue;
        struct ebb__hooks **first, *taken[EBB_MAX_OUT] = { NULL };
        int n = it->is_node ? EBB_MAX_OUT : 1;
        first =
            it->is_node ? ((ebb_node *)(uintptr_t)it->object)->hooks : &((ebb_tensor *)(uintptr_t)it->object)->hooks;
        for (int j = 0; j < n; j++) {
            taken[j] = first[j];
            first[j] = NULL;
        }
        for (int j = 0; j < n; j++) ebb__hooks_free(taken[j]);
    }
    for (size_t i = 0; i < c->n; i++) {
        const item *it = &c->items[i];
        if (it->alive) continue;
        ebb_tensor *t = (ebb_tensor *)(uintptr_t)it->object;
        if (it->is_node) ebb__node_release((ebb_node *)(uintptr_t)it->object);
        else ebb_drop(&t);
    }
    return freed;
}

static void forget(collection *c)
{
    ebb__free(c->items);
    ebb__free(c->stack);
}

ebb_status ebb_cycles_count(size_t *tensors, const ebb_context *ctx)
{
    collection c = { 0 };
    size_t n = 0;
    if (!gather(&c, ctx)) return ebb_fail(EBB_ENOMEM, "cycles: no memory to look with");
    mark_alive(&c);
    for (size_t i = 0; i < c.n; i++) n += !c.items[i].alive && !c.items[i].is_node;
    forget(&c);
    *tensors = n;
    return EBB_OK;
}

ebb_status ebb_cycles_free(size_t *tensors, ebb_context *ctx)
{
    collection c = { 0 };
    if (!gather(&c, ctx)) return ebb_fail(EBB_ENOMEM, "cycles: no memory to look with");
    mark_alive(&c);
    *tensors = break_cycles(&c);
    forget(&c);
    return EBB_OK;
}

size_t ebb_cyclic_tensors(const ebb_context *ctx)
{
    size_t n = 0;
    return ebb_cycles_count(&n, ctx) == EBB_OK ? n : 0;
}

size_t ebb_collect(ebb_context *ctx)
{
    size_t n = 0;
    return ebb_cycles_free(&n, ctx) == EBB_OK ? n : 0;
}
