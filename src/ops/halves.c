/* Widening and narrowing of half-precision operands. */
#include "ops/halves.h"

#include "core/half.h"

enum { GRAIN = 1 << 14 }; /* elements per range */

ebb_status ebb__require_float_dtype(const ebb_call *call, int i)
{
    ebb_dtype dtype = call->in[i].dtype;
    if (ebb_dtype_is_float(dtype)) return EBB_OK;
    return ebb_fail(EBB_EDTYPE, "%s: input %d is %s; it must be f32, f64, f16 or bf16", call->op->name, i,
                    ebb_dtype_name(dtype));
}

void ebb__halves_widen_row(float *to, const void *from, ebb_dtype dtype, int64_t n)
{
    const uint16_t *half = from;
    if (dtype == EBB_F16) {
        for (int64_t i = 0; i < n; i++) to[i] = ebb__f16_to_f32(half[i]);
    } else {
        for (int64_t i = 0; i < n; i++) to[i] = ebb__bf16_to_f32(half[i]);
    }
}

void ebb__halves_narrow_row(void *to, const float *from, ebb_dtype dtype, int64_t n)
{
    uint16_t *half = to;
    if (dtype == EBB_F16) {
        for (int64_t i = 0; i < n; i++) half[i] = ebb__f32_to_f16(from[i]);
    } else {
        for (int64_t i = 0; i < n; i++) half[i] = ebb__f32_to_bf16(from[i]);
    }
}

typedef struct conversion {
    float *wide;
    uint16_t *half;
    ebb_dtype dtype;
} conversion;

static void widen_range(void *arg, int64_t begin, int64_t end, int thread)
{
    (void)thread;
    const conversion *c = arg;
    ebb__halves_widen_row(c->wide + begin, c->half + begin, c->dtype, end - begin);
}

static void narrow_range(void *arg, int64_t begin, int64_t end, int thread)
{
    (void)thread;
    const conversion *c = arg;
    ebb__halves_narrow_row(c->half + begin, c->wide + begin, c->dtype, end - begin);
}

void ebb__halves_widen(const ebb_call *call, float *to, const void *from, ebb_dtype dtype, int64_t n)
{
    conversion c = { .wide = to, .half = (uint16_t *)(uintptr_t)from, .dtype = dtype };
    ebb_parallel(call, n, GRAIN, widen_range, &c);
}

void ebb__halves_narrow(const ebb_call *call, void *to, const float *from, ebb_dtype dtype, int64_t n)
{
    conversion c = { .wide = (float *)(uintptr_t)from, .half = to, .dtype = dtype };
    ebb_parallel(call, n, GRAIN, narrow_range, &c);
}

/* ---- kernels for f32, on halves ---------------------------------------------------------------- */

enum { MAX_OPERANDS = 2 * (EBB_MAX_IN + EBB_MAX_OUT) };

/* One half operand of a pass. */
typedef struct operand {
    ebb_arg *arg;
    bool result, reads; /* written by the kernel; read by it (a gradient that is added to is both) */
} operand;

static void add_half(operand list[MAX_OPERANDS], int *n, ebb_arg *arg, bool result, bool reads)
{
    if (ebb__is_half(arg->dtype)) list[(*n)++] = (operand){ arg, result, reads };
}

/* By shapes and `needs`, never by data, which a dry device has not. */
static int list_halves(operand list[MAX_OPERANDS], ebb_call *c, int pass)
{
    uint32_t read = pass == EBB_FORWARD ? ~0u : 0;
    int n = 0;
    for (int i = 0; i < c->n_in && pass == EBB_BACKWARD; i++) read |= c->want[i] ? c->op->needs[i] : 0;
    for (int i = 0; i < c->n_in; i++)
        if (read & EBB_IN(i)) add_half(list, &n, &c->in[i], false, true);
    for (int j = 0; j < c->n_out; j++)
        if (read & EBB_OUT(j)) add_half(list, &n, &c->out[j], pass == EBB_FORWARD, pass == EBB_BACKWARD);
    for (int j = 0; j < c->n_out - c->op->n_aux && pass == EBB_BACKWARD; j++)
        add_half(list, &n, &c->dout[j], false, true);
    for (int i = 0; i < c->n_in && pass == EBB_BACKWARD; i++)
        if (c->want[i]) add_half(list, &n, &c->din[i], true, c->accumulate[i]);
    return n;
}

static size_t copy_bytes(const ebb_arg *arg) { return (size_t)(arg->elems + 15) / 16 * 64; }

static void call_it_f32(ebb_call *c)
{
    for (int i = 0; i < c->n_in; i++) {
        if (ebb__is_half(c->in[i].dtype)) c->in[i].dtype = EBB_F32;
        if (ebb__is_half(c->din[i].dtype)) c->din[i].dtype = EBB_F32;
    }
    for (int j = 0; j < c->n_out; j++) {
        if (ebb__is_half(c->out[j].dtype)) c->out[j].dtype = EBB_F32;
        if (ebb__is_half(c->dout[j].dtype)) c->dout[j].dtype = EBB_F32;
    }
}

size_t ebb__halves_workspace(const ebb_call *call, int pass, int threads,
                             size_t (*own)(const ebb_call *call, int pass, int threads))
{
    operand list[MAX_OPERANDS];
    ebb_call wide = *call;
    int n = list_halves(list, &wide, pass);
    size_t bytes = 0;
    for (int k = 0; k < n; k++) bytes += copy_bytes(list[k].arg);
    call_it_f32(&wide);
    return bytes + (own ? own(&wide, pass, threads) : 0);
}

ebb_status ebb__halves_run(const ebb_call *call, int pass, ebb_status (*kernel)(const ebb_call *call))
{
    operand list[MAX_OPERANDS];
    ebb_arg half[MAX_OPERANDS]; /* as the caller sees them */
    ebb_call wide = *call;
    int n = list_halves(list, &wide, pass);
    char *free_at = call->workspace;
    if (n == 0) return kernel(call);
    for (int k = 0; k < n; k++) {
        ebb_arg *arg = list[k].arg;
        half[k] = *arg;
        if (!arg->data) continue; /* an output without a gradient */
        if (list[k].reads) ebb__halves_widen(call, (float *)(void *)free_at, arg->data, arg->dtype, arg->elems);
        arg->data = free_at;
        free_at += copy_bytes(arg);
    }
    call_it_f32(&wide);
    wide.workspace = free_at;
    ebb_status st = kernel(&wide);
    for (int k = 0; k < n && st == EBB_OK; k++)
        if (list[k].result && half[k].data)
            ebb__halves_narrow(call, half[k].data, list[k].arg->data, half[k].dtype, half[k].elems);
    return st;
}
