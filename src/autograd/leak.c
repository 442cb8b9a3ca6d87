/* leak.c: what steps leave behind, found by the ids that storages and nodes got in order of creation. */
#include <ebb/leak.h>
#include <stdlib.h>
#include <string.h>

#include "autograd/node.h"
#include "core/mem.h"

/* The first ids that a later step gives. */
typedef struct mark { uint64_t storage, node; } mark;
typedef struct left { size_t n, bytes, graph_bytes, nodes; } left;

enum { N_ENDS = EBB_LEAK_WINDOW + 2 };

struct ebb_leak_watch {
    ebb_context *ctx;
    int64_t steps;                     /* ended */
    mark baseline;                     /* at the first end */
    mark ends[N_ENDS];                 /* of the latest steps; of step s (from 1) at s % N_ENDS */
    /* Storages and nodes left at the end of the latest step whose number is a power of two, and of the
     * one before. */
    int64_t power;
    size_t at_power, before_power;
};

static const mark *end_of(const ebb_leak_watch *w, int64_t step) { return &w->ends[step % N_ENDS]; }

ebb_status ebb_leak_watch_new(ebb_leak_watch **out, ebb_context *ctx)
{
    ebb_leak_watch *w = ebb__calloc(1, sizeof *w);
    if (!w) return EBB_ENOMEM;
    w->ctx = ctx;
    *out = w;
    return EBB_OK;
}

void ebb_leak_watch_free(ebb_leak_watch *watch) { ebb__free(watch); }

/* ---- counting ----------------------------------------------------------------------------- */

static bool made_between(uint64_t id, uint64_t from, uint64_t to) { return id >= from && id < to; }

/* What was made after the baseline and before the step that ended last. */
static left count(const ebb_leak_watch *w)
{
    left sum = { 0 };
    if (w->steps < 3) return sum;
    const mark *from = &w->baseline, *to = end_of(w, w->steps - 1);
    for (const ebb_storage *s = w->ctx->storages; s; s = s->next) {
        if (!made_between(s->id, from->storage, to->storage)) continue;
        sum.n++;
        sum.bytes += s->bytes;
        if (s->kept + s->refilled > 0) sum.graph_bytes += s->bytes;
    }
    for (const ebb_node *n = w->ctx->nodes; n; n = n->next) sum.nodes += made_between(n->seq, from->node, to->node);
    return sum;
}

void ebb_leak_watch_step(ebb_leak_watch *w)
{
    mark now = { w->ctx->next_tensor_id, w->ctx->next_node_seq };
    w->steps++;
    if (w->steps == 1) w->baseline = now;
    w->ends[w->steps % N_ENDS] = now;
    if (w->steps < 2 * w->power) return;
    left sum = count(w);
    w->before_power = w->at_power;
    w->at_power = sum.n + sum.nodes;
    w->power = w->steps;
}

/* Of the steps in the window before the last one, those that left something; *bytes: how much. */
static int steps_that_left(const ebb_leak_watch *w, size_t *bytes, int *n_steps)
{
    int n = 0;
    *n_steps = 0;
    *bytes = 0;
    for (int64_t step = w->steps - 1; step > 1 && step >= w->steps - EBB_LEAK_WINDOW; step--) {
        const mark *from = end_of(w, step - 1), *to = end_of(w, step);
        bool any = false;
        for (const ebb_storage *s = w->ctx->storages; s; s = s->next)
            if (made_between(s->id, from->storage, to->storage)) {
                any = true;
                *bytes += s->bytes;
            }
        for (const ebb_node *node = w->ctx->nodes; node && !any; node = node->next)
            any = made_between(node->seq, from->node, to->node);
        n += any;
        ++*n_steps;
    }
    return n;
}

/* ---- who holds it ------------------------------------------------------------------------- */

static bool same_line(const ebb_leak_holder *h, const ebb_storage_info *info)
{
    return h->line == info->line && strcmp(h->file, info->file) == 0 && strcmp(h->op, info->op) == 0 &&
           strcmp(h->scope, info->scope) == 0;
}

/* The text ends with a whole line. */
static void tell_why(ebb_leak_holder *h, const ebb_storage *s)
{
    if (ebb_why(s, h->why, sizeof h->why) < sizeof h->why) return;
    char *end = strrchr(h->why, '\n');
    if (end) end[1] = 0;
}

/* Adds a storage to its line's group; a line that is met when all groups are taken replaces none. */
static void group(ebb_leak_report *r, const ebb_storage *s)
{
    ebb_storage_info info = ebb_storage_info_get(s);
    int i = 0;
    while (i < r->n_holders && !same_line(&r->holders[i], &info)) i++;
    if (i == EBB_LEAK_HOLDERS) return;
    ebb_leak_holder *h = &r->holders[i];
    if (i == r->n_holders) {
        *h = (ebb_leak_holder){ .op = info.op, .scope = info.scope, .file = info.file, .line = info.line };
        r->n_holders++;
    }
    h->n++;
    h->bytes += info.bytes;
    tell_why(h, s);
}

static int by_bytes(const void *a, const void *b)
{
    size_t x = ((const ebb_leak_holder *)a)->bytes, y = ((const ebb_leak_holder *)b)->bytes;
    return x < y ? 1 : x > y ? -1 : 0;
}

void ebb_leak_report_get(ebb_leak_report *report, const ebb_leak_watch *w)
{
    size_t window_bytes;
    int n_steps, leaking = steps_that_left(w, &window_bytes, &n_steps);
    left sum = count(w);
    *report = (ebb_leak_report){
        .steps = w->steps,
        .n = sum.n,
        .bytes = sum.bytes,
        .graph_bytes = sum.graph_bytes,
        .nodes = sum.nodes,
        .bytes_per_step = n_steps ? window_bytes / (size_t)n_steps : 0,
        .cyclic = ebb_cyclic_tensors(w->ctx),
    };
    /* What is bounded (say the losses of the last 10 steps) is no more than it was long ago; what one step in
     * many leaves (an evaluation's, say) is seen over a longer time only. */
    size_t now = sum.n + sum.nodes;
    bool steady = now > w->at_power && w->at_power > w->before_power && w->before_power > 0;
    report->grows = (leaking >= EBB_LEAK_STEPS && now > w->before_power) || steady;
    if (w->steps < 3) return;
    for (const ebb_storage *s = w->ctx->storages; s; s = s->next)
        if (made_between(s->id, w->baseline.storage, end_of(w, w->steps - 1)->storage)) group(report, s);
    qsort(report->holders, (size_t)report->n_holders, sizeof report->holders[0], by_bytes);
}
