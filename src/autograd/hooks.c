/* hooks.c: calls of the user's on gradients. */
#include "autograd/hooks.h"

#include "core/mem.h"
#include "tensor/upward.h"

struct ebb__hooks **ebb__hooks_of(ebb_tensor *t)
{
    return t->node ? &t->node->hooks[t->out] : &t->hooks;
}

ebb_status ebb_hook_add(ebb_tensor *t, const ebb_hook *hook, int *id)
{
    if (!ebb__tensor_wants_grad(t))
        return ebb_fail(EBB_ESTATE, "hook: the tensor needs no gradient, so the hook would never run");
    if (hook->on_accumulated && t->node)
        return ebb_fail(EBB_ESTATE, "hook: on_accumulated is for leaves; this tensor was made by %s",
                        ebb_node_name(t->node));
    if (!hook->on_grad && !hook->on_accumulated) return ebb_fail(EBB_EINVAL, "hook: it has no function");
    struct ebb__hooks **hooks = ebb__hooks_of(t);
    ebb__hook_entry *entry = ebb__calloc(1, sizeof *entry);
    if (!entry) return EBB_ENOMEM;
    if (!*hooks) *hooks = ebb__calloc(1, sizeof **hooks);
    if (!*hooks) {
        ebb__free(entry);
        return EBB_ENOMEM;
    }
    entry->id = (*hooks)->next_id++;
    entry->hook = *hook;
    entry->ctx = t->ctx;
    entry->site = ebb__site_get();
    t->ctx->n_hooks++;
    ebb__hook_entry **last = &(*hooks)->first;
    while (*last) last = &(*last)->next;
    *last = entry;
    if (id) *id = entry->id;
    return EBB_OK;
}

static void entry_free(ebb__hook_entry *entry)
{
    entry->ctx->n_hooks--;
    if (entry->hook.free) entry->hook.free(entry->hook.user);
    ebb__free(entry);
}

/* Takes removed entries out, unless hooks are running: a hook may remove itself or another. */
static void sweep(struct ebb__hooks *hooks)
{
    if (hooks->running) return;
    for (ebb__hook_entry **at = &hooks->first; *at;) {
        ebb__hook_entry *entry = *at;
        if (!entry->removed) {
            at = &entry->next;
            continue;
        }
        *at = entry->next;
        entry_free(entry);
    }
}

void ebb_hook_remove(ebb_tensor *t, int id)
{
    struct ebb__hooks *hooks = *ebb__hooks_of(t);
    if (!hooks) return;
    for (ebb__hook_entry *e = hooks->first; e; e = e->next)
        if (e->id == id) e->removed = true;
    sweep(hooks);
}

void ebb__hooks_free(struct ebb__hooks *hooks)
{
    if (!hooks) return;
    ebb__hook_entry *entry = hooks->first;
    ebb__free(hooks);
    while (entry) {
        ebb__hook_entry *next = entry->next;
        entry_free(entry);
        entry = next;
    }
}

bool ebb__hooks_want_grad(const struct ebb__hooks *hooks)
{
    for (const ebb__hook_entry *e = hooks ? hooks->first : NULL; e; e = e->next)
        if (!e->removed && e->hook.on_grad) return true;
    return false;
}

static ebb_status check_replacement(const ebb_tensor *was, const ebb_tensor *now)
{
    char a[96], b[96];
    if (!now) return ebb_fail(EBB_EINVAL, "hook: it left no gradient; make zeros instead");
    ebb_arg x, y;
    ebb__tensor_arg(was, &x);
    ebb__tensor_arg(now, &y);
    if (was->ctx != now->ctx) return ebb_fail(EBB_EDEVICE, "hook: its gradient belongs to another context");
    if (x.dtype != y.dtype || !ebb__arg_same_shape(&x, &y))
        return ebb_fail(EBB_ESHAPE, "hook: its gradient is %s, expected %s", ebb_tensor_describe(now, b, sizeof b),
                        ebb_tensor_describe(was, a, sizeof a));
    return EBB_OK;
}

static ebb_status run_grad(const ebb__hook_entry *e, ebb_tensor *t, ebb_tensor **grad)
{
    if (e->removed || !e->hook.on_grad) return EBB_OK;
    EBB_LOCAL(was);
    was = ebb_retain(*grad);
    ebb_status st = e->hook.on_grad(e->hook.user, t, grad);
    return st == EBB_OK ? check_replacement(was, *grad) : st;
}

ebb_status ebb__hooks_run_grad(struct ebb__hooks *hooks, ebb_tensor *t, ebb_tensor **grad)
{
    ebb_status st = EBB_OK;
    if (!hooks) return EBB_OK;
    hooks->running++;
    for (const ebb__hook_entry *e = hooks->first; e && st == EBB_OK; e = e->next) st = run_grad(e, t, grad);
    hooks->running--;
    sweep(hooks);
    return st;
}

ebb_status ebb__hooks_run_accumulated(struct ebb__hooks *hooks, ebb_tensor *leaf)
{
    ebb_status st = EBB_OK;
    if (!hooks) return EBB_OK;
    hooks->running++;
    for (const ebb__hook_entry *e = hooks->first; e && st == EBB_OK; e = e->next)
        if (!e->removed && e->hook.on_accumulated) st = e->hook.on_accumulated(e->hook.user, leaf);
    hooks->running--;
    sweep(hooks);
    return st;
}

void ebb_visit(ebb_visitor *visitor, ebb_tensor *held) { visitor->held(visitor, held); }

void ebb__hooks_visit(const struct ebb__hooks *hooks, ebb_visitor *visitor)
{
    for (const ebb__hook_entry *e = hooks ? hooks->first : NULL; e; e = e->next)
        if (e->hook.visit) e->hook.visit(e->hook.user, visitor);
}
