/* ebb/frontier.h: peak against time as a page: the plans of ebb_plan_frontier(), and what else is compared
 * with them. */
#ifndef EBB_FRONTIER_H
#define EBB_FRONTIER_H

#include <ebb/plan.h>

EBB_BEGIN_DECLS

/* A setting that is no plan of the frontier: "every:1", or the run that a trace is of. */
typedef struct ebb_frontier_mark {
    const char *name;
    ebb_plan_info info; /* ebb_plan_price() */
    bool own;           /* drawn as the one that the page is about */
} ebb_frontier_mark;

/* All pointers are borrowed. */
typedef struct ebb_frontier {
    const char *name;             /* of the config */
    const ebb_plan *const *plans; /* from the fastest to the smallest, at least one */
    int n_plans;
    const ebb_frontier_mark *marks;
    int n_marks;
    bool allocated;               /* the peak that counts is that of allocated bytes, not of reserved */
} ebb_frontier;

/* EBB_OK where this build can write pages; else EUNSUPPORTED, with what is missing. */
EBB_API EBB_NODISCARD ebb_status ebb_page_check(void);
/* One self-contained page.  Writes beside and renames.  Errors: EIO, ENOMEM, EINVAL (no plan), EUNSUPPORTED (as
 * ebb_page_check()). */
EBB_API EBB_NODISCARD ebb_status ebb_frontier_write_html(const char *path, const ebb_frontier *frontier);

EBB_END_DECLS
#endif
