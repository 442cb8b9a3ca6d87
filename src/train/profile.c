#include "train/profile.h"

#include <string.h>

#include "core/mem.h"
#include "nn/model.h"

/* ---- one dry step --------------------------------------------------------------------------- */

typedef struct stage_figures {
    double forward_ns, recompute_ns;
    size_t forward_peak, backward_peak; /* of allocated bytes, by whatever stage */
    size_t held;                        /* behind forward, of what the stage made */
    size_t gradients;                   /* of all parameters, when its backward is done */
} stage_figures;

/* Watches the last micro-batch of a dry step. */
typedef struct probe {
    ebb__meter meter;
    const ebb__rates *rates;
    ebb__run run;
    int n_stages;
    stage_figures *stages;
    size_t base;                        /* allocated, but not by a stage, behind forward */
    uint64_t *seen;                     /* ops that ran forward in blocks: NULL, or bits by place */
} probe;

/* "embed", a block's name, or what comes behind. */
static int stage_of(const probe *p, const char *scope)
{
    const ebb_model *m = p->run.model;
    int n = m->info.blocks;
    const char *first = m->block_names[0];
    if (scope && scope >= first && scope < first + (size_t)n * sizeof(m->block_names[0]))
        return 1 + (int)((size_t)(scope - first) / sizeof(m->block_names[0]));
    return scope && strcmp(scope, "embed") == 0 ? 0 : n + 1;
}

static size_t larger(size_t a, size_t b) { return a > b ? a : b; }

static void see_op(probe *p, int stage, const ebb_op *op)
{
    int i = ebb__op_index(op);
    if (!p->seen || i < 0 || stage == 0 || stage == p->n_stages - 1) return;
    if (!(op->flags & (EBB_OP_VIEW | EBB_OP_STATEFUL))) p->seen[i / 64] |= (uint64_t)1 << (i % 64);
}

static void on_kernel(ebb__meter *self, const ebb_call *call, int pass, const ebb__owner *owner, const ebb_cost *cost,
                      double unused)
{
    (void)unused;
    probe *p = (probe *)(void *)self;
    int stage = stage_of(p, owner->scope);
    stage_figures *f = &p->stages[stage];
    double ns = ebb__rates_ns(p->rates, call, pass, cost);
    ebb_memory_stats now;
    ebb_memory_stats_get(call->ctx, &now);
    switch (call->ctx->phase) {
    case EBB__PHASE_FORWARD:
        f->forward_ns += ns;
        f->forward_peak = larger(f->forward_peak, now.allocated_bytes);
        see_op(p, stage, call->op);
        break;
    case EBB__PHASE_RECOMPUTE: f->recompute_ns += ns; /* fall through */
    case EBB__PHASE_BACKWARD:
        f->backward_peak = larger(f->backward_peak, now.allocated_bytes);
        f->gradients = larger(f->gradients, now.by_category[EBB_CAT_GRADIENT]);
        break;
    default: break;
    }
}

static void add_held(void *user, const ebb__block *block)
{
    probe *p = user;
    const ebb__owner *owner = ebb__block_owner(block);
    if (owner->category <= EBB_CAT_INPUT) return;
    p->stages[stage_of(p, owner->scope)].held += ebb__block_bytes(block);
}

/* Behind each forward; the last one's figures stay. */
static ebb_status on_backward(void *user, ebb_context *ctx)
{
    probe *p = user;
    ebb_memory_stats now;
    ebb_memory_stats_get(ctx, &now);
    p->base = now.allocated_bytes;
    for (int i = 0; i < p->n_stages; i++) p->stages[i].held = p->stages[i].backward_peak = p->stages[i].gradients = 0;
    ebb__pool_each_live(ebb__context_pool(ctx), add_held, p);
    for (int i = 0; i < p->n_stages; i++) p->base -= p->stages[i].held;
    return EBB_OK;
}

static ebb_status run_probe(probe *p, const ebb_config *config, const ebb_train_options *options, const char *device)
{
    memset(p->stages, 0, (size_t)p->n_stages * sizeof(*p->stages));
    ebb_observer observer = { .user = p, .on_backward = on_backward };
    ebb_train_options o = { .struct_bytes = sizeof(o), .threads = options->threads, .steps = 1,
                            .observer = &observer };
    p->meter.kernel = on_kernel;
    ebb_status st = ebb__run_open(&p->run, config, &o, device);
    if (st == EBB_OK) st = ebb__run_open_data(&p->run);
    if (st == EBB_OK) st = ebb__run_open_training(&p->run);
    if (st == EBB_OK) {
        ebb_loader *eval = p->run.eval; /* its ring is held, but it need not run */
        p->run.eval = NULL;
        p->run.ctx->meter = &p->meter;
        st = ebb__train_steps(&p->run);
        p->run.eval = eval;
    }
    ebb__run_close(&p->run);
    return st;
}

/* A second micro-batch finds gradients there; more of them change nothing. */
static ebb_config short_config(const ebb_config *config, const ebb_plan *plan)
{
    ebb_config c = ebb__config_under(config, plan);
    if (c.train.accumulate > 2) c.train.accumulate = 2;
    return c;
}

