/* chain_run.c: a plan that is there already, by the same account as the table's, in bytes rather than units. */
#include "checkpoint/chain.h"

typedef struct walk {
    const ebb__chain *chain;
    const int *choice;
} walk;

static size_t larger(size_t a, size_t b) { return a > b ? a : b; }

static size_t input_of(const ebb__chain *c, int stage) { return stage < c->n ? c->stages[stage].input : 0; }

static size_t gradients(const ebb__chain *c, int first, int last)
{
    size_t sum = 0;
    for (int i = first; i <= last; i++) sum += c->stages[i].gradients;
    return sum;
}

/* owed: what the stage in front leaves to this one's backward. */
static ebb__chain_figures direct(const walk *w, int stage, int last, size_t owed)
{
    const ebb__chain *c = w->chain;
    const ebb__stage *s = &c->stages[stage];
    const ebb__choice *o = &s->choices[w->choice[stage]];
    size_t forward = o->forward + (stage < last ? input_of(c, last + 1) : 0);
    return (ebb__chain_figures){ larger(forward, o->backward + owed + gradients(c, stage + 1, last)),
                                 (stage < last ? s->forward_ns : s->replay_ns) + o->extra_ns +
                                     (last == c->n - 1 ? o->copy_ns : 0) };
}

static ebb__chain_figures stretch(const walk *w, int first, int last, const ebb_block_range *segments, int n);

static ebb__chain_figures segment(const walk *w, int last, const ebb_block_range *segments, int n)
{
    const ebb__chain *c = w->chain;
    ebb_block_range r = segments[0];
    ebb__chain_figures f = stretch(w, r.first, r.last, segments + 1, n - 1);
    f.bytes += gradients(c, r.last + 1, last);
    for (int i = r.first; i <= r.last; i++) {
        size_t peak = (i > r.first ? c->stages[i].input : 0) + c->stages[i].replay;
        f.bytes = larger(f.bytes, peak + input_of(c, last + 1));
        f.ns += c->stages[i].forward_ns;
    }
    return f;
}

/* segments[0, n) may hold others too: those that begin later are not looked at. */
static ebb__chain_figures stretch(const walk *w, int first, int last, const ebb_block_range *segments, int n)
{
    ebb__chain_figures all = { 0 };
    size_t held = 0, owed = 0;
    int k = 0;
    for (int i = first, next; i <= last; i = next) {
        while (k < n && segments[k].first < i) k++; /* inside the one before */
        bool is_segment = k < n && segments[k].first == i;
        ebb__chain_figures part = is_segment ? segment(w, last, segments + k, n - k) : direct(w, i, last, owed);
        next = is_segment ? segments[k].last + 1 : i + 1;
        k += is_segment;
        const ebb__choice *chosen = &w->chain->stages[i].choices[w->choice[i]];
        all.bytes = larger(all.bytes, held + part.bytes + (is_segment ? owed : 0));
        all.ns += part.ns;
        held += input_of(w->chain, next) + (is_segment ? 0 : chosen->keep);
        owed = is_segment ? 0 : chosen->owed;
    }
    return all;
}

ebb__chain_figures ebb__chain_run(const ebb__chain *chain, const int *choice, const ebb_block_range *segments, int n)
{
    walk w = { chain, choice };
    return stretch(&w, 0, chain->n - 1, segments, n);
}
