/* Does an op's `needs` name what its backward reads, no less and no more?
 * Calls are made by hand, so that all data is there whatever `needs` says.  Then each input and
 * output is spoiled in turn: where that changes a bit of the gradient, or fails, it was read. */
#include <stdio.h>
#include <string.h>

#include "ops/record.h"
#include "tensor/host_view.h"
#include "train/gradcheck.h"

typedef struct trial {
    ebb__probe probe;
    ebb_call call; /* after forward: every in, out and dout has data; nothing is wanted */
    ebb_tensor *ins[EBB_MAX_IN], *outs[EBB_MAX_OUT];
} trial;

/* ---- a call with all its data -------------------------------------------------------------- */

static ebb_status run_kernel(ebb_call *call, int pass)
{
    double flops = 0;
    ebb__owner owner = ebb__owner_now(call->ctx, EBB_CAT_TEMPORARY, call->op->name);
    return ebb__run_kernel(call, pass, &owner, &flops);
}

static ebb_status take_inputs(trial *t)
{
    bool as_it_is = t->call.op->flags & EBB_OP_STRIDED;
    EBB_TRY(ebb__probe_inputs(&t->probe, t->ins));
    for (int i = 0; i < t->call.n_in; i++) {
        if (!as_it_is) EBB_TRY(ebb_contiguous(&t->ins[i], t->ins[i]));
        ebb__tensor_arg(t->ins[i], &t->call.in[i]);
    }
    return EBB_OK;
}

static ebb_status forward(trial *t)
{
    ebb_call *c = &t->call;
    EBB_TRY(c->op->infer(c));
    c->rng_offset = 0;
    if (c->op->flags & EBB_OP_VIEW) {
        int64_t bytes = c->view_offset * (int64_t)ebb_dtype_bytes(c->in[0].dtype);
        c->out[0].data = (char *)c->in[0].data + bytes;
        return ebb__dims_elems(&c->out[0].elems, c->out[0].ndim, c->out[0].dims) ? EBB_OK
                                                                                : EBB_ESHAPE;
    }
    for (int j = 0; j < c->n_out; j++) {
        ebb_arg *out = &c->out[j];
        EBB_TRY(ebb_zeros(&t->outs[j], c->ctx, out->dtype, out->ndim, out->dims));
        ebb__tensor_arg(t->outs[j], out);
    }
    return run_kernel(c, EBB_FORWARD);
}

static ebb_status trial_begin(trial *t, ebb_context *ctx, const ebb_op *op, const ebb_op_case *c)
{
    memset(t, 0, sizeof(*t));
    t->call.op = op;
    t->call.ctx = ctx;
    t->call.n_in = c->n_in;
    t->call.n_out = op->n_out;
    t->call.rng_seed = 7;
    if (c->attrs) memcpy(t->call.attrs, c->attrs, c->attrs_bytes);
    EBB_TRY(ebb__probe_begin(&t->probe, ctx, op, c));
    EBB_TRY(ebb__probe_weigh(&t->probe)); /* so the op runs: what is made by hand below fits */
    EBB_TRY(take_inputs(t));
    EBB_TRY(forward(t));
    for (int j = 0; j < t->call.n_out; j++) {
        t->call.dout[j] = t->call.out[j];
        t->call.dout[j].data = NULL;
        if (t->probe.weights[j]) ebb__tensor_arg(t->probe.weights[j], &t->call.dout[j]);
    }
    return EBB_OK;
}

static void trial_end(trial *t)
{
    for (int i = 0; i < EBB_MAX_IN; i++) ebb_drop(&t->ins[i]);
    for (int j = 0; j < EBB_MAX_OUT; j++) ebb_drop(&t->outs[j]);
    ebb__probe_end(&t->probe);
}

/* ---- what is read -------------------------------------------------------------------------- */

/* The gradients of the inputs in the mask `want`; dins: EBB_MAX_IN variables. */
static ebb_status backward(const ebb_call *call, unsigned want, ebb_tensor *dins[])
{
    ebb_call c = *call;
    for (int i = 0; i < c.n_in; i++) {
        if (!(want & EBB_IN(i))) continue;
        EBB_TRY(ebb_zeros(&dins[i], c.ctx, c.in[i].dtype, c.in[i].ndim, c.in[i].dims));
        ebb__tensor_arg(dins[i], &c.din[i]);
        c.want[i] = true;
    }
    return run_kernel(&c, EBB_BACKWARD);
}

