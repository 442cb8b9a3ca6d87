/* ebb/leak.h: what training steps leave behind.
 * A step should end with the bytes that the one before ended with.  A watch is told of each end and keeps
 * four figures of what is alive then: bytes, storages, nodes of the graph, hooks.  Where one of them goes
 * on growing, steps leak, and the watch says which lines made what is there more than before, and who
 * holds it. */
#ifndef EBB_LEAK_H
#define EBB_LEAK_H

#include <ebb/autograd.h>
#include <ebb/memory.h>

EBB_BEGIN_DECLS

typedef struct ebb_leak_watch ebb_leak_watch; /* opaque; single owner */

/* Owner: *out is the caller's; freeing it does not look at the context, all else does.  Errors: ENOMEM. */
EBB_API EBB_NODISCARD ebb_status ebb_leak_watch_new(ebb_leak_watch **out, ebb_context *ctx);
EBB_API void ebb_leak_watch_free(ebb_leak_watch *watch); /* NULL is a no-op */
/* A step has ended.  Cost: a thousand comparisons or so; at steps 1, 2, 4, 8, ... a walk over what is alive. */
EBB_API void ebb_leak_watch_step(ebb_leak_watch *watch);

enum {
    EBB_LEAK_STEPS = 16,  /* fewer say nothing */
    EBB_LEAK_HOLDERS = 8  /* lines of the program that are told, largest first */
};

/* The steps so far are cut into eight windows of the same length.  Steps leak where, for one of the four
 * figures, the lowest value in each of the last four windows is above the lowest in the window before, and
 * the lowest of the last quarter is above the highest of the second quarter; and from then on, as long as the
 * highest of the last quarter is above that of the third.  So
 *   what one step in k leaves is found after 12 k steps at the latest (of each step: after 16);
 *   a list that is bounded, at n steps, is none from 1.4 n steps on: until it is full, and for a while
 *   after, it looks like a leak (up to 13 steps it never does);
 *   what is made once, or comes and goes, is none. */
EBB_API bool ebb_leak_grows(const ebb_leak_watch *watch);

/* What one line of the program (or one op, where the line is unknown) has alive more than at `since`. */
typedef struct ebb_leak_holder {
    const char *op, *scope, *file; /* "" where unknown; borrowed as in ebb_storage_info.  op "hook": hooks */
    int line;
    size_t bytes, storages, nodes, hooks;
    char why[512]; /* of the newest, but for the last step's: who holds it, as ebb_why() tells */
} ebb_leak_holder;

/* All but steps, steps_needed and cyclic is 0 where nothing grows. */
typedef struct ebb_leak_report {
    bool grows;
    int64_t steps, steps_needed;             /* that have ended; fewer than needed: nothing can be said */
    int64_t since;                           /* the step that what follows is compared with, about half of all */
    size_t bytes, storages, nodes, hooks;    /* alive more than at the end of step `since`, by lines that have more */
    size_t graph_bytes;                      /* of bytes, in saved slots */
    size_t bytes_per_step;                   /* on average, from `since` on */
    size_t cyclic;                           /* tensors in cycles, which only ebb_collect() frees */
    int n_holders;                           /* of those listed */
    ebb_leak_holder holders[EBB_LEAK_HOLDERS];
} ebb_leak_report;
EBB_API void ebb_leak_report_get(ebb_leak_report *report, ebb_leak_watch *watch);

EBB_END_DECLS
#endif
