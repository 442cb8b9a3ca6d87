/* segment.c: recording the calls of a segment while forward runs. */
#include "checkpoint/segment.h"

#include <stdio.h>

#include "autograd/saver.h"
#include "core/assert.h"
#include "core/mem.h"
#include "tensor/upward.h"

ebb_status ebb__segment_new(ebb__segment **out, ebb_context *ctx, const char *name, bool recipe)
{
    ebb__segment *s = ebb__calloc(1, sizeof *s);
    if (!s) return EBB_ENOMEM;
    atomic_init(&s->refs, 1);
    ebb_status st = recipe ? EBB_OK : ebb__contract_new(&s->contract, ctx, name ? name : "");
    if (st != EBB_OK) {
        ebb__free(s);
        return st;
    }
    s->ctx = ctx;
    s->number = ctx->next_segment_number++;
    s->recipe = recipe;
    snprintf(s->name, sizeof s->name, "%s", name ? name : "");
    s->saver = EBB_SAVER_RECOMPUTE;
    s->first_tensor_id = ctx->next_tensor_id;
    *out = s;
    return EBB_OK;
}

void ebb__segment_retain(ebb__segment *s) { atomic_fetch_add(&s->refs, 1); }

static void unlink_filled(ebb__segment *s)
{
    if (!s->in_filled) return;
    for (ebb__segment **at = &s->ctx->filled; *at; at = &(*at)->next_filled)
        if (*at == s) {
            *at = s->next_filled;
            break;
        }
}

void ebb__segment_release(ebb__segment *s)
{
    if (!s || atomic_fetch_sub(&s->refs, 1) != 1) return;
    EBB_ASSERT(!s->promises);
    unlink_filled(s);
    ebb__segment_close(s);
    ebb__contract_end(s->contract);
    ebb__contract_release(s->contract);
    for (size_t k = 0; k < s->n_externals; k++) {
        ebb__slot_release(&s->externals[k]->slot, 0);
        ebb__free(s->externals[k]);
    }
    for (size_t e = 0; e < s->n_entries; e++) ebb__record_release(s->entries[e].record);
    ebb__free(s->externals);
    ebb__free(s->entries);
    ebb__free(s);
}

void ebb__segment_close(ebb__segment *s)
{
    ebb__uid_map_deinit(&s->map);
    while (s->n_spare) ebb__free(s->spare[--s->n_spare]);
    s->parent = NULL;
}

ebb_status ebb__segment_reserve(ebb__segment *s, int n_in, int n_out)
{
    int n = n_in + n_out;
    ebb_status st = ebb__grow(&s->entries, &s->cap_entries, s->n_entries + 1, sizeof s->entries[0]);
    if (st == EBB_OK)
        st = ebb__grow(&s->externals, &s->cap_externals, s->n_externals + (size_t)n, sizeof s->externals[0]);
    if (st == EBB_OK) st = ebb__uid_map_reserve(&s->map, (size_t)n);
    for (; s->n_spare < n && st == EBB_OK; s->n_spare++) {
        s->spare[s->n_spare] = ebb__calloc(1, sizeof(ebb__external));
        if (!s->spare[s->n_spare]) return EBB_ENOMEM;
    }
    return st;
}

/* The enclosing place makes the tensor's bytes again where it can; else they are kept. */
static void save_external(const ebb__segment *s, ebb__slot *slot, ebb_tensor *t)
{
    int32_t value;
    slot->bytes = t->storage->bytes;
    if (t->recipe.segment && t->recipe.segment != s) ebb__promise_take(slot, t->recipe, t->storage);
    else if (s->parent && t->storage->base > EBB_CAT_INPUT && ebb__uid_map_get(&s->parent->map, t->id, &value))
        ebb__promise_take(slot, (ebb__promise){ s->parent, value }, t->storage);
    else ebb__slot_keep(slot, t->storage, t->offset);
}

/* Externals may be views of one storage, which is kept once. */
static bool keeps_already(const ebb__segment *s, const ebb_storage *storage)
{
    for (size_t k = 0; k < s->n_externals; k++) {
        const ebb__slot *slot = &s->externals[k]->slot;
        if (slot->storage == storage || (slot->pack && slot->pack == storage->pack)) return true;
    }
    return false;
}

static int32_t add_external(ebb__segment *s, ebb_tensor *t, bool keep)
{
    ebb__external *x = s->spare[--s->n_spare];
    x->dtype = t->dtype;
    bool counts = s->contract && t->storage->base > EBB_CAT_INPUT && !keep && !keeps_already(s, t->storage);
    if (keep) ebb__slot_keep(&x->slot, t->storage, t->offset);
    else save_external(s, &x->slot, t);
    if (counts && !x->slot.promise.segment) s->contract->input_bytes += x->slot.bytes;
    int32_t value = -(int32_t)++s->n_externals;
    s->externals[s->n_externals - 1] = x;
    ebb__uid_map_put(&s->map, t->id, value);
    return value;
}

/* A view is of its base's bytes. */
bool ebb__segment_makes(const ebb__segment *s, int32_t value)
{
    while (value >= 0) {
        const ebb__entry *entry = &s->entries[value / EBB_MAX_OUT];
        if (!(entry->record->op->flags & EBB_OP_VIEW)) return true;
        value = entry->source[0];
    }
    return false;
}

void ebb__segment_append(ebb__segment *s, ebb__record *record, ebb_tensor *const ins[], ebb_tensor *const outs[],
                         ebb_saver saver)
{
    ebb__entry *entry = &s->entries[s->n_entries];
    for (int i = 0; i < record->n_in; i++)
        if (!ebb__uid_map_get(&s->map, ins[i]->id, &entry->source[i]))
            entry->source[i] = add_external(s, ins[i], false);
    entry->record = record;
    atomic_fetch_add(&record->refs, 1);
    /* What is kept or packed on purpose enters later calls as an external: its call need not run again. */
    for (int j = 0; j < record->n_out; j++) {
        if (!outs[j]) continue;
        if (saver == EBB_SAVER_RECOMPUTE && !(record->op->flags & EBB_OP_VIEW)) outs[j]->storage->replayed = true;
        if (saver != EBB_SAVER_RECOMPUTE) (void)add_external(s, outs[j], true);
        else ebb__uid_map_put(&s->map, outs[j]->id, (int32_t)(s->n_entries * EBB_MAX_OUT) + j);
    }
    s->n_entries++;
    if (!s->contract) return;
    s->contract->n_nodes += record->node != 0;
    s->contract->n_kept += saver != EBB_SAVER_RECOMPUTE;
}
