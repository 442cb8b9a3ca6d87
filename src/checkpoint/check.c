/* check.c: shapes are always compared, bytes where the context asks for it. */
#include "checkpoint/check.h"

#include <stdio.h>
#include <string.h>

#include "core/site.h"

/* Of whole words, and of what is left at the end. */
static uint64_t add_words(uint64_t hash, const unsigned char *at, size_t bytes)
{
    for (size_t left = bytes; left > 0;) {
        uint64_t word = 0;
        size_t n = left < sizeof word ? left : sizeof word;
        memcpy(&word, at, n);
        hash = (hash ^ word) * 0xD6E8FEB86659FD93u;
        hash ^= hash >> 32;
        at += n;
        left -= n;
    }
    return hash;
}

/* Recording cannot fail, so no memory is asked for: an accelerator's bytes come in pieces. */
static ebb_status hash_bytes(uint64_t *hash, const ebb__device *device, const unsigned char *at, size_t bytes)
{
    unsigned char piece[1 << 14];
    if (ebb__device_is_host(device)) {
        *hash = add_words(*hash, at, bytes);
        return EBB_OK;
    }
    for (size_t n; bytes > 0; at += n, bytes -= n) {
        n = bytes < sizeof piece ? bytes : sizeof piece;
        EBB__TRY(ebb__device_copy(device, piece, at, n, EBB__FROM_DEVICE, "check of a recompute"));
        *hash = add_words(*hash, piece, n);
    }
    return EBB_OK;
}

uint64_t ebb__check_hash(const ebb_storage *storage)
{
    if (!storage || !storage->ctx->check_recompute || !storage->data) return 0;
    const ebb__device *device = &storage->ctx->device;
    uint64_t hash = 0x9E3779B97F4A7C15u ^ storage->bytes;
    ebb__message before;
    ebb__message_keep(&before);
    ebb_status st = hash_bytes(&hash, device, storage->data, storage->bytes);
    ebb__streams_keep_error(device->streams, st, &before);
    return st != EBB_OK ? 0 : hash ? hash : 1;
}

/* "recompute of segment 'blocks.0-1' (number 3): gelu #7, slot out0" */
static void describe(char *buf, size_t bytes, const ebb__segment *s, const ebb__entry *entry, int out)
{
    char node[32] = "";
    if (entry->record->node) snprintf(node, sizeof node, " #%llu", (unsigned long long)entry->record->node);
    snprintf(buf, bytes, "recompute of %s '%s' (number %llu): %s%s%s%s, slot out%d", s->recipe ? "op" : "segment",
             s->name, (unsigned long long)s->number, entry->record->op->name, node,
             entry->record->scope ? " in " : "", entry->record->scope ? entry->record->scope : "", out);
}

static ebb_status differs(const ebb__segment *s, const ebb__entry *entry, int out, const ebb_arg *saved,
                          const ebb_arg *now)
{
    char what[200], was[96], is[96];
    describe(what, sizeof what, s, entry, out);
    return ebb_fail(EBB_ESTATE, "%s: forward made %s, the recompute makes %s", what,
                    ebb_arg_describe(saved, was, sizeof was), ebb_arg_describe(now, is, sizeof is));
}

ebb_status ebb__check_shapes(const ebb__segment *s, const ebb__entry *entry)
{
    const ebb__record *record = entry->record;
    ebb_call call;
    ebb__record_to_call(record, s->ctx, &call);
    memset(call.out, 0, sizeof call.out);
    call.view_offset = 0;
    call.rng_offset = 0;
    ebb_status st = record->op->infer(&call);
    if (st != EBB_OK) return st;
    for (int j = 0; j < record->n_out; j++) {
        const ebb_arg *saved = &record->args[record->n_in + j], *now = &call.out[j];
        if (saved->dtype != now->dtype || !ebb__arg_same_shape(saved, now)) return differs(s, entry, j, saved, now);
    }
    return EBB_OK;
}

ebb_status ebb__check_bytes(const ebb__segment *s, const ebb__entry *entry, int out, const ebb__slot *slot,
                            uint64_t found)
{
    if (!slot->hash || !found || slot->hash == found) return EBB_OK;
    char what[200];
    describe(what, sizeof what, s, entry, out);
    return ebb_fail(EBB_ESTATE, "%s: its bytes are not those of forward (hash %016llx, not %016llx): the op gives "
                    "another result each time, or something changed an input", what, (unsigned long long)found,
                    (unsigned long long)slot->hash);
}
