/* The fastest plan within a budget, and the frontier.  Both select from the same candidates (train/candidates.h): a
 * model proposes, a dry run of the whole training disposes, with exact peaks.  A candidate goes without its dry run
 * only where the model says by a margin that it cannot be selected; so a budget never gets less than the frontier
 * shows, nor a larger budget less than a smaller one. */
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "core/mem.h"
#include "train/planner.h"
#include "train/candidates.h"
#include "train/price.h"

enum { HALVINGS = 5 };

/* By how much the model may be wrong: share of a plan's bytes, of its added time, of a step.  The first and the last
 * block differ most from the model, so that it says little of few blocks: those plans are all tried. */
#define BYTES_MARGIN 0.1
#define ADDED_MARGIN 0.07
#define STEP_MARGIN 0.002
enum { FEW_BLOCKS = 24 };

/* What reserved bytes are above the model's, allocated ones, is mostly the same for all plans of a config (one large
 * workspace makes a segment of 20 MiB), but for a small segment more or less: so many dry runs tell it.  A plan that
 * takes so much longer than another one for less than a hundredth of its bytes goes without: the program has such plans
 * where the grid is at its end. */
enum { EXCESS_KNOWN = 3, SMALL_SEGMENT = 2 << 20 };
#define MUCH_LONGER 1.5
#define AS_LARGE 1.01

typedef struct planner {
    const ebb_config *config;
    ebb_train_options options;
    char device[EBB__DEVICE_NAME_BYTES]; /* dry */
    char sha256[65];
    bool allocated;  /* which peak counts */
    size_t limit;    /* of reserved bytes, memory.limit; SIZE_MAX: none */
    ebb__rates rates;
    ebb__profile profile;
    ebb__candidates candidates;
    double none_ns; /* a step that keeps everything */
    ebb_plan **tried; /* [0] keeps everything */
    size_t n_tried, cap_tried;
    size_t least_excess, n_excesses; /* of tried candidates' peaks over the model's */
} planner;

/* ---- confirming ----------------------------------------------------------------------------- */

static size_t peak_of(const planner *p, const ebb_plan *plan)
{
    return p->allocated ? plan->info.peak_allocated_bytes : plan->info.peak_reserved_bytes;
}

static bool fits_host(const planner *p, const ebb_plan *plan)
{
    size_t host = p->config->memory.host_limit_bytes;
    return host == 0 || plan->info.peak_host_bytes <= host;
}

/* Within the config's own limits too. */
static bool fits(const planner *p, const ebb_plan *plan, size_t budget)
{
    return peak_of(p, plan) <= budget && plan->info.peak_reserved_bytes <= p->limit && fits_host(p, plan);
}

static ebb_status confirm(planner *p, ebb_plan *plan)
{
    ebb_config config = ebb__config_under(p->config, plan);
    ebb_train_result *result = ebb__malloc(sizeof(*result));
    if (!result) return EBB_ENOMEM;
    double ns = 0;
    ebb_status st = ebb__price(result, &ns, &config, &p->options, p->device, &p->rates);
    if (st == EBB_OK) {
        if (p->none_ns == 0) p->none_ns = ns;
        plan->info = (ebb_plan_info){ .peak_reserved_bytes = result->memory.peak_reserved_bytes,
                                      .peak_allocated_bytes = result->memory.peak_allocated_bytes,
                                      .peak_host_bytes = result->host_memory.peak_reserved_bytes,
                                      .overhead = ns / p->none_ns - 1,
                                      .recompute_flops = result->recompute_flops,
                                      .memory = result->memory };
        memcpy(plan->config_sha256, p->sha256, sizeof(plan->config_sha256));
    }
    ebb__free(result);
    return st;
}

