/* report/html.c: the page of a trace.  The data are columns, since a step of 72 layers has 100,000 events. */
#include <string.h>

#include "report/capture.h"
#include "report/page.h"

enum { MAX_RUNS = 4 };

/* ---- columns ------------------------------------------------------------------------------ */

static void key(ebb__out *out, const char *name) { ebb__out_printf(out, "\"%s\":", name); }

static void number(ebb__out *out, size_t i, long long value)
{
    ebb__out_printf(out, i ? ",%lld" : "%lld", value);
}

#define COLUMN(out, name, n, value)                                                                \
    do {                                                                                           \
        key(out, name);                                                                            \
        ebb__out_text(out, "[");                                                                   \
        for (size_t i = 0; i < (n); i++) number(out, i, (long long)(value));                       \
        ebb__out_text(out, "]");                                                                   \
    } while (0)

/* What an event is about, by its action: a block; a category of a block (block * 8 + category); bytes of
 * memory; an owner. */
static long long subject(const ebb__traced_event *e)
{
    long long block = e->block == EBB__NO_BLOCK ? -1 : (long long)e->block;
    switch (e->action) {
    case EBB__ACT_ALLOC:
    case EBB__ACT_FREE_REQUESTED:
    case EBB__ACT_FREE_COMPLETED: return block;
    case EBB__ACT_CATEGORY:
        return block < 0 ? -1 : block * EBB_N_CATEGORIES + (long long)e->category;
    case EBB__ACT_SEGMENT_ALLOC:
    case EBB__ACT_SEGMENT_MAP:
    case EBB__ACT_OOM: return (long long)e->bytes;
    case EBB__ACT_SEGMENT_FREE:
    case EBB__ACT_SEGMENT_UNMAP: return -(long long)e->bytes;
    default: return (long long)e->owner;
    }
}

static uint64_t time_step(const ebb_trace *t, size_t i)
{
    return i ? t->events[i].time_ns - t->events[i - 1].time_ns : 0;
}

static void write_events(ebb__out *out, const ebb_trace *t)
{
    key(out, "events");
    ebb__out_text(out, "{");
    COLUMN(out, "dt", t->n_events, time_step(t, i));
    ebb__out_text(out, ",");
    COLUMN(out, "kind", t->n_events, t->events[i].action);
    ebb__out_text(out, ",");
    COLUMN(out, "ref", t->n_events, subject(&t->events[i]));
    ebb__out_text(out, "},\n");
}

static void write_blocks(ebb__out *out, const ebb_trace *t)
{
    key(out, "blocks");
    ebb__out_text(out, "{");
    COLUMN(out, "bytes", t->n_blocks, t->blocks[i].bytes);
    ebb__out_text(out, ",");
    COLUMN(out, "requested", t->n_blocks, t->blocks[i].requested);
    ebb__out_text(out, ",");
    COLUMN(out, "owner", t->n_blocks, t->blocks[i].owner);
    ebb__out_text(out, ",");
    COLUMN(out, "category", t->n_blocks, t->blocks[i].category);
    ebb__out_text(out, ",");
    COLUMN(out, "segment", t->n_blocks, t->blocks[i].segment);
    ebb__out_text(out, ",");
    COLUMN(out, "offset", t->n_blocks, t->blocks[i].offset);
    ebb__out_text(out, "},\n");
}

static void write_owners(ebb__out *out, const ebb_trace *t)
{
    key(out, "strings");
    for (size_t i = 0; i < t->strings.n; i++) {
        ebb__out_text(out, i ? "," : "[");
        ebb__out_json(out, t->strings.texts[i]);
    }
    ebb__out_text(out, "],\n\"owners\":[");
    for (size_t i = 0; i < t->n_owners; i++) {
        const ebb__traced_owner *o = &t->owners[i];
        ebb__out_printf(out, "%s[%u,%u,%llu,%llu,%d,%u,%d]", i ? "," : "", o->op, o->scope,
                        (unsigned long long)o->node, (unsigned long long)o->segment, (int)o->phase,
                        o->file, o->line);
    }
    ebb__out_text(out, "],\n");
}

/* Memory of segments that comes (bytes > 0) and goes: [event, segment, offset, bytes]. */
static void write_segments(ebb__out *out, const ebb_trace *t)
{
    size_t n = 0;
    key(out, "memory");
    ebb__out_text(out, "[");
    for (size_t i = 0; i < t->n_events; i++) {
        const ebb__traced_event *e = &t->events[i];
        bool is_memory = e->action >= EBB__ACT_SEGMENT_ALLOC && e->action <= EBB__ACT_SEGMENT_UNMAP;
        if (is_memory && e->bytes > 0)
            ebb__out_printf(out, "%s[%zu,%llu,%zu,%lld]", n++ ? "," : "", i,
                            (unsigned long long)e->segment, e->offset, subject(e));
    }
    ebb__out_text(out, "],\n");
}

/* ---- graphs ------------------------------------------------------------------------------- */

static const char *const slot_states[] = {
    [EBB_SLOT_EMPTY] = "empty",       [EBB_SLOT_KEPT] = "kept",
    [EBB_SLOT_PROMISED] = "promised", [EBB_SLOT_REFILLED] = "refilled",
    [EBB_SLOT_RELEASED] = "released",
};

