/* report/capture.h: a traced run, taken out of the pool so that it outlives model and context.
 * Strings are interned, owners are shared, and each block has one index over its life. */
#ifndef EBB_REPORT_CAPTURE_H
#define EBB_REPORT_CAPTURE_H

#include <ebb/trace.h>

#include "alloc/trace.h"
#include "report/strings.h"

enum { EBB__NO_BLOCK = UINT32_MAX };

/* Who made a block, or what a mark means; texts are indices into strings (0: ""). */
typedef struct ebb__traced_owner {
    uint32_t op, scope, file;
    int line;
    uint64_t node, segment;
    ebb__phase phase;
} ebb__traced_owner;

typedef struct ebb__traced_event {
    uint64_t time_ns; /* since the first event */
    ebb__action action;
    ebb_category category; /* ALLOC, FREE_*: of the block then; CATEGORY: the new one */
    uint32_t owner;
    uint32_t block;   /* EBB__NO_BLOCK: of none */
    uint64_t segment; /* SEGMENT_*: number, and where in it */
    size_t offset, bytes, requested;
    uint64_t address;
    int stream;
} ebb__traced_event;

typedef struct ebb__traced_block {
    size_t bytes, requested;
    uint32_t owner, born;     /* event */
    uint32_t released, freed; /* events; UINT32_MAX: not within the trace */
    ebb_category category;    /* at birth */
    ebb_category served;      /* what it was for: the last that is not temporary or workspace, else `category` */
    uint64_t segment, address;
    size_t offset;
    int stream;
} ebb__traced_block;

typedef struct ebb__traced_slot {
    const char *name; /* "in0" */
    ebb_slot_state state;
    size_t bytes;
    uint64_t segment; /* of the pool, where the bytes are held; 0: nowhere */
    size_t offset;
    uint32_t block; /* EBB__NO_BLOCK: none is held */
} ebb__traced_slot;

typedef struct ebb__traced_node {
    uint64_t seq;
    uint32_t op, scope;
    size_t first_slot, first_edge;
    int n_slots, n_edges;
} ebb__traced_node;

/* The graph as it was when a backward began. */
typedef struct ebb__traced_graph {
    size_t event, first_node, n_nodes;
} ebb__traced_graph;

struct ebb_trace {
    ebb_trace_summary summary;
    char device[32];
    ebb__strings strings;
    ebb__traced_event *events;
    size_t n_events;
    ebb__traced_owner *owners;
    size_t n_owners, cap_owners;
    struct ebb__owner_map {
        uint32_t *slots;
        size_t capacity;
    } owner_map; /* to index + 1 */
    ebb__traced_block *blocks;
    size_t n_blocks, cap_blocks;
    ebb__traced_graph *graphs;
    size_t n_graphs, cap_graphs;
    ebb__traced_node *nodes; /* in order of creation */
    size_t n_nodes, cap_nodes;
    ebb__traced_slot *slots;
    size_t n_slots, cap_slots;
    uint64_t *edges; /* seqs of nodes that made the inputs */
    size_t n_edges, cap_edges;
    ebb_trace_row *rows; /* of summary */
};

/* Copies the pool's events.  Errors: ENOMEM; ESTATE (some were dropped). */
EBB_NODISCARD ebb_status ebb__capture_events(ebb_trace *trace, const ebb__pool *pool);
/* Adds the live nodes of a context with their slots; a backward is next. */
EBB_NODISCARD ebb_status ebb__capture_graph(ebb_trace *trace, const ebb_context *ctx);
/* Gives every event of a block its index and every slot its block; fills blocks.  Errors: ENOMEM. */
EBB_NODISCARD ebb_status ebb__capture_blocks(ebb_trace *trace);
const char *ebb__phase_name(ebb__phase phase); /* "backward" */

static inline const char *ebb__traced_text(const ebb_trace *trace, uint32_t index)
{
    return trace->strings.texts[index];
}

#endif
