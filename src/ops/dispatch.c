/* dispatch.c: from ebb_apply() to a kernel: check, infer, allocate, run, record, bind. */
#include <string.h>
#include <time.h>

#include "core/assert.h"
#include "core/mem.h"
#include "core/site.h"
#include "ops/accel_ops.h"
#include "ops/autocast.h"
#include "ops/kernels.h"
#include "ops/record.h"

ebb__threads *ebb__call_threads(const ebb_call *call) { return ebb__context_threads(call->ctx); }

/* What one ebb_apply() holds. */
typedef struct apply {
    ebb_call call;
    ebb_tensor *ins[EBB_MAX_IN];   /* counted: a hook may drop the caller's */
    ebb_tensor *outs[EBB_MAX_OUT]; /* counted until bound */
    ebb__recording recording;
} apply;

static void apply_drop(apply *a)
{
    for (int i = 0; i < a->call.n_in; i++) ebb_drop(&a->ins[i]);
    for (int j = 0; j < EBB_MAX_OUT; j++) ebb_drop(&a->outs[j]);
}

static ebb_status check_descriptor(const ebb_op *op)
{
    if (!op || !op->name) return ebb_fail(EBB_EINVAL, "apply: the op is NULL or has no name");
    if (op->min_in < 1 || op->max_in > EBB_MAX_IN || op->min_in > op->max_in)
        return ebb_fail(EBB_EINVAL, "%s: its descriptor takes %d to %d inputs, allowed are 1 to %d", op->name,
                        op->min_in, op->max_in, EBB_MAX_IN);
    if (op->n_out < 1 || op->n_out > EBB_MAX_OUT || op->n_aux < 0 || op->n_aux >= op->n_out)
        return ebb_fail(EBB_EINVAL,
                        "%s: its descriptor has %d outputs, %d of them auxiliary; allowed are 1 to %d outputs, "
                        "the first not auxiliary",
                        op->name, op->n_out, op->n_aux, EBB_MAX_OUT);
    if (!op->infer || (!op->cpu.forward && !(op->flags & EBB_OP_VIEW)))
        return ebb_fail(EBB_EINVAL, "%s: its descriptor has no %s", op->name, op->infer ? "forward kernel" : "infer");
    return EBB_OK;
}

/* What infer() left must be a tensor: a user's op may be wrong. */
static ebb_status check_inferred(ebb_call *c, const ebb_tensor *base)
{
    for (int j = 0; j < c->n_out; j++) {
        ebb_arg *out = &c->out[j];
        bool shaped = (unsigned)out->dtype < EBB_N_DTYPES && out->ndim >= 0 && out->ndim <= EBB_MAX_DIMS;
        if (!shaped || !ebb__dims_elems(&out->elems, out->ndim, out->dims))
            return ebb_fail(EBB_ESHAPE, "%s: infer() left output %d with a bad dtype, number of dimensions or size",
                            c->op->name, j);
        if (!(c->op->flags & EBB_OP_VIEW)) ebb__arg_contiguous(out);
    }
    if (!(c->op->flags & EBB_OP_VIEW) || !c->out[0].elems) return EBB_OK;
    int64_t last = base->offset + c->view_offset;
    bool inside = last >= 0 && c->out[0].dtype == base->dtype && c->n_out == 1;
    for (int i = 0; i < c->out[0].ndim && inside; i++) {
        int64_t span;
        inside = c->out[0].strides[i] >= 0 &&
                 !__builtin_mul_overflow(c->out[0].dims[i] - 1, c->out[0].strides[i], &span) &&
                 !__builtin_add_overflow(last, span, &last);
    }
    int64_t held = (int64_t)(base->storage->bytes / ebb_dtype_bytes(base->dtype));
    if (!inside || last >= held)
        return ebb_fail(EBB_ESHAPE, "%s: infer() left a view that reaches outside its input's storage", c->op->name);
    return EBB_OK;
}

static ebb_status check_arguments(const ebb_op *op, ebb_tensor **outs[], int n_outs, ebb_tensor *const ins[],
                                  int n_ins, size_t attrs_bytes)
{
    if (n_ins < op->min_in || n_ins > op->max_in || n_ins > EBB_MAX_IN)
        return ebb_fail(EBB_EINVAL, "%s: %d inputs, allowed are %d to %d", op->name, n_ins, op->min_in, op->max_in);
    if (n_outs < 1 || n_outs > op->n_out - op->n_aux)
        return ebb_fail(EBB_EINVAL, "%s: %d outputs asked for, it has %d", op->name, n_outs, op->n_out - op->n_aux);
    if (attrs_bytes > EBB_ATTR_BYTES)
        return ebb_fail(EBB_EINVAL, "%s: %zu bytes of attributes, allowed are %d", op->name, attrs_bytes,
                        EBB_ATTR_BYTES);
    for (int j = 0; j < n_outs; j++)
        for (int k = 0; k < j; k++)
            if (outs[j] && outs[j] == outs[k])
                return ebb_fail(EBB_EINVAL, "%s: outputs %d and %d are bound to one variable", op->name, k, j);
    for (int i = 0; i < n_ins; i++) {
        if (!ins[i]) return ebb_fail(EBB_EINVAL, "%s: input %d is NULL", op->name, i);
        if (ins[i]->ctx != ins[0]->ctx)
            return ebb_fail(EBB_EDEVICE, "%s: inputs 0 and %d belong to different contexts", op->name, i);
    }
    return EBB_OK;
}

