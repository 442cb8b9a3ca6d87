/* alloc/plan.c: a trace becomes a plan, and a pool follows it. */
#include "alloc/plan.h"

#include <stdio.h>
#include <string.h>

#include "alloc/live_map.h"
#include "alloc/pool_state.h"
#include "core/mem.h"

enum { KIND_CHARS = 24, LOOK_AHEAD = 8 };

typedef struct unit {
    char kind[KIND_CHARS];
    size_t first, n; /* of the plan's blocks */
    size_t nth;      /* of its kind */
} unit;

struct ebb__plan {
    ebb__planned *blocks; /* in order of allocation */
    size_t n_blocks, cap_blocks;
    unit *units;
    size_t n_units, cap_units;
    size_t bytes, live_bytes;
    uint64_t n_there; /* blocks that were there before the trace, and before a pool follows the plan */
};

/* ---- from a trace ------------------------------------------------------------------------ */

static size_t count_of_kind(const ebb__plan *plan, const char *kind)
{
    size_t n = 0;
    for (size_t i = 0; i < plan->n_units; i++) n += strcmp(plan->units[i].kind, kind) == 0;
    return n;
}

static ebb_status add_unit(ebb__plan *plan, const char *kind)
{
    ebb_status status =
        ebb__grow(&plan->units, &plan->cap_units, plan->n_units + 1, sizeof *plan->units);
    if (status != EBB_OK) return status;
    unit u = { .first = plan->n_blocks, .nth = 0 };
    snprintf(u.kind, sizeof u.kind, "%s", kind);
    u.nth = count_of_kind(plan, u.kind);
    plan->units[plan->n_units++] = u;
    return EBB_OK;
}

typedef struct reader {
    ebb__plan *plan;
    const ebb__pool *pool;
    ebb__live_map live;
    size_t live_bytes;
} reader;

static ebb_status add_block(reader *r, const ebb__event *event, size_t at)
{
    ebb__plan *plan = r->plan;
    ebb_status status =
        ebb__grow(&plan->blocks, &plan->cap_blocks, plan->n_blocks + 1, sizeof *plan->blocks);
    if (status == EBB_OK)
        status = ebb__live_map_set(&r->live, event->segment, event->offset, plan->n_blocks);
    if (status != EBB_OK) return status;
    size_t bytes = ebb__request_make(r->pool, event->requested, event->stream, NULL).rounded;
    plan->blocks[plan->n_blocks++] = (ebb__planned){ .bytes = bytes, .begin = at, .end = SIZE_MAX };
    plan->units[plan->n_units - 1].n++;
    r->live_bytes += bytes;
    if (r->live_bytes > plan->live_bytes) plan->live_bytes = r->live_bytes;
    return EBB_OK;
}

static ebb_status read_event(reader *r, const ebb__event *event, size_t at)
{
    if (event->action == EBB__ACT_UNIT) return add_unit(r->plan, event->owner.op);
    if (event->stream != 0) return EBB_OK; /* other streams' blocks are the pool's */
    if (event->action == EBB__ACT_ALLOC) return add_block(r, event, at);
    if (event->action != EBB__ACT_FREE_COMPLETED) return EBB_OK;
    size_t block = ebb__live_map_take(&r->live, event->segment, event->offset);
    if (block == SIZE_MAX) return EBB_OK;
    r->plan->blocks[block].end = at;
    r->live_bytes -= r->plan->blocks[block].bytes;
    return EBB_OK;
}

/* What was there already (what a device's libraries were lent) is not planned. */
static size_t skip_what_was_there(ebb__plan *plan, const ebb__pool *pool)
{
    ebb__event event;
    size_t i = 0;
    for (; i < pool->trace.n_there && ebb__trace_get(pool, i, &event); i++)
        plan->n_there += event.action == EBB__ACT_ALLOC;
    return i;
}

static ebb_status read_trace(ebb__plan *plan, const ebb__pool *pool)
{
    reader r = { .plan = plan, .pool = pool };
    ebb__event event;
    ebb_status status = add_unit(plan, "start");
    for (size_t i = skip_what_was_there(plan, pool); status == EBB_OK && ebb__trace_get(pool, i, &event); i++)
        status = read_event(&r, &event, i);
    ebb__live_map_deinit(&r.live);
    return status;
}

ebb_status ebb__plan_from_trace(ebb__plan **out, const ebb__pool *pool)
{
    uint64_t dropped = 0;
    if (!pool->trace.ring) return ebb_fail(EBB_ESTATE, "offset plan: no trace was kept");
    ebb__trace_count(pool, &dropped);
    if (dropped)
        return ebb_fail(EBB_ESTATE, "offset plan: the trace has dropped %llu events",
                        (unsigned long long)dropped);
    ebb__plan *plan = ebb__calloc(1, sizeof *plan);
    if (!plan) return EBB_ENOMEM;
    ebb_status status = read_trace(plan, pool);
    if (status == EBB_OK)
        status = ebb__plan_pack(plan->blocks, plan->n_blocks, plan->live_bytes, &plan->bytes);
    if (status == EBB_OK)
        *out = plan;
    else
        ebb__plan_free(plan);
    return status;
}

void ebb__plan_free(ebb__plan *plan)
{
    if (!plan) return;
    ebb__free(plan->blocks);
    ebb__free(plan->units);
    ebb__free(plan);
}

size_t ebb__plan_bytes(const ebb__plan *plan) { return plan->bytes; }
size_t ebb__plan_live_bytes(const ebb__plan *plan) { return plan->live_bytes; }

/* ---- followed by a pool ------------------------------------------------------------------ */

