/* replay.c: making the values of a segment again.
 *
 * Only the calls run that a promised slot needs, directly or through others, so a replay stops as
 * early as it can; what a call made is freed after its last use in the replay. */
#include <stdio.h>
#include <string.h>
#include <time.h>

#include "autograd/saver.h"
#include "checkpoint/check.h"
#include "core/assert.h"
#include "core/mem.h"
#include "tensor/upward.h"

/* What a value of the segment is during the replay.  Values: externals first, then entries' outputs. */
typedef struct value {
    ebb_storage *storage;  /* counted */
    int64_t offset;
    size_t last_use;       /* index + 1 of the last entry that reads it; 0: none */
    bool needed;           /* by a slot or by a needed entry */
    bool remade;           /* by a call that ran again, not kept */
    ebb__slot *slots;      /* promised slots that want it, by slot->chain */
} value;

typedef struct replay {
    ebb__segment *segment;
    value *values;         /* n_externals + n_entries * EBB_MAX_OUT */
    bool *run;             /* per entry */
} replay;

static value *value_at(const replay *r, int32_t number)
{
    size_t at = number < 0 ? (size_t)(-(int64_t)number - 1) : r->segment->n_externals + (size_t)number;
    return &r->values[at];
}

static ebb_status replay_init(replay *r, ebb__segment *s)
{
    r->segment = s;
    r->values = ebb__calloc(s->n_externals + s->n_entries * EBB_MAX_OUT + 1, sizeof r->values[0]);
    r->run = r->values ? ebb__calloc(s->n_entries + 1, sizeof r->run[0]) : NULL;
    if (r->run) return EBB_OK;
    ebb__free(r->values);
    return EBB_ENOMEM;
}

static void drop_value(value *v)
{
    if (v->storage) ebb__storage_release(v->storage);
    v->storage = NULL;
}

static void replay_deinit(replay *r)
{
    size_t n = r->segment->n_externals + r->segment->n_entries * EBB_MAX_OUT;
    for (size_t i = 0; i < n; i++) drop_value(&r->values[i]);
    ebb__free(r->values);
    ebb__free(r->run);
}

/* From the slots back to what must run. */
static void find_needed(replay *r)
{
    ebb__segment *s = r->segment;
    for (ebb__slot *slot = s->promises; slot; slot = slot->next) {
        if (slot->state != EBB_SLOT_PROMISED) continue;
        value *v = value_at(r, slot->promise.value);
        v->needed = true;
        slot->chain = v->slots;
        v->slots = slot;
    }
    for (size_t e = s->n_entries; e-- > 0;) {
        for (int j = 0; j < EBB_MAX_OUT; j++)
            if (value_at(r, (int32_t)(e * EBB_MAX_OUT) + j)->needed) r->run[e] = true;
        if (!r->run[e]) continue;
        for (int i = 0; i < s->entries[e].record->n_in; i++) {
            value *v = value_at(r, s->entries[e].source[i]);
            v->needed = true;
            if (!v->last_use) v->last_use = e + 1;
        }
    }
}

/* The promised slots that want this value get it. */
static void fill_slots(const value *v)
{
    for (ebb__slot *slot = v->slots; slot; slot = slot->chain) {
        slot->state = EBB_SLOT_REFILLED;
        slot->storage = v->storage;
        slot->offset = v->offset;
        slot->version = v->storage->version;
        slot->remade = v->remade;
        ebb__storage_retain(v->storage);
        if (v->remade) ebb__storage_count_refilled(v->storage, 1);
        else ebb__storage_count_kept(v->storage, 1);
    }
}

static ebb_status open_externals(replay *r)
{
    ebb__segment *s = r->segment;
    char what[128];
    for (size_t k = 0; k < s->n_externals; k++) {
        if (!r->values[k].needed) continue;
        ebb__slot *slot = &s->externals[k]->slot;
        what[0] = '\0';
        if (ebb__slot_is_stale(slot))
            snprintf(what, sizeof what, "recompute of %s '%s' (number %llu): its input %zu",
                     s->recipe ? "op" : "segment", s->name, (unsigned long long)s->number, k);
        ebb_status st = ebb__slot_open(slot, what);
        if (st != EBB_OK) return st;
        r->values[k].storage = slot->storage;
        r->values[k].offset = slot->offset;
        r->values[k].remade = slot->state == EBB_SLOT_REFILLED && slot->remade;
        ebb__storage_retain(slot->storage);
        fill_slots(&r->values[k]);
        if (!r->values[k].last_use) drop_value(&r->values[k]);
    }
    return EBB_OK;
}

static void *value_data(const value *v, ebb_dtype dtype)
{
    return v->storage->data ? (char *)v->storage->data + (size_t)v->offset * ebb_dtype_bytes(dtype) : NULL;
}

static ebb_status make_outputs(replay *r, size_t e, ebb_call *call, const ebb__owner *owner)
{
    const ebb__entry *entry = &r->segment->entries[e];
    bool view = call->op->flags & EBB_OP_VIEW;
    for (int j = 0; j < call->n_out; j++) {
        value *v = value_at(r, (int32_t)(e * EBB_MAX_OUT) + j);
        bool aux = j >= call->n_out - call->op->n_aux;
        if (aux && !v->needed) continue;
        v->remade = true;
        if (view) {
            const value *base = value_at(r, entry->source[0]);
            v->storage = base->storage;
            v->remade = base->remade;
            v->offset = base->offset + call->view_offset;
            ebb__storage_retain(v->storage);
        } else {
            size_t bytes = (size_t)call->out[j].elems * ebb_dtype_bytes(call->out[j].dtype);
            ebb_status st = ebb__storage_new(&v->storage, call->ctx, bytes, owner);
            if (st != EBB_OK) return st;
        }
        call->out[j].data = value_data(v, call->out[j].dtype);
    }
    return EBB_OK;
}