static ebb_status check_dtypes(const ebb_op *op, ebb_tensor *const ins[], int n_ins)
{
    int first = -1;
    for (int i = 0; i < n_ins; i++) {
        if (op->no_grad_in & EBB_IN(i)) continue;
        if (first < 0) first = i;
        if (ins[i]->dtype != ins[first]->dtype)
            return ebb_fail(EBB_EDTYPE, "%s: input %d is %s, input %d is %s; cast first", op->name, first,
                            ebb_dtype_name(ins[first]->dtype), i, ebb_dtype_name(ins[i]->dtype));
    }
    return EBB_OK;
}

/* Inputs as the kernels want them: retained, of one dtype, contiguous unless the op reads strides. */
static ebb_status take_inputs(apply *a, const ebb_op *op, ebb_tensor *const ins[], int n_ins)
{
    for (int i = 0; i < n_ins; i++) {
        a->ins[i] = ebb_retain(ins[i]);
        a->call.n_in = i + 1;
    }
    ebb_status st = ebb__autocast_inputs(op, a->ins, n_ins);
    if (st == EBB_OK) st = check_dtypes(op, a->ins, n_ins);
    if (st != EBB_OK) return st;
    for (int i = 0; i < n_ins && !(op->flags & EBB_OP_STRIDED); i++) {
        if (ebb_tensor_is_contiguous(a->ins[i])) continue;
        st = ebb_contiguous(&a->ins[i], a->ins[i]);
        if (st != EBB_OK) return st;
    }
    for (int i = 0; i < n_ins; i++) ebb__tensor_arg(a->ins[i], &a->call.in[i]);
    return EBB_OK;
}

/* Writing over input 0 is safe when nobody else can see its bytes, now or later. */
static bool may_overwrite(const apply *a, ebb_tensor *const caller[], ebb_tensor **out)
{
    const ebb_call *c = &a->call;
    ebb_tensor *x = a->ins[0];
    if (!(c->op->flags & EBB_OP_INPLACE_OK) || out == NULL || *out != caller[0] || x != caller[0]) return false;
    if (a->recording.node || a->recording.in_segment || x->node || x->requires_grad || x->name) return false;
    if (atomic_load(&x->refs) != 2 || atomic_load(&x->storage->refs) != 1) return false; /* the caller's and ours */
    if (x->storage->base <= EBB_CAT_INPUT) return false;
    for (int i = 1; i < c->n_in; i++)
        if (a->ins[i]->storage == x->storage) return false;
    return c->in[0].dtype == c->out[0].dtype && ebb__arg_same_shape(&c->in[0], &c->out[0]) &&
           ebb_arg_is_contiguous(&c->in[0]);
}

static ebb_status allocate_outputs(apply *a, bool overwrite, const ebb__owner *owner)
{
    ebb_call *c = &a->call;
    for (int j = 0; j < c->n_out; j++) {
        bool aux = j >= c->n_out - c->op->n_aux;
        if (aux && !(a->recording.keep_out & EBB_OUT(j))) continue;
        ebb_status st;
        if (c->op->flags & EBB_OP_VIEW)
            st = ebb__tensor_over(&a->outs[j], a->ins[0]->storage, &c->out[j], a->ins[0]->offset + c->view_offset);
        else if (overwrite && j == 0)
            st = ebb__tensor_over(&a->outs[j], a->ins[0]->storage, &c->out[j], a->ins[0]->offset);
        else
            st = ebb__tensor_new(&a->outs[j], c->ctx, &c->out[j], owner);
        if (st != EBB_OK) return st;
        c->out[j].data = ebb_tensor_data(a->outs[j]);
    }
    return EBB_OK;
}

static double clock_ns(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec * 1e9 + (double)t.tv_nsec;
}

/* What the kernel has found stays the result.  A measured kernel is waited for. */
static ebb_status tell_meter(ebb_context *ctx, const ebb_call *c, int pass, const ebb__owner *owner,
                             const ebb_cost *cost, double start, ebb_status st)
{
    bool timed = ctx->meter->timed;
    if (timed && st == EBB_OK) st = ebb__device_synchronize(&ctx->device);
    ctx->meter->kernel(ctx->meter, c, pass, owner, cost, timed ? clock_ns() - start : 0);
    return st;
}

