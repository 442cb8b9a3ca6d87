/* Attention through cuDNN's graphs, which the stand-in evaluates, against plain sums; and what is not taken. */
#include "fake_device.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>
#include "device/cuda/cudnn.h"

typedef struct attention_case {
    int64_t batch, t_q, t_k, heads, kv_heads, head_dim;
    ebb_dtype dtype;
    bool causal, packed;
} attention_case;

static const attention_case cases[] = {
    { 2, 5, 5, 2, 2, 8, EBB_BF16, .causal = true },
    { 2, 5, 5, 2, 2, 8, EBB_BF16, .causal = true, .packed = true },
    { 1, 4, 7, 3, 3, 16, EBB_F16, .causal = false },
    { 2, 6, 6, 4, 2, 8, EBB_F16, .causal = true },
    { 1, 6, 6, 4, 1, 8, EBB_BF16, .packed = true },
    { 3, 16, 16, 4, 2, 8, EBB_BF16, .causal = true }, /* sums of rows beyond a block of 256 bytes */
};
enum { N_CASES = sizeof cases / sizeof *cases, Q = 0, K, V, N_PARTS };

/* q, k, v (and their gradients alike) as the op has them: of one tensor, or of three. */
typedef struct heads {
    int64_t offset[N_PARTS], row[N_PARTS], elems;
} heads;

static heads layout(const attention_case *c)
{
    int64_t q = c->heads * c->head_dim, kv = c->kv_heads * c->head_dim, all = q + 2 * kv;
    if (c->packed) return (heads){ { 0, q, q + kv }, { all, all, all }, c->batch * c->t_q * all };
    int64_t q_elems = c->batch * c->t_q * q, kv_elems = c->batch * c->t_k * kv;
    return (heads){ { 0, q_elems, q_elems + kv_elems }, { q, kv, kv }, q_elems + 2 * kv_elems };
}

typedef struct reference {
    double *in, *out, *lse, *dout, *din; /* in, din: as `heads` */
    heads at;
} reference;

static int64_t rows_of(const attention_case *c, int part) { return part == Q ? c->t_q : c->t_k; }

static int64_t element(const attention_case *c, const heads *at, int part, int64_t b, int64_t t, int64_t h, int64_t d)
{
    int64_t head = part == Q ? h : h / (c->heads / c->kv_heads);
    return at->offset[part] + (b * rows_of(c, part) + t) * at->row[part] + head * c->head_dim + d;
}

static int64_t out_element(const attention_case *c, int64_t b, int64_t t, int64_t h, int64_t d)
{
    return ((b * c->t_q + t) * c->heads + h) * c->head_dim + d;
}

static double dot(const attention_case *c, const double *x, int64_t i, const double *y, int64_t j)
{
    double sum = 0;
    for (int64_t d = 0; d < c->head_dim; d++) sum += x[i + d] * y[j + d];
    return sum;
}

/* One row of one head, forward and backward. */
static void row(const attention_case *c, reference *r, int64_t b, int64_t h, int64_t i)
{
    double scale = 1 / sqrt((double)c->head_dim), p[16], most = -INFINITY, sum = 0;
    int64_t seen = c->causal ? i + 1 : c->t_k, o = out_element(c, b, i, h, 0), q = element(c, &r->at, Q, b, i, h, 0);
    for (int64_t j = 0; j < seen; j++) {
        p[j] = scale * dot(c, r->in, q, r->in, element(c, &r->at, K, b, j, h, 0));
        most = fmax(most, p[j]);
    }
    for (int64_t j = 0; j < seen; j++) sum += exp(p[j] - most);
    r->lse[(b * c->heads + h) * c->t_q + i] = most + log(sum);
    for (int64_t j = 0; j < seen; j++) p[j] = exp(p[j] - most) / sum;
    for (int64_t j = 0; j < seen; j++)
        for (int64_t d = 0; d < c->head_dim; d++)
            r->out[o + d] += p[j] * r->in[element(c, &r->at, V, b, j, h, d)];
    double rows = dot(c, r->out, o, r->dout, o);
    for (int64_t j = 0; j < seen; j++) {
        double ds = p[j] * (dot(c, r->dout, o, r->in, element(c, &r->at, V, b, j, h, 0)) - rows) * scale;
        for (int64_t d = 0; d < c->head_dim; d++) {
            r->din[element(c, &r->at, V, b, j, h, d)] += p[j] * r->dout[o + d];
            r->din[element(c, &r->at, K, b, j, h, d)] += ds * r->in[q + d];
            r->din[q + d] += ds * r->in[element(c, &r->at, K, b, j, h, d)];
        }
    }
}

