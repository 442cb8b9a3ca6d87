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
/* A step has ended.  Cost: a few thousand comparisons; at steps 1, 2, 4, 8, ... a walk over what is alive. */
EBB_API void ebb_leak_watch_step(ebb_leak_watch *watch);

enum {
    EBB_LEAK_STEPS = 16,  /* fewer say nothing */
    EBB_LEAK_HOLDERS = 8  /* lines of the program that are told, largest first */
};

/* Steps leak where one of the four figures goes on growing, and more of it is alive now than at step `since` of
 * the report.  What is promised, where nothing else comes and goes:
 *   found   what each step leaves (as many storages, nodes or hooks each time): after 16 steps, or 18 where it
 *           begins later than at the first step;
 *           what one step in k leaves: after 12 k steps, or 18 k where it begins later;
 *           storages of which only the sizes grow: after 32 steps, of one step in k after 50 k.
 *           Counted from where it begins, at any step, as soon as the figure is above all that it was before.
 *   never   what is made once; a list of the last n <= 13 entries that gets one each step, whenever it begins and
 *           whatever their sizes; what comes and goes; a list that is cleared again and again, from the first
 *           time on; what is gone when the question is asked.
 *   may be  a longer list, while it fills up and for a while after: none from 1.4 (b + n) steps on, where it begins
 *           after b steps.  A list that gets one entry each k steps counts as one of k n entries.
 *   late    what grows among what differs from step to step, and what leaves another number each time: when it
 *           stands out in 32 windows of equal length.  Chance alone is taken for it about once in 10^5.
 * Not watched: tensors that are views of storages which are there anyway, and memory that is not ebb's.
 * How: two looks at each figure, at the whole run and at the latest 16, 32, 64, ... steps. */
EBB_API bool ebb_leak_grows(const ebb_leak_watch *watch);

/* What one line of the program (or one op, where the line is unknown) has alive more than at `since`. */
typedef struct ebb_leak_holder {
    const char *op, *scope, *file; /* "" where unknown; borrowed as in ebb_storage_info.  op "hook": hooks */
    int line;
    size_t bytes, storages, nodes, hooks;
    char why[512]; /* of the newest, but for the last step's: who holds it, as ebb_why() tells */
} ebb_leak_holder;

/* All but steps, steps_needed and cyclic is 0 where nothing grows; where it does, some line has more. */
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