ebb_config ebb__config_under(const ebb_config *config, const ebb_plan *plan)
{
    ebb_config c = *config;
    c.plan = plan;
    c.budget_bytes = 0;
    c.memory.limit_bytes = SIZE_MAX; /* none, also on an accelerator */
    return c;
}

/* ---- from figures to stages ----------------------------------------------------------------- */

static size_t above(size_t peak, size_t below) { return peak > below ? peak - below : 0; }

static double per_micro_batch(const ebb_config *c) { return c->train.accumulate > 1 ? 2 : 1; }

/* What a step under every:1 shows: inputs of stages, and forwards that keep nothing. */
static void read_segments(ebb__profile *out, const probe *p, const ebb_config *config)
{
    size_t below = p->base;
    for (int i = 0; i < p->n_stages; i++) {
        ebb__stage *s = &out->chain.stages[i];
        s->divisible = i > 0 && i < p->n_stages - 1;
        s->replay = above(p->stages[i].forward_peak, below);
        s->replay_ns = p->stages[i].recompute_ns / per_micro_batch(config);
        if (i + 1 < p->n_stages) s[1].input = p->stages[i].held;
        below += p->stages[i].held;
    }
}

/* What a step shows that recomputes `ops` in every block. */
static void read_choice(ebb__profile *out, const probe *p, const ebb_config *config, uint32_t ops)
{
    size_t below = p->base;
    double n = per_micro_batch(config);
    for (int i = 0; i < p->n_stages; i++) {
        ebb__stage *s = &out->chain.stages[i];
        const stage_figures *f = &p->stages[i];
        size_t later = i + 1 < p->n_stages ? f[1].gradients : 0, output = i + 1 < p->n_stages ? s[1].input : 0;
        size_t before = n > 1 ? f->gradients : later; /* those of an earlier micro-batch are there */
        if (ops == 0) {
            s->forward_ns = f->forward_ns / n;
            s->gradients = above(f->gradients, before);
        }
        if ((s->divisible || ops == 0) && s->n_choices < EBB__MAX_CHOICES) {
            out->ops[i][s->n_choices] = ops;
            s->choices[s->n_choices++] = (ebb__choice){
                .keep = above(f->held, output),
                .forward = above(f->forward_peak, below),
                .backward = above(f->backward_peak, below + (n > 1 ? 0 : later)),
                .extra_ns = f->recompute_ns / n,
            };
        }
        below += f->held;
    }
    /* What cannot be in a segment never runs as the last stage of a replay. */
    for (int i = 0; i < p->n_stages; i++)
        if (!out->chain.stages[i].divisible) out->chain.stages[i].replay_ns = out->chain.stages[i].forward_ns;
}

static bool near(size_t a, size_t b) { return (a > b ? a - b : b - a) <= (a > b ? a : b) / 32; }

/* But for what splitting a block leaves over, which depends on where it lies. */
static bool alike(const ebb__stage *a, const ebb__stage *b)
{
    bool same = a->divisible == b->divisible && a->n_choices == b->n_choices && a->forward_ns == b->forward_ns &&
                near(a->input, b->input) && near(a->gradients, b->gradients);
    for (int k = 0; same && k < a->n_choices; k++)
        same = a->choices[k].extra_ns == b->choices[k].extra_ns && near(a->choices[k].keep, b->choices[k].keep);
    return same;
}

static void raise(ebb__stage *a, const ebb__stage *b)
{
    a->input = larger(a->input, b->input);
    a->replay = larger(a->replay, b->replay);
    a->gradients = larger(a->gradients, b->gradients);
    for (int k = 0; k < a->n_choices; k++) {
        ebb__choice *x = &a->choices[k];
        const ebb__choice *y = &b->choices[k];
        x->keep = larger(x->keep, y->keep);
        x->forward = larger(x->forward, y->forward);
        x->backward = larger(x->backward, y->backward);
    }
}

/* Blocks that are alike get the same figures, the largest of each: the program is quick on such chains. */
static void level(ebb__chain *c)
{
    for (int first = 0, last; first < c->n; first = last + 1) {
        for (last = first; last + 1 < c->n && alike(&c->stages[first], &c->stages[last + 1]);) last++;
        for (int i = first + 1; i <= last; i++) raise(&c->stages[first], &c->stages[i]);
        for (int i = first + 1; i <= last; i++) c->stages[i] = c->stages[first];
    }
}

static bool dominated(const ebb__choice *a, const ebb__choice *by)
{
    return a->keep >= by->keep && a->backward >= by->backward && a->extra_ns >= by->extra_ns;
}

/* Only the front of bytes and time stays; choice 0 (keep all) stays first. */
static void prune(ebb__stage *s, uint32_t *ops)
{
    int n = 0;
    for (int i = 0; i < s->n_choices; i++) {
        bool drop = false;
        for (int k = 0; k < s->n_choices && !drop; k++)
            drop = k != i && i > 0 && dominated(&s->choices[i], &s->choices[k]) &&
                   (k < i || !dominated(&s->choices[k], &s->choices[i]));
        if (drop) continue;
        s->choices[n] = s->choices[i];
        ops[n++] = ops[i];
    }
    s->n_choices = n;
}