static void drop_all(ebb_tensor *dins[EBB_MAX_IN])
{
    for (int i = 0; i < EBB_MAX_IN; i++) ebb_drop(&dins[i]);
}

static size_t bytes_of(const ebb_tensor *t)
{
    return (size_t)ebb_tensor_elems(t) * ebb_dtype_bytes(ebb_tensor_dtype(t));
}

static ebb_status compare(bool *same, const ebb_tensor *a, const ebb_tensor *b)
{
    ebb__host_view x, y;
    EBB_TRY(ebb__host_view_of(&x, a, EBB__VIEW_READ));
    ebb_status st = ebb__host_view_of(&y, b, EBB__VIEW_READ);
    if (st == EBB_OK && bytes_of(a) > 0 && memcmp(x.data, y.data, bytes_of(a))) *same = false;
    if (st == EBB_OK) st = ebb__host_view_close(&y, st);
    return ebb__host_view_close(&x, st);
}

/* Errors: what the kernels that made them found. */
static ebb_status same_bits(bool *same, ebb_tensor *const a[EBB_MAX_IN], ebb_tensor *const b[EBB_MAX_IN])
{
    *same = true;
    for (int i = 0; i < EBB_MAX_IN; i++)
        if (a[i]) EBB_TRY(compare(same, a[i], b[i]));
    return EBB_OK;
}

/* Of the element number `e` in row-major order. */
static size_t byte_offset(const ebb_arg *arg, int64_t e)
{
    int64_t at = 0;
    for (int d = arg->ndim - 1; d >= 0; e /= arg->dims[d--])
        at += e % arg->dims[d] * arg->strides[d];
    return (size_t)at * ebb_dtype_bytes(arg->dtype);
}

/* Puts a spoiled copy in place of arg's data: floats are NaN; integers, which may be indices, are
 * each the next one's value, so that they stay in range.  *held keeps the bytes. */
static ebb_status spoil(ebb_arg *arg, ebb_context *ctx, ebb_tensor **held)
{
    size_t each = ebb_dtype_bytes(arg->dtype);
    int64_t span = (int64_t)(byte_offset(arg, arg->elems - 1) / each) + 1;
    EBB_TRY(ebb_zeros(held, ctx, arg->dtype, 1, &span));
    ebb__host_view to, from;
    EBB_TRY(ebb__host_view_open(&from, ctx, arg->data, bytes_of(*held), EBB__VIEW_READ));
    ebb_status st = ebb__host_view_of(&to, *held, EBB__VIEW_CHANGE);
    if (st == EBB_OK) {
        if (ebb_dtype_is_float(arg->dtype)) memset(to.data, 0xFF, to.bytes); /* a NaN in each dtype */
        for (int64_t e = 0; e < arg->elems && !ebb_dtype_is_float(arg->dtype); e++)
            memcpy((char *)to.data + byte_offset(arg, e),
                   (char *)from.data + byte_offset(arg, (e + 1) % arg->elems), each);
        st = ebb__host_view_close(&to, st);
    }
    arg->data = ebb_tensor_data(*held);
    return ebb__host_view_close(&from, st);
}

/* Is the argument (EBB_IN(i) or EBB_OUT(j)) read for the wanted gradients, which are `right`? */
static ebb_status is_read(bool *read, const trial *t, uint32_t argument, unsigned want,
                          ebb_tensor *const right[EBB_MAX_IN])
{
    ebb_call c = t->call;
    ebb_tensor *dins[EBB_MAX_IN] = { NULL };
    EBB_LOCAL(held);
    int index = __builtin_ctz(argument);
    ebb_arg *arg = argument < EBB_OUT(0) ? &c.in[index] : &c.out[index - 8];
    if (arg->elems == 0) return EBB_OK;
    EBB_TRY(spoil(arg, c.ctx, &held));
    bool same = false;
    ebb_status st = backward(&c, want, dins);
    if (st == EBB_OK) st = same_bits(&same, right, dins);
    *read = st != EBB_OK || !same;
    drop_all(dins);
    return st == EBB_ENOMEM ? st : EBB_OK;
}

