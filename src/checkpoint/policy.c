/* policy.c: which saver: what the segments' policies answer, and what is said of ops. */
#include <string.h>

#include "checkpoint/pack.h"
#include "checkpoint/policy.h"
#include "core/json.h"
#include "core/mem.h"
#include "core/site.h"

typedef struct ebb__op_saver {
    const ebb_op *op; /* NULL: every other */
    ebb_saver saver;
    const ebb_packer *packer;
} ebb__op_saver;

/* ---- ops ----------------------------------------------------------------------------------- */

static ebb__op_saver *find_exact(const ebb_context *ctx, const ebb_op *op)
{
    for (size_t i = 0; i < ctx->n_op_savers; i++)
        if (ctx->op_savers[i].op == op) return &ctx->op_savers[i];
    return NULL;
}

/* NULL: nothing was said. */
static const ebb__op_saver *said_of(const ebb_context *ctx, const ebb_op *op)
{
    if (ctx->n_op_savers == 0) return NULL;
    const ebb__op_saver *own = find_exact(ctx, op);
    return own ? own : find_exact(ctx, NULL);
}

ebb_status ebb__op_find_named(const ebb_op **out, const char *name, const char *what)
{
    *out = ebb_op_find(name);
    if (*out) return EBB_OK;
    const char *known[128];
    int n_known = ebb_op_count() < 128 ? ebb_op_count() : 128;
    for (int k = 0; k < n_known; k++) known[k] = ebb_op_at(k)->name;
    const char *near = ebb__nearest(name, known, n_known);
    return ebb_fail(EBB_EINVAL, "%s: no op \"%.40s\"%s%s%s", what, name, near ? "; did you mean \"" : "",
                    near ? near : "", near ? "\"?" : "");
}

/* They run host code over the bytes. */
static ebb_status check_device(const ebb_context *ctx, ebb_saver saver, const char *what)
{
    bool packs = saver == EBB_SAVER_BF16 || saver == EBB_SAVER_INT8 || saver == EBB_SAVER_CUSTOM;
    if (!packs || !ctx->device.accel) return EBB_OK;
    return ebb_fail(EBB_EUNSUPPORTED, "%s: the savers bf16, int8 and custom pack on the cpu; on device %s there are "
                    "keep, recompute and offload", what, ctx->device.name);
}

ebb_status ebb_op_saver(ebb_context *ctx, const char *name, ebb_saver saver, const ebb_packer *packer)
{
    const ebb_op *op = NULL;
    if ((unsigned)saver >= EBB_N_SAVERS || saver == EBB_SAVER_RECOMPUTE)
        return ebb_fail(EBB_EINVAL, "op_saver: saver %d is not for single ops; ebb_recompute_ops() takes those that "
                        "are recomputed", (int)saver);
    if ((saver == EBB_SAVER_CUSTOM) != (packer != NULL))
        return ebb_fail(EBB_EINVAL, "op_saver: a packer belongs to EBB_SAVER_CUSTOM, and only to it");
    if (packer && (!packer->name || !packer->packed_bytes || !packer->pack || !packer->unpack))
        return ebb_fail(EBB_EINVAL, "op_saver: the packer lacks its name, packed_bytes, pack or unpack");
    EBB__TRY(check_device(ctx, saver, "op_saver"));
    if (strcmp(name, "*") != 0) {
        ebb_status st = ebb__op_find_named(&op, name, "op_saver");
        if (st != EBB_OK) return st;
    }
    ebb__op_saver *entry = find_exact(ctx, op);
    if (!entry) {
        ebb_status st = ebb__grow(&ctx->op_savers, &ctx->cap_op_savers, ctx->n_op_savers + 1, sizeof ctx->op_savers[0]);
        if (st != EBB_OK) return st;
        entry = &ctx->op_savers[ctx->n_op_savers++];
    }
    *entry = (ebb__op_saver){ op, saver, packer };
    return EBB_OK;
}

const ebb_packer *ebb__saver_packer(ebb_saver saver, const ebb_packer *custom)
{
    switch (saver) {
    case EBB_SAVER_OFFLOAD: return &ebb__offload;
    case EBB_SAVER_BF16: return &ebb__bf16_packer;
    case EBB_SAVER_INT8: return &ebb__int8_packer;
    case EBB_SAVER_CUSTOM: return custom;
    default: return NULL;
    }
}

/* ---- segments ------------------------------------------------------------------------------ */

static ebb_status check_answer(const ebb__segment *s, const ebb_call *call, ebb_saver saver)
{
    if ((unsigned)saver >= EBB_N_SAVERS)
        return ebb_fail(EBB_EINVAL, "segment '%s': its policy answers %d for %s", s->name, (int)saver, call->op->name);
    if (saver == EBB_SAVER_CUSTOM && !s->options.custom)
        return ebb_fail(EBB_EINVAL, "segment '%s': its policy answers EBB_SAVER_CUSTOM for %s, and its options give no "
                        "packer", s->name, call->op->name);
    return check_device(call->ctx, saver, "segment policy");
}

