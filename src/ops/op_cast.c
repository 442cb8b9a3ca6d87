/* ops/op_cast.c: another dtype for the same values.
 * Among floats each conversion rounds once, to nearest even; among integers it wraps; integers
 * become floats.  Floats do not become integers: which rounding is meant is the caller's to say. */
#include "core/half.h"
#include "ops/attrs.h"
#include "ops/kernels.h"
#include "ops/table.h"
#include "ops/walk.h"
#include <ebb/ops.h>

static ebb_status infer(ebb_call *call)
{
    int dtype = EBB_ATTRS(call, ebb__cast_attrs)->dtype;
    const ebb_arg *x = &call->in[0];
    if (dtype < 0 || dtype >= EBB_N_DTYPES) {
        return ebb_fail(EBB_EINVAL, "cast: dtype %d; allowed are 0 to %d", dtype, EBB_N_DTYPES - 1);
    }
    if (ebb_dtype_is_float(x->dtype) && !ebb_dtype_is_float((ebb_dtype)dtype)) {
        return ebb_fail(EBB_EDTYPE, "cast: %s to %s; floats can become f32, f64, f16 or bf16",
                        ebb_dtype_name(x->dtype), ebb_dtype_name((ebb_dtype)dtype));
    }
    return ebb_arg_set(&call->out[0], (ebb_dtype)dtype, x->ndim, x->dims);
}

/* ---- conversions of n <= EBB__LANES elements ---------------------------------------------- */

/* f64 to f32 such that a second rounding, to fewer bits, gives what one rounding would: toward
 * zero, with the last bit set where something was lost. */
static float to_odd(double x)
{
    float y = (float)x;
    if ((double)y == x || y != y) return y;
    uint32_t bits = ebb__f32_bits(y);
    bool away = (y < 0 ? -(double)y : (double)y) > (x < 0 ? -x : x);
    return ebb__bits_f32((bits - (away ? 1u : 0u)) | 1u);
}

static void store_f64(ebb_dtype dtype, void *to, int64_t at, const double *from, int64_t n)
{
    switch (dtype) {
    case EBB_F64:
        for (int64_t i = 0; i < n; i++) ((double *)to)[at + i] = from[i];
        break;
    case EBB_F32:
        for (int64_t i = 0; i < n; i++) ((float *)to)[at + i] = (float)from[i];
        break;
    case EBB_F16:
        for (int64_t i = 0; i < n; i++) ((uint16_t *)to)[at + i] = ebb__f32_to_f16(to_odd(from[i]));
        break;
    default:
        for (int64_t i = 0; i < n; i++)
            ((uint16_t *)to)[at + i] = ebb__f32_to_bf16(to_odd(from[i]));
    }
}

static void load_i64(ebb_dtype dtype, const void *from, int64_t at, int64_t stride, int64_t *to,
                     int64_t n)
{
    switch (dtype) {
    case EBB_I32:
        for (int64_t i = 0; i < n; i++) to[i] = ((const int32_t *)from)[at + i * stride];
        break;
    case EBB_I64:
        for (int64_t i = 0; i < n; i++) to[i] = ((const int64_t *)from)[at + i * stride];
        break;
    default:
        for (int64_t i = 0; i < n; i++) to[i] = ((const uint8_t *)from)[at + i * stride];
    }
}

static void store_i64(ebb_dtype dtype, void *to, int64_t at, const int64_t *from, int64_t n)
{
    switch (dtype) {
    case EBB_I32:
        for (int64_t i = 0; i < n; i++) ((int32_t *)to)[at + i] = (int32_t)(uint32_t)from[i];
        break;
    case EBB_I64:
        for (int64_t i = 0; i < n; i++) ((int64_t *)to)[at + i] = from[i];
        break;
    default:
        for (int64_t i = 0; i < n; i++) ((uint8_t *)to)[at + i] = (uint8_t)from[i];
    }
}

/* Integers of more than 53 bits: to f32 in one step, since f64 would round before it. */
static void integers_to_floats(ebb_dtype dtype, void *to, int64_t at, const int64_t *from,
                               int64_t n)
{
    double wide[EBB__LANES];
    if (dtype == EBB_F32) {
        for (int64_t i = 0; i < n; i++) ((float *)to)[at + i] = (float)from[i];
        return;
    }
    for (int64_t i = 0; i < n; i++) wide[i] = (double)from[i];
    store_f64(dtype, to, at, wide, n);
}

/* ---- running over whole tensors ----------------------------------------------------------- */

typedef struct conversion {
    ebb__walk walk; /* operand 0: to (contiguous), 1: from */
    const ebb_arg *to, *from;
    bool accumulate; /* floats only */
} conversion;

/* A gradient that is added onto: in f64, rounded once. */
static void add_run(const conversion *c, const int64_t *offsets, int64_t stride, int64_t n)
{
    ebb__lanes bufs[2];
    double sums[EBB__LANES];
    const void *x = ebb__lanes_read(c->from->dtype, c->from->data, offsets[1], stride, n, &bufs[0]);
    const void *y = ebb__lanes_read(c->to->dtype, c->to->data, offsets[0], 1, n, &bufs[1]);
    bool x64 = c->from->dtype == EBB_F64, y64 = c->to->dtype == EBB_F64;
    for (int64_t i = 0; i < n; i++) {
        double a = x64 ? ((const double *)x)[i] : (double)((const float *)x)[i];
        double b = y64 ? ((const double *)y)[i] : (double)((const float *)y)[i];
        sums[i] = a + b;
    }
    store_f64(c->to->dtype, c->to->data, offsets[0], sums, n);
}