/* Takes `plan` over, on errors too.  *out is borrowed; it may have been tried before. */
static ebb_status try_plan(planner *p, ebb_plan *plan, const ebb_plan **out)
{
    ebb_status st = ebb__grow(&p->tried, &p->cap_tried, p->n_tried + 1, sizeof(*p->tried));
    for (size_t i = 0; i < p->n_tried && st == EBB_OK; i++)
        if (ebb__plan_same(p->tried[i], plan)) {
            ebb_plan_free(plan);
            *out = p->tried[i];
            return EBB_OK;
        }
    if (st == EBB_OK) st = confirm(p, plan);
    if (st == EBB_OK) *out = p->tried[p->n_tried++] = plan;
    else ebb_plan_free(plan);
    return st;
}

/* ---- lifetime ------------------------------------------------------------------------------- */

/* What keeps everything is tried: overheads are over its time. */
static ebb_status planner_init(planner *p, const ebb_config *config, const ebb_train_options *options, bool allocated)
{
    *p = (planner){ .config = config, .allocated = allocated, .limit = SIZE_MAX };
    EBB_TRY(ebb__check_options(options));
    ebb__device_dry_name(p->device, options->device);
    p->options = (ebb_train_options){ .struct_bytes = sizeof(p->options), .threads = options->threads,
                                      .steps = options->steps };
    EBB_TRY(ebb__config_sha256(p->sha256, config));
    EBB_TRY(ebb__rates_load(&p->rates));
    ebb_plan *none = NULL;
    const ebb_plan *tried = NULL;
    EBB_TRY(ebb__plan_new(&none, config->model.blocks));
    return try_plan(p, none, &tried);
}

static ebb_status planner_profile(planner *p)
{
    EBB_TRY(ebb__profile_init(&p->profile, p->config, &p->options, p->device, &p->rates));
    return ebb__candidates_init(&p->candidates, &p->profile, (int)p->config->train.accumulate);
}

static void planner_deinit(planner *p)
{
    for (size_t i = 0; i < p->n_tried; i++) ebb_plan_free(p->tried[i]);
    ebb__free(p->tried);
    ebb__candidates_deinit(&p->candidates);
    ebb__profile_deinit(&p->profile);
}

ebb_status ebb__plan_predict(ebb_plan *plan, const ebb_config *config, const ebb_train_options *options)
{
    planner p;
    ebb_status st = planner_init(&p, config, options, false);
    if (st == EBB_OK) st = confirm(&p, plan);
    planner_deinit(&p);
    return st;
}

/* ---- one budget ----------------------------------------------------------------------------- */

static const ebb_plan *fastest_within(const planner *p, size_t budget)
{
    const ebb_plan *best = NULL;
    for (size_t i = 0; i < p->n_tried; i++) {
        const ebb_plan *plan = p->tried[i];
        if (!fits(p, plan, budget)) continue;
        if (!best || plan->info.overhead < best->info.overhead ||
            (plan->info.overhead == best->info.overhead && peak_of(p, plan) < peak_of(p, best)))
            best = plan;
    }
    return best;
}

/* Of those that are as small the fastest.  NULL: memory.host_limit is below them all. */
static const ebb_plan *smallest(const planner *p)
{
    const ebb_plan *best = NULL;
    for (size_t i = 0; i < p->n_tried; i++) {
        const ebb_plan *plan = p->tried[i];
        if (!fits_host(p, plan)) continue;
        if (!best || peak_of(p, plan) < peak_of(p, best) ||
            (peak_of(p, plan) == peak_of(p, best) && plan->info.overhead < best->info.overhead))
            best = plan;
    }
    return best;
}

static size_t least_bytes(const planner *p, const ebb__candidate *c)
{
    return (size_t)((double)c->bytes * (1 - BYTES_MARGIN)) + (p->n_excesses < EXCESS_KNOWN ? 0 : p->least_excess);
}