struct ebb__plan_state {
    ebb__plan *plan;
    ebb__segment *arena; /* NULL: the plan is empty */
    size_t *seen;        /* units of the kind of unit i that have begun */
    size_t next, end;    /* of the plan's blocks: what is expected */
    uint64_t followed, left;
};

/* The recorded unit that the next one of its kind follows; n_units: none. */
static size_t find_unit(const struct ebb__plan_state *state, const char *kind, size_t *first)
{
    const ebb__plan *plan = state->plan;
    size_t found = plan->n_units;
    *first = plan->n_units;
    for (size_t i = 0; i < plan->n_units; i++) {
        if (strncmp(plan->units[i].kind, kind, KIND_CHARS - 1) != 0) continue;
        if (*first == plan->n_units) *first = i;
        if (plan->units[i].nth <= state->seen[*first]) found = i;
    }
    return found;
}

void ebb__plan_unit(ebb__pool *pool, const char *kind)
{
    struct ebb__plan_state *state = pool->plan;
    size_t first, at = find_unit(state, kind, &first);
    state->next = state->end = 0;
    if (at == state->plan->n_units) return;
    state->seen[first]++;
    state->next = state->plan->units[at].first;
    state->end = state->next + state->plan->units[at].n;
}

uint64_t ebb__plan_position(const ebb__pool *pool)
{
    const struct ebb__plan_state *state = pool->plan;
    uint64_t position = 0;
    for (size_t i = 0; state && i < state->plan->n_units; i++) {
        if (state->plan->units[i].nth > 0) continue;
        size_t n = count_of_kind(state->plan, state->plan->units[i].kind);
        position = position * 1000003u + (state->seen[i] < n ? state->seen[i] : n);
    }
    return position;
}

static ebb_status add_arena(ebb__pool *pool, struct ebb__plan_state *state)
{
    ebb__request request = { .kind = EBB__POOL_PLAN, .rounded = state->plan->bytes };
    size_t page = EBB__EXACT_ROUND_BYTES;
    ebb__block *block = NULL;
    request.segment_bytes = (state->plan->bytes + page - 1) / page * page;
    if (request.segment_bytes == 0) return EBB_OK;
    ebb_status status = ebb__block_store_reserve(&pool->store, 1);
    if (status == EBB_OK) status = ebb__segment_add(pool, &block, &request);
    if (status != EBB_OK) return status;
    if (!block) {
        pool->stats.n_ooms++;
        pool->counters.n_ooms++;
        return ebb_fail(
            EBB_ENOMEM,
            "out of memory: an offset plan's arena of %zu bytes does not fit; limit %zu",
            request.segment_bytes, pool->limit_bytes);
    }
    state->arena = block->segment;
    ebb__block_to_tree(pool, block);
    return EBB_OK;
}

static void free_state(struct ebb__plan_state *state)
{
    ebb__plan_free(state->plan);
    ebb__free(state->seen);
    ebb__free(state);
}

ebb_status ebb__pool_follow_plan(ebb__pool *pool, ebb__plan *plan)
{
    struct ebb__plan_state *state = ebb__calloc(1, sizeof *state);
    size_t *seen = ebb__calloc(plan->n_units, sizeof *seen);
    if (!state || !seen) {
        ebb__free(state);
        ebb__free(seen);
        ebb__plan_free(plan);
        return EBB_ENOMEM;
    }
    *state = (struct ebb__plan_state){ .plan = plan, .seen = seen };
    ebb__pool_lock(pool);
    bool used = pool->stats.n_allocs != plan->n_there || pool->stats.n_frees;
    ebb_status status = pool->plan || used
                            ? ebb_fail(EBB_ESTATE, "offset plan: the pool has been used already")
                            : add_arena(pool, state);
    if (status == EBB_OK) {
        pool->plan = state;
        ebb__plan_unit(pool, "start");
    } else {
        free_state(state);
    }
    ebb__pool_unlock(pool);
    return status;
}

void ebb__pool_plan_use(const ebb__pool *pool, uint64_t *followed, uint64_t *left)
{
    ebb__pool_lock(pool);
    *followed = pool->plan ? pool->plan->followed : 0;
    *left = pool->plan ? pool->plan->left : 0;
    ebb__pool_unlock(pool);
}

/* The planned block that the request is for; a few may have been skipped.  NULL: none. */
static const ebb__planned *expected(struct ebb__plan_state *state, const ebb__request *request)
{
    const ebb__planned *blocks = state->plan->blocks;
    for (size_t i = state->next; i < state->end && i < state->next + LOOK_AHEAD; i++) {
        if (blocks[i].bytes != request->rounded) continue;
        state->next = i + 1;
        return &blocks[i];
    }
    return NULL;
}

ebb__block *ebb__plan_take(ebb__pool *pool, const ebb__request *request)
{
    struct ebb__plan_state *state = pool->plan;
    if (!state->arena || request->stream != 0) return NULL;
    const ebb__planned *planned = expected(state, request);
    ebb__block *block = NULL;
    if (planned)
        block =
            ebb__free_tree_find(&pool->free[EBB__POOL_PLAN], 0, planned->offset + planned->bytes);
    if (!block || block->offset > planned->offset) {
        state->left++;
        return NULL;
    }
    state->followed++;
    ebb__block_from_tree(pool, block);
    if (block->offset == planned->offset) return block;
    ebb__block *before = block;
    block = ebb__block_cut(pool, before, planned->offset - before->offset);
    ebb__block_to_tree(pool, before);
    return block;
}

void ebb__plan_end(ebb__pool *pool)
{
    struct ebb__plan_state *state = pool->plan;
    if (!state) return;
    ebb__segment *arena = state->arena;
    pool->plan = NULL;
    free_state(state);
    if (arena) arena->kind = EBB__POOL_LARGE; /* from here on an ordinary segment */
}
