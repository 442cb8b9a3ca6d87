/* report/perfetto.c: Chrome's trace format.  Threads: steps, phases, the nodes of backward; counters
 * of one process: allocated, reserved, and each category. */
#include <stdio.h>
#include <string.h>

#include "core/mem.h"
#include "report/capture.h"
#include "report/out.h"

enum { STEPS = 1, PHASES, NODES, N_TRACKS = NODES };

typedef struct slice {
    const char *name, *scope;
    uint64_t from_ns, node;
    bool open;
} slice;

typedef struct timeline {
    const ebb_trace *trace;
    ebb__out out;
    slice open[N_TRACKS + 1]; /* by track */
    size_t by_category[EBB_N_CATEGORIES], allocated, reserved;
    int64_t step;
    char step_name[32];
} timeline;

static void begin_event(timeline *t, char kind, const char *name, int track, uint64_t time_ns)
{
    ebb__out_printf(&t->out,
                    ",\n{\"ph\":\"%c\",\"pid\":1,\"tid\":%d,\"ts\":%llu.%03u,\"name\":", kind,
                    track, (unsigned long long)(time_ns / 1000), (unsigned)(time_ns % 1000));
    ebb__out_json(&t->out, name);
}

static void name_track(timeline *t, int track, const char *name)
{
    ebb__out_printf(
        &t->out,
        ",\n{\"ph\":\"M\",\"pid\":1,\"tid\":%d,\"name\":\"thread_name\",\"args\":{\"name\":",
        track);
    ebb__out_json(&t->out, name);
    ebb__out_printf(&t->out,
                    "}},\n{\"ph\":\"M\",\"pid\":1,\"tid\":%d,\"name\":\"thread_sort_index\","
                    "\"args\":{\"sort_index\":%d}}",
                    track, track);
}

static void end_slice(timeline *t, int track, uint64_t now_ns)
{
    slice *s = &t->open[track];
    if (!s->open) return;
    uint64_t ns = now_ns - s->from_ns;
    begin_event(t, 'X', s->name, track, s->from_ns);
    ebb__out_printf(&t->out, ",\"dur\":%llu.%03u", (unsigned long long)(ns / 1000),
                    (unsigned)(ns % 1000));
    if (s->node) {
        ebb__out_printf(&t->out,
                        ",\"args\":{\"node\":%llu,\"scope\":", (unsigned long long)s->node);
        ebb__out_json(&t->out, s->scope);
        ebb__out_text(&t->out, "}");
    }
    ebb__out_text(&t->out, "}");
    s->open = false;
}

static void begin_slice(timeline *t, int track, slice what)
{
    end_slice(t, track, what.from_ns);
    t->open[track] = what;
    t->open[track].open = true;
}

static void counter(timeline *t, const char *name, size_t bytes, uint64_t time_ns)
{
    begin_event(t, 'C', name, 0, time_ns);
    ebb__out_printf(&t->out, ",\"args\":{\"bytes\":%zu}}", bytes);
}

static void count_allocated(timeline *t, const ebb__traced_event *e, bool added)
{
    size_t *category = &t->by_category[e->category];
    t->allocated = added ? t->allocated + e->bytes : t->allocated - e->bytes;
    *category = added ? *category + e->bytes : *category - e->bytes;
    counter(t, "allocated", t->allocated, e->time_ns);
    counter(t, ebb_category_name(e->category), *category, e->time_ns);
}

static void count_reserved(timeline *t, const ebb__traced_event *e, bool added)
{
    if (e->bytes == 0) return;
    t->reserved = added ? t->reserved + e->bytes : t->reserved - e->bytes;
    counter(t, "reserved", t->reserved, e->time_ns);
}

/* A CATEGORY event tells the new one; the old one is of the block's event before. */
static void move_category(timeline *t, const ebb__traced_event *e, ebb_category *now)
{
    if (e->block == EBB__NO_BLOCK || now[e->block] == e->category) return;
    ebb_category before = now[e->block];
    t->by_category[before] -= e->bytes;
    t->by_category[e->category] += e->bytes;
    counter(t, ebb_category_name(before), t->by_category[before], e->time_ns);
    counter(t, ebb_category_name(e->category), t->by_category[e->category], e->time_ns);
    now[e->block] = e->category;
}

static void mark(timeline *t, const ebb__traced_event *e)
{
    const ebb__traced_owner *o = &t->trace->owners[e->owner];
    slice s = { .from_ns = e->time_ns, .scope = ebb__traced_text(t->trace, o->scope) };
    if (e->action == EBB__ACT_NODE) {
        s.name = ebb__traced_text(t->trace, o->op);
        s.node = o->node;
        begin_slice(t, NODES, s);
    } else if (e->action == EBB__ACT_PHASE) {
        /* A recompute interrupts a node, which goes on after it. */
        if (o->phase != EBB__PHASE_RECOMPUTE && o->phase != EBB__PHASE_BACKWARD)
            end_slice(t, NODES, e->time_ns);
        s.name = ebb__phase_name(o->phase);
        begin_slice(t, PHASES, s);
    } else if (strstr(ebb__traced_text(t->trace, o->op), "eval")) { /* a batch of it */
        s.name = "evaluation";
        begin_slice(t, STEPS, s);
    } else {
        end_slice(t, STEPS, e->time_ns);
        snprintf(t->step_name, sizeof t->step_name, "step %lld", (long long)t->step++);
        s.name = t->step_name;
        begin_slice(t, STEPS, s);
    }
}

static void event(timeline *t, const ebb__traced_event *e, ebb_category *now)
{
    switch (e->action) {
    case EBB__ACT_ALLOC:
        now[e->block] = e->category;
        count_allocated(t, e, true);
        break;
    case EBB__ACT_FREE_REQUESTED: count_allocated(t, e, false); break;
    case EBB__ACT_SEGMENT_ALLOC:
    case EBB__ACT_SEGMENT_MAP: count_reserved(t, e, true); break;
    case EBB__ACT_SEGMENT_FREE:
    case EBB__ACT_SEGMENT_UNMAP: count_reserved(t, e, false); break;
    case EBB__ACT_CATEGORY: move_category(t, e, now); break;
    case EBB__ACT_PHASE:
    case EBB__ACT_NODE:
    case EBB__ACT_UNIT: mark(t, e); break;
    default: break;
    }
}

ebb_status ebb_trace_write_perfetto(const char *path, const ebb_trace *trace)
{
    ebb_category *now = ebb__calloc(trace->n_blocks, sizeof *now);
    if (!now) return EBB_ENOMEM;
    timeline t = { .trace = trace, .out = ebb__out_begin(path), .step = trace->summary.first_step };
    ebb__out_text(&t.out, "{\"displayTimeUnit\":\"ms\",\"traceEvents\":[\n"
                          "{\"ph\":\"M\",\"pid\":1,\"name\":\"process_name\",\"args\":{\"name\":");
    ebb__out_json(&t.out, trace->summary.name);
    ebb__out_text(&t.out, "}}");
    name_track(&t, STEPS, "steps");
    name_track(&t, PHASES, "phases");
    name_track(&t, NODES, "nodes of backward");
    for (size_t i = 0; i < trace->n_events; i++) event(&t, &trace->events[i], now);
    uint64_t end_ns = trace->n_events ? trace->events[trace->n_events - 1].time_ns : 0;
    for (int track = 1; track <= N_TRACKS; track++) end_slice(&t, track, end_ns);
    ebb__out_text(&t.out, "\n]}\n");
    ebb__free(now);
    return ebb__out_end(&t.out);
}