static void note_excess(planner *p, const ebb__candidate *c, const ebb_plan *tried)
{
    size_t peak = peak_of(p, tried), modelled = c->bytes + SMALL_SEGMENT,
           excess = peak > modelled ? peak - modelled : 0;
    if (p->n_excesses++ == 0 || excess < p->least_excess) p->least_excess = excess;
}

/* As an overhead is. */
static double least_overhead(const planner *p, const ebb__candidate *c)
{
    return (c->ns - fabs(c->ns) * ADDED_MARGIN) / p->none_ns - STEP_MARGIN;
}

/* *out: borrowed. */
static ebb_status try_copy(planner *p, const ebb__candidate *c, const ebb_plan **out)
{
    ebb_plan *plan = NULL;
    EBB_TRY(ebb__plan_copy(&plan, c->plan));
    EBB_TRY(try_plan(p, plan, out));
    note_excess(p, c, *out);
    return EBB_OK;
}

/* Whether a candidate is worth its dry run, for what is looked for. */
typedef bool wanted(const planner *p, const ebb__candidate *c, size_t budget);

static bool may_be_fastest(const planner *p, const ebb__candidate *c, size_t budget)
{
    if (least_bytes(p, c) > budget || least_bytes(p, c) > p->limit) return false;
    const ebb_plan *best = fastest_within(p, budget);
    return !best || least_overhead(p, c) < best->info.overhead;
}

static bool may_be_smallest(const planner *p, const ebb__candidate *c, size_t unused)
{
    (void)unused;
    const ebb_plan *least = smallest(p);
    return !least || least_bytes(p, c) < peak_of(p, least);
}

/* No plan that is known beats it in both. */
static bool may_be_on_frontier(const planner *p, const ebb__candidate *c, size_t unused)
{
    (void)unused;
    const ebb_plan *best = fastest_within(p, least_bytes(p, c));
    return !best || least_overhead(p, c) < best->info.overhead;
}

static bool takes_much_longer(const planner *p, const ebb__candidate *c)
{
    for (size_t i = 0; i < p->candidates.n; i++) {
        const ebb__candidate *other = &p->candidates.list[i];
        bool as_small = (double)other->bytes <= (double)c->bytes * AS_LARGE;
        if (as_small && (p->none_ns + other->ns) * MUCH_LONGER < p->none_ns + c->ns) return true;
    }
    return false;
}

static bool has_few_blocks(const planner *p) { return p->config->model.blocks <= FEW_BLOCKS; }

static bool is_worth_it(const planner *p, const ebb__candidate *c, wanted *want, size_t budget)
{
    return !takes_much_longer(p, c) && want(p, c, budget);
}

static ebb_status try_wanted(planner *p, size_t from, size_t to, wanted *want, size_t budget)
{
    const ebb_plan *unused = NULL;
    for (size_t i = from; i < to; i++)
        if (has_few_blocks(p) || is_worth_it(p, &p->candidates.list[i], want, budget))
            EBB_TRY(try_copy(p, &p->candidates.list[i], &unused));
    return EBB_OK;
}

static const ebb_plan *tried_as(const planner *p, const ebb__candidate *c)
{
    for (size_t i = 0; i < p->n_tried; i++)
        if (ebb__plan_same(p->tried[i], c->plan)) return p->tried[i];
    return NULL;
}

/* Between the first plan of the level that fits and the one before it, which does not: by halving, so that ends do not
 * depend on the budget, and what a smaller one finds a larger one passes. */
static ebb_status refine(planner *p, size_t budget)
{
    const ebb__candidates *c = &p->candidates;
    const ebb_plan *tried = NULL, *best = fastest_within(p, budget);
    size_t at = c->level;
    for (; at < c->n; at++) {
        tried = tried_as(p, &c->list[at]);
        if (tried && fits(p, tried, budget)) break;
    }
    if (at == c->n || at == c->level || least_overhead(p, &c->list[at - 1]) > best->info.overhead) return EBB_OK;
    size_t low = c->list[at].asked, high = c->list[at - 1].asked;
    for (int i = 0; i < HALVINGS && low < high; i++) {
        ebb__candidate middle;
        EBB_TRY(ebb__candidates_within(&middle, c, low + (high - low) / 2));
        if (!middle.plan) break;
        EBB_TRY(try_plan(p, middle.plan, &tried));
        if (fits(p, tried, budget)) low = middle.asked;
        else high = middle.asked;
    }
    return EBB_OK;
}