ebb_status ebb__segment_ask(ebb__segment *s, const ebb_call *call)
{
    s->saver = EBB_SAVER_RECOMPUTE;
    const ebb__op_saver *said = said_of(call->ctx, call->op);
    if (call->op->flags & EBB_OP_STATEFUL) s->saver = EBB_SAVER_KEEP;
    else if (s->options.policy) s->saver = s->options.policy(s->options.user, call->op, call);
    else if (said && said->op && said->saver == EBB_SAVER_KEEP) s->saver = EBB_SAVER_KEEP;
    return check_answer(s, call, s->saver);
}

/* The innermost segment that keeps or packs decides; one that recomputes leaves it to those around
 * it, and outside of all the op's own saver holds. */
const ebb_packer *ebb__output_packer(const ebb_context *ctx, const ebb_op *op)
{
    for (const ebb__segment *s = ctx->segment; s; s = s->parent)
        if (s->saver != EBB_SAVER_RECOMPUTE) return ebb__saver_packer(s->saver, s->options.custom);
    const ebb__op_saver *said = said_of(ctx, op);
    if (ctx->offloading && !(said && said->op)) return &ebb__offload;
    return said ? ebb__saver_packer(said->saver, said->packer) : NULL;
}

/* ---- packs of the call that is being recorded ---------------------------------------------- */

/* The call makes a node or a segment hold the bytes of input i. */
static bool will_hold_in(const ebb__recording *r, const ebb_call *call, const ebb_tensor *t, int i)
{
    const ebb__segment *outermost = call->ctx->segment;
    int32_t value;
    while (outermost && outermost->parent) outermost = outermost->parent;
    if (outermost && !t->recipe.segment && !ebb__uid_map_get(&outermost->map, t->id, &value)) return true;
    bool read = r->recipe || (r->node && (ebb__node_needs(r->node) & EBB_IN(i)));
    return read && !ebb__saver_promise(t).segment;
}

static bool will_hold_out(const ebb__recording *r, const ebb_call *call, int j)
{
    for (const ebb__segment *s = call->ctx->segment; s; s = s->parent)
        if (s->saver != EBB_SAVER_RECOMPUTE) return true;
    return r->node && !call->ctx->segment && (ebb__node_needs(r->node) & EBB_OUT(j));
}

static ebb_status reserve_in(ebb__recording *r, const ebb_call *call, ebb_tensor *t, int i)
{
    ebb_storage *s = t->storage;
    if (!s->packer || s->base <= EBB_CAT_INPUT) return EBB_OK;
    ebb__pack_forget_stale(s);
    if (s->pack || !will_hold_in(r, call, t, i)) return EBB_OK;
    return ebb__pack_reserve(&r->packs[i], call->ctx, s->packer, s->bytes, t->dtype, s);
}

/* Row statistics are few bytes, and a rounding of them is an error of the whole row. */
static bool must_be_exact(const ebb_call *call, const ebb_packer *packer, int j)
{
    bool auxiliary = j >= call->n_out - call->op->n_aux;
    return auxiliary && (packer == &ebb__bf16_packer || packer == &ebb__int8_packer);
}

static ebb_status reserve_out(ebb__recording *r, const ebb_call *call, const ebb_packer *packer, int j)
{
    const ebb_arg *out = &call->out[j];
    if (must_be_exact(call, packer, j) || !will_hold_out(r, call, j)) return EBB_OK;
    return ebb__pack_reserve(&r->packs[EBB_MAX_IN + j], call->ctx, packer,
                             (size_t)out->elems * ebb_dtype_bytes(out->dtype), out->dtype, NULL);
}

ebb_status ebb__policy_reserve(ebb__recording *r, const ebb_call *call, ebb_tensor *const ins[])
{
    ebb_status st = EBB_OK;
    for (int i = 0; i < call->n_in && st == EBB_OK; i++) st = reserve_in(r, call, ins[i], i);
    const ebb_packer *packer = call->op->flags & EBB_OP_VIEW ? NULL : ebb__output_packer(call->ctx, call->op);
    for (int j = 0; j < call->n_out && packer && st == EBB_OK; j++) st = reserve_out(r, call, packer, j);
    return st;
}

void ebb__policy_attach(ebb__recording *r, ebb_tensor *const outs[])
{
    for (int j = 0; j < EBB_MAX_OUT; j++)
        if (r->packs[EBB_MAX_IN + j] && outs[j]) ebb__pack_attach(r->packs[EBB_MAX_IN + j], outs[j]->storage);
}

void ebb__saver_mark(const ebb_call *call, ebb_tensor *const outs[])
{
    if (call->op->flags & EBB_OP_VIEW) return;
    if (!call->ctx->segment && call->ctx->n_op_savers == 0 && !call->ctx->offloading) return;
    const ebb_packer *packer = ebb__output_packer(call->ctx, call->op);
    for (int j = 0; j < call->n_out; j++)
        if (outs[j]) outs[j]->storage->packer = packer;
}

void ebb__keep_unpacked(ebb_tensor *t)
{
    if (!t->storage->pack) t->storage->packer = NULL;
}
