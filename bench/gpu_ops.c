/* gpu_ops: every op on a device against the CPU: forward and gradients of each of the op's cases, in each float
 * dtype, through the public interface.  Prints one JSON object; exit status 1 where an op differs.
 *
 *   gpu_ops [DEVICE]      default: cuda
 *
 * Results are compared by norm: |got - want| <= tolerance (|want| + 0.1 sqrt(n)), since gradients may cancel. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <ebb/autograd.h>
#include <ebb/context.h>
#include <ebb/ops.h>

/* Ends the function on an error, which stays in ebb_message(). */
#define TRY(call)                               \
    do {                                        \
        ebb_status st_ = (call);                \
        if (st_ != EBB_OK) return st_;          \
    } while (0)

enum { CPU, DEVICE, N_SIDES };

static const struct { ebb_dtype dtype; double tolerance; } dtypes[] = {
    { EBB_F32, 1e-5 }, { EBB_F64, 1e-11 }, { EBB_F16, 2e-3 }, { EBB_BF16, 1e-2 },
};
enum { N_DTYPES = (int)(sizeof dtypes / sizeof dtypes[0]) };

/* ---- values ---------------------------------------------------------------------------------- */

static double uniform(uint64_t *state) /* in [0, 1) */
{
    *state = *state * UINT64_C(6364136223846793005) + UINT64_C(1442695040888963407);
    return (double)(*state >> 11) * 0x1p-53;
}

static double draw(uint64_t *state, enum ebb_case_kind kind, int64_t max)
{
    double u = uniform(state), v = uniform(state);
    switch (kind) {
    case EBB_CASE_NORMAL: return sqrt(-2 * log(1 - u)) * cos(6.283185307179586 * v);
    case EBB_CASE_POSITIVE: return 0.5 + 1.5 * u;
    case EBB_CASE_AWAY: return (v < 0.5 ? -1 : 1) * (0.1 + 1.9 * u);
    case EBB_CASE_INDEX: return floor(u * (double)max);
    case EBB_CASE_LABEL: return floor(u * (double)(max + 1)) - 1;
    default: return u < 0.5 ? 0 : 1;
    }
}

static int64_t product(int ndim, const int64_t *dims)
{
    int64_t n = 1;
    for (int d = 0; d < ndim; d++) n *= dims[d];
    return n;
}

/* A tensor of `dtype` in ctx with values drawn from `seed`; rounded on the CPU, so that both sides get the same. */
static ebb_status make(ebb_tensor **out, ebb_context *ctx, ebb_context *cpu, ebb_dtype dtype, int ndim,
                       const int64_t *dims, enum ebb_case_kind kind, int64_t max, uint64_t seed)
{
    int64_t n = product(ndim, dims);
    size_t bytes = (size_t)n * ebb_dtype_bytes(dtype);
    double *wide = malloc((size_t)n * sizeof *wide + 1);
    int32_t *whole = malloc((size_t)n * sizeof *whole + 1);
    void *data = malloc(bytes + 1);
    for (int64_t i = 0; i < n; i++) {
        wide[i] = draw(&seed, kind, max);
        whole[i] = (int32_t)wide[i];
    }
    EBB_LOCAL(source);
    EBB_LOCAL(rounded);
    bool is_float = ebb_dtype_is_float(dtype);
    ebb_status st = ebb_from_data(&source, cpu, is_float ? EBB_F64 : EBB_I32, ndim, dims,
                                  is_float ? (void *)wide : (void *)whole);
    if (st == EBB_OK) st = ebb_cast(&rounded, source, dtype);
    if (st == EBB_OK) st = ebb_read(rounded, data, bytes);
    if (st == EBB_OK) st = ebb_from_data(out, ctx, dtype, ndim, dims, data);
    free(wide);
    free(whole);
    free(data);
    return st;
}

/* A tensor's elements as f64.  Owner: the caller; free(). */
static ebb_status values_of(double **out, const ebb_tensor *t, ebb_context *cpu)
{
    int64_t n = ebb_tensor_elems(t);
    size_t bytes = (size_t)n * ebb_dtype_bytes(ebb_tensor_dtype(t));
    void *data = malloc(bytes + 1);
    EBB_LOCAL(same);
    EBB_LOCAL(wide);
    double *values = malloc((size_t)n * sizeof *values + 1);
    ebb_status st = ebb_read(t, data, bytes);
    if (st == EBB_OK)
        st = ebb_from_data(&same, cpu, ebb_tensor_dtype(t), ebb_tensor_ndim(t), ebb_tensor_dims(t), data);
    if (st == EBB_OK) st = ebb_cast(&wide, same, EBB_F64);
    if (st == EBB_OK) st = ebb_read(wide, values, (size_t)n * sizeof *values);
    free(data);
    if (st == EBB_OK) *out = values;
    else free(values);
    return st;
}

/* ---- one case on one side ----------------------------------------------------------------------- */

