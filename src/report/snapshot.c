/* report/snapshot.c: PyTorch's memory snapshot.
 * Its viewer walks the trace backwards from the final segments, so that every block alive at the end
 * stands in a segment, and blocks tile each segment.  An expandable segment is told as one segment
 * per run of pages with memory, as PyTorch does.  No event has a "category": the viewer refuses
 * some files with it; ours stands in the frames. */
#include <stdlib.h>
#include <string.h>

#include "core/mem.h"
#include "report/capture.h"
#include "report/emit.h"

/* Memory that is there at the end: a whole segment, or a run of an expandable one's pages. */
typedef struct stretch {
    uint64_t address, end, segment;
    int stream;
    bool expandable, small;
} stretch;

typedef struct snapshot {
    const ebb_trace *trace;
    ebb__emit emit;
    stretch *stretches;
    size_t n_stretches, cap_stretches;
    uint32_t *live; /* blocks that are there at the end, by address */
    size_t n_live;
} snapshot;

/* Of the small pool: its segments, and the most that its blocks have. */
enum { SMALL_SEGMENT_BYTES = 2 << 20, SMALL_BLOCK_BYTES = 1 << 20 };

/* ---- the end of the trace ----------------------------------------------------------------- */

static ebb_status add_stretch(snapshot *s, const ebb__traced_event *e, bool expandable)
{
    if (e->bytes == 0) return EBB_OK; /* an expandable segment begins without memory */
    EBB_TRY(ebb__grow(&s->stretches, &s->cap_stretches, s->n_stretches + 2, sizeof *s->stretches));
    s->stretches[s->n_stretches++] =
        (stretch){ .address = e->address,
                   .end = e->address + e->bytes,
                   .segment = e->segment,
                   .stream = e->stream,
                   .expandable = expandable,
                   .small = expandable || e->bytes == SMALL_SEGMENT_BYTES };
    return EBB_OK;
}

/* Takes [address, address + bytes) out; what is left of a run at both sides stays. */
static ebb_status cut_stretch(snapshot *s, const ebb__traced_event *e)
{
    uint64_t from = e->address, to = e->address + e->bytes;
    EBB_TRY(ebb__grow(&s->stretches, &s->cap_stretches, s->n_stretches + s->n_stretches + 1,
                      sizeof *s->stretches));
    for (size_t i = s->n_stretches; i-- > 0;) {
        stretch old = s->stretches[i];
        if (e->bytes == 0 || old.end <= from || to <= old.address) continue;
        s->stretches[i] = s->stretches[--s->n_stretches];
        stretch left = old, right = old;
        left.end = from;
        right.address = to;
        if (old.address < from) s->stretches[s->n_stretches++] = left;
        if (to < old.end) s->stretches[s->n_stretches++] = right;
    }
    return EBB_OK;
}

static int by_address(const void *a, const void *b)
{
    uint64_t x = ((const stretch *)a)->address, y = ((const stretch *)b)->address;
    return (x > y) - (x < y);
}

/* Neighbouring runs of one expandable segment are one. */
static void join_stretches(snapshot *s)
{
    size_t n = 0;
    if (s->n_stretches) qsort(s->stretches, s->n_stretches, sizeof *s->stretches, by_address);
    for (size_t i = 0; i < s->n_stretches; i++) {
        stretch *last = n ? &s->stretches[n - 1] : NULL, *next = &s->stretches[i];
        if (last && last->expandable && last->segment == next->segment &&
            last->end == next->address)
            last->end = next->end;
        else
            s->stretches[n++] = *next;
    }
    s->n_stretches = n;
}

/* An expandable segment is of the large pool when it has held a block that is too large for the other. */
static void find_large(snapshot *s)
{
    for (size_t i = 0; i < s->n_stretches; i++) {
        stretch *at = &s->stretches[i];
        for (size_t b = 0; at->expandable && at->small && b < s->trace->n_blocks; b++) {
            const ebb__traced_block *block = &s->trace->blocks[b];
            at->small = block->segment != at->segment || block->bytes <= SMALL_BLOCK_BYTES;
        }
    }
}

static ebb_status find_stretches(snapshot *s)
{
    for (size_t i = 0; i < s->trace->n_events; i++) {
        const ebb__traced_event *e = &s->trace->events[i];
        switch (e->action) {
        case EBB__ACT_SEGMENT_ALLOC: EBB_TRY(add_stretch(s, e, false)); break;
        case EBB__ACT_SEGMENT_MAP: EBB_TRY(add_stretch(s, e, true)); break;
        case EBB__ACT_SEGMENT_FREE:
        case EBB__ACT_SEGMENT_UNMAP: EBB_TRY(cut_stretch(s, e)); break;
        default: break;
        }
    }
    join_stretches(s);
    find_large(s);
    return EBB_OK;
}