static double *rounded_random(int64_t n, ebb_dtype dtype, unsigned *seed)
{
    double *values = malloc((size_t)n * sizeof *values);
    for (int64_t i = 0; i < n; i++) {
        char bytes[8];
        fake_store(bytes, 0, dtype, fake_random(seed));
        values[i] = fake_load(bytes, 0, dtype);
    }
    return values;
}

static reference reference_new(const attention_case *c)
{
    unsigned seed = 5;
    int64_t out = c->batch * c->t_q * c->heads * c->head_dim;
    reference r = { .at = layout(c) };
    r.in = rounded_random(r.at.elems, c->dtype, &seed);
    r.dout = rounded_random(out, c->dtype, &seed);
    r.out = calloc((size_t)out, sizeof *r.out);
    r.din = calloc((size_t)r.at.elems, sizeof *r.din);
    r.lse = calloc((size_t)(c->batch * c->heads * c->t_q), sizeof *r.lse);
    for (int64_t b = 0; b < c->batch; b++)
        for (int64_t h = 0; h < c->heads; h++)
            for (int64_t i = 0; i < c->t_q; i++) row(c, &r, b, h, i);
    return r;
}

static void reference_free(reference *r)
{
    free(r->in), free(r->out), free(r->lse), free(r->dout), free(r->din);
}

/* ---- on the device ------------------------------------------------------------------------------------- */

static size_t bytes_of(int64_t n, ebb_dtype dtype) { return (size_t)n * fake_dtype_bytes(dtype); }

static void *put_values(fake_device *d, const double *values, int64_t n, ebb_dtype dtype)
{
    char *bytes = malloc(bytes_of(n, dtype));
    for (int64_t i = 0; i < n; i++) fake_store(bytes, i, dtype, values[i]);
    void *p = fake_new_from(d, bytes, bytes_of(n, dtype));
    free(bytes);
    return p;
}

static void near(fake_device *d, const char *what, const void *p, const double *expected, int64_t n, ebb_dtype dtype,
                 double slack)
{
    char *got = malloc(bytes_of(n, dtype));
    fake_get(d, got, p, bytes_of(n, dtype));
    for (int64_t i = 0; i < n; i++) {
        double is = fake_load(got, i, dtype);
        cr_assert(fabs(is - expected[i]) <= slack, "%s[%ld]: %g, not %g", what, (long)i, is, expected[i]);
    }
    free(got);
}

static ebb__cuda_heads part_of(const attention_case *c, const heads *at, char *base, int part)
{
    return (ebb__cuda_heads){ base + bytes_of(at->offset[part], c->dtype), at->row[part] };
}

static ebb__cuda_attention_call call_of(const attention_case *c, const heads *at, char *in, char *din)
{
    ebb__cuda_attention_call call = { .dtype = c->dtype, .batch = c->batch, .t_q = c->t_q, .t_k = c->t_k,
                                      .heads = c->heads, .kv_heads = c->kv_heads, .head_dim = c->head_dim,
                                      .scale = 1 / sqrt((double)c->head_dim), .causal = c->causal };
    call.q = part_of(c, at, in, Q), call.k = part_of(c, at, in, K), call.v = part_of(c, at, in, V);
    call.dq = part_of(c, at, din, Q), call.dk = part_of(c, at, din, K), call.dv = part_of(c, at, din, V);
    call.out.row_stride = call.dout.row_stride = c->heads * c->head_dim;
    return call;
}

