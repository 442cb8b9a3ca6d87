#include "chain_plans.h"

#include <math.h>
#include <string.h>

/* ---- a plan, step by step ------------------------------------------------------------------- */

typedef struct machine {
    const ebb__chain *chain;
    const chain_plan *plan;
    size_t held, peak;    /* bytes; peak over all steps */
    double ns;
} machine;

static void use(machine *m, size_t more) { if (m->held + more > m->peak) m->peak = m->held + more; }

static size_t input_of(const ebb__chain *c, int i) { return i < c->n ? c->stages[i].input : 0; }

/* The outermost segment of segments [from, to) that begins at stage i and lies within `last`. */
static int segment_at(const chain_plan *p, int from, int to, int i)
{
    for (int k = from; k < to; k++)
        if (p->segments[k].first == i) return k;
    return -1;
}

/* Stages [first, last] with segments [from, to): forward, then backward.  On entry the first one's input is
 * held, and so is the gradient of the last one's output; on leaving neither output nor gradients but those of
 * the parameters are. */
static void run_stretch(machine *m, int first, int last, int from, int to)
{
    const ebb__chain *c = m->chain;
    struct { int first, last, from, to; } parts[MAX_STAGES];
    int n = 0;
    size_t gradient = input_of(c, last + 1); /* of the output; there while this runs forward */
    m->held += gradient;
    for (int i = first; i <= last;) {
        int k = segment_at(m->plan, from, to, i);
        int end = k >= 0 ? m->plan->segments[k].last : i, inner = k + 1;
        while (k >= 0 && inner < to && m->plan->segments[inner].last <= end) inner++;
        parts[n].first = i;
        parts[n].last = end;
        parts[n].from = k >= 0 ? k + 1 : -1;
        parts[n].to = inner;
        n++;
        for (int s = i; s <= end; s++) {
            const ebb__stage *stage = &c->stages[s];
            if (k >= 0) {
                use(m, (s > i ? stage->input : 0) + stage->replay);
                m->ns += stage->forward_ns;
                continue;
            }
            /* The gradient of the output is counted in `backward` where this stage is the last. */
            const ebb__choice *choice = &stage->choices[m->plan->choice[s]];
            if (s == last) m->held -= gradient;
            use(m, choice->forward);
            m->ns += s == last ? stage->replay_ns : stage->forward_ns;
            m->held += choice->keep;
        }
        if (end < last) m->held += input_of(c, end + 1);
        i = end + 1;
    }
    for (n--; n >= 0; n--) {
        const ebb__stage *stage = &c->stages[parts[n].first];
        if (parts[n].last < last) m->held -= input_of(c, parts[n].last + 1); /* its gradient takes its place */
        bool owes = n > 0 && parts[n - 1].from < 0;
        size_t owed = owes ? c->stages[parts[n - 1].first].choices[m->plan->choice[parts[n - 1].first]].owed : 0;
        if (parts[n].from >= 0) {
            m->held += owed;
            run_stretch(m, parts[n].first, parts[n].last, parts[n].from, parts[n].to);
            m->held -= owed;
            continue;
        }
        const ebb__choice *choice = &stage->choices[m->plan->choice[parts[n].first]];
        m->held -= choice->keep;
        use(m, choice->backward + owed);
        m->ns += choice->extra_ns + (last == c->n - 1 ? choice->copy_ns : 0); /* no copies inside segments */
        m->held += stage->gradients;
    }
}

chain_cost chain_run(const ebb__chain *chain, const chain_plan *plan)
{
    machine m = { .chain = chain, .plan = plan };
    run_stretch(&m, 0, chain->n - 1, 0, plan->n_segments);
    return (chain_cost){ m.ns, m.peak };
}

/* ---- all plans ------------------------------------------------------------------------------ */

/* What is still to be filled: stretches, innermost last. */
typedef struct search {
    const ebb__chain *chain;
    chain_plan plan;
    ebb_block_range open[MAX_SEGMENTS];
    int n_open;
    const size_t *budgets;
    double *least;
    int n;
} search;

static void judge(search *s)
{
    chain_cost cost = chain_run(s->chain, &s->plan);
    for (int i = 0; i < s->n; i++)
        if (cost.peak <= s->budgets[i] && cost.ns < s->least[i]) s->least[i] = cost.ns;
}

/* Fills the innermost open stretch from its first stage on.  A segment's stretch is opened above what follows
 * it, so that segments come out in order, outer first. */
static void fill(search *s)
{
    if (s->n_open == 0) {
        judge(s);
        return;
    }
    ebb_block_range r = s->open[s->n_open - 1];
    if (r.first > r.last) {
        s->n_open--;
        fill(s);
        s->open[s->n_open++] = r;
        return;
    }
    const ebb__stage *stage = &s->chain->stages[r.first];
    for (int k = 0; k < stage->n_choices; k++) {
        if (stage->choices[k].host && s->n_open > 1) continue; /* in a segment */
        s->plan.choice[r.first] = k;
        s->open[s->n_open - 1] = (ebb_block_range){ r.first + 1, r.last };
        fill(s);
    }
    for (int end = r.first; end < r.last && s->chain->stages[end].divisible; end++) {
        s->plan.segments[s->plan.n_segments++] = (ebb_block_range){ r.first, end };
        s->open[s->n_open - 1] = (ebb_block_range){ end + 1, r.last };
        s->open[s->n_open++] = (ebb_block_range){ r.first, end };
        fill(s);
        s->n_open--;
        s->plan.n_segments--;
    }
    s->open[s->n_open - 1] = r;
}

void chain_try_all(const ebb__chain *chain, const size_t *budgets, double *least, int n)
{
    search s = { .chain = chain, .open = { { 0, chain->n - 1 } }, .n_open = 1, .budgets = budgets, .least = least, .n = n };
    for (int i = 0; i < n; i++) least[i] = INFINITY;
    fill(&s);
}
