/* contract.c: counting what segments promise and free; why one frees nothing. */
#include "checkpoint/contract.h"

#include <stdio.h>
#include <string.h>

#include "core/mem.h"

enum { MOST_RECORDS = 4096 };

/* Names beyond the bound share the last record. */
static ebb_status record_of(ebb__segment_record **out, ebb_context *ctx, const char *name)
{
    ebb__segment_record **at = &ctx->records, *last = NULL;
    int n = 0;
    for (; *at; at = &(*at)->next, n++) {
        last = *at;
        if (strncmp(last->name, name, sizeof last->name - 1) == 0) break;
    }
    if (!*at && n == MOST_RECORDS) {
        *out = last;
        return EBB_OK;
    }
    if (!*at) {
        ebb__segment_record *record = ebb__calloc(1, sizeof *record);
        if (!record) return EBB_ENOMEM;
        snprintf(record->name, sizeof record->name, "%s", n == MOST_RECORDS - 1 ? "(others)" : name);
        record->report.name = record->name;
        *at = record;
    }
    *out = *at;
    return EBB_OK;
}

ebb_status ebb__contract_new(ebb__contract **out, ebb_context *ctx, const char *name)
{
    ebb__contract *c = ebb__calloc(1, sizeof *c);
    if (!c) return EBB_ENOMEM;
    atomic_init(&c->refs, 1);
    ebb_status st = record_of(&c->record, ctx, name);
    if (st == EBB_OK) *out = c;
    else ebb__free(c);
    return st;
}

void ebb__contract_release(ebb__contract *c)
{
    if (c && atomic_fetch_sub(&c->refs, 1) == 1) ebb__free(c);
}

/* A storage is counted once, by the segment that promised it first. */
void ebb__contract_promise(ebb__contract *c, ebb_storage *storage, size_t bytes)
{
    if (storage && storage->contract && !storage->contract->ended) return;
    c->promised_bytes += bytes;
    if (!storage) {
        c->freed_bytes += bytes;
        return;
    }
    ebb__contract_release(storage->contract);
    storage->contract = c;
    atomic_fetch_add(&c->refs, 1);
}

void ebb__contract_storage_gone(ebb_storage *storage)
{
    ebb__contract *c = storage->contract;
    if (!c) return;
    if (!c->ended) c->freed_bytes += storage->bytes;
    storage->contract = NULL;
    ebb__contract_release(c);
}

static const char *why_nothing(const ebb__contract *c)
{
    if (c->freed_bytes > 0) return NULL;
    if (c->n_nodes == 0) return "nothing in it needs a gradient, or no op ran in it";
    if (c->promised_bytes > 0)
        return "all that it promised is alive without it: a variable holds it, or a node outside saves it (its own "
               "result is saved by the next op)";
    if (c->n_kept > 0) return "its policy keeps what its ops save";
    return "its ops save only what came in from outside, which it needs to recompute from";
}

void ebb__contract_end(ebb__contract *c)
{
    if (!c || c->ended) return;
    ebb_segment_report *r = &c->record->report;
    c->ended = true;
    bool smaller = c->promised_bytes < r->promised_bytes ||
                   (c->promised_bytes == r->promised_bytes && c->input_bytes < r->input_bytes);
    if (r->runs++ > 0 && smaller) return; /* an epoch's last, smaller batch */
    r->promised_bytes = c->promised_bytes;
    r->freed_bytes = c->freed_bytes;
    r->input_bytes = c->input_bytes;
    r->warning = why_nothing(c);
}

void ebb__contract_recomputed(ebb__contract *c, double ms)
{
    c->record->report.recomputed++;
    c->record->report.recompute_ms += ms;
}

void ebb_each_segment(const ebb_context *ctx, void (*emit)(void *user, const ebb_segment_report *report), void *user)
{
    for (const ebb__segment_record *r = ctx->records; r; r = r->next)
        if (r->report.runs) emit(user, &r->report);
}

void ebb__contract_records_free(ebb_context *ctx)
{
    while (ctx->records) {
        ebb__segment_record *next = ctx->records->next;
        ebb__free(ctx->records);
        ctx->records = next;
    }
}
