/* alloc/oom.c: the sentence that says why memory is gone, and where it is. */
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include "alloc/pool_state.h"

enum { TEXT_BYTES = 1024, MAX_GROUPS = 256, N_SHOWN = 4, N_STREAMS = 8 };

typedef struct text {
    char chars[TEXT_BYTES];
    size_t used;
} text;

static void add(text *t, const char *fmt, ...) EBB_PRINTF(2, 3);
static void add(text *t, const char *fmt, ...)
{
    va_list args;
    va_start(args, fmt);
    size_t left = TEXT_BYTES - t->used;
    int n = vsnprintf(t->chars + t->used, left, fmt, args);
    va_end(args);
    if (n > 0) t->used += (size_t)n < left ? (size_t)n : left - 1;
}

static void add_size(text *t, const char *before, size_t bytes)
{
    char buf[32];
    add(t, "%s%s", before, ebb_size_format(bytes, buf, sizeof buf));
}

/* Live bytes of one op and category. */
typedef struct group {
    const char *op; /* NULL: none */
    ebb_category category;
    size_t bytes;
} group;

typedef struct stranded {
    int stream;
    size_t bytes;
} stranded;

typedef struct survey {
    size_t largest_free_bytes;
    size_t waiting_bytes;       /* released, but another stream works with them, or deferred */
    stranded others[N_STREAMS]; /* free bytes that only other streams may use */
    int n_others;
    group groups[MAX_GROUPS]; /* what does not fit into the table is left out */
    int n_groups;
} survey;

static bool same_op(const char *a, const char *b)
{
    return a == b || (a && b && strcmp(a, b) == 0);
}

static void count_live(survey *s, const ebb__block *block)
{
    const ebb__owner *owner = &block->owner;
    int i = 0;
    while (i < s->n_groups &&
           (s->groups[i].category != owner->category || !same_op(s->groups[i].op, owner->op)))
        i++;
    if (i == MAX_GROUPS) return;
    if (i == s->n_groups) s->groups[s->n_groups++] = (group){ owner->op, owner->category, 0 };
    s->groups[i].bytes += block->bytes;
}

static void count_stranded(survey *s, const ebb__block *block)
{
    int i = 0;
    while (i < s->n_others && s->others[i].stream != block->stream) i++;
    if (i == N_STREAMS) return;
    if (i == s->n_others) s->others[s->n_others++] = (stranded){ block->stream, 0 };
    s->others[i].bytes += block->bytes;
}

static void take_survey(survey *s, const ebb__pool *pool, int stream)
{
    s->n_groups = s->n_others = 0;
    s->largest_free_bytes = s->waiting_bytes = 0;
    for (const ebb__segment *at = pool->first_segment; at; at = at->next)
        for (const ebb__block *b = at->first; b; b = b->next) {
            if (b->released)
                s->waiting_bytes += b->bytes;
            else if (b->used)
                count_live(s, b);
            else if (b->unmapped)
                continue;
            else if (b->stream != stream)
                count_stranded(s, b);
            else if (b->bytes > s->largest_free_bytes)
                s->largest_free_bytes = b->bytes;
        }
}

/* Moves the largest groups to the front; returns how many. */
static int sort_largest(survey *s)
{
    int n = s->n_groups < N_SHOWN ? s->n_groups : N_SHOWN;
    for (int i = 0; i < n; i++) {
        int best = i;
        for (int j = i + 1; j < s->n_groups; j++)
            if (s->groups[j].bytes > s->groups[best].bytes) best = j;
        group g = s->groups[i];
        s->groups[i] = s->groups[best];
        s->groups[best] = g;
    }
    return n;
}

static void add_request(text *t, const ebb__request *request)
{
    char who[160];
    if (request->rounded)
        add_size(t, "out of memory: tried to allocate ", request->requested);
    else
        add(t, "out of memory: tried to allocate %zu bytes", request->requested);
    add(t, " for %s", ebb__owner_describe(request->owner, who, sizeof who));
}

static void add_totals(text *t, const ebb__pool *pool, const ebb__request *request)
{
    add_size(t, "; ", pool->stats.allocated_bytes);
    add_size(t, " allocated, ", pool->stats.reserved_bytes);
    add(t, " reserved, ");
    if (pool->limit_bytes)
        add_size(t, "limit ", pool->limit_bytes);
    else
        add(t, "no limit");
    if (request->segment_bytes == 0) return;
    bool limited = !ebb__pool_has_room(pool, request->segment_bytes);
    add(t, limited ? " leaves no room for a segment of " : ", the system refused a segment of ");
    add_size(t, "", request->segment_bytes);
}

static void add_survey(text *t, const ebb__pool *pool, survey *s)
{
    double reserved = (double)pool->stats.reserved_bytes;
    double idle = reserved > 0 ? 1 - (double)pool->stats.allocated_bytes / reserved : 0;
    add_size(t, "; largest free block ", s->largest_free_bytes);
    add(t, ", fragmentation %.1f%%", 100 * idle);
    if (s->waiting_bytes) add_size(t, ", released but still worked with ", s->waiting_bytes);
    for (int i = 0; i < s->n_others; i++) {
        add_size(t, ", free ", s->others[i].bytes);
        if (s->others[i].stream < 0) add(t, " that only a captured graph may use");
        else if (pool->capture) add(t, " that the capture may not use");
        else add(t, " that only stream %d may use", s->others[i].stream);
    }
    int n = sort_largest(s);
    for (int i = 0; i < n; i++) {
        const group *g = &s->groups[i];
        add(t, "%s%s%s%s ", i == 0 ? "; largest owners: " : ", ", g->op ? g->op : "",
            g->op ? " " : "", ebb_category_name(g->category));
        add_size(t, "", g->bytes);
    }
}

static void add_advice(text *t, const ebb__pool *pool, size_t wanted)
{
    char advice[256] = "";
    if (!pool->adviser) return;
    pool->adviser(pool->adviser_self, wanted, advice, sizeof advice);
    if (advice[0]) add(t, "; %s", advice);
}

ebb_status ebb__pool_oom(ebb__pool *pool, const ebb__request *request)
{
    text t = { .used = 0 };
    survey s;
    pool->stats.n_ooms++;
    pool->counters.n_ooms++;
    EBB__TRACE(pool, oom, request->requested, request->stream, request->owner);
    take_survey(&s, pool, request->stream);
    add_request(&t, request);
    add_totals(&t, pool, request);
    add_survey(&t, pool, &s);
    add_advice(&t, pool, request->requested);
    return ebb_fail(EBB_ENOMEM, "%s", t.chars);
}
