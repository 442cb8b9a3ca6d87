/* ops/case_call.c: making and running calls by hand. */
#include "ops/case_call.h"

#include "core/half.h"
#include <criterion/criterion.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

enum { GUARD_BYTES = 64, GUARD = 0xA5 };

/* ---- elements ---------------------------------------------------------------------------- */

static int64_t offset_of(const ebb_arg *arg, int64_t i)
{
    int64_t at = 0;
    for (int d = arg->ndim - 1; d >= 0; d--) {
        at += i % arg->dims[d] * arg->strides[d];
        i /= arg->dims[d];
    }
    return at;
}

double case_get(const ebb_arg *arg, int64_t i)
{
    const char *p =
        (const char *)arg->data + offset_of(arg, i) * (int64_t)ebb_dtype_bytes(arg->dtype);
    switch (arg->dtype) {
    case EBB_F32: return (double)*(const float *)(const void *)p;
    case EBB_F64: return *(const double *)(const void *)p;
    case EBB_F16: return (double)ebb__f16_to_f32(*(const uint16_t *)(const void *)p);
    case EBB_BF16: return (double)ebb__bf16_to_f32(*(const uint16_t *)(const void *)p);
    case EBB_I32: return *(const int32_t *)(const void *)p;
    case EBB_I64: return (double)*(const int64_t *)(const void *)p;
    default: return *(const uint8_t *)p;
    }
}

void case_set(const ebb_arg *arg, int64_t i, double value)
{
    char *p = (char *)arg->data + offset_of(arg, i) * (int64_t)ebb_dtype_bytes(arg->dtype);
    switch (arg->dtype) {
    case EBB_F32: *(float *)(void *)p = (float)value; break;
    case EBB_F64: *(double *)(void *)p = value; break;
    case EBB_F16: *(uint16_t *)(void *)p = ebb__f32_to_f16((float)value); break;
    case EBB_BF16: *(uint16_t *)(void *)p = ebb__f32_to_bf16((float)value); break;
    case EBB_I32: *(int32_t *)(void *)p = (int32_t)value; break;
    case EBB_I64: *(int64_t *)(void *)p = (int64_t)value; break;
    default: *(uint8_t *)p = (uint8_t)value;
    }
}

/* ---- values: a small generator, so that every dtype gets the same ones ----------------------- */

static double draw(uint64_t *state) /* uniform in [0, 1) */
{
    *state = *state * UINT64_C(6364136223846793005) + UINT64_C(1442695040888963407);
    return (double)(*state >> 11) * 0x1p-53;
}

static double draw_kind(uint64_t *state, enum ebb_case_kind kind, int64_t max)
{
    double u = draw(state), v = draw(state);
    switch (kind) {
    case EBB_CASE_NORMAL: return sqrt(-2 * log(1 - u)) * cos(6.283185307179586 * v);
    case EBB_CASE_POSITIVE: return 0.5 + 1.5 * u;
    case EBB_CASE_AWAY: return (v < 0.5 ? -1 : 1) * (0.1 + 1.9 * u);
    case EBB_CASE_INDEX: return floor(u * (double)max);
    case EBB_CASE_LABEL: return floor(u * (double)(max + 1)) - 1;
    default: return u < 0.5 ? 0 : 1;
    }
}

/* ---- buffers ------------------------------------------------------------------------------ */

/* Row-major, or with the dims in reverse order in memory and a gap after each. */
static case_buffer buffer_make(ebb_dtype dtype, int ndim, const int64_t *dims, bool strided)
{
    case_buffer b = { 0 };
    ebb_status st = ebb_arg_set(&b.arg, dtype, ndim, dims);
    cr_assert(st == EBB_OK, "%s", ebb_message());
    int64_t span = b.arg.elems;
    if (strided) {
        span = 1;
        for (int d = 0; d < ndim; d++) {
            b.arg.strides[d] = span;
            span *= dims[d] + 1;
        }
    }
    size_t bytes = (size_t)span * ebb_dtype_bytes(dtype);
    b.base = malloc(bytes + 1);
    memset(b.base, 0xFF, bytes + 1); /* NaN in every float dtype */
    b.arg.data = b.base;
    return b;
}

static case_buffer buffer_like(const ebb_arg *arg, bool strided)
{
    return buffer_make(arg->dtype, arg->ndim, arg->dims, strided);
}