enum { MOST_RESULTS = EBB_MAX_OUT + EBB_MAX_IN };

/* Outputs, then gradients of inputs; NULL where there is none. */
typedef struct results {
    double *values[MOST_RESULTS];
    int64_t n[MOST_RESULTS];
} results;

static void results_free(results *r)
{
    for (int k = 0; k < MOST_RESULTS; k++) free(r->values[k]);
    memset(r, 0, sizeof *r);
}

static ebb_dtype dtype_of(enum ebb_case_kind kind, ebb_dtype dtype)
{
    return kind == EBB_CASE_INDEX || kind == EBB_CASE_LABEL ? EBB_I32 : kind == EBB_CASE_MASK ? EBB_U8 : dtype;
}

/* Input i: `leaf` holds its values, `seen` is what the op gets (a view with permuted strides where the case asks). */
static ebb_status make_input(ebb_tensor **leaf, ebb_tensor **seen, ebb_context *ctx, ebb_context *cpu,
                             const ebb_case_in *in, ebb_dtype dtype, uint64_t seed)
{
    int64_t dims[EBB_MAX_DIMS];
    int turned[EBB_MAX_DIMS];
    for (int d = 0; d < in->ndim; d++) {
        dims[d] = in->dims[in->strided ? in->ndim - 1 - d : d];
        turned[d] = in->ndim - 1 - d;
    }
    TRY(make(leaf, ctx, cpu, dtype_of(in->kind, dtype), in->ndim, dims, in->kind, in->max, seed));
    if (!in->no_grad && ebb_dtype_is_float(ebb_tensor_dtype(*leaf))) TRY(ebb_set_requires_grad(*leaf, true));
    if (in->strided) return ebb_permute(seen, *leaf, in->ndim, turned);
    ebb_bind(seen, *leaf);
    return EBB_OK;
}

static ebb_status keep(results *r, int k, const ebb_tensor *t, ebb_context *cpu)
{
    if (!t) return EBB_OK;
    r->n[k] = ebb_tensor_elems(t);
    return values_of(&r->values[k], t, cpu);
}

typedef struct side {
    ebb_tensor *leaves[EBB_MAX_IN], *ins[EBB_MAX_IN], *outs[EBB_MAX_OUT], *douts[EBB_MAX_OUT];
} side;

static void side_drop(side *s)
{
    for (int i = 0; i < EBB_MAX_IN; i++) ebb_drop(&s->leaves[i]), ebb_drop(&s->ins[i]);
    for (int j = 0; j < EBB_MAX_OUT; j++) ebb_drop(&s->outs[j]), ebb_drop(&s->douts[j]);
}

/* Backward from all outputs that have a history, along drawn gradients. */
static ebb_status backward(side *s, int n_outs, ebb_context *ctx, ebb_context *cpu)
{
    ebb_tensor *roots[EBB_MAX_OUT], *grads[EBB_MAX_OUT];
    int n = 0;
    for (int j = 0; j < n_outs; j++) {
        ebb_tensor *y = s->outs[j];
        if (!ebb_requires_grad(y)) continue;
        TRY(make(&s->douts[j], ctx, cpu, ebb_tensor_dtype(y), ebb_tensor_ndim(y), ebb_tensor_dims(y), EBB_CASE_NORMAL,
                 0, (uint64_t)j + 91));
        roots[n] = y;
        grads[n++] = s->douts[j];
    }
    ebb_backward_options options = { .struct_bytes = sizeof options, .grads = grads };
    return n ? ebb_backward_ex(roots, n, &options) : EBB_OK;
}

static ebb_status run_on(results *r, side *s, ebb_context *ctx, ebb_context *cpu, const ebb_op *op,
                         const ebb_op_case *c, ebb_dtype dtype)
{
    ebb_tensor **outs[EBB_MAX_OUT];
    int n_outs = op->n_out - op->n_aux;
    ebb_seed(ctx, 5); /* random ops draw the same on both sides */
    ebb_rng_set_offset(ctx, 0);
    for (int i = 0; i < c->n_in; i++)
        TRY(make_input(&s->leaves[i], &s->ins[i], ctx, cpu, &c->in[i], dtype, (uint64_t)i + 17));
    for (int j = 0; j < n_outs; j++) outs[j] = &s->outs[j];
    TRY(ebb_apply(op, outs, n_outs, s->ins, c->n_in, c->attrs, c->attrs_bytes));
    for (int j = 0; j < n_outs; j++) TRY(keep(r, j, s->outs[j], cpu));
    TRY(backward(s, n_outs, ctx, cpu));
    for (int i = 0; i < c->n_in; i++) TRY(keep(r, EBB_MAX_OUT + i, ebb_grad(s->leaves[i]), cpu));
    return EBB_OK;
}

/* ---- all cases ------------------------------------------------------------------------------------ */

typedef struct tally {
    ebb_context *sides[N_SIDES];
    int cases, skipped, failed;
    double worst[N_DTYPES]; /* relative difference */
} tally;

