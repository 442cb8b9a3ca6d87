#include <string.h>

#include "core/mem.h"
#include "core/rng.h"
#include "train/gradcheck.h"

/* ---- inputs ------------------------------------------------------------------------------- */

static uint64_t stream_of(const ebb_op *op, const ebb_op_case *c, int input)
{
    uint64_t h = 1469598103934665603u;
    for (const char *s = op->name; *s; s++) h = (h ^ (unsigned char)*s) * 1099511628211u;
    for (const char *s = c->name; s && *s; s++) h = (h ^ (unsigned char)*s) * 1099511628211u;
    return ebb__seed_mix(h, (uint64_t)input + 1);
}

/* Uniform in [0, 1). */
static double uniform(uint64_t seed, int64_t i)
{
    uint32_t words[4];
    ebb__philox(seed, (uint64_t)i, words);
    return ebb__u01_f64(words[0], words[1]);
}

/* In [-2, 2], at least 0.1 from 0. */
static double away(double u)
{
    double x = (2 * u - 1) * 1.9;
    return x < 0 ? x - 0.1 : x + 0.1;
}

static ebb_dtype dtype_of(const ebb_case_in *spec)
{
    switch (spec->kind) {
    case EBB_CASE_INDEX:
    case EBB_CASE_LABEL: return EBB_I32;
    case EBB_CASE_MASK: return EBB_U8;
    default: return EBB_F64;
    }
}

static void draw_floats(double *x, const ebb_case_in *spec, uint64_t seed, int64_t n)
{
    if (spec->kind == EBB_CASE_NORMAL) ebb__normal_f64(seed, 0, x, n);
    for (int64_t i = 0; i < n && spec->kind != EBB_CASE_NORMAL; i++) {
        double u = uniform(seed, i);
        x[i] = spec->kind == EBB_CASE_POSITIVE ? 0.5 + 1.5 * u : away(u);
    }
}

static void draw(void *data, const ebb_case_in *spec, uint64_t seed, int64_t n)
{
    switch (spec->kind) {
    case EBB_CASE_INDEX:
        for (int64_t i = 0; i < n; i++)
            ((int32_t *)data)[i] = (int32_t)(uniform(seed, i) * (double)spec->max);
        break;
    case EBB_CASE_LABEL:
        for (int64_t i = 0; i < n; i++)
            ((int32_t *)data)[i] = (int32_t)(uniform(seed, i) * (double)(spec->max + 1)) - 1;
        break;
    case EBB_CASE_MASK:
        for (int64_t i = 0; i < n; i++) ((uint8_t *)data)[i] = uniform(seed, i) < 0.7;
        break;
    default: draw_floats(data, spec, seed, n);
    }
}

/* A strided input of shape [d0, ..., dn] is the transpose of a base [dn + 1, ..., d0], without the
 * base's first row; a vector is its base without the two ends. */
static int64_t base_dims(const ebb_case_in *spec, int64_t dims[EBB_MAX_DIMS])
{
    int64_t elems = 1;
    memcpy(dims, spec->dims, sizeof(spec->dims));
    if (spec->strided && spec->ndim == 1) dims[0] += 2;
    if (spec->strided && spec->ndim > 1) {
        for (int i = 0; i < spec->ndim; i++) dims[i] = spec->dims[spec->ndim - 1 - i];
        dims[0]++;
    }
    for (int i = 0; i < spec->ndim; i++) elems *= dims[i];
    return elems;
}

static ebb_status see(ebb_tensor **out, const ebb__probe_in *in)
{
    const ebb_case_in *spec = in->spec;
    ebb_bind(out, in->leaf);
    if (!spec->strided || spec->ndim == 0) return EBB_OK;
    if (spec->ndim == 1) return ebb_narrow(out, *out, 0, 1, spec->dims[0]);
    int axes[EBB_MAX_DIMS];
    for (int i = 0; i < spec->ndim; i++) axes[i] = spec->ndim - 1 - i;
    EBB_TRY(ebb_permute(out, *out, spec->ndim, axes));
    return ebb_narrow(out, *out, spec->ndim - 1, 1, spec->dims[spec->ndim - 1]);
}

static ebb_status make_leaf(ebb__probe_in *in, ebb_context *ctx, uint64_t seed)
{
    int64_t dims[EBB_MAX_DIMS];
    ebb_dtype dtype = dtype_of(in->spec);
    in->elems = base_dims(in->spec, dims);
    void *data = ebb__malloc((size_t)in->elems * ebb_dtype_bytes(dtype));
    if (!data) return EBB_ENOMEM;
    draw(data, in->spec, seed, in->elems);
    ebb_status st = ebb_from_data(&in->leaf, ctx, dtype, in->spec->ndim, dims, data);
    ebb__free(data);
    if (st != EBB_OK || !in->differentiable) return st;
    in->analytic = ebb__calloc((size_t)in->elems, sizeof(double));
    in->numeric = ebb__calloc((size_t)in->elems, sizeof(double));
    return in->analytic && in->numeric ? EBB_OK : EBB_ENOMEM;
}

ebb_status ebb__probe_begin(ebb__probe *p, ebb_context *ctx, const ebb_op *op,
                            const ebb_op_case *op_case)
{
    *p = (ebb__probe){ .ctx = ctx,
                       .op = op,
                       .op_case = op_case,
                       .n_in = op_case->n_in,
                       .n_out = op->n_out - op->n_aux };
    for (int i = 0; i < p->n_in; i++) {
        const ebb_case_in *spec = &op_case->in[i];
        p->in[i].spec = spec;
        p->in[i].differentiable = dtype_of(spec) == EBB_F64 && !spec->no_grad &&
                                  !(op->no_grad_in & EBB_IN(i)) && !(op->flags & EBB_OP_NO_GRAD);
        EBB_TRY(make_leaf(&p->in[i], ctx, stream_of(op, op_case, i)));
    }
    return EBB_OK;
}

