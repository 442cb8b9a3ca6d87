/* leak.c: what steps leave behind: figures at each step's end, and counts by line of the program. */
#include <ebb/leak.h>
#include <string.h>

#include "autograd/growth.h"
#include "autograd/tally.h"
#include "core/mem.h"

typedef enum figure { BYTES, STORAGES, NODES, HOOKS, N_FIGURES } figure;

typedef struct levels { size_t of[N_FIGURES]; } levels;

struct ebb_leak_watch {
    ebb_context *ctx;
    int64_t steps;                  /* ended */
    ebb__growth figures[N_FIGURES];
    uint64_t last_tensor, last_node; /* the first ids after the end of the step before the last one, */
    uint64_t next_tensor, next_node; /* and after the last one's */
    /* At the ends of the latest step whose number is a power of two, of the one before, and now. */
    ebb__tally tallies[3];
    levels at_tally[2];             /* the figures then */
    int latest;                     /* of the first two */
};

enum { NOW = 2 };

ebb_status ebb_leak_watch_new(ebb_leak_watch **out, ebb_context *ctx)
{
    ebb_leak_watch *w = ebb__calloc(1, sizeof *w);
    if (!w) return EBB_ENOMEM;
    w->ctx = ctx;
    *out = w;
    return EBB_OK;
}

void ebb_leak_watch_free(ebb_leak_watch *watch) { ebb__free(watch); }

static levels levels_of(const ebb_context *ctx)
{
    return (levels){ { ctx->storage_bytes, ctx->n_storages, ctx->n_nodes, ctx->n_hooks } };
}

void ebb_leak_watch_step(ebb_leak_watch *w)
{
    const ebb_context *ctx = w->ctx;
    const levels now = levels_of(ctx);
    w->steps++;
    for (figure f = 0; f < N_FIGURES; f++) ebb__growth_add(&w->figures[f], now.of[f]);
    w->last_tensor = w->next_tensor;
    w->last_node = w->next_node;
    w->next_tensor = ctx->next_tensor_id;
    w->next_node = ctx->next_node_seq;
    if (w->steps < 2 * w->tallies[w->latest].step) return;
    w->latest = 1 - w->latest;
    w->at_tally[w->latest] = now;
    ebb__tally_take(&w->tallies[w->latest], ctx, w->steps, w->last_tensor, w->last_node);
}

/* What went before the report is no leak, whatever the steps' ends were: then lines have nothing more. */
bool ebb_leak_grows(const ebb_leak_watch *w)
{
    const levels now = levels_of(w->ctx), *before = &w->at_tally[1 - w->latest];
    for (figure f = 0; f < N_FIGURES; f++) {
        const ebb__growth *g = &w->figures[f];
        const bool grows = f == BYTES ? ebb__growth_of_size(g) : ebb__growth_of_count(g);
        if (grows && now.of[f] > before->of[f]) return true;
    }
    return false;
}

/* ---- the report --------------------------------------------------------------------------- */

static size_t more(size_t now, size_t before) { return now > before ? now - before : 0; }

static ebb__line growth_of(const ebb__line *now, const ebb__line *before)
{
    ebb__line grown = *now;
    grown.bytes = more(now->bytes, before->bytes);
    grown.graph_bytes = more(now->graph_bytes, before->graph_bytes);
    grown.storages = more(now->storages, before->storages);
    grown.nodes = more(now->nodes, before->nodes);
    grown.hooks = more(now->hooks, before->hooks);
    return grown;
}

/* The text ends with a whole line. */
static void tell_why(ebb_leak_holder *h, const ebb__line *line)
{
    size_t n = h->bytes || h->storages ? ebb_why(line->storage, h->why, sizeof h->why)
               : h->nodes              ? ebb__why_node(line->node, h->why, sizeof h->why)
                                       : ebb__why_hook(line->hooked, h->why, sizeof h->why);
    char *end = n < sizeof h->why ? NULL : strrchr(h->why, '\n');
    if (end) end[1] = 0;
}

/* Equal ones stand in the program's order, whatever slots their keys fell into: the key is a hash of the
 * file's path, and a report must not change with the folder that the program was built in. */
static bool stands_before(const ebb_leak_holder *a, const ebb_leak_holder *b)
{
    const size_t many_a = a->storages + a->nodes + a->hooks, many_b = b->storages + b->nodes + b->hooks;
    if (a->bytes != b->bytes) return a->bytes > b->bytes;
    if (many_a != many_b) return many_a > many_b;
    int order = strcmp(a->file, b->file);
    if (order == 0) order = (a->line > b->line) - (a->line < b->line);
    if (order == 0) order = strcmp(a->op, b->op);
    if (order == 0) order = strcmp(a->scope, b->scope);
    return order < 0;
}

/* Keeps the largest, in order. */
static void insert(ebb_leak_report *r, const ebb_leak_holder *h, const ebb__line *lines[], const ebb__line *line)
{
    int at = r->n_holders;
    while (at > 0 && stands_before(h, &r->holders[at - 1])) at--;
    if (at == EBB_LEAK_HOLDERS) return;
    if (r->n_holders < EBB_LEAK_HOLDERS) r->n_holders++;
    for (int i = r->n_holders - 1; i > at; i--) {
        r->holders[i] = r->holders[i - 1];
        lines[i] = lines[i - 1];
    }
    r->holders[at] = *h;
    lines[at] = line;
}

static void add(ebb_leak_report *r, const ebb__line *grown)
{
    r->bytes += grown->bytes;
    r->graph_bytes += grown->graph_bytes;
    r->storages += grown->storages;
    r->nodes += grown->nodes;
    r->hooks += grown->hooks;
}

/* Sums over the lines that have more, and the largest of them. */
static void compare(ebb_leak_report *r, const ebb__tally *now, const ebb__tally *before)
{
    const ebb__line *lines[EBB_LEAK_HOLDERS];
    ebb__line grown = growth_of(&now->rest, &before->rest);
    add(r, &grown);
    for (int i = 0; i < EBB__TALLY_LINES; i++) {
        const ebb__line *line = &now->lines[i];
        if (!line->key) continue;
        grown = growth_of(line, ebb__tally_find(before, line->key));
        if (grown.bytes + grown.storages + grown.nodes + grown.hooks == 0) continue;
        add(r, &grown);
        ebb_leak_holder h = { .op = line->op, .scope = line->scope, .file = line->file, .line = line->line_number,
                              .bytes = grown.bytes, .storages = grown.storages, .nodes = grown.nodes,
                              .hooks = grown.hooks };
        insert(r, &h, lines, line);
    }
    for (int i = 0; i < r->n_holders; i++) tell_why(&r->holders[i], lines[i]);
}

void ebb_leak_report_get(ebb_leak_report *report, ebb_leak_watch *w)
{
    *report = (ebb_leak_report){
        .grows = ebb_leak_grows(w),
        .steps = w->steps,
        .steps_needed = EBB_LEAK_STEPS,
        .cyclic = ebb_cyclic_tensors(w->ctx),
    };
    if (!report->grows) return;
    ebb__tally *now = &w->tallies[NOW];
    const ebb__tally *before = &w->tallies[1 - w->latest];
    ebb__tally_take(now, w->ctx, w->steps, w->last_tensor, w->last_node);
    report->since = before->step;
    compare(report, now, before);
    report->bytes_per_step = report->bytes / (size_t)(w->steps - before->step);
}