/* The smallest of all levels, and the fastest that is as small.  The last ones are the smallest of theirs. */
static ebb_status try_smallest(planner *p)
{
    for (size_t i = p->candidates.n; i-- > 0;) EBB_TRY(try_wanted(p, i, i + 1, may_be_smallest, 0));
    const ebb_plan *least = smallest(p);
    return least ? refine(p, peak_of(p, least)) : EBB_OK;
}

/* Levels go from fast to small: those behind the first that is slower than what fits are not wanted. */
static ebb_status search(planner *p, size_t budget)
{
    if (fits(p, p->tried[0], budget) && p->config->n_savers == 0) return EBB_OK; /* nothing is faster */
    EBB_TRY(planner_profile(p));
    ebb__candidates *c = &p->candidates;
    size_t uniform = c->n;
    for (bool more = true; more;) {
        EBB_TRY(ebb__candidates_next(c, &more));
        if (!more) break;
        EBB_TRY(try_wanted(p, c->level, c->n, may_be_fastest, budget));
        EBB_TRY(refine(p, budget));
        const ebb_plan *best = fastest_within(p, budget);
        bool slower = best && c->n > c->level && least_overhead(p, &c->list[c->n - 1]) > best->info.overhead;
        if (slower && !has_few_blocks(p)) ebb__candidates_skip(c);
    }
    EBB_TRY(try_wanted(p, 0, uniform, may_be_fastest, budget));
    return fastest_within(p, budget) ? EBB_OK : try_smallest(p);
}

static ebb_status nothing_fits_host(const planner *p)
{
    size_t least = SIZE_MAX;
    for (size_t i = 0; i < p->n_tried; i++)
        if (p->tried[i]->info.peak_host_bytes < least) least = p->tried[i]->info.peak_host_bytes;
    char limit[32], needed[32];
    return ebb_fail(EBB_EBUDGET,
                    "plan: nothing fits memory.host_limit, %s: what memory.offload names goes to host memory "
                    "under every plan, and the one that needs least of it needs %s (%zu bytes)",
                    ebb_size_format(p->config->memory.host_limit_bytes, limit, sizeof(limit)),
                    ebb_size_format(least, needed, sizeof(needed)), least);
}

static ebb_category largest_at_peak(const ebb_memory_stats *m, int but)
{
    int largest = but == 0;
    for (int k = 0; k < EBB_N_CATEGORIES; k++)
        if (k != but && m->by_category_at_peak[k] > m->by_category_at_peak[largest]) largest = k;
    return (ebb_category)largest;
}

static ebb_status nothing_fits(const planner *p, size_t budget)
{
    const ebb_plan *least = smallest(p);
    if (!least) return nothing_fits_host(p);
    const ebb_memory_stats *m = &least->info.memory;
    ebb_category first = largest_at_peak(m, -1), second = largest_at_peak(m, (int)first);
    bool is_limit = !p->allocated && p->limit < budget;
    char asked[32], needed[32], a[32], b[32], all[32], limit[32], beside[80] = "";
    if (p->allocated && p->limit < SIZE_MAX)
        snprintf(beside, sizeof(beside), " and memory.limit, %s reserved",
                 ebb_size_format(p->limit, limit, sizeof(limit)));
    return ebb_fail(
        EBB_EBUDGET,
        "plan: nothing fits %s%s of %s bytes%s; the smallest plan found needs %s (%zu bytes). Of its %s "
        "allocated at the peak, %s are %s and %s %s",
        is_limit ? "memory.limit, " : "", ebb_size_format(is_limit ? p->limit : budget, asked, sizeof(asked)),
        p->allocated ? "allocated" : "reserved", beside, ebb_size_format(peak_of(p, least), needed, sizeof(needed)),
        peak_of(p, least), ebb_size_format(m->peak_allocated_bytes, all, sizeof(all)),
        ebb_size_format(m->by_category_at_peak[first], a, sizeof(a)), ebb_category_name(first),
        ebb_size_format(m->by_category_at_peak[second], b, sizeof(b)), ebb_category_name(second));
}