void case_buffer_free(case_buffer *b)
{
    free(b->base);
    b->base = NULL;
}

/* ---- calls -------------------------------------------------------------------------------- */

static ebb_dtype dtype_of(enum ebb_case_kind kind, ebb_dtype dtype)
{
    if (kind == EBB_CASE_INDEX || kind == EBB_CASE_LABEL) return EBB_I32;
    return kind == EBB_CASE_MASK ? EBB_U8 : dtype;
}

ebb_status case_make(case_call *t, const ebb_op *op, const ebb_op_case *c, ebb_dtype dtype,
                     ebb_context *ctx)
{
    memset(t, 0, sizeof *t);
    t->c = c;
    t->call.op = op;
    t->call.ctx = ctx;
    t->call.n_in = c->n_in;
    t->call.n_out = op->n_out;
    if (c->attrs) memcpy(t->call.attrs, c->attrs, c->attrs_bytes);
    for (int i = 0; i < c->n_in; i++) {
        const ebb_case_in *in = &c->in[i];
        bool strided =
            in->strided && op->flags & EBB_OP_STRIDED; /* else the dispatcher copies it first */
        t->in[i] = buffer_make(dtype_of(in->kind, dtype), in->ndim, in->dims, strided);
        uint64_t state = (uint64_t)i + 17;
        for (int64_t k = 0; k < t->in[i].arg.elems; k++) {
            case_set(&t->in[i].arg, k, draw_kind(&state, in->kind, in->max));
        }
        t->call.in[i] = t->in[i].arg;
    }
    ebb_status st = op->infer(&t->call);
    if (op->flags & EBB_OP_RANDOM) {
        t->call.rng_seed = 7;
        t->call.rng_offset = 3;
    }
    return st;
}

/* A pass on a copy of the record, with a workspace of exactly the size asked for. */
static void run(const ebb_call *call, int pass)
{
    ebb_call c = *call;
    const ebb_kernel *kernel = &c.op->cpu;
    size_t bytes = kernel->workspace ? kernel->workspace(&c, pass, ebb_context_threads(c.ctx)) : 0;
    unsigned char *scratch = aligned_alloc(64, (bytes + 63) / 64 * 64 + GUARD_BYTES);
    memset(scratch, 0xFF, bytes);
    memset(scratch + bytes, GUARD, GUARD_BYTES);
    c.workspace = bytes ? scratch : NULL;
    c.workspace_bytes = bytes;
    ebb_status st = (pass == EBB_FORWARD ? kernel->forward : kernel->backward)(&c);
    cr_assert(st == EBB_OK, "%s: %s", c.op->name, ebb_message());
    for (size_t i = bytes; i < bytes + GUARD_BYTES; i++) {
        cr_assert(scratch[i] == GUARD, "%s: wrote past its workspace of %zu bytes", c.op->name,
                  bytes);
    }
    free(scratch);
}

static void forward_over(case_call *t)
{
    ebb_call *c = &t->call;
    if (c->op->flags & EBB_OP_VIEW) {
        c->out[0].data =
            (char *)c->in[0].data + c->view_offset * (int64_t)ebb_dtype_bytes(c->in[0].dtype);
    } else {
        run(c, EBB_FORWARD);
    }
}

void case_forward(case_call *t)
{
    for (int j = 0; j < t->call.n_out && !(t->call.op->flags & EBB_OP_VIEW); j++) {
        t->out[j] = buffer_like(&t->call.out[j], false);
        t->call.out[j].data = t->out[j].base;
    }
    forward_over(t);
}

void case_make_douts(case_call *t)
{
    const ebb_op *op = t->call.op;
    for (int j = 0; j < op->n_out; j++) {
        t->call.dout[j] = t->call.out[j];
        t->call.dout[j].data = NULL;
        if (j >= op->n_out - op->n_aux) continue;
        t->dout[j] =
            buffer_like(&t->call.out[j], t->c->in[0].strided && op->flags & EBB_OP_STRIDED);
        uint64_t state = 1000 + (uint64_t)j;
        for (int64_t k = 0; k < t->dout[j].arg.elems; k++) {
            case_set(&t->dout[j].arg, k, draw_kind(&state, EBB_CASE_NORMAL, 0));
        }
        t->call.dout[j] = t->dout[j].arg;
    }
}

