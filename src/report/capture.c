/* report/capture.c: events and graphs, copied out of a running context. */
#include "report/capture.h"

#include <string.h>

#include "alloc/live_map.h"
#include "autograd/node.h"
#include "core/mem.h"
#include "tensor/tensor.h"

/* ---- owners ------------------------------------------------------------------------------- */

/* Field by field: padding must not enter. */
static uint64_t hash_owner(const ebb__traced_owner *o)
{
    uint64_t words[] = { o->op,   o->scope,   o->file,           (uint64_t)o->line,
                         o->node, o->segment, (uint64_t)o->phase };
    return ebb__hash_bytes(EBB__HASH_START, words, sizeof words);
}

static bool same_owner(const ebb__traced_owner *a, const ebb__traced_owner *b)
{
    return a->op == b->op && a->scope == b->scope && a->file == b->file && a->line == b->line &&
           a->node == b->node && a->segment == b->segment && a->phase == b->phase;
}

static uint32_t *owner_place(const ebb_trace *trace, const ebb__traced_owner *owner)
{
    size_t mask = trace->owner_map.capacity - 1, at = hash_owner(owner) & mask;
    uint32_t *slots = trace->owner_map.slots;
    while (slots[at] && !same_owner(&trace->owners[slots[at] - 1], owner)) at = (at + 1) & mask;
    return &slots[at];
}

static ebb_status grow_owners(ebb_trace *trace)
{
    EBB_TRY(
        ebb__grow(&trace->owners, &trace->cap_owners, trace->n_owners + 1, sizeof *trace->owners));
    if (trace->n_owners * 2 < trace->owner_map.capacity) return EBB_OK;
    size_t capacity = trace->owner_map.capacity ? trace->owner_map.capacity * 2 : 256;
    uint32_t *slots = ebb__calloc(capacity, sizeof *slots);
    if (!slots) return EBB_ENOMEM;
    ebb__free(trace->owner_map.slots);
    trace->owner_map.slots = slots;
    trace->owner_map.capacity = capacity;
    for (size_t i = 0; i < trace->n_owners; i++)
        *owner_place(trace, &trace->owners[i]) = (uint32_t)i + 1;
    return EBB_OK;
}

/* Source files are named from the project's folder on: what lies above it is this machine's. */
static const char *source_name(const char *file)
{
    const char *found = file ? strstr(file, "/src/") : NULL;
    return found ? found + 1 : file;
}

static ebb_status intern_owner(ebb_trace *trace, uint32_t *index, const ebb__owner *owner)
{
    ebb__traced_owner o = {
        .line = owner->line, .node = owner->node, .segment = owner->segment, .phase = owner->phase
    };
    EBB_TRY(ebb__strings_add(&trace->strings, &o.op, owner->op));
    EBB_TRY(ebb__strings_add(&trace->strings, &o.scope, owner->scope));
    EBB_TRY(ebb__strings_add(&trace->strings, &o.file, source_name(owner->file)));
    EBB_TRY(grow_owners(trace));
    uint32_t *place = owner_place(trace, &o);
    if (*place == 0) {
        trace->owners[trace->n_owners++] = o;
        *place = (uint32_t)trace->n_owners;
    }
    *index = *place - 1;
    return EBB_OK;
}

/* ---- events ------------------------------------------------------------------------------- */