static void write_node(ebb__out *out, const ebb_trace *t, const ebb__traced_node *n)
{
    ebb__out_printf(out, "{\"seq\":%llu,\"op\":%u,\"scope\":%u,\"from\":[",
                    (unsigned long long)n->seq, n->op, n->scope);
    for (int i = 0; i < n->n_edges; i++)
        number(out, (size_t)i, (long long)t->edges[n->first_edge + (size_t)i]);
    ebb__out_text(out, "],\"slots\":[");
    for (int k = 0; k < n->n_slots; k++) {
        const ebb__traced_slot *s = &t->slots[n->first_slot + (size_t)k];
        ebb__out_printf(out, "%s[\"%s\",\"%s\",%zu,%lld]", k ? "," : "", s->name,
                        slot_states[s->state], s->bytes,
                        s->block == EBB__NO_BLOCK ? -1 : (long long)s->block);
    }
    ebb__out_text(out, "]}");
}

static void write_graphs(ebb__out *out, const ebb_trace *t)
{
    key(out, "graphs");
    ebb__out_text(out, "[");
    for (size_t g = 0; g < t->n_graphs; g++) {
        ebb__out_printf(out, "%s{\"event\":%zu,\"nodes\":[", g ? "," : "", t->graphs[g].event);
        for (size_t i = 0; i < t->graphs[g].n_nodes; i++) {
            if (i) ebb__out_text(out, ",\n");
            write_node(out, t, &t->nodes[t->graphs[g].first_node + i]);
        }
        ebb__out_text(out, "]}");
    }
    ebb__out_text(out, "],\n");
}

/* ---- what the pool itself counted --------------------------------------------------------- */

static void write_memory(ebb__out *out, const ebb_memory_stats *m)
{
    ebb__out_printf(out,
                    "\"peak_allocated_bytes\":%zu,\"peak_reserved_bytes\":%zu,\"peak_requested_"
                    "bytes\":%zu,\"memory\":{",
                    m->peak_allocated_bytes, m->peak_reserved_bytes, m->peak_requested_bytes);
    for (int i = 0; i < EBB_N_CATEGORIES; i++)
        ebb__out_printf(out, "%s\"%s\":%zu", i ? "," : "", ebb_category_name((ebb_category)i),
                        m->by_category_at_peak[i]);
    ebb__out_text(out, "}");
}

static void write_rows(ebb__out *out, const ebb_trace *t)
{
    key(out, "rows");
    ebb__out_text(out, "[");
    for (size_t i = 0; i < t->summary.n_rows; i++) {
        const ebb_trace_row *r = &t->summary.rows[i];
        ebb__out_printf(out, "%s[%d,", i ? ",\n" : "", (int)r->category);
        ebb__out_json(out, r->op);
        ebb__out_text(out, ",");
        ebb__out_json(out, r->scope);
        ebb__out_printf(out, ",%zu,%zu,%llu,", r->bytes, r->n_blocks,
                        (unsigned long long)r->freed_by_node);
        ebb__out_json(out, r->freed_by_op);
        ebb__out_text(out, "]");
    }
    ebb__out_text(out, "],\n");
}

static void write_run(ebb__out *out, const ebb_trace *t)
{
    const ebb_trace_summary *s = &t->summary;
    ebb__out_text(out, "{\"name\":");
    ebb__out_json(out, s->name);
    ebb__out_text(out, ",\"device\":");
    ebb__out_json(out, s->device);
    ebb__out_printf(out, ",\"first_step\":%lld,\"last_step\":%lld,\"peak_active_bytes\":%zu,",
                    (long long)s->first_step, (long long)s->last_step, s->peak_active_bytes);
    write_memory(out, &s->memory);
    ebb__out_printf(out, ",\"host_peak_allocated_bytes\":%zu", s->host_memory.peak_allocated_bytes);
    ebb__out_text(out, ",\n");
    write_rows(out, t);
    write_owners(out, t);
    write_blocks(out, t);
    write_segments(out, t);
    write_graphs(out, t);
    write_events(out, t);
    ebb__out_text(out, "\"end\":0}\n");
}

/* ---- the page ----------------------------------------------------------------------------- */

ebb_status ebb_trace_write_html(const char *path, const ebb_trace *const traces[], int n, const ebb_frontier *frontier)
{
    if (n < 1 || n > MAX_RUNS)
        return ebb_fail(EBB_EINVAL, "trace page: %d runs; 1 to %d", n, MAX_RUNS);
    if (frontier && frontier->n_plans < 1) return ebb_fail(EBB_EINVAL, "trace page: a frontier without a plan");
    EBB_TRY(ebb_page_check());
    ebb__out out = ebb__out_begin(path);
    ebb__page_begin(&out, "ebb trace", &ebb__page_trace_body);
    ebb__page_frontier(&out, frontier);
    ebb__out_text(&out, ",\n\"runs\":[\n");
    for (int i = 0; i < n; i++) {
        if (i) ebb__out_text(&out, ",");
        write_run(&out, traces[i]);
    }
    ebb__out_text(&out, "]");
    ebb__page_end(&out, &ebb__page_trace_js);
    return ebb__out_end(&out);
}