static int live_order(const void *a, const void *b, void *blocks)
{
    const ebb__traced_block *all = blocks;
    uint64_t x = all[*(const uint32_t *)a].address, y = all[*(const uint32_t *)b].address;
    return (x > y) - (x < y);
}

static ebb_status find_live(snapshot *s)
{
    s->live = ebb__calloc(s->trace->n_blocks, sizeof *s->live);
    if (!s->live) return EBB_ENOMEM;
    for (size_t i = 0; i < s->trace->n_blocks; i++)
        if (s->trace->blocks[i].freed == UINT32_MAX) s->live[s->n_live++] = (uint32_t)i;
    qsort_r(s->live, s->n_live, sizeof *s->live, live_order, s->trace->blocks);
    return EBB_OK;
}

/* ---- writing ------------------------------------------------------------------------------ */

static void pair(ebb__emit *e, const char *key, uint64_t value)
{
    ebb__emit_key(e, key);
    ebb__emit_number(e, value);
}

static void frame(ebb__emit *e, const char *name, const char *file, uint64_t line)
{
    ebb__emit_dict(e);
    ebb__emit_key(e, "name");
    ebb__emit_text(e, name);
    ebb__emit_key(e, "filename");
    ebb__emit_text(e, file);
    pair(e, "line", line);
    ebb__emit_end(e);
}

/* Innermost first: the op in its scope, what for, the line of the program. */
static void frames(snapshot *s, uint32_t owner, ebb_category category, const void *key)
{
    const ebb__traced_owner *o = &s->trace->owners[owner];
    const char *op = ebb__traced_text(s->trace, o->op),
               *scope = ebb__traced_text(s->trace, o->scope);
    const char *file = ebb__traced_text(s->trace, o->file), *what = ebb_category_name(category);
    ebb__emit *e = &s->emit;
    ebb__emit_key(e, "frames");
    if (ebb__emit_again(e, key)) return;
    ebb__emit_list(e);
    if (*op || *scope) frame(e, *op ? op : what, *scope ? scope : "model", o->node);
    frame(e, what, ebb__phase_name(o->phase), o->segment);
    if (*file) frame(e, "called from", file, (uint64_t)(o->line > 0 ? o->line : 0));
    ebb__emit_end(e);
    ebb__emit_remember(e, key);
}

static void no_frames(ebb__emit *e)
{
    ebb__emit_key(e, "frames");
    ebb__emit_list(e);
    ebb__emit_end(e);
}

/* block NULL: free. */
static void write_block(snapshot *s, uint64_t address, uint64_t bytes,
                        const ebb__traced_block *block)
{
    ebb__emit *e = &s->emit;
    ebb__emit_dict(e);
    pair(e, "address", address);
    pair(e, "size", bytes);
    pair(e, "requested_size", block ? block->requested : 0);
    ebb__emit_key(e, "state");
    ebb__emit_text(e, !block                          ? "inactive"
                      : block->released == UINT32_MAX ? "active_allocated"
                                                      : "active_pending_free");
    if (block)
        frames(s, block->owner, block->served, block);
    else
        no_frames(e);
    ebb__emit_end(e);
}

/* From live[first] on; returns how many blocks lie in the stretch. */
static size_t write_blocks(snapshot *s, const stretch *at, size_t first)
{
    size_t i = first;
    uint64_t done = at->address;
    ebb__emit_key(&s->emit, "blocks");
    ebb__emit_list(&s->emit);
    for (; i < s->n_live; i++) {
        const ebb__traced_block *b = &s->trace->blocks[s->live[i]];
        if (b->address >= at->end) break;
        if (b->address > done) write_block(s, done, b->address - done, NULL);
        write_block(s, b->address, b->bytes, b);
        done = b->address + b->bytes;
    }
    if (done < at->end) write_block(s, done, at->end - done, NULL);
    ebb__emit_end(&s->emit);
    return i - first;
}

typedef struct sums {
    uint64_t allocated, active, requested;
} sums;

static sums sum_blocks(const snapshot *s, const stretch *at, size_t first)
{
    sums t = { 0 };
    for (size_t i = first; i < s->n_live; i++) {
        const ebb__traced_block *b = &s->trace->blocks[s->live[i]];
        if (b->address >= at->end) break;
        t.active += b->bytes;
        t.requested += b->requested;
        if (b->released == UINT32_MAX) t.allocated += b->bytes;
    }
    return t;
}

static size_t write_segment(snapshot *s, const stretch *at, size_t first)
{
    ebb__emit *e = &s->emit;
    sums t = sum_blocks(s, at, first);
    ebb__emit_dict(e);
    pair(e, "device", 0);
    pair(e, "address", at->address);
    pair(e, "total_size", at->end - at->address);
    pair(e, "allocated_size", t.allocated);
    pair(e, "active_size", t.active);
    pair(e, "requested_size", t.requested);
    pair(e, "stream", (uint64_t)at->stream);
    ebb__emit_key(e, "segment_type");
    ebb__emit_text(e, at->small ? "small" : "large");
    ebb__emit_key(e, "segment_pool_id");
    ebb__emit_list(e);
    ebb__emit_number(e, 0);
    ebb__emit_number(e, 0);
    ebb__emit_end(e);
    ebb__emit_key(e, "is_expandable");
    ebb__emit_bool(e, at->expandable);
    no_frames(e);
    size_t n = write_blocks(s, at, first);
    ebb__emit_end(e);
    return n;
}