static void check_case(fake_device *d, const attention_case *c)
{
    reference r = reference_new(c);
    double slack = c->dtype == EBB_BF16 ? 0.03 : 0.004;
    int64_t out = c->batch * c->t_q * c->heads * c->head_dim, rows = c->batch * c->heads * c->t_q;
    char *in = put_values(d, r.in, r.at.elems, c->dtype), *din = fake_new(d, bytes_of(r.at.elems, c->dtype));
    ebb__cuda_attention_call call = call_of(c, &r.at, in, din);
    bool taken;
    call.out.data = fake_new(d, bytes_of(out, c->dtype));
    call.dout.data = put_values(d, r.dout, out, c->dtype);
    plugin_ok(ebb__cuda_attention_forward(d->self, &call, &taken)); /* without statistics */
    cr_assert(taken);
    near(d, "out", call.out.data, r.out, out, c->dtype, slack);
    call.lse = fake_new(d, (size_t)rows * sizeof(float));
    plugin_ok(ebb__cuda_attention_forward(d->self, &call, &taken));
    cr_assert(taken);
    near(d, "lse", call.lse, r.lse, rows, EBB_F32, 1e-5);
    call.workspace_bytes = ebb__cuda_attention_workspace(&call);
    call.workspace = fake_new(d, call.workspace_bytes);
    plugin_ok(ebb__cuda_attention_backward(d->self, &call, &taken));
    cr_assert(taken);
    near(d, "gradient", din, r.din, r.at.elems, c->dtype, 2 * slack);
    fake_delete(d, call.workspace, call.workspace_bytes);
    fake_delete(d, call.lse, (size_t)rows * sizeof(float));
    fake_delete(d, call.dout.data, bytes_of(out, c->dtype));
    fake_delete(d, call.out.data, bytes_of(out, c->dtype));
    fake_delete(d, din, bytes_of(r.at.elems, c->dtype));
    fake_delete(d, in, bytes_of(r.at.elems, c->dtype));
    reference_free(&r);
}

Test(attention, the_graphs_are_attention_and_its_gradient)
{
    setenv("EBB_CUDA_ATTENTION", "fast", 1);
    with_fake(d, .deferred = true) {
        for (int i = 0; i < N_CASES; i++) check_case(&d, &cases[i]);
        cr_assert(fake_get_counts().cudnn_executions == 3 * N_CASES);
        long objects = fake_get_counts().cudnn_objects;
        check_case(&d, &cases[0]);
        cr_assert(fake_get_counts().cudnn_objects == objects, "plans are made once");
    }
}

/* ---- what is not taken ----------------------------------------------------------------------------------- */

static void not_taken(fake_device *d, const char *why, const ebb__cuda_attention_call *call, bool backward)
{
    bool taken = true;
    ebb_status st = backward ? ebb__cuda_attention_backward(d->self, call, &taken)
                             : ebb__cuda_attention_forward(d->self, call, &taken);
    cr_assert(st == EBB_OK && !taken, "%s was taken", why);
}

static void refuse_all(fake_device *d, bool fast)
{
    const attention_case *c = &cases[0];
    heads at = layout(c);
    size_t bytes = bytes_of(at.elems, EBB_F32);
    char *in = fake_new(d, bytes), *din = fake_new(d, bytes);
    ebb__cuda_attention_call good = call_of(c, &at, in, din), call = good;
    good.out.data = fake_new(d, bytes), good.dout.data = fake_new(d, bytes), good.lse = fake_new(d, bytes);
    good.workspace_bytes = ebb__cuda_attention_workspace(&good);
    good.workspace = fake_new(d, good.workspace_bytes);
#define REFUSED(why, backward, change) call = good, call.change, not_taken(d, why, &call, backward)
    REFUSED("f32", false, dtype = EBB_F32);
    REFUSED("an odd width of heads", false, head_dim = 12);
    REFUSED("wide heads", false, head_dim = 136);
    REFUSED("no rows", false, t_q = 0);
    REFUSED("causal with more keys", false, t_k = 6);
    REFUSED("an odd address", false, q.data = in + 2);
    REFUSED("an odd row", false, k.row_stride = 20);
    REFUSED("added gradients", true, accumulate = true);
    REFUSED("a gradient over dout", true, dout.data = good.dq.data);
    REFUSED("a gradient that is not wanted", true, dk.data = NULL);
    REFUSED("a small workspace", true, workspace_bytes = good.workspace_bytes - 1);
    if (!fast) not_taken(d, "a backward pass in no fixed order", &good, true);
    fake_delete(d, good.workspace, good.workspace_bytes);
    fake_delete(d, good.lse, bytes), fake_delete(d, good.dout.data, bytes), fake_delete(d, good.out.data, bytes);
    fake_delete(d, in, bytes), fake_delete(d, din, bytes);
}