static ebb_status all_read(uint32_t *mask, const trial *t, unsigned want,
                           ebb_tensor *const right[EBB_MAX_IN])
{
    for (int k = 0; k < t->call.n_in + t->call.n_out; k++) {
        bool read = false;
        uint32_t argument = k < t->call.n_in ? EBB_IN(k) : EBB_OUT(k - t->call.n_in);
        EBB_TRY(is_read(&read, t, argument, want, right));
        if (read) *mask |= argument;
    }
    return EBB_OK;
}

/* ---- against needs ------------------------------------------------------------------------- */

/* "input 1", "output 0": the first of a mask that is not empty. */
static const char *first_name(uint32_t mask, char buf[24])
{
    int index = __builtin_ctz(mask);
    snprintf(buf, 24, index < 8 ? "input %d" : "output %d", index < 8 ? index : index - 8);
    return buf;
}

/* Notes what the gradients in `want` read; the first lack is kept. */
static ebb_status try_want(ebb__needs *needs, const trial *t, unsigned want)
{
    ebb_tensor *right[EBB_MAX_IN] = { NULL };
    uint32_t read = 0, declared = 0;
    char name[24];
    ebb_status st = backward(&t->call, want, right);
    if (st == EBB_OK) st = all_read(&read, t, want, right);
    drop_all(right);
    if (st != EBB_OK) return st;
    for (int i = 0; i < t->call.n_in; i++)
        if (want & EBB_IN(i)) declared |= t->call.op->needs[i];
    if ((read & ~declared) && !needs->lacking[0])
        snprintf(needs->lacking, sizeof(needs->lacking),
                 "%.40s: needs[%d] lacks %s, which the gradient of input %d reads in case \"%.40s\"",
                 t->call.op->name, __builtin_ctz(want), first_name(read & ~declared, name),
                 __builtin_ctz(want), t->probe.op_case->name ? t->probe.op_case->name : "");
    if (want & (want - 1)) return EBB_OK; /* several: who reads what is not told apart */
    needs->read[__builtin_ctz(want)] |= read;
    needs->tried[__builtin_ctz(want)] |= t->probe.out_elems > 0;
    return EBB_OK;
}

static ebb_status try_all(ebb__needs *needs, const trial *t)
{
    unsigned all = 0;
    for (int i = 0; i < t->call.n_in; i++) {
        if (!t->probe.in[i].differentiable || t->call.in[i].elems == 0) continue;
        all |= EBB_IN(i);
        EBB_TRY(try_want(needs, t, EBB_IN(i)));
    }
    bool joint = t->call.op->flags & EBB_OP_JOINT && (all & (all - 1));
    return joint ? try_want(needs, t, all) : EBB_OK;
}

ebb_status ebb__needs_check(ebb__needs *needs, ebb_context *ctx, const ebb_op *op)
{
    EBB_WITH_MODE(EBB_NO_GRAD);
    for (int i = 0; i < op->n_cases && !(op->flags & EBB_OP_NO_GRAD); i++) {
        if (op->cases[i].expect != EBB_OK) continue;
        trial t;
        ebb_status st = trial_begin(&t, ctx, op, &op->cases[i]);
        if (st == EBB_OK) st = try_all(needs, &t);
        trial_end(&t);
        if (st == EBB_ENOMEM) return st;
    }
    return EBB_OK;
}

bool ebb__needs_surplus(const ebb__needs *needs, const ebb_op *op, char *text, size_t text_bytes)
{
    char name[24];
    for (int i = 0; i < op->max_in; i++) {
        uint32_t surplus = needs->tried[i] ? op->needs[i] & ~needs->read[i] : 0;
        if (!surplus) continue;
        snprintf(text, text_bytes,
                 "%s: needs[%d] names %s, which the gradient of input %d reads in no case",
                 op->name, i, first_name(surplus, name), i);
        return true;
    }
    return false;
}