ebb_status ebb__capture_events(ebb_trace *trace, const ebb__pool *pool)
{
    uint64_t dropped = 0;
    size_t n = ebb__trace_count(pool, &dropped);
    if (dropped)
        return ebb_fail(
            EBB_ESTATE,
            "trace: %llu events were dropped, %zu kept; trace fewer steps, or keep more events",
            (unsigned long long)dropped, n);
    trace->events = ebb__calloc(n, sizeof *trace->events);
    if (!trace->events) return EBB_ENOMEM;
    ebb__event e;
    uint64_t start_ns = 0;
    for (size_t i = 0; i < n && ebb__trace_get(pool, i, &e); i++) {
        uint32_t owner = 0;
        EBB_TRY(intern_owner(trace, &owner, &e.owner));
        if (i == 0) start_ns = e.time_ns;
        trace->events[trace->n_events++] = (ebb__traced_event){
            .time_ns = e.time_ns - start_ns,
            .action = e.action,
            .category = e.owner.category,
            .owner = owner,
            .block = EBB__NO_BLOCK,
            .segment = e.segment,
            .offset = e.offset,
            .bytes = e.bytes,
            .requested = e.requested,
            .address = e.address,
            .stream = e.stream,
        };
    }
    return EBB_OK;
}

/* ---- graphs ------------------------------------------------------------------------------- */

typedef struct capture {
    ebb_trace *trace;
    ebb_status status;
} capture;

static ebb_status add_slots(ebb_trace *trace, const ebb_node *node)
{
    EBB_TRY(ebb__grow(&trace->slots, &trace->cap_slots, trace->n_slots + (size_t)node->n_slots,
                      sizeof *trace->slots));
    for (int k = 0; k < node->n_slots; k++) {
        const ebb__slot *slot = &node->slots[k];
        const ebb__block *block = slot->storage ? slot->storage->block : NULL;
        trace->slots[trace->n_slots++] = (ebb__traced_slot){
            .name = ebb__slot_name(node, k),
            .state = slot->state,
            .bytes = slot->bytes,
            .block = EBB__NO_BLOCK,
            .segment = block ? ebb__block_segment(block) : 0,
            .offset = block ? ebb__block_offset(block) : 0,
        };
    }
    return EBB_OK;
}

static ebb_status add_edges(ebb_trace *trace, const ebb_node *node)
{
    EBB_TRY(ebb__grow(&trace->edges, &trace->cap_edges, trace->n_edges + EBB_MAX_IN,
                      sizeof *trace->edges));
    for (int i = 0; i < node->record->n_in; i++)
        if (node->edges[i].node) trace->edges[trace->n_edges++] = node->edges[i].node->seq;
    return EBB_OK;
}

static ebb_status add_node(ebb_trace *trace, const ebb_node *node)
{
    ebb__traced_node n = { .seq = node->seq,
                           .first_slot = trace->n_slots,
                           .first_edge = trace->n_edges };
    EBB_TRY(ebb__strings_add(&trace->strings, &n.op, node->record->op->name));
    EBB_TRY(ebb__strings_add(&trace->strings, &n.scope, node->record->scope));
    EBB_TRY(add_slots(trace, node));
    EBB_TRY(add_edges(trace, node));
    n.n_slots = (int)(trace->n_slots - n.first_slot);
    n.n_edges = (int)(trace->n_edges - n.first_edge);
    EBB_TRY(ebb__grow(&trace->nodes, &trace->cap_nodes, trace->n_nodes + 1, sizeof *trace->nodes));
    trace->nodes[trace->n_nodes++] = n;
    return EBB_OK;
}

static void each_node(void *user, const ebb_node *node)
{
    capture *c = user;
    if (c->status == EBB_OK) c->status = add_node(c->trace, node);
}

ebb_status ebb__capture_graph(ebb_trace *trace, const ebb_context *ctx)
{
    capture c = { .trace = trace };
    uint64_t dropped = 0;
    size_t kept = ebb__trace_count(ebb__context_pool(ctx), &dropped);
    ebb__traced_graph graph = { .event = kept + (size_t)dropped, .first_node = trace->n_nodes };
    ebb_each_node(ctx, each_node, &c);
    if (c.status != EBB_OK) return c.status;
    graph.n_nodes = trace->n_nodes - graph.first_node;
    EBB_TRY(
        ebb__grow(&trace->graphs, &trace->cap_graphs, trace->n_graphs + 1, sizeof *trace->graphs));
    trace->graphs[trace->n_graphs++] = graph;
    return EBB_OK;
}

/* ---- blocks ------------------------------------------------------------------------------- */