Test(attention, what_cudnn_cannot_do_is_not_taken)
{
    with_fake(d) refuse_all(&d, false);
    setenv("EBB_CUDA_ATTENTION", "fast", 1);
    with_fake(d) refuse_all(&d, true);
}

/* Own kernels do it then. */
static void check_forward_taken(fake_device *d, bool expected, const char *what)
{
    const attention_case *c = &cases[0];
    heads at = layout(c);
    size_t bytes = bytes_of(at.elems, EBB_F32);
    char *in = fake_new(d, bytes), *out = fake_new(d, bytes);
    ebb__cuda_attention_call call = call_of(c, &at, in, in);
    bool taken = !expected;
    call.out.data = out;
    plugin_ok(ebb__cuda_attention_forward(d->self, &call, &taken));
    cr_assert(taken == expected, "%s", what);
    fake_delete(d, out, bytes);
    fake_delete(d, in, bytes);
}

Test(attention, engines_that_want_too_much_or_have_no_order_are_not_taken)
{
    with_fake(d) check_forward_taken(&d, true, "a good engine");
    with_fake(d, .engine = FAKE_ENGINE_GREEDY) check_forward_taken(&d, false, "one that wants too much");
    with_fake(d, .engine = FAKE_ENGINE_UNORDERED) check_forward_taken(&d, false, "one without an order");
    setenv("EBB_CUDA_ATTENTION", "fast", 1);
    with_fake(d, .engine = FAKE_ENGINE_UNORDERED) check_forward_taken(&d, true, "one without an order, as asked for");
}

Test(attention, own_kernels_can_be_asked_for)
{
    setenv("EBB_CUDA_ATTENTION", "own", 1);
    with_fake(d) cr_assert(!((ebb__cuda *)d.self)->attention);
}

/* ---- failures --------------------------------------------------------------------------------------------- */

static ebb_status both_passes(fake_device *d, void *arg)
{
    const attention_case *c = arg;
    heads at = layout(c);
    size_t bytes = bytes_of(at.elems, EBB_F32);
    ebb__cuda_attention_call call = { 0 };
    bool taken;
    char *all = d->memory.alloc(d->memory.self, 8 * bytes + (1 << 20));
    if (!all) return plugin_host()->fail(EBB_ENOMEM, "no memory");
    call = call_of(c, &at, all, all + bytes / 16 * 16 + 256);
    char *rest = all + 4 * (bytes / 16 * 16 + 256);
    call.out.data = rest, call.dout.data = rest, call.lse = (float *)(void *)(rest + (bytes / 16 * 16 + 256));
    call.workspace = rest + 2 * (bytes / 16 * 16 + 256), call.workspace_bytes = ebb__cuda_attention_workspace(&call);
    ebb_arg zeros = fake_arg(all, EBB_F32, (int64_t)(8 * bytes + (1 << 20)) / 4, 0, 0);
    ebb_status st = d->table->fill(d->self, &zeros, 0);
    if (st == EBB_OK) st = ebb__cuda_attention_forward(d->self, &call, &taken);
    if (st == EBB_OK) st = ebb__cuda_attention_backward(d->self, &call, &taken);
    if (st == EBB_OK) st = d->table->synchronize(d->self);
    d->memory.free(d->memory.self, all, 8 * bytes + (1 << 20));
    return st;
}

/* A graph that cannot be built is no error: own kernels do it. */
Test(attention, any_call_may_fail)
{
    setenv("EBB_CUDA_ATTENTION", "fast", 1);
    attention_case small = { 1, 2, 2, 1, 1, 8, EBB_BF16, .causal = true };
    long n = fake_sweep(both_passes, &small, (fake_changes){ 0 });
    cr_assert(n > 500, "%ld calls", n);
}
