/* create.c: tensors from nothing, from host memory, from the generator. */
#include <math.h>
#include <string.h>

#include "core/half.h"
#include "core/mem.h"
#include "core/rng.h"
#include "core/site.h"
#include "tensor/host_view.h"

static ebb_status make(ebb_tensor **out, ebb_context *ctx, ebb_dtype dtype, int ndim, const int64_t *dims,
                       const char *what)
{
    if (!out || !ctx) return ebb_fail(EBB_EINVAL, "%s: %s is NULL", what, out ? "the context" : "out");
    if ((unsigned)dtype >= EBB_N_DTYPES) return ebb_fail(EBB_EDTYPE, "%s: no dtype number %d", what, (int)dtype);
    if (ndim < 0 || ndim > EBB_MAX_DIMS)
        return ebb_fail(EBB_ESHAPE, "%s: %d dimensions, allowed are 0 to %d", what, ndim, EBB_MAX_DIMS);
    ebb_arg shape = { .dtype = dtype, .ndim = ndim };
    for (int i = 0; i < ndim; i++) {
        if (dims[i] < 0) return ebb_fail(EBB_ESHAPE, "%s: dimension %d is %lld", what, i, (long long)dims[i]);
        shape.dims[i] = dims[i];
    }
    if (!ebb__dims_elems(&shape.elems, ndim, dims))
        return ebb_fail(EBB_ESHAPE, "%s: the number of elements overflows", what);
    ebb__owner owner = ebb__owner_now(ctx, EBB_CAT_TEMPORARY, what);
    ebb_tensor *t;
    ebb_status st = ebb__tensor_new(&t, ctx, &shape, &owner);
    if (st != EBB_OK) return st;
    ebb_move(out, &t);
    return EBB_OK;
}

ebb_status ebb_empty(ebb_tensor **out, ebb_context *ctx, ebb_dtype dtype, int ndim, const int64_t *dims)
{
    return make(out, ctx, dtype, ndim, dims, "empty");
}

ebb_status ebb__full(ebb_tensor **out, ebb_context *ctx, ebb_dtype dtype, int ndim, const int64_t *dims, double value,
                     const char *what)
{
    EBB_LOCAL(t);
    ebb_status st = make(&t, ctx, dtype, ndim, dims, "full");
    if (st != EBB_OK) return st;
    ebb_arg arg;
    ebb__tensor_arg(t, &arg);
    EBB__TRY(ebb__arg_fill(ctx, &arg, value, what));
    ebb_move(out, &t);
    return EBB_OK;
}

ebb_status ebb_full(ebb_tensor **out, ebb_context *ctx, ebb_dtype dtype, int ndim, const int64_t *dims, double value)
{
    return ebb__full(out, ctx, dtype, ndim, dims, value, "full");
}

ebb_status ebb_zeros(ebb_tensor **out, ebb_context *ctx, ebb_dtype dtype, int ndim, const int64_t *dims)
{
    return ebb_full(out, ctx, dtype, ndim, dims, 0.0);
}

ebb_status ebb_from_data(ebb_tensor **out, ebb_context *ctx, ebb_dtype dtype, int ndim, const int64_t *dims,
                         const void *data)
{
    EBB_LOCAL(t);
    ebb_status st = make(&t, ctx, dtype, ndim, dims, "from_data");
    if (st != EBB_OK) return st;
    EBB__TRY(ebb__device_copy(&ctx->device, t->storage->data, data, t->storage->bytes, EBB__TO_DEVICE, "from_data"));
    ebb_move(out, &t);
    return EBB_OK;
}

/* ---- random ------------------------------------------------------------------------------- */

enum { DRAWS = 512 }; /* per round; two draws a Philox block */

static void store(const ebb_arg *to, int64_t at, const double *x, int64_t n)
{
    for (int64_t i = 0; i < n; i++) {
        switch (to->dtype) {
        case EBB_F32: ((float *)to->data)[at + i] = (float)x[i]; break;
        case EBB_F64: ((double *)to->data)[at + i] = x[i]; break;
        case EBB_F16: ((uint16_t *)to->data)[at + i] = ebb__f32_to_f16((float)x[i]); break;
        default: ((uint16_t *)to->data)[at + i] = ebb__f32_to_bf16((float)x[i]); break;
        }
    }
}

static void draw_uniform(uint64_t seed, uint64_t counter, double *x, int64_t n)
{
    for (int64_t i = 0; i < n; i += 2) {
        uint32_t w[4];
        ebb__philox(seed, counter + (uint64_t)(i / 2), w);
        x[i] = ebb__u01_f64(w[0], w[1]);
        if (i + 1 < n) x[i + 1] = ebb__u01_f64(w[2], w[3]);
    }
}

/* x = shift + scale * draw */
static ebb_status random_tensor(ebb_tensor **out, ebb_context *ctx, ebb_dtype dtype, int ndim, const int64_t *dims,
                                void (*draw)(uint64_t, uint64_t, double *, int64_t), double shift, double scale,
                                const char *what)
{
    if ((unsigned)dtype < EBB_N_DTYPES && !ebb_dtype_is_float(dtype))
        return ebb_fail(EBB_EDTYPE, "%s: draws floats, not %s", what, ebb_dtype_name(dtype));
    EBB_LOCAL(t);
    ebb_status st = make(&t, ctx, dtype, ndim, dims, what);
    if (st != EBB_OK) return st;
    ebb_arg to;
    ebb__host_view view;
    ebb__tensor_arg(t, &to);
    EBB__TRY(ebb__host_view_of(&view, t, EBB__VIEW_WRITE));
    to.data = view.data;
    double x[DRAWS];
    for (int64_t at = 0; at < to.elems && to.data; at += DRAWS) {
        int64_t n = to.elems - at < DRAWS ? to.elems - at : DRAWS;
        draw(ctx->seed, ctx->rng_offset + (uint64_t)(at / 2), x, n);
        for (int64_t i = 0; i < n; i++) x[i] = shift + scale * x[i];
        store(&to, at, x, n);
    }
    EBB__TRY(ebb__host_view_close(&view, EBB_OK));
    ctx->rng_offset += (uint64_t)((to.elems + 1) / 2);
    ebb_move(out, &t);
    return EBB_OK;
}

ebb_status ebb_uniform(ebb_tensor **out, ebb_context *ctx, ebb_dtype dtype, int ndim, const int64_t *dims,
                       double low, double high)
{
    return random_tensor(out, ctx, dtype, ndim, dims, draw_uniform, low, high - low, "uniform");
}

ebb_status ebb_normal(ebb_tensor **out, ebb_context *ctx, ebb_dtype dtype, int ndim, const int64_t *dims,
                      double mean, double std)
{
    return random_tensor(out, ctx, dtype, ndim, dims, ebb__normal_f64, mean, std, "normal");
}
