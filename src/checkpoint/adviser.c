/* adviser.c: what an out-of-memory message recommends: the part of the model (scope) whose saved bytes
 * are cheapest to recompute, in FLOPs per byte. */
#include <stdio.h>
#include <string.h>

#include "checkpoint/segment.h"
#include "tensor/upward.h"

enum { MAX_SCOPES = 128 }; /* on the stack: memory is gone */

typedef struct scope_cost { const char *scope; double bytes, flops; } scope_cost;

/* A storage that several slots hold counts in equal parts. */
static double kept_bytes(const ebb_node *node)
{
    double bytes = 0;
    for (int k = 0; k < node->n_slots; k++) {
        const ebb_storage *s = node->slots[k].storage;
        if (node->slots[k].state == EBB_SLOT_KEPT && s->base > EBB_CAT_INPUT) bytes += (double)s->bytes / s->kept;
    }
    return bytes;
}

static double forward_flops(const ebb_node *node)
{
    ebb_call call;
    ebb_cost cost = { 0 };
    if (!node->record->op->cost) return 0;
    ebb__record_to_call(node->record, node->ctx, &call);
    node->record->op->cost(&call, &cost);
    return cost.fwd_flops;
}

static scope_cost *find(scope_cost *scopes, int *n, const char *scope)
{
    for (int i = *n - 1; i >= 0; i--)
        if (strcmp(scopes[i].scope, scope) == 0) return &scopes[i];
    if (*n == MAX_SCOPES) return NULL;
    scopes[*n] = (scope_cost){ .scope = scope };
    return &scopes[(*n)++];
}

void ebb__advise_checkpoint(void *self, size_t wanted_bytes, char *buf, size_t buf_bytes)
{
    const ebb_context *ctx = self;
    scope_cost scopes[MAX_SCOPES];
    const scope_cost *best = NULL;
    char size[32];
    int n = 0;
    (void)wanted_bytes;
    for (const ebb_node *node = ctx->nodes; node; node = node->next) {
        scope_cost *s = node->record->scope ? find(scopes, &n, node->record->scope) : NULL;
        if (!s) continue;
        s->bytes += kept_bytes(node);
        s->flops += forward_flops(node);
    }
    for (int i = 0; i < n; i++)
        if (scopes[i].bytes >= 1 && (!best || scopes[i].flops * best->bytes < best->flops * scopes[i].bytes))
            best = &scopes[i];
    if (!best) return;
    snprintf(buf, buf_bytes, "cheapest to recompute instead: %s, about %s for %.3g GFLOP (memory.checkpoint)",
             best->scope, ebb_size_format((size_t)best->bytes, size, sizeof size), best->flops * 1e-9);
}
