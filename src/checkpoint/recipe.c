/* recipe.c: one op's output made again from its inputs.
 * A recipe is taken only where the inputs are kept anyway (or can be made again themselves): holding
 * an input in place of the output would save nothing. */
#include "autograd/saver.h"
#include "checkpoint/policy.h"
#include "core/mem.h"

static bool in_list(const ebb_context *ctx, const ebb_op *op)
{
    for (int i = 0; i < ctx->n_recompute_ops; i++)
        if (ctx->recompute_ops[i] == op) return true;
    return false;
}

/* A view of something that has a recipe is free to make again. */
static bool wanted(const ebb_call *call, ebb_tensor *const ins[])
{
    if (call->op->flags & EBB_OP_STATEFUL) return false;
    if ((call->op->flags & EBB_OP_VIEW) && ins[0]->recipe.segment) return true;
    return in_list(call->ctx, call->op);
}

static bool input_is_there(const ebb__recording *r, const ebb_call *call, ebb_tensor *const ins[], int i)
{
    int32_t value;
    const ebb__segment *s = call->ctx->segment;
    if (ins[i]->storage->base <= EBB_CAT_INPUT || ins[i]->recipe.segment) return true;
    if (ins[i]->requires_grad) return true; /* a leaf: the user holds it */
    if (ebb__node_needs(r->node) & EBB_IN(i)) return true;
    return s && ebb__uid_map_get(&s->map, ins[i]->id, &value);
}

ebb_status ebb__recipe_begin(ebb__recording *r, const ebb_call *call, ebb_tensor *const ins[])
{
    if (!wanted(call, ins)) return EBB_OK;
    int depth = 0;
    for (int i = 0; i < call->n_in; i++) {
        const ebb__segment *before = ins[i]->recipe.segment;
        if (before && before->depth >= depth) depth = before->depth + 1;
        if (depth > EBB__MAX_RECIPE_DEPTH || !input_is_there(r, call, ins, i)) {
            call->ctx->refused_recipes++;
            return EBB_OK;
        }
    }
    ebb_status st = ebb__segment_new(&r->recipe, call->ctx, call->op->name, true);
    if (st == EBB_OK) r->recipe->depth = depth;
    if (st == EBB_OK) st = ebb__segment_reserve(r->recipe, call->n_in, call->n_out);
    return st;
}

void ebb__recipe_commit(ebb__recording *r, ebb_tensor *const ins[], ebb_tensor *const outs[])
{
    ebb__segment *recipe = r->recipe;
    r->recipe = NULL;
    recipe->parent = recipe->ctx->segment;
    ebb__segment_append(recipe, r->record, ins, outs, EBB_SAVER_RECOMPUTE);
    ebb__segment_close(recipe);
    outs[0]->recipe = (ebb__promise){ recipe, 0 }; /* takes over the reference */
}

ebb_status ebb_recompute_ops(ebb_context *ctx, const char *const names[], int n)
{
    const ebb_op **ops = n ? ebb__calloc((size_t)n, sizeof ops[0]) : NULL;
    if (n && !ops) return EBB_ENOMEM;
    for (int i = 0; i < n; i++) {
        ebb_status st = ebb__op_find_named(&ops[i], names[i], "recompute");
        if (st == EBB_OK) continue;
        ebb__free(ops);
        return st;
    }
    ebb__free(ctx->recompute_ops);
    ctx->recompute_ops = ops;
    ctx->n_recompute_ops = n;
    return EBB_OK;
}