void ebb__probe_end(ebb__probe *p)
{
    for (int i = 0; i < EBB_MAX_IN; i++) {
        ebb_drop(&p->in[i].leaf);
        ebb__free(p->in[i].analytic);
        ebb__free(p->in[i].numeric);
    }
    for (int j = 0; j < EBB_MAX_OUT; j++) ebb_drop(&p->weights[j]);
}

/* ---- running ------------------------------------------------------------------------------ */

ebb_status ebb__probe_inputs(ebb__probe *p, ebb_tensor *ins[EBB_MAX_IN])
{
    for (int i = 0; i < p->n_in; i++) EBB_TRY(see(&ins[i], &p->in[i]));
    return EBB_OK;
}

static ebb_status apply(ebb__probe *p, ebb_tensor *ins[EBB_MAX_IN], ebb_tensor *outs[EBB_MAX_OUT])
{
    ebb_tensor **out_vars[EBB_MAX_OUT];
    EBB_TRY(ebb__probe_inputs(p, ins));
    for (int j = 0; j < p->n_out; j++) out_vars[j] = &outs[j];
    ebb_rng_set_offset(p->ctx, 0); /* an op that draws gets the same draws each time */
    const ebb_op_case *c = p->op_case;
    return ebb_apply(p->op, out_vars, p->n_out, ins, p->n_in, c->attrs,
                     c->attrs ? c->attrs_bytes : 0);
}

ebb_status ebb__probe_run(ebb__probe *p, ebb_tensor *outs[EBB_MAX_OUT])
{
    ebb_tensor *ins[EBB_MAX_IN] = { NULL };
    ebb_status st = apply(p, ins, outs);
    for (int i = 0; i < EBB_MAX_IN; i++) ebb_drop(&ins[i]);
    return st;
}

static double epsilon(ebb_dtype dtype)
{
    switch (dtype) {
    case EBB_F32: return 0x1p-23;
    case EBB_F16: return 0x1p-10;
    case EBB_BF16: return 0x1p-7;
    default: return 0x1p-52;
    }
}

/* Multiples of 1/8 in [-2, 2]: exact in every float dtype. */
static ebb_status make_weight(ebb_tensor **out, ebb__probe *p, const ebb_tensor *like, int index)
{
    int64_t n = ebb_tensor_elems(like);
    double *w = ebb__malloc((size_t)n * sizeof(*w));
    if (!w) return EBB_ENOMEM;
    uint64_t seed = stream_of(p->op, p->op_case, 100 + index);
    for (int64_t i = 0; i < n; i++) w[i] = (double)((int)(uniform(seed, i) * 33) - 16) / 8;
    ebb_status st =
        ebb_from_data(out, p->ctx, EBB_F64, ebb_tensor_ndim(like), ebb_tensor_dims(like), w);
    ebb__free(w);
    if (st == EBB_OK && ebb_tensor_dtype(like) != EBB_F64)
        st = ebb_cast(out, *out, ebb_tensor_dtype(like));
    return st;
}

static ebb_status weigh(ebb__probe *p, ebb_tensor *outs[EBB_MAX_OUT])
{
    EBB_WITH_MODE(EBB_NO_GRAD);
    EBB_TRY(ebb__probe_run(p, outs));
    for (int j = 0; j < p->n_out; j++) {
        ebb_dtype dtype = ebb_tensor_dtype(outs[j]);
        if (!ebb_dtype_is_float(dtype)) continue;
        EBB_TRY(make_weight(&p->weights[j], p, outs[j], j));
        p->out_elems += ebb_tensor_elems(outs[j]);
        if (epsilon(dtype) > p->coarsest) p->coarsest = epsilon(dtype);
    }
    return EBB_OK;
}

ebb_status ebb__probe_weigh(ebb__probe *p)
{
    ebb_tensor *outs[EBB_MAX_OUT] = { NULL };
    ebb_status st = weigh(p, outs);
    for (int j = 0; j < EBB_MAX_OUT; j++) ebb_drop(&outs[j]);
    return st;
}

/* values[0..elems) = weight * out */
static ebb_status weighted(double *values, ebb_tensor *out, ebb_tensor *weight)
{
    EBB_LOCAL(product);
    EBB_LOCAL(wide);
    EBB_TRY(ebb_cast(&product, out, EBB_F64));
    EBB_TRY(ebb_cast(&wide, weight, EBB_F64));
    EBB_TRY(ebb_mul(&product, product, wide));
    return ebb_read(product, values, (size_t)ebb_tensor_elems(product) * sizeof(*values));
}

static ebb_status read_values(ebb__probe *p, ebb_tensor *outs[EBB_MAX_OUT], double *values)
{
    EBB_WITH_MODE(EBB_NO_GRAD);
    EBB_TRY(ebb__probe_run(p, outs));
    for (int j = 0; j < p->n_out; j++) {
        if (!p->weights[j]) continue;
        EBB_TRY(weighted(values, outs[j], p->weights[j]));
        values += ebb_tensor_elems(outs[j]);
    }
    return EBB_OK;
}

ebb_status ebb__probe_values(ebb__probe *p, double *values)
{
    ebb_tensor *outs[EBB_MAX_OUT] = { NULL };
    ebb_status st = read_values(p, outs, values);
    for (int j = 0; j < EBB_MAX_OUT; j++) ebb_drop(&outs[j]);
    return st;
}
