/* alloc/peak.c: two passes over a trace: find the peak, then the blocks alive there and who frees them. */
#include "alloc/peak.h"

#include <stdlib.h>
#include <string.h>

#include "alloc/live_map.h"
#include "alloc/pool_state.h"
#include "core/mem.h"

typedef struct alive {
    ebb__event event; /* its allocation; the category follows later moves */
    bool gone;        /* freed before the peak */
    bool freed;       /* after it: during `phase`, by `node` */
    ebb__owner by;
} alive;

typedef struct survey {
    ebb__live_map map; /* to an index of blocks */
    alive *blocks;
    size_t n, cap;
    ebb__owner running; /* phase, and node in a backward */
} survey;

static void find_peak(ebb__peak_table *table, const ebb__pool *pool)
{
    ebb__event e;
    size_t sum = 0;
    for (size_t i = 0; ebb__trace_get(pool, i, &e); i++) {
        if (e.action == EBB__ACT_ALLOC)
            sum += e.bytes;
        else if (e.action == EBB__ACT_FREE_REQUESTED)
            sum -= e.bytes;
        if (sum <= table->bytes) continue;
        table->bytes = sum;
        table->event = i;
        table->time_ns = e.time_ns;
    }
}

static ebb_status add(survey *s, const ebb__event *e)
{
    ebb_status status = ebb__grow(&s->blocks, &s->cap, s->n + 1, sizeof *s->blocks);
    if (status == EBB_OK) status = ebb__live_map_set(&s->map, e->segment, e->offset, s->n);
    if (status == EBB_OK) s->blocks[s->n++] = (alive){ .event = *e };
    return status;
}

/* A recompute runs within the backward of a node, and ends in it. */
static void follow_marks(survey *s, const ebb__event *e)
{
    ebb__phase phase = e->owner.phase;
    bool in_backward = phase == EBB__PHASE_BACKWARD || phase == EBB__PHASE_RECOMPUTE;
    if (e->action == EBB__ACT_PHASE && !in_backward) s->running = (ebb__owner){ 0 };
    if (e->action == EBB__ACT_PHASE) s->running.phase = phase;
    if (e->action != EBB__ACT_NODE) return;
    s->running.node = e->owner.node;
    s->running.op = e->owner.op;
}

/* Until the peak blocks come and go; after it only the going of those that are there matters. */
static ebb_status read_event(survey *s, const ebb__event *e, bool after_peak)
{
    follow_marks(s, e);
    if (e->action == EBB__ACT_ALLOC && !after_peak) return add(s, e);
    if (e->action == EBB__ACT_CATEGORY && !after_peak) {
        size_t at = ebb__live_map_get(&s->map, e->segment, e->offset);
        if (at != SIZE_MAX) s->blocks[at].event.owner.category = e->owner.category;
    }
    if (e->action != EBB__ACT_FREE_REQUESTED) return EBB_OK;
    size_t at = ebb__live_map_take(&s->map, e->segment, e->offset);
    if (at == SIZE_MAX) return EBB_OK;
    s->blocks[at].gone = !after_peak;
    s->blocks[at].freed = after_peak;
    s->blocks[at].by = s->running;
    return EBB_OK;
}

static bool same_text(const char *a, const char *b)
{
    return a == b || (a && b && strcmp(a, b) == 0);
}

static ebb__peak_row *row_of(ebb__peak_table *table, const ebb__owner *owner)
{
    for (size_t i = 0; i < table->n_rows; i++) {
        ebb__peak_row *row = &table->rows[i];
        if (row->category == owner->category && same_text(row->op, owner->op) &&
            same_text(row->scope, owner->scope))
            return row;
    }
    ebb__peak_row *row = &table->rows[table->n_rows++];
    *row = (ebb__peak_row){
        .category = owner->category, .op = owner->op, .scope = owner->scope, .freed = true
    };
    return row;
}

static int larger_first(const void *a, const void *b)
{
    const ebb__peak_row *x = a, *y = b;
    if (x->bytes != y->bytes) return x->bytes < y->bytes ? 1 : -1;
    if (x->category != y->category) return x->category < y->category ? -1 : 1;
    int order = strcmp(x->scope ? x->scope : "", y->scope ? y->scope : "");
    return order ? order : strcmp(x->op ? x->op : "", y->op ? y->op : "");
}

/* A backward frees in falling order of node numbers: the smallest one is the last. */
static void add_to_row(ebb__peak_row *row, const alive *block)
{
    row->bytes += block->event.bytes;
    row->n_blocks++;
    row->freed = row->freed && block->freed;
    if (!block->freed || (row->freed_by_node && block->by.node > row->freed_by_node)) return;
    row->freed_by_node = block->by.node;
    row->freed_by_op = block->by.op;
    row->freed_phase = block->by.phase;
}

static ebb_status fill(ebb__peak_table *table, survey *s, const ebb__pool *pool)
{
    ebb__event e;
    for (size_t i = 0; ebb__trace_get(pool, i, &e); i++) {
        ebb_status status = read_event(s, &e, i > table->event);
        if (status != EBB_OK) return status;
        if (i == table->event) table->phase = e.owner.phase;
    }
    table->rows = ebb__calloc(s->n, sizeof *table->rows);
    if (!table->rows) return EBB_ENOMEM;
    for (size_t i = 0; i < s->n; i++)
        if (!s->blocks[i].gone) add_to_row(row_of(table, &s->blocks[i].event.owner), &s->blocks[i]);
    qsort(table->rows, table->n_rows, sizeof *table->rows, larger_first);
    return EBB_OK;
}

ebb_status ebb__peak_table_new(ebb__peak_table *out, const ebb__pool *pool)
{
    uint64_t dropped = 0;
    if (ebb__trace_count(pool, &dropped) == 0 || dropped)
        return ebb_fail(EBB_ESTATE,
                        "peak table: it needs a trace without gaps; %llu events were dropped",
                        (unsigned long long)dropped);
    ebb__peak_table table = { 0 };
    survey s = { 0 };
    find_peak(&table, pool);
    ebb_status status = fill(&table, &s, pool);
    ebb__live_map_deinit(&s.map);
    ebb__free(s.blocks);
    if (status == EBB_OK)
        *out = table;
    else
        ebb__peak_table_deinit(&table);
    return status;
}

void ebb__peak_table_deinit(ebb__peak_table *table)
{
    ebb__free(table->rows);
    *table = (ebb__peak_table){ 0 };
}
