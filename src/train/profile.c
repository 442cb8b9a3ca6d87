#include "train/profile.h"

#include <string.h>

#include "checkpoint/pack.h"
#include "core/mem.h"
#include "nn/model.h"

/* ---- one dry step --------------------------------------------------------------------------- */

typedef struct stage_figures {
    double forward_ns, recompute_ns;    /* forward: as the rate of a replay is */
    size_t forward_peak, backward_peak; /* of allocated bytes, by whatever stage */
    size_t held, host;                  /* behind forward, of what the stage made */
    size_t gradients;                   /* of all parameters, when its backward is done */
    size_t owed;                        /* of its outputs, made again for the backward of the stage behind it */
} stage_figures;

/* Watches the last micro-batch of a dry step. */
typedef struct probe {
    ebb__meter meter;
    const ebb_config *config;
    const ebb_train_options *options;
    const char *device;
    const ebb__rates *rates;
    ebb__run run;
    int n_stages;
    stage_figures *stages;
    size_t base;                        /* allocated, but not by a stage, behind forward */
    struct { int stage; size_t bytes; } again; /* outputs made again since the last backward kernel */
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

static size_t output_bytes(const ebb_call *call)
{
    enum { UNIT = 512 }; /* of the pool */
    size_t sum = 0;
    for (int i = 0; i < call->n_out; i++)
        sum += ((size_t)call->out[i].elems * ebb_dtype_bytes(call->out[i].dtype) + UNIT - 1) / UNIT * UNIT;
    return sum;
}

/* What is made again is for the backward kernel that comes next. */
static void note_again(probe *p, int stage, const ebb_call *call)
{
    if (call->ctx->phase == EBB__PHASE_RECOMPUTE) {
        p->again.bytes = output_bytes(call) + (p->again.stage == stage ? p->again.bytes : 0);
        p->again.stage = stage;
        return;
    }
    stage_figures *maker = &p->stages[p->again.stage];
    if (stage == p->again.stage + 1) maker->owed = larger(maker->owed, p->again.bytes);
    p->again.bytes = 0;
}

static void on_kernel(ebb__meter *self, const ebb_call *call, int pass, const ebb__owner *owner, const ebb_cost *cost,
                      double unused)
{
    (void)unused;
    probe *p = (probe *)(void *)self;
    int stage = stage_of(p, owner->scope);
    stage_figures *f = &p->stages[stage];
    ebb__rate rate = ebb__rate_of(call, pass);
    if (rate == EBB__RATE_FORWARD) rate = EBB__RATE_REPLAY; /* plans differ in how often it runs again */
    double ns = ebb__rates_ns(p->rates, call, rate, cost);
    ebb_memory_stats now;
    ebb_memory_stats_get(call->ctx, &now);
    if (call->ctx->phase != EBB__PHASE_FORWARD) note_again(p, stage, call);
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

static void add_host(void *user, const ebb__block *block)
{
    probe *p = user;
    p->stages[stage_of(p, ebb__block_owner(block)->scope)].host += ebb__block_bytes(block);
}

/* Behind each forward; the last one's figures stay. */
static ebb_status on_backward(void *user, ebb_context *ctx)
{
    probe *p = user;
    ebb_memory_stats now;
    ebb_memory_stats_get(ctx, &now);
    p->base = now.allocated_bytes;
    for (int i = 0; i < p->n_stages; i++) {
        stage_figures *f = &p->stages[i];
        f->held = f->host = f->backward_peak = f->gradients = f->owed = 0;
    }
    ebb__pool_each_live(ebb__context_pool(ctx), add_held, p);
    ebb__host_each_live(ctx, add_host, p);
    for (int i = 0; i < p->n_stages; i++) p->base -= p->stages[i].held;
    return EBB_OK;
}

static ebb_status run_probe(probe *p, const ebb_config *config)
{
    memset(p->stages, 0, (size_t)p->n_stages * sizeof(*p->stages));
    ebb_observer observer = { .user = p, .on_backward = on_backward };
    ebb_train_options o = { .struct_bytes = sizeof(o), .threads = p->options->threads, .steps = 1,
                            .observer = &observer };
    p->meter.kernel = on_kernel;
    ebb_status st = ebb__run_open(&p->run, config, &o, p->device);
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
    c.memory.host_limit_bytes = 0;
    return c;
}

/* ---- from figures to stages ----------------------------------------------------------------- */

static size_t above(size_t peak, size_t below) { return peak > below ? peak - below : 0; }

static double per_micro_batch(const ebb_config *c) { return c->train.accumulate > 1 ? 2 : 1; }

/* What a step under every:1 shows: inputs of stages, and forwards that keep nothing. */
static void read_segments(ebb__profile *out, const probe *p)
{
    size_t below = p->base;
    for (int i = 0; i < p->n_stages; i++) {
        ebb__stage *s = &out->chain.stages[i];
        s->divisible = i > 0 && i < p->n_stages - 1;
        s->replay = above(p->stages[i].forward_peak, below);
        s->replay_ns = p->stages[i].recompute_ns / per_micro_batch(p->config);
        if (i + 1 < p->n_stages) s[1].input = p->stages[i].held;
        below += p->stages[i].held;
    }
}

/* What a step shows that recomputes `ops` in every block, and offloads what they keep, or not. */
static void read_choice(ebb__profile *out, const probe *p, uint32_t ops, bool away)
{
    size_t below = p->base;
    double n = per_micro_batch(p->config);
    for (int i = 0; i < p->n_stages; i++) {
        ebb__stage *s = &out->chain.stages[i];
        const stage_figures *f = &p->stages[i];
        size_t later = i + 1 < p->n_stages ? f[1].gradients : 0, output = i + 1 < p->n_stages ? s[1].input : 0;
        size_t before = n > 1 ? f->gradients : later; /* those of an earlier micro-batch are there */
        if (ops == 0 && !away) {
            s->forward_ns = f->forward_ns / n;
            s->gradients = above(f->gradients, before);
        }
        if ((s->divisible || (ops == 0 && !away)) && s->n_choices < EBB__MAX_CHOICES) {
            size_t owed_here = i > 0 ? f[-1].owed : 0; /* left by the stage in front, which a plan may run otherwise */
            out->ops[i][s->n_choices] = ops;
            s->choices[s->n_choices++] = (ebb__choice){
                .keep = above(f->held, output),
                .forward = above(f->forward_peak, below),
                .backward = above(f->backward_peak, below + (n > 1 ? 0 : later) + owed_here),
                .owed = f->owed,
                .host = away ? f->host : 0,
                .extra_ns = f->recompute_ns / n,
                .copy_ns = 2 * (double)f->host / p->rates->copy_bytes_per_ns, /* also where the config says so */
            };
        }
        below += f->held;
    }
    /* What cannot be in a segment never runs as the last stage of a replay. */
    for (int i = 0; i < p->n_stages; i++)
        if (!out->chain.stages[i].divisible) out->chain.stages[i].replay_ns = out->chain.stages[i].forward_ns;
}

static bool near(size_t a, size_t b) { return (a > b ? a - b : b - a) <= (a > b ? a : b) / 4; }

/* Blocks that take the same times do the same, on the same shapes; what splitting free blocks leaves over depends on
 * where a block lies, and makes their bytes differ. */
static bool alike(const ebb__stage *a, const ebb__stage *b)
{
    bool same = a->divisible == b->divisible && a->n_choices == b->n_choices && a->forward_ns == b->forward_ns &&
                near(a->input, b->input) && near(a->gradients, b->gradients);
    for (int k = 0; same && k < a->n_choices; k++) {
        const ebb__choice *x = &a->choices[k], *y = &b->choices[k];
        same =
            x->extra_ns == y->extra_ns && x->copy_ns == y->copy_ns && near(x->keep, y->keep) && near(x->host, y->host);
    }
    return same;
}

/* What adds up over a chain is summed, of what is there for a moment the largest stays. */
static void gather(ebb__stage *a, const ebb__stage *b)
{
    a->input += b->input;
    a->gradients += b->gradients;
    a->replay = larger(a->replay, b->replay);
    for (int k = 0; k < a->n_choices; k++) {
        ebb__choice *x = &a->choices[k];
        const ebb__choice *y = &b->choices[k];
        x->keep += y->keep;
        x->host += y->host;
        x->forward = larger(x->forward, y->forward);
        x->backward = larger(x->backward, y->backward);
        x->owed = larger(x->owed, y->owed);
    }
}

static void divide(ebb__stage *s, size_t n)
{
    s->input = (s->input + n - 1) / n;
    s->gradients = (s->gradients + n - 1) / n;
    for (int k = 0; k < s->n_choices; k++) {
        s->choices[k].keep = (s->choices[k].keep + n - 1) / n;
        s->choices[k].host = (s->choices[k].host + n - 1) / n;
    }
}

/* Blocks that are alike get the same figures: the program is quick on such chains. */
static void level(ebb__chain *c)
{
    for (int first = 0, last; first < c->n; first = last + 1) {
        ebb__stage all = c->stages[first];
        for (last = first; last + 1 < c->n && alike(&c->stages[first], &c->stages[last + 1]);)
            gather(&all, &c->stages[++last]);
        divide(&all, (size_t)(last - first) + 1);
        for (int i = first; i <= last; i++) c->stages[i] = all;
    }
}

/* One that is only for blocks outside segments is no reason to drop one for all. */
static bool dominated(const ebb__choice *a, const ebb__choice *by)
{
    return a->host >= by->host && a->keep >= by->keep && a->backward >= by->backward && a->owed >= by->owed &&
           a->extra_ns + a->copy_ns >= by->extra_ns + by->copy_ns;
}

/* Choices that go to host memory, in as many of the first blocks as its limit allows: those are held longest.  An
 * eighth is left to the host pool's segments. */
static void limit_host(ebb__profile *out, size_t limit)
{
    size_t sum = 0;
    for (int i = 0; i < out->chain.n; i++) {
        ebb__stage *s = &out->chain.stages[i];
        int n = 0;
        size_t most = 0;
        for (int k = 0; k < s->n_choices; k++) most = larger(most, s->choices[k].host);
        sum += most;
        for (int k = 0; k < s->n_choices; k++) {
            if (s->choices[k].host && sum > limit - limit / 8) continue;
            s->choices[n] = s->choices[k];
            out->ops[i][n++] = out->ops[i][k];
        }
        s->n_choices = n;
    }
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

static ebb_status probe_ops(ebb__profile *out, probe *p, uint32_t ops, bool away)
{
    for (int b = 0; b < out->plan->n_blocks; b++) {
        out->plan->ops[b] = ops;
        out->plan->offload[b] = away;
    }
    ebb_config c = short_config(p->config, out->plan);
    ebb_status st = run_probe(p, &c);
    for (int b = 0; b < out->plan->n_blocks; b++) {
        out->plan->ops[b] = 0;
        out->plan->offload[b] = false;
    }
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
static ebb_status find_candidates(candidate *best, int *n, ebb__profile *out, probe *p, const uint64_t *seen)
{
    *n = 0;
    for (int i = 0; i < ebb_op_count() && i < EBB__RATES_OPS; i++) {
        if (!(seen[i / 64] >> (i % 64) & 1)) continue;
        uint32_t ops = ebb__plan_op(out->plan, ebb_op_at(i));
        if (!ops) break;
        EBB_TRY(probe_ops(out, p, ops, false));
        candidate c = judge(out, p, ops);
        if (c.bytes_per_ns <= 0) continue;
        read_choice(out, p, ops, false);
        int at = *n < MAX_CANDIDATES ? (*n)++ : MAX_CANDIDATES;
        while (at > 0 && best[at - 1].bytes_per_ns < c.bytes_per_ns) {
            if (at < MAX_CANDIDATES) best[at] = best[at - 1];
            at--;
        }
        if (at < MAX_CANDIDATES) best[at] = c;
    }
    return EBB_OK;
}

/* Everything, and all but what is made again in less time than it takes to copy there and back. */
static ebb_status probe_offload(ebb__profile *out, probe *p, const candidate *best, int n)
{
    uint32_t sets[] = { 0, 0 };
    for (int k = 0; k < n; k++) sets[1] |= best[k].bytes_per_ns > p->rates->copy_bytes_per_ns / 2 ? best[k].ops : 0;
    for (int i = 0; i < (sets[1] ? 2 : 1); i++) {
        EBB_TRY(probe_ops(out, p, sets[i], true));
        read_choice(out, p, sets[i], true);
    }
    size_t limit = p->config->memory.host_limit_bytes;
    if (limit) limit_host(out, limit);
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

static ebb_status profile(ebb__profile *out, probe *p)
{
    uint64_t seen[EBB__RATES_OPS / 64] = { 0 };
    candidate best[MAX_CANDIDATES];
    int n = 0;
    out->plan->n_segments = out->plan->n_blocks;
    for (int i = 0; i < out->plan->n_blocks; i++) out->plan->segments[i] = (ebb_block_range){ i, i };
    EBB_TRY(probe_ops(out, p, 0, false));
    read_segments(out, p);
    out->plan->n_segments = 0;
    p->seen = seen;
    EBB_TRY(probe_ops(out, p, 0, false));
    p->seen = NULL;
    out->base_bytes = p->base;
    read_choice(out, p, 0, false);
    EBB_TRY(find_candidates(best, &n, out, p, seen));
    for (uint32_t set = 1; set < 1u << n; set++) {
        uint32_t ops = 0;
        if ((set & (set - 1)) == 0) continue; /* one op: known */
        for (int k = 0; k < n; k++) ops |= set >> k & 1 ? best[k].ops : 0;
        EBB_TRY(probe_ops(out, p, ops, false));
        read_choice(out, p, ops, false);
    }
    if (p->config->may_offload) EBB_TRY(probe_offload(out, p, best, n));
    level(&out->chain);
    for (int i = 0; i < out->chain.n; i++) prune(&out->chain.stages[i], out->ops[i]);
    return EBB_OK;
}

ebb_status ebb__profile_init(ebb__profile *out, const ebb_config *config, const ebb_train_options *options,
                             const char *device, const ebb__rates *rates)
{
    *out = (ebb__profile){ 0 };
    probe p = { .config = config, .options = options, .device = device, .rates = rates };
    ebb_status st = make_room(out, &p, config->model.blocks);
    if (st == EBB_OK) st = profile(out, &p);
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
