/* plan_words.c: plans in words. */
#include "checkpoint/plan.h"

#include <stdio.h>
#include <stdlib.h>

static int depth_of(const ebb_plan *plan)
{
    int deepest = 0;
    for (int i = 0; i < plan->n_segments; i++) {
        int depth = 1;
        for (int k = 0; k < i; k++) depth += plan->segments[k].last >= plan->segments[i].last;
        if (depth > deepest) deepest = depth;
    }
    return deepest;
}

/* "gelu, layernorm in 11, linear in 4": ops of as many blocks go together. */
static void put_ops(FILE *out, const ebb_plan *plan, const char *before)
{
    int n[EBB__MAX_PLAN_OPS] = { 0 };
    for (int b = 0; b < plan->n_blocks; b++)
        for (int i = 0; i < plan->n_names; i++) n[i] += plan->ops[b] >> i & 1;
    for (int i = 0; i < plan->n_names; i++) {
        int count = n[i];
        if (!count) continue;
        for (int k = i; k < plan->n_names; k++) {
            if (n[k] != count) continue;
            fprintf(out, "%s%s", before, plan->names[k]->name);
            before = ", ";
            n[k] = 0;
        }
        fprintf(out, " in %d", count);
    }
}

char *ebb_plan_describe(const ebb_plan *plan)
{
    char *text = NULL;
    size_t bytes = 0;
    FILE *out = open_memstream(&text, &bytes);
    if (!out) return NULL;
    int covered = 0, last = -1, recomputing = 0, offloaded = 0;
    for (int i = 0; i < plan->n_segments; i++) {
        if (plan->segments[i].first <= last) continue;
        last = plan->segments[i].last;
        covered += last - plan->segments[i].first + 1;
    }
    for (int b = 0; b < plan->n_blocks; b++) {
        recomputing += plan->ops[b] != 0;
        offloaded += plan->offload[b];
    }
    const char *before = "";
    if (plan->n_segments) {
        int depth = depth_of(plan);
        fprintf(out, "%d segment%s", plan->n_segments, plan->n_segments == 1 ? "" : "s");
        if (depth > 1) fprintf(out, ", %d deep,", depth);
        fprintf(out, " over %d of %d blocks", covered, plan->n_blocks);
        before = "; ";
    }
    if (recomputing) {
        put_ops(out, plan, before);
        if (!plan->n_segments) fprintf(out, " of %d blocks", plan->n_blocks);
        before = "; ";
    }
    if (offloaded) fprintf(out, "%s%d offloaded", before, offloaded);
    if (!plan->n_segments && !recomputing && !offloaded) fprintf(out, "everything kept");
    if (fclose(out) == 0) return text;
    free(text);
    return NULL;
}