/* ---- which ops are worth it ----------------------------------------------------------------- */

typedef struct candidate {
    uint32_t ops;
    double bytes_per_ns;
} candidate;

static ebb_status probe_ops(ebb__profile *out, probe *p, const ebb_config *config, const ebb_train_options *options,
                            const char *device, uint32_t ops)
{
    for (int b = 0; b < out->plan->n_blocks; b++) out->plan->ops[b] = ops;
    ebb_config c = short_config(config, out->plan);
    ebb_status st = run_probe(p, &c, options, device);
    for (int b = 0; b < out->plan->n_blocks; b++) out->plan->ops[b] = 0;
    return st;
}

static candidate judge(const ebb__profile *out, const probe *p, uint32_t ops)
{
    double saved = 0, ns = 1;
    for (int i = 1; i < p->n_stages - 1; i++) {
        const ebb__stage *s = &out->chain.stages[i];
        saved += (double)(s->choices[0].keep + s[1].input) - (double)p->stages[i].held;
        ns += p->stages[i].recompute_ns;
    }
    return (candidate){ ops, saved / ns };
}

enum { MAX_CANDIDATES = 4 };

/* Single ops that free bytes, as choices; the best first as candidates for sets. */
static ebb_status find_candidates(candidate *best, int *n, ebb__profile *out, probe *p, const uint64_t *seen,
                                  const ebb_config *config, const ebb_train_options *options, const char *device)
{
    *n = 0;
    for (int i = 0; i < ebb_op_count() && i < EBB__RATES_OPS; i++) {
        if (!(seen[i / 64] >> (i % 64) & 1)) continue;
        uint32_t ops = ebb__plan_op(out->plan, ebb_op_at(i));
        if (!ops) break;
        EBB_TRY(probe_ops(out, p, config, options, device, ops));
        candidate c = judge(out, p, ops);
        if (c.bytes_per_ns <= 0) continue;
        read_choice(out, p, config, ops);
        int at = *n < MAX_CANDIDATES ? (*n)++ : MAX_CANDIDATES;
        while (at > 0 && best[at - 1].bytes_per_ns < c.bytes_per_ns) {
            if (at < MAX_CANDIDATES) best[at] = best[at - 1];
            at--;
        }
        if (at < MAX_CANDIDATES) best[at] = c;
    }
    return EBB_OK;
}

/* ---- the whole ------------------------------------------------------------------------------ */

static ebb_status make_room(ebb__profile *out, probe *p, int blocks)
{
    size_t n = (size_t)blocks + 2;
    p->n_stages = out->chain.n = (int)n;
    out->chain.stages = ebb__calloc(n, sizeof(*out->chain.stages));
    out->ops = ebb__calloc(n, sizeof(*out->ops));
    p->stages = ebb__calloc(n, sizeof(*p->stages));
    if (!out->chain.stages || !out->ops || !p->stages) return EBB_ENOMEM;
    return ebb__plan_new(&out->plan, blocks);
}

static ebb_status profile(ebb__profile *out, probe *p, const ebb_config *config, const ebb_train_options *options,
                          const char *device)
{
    uint64_t seen[EBB__RATES_OPS / 64] = { 0 };
    candidate best[MAX_CANDIDATES];
    int n = 0;
    out->plan->n_segments = out->plan->n_blocks;
    for (int i = 0; i < out->plan->n_blocks; i++) out->plan->segments[i] = (ebb_block_range){ i, i };
    EBB_TRY(probe_ops(out, p, config, options, device, 0));
    read_segments(out, p, config);
    out->plan->n_segments = 0;
    p->seen = seen;
    EBB_TRY(probe_ops(out, p, config, options, device, 0));
    p->seen = NULL;
    out->base_bytes = p->base;
    read_choice(out, p, config, 0);
    EBB_TRY(find_candidates(best, &n, out, p, seen, config, options, device));
    for (uint32_t set = 1; set < 1u << n; set++) {
        uint32_t ops = 0;
        if ((set & (set - 1)) == 0) continue; /* one op: known */
        for (int k = 0; k < n; k++) ops |= set >> k & 1 ? best[k].ops : 0;
        EBB_TRY(probe_ops(out, p, config, options, device, ops));
        read_choice(out, p, config, ops);
    }
    level(&out->chain);
    for (int i = 0; i < out->chain.n; i++) prune(&out->chain.stages[i], out->ops[i]);
    return EBB_OK;
}

ebb_status ebb__profile_init(ebb__profile *out, const ebb_config *config, const ebb_train_options *options,
                             const char *device, const ebb__rates *rates)
{
    *out = (ebb__profile){ 0 };
    probe p = { .rates = rates };
    ebb_status st = make_room(out, &p, config->model.blocks);
    if (st == EBB_OK) st = profile(out, &p, config, options, device);
    ebb__free(p.stages);
    return st;
}

void ebb__profile_deinit(ebb__profile *profile)
{
    ebb__free(profile->chain.stages);
    ebb__free(profile->ops);
    ebb_plan_free(profile->plan);
    *profile = (ebb__profile){ 0 };
}