ebb_status ebb_plan_make(ebb_plan **out, const ebb_config *config, const ebb_train_options *options,
                         size_t budget_bytes, bool allocated)
{
    planner *p = ebb__calloc(1, sizeof(*p));
    if (!p) return EBB_ENOMEM;
    ebb_status st = planner_init(p, config, options, allocated);
    if (config->memory.limit_bytes) p->limit = config->memory.limit_bytes;
    if (st == EBB_OK) st = search(p, budget_bytes);
    if (st == EBB_OK) {
        const ebb_plan *best = fastest_within(p, budget_bytes);
        st = best ? ebb__plan_copy(out, best) : nothing_fits(p, budget_bytes);
    }
    planner_deinit(p);
    ebb__free(p);
    return st;
}

/* ---- the frontier --------------------------------------------------------------------------- */

static ebb_status walk_frontier(planner *p)
{
    EBB_TRY(planner_profile(p));
    ebb__candidates *c = &p->candidates;
    size_t uniform = c->n;
    for (bool more = true; more;) EBB_TRY(ebb__candidates_next(c, &more));
    EBB_TRY(try_wanted(p, uniform, c->n, may_be_on_frontier, 0));
    EBB_TRY(try_wanted(p, 0, uniform, may_be_on_frontier, 0));
    return try_smallest(p);
}

/* From the fastest to the smallest, each smaller than the one before by its `step`th part at least; the smallest of
 * all is there whatever it saves.  *n may go beyond `max`. */
static void pick(const ebb_plan *points[], int max, int *n, const planner *p, size_t step)
{
    const ebb_plan *last = smallest(p);
    size_t budget = SIZE_MAX;
    for (*n = 0; last; ++*n) {
        const ebb_plan *best = fastest_within(p, budget);
        if (!best) best = last;
        if (*n < max) points[*n] = best;
        if (best == last) last = NULL;
        budget = peak_of(p, best) - peak_of(p, best) / step;
        if (budget == peak_of(p, best)) budget--;
    }
}

/* A point is worth its time where it saves a hundredth. */
enum { LEAST_STEP = 100 };

ebb_status ebb_plan_frontier(ebb_plan *plans[], int max, int *n, const ebb_config *config,
                             const ebb_train_options *options, bool allocated)
{
    planner *p = ebb__calloc(1, sizeof(*p));
    const ebb_plan **points = ebb__calloc((size_t)max, sizeof(const ebb_plan *));
    int found = 0;
    *n = 0;
    ebb_status st = p && points ? planner_init(p, config, options, allocated) : EBB_ENOMEM;
    if (st == EBB_OK) st = walk_frontier(p);
    for (size_t step = LEAST_STEP; st == EBB_OK && (step == LEAST_STEP || found > max); step /= 2)
        pick(points, max, &found, p, step);
    if (st == EBB_OK && found == 0) st = nothing_fits(p, SIZE_MAX);
    for (int i = 0; st == EBB_OK && i < found; i++) {
        st = ebb__plan_copy(&plans[i], points[i]);
        if (st == EBB_OK) ++*n;
    }
    for (; st != EBB_OK && *n > 0; --*n) ebb_plan_free(plans[*n - 1]);
    if (p) planner_deinit(p);
    ebb__free(points);
    ebb__free(p);
    return st;
}
