/* alloc/peak.h: what was alive at the first instant of the peak, from a trace.
 * Nothing is kept for it while the pool runs.  A dry run's trace gives the table of a real run. */
#ifndef EBB_ALLOC_PEAK_H
#define EBB_ALLOC_PEAK_H

#include "alloc/trace.h"

typedef struct ebb__peak_row {
    ebb_category category;
    const char *op, *scope; /* of the owners; NULL: none; borrowed as in the trace */
    size_t bytes, n_blocks;
    /* The last of these blocks to go was freed during the backward of this node; 0 and NULL: at
     * another time, `freed_phase`, or not within the trace. */
    uint64_t freed_by_node;
    const char *freed_by_op;
    ebb__phase freed_phase;
    bool freed;
} ebb__peak_row;

typedef struct ebb__peak_table {
    ebb__peak_row *rows; /* one per (category, op, scope), largest first */
    size_t n_rows;
    size_t bytes; /* of all rows: the trace's largest sum of allocated blocks */
    size_t event; /* index of the event that reached it */
    uint64_t time_ns;
    ebb__phase phase;
} ebb__peak_table;

/* Errors: ENOMEM; ESTATE: there is no trace, or it has dropped events. */
EBB_NODISCARD ebb_status ebb__peak_table_new(ebb__peak_table *out, const ebb__pool *pool);
void ebb__peak_table_deinit(ebb__peak_table *table);

#endif
