/* ebb/trace.h: what memory did during training steps, event by event, and the reports made of it:
 * a page for people, a snapshot for PyTorch's memory viewer, a trace for Perfetto. */
#ifndef EBB_TRACE_H
#define EBB_TRACE_H

#include <ebb/frontier.h>

typedef struct ebb_trace ebb_trace; /* one traced run; single owner; stands alone, without its context */

typedef struct ebb_trace_options {
    size_t struct_bytes;
    const char *name;        /* of the run, as reports show it; NULL: the config's name */
    int64_t first_step;      /* the first that is traced, from 1; 0: only the last */
    size_t max_events;       /* 0: EBB_TRACE_EVENTS */
} ebb_trace_options;

enum { EBB_TRACE_EVENTS = 1 << 20 };

/* What lived at the peak: all blocks of one category, op and scope. */
typedef struct ebb_trace_row {
    ebb_category category;
    const char *op, *scope;      /* "" where there is none; borrowed from the trace */
    size_t bytes, n_blocks;
    uint64_t freed_by_node;      /* whose backward freed the last of these; 0: none did */
    const char *freed_by_op;     /* "" where there is none */
} ebb_trace_row;

typedef struct ebb_trace_summary {
    const char *name, *device;
    int64_t first_step, last_step;
    size_t n_events, n_blocks, n_nodes;   /* nodes: backward ran through them */
    ebb_memory_stats memory;     /* after the last step; peaks are of the traced steps */
    ebb_memory_stats host_memory; /* the same of offloaded tensors; beside `memory`, never part of it */
    size_t peak_active_bytes;    /* allocated, and released but not yet free */
    const char *peak_phase;      /* "backward" */
    const char *peak_op, *peak_scope; /* that asked for the block which made the peak */
    const ebb_trace_row *rows;   /* at the peak, largest first */
    size_t n_rows;
} ebb_trace_summary;

EBB_BEGIN_DECLS

/* Trains as ebb_train() does, without evaluation, and traces steps [options->first_step, the last].  `result` may be
 * NULL.  train->observer is called too.
 * Errors: those of ebb_train(); EINVAL (first_step beyond the last); ESTATE (more events than
 * max_events: nothing is dropped silently). */
EBB_API EBB_NODISCARD ebb_status ebb_trace_train(ebb_trace **out, ebb_train_result *result, const ebb_config *config,
                                                 const ebb_train_options *train, const ebb_trace_options *options);
EBB_API void ebb_trace_free(ebb_trace *trace); /* NULL is a no-op */
/* Borrowed; valid while the trace is. */
EBB_API const ebb_trace_summary *ebb_trace_summary_get(const ebb_trace *trace);

/* Each writes beside and renames.  Errors: EIO, ENOMEM. */
/* One self-contained page with the runs side by side, and peak against time where there is a frontier (NULL:
 * none).  Errors: also EUNSUPPORTED (built without d3; the
 * message names the package), EINVAL (n outside 1..4). */
EBB_API EBB_NODISCARD ebb_status ebb_trace_write_html(const char *path, const ebb_trace *const traces[], int n,
                                                     const ebb_frontier *frontier);
/* PyTorch's memory snapshot; by the file's ending .pickle (protocol 2) or .json.  Errors: also EINVAL. */
EBB_API EBB_NODISCARD ebb_status ebb_trace_write_snapshot(const char *path, const ebb_trace *trace);
/* Chrome's trace format, which Perfetto reads: phases, steps and nodes as slices, bytes as counters. */
EBB_API EBB_NODISCARD ebb_status ebb_trace_write_perfetto(const char *path, const ebb_trace *trace);

EBB_END_DECLS
#endif
