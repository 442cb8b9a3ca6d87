/* ebb/leak.h: what training steps leave behind.
 * A step should end with the bytes that the one before ended with.  A watch is told of each end; what was
 * made in several earlier steps and is still alive is a leak, and the watch says which line made it and
 * who holds it. */
#ifndef EBB_LEAK_H
#define EBB_LEAK_H

#include <ebb/autograd.h>
#include <ebb/memory.h>

EBB_BEGIN_DECLS

typedef struct ebb_leak_watch ebb_leak_watch; /* opaque; single owner */

/* Owner: *out is the caller's; freeing it does not look at the context, all else does.  Errors: ENOMEM. */
EBB_API EBB_NODISCARD ebb_status ebb_leak_watch_new(ebb_leak_watch **out, ebb_context *ctx);
EBB_API void ebb_leak_watch_free(ebb_leak_watch *watch); /* NULL is a no-op */
/* A step has ended.  The first end is the baseline: what is alive then (parameters, optimizer state, the
 * loader's ring) is never reported.  Cost: a few words; at steps 1, 2, 4, 8, ... a walk over what is alive. */
EBB_API void ebb_leak_watch_step(ebb_leak_watch *watch);

enum {
    /* A leak is what at least so many of the last EBB_LEAK_WINDOW steps left, not counting the last one, whose
     * results may be carried to the next; or what is more than at the last step whose number is a power of two,
     * and was more there than at the one before. */
    EBB_LEAK_STEPS = 3,
    EBB_LEAK_WINDOW = 6,
    EBB_LEAK_HOLDERS = 8 /* lines of the program that are told, largest first */
};

/* Storages that one line of the program (or one op, where the line is unknown) left behind. */
typedef struct ebb_leak_holder {
    const char *op, *scope, *file; /* "" where unknown; borrowed as in ebb_storage_info */
    int line;
    size_t n, bytes;
    char why[512];                 /* of the newest: who holds it, as ebb_why() tells */
} ebb_leak_holder;

typedef struct ebb_leak_report {
    bool grows;
    int64_t steps;                 /* that have ended */
    size_t n, bytes;               /* storages of steps after the first that outlived the next step, too */
    size_t graph_bytes, nodes;     /* of those, what saved slots hold; recorded calls likewise left */
    size_t bytes_per_step;         /* on average over the steps in the window */
    size_t cyclic;                 /* tensors in cycles, which only ebb_collect() frees */
    int n_holders;                 /* of those listed */
    ebb_leak_holder holders[EBB_LEAK_HOLDERS];
} ebb_leak_report;
EBB_API void ebb_leak_report_get(ebb_leak_report *report, const ebb_leak_watch *watch);

EBB_END_DECLS
#endif
