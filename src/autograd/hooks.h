/* autograd/hooks.h: a tensor's hooks, in order of registration. */
#ifndef EBB_AUTOGRAD_HOOKS_H
#define EBB_AUTOGRAD_HOOKS_H

#include "autograd/node.h"

typedef struct ebb__hook_entry {
    int id;
    bool removed;        /* while hooks ran: freed when they have run */
    ebb_hook hook;
    ebb_context *ctx;    /* of what it hangs on, which keeps it */
    ebb__site site;      /* where it was added */
    struct ebb__hook_entry *next;
} ebb__hook_entry;
typedef struct ebb__hooks { int next_id, running; ebb__hook_entry *first; } ebb__hooks;

/* What visit functions call back through, as the first member of whoever looks. */
struct ebb_visitor { void (*held)(ebb_visitor *self, ebb_tensor *t); };

struct ebb__hooks **ebb__hooks_of(ebb_tensor *t); /* the leaf's own, or its node's */
bool ebb__hooks_want_grad(const struct ebb__hooks *hooks);
EBB_NODISCARD ebb_status ebb__hooks_run_grad(struct ebb__hooks *hooks, ebb_tensor *t, ebb_tensor **grad);
EBB_NODISCARD ebb_status ebb__hooks_run_accumulated(struct ebb__hooks *hooks, ebb_tensor *leaf);
void ebb__hooks_visit(const struct ebb__hooks *hooks, ebb_visitor *visitor);

#endif