static void convert_run(void *arg, const int64_t *offsets, int64_t n)
{
    const conversion *c = arg;
    ebb_dtype from = c->from->dtype, to = c->to->dtype;
    int64_t stride = ebb__walk_stride(&c->walk, 1);
    if (c->accumulate) {
        add_run(c, offsets, stride, n);
    } else if (!ebb_dtype_is_float(from)) {
        int64_t wide[EBB__LANES];
        load_i64(from, c->from->data, offsets[1], stride, wide, n);
        if (ebb_dtype_is_float(to))
            integers_to_floats(to, c->to->data, offsets[0], wide, n);
        else
            store_i64(to, c->to->data, offsets[0], wide, n);
    } else {
        ebb__lanes buf;
        const void *lanes = ebb__lanes_read(from, c->from->data, offsets[1], stride, n, &buf);
        if (from == EBB_F64) {
            store_f64(to, c->to->data, offsets[0], lanes, n);
        } else if (to == EBB_F64) {
            double *out = (double *)c->to->data + offsets[0];
            for (int64_t i = 0; i < n; i++) out[i] = (double)((const float *)lanes)[i];
        } else {
            ebb__lanes_write(to, c->to->data, offsets[0], 1, n, lanes);
        }
    }
}

static void convert_range(void *arg, int64_t begin, int64_t end, int thread)
{
    (void)thread;
    ebb__walk_range(&((conversion *)arg)->walk, begin, end, EBB__LANES, convert_run, arg);
}

static void convert(const ebb_call *call, const ebb_arg *to, const ebb_arg *from, bool accumulate)
{
    conversion c = { .to = to, .from = from, .accumulate = accumulate };
    ebb__walk_init(&c.walk, to->ndim, to->dims);
    ebb__walk_add(&c.walk, to->ndim, to->dims, to->strides);
    ebb__walk_add(&c.walk, from->ndim, from->dims, from->strides);
    ebb__walk_merge(&c.walk);
    ebb_parallel(call, c.walk.elems, 8192, convert_range, &c);
}

static ebb_status forward(const ebb_call *call)
{
    convert(call, &call->out[0], &call->in[0], false);
    return EBB_OK;
}

static ebb_status backward(const ebb_call *call)
{
    if (call->din[0].data) convert(call, &call->din[0], &call->dout[0], call->accumulate[0]);
    return EBB_OK;
}

static void cost(const ebb_call *call, ebb_cost *cost) { ebb__cost_elementwise(call, cost, 1, 1); }

/* ---- cases ------------------------------------------------------------------------------- */

static const ebb__cast_attrs f32 = {EBB_F32}, f64 = {EBB_F64}, i32 = {EBB_I32}, i64 = {EBB_I64},
                        none = {99};
#define NORMAL(...) {{__VA_ARGS__, EBB_CASE_NORMAL, 0, false, false}}
#define STRIDED(...) {{__VA_ARGS__, EBB_CASE_NORMAL, 0, true, false}}
#define INDEX(...) {{__VA_ARGS__, EBB_CASE_INDEX, 100, false, false}}
#define MASK(...) {{__VA_ARGS__, EBB_CASE_MASK, 0, false, false}}
static const ebb_op_case cases[] = {
    {"to f64", 1, NORMAL(2, {3, 17}), &f64, sizeof f64, EBB_OK},
    {"to f64, strided", 1, STRIDED(3, {3, 4, 5}), &f64, sizeof f64, EBB_OK},
    {"to f64, no elements", 1, NORMAL(1, {0}), &f64, sizeof f64, EBB_OK},
    {"to f64, a scalar", 1, NORMAL(0, {0}), &f64, sizeof f64, EBB_OK},
    {"i32 to i64", 1, INDEX(1, {33}), &i64, sizeof i64, EBB_OK},
    {"i32 to f32", 1, INDEX(2, {3, 5}), &f32, sizeof f32, EBB_OK},
    {"u8 to f64", 1, MASK(1, {33}), &f64, sizeof f64, EBB_OK},
    {"floats to integers", 1, NORMAL(1, {3}), &i32, sizeof i32, EBB_EDTYPE},
    {"no such dtype", 1, NORMAL(1, {3}), &none, sizeof none, EBB_EINVAL},
};

const ebb_op ebb_op_cast = {
    .name = "cast", .min_in = 1, .max_in = 1, .n_out = 1, .flags = EBB_OP_CHEAP | EBB_OP_STRIDED,
    .infer = infer, .cost = cost, .cpu = {forward, backward, NULL},
    .cases = cases, .n_cases = (int)(sizeof cases / sizeof cases[0]),
};

ebb_status ebb_cast(ebb_tensor **out, ebb_tensor *x, ebb_dtype dtype)
{
    ebb__cast_attrs attrs = { (int)dtype };
    return ebb__apply_one(&ebb_op_cast, out, &x, 1, &attrs, sizeof attrs);
}