static void print_text(const char *text)
{
    putchar('"');
    for (; *text; text++) {
        if (*text == '"' || *text == '\\') putchar('\\');
        putchar(*text == '\n' ? ' ' : *text);
    }
    putchar('"');
}

/* One line of the JSON list of failures. */
static void fail(tally *t, const ebb_op *op, const ebb_op_case *c, ebb_dtype dtype, const char *what)
{
    printf("%s\n  {\"op\": \"%s\", \"dtype\": \"%s\", \"case\": ", t->failed++ ? "," : "", op->name,
           ebb_dtype_name(dtype));
    print_text(c->name);
    printf(", \"what\": ");
    print_text(what);
    printf("}");
}

static double difference(const double *got, const double *want, int64_t n)
{
    double wrong = 0, norm = 0;
    for (int64_t i = 0; i < n; i++) {
        if (got[i] == want[i] || (isnan(got[i]) && isnan(want[i]))) continue;
        wrong += (got[i] - want[i]) * (got[i] - want[i]);
    }
    for (int64_t i = 0; i < n; i++) norm += isfinite(want[i]) ? want[i] * want[i] : 0;
    return n ? sqrt(wrong) / (sqrt(norm) + 0.1 * sqrt((double)n)) : 0;
}

static void compare(tally *t, const ebb_op *op, const ebb_op_case *c, int d, const results *got, const results *want)
{
    char what[160];
    for (int k = 0; k < MOST_RESULTS; k++) {
        bool gradient = k >= EBB_MAX_OUT;
        int i = gradient ? k - EBB_MAX_OUT : k;
        if (!got->values[k] != !want->values[k] || got->n[k] != want->n[k]) {
            snprintf(what, sizeof what, "%s %d is there on one side only", gradient ? "gradient" : "output", i);
            fail(t, op, c, dtypes[d].dtype, what);
            continue;
        }
        if (!want->values[k]) continue;
        double off = difference(got->values[k], want->values[k], want->n[k]);
        if (isnan(off) || off > t->worst[d]) t->worst[d] = off;
        if (off <= dtypes[d].tolerance) continue;
        snprintf(what, sizeof what, "%s %d differs by %.3g", gradient ? "gradient" : "output", i, off);
        fail(t, op, c, dtypes[d].dtype, what);
    }
}

static void check(tally *t, const ebb_op *op, const ebb_op_case *c, int d)
{
    results r[N_SIDES] = { 0 };
    ebb_status st = EBB_OK;
    for (int k = 0; k < N_SIDES && st == EBB_OK; k++) {
        side s = { 0 };
        st = run_on(&r[k], &s, t->sides[k], t->sides[CPU], op, c, dtypes[d].dtype);
        side_drop(&s);
        if (st != EBB_OK && k == CPU) t->skipped++; /* not an op of this dtype */
        if (st != EBB_OK && k == DEVICE) fail(t, op, c, dtypes[d].dtype, ebb_message());
    }
    t->cases += st == EBB_OK;
    if (st == EBB_OK) compare(t, op, c, d, &r[DEVICE], &r[CPU]);
    for (int k = 0; k < N_SIDES; k++) results_free(&r[k]);
}

static ebb_status open_sides(tally *t, const char *device)
{
    const char *names[N_SIDES] = { "cpu", device };
    for (int k = 0; k < N_SIDES; k++) {
        ebb_context_options options = { .struct_bytes = sizeof options, .device = names[k], .seed = 5, .checks = -1 };
        TRY(ebb_context_new(&t->sides[k], &options));
    }
    return EBB_OK;
}

int main(int argc, char **argv)
{
    tally t = { 0 };
    const char *device = argc > 1 ? argv[1] : "cuda";
    if (open_sides(&t, device) != EBB_OK) {
        fprintf(stderr, "gpu_ops: %s\n", ebb_message());
        for (int k = 0; k < N_SIDES; k++) ebb_context_free(t.sides[k]);
        return 1;
    }
    printf("{\"bench\": \"gpu_ops\", \"device\": \"%s\", \"failures\": [", ebb_context_device(t.sides[DEVICE]));
    for (int i = 0; i < ebb_op_count(); i++) {
        const ebb_op *op = ebb_op_at(i);
        for (int k = 0; k < op->n_cases; k++)
            for (int d = 0; d < N_DTYPES && op->cases[k].expect == EBB_OK; d++) check(&t, op, &op->cases[k], d);
    }
    printf("], \"cases\": %d, \"skipped\": %d, \"failed\": %d", t.cases, t.skipped, t.failed);
    for (int d = 0; d < N_DTYPES; d++)
        printf(", \"worst_%s\": %.3g", ebb_dtype_name(dtypes[d].dtype), isnan(t.worst[d]) ? -1 : t.worst[d]);
    printf("}\n");
    for (int k = 0; k < N_SIDES; k++) ebb_context_free(t.sides[k]);
    return t.failed || !t.cases;
}
