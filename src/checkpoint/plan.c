/* plan.c: plans as values. */
#include "checkpoint/plan.h"

#include <string.h>

#include "core/mem.h"

ebb_status ebb__plan_new(ebb_plan **out, int n_blocks)
{
    ebb_plan *plan = ebb__calloc(1, sizeof(*plan));
    if (!plan) return EBB_ENOMEM;
    plan->n_blocks = n_blocks;
    plan->segments = ebb__calloc(2 * (size_t)n_blocks, sizeof(*plan->segments));
    plan->ops = ebb__calloc((size_t)n_blocks, sizeof(*plan->ops));
    plan->offload = ebb__calloc((size_t)n_blocks, sizeof(*plan->offload));
    if (!plan->segments || !plan->ops || !plan->offload) {
        ebb_plan_free(plan);
        return EBB_ENOMEM;
    }
    *out = plan;
    return EBB_OK;
}

ebb_status ebb__plan_copy(ebb_plan **out, const ebb_plan *from)
{
    ebb_plan *plan = NULL;
    ebb_status st = ebb__plan_new(&plan, from->n_blocks);
    if (st != EBB_OK) return st;
    ebb_block_range *segments = plan->segments;
    uint32_t *ops = plan->ops;
    bool *offload = plan->offload;
    *plan = *from;
    plan->segments = segments;
    plan->ops = ops;
    plan->offload = offload;
    memcpy(segments, from->segments, (size_t)from->n_segments * sizeof(*segments));
    memcpy(ops, from->ops, (size_t)from->n_blocks * sizeof(*ops));
    memcpy(offload, from->offload, (size_t)from->n_blocks * sizeof(*offload));
    *out = plan;
    return EBB_OK;
}

void ebb_plan_free(ebb_plan *plan)
{
    if (!plan) return;
    ebb__free(plan->segments);
    ebb__free(plan->ops);
    ebb__free(plan->offload);
    ebb__free(plan);
}

ebb_plan_info ebb_plan_info_get(const ebb_plan *plan) { return plan->info; }

uint32_t ebb__plan_op(ebb_plan *plan, const ebb_op *op)
{
    int i = 0;
    while (i < plan->n_names && plan->names[i] != op) i++;
    if (i == EBB__MAX_PLAN_OPS) return 0;
    if (i == plan->n_names) plan->names[plan->n_names++] = op;
    return 1u << i;
}

int ebb__plan_ops(const ebb_op **ops, const ebb_plan *plan, int block, const ebb_op *const *list, int n)
{
    int count = 0;
    for (int i = 0; i < n && count < EBB__MAX_RECIPES - EBB__MAX_PLAN_OPS; i++) ops[count++] = list[i];
    for (int i = 0; i < plan->n_names; i++)
        if (plan->ops[block] & (1u << i)) ops[count++] = plan->names[i];
    return count;
}

bool ebb__plan_same(const ebb_plan *a, const ebb_plan *b)
{
    size_t blocks = (size_t)a->n_blocks;
    return a->n_blocks == b->n_blocks && a->n_segments == b->n_segments &&
           memcmp(a->segments, b->segments, (size_t)a->n_segments * sizeof(*a->segments)) == 0 &&
           memcmp(a->ops, b->ops, blocks * sizeof(*a->ops)) == 0 &&
           memcmp(a->offload, b->offload, blocks * sizeof(*a->offload)) == 0;
}

ebb_status ebb__plan_check_offload(const ebb_plan *plan, const char *what)
{
    for (int i = 0; i < plan->n_segments; i++)
        for (int b = plan->segments[i].first; b <= plan->segments[i].last; b++)
            if (plan->offload[b])
                return ebb_fail(EBB_EINVAL, "%s: block %d is offloaded, and in segment %d, [%d, %d], which makes its "
                                "tensors again: only blocks outside segments are offloaded", what, b, i,
                                plan->segments[i].first, plan->segments[i].last);
    return EBB_OK;
}

/* In pre-order a range's parent is the nearest one before it that has not ended. */
ebb_status ebb__ranges_check(const ebb_block_range *ranges, int n, int blocks, const char *what)
{
    if (n > 2 * blocks) return ebb_fail(EBB_EINVAL, "%s: %d segments in %d blocks", what, n, blocks);
    for (int i = 0; i < n; i++) {
        ebb_block_range r = ranges[i];
        if (r.first < 0 || r.last < r.first || r.last >= blocks)
            return ebb_fail(EBB_EINVAL, "%s: segment %d, [%d, %d]: first <= last and last < %d, the number of blocks",
                            what, i, r.first, r.last, blocks);
        for (int k = i - 1; k >= 0; k--) {
            ebb_block_range o = ranges[k];
            if (o.last < r.first) continue;
            bool inside = r.first >= o.first && r.last <= o.last && r.last - r.first < o.last - o.first;
            if (!inside)
                return ebb_fail(EBB_EINVAL,
                                "%s: segment %d, [%d, %d], and the earlier [%d, %d]: segments come in order, "
                                "a segment before those inside it, and overlap only where one holds the other",
                                what, i, r.first, r.last, o.first, o.last);
        }
    }
    return EBB_OK;
}