static ebb_status begin_block(ebb_trace *trace, ebb__live_map *map, size_t at)
{
    ebb__traced_event *e = &trace->events[at];
    EBB_TRY(
        ebb__grow(&trace->blocks, &trace->cap_blocks, trace->n_blocks + 1, sizeof *trace->blocks));
    EBB_TRY(ebb__live_map_set(map, e->segment, e->offset, trace->n_blocks));
    e->block = (uint32_t)trace->n_blocks++;
    trace->blocks[e->block] = (ebb__traced_block){
        .bytes = e->bytes,
        .requested = e->requested,
        .owner = e->owner,
        .born = (uint32_t)at,
        .released = UINT32_MAX,
        .freed = UINT32_MAX,
        .category = e->category,
        .served = e->category,
        .segment = e->segment,
        .address = e->address,
        .offset = e->offset,
        .stream = e->stream,
    };
    return EBB_OK;
}

static void find_block(ebb_trace *trace, ebb__live_map *map, size_t at)
{
    ebb__traced_event *e = &trace->events[at];
    bool last = e->action == EBB__ACT_FREE_COMPLETED;
    size_t index = last ? ebb__live_map_take(map, e->segment, e->offset)
                        : ebb__live_map_get(map, e->segment, e->offset);
    if (index == SIZE_MAX) return;
    if (e->action == EBB__ACT_CATEGORY && e->category < EBB_CAT_WORKSPACE) trace->blocks[index].served = e->category;
    e->block = (uint32_t)index;
    if (e->action == EBB__ACT_FREE_REQUESTED) trace->blocks[index].released = (uint32_t)at;
    if (last) trace->blocks[index].freed = (uint32_t)at;
}

/* The blocks that the slots of a graph hold at its event. */
static void find_held(ebb_trace *trace, const ebb__traced_graph *graph, const ebb__live_map *map)
{
    for (size_t i = graph->first_node; i < graph->first_node + graph->n_nodes; i++)
        for (int k = 0; k < trace->nodes[i].n_slots; k++) {
            ebb__traced_slot *slot = &trace->slots[trace->nodes[i].first_slot + (size_t)k];
            size_t block =
                slot->segment ? ebb__live_map_get(map, slot->segment, slot->offset) : SIZE_MAX;
            if (block != SIZE_MAX) slot->block = (uint32_t)block;
        }
}

static ebb_status follow(ebb_trace *trace, ebb__live_map *map)
{
    size_t graph = 0;
    for (size_t i = 0; i <= trace->n_events; i++) {
        while (graph < trace->n_graphs && trace->graphs[graph].event == i)
            find_held(trace, &trace->graphs[graph++], map);
        if (i == trace->n_events) break;
        switch (trace->events[i].action) {
        case EBB__ACT_ALLOC: EBB_TRY(begin_block(trace, map, i)); break;
        case EBB__ACT_FREE_REQUESTED:
        case EBB__ACT_FREE_COMPLETED:
        case EBB__ACT_CATEGORY: find_block(trace, map, i); break;
        default: break;
        }
    }
    return EBB_OK;
}

ebb_status ebb__capture_blocks(ebb_trace *trace)
{
    ebb__live_map map = { 0 };
    ebb_status st = follow(trace, &map);
    ebb__live_map_deinit(&map);
    return st;
}

void ebb_trace_free(ebb_trace *trace)
{
    if (!trace) return;
    ebb__strings_deinit(&trace->strings);
    ebb__free(trace->events);
    ebb__free(trace->owners);
    ebb__free(trace->owner_map.slots);
    ebb__free(trace->blocks);
    ebb__free(trace->graphs);
    ebb__free(trace->nodes);
    ebb__free(trace->slots);
    ebb__free(trace->edges);
    ebb__free(trace->rows);
    ebb__free(trace);
}

const ebb_trace_summary *ebb_trace_summary_get(const ebb_trace *trace) { return &trace->summary; }