/* Before the slots get it: a wrong value reaches no gradient. */
static ebb_status check_value(const ebb__segment *s, const ebb__entry *entry, int out, const value *v)
{
    uint64_t found = v->slots ? ebb__check_hash(v->storage) : 0;
    ebb_status st = EBB_OK;
    for (const ebb__slot *slot = v->slots; slot && st == EBB_OK; slot = slot->chain)
        st = ebb__check_bytes(s, entry, out, slot, found);
    return st;
}

static ebb_status run_entry(replay *r, size_t e)
{
    ebb__segment *s = r->segment;
    const ebb__entry *entry = &s->entries[e];
    ebb_call call;
    ebb__record_to_call(entry->record, s->ctx, &call);
    for (int i = 0; i < call.n_in; i++)
        call.in[i].data = value_data(value_at(r, entry->source[i]), call.in[i].dtype);
    ebb__owner owner = { .category = EBB_CAT_TEMPORARY, .op = call.op->name, .scope = entry->record->scope,
                         .node = entry->record->node, .segment = s->number, .phase = EBB__PHASE_RECOMPUTE,
                         .file = entry->record->site.file, .line = entry->record->site.line };
    ebb_status st = make_outputs(r, e, &call, &owner);
    double before = s->ctx->flops;
    if (st == EBB_OK) st = ebb__check_shapes(s, entry);
    if (st == EBB_OK && !(call.op->flags & EBB_OP_VIEW))
        st = ebb__run_kernel(&call, EBB_FORWARD, &owner, &s->ctx->flops);
    if (st != EBB_OK) return st;
    s->ctx->recompute_flops += s->ctx->flops - before;
    s->ctx->recomputed_ops++;
    for (int i = 0; i < call.n_in; i++) {
        value *v = value_at(r, entry->source[i]);
        if (v->last_use == e + 1) drop_value(v);
    }
    for (int j = 0; j < call.n_out; j++) {
        value *v = value_at(r, (int32_t)(e * EBB_MAX_OUT) + j);
        if (!v->storage) continue;
        st = check_value(s, entry, j, v);
        if (st != EBB_OK) return st;
        fill_slots(v);
        if (!v->last_use) drop_value(v);
    }
    return EBB_OK;
}

/* Once everything is filled nothing will be replayed again, unless the graph is retained. */
static void release_externals(ebb__segment *s, bool whole)
{
    for (size_t k = 0; k < s->n_externals; k++) {
        ebb__slot *slot = &s->externals[k]->slot;
        if (s->ctx->retain_graph || !whole) ebb__slot_unfill(slot);
        else ebb__slot_release(slot, s->ctx->backward_number);
    }
    if (!s->ctx->retain_graph && whole) s->spent = true;
}

static void note_filled(ebb__segment *s)
{
    if (s->in_filled || !s->ctx->retain_graph) return;
    s->in_filled = true;
    s->next_filled = s->ctx->filled;
    s->ctx->filled = s;
}

static double now_ms(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec * 1e3 + (double)t.tv_nsec * 1e-6;
}

/* *makes: a call runs that makes bytes; else slots only look at what the segment keeps. */
static ebb_status fill(ebb__segment *s, bool *makes)
{
    replay r;
    ebb_status st = replay_init(&r, s);
    if (st != EBB_OK) return st;
    ebb__segment_retain(s);
    find_needed(&r);
    for (size_t e = 0; e < s->n_entries; e++) *makes |= r.run[e] && !(s->entries[e].record->op->flags & EBB_OP_VIEW);
    ebb__phase before = ebb__phase_set(s->ctx, EBB__PHASE_RECOMPUTE);
    bool in_recipe = s->ctx->in_recipe;
    s->ctx->in_recipe = s->recipe;
    st = open_externals(&r);
    for (size_t e = 0; e < s->n_entries && st == EBB_OK; e++)
        if (r.run[e]) st = run_entry(&r, e);
    s->ctx->in_recipe = in_recipe;
    ebb__phase_set(s->ctx, before);
    replay_deinit(&r);
    if (st == EBB_OK) {
        note_filled(s);
        /* The tensors that carry a recipe may be saved again: its inputs stay. */
        release_externals(s, !s->recipe && s->ctx->segment == NULL);
    } else
        for (ebb__slot *slot = s->promises; slot; slot = slot->next) ebb__slot_unfill(slot);
    ebb__segment_release(s);
    return st;
}

/* Replays nest; each counts its own time. */
ebb_status ebb__segment_fill(ebb__segment *s)
{
    bool makes = false;
    if (!s->contract) return fill(s, &makes);
    ebb__contract *contract = s->contract;
    atomic_fetch_add(&contract->refs, 1);
    double before = s->ctx->replay_ms, start = now_ms();
    ebb_context *ctx = s->ctx;
    ctx->replay_ms = 0;
    ebb__contract_end(contract);
    ebb_status st = fill(s, &makes);
    double spent = now_ms() - start;
    if (makes) ebb__contract_recomputed(contract, spent - ctx->replay_ms);
    ctx->replay_ms = before + spent;
    ebb__contract_release(contract);
    return st;
}