bool case_has_gradient(const case_call *t, int i)
{
    const ebb_op *op = t->call.op;
    return !(op->flags & EBB_OP_NO_GRAD) && !(op->no_grad_in & EBB_IN(i)) && !t->c->in[i].no_grad &&
           ebb_dtype_is_float(t->call.in[i].dtype);
}

/* The record of a backward for input i: NULL where `needs` names nothing. */
static ebb_call backward_call(const case_call *t, int i)
{
    ebb_call c = t->call;
    uint32_t needs = c.op->needs[i];
    for (int k = 0; k < c.n_in && c.op->flags & EBB_OP_JOINT; k++) {
        if (case_has_gradient(t, k)) needs |= c.op->needs[k];
    }
    for (int k = 0; k < c.n_in; k++) {
        if (!(needs & EBB_IN(k))) c.in[k].data = NULL;
    }
    for (int j = 0; j < c.n_out; j++) {
        if (!(needs & EBB_OUT(j))) c.out[j].data = NULL;
    }
    return c;
}

case_buffer case_backward(case_call *t, int i, bool accumulate, double start)
{
    ebb_call c = backward_call(t, i);
    case_buffer dins[EBB_MAX_IN] = { 0 };
    for (int k = 0; k < c.n_in; k++) {
        c.want[k] = k == i || (c.op->flags & EBB_OP_JOINT && case_has_gradient(t, k));
        if (!c.want[k]) continue;
        dins[k] = buffer_like(&c.in[k], false);
        for (int64_t e = 0; accumulate && e < dins[k].arg.elems; e++)
            case_set(&dins[k].arg, e, start);
        c.din[k] = dins[k].arg;
        c.accumulate[k] = accumulate;
    }
    run(&c, EBB_BACKWARD);
    for (int k = 0; k < c.n_in; k++) {
        if (k != i) case_buffer_free(&dins[k]);
    }
    return dins[i];
}

double case_loss(case_call *t)
{
    forward_over(t);
    double loss = 0;
    for (int j = 0; j < t->call.n_out; j++) {
        if (!t->call.dout[j].data) continue;
        for (int64_t k = 0; k < t->call.out[j].elems; k++) {
            loss += case_get(&t->call.dout[j], k) * case_get(&t->call.out[j], k);
        }
    }
    return loss;
}

static bool same_shape(const ebb_arg *a, const ebb_arg *b)
{
    return a->dtype == b->dtype && a->ndim == b->ndim &&
           memcmp(a->dims, b->dims, (size_t)a->ndim * sizeof a->dims[0]) == 0;
}

bool case_forward_in_place(case_call *t, case_buffer *result)
{
    ebb_call c = t->call;
    if (!(c.op->flags & EBB_OP_INPLACE_OK) || !same_shape(&c.in[0], &c.out[0])) return false;
    *result = buffer_like(&c.in[0], false);
    for (int64_t k = 0; k < c.in[0].elems; k++)
        case_set(&result->arg, k, case_get(&t->call.in[0], k));
    c.in[0] = c.out[0] = result->arg;
    run(&c, EBB_FORWARD);
    return true;
}

bool case_backward_over_dout(case_call *t, case_buffer *result)
{
    if (!(t->call.op->flags & EBB_OP_GRAD_OVER_DOUT) || !case_has_gradient(t, 0)) return false;
    if (t->call.op->flags & EBB_OP_JOINT || !same_shape(&t->call.in[0], &t->call.out[0]))
        return false;
    ebb_call c = backward_call(t, 0);
    *result = buffer_like(&c.dout[0], false);
    for (int64_t k = 0; k < c.dout[0].elems; k++)
        case_set(&result->arg, k, case_get(&t->call.dout[0], k));
    c.want[0] = true;
    c.din[0] = c.dout[0] = result->arg;
    run(&c, EBB_BACKWARD);
    return true;
}

void case_free(case_call *t)
{
    for (int i = 0; i < EBB_MAX_IN; i++) case_buffer_free(&t->in[i]);
    for (int j = 0; j < EBB_MAX_OUT; j++) {
        case_buffer_free(&t->out[j]);
        case_buffer_free(&t->dout[j]);
    }
}