ebb_status ebb__run_kernel(ebb_call *c, int pass, const ebb__owner *owner, double *flops)
{
    const ebb_kernel *kernel = &c->op->cpu;
    ebb_context *ctx = c->ctx;
    ebb_cost cost = { 0 };
    if (c->op->cost) {
        c->op->cost(c, &cost);
        *flops += pass == EBB_FORWARD ? cost.fwd_flops : cost.bwd_flops;
    }
    size_t bytes = 0;
    if (ctx->device.accel) EBB__TRY(ebb__accel_workspace(&bytes, c, pass));
    else if (kernel->workspace) bytes = kernel->workspace(c, pass, ctx->device.n_threads);
    ebb__block *block = NULL;
    if (bytes) {
        ebb__owner scratch = *owner;
        scratch.category = EBB_CAT_WORKSPACE;
        ebb_status st = ebb__pool_alloc(ctx->pool, &block, bytes, 0, &scratch);
        if (st != EBB_OK) return st;
        c->workspace = ctx->device.dry ? NULL : ebb__block_data(block);
        c->workspace_bytes = bytes;
    }
    ebb_status st = EBB_OK;
    ebb_status (*run)(const ebb_call *) = pass == EBB_FORWARD ? kernel->forward : kernel->backward;
    double start = ctx->meter && ctx->meter->timed ? clock_ns() : 0;
    if (ctx->device.accel) st = ebb__accel_run(c, pass, owner);
    else if (!ctx->device.dry && run) st = run(c);
    if (ctx->meter) st = tell_meter(ctx, c, pass, owner, &cost, start, st);
    if (block) ebb__pool_release(ctx->pool, block);
    c->workspace = NULL;
    c->workspace_bytes = 0;
    return st;
}

static ebb_status apply_run(apply *a, ebb_tensor *const caller[], ebb_tensor **outs[])
{
    ebb_call *c = &a->call;
    ebb_status st = c->op->infer(c);
    if (st == EBB_OK) st = check_inferred(c, a->ins[0]);
    if (st != EBB_OK) return st;
    uint64_t draws = c->rng_offset; /* RANDOM: infer() left how many offsets it takes */
    if (c->op->flags & EBB_OP_RANDOM) {
        c->rng_seed = c->ctx->seed;
        c->rng_offset = c->ctx->rng_offset;
    }
    st = ebb__record_begin(&a->recording, c, a->ins);
    if (st != EBB_OK) return st;
    ebb__owner owner = ebb__owner_now(c->ctx, EBB_CAT_TEMPORARY, c->op->name);
    owner.node = a->recording.node ? ebb_node_seq(a->recording.node) : 0;
    bool overwrite = may_overwrite(a, caller, outs[0]);
    st = allocate_outputs(a, overwrite, &owner);
    if (st == EBB_OK && !(c->op->flags & EBB_OP_VIEW))
        st = ebb__run_kernel(c, EBB_FORWARD, &owner, &c->ctx->flops);
    if (st != EBB_OK) {
        ebb__record_abort(&a->recording);
        return st;
    }
    if (overwrite) ebb__storage_bump(a->ins[0]->storage);
    if (c->op->flags & EBB_OP_RANDOM) c->ctx->rng_offset += draws;
    ebb__record_commit(&a->recording, c, a->ins, a->outs);
    return EBB_OK;
}

ebb_status ebb_apply(const ebb_op *op, ebb_tensor **outs[], int n_outs, ebb_tensor *const ins[], int n_ins,
                     const void *attrs, size_t attrs_bytes)
{
    ebb_status st = check_descriptor(op);
    if (st != EBB_OK) return st;
    st = check_arguments(op, outs, n_outs, ins, n_ins, attrs_bytes);
    if (st != EBB_OK) return st;
    apply a;
    memset(&a, 0, sizeof a);
    a.call.op = op;
    a.call.ctx = ins[0]->ctx;
    a.call.n_out = op->n_out;
    if (attrs_bytes) memcpy(a.call.attrs, attrs, attrs_bytes);
    st = take_inputs(&a, op, ins, n_ins);
    if (st == EBB_OK) st = apply_run(&a, ins, outs);
    for (int j = 0; j < n_outs && st == EBB_OK; j++)
        if (outs[j]) ebb_move(outs[j], &a.outs[j]);
    apply_drop(&a);
    return st;
}

ebb_status ebb__contiguous_now(ebb_tensor **t, const ebb__owner *owner)
{
    if (ebb_tensor_is_contiguous(*t)) return EBB_OK;
    ebb_arg from, to;
    ebb__tensor_arg(*t, &from);
    EBB_LOCAL(copy);
    ebb_status st = ebb__tensor_new(&copy, (*t)->ctx, &from, owner);
    if (st != EBB_OK) return st;
    ebb__tensor_arg(copy, &to);
    st = ebb__arg_copy((*t)->ctx, &to, &from, "copy that makes a gradient contiguous");
    if (st == EBB_OK) ebb_move(t, &copy);
    return st;
}