static void write_segments(snapshot *s)
{
    size_t first = 0;
    ebb__emit_key(&s->emit, "segments");
    ebb__emit_list(&s->emit);
    for (size_t i = 0; i < s->n_stretches; i++) first += write_segment(s, &s->stretches[i], first);
    ebb__emit_end(&s->emit);
}

static void write_event(snapshot *s, const ebb__traced_event *event)
{
    ebb__emit *e = &s->emit;
    bool block = event->action == EBB__ACT_ALLOC || event->action == EBB__ACT_FREE_REQUESTED ||
                 event->action == EBB__ACT_FREE_COMPLETED;
    if (event->action > EBB__ACT_OOM) return; /* a mark of our own */
    if (event->action != EBB__ACT_OOM && event->bytes == 0) return;
    ebb__emit_dict(e);
    ebb__emit_key(e, "action");
    ebb__emit_text(e, ebb__action_name(event->action));
    pair(e, event->action == EBB__ACT_OOM ? "device_free" : "addr", event->address);
    pair(e, "size", block || event->action == EBB__ACT_OOM ? event->requested : event->bytes);
    pair(e, "stream", (uint64_t)event->stream);
    pair(e, "time_us", event->time_ns / 1000);
    if (block && event->block != EBB__NO_BLOCK) {
        const ebb__traced_block *b = &s->trace->blocks[event->block];
        frames(s, b->owner, b->served, b);
    } else {
        no_frames(e);
    }
    ebb__emit_end(e);
}

static void write_traces(snapshot *s)
{
    ebb__emit_key(&s->emit, "device_traces");
    ebb__emit_list(&s->emit);
    ebb__emit_list(&s->emit);
    for (size_t i = 0; i < s->trace->n_events; i++) write_event(s, &s->trace->events[i]);
    ebb__emit_end(&s->emit);
    ebb__emit_end(&s->emit);
}

static void write_annotation(ebb__emit *e, const char *stage, const char *name, uint64_t time_ns)
{
    ebb__emit_dict(e);
    ebb__emit_key(e, "stage");
    ebb__emit_text(e, stage);
    ebb__emit_key(e, "name");
    ebb__emit_text(e, name);
    pair(e, "device", 0);
    pair(e, "time_us", time_ns / 1000);
    ebb__emit_end(e);
}

static void write_annotations(snapshot *s)
{
    const char *open = NULL;
    ebb__emit_key(&s->emit, "external_annotations");
    ebb__emit_list(&s->emit);
    for (size_t i = 0; i < s->trace->n_events; i++) {
        const ebb__traced_event *e = &s->trace->events[i];
        if (e->action != EBB__ACT_PHASE) continue;
        if (open) write_annotation(&s->emit, "END", open, e->time_ns);
        open = ebb__phase_name(s->trace->owners[e->owner].phase);
        write_annotation(&s->emit, "START", open, e->time_ns);
    }
    ebb__emit_end(&s->emit);
}

static void write_all(snapshot *s)
{
    ebb__emit *e = &s->emit;
    ebb__emit_dict(e);
    write_segments(s);
    write_traces(s);
    write_annotations(s);
    ebb__emit_key(e, "allocator_settings");
    ebb__emit_dict(e);
    ebb__emit_key(e, "made_by");
    ebb__emit_text(e, "ebb " EBB_VERSION);
    ebb__emit_key(e, "device");
    ebb__emit_text(e, s->trace->device);
    ebb__emit_end(e);
    ebb__emit_end(e);
}

static bool ends_with(const char *text, const char *end)
{
    size_t n = strlen(text), m = strlen(end);
    return n > m && strcmp(text + n - m, end) == 0;
}

ebb_status ebb_trace_write_snapshot(const char *path, const ebb_trace *trace)
{
    bool pickle = ends_with(path, ".pickle") || ends_with(path, ".pkl");
    if (!pickle && !ends_with(path, ".json"))
        return ebb_fail(EBB_EINVAL,
                        "snapshot: \"%s\": expected a name that ends with .pickle or .json", path);
    snapshot s = { .trace = trace };
    ebb_status st = find_stretches(&s);
    if (st == EBB_OK) st = find_live(&s);
    if (st == EBB_OK) {
        ebb__out out = ebb__out_begin(path);
        ebb__emit_begin(&s.emit, &out, pickle);
        write_all(&s);
        ebb__emit_finish(&s.emit);
        st = ebb__out_end(&out);
    }
    ebb__free(s.stretches);
    ebb__free(s.live);
    return st;
}
