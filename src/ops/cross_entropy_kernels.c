#include "ops/cross_entropy.h"

#include <ebb/ops.h>
#include <math.h>
#include <string.h>
#include "ops/index.h"
#include "ops/kernels.h"
#include "ops/lanes.h"
#include "ops/rows.h"

/* ---- checks ----------------------------------------------------------------------------------- */

ebb_status ebb__loss_check(const ebb_call *call, int targets, const char *layout, double normalizer)
{
    const ebb_arg *x = &call->in[0], *t = &call->in[targets];
    char text[2][96];
    ebb_status st = ebb__require_index_dtype(call, targets);
    if (st != EBB_OK) return st;
    bool fits = x->ndim >= 1 && t->ndim == x->ndim - 1;
    for (int i = 0; fits && i < t->ndim; i++) fits = t->dims[i] == x->dims[i];
    if (!fits) {
        return ebb_fail(EBB_ESHAPE, "%s: input %s and targets %s; they must be %s", call->op->name,
                        ebb_arg_describe(x, text[0], sizeof text[0]),
                        ebb_arg_describe(t, text[1], sizeof text[1]), layout);
    }
    if (!(normalizer >= 0) || isinf(normalizer)) {
        return ebb_fail(EBB_EINVAL, "%s: normalizer is %g; it must be above 0, or 0 to count targets",
                        call->op->name, normalizer);
    }
    return EBB_OK;
}

ebb_status ebb__loss_check_targets(const ebb_call *call, const ebb_arg *targets, int64_t classes)
{
    for (int64_t i = 0; i < targets->elems; i++) {
        int64_t target = ebb__index_at(targets, i);
        if (target == EBB_IGNORE || (target >= 0 && target < classes)) continue;
        return ebb_fail(EBB_EINVAL, "%s: target %lld of row %lld is outside [0, %lld) and is not %d (ignored)",
                        call->op->name, (long long)target, (long long)i, (long long)classes, (int)EBB_IGNORE);
    }
    return EBB_OK;
}

double ebb__loss_weight(const ebb_arg *targets, double normalizer)
{
    if (normalizer > 0) return 1 / normalizer;
    int64_t count = 0;
    for (int64_t i = 0; i < targets->elems; i++) count += ebb__index_at(targets, i) != EBB_IGNORE;
    return count > 0 ? 1 / (double)count : 0;
}

/* ---- rows ------------------------------------------------------------------------------------- */

#define REAL float
#define F(name) name##_f32
#include "ops/cross_entropy.inc"

#define REAL double
#define F(name) name##_f64
#include "ops/cross_entropy.inc"

static int64_t row_grain(const ebb__loss_rows *r) { return 1 + (1 << 12) / (r->classes + 1); }

double ebb__loss_forward(const ebb__loss_rows *r)
{
    ebb_parallel(r->call, r->rows, row_grain(r), r->dtype == EBB_F64 ? loss_rows_f64 : loss_rows_f32,
                 (void *)(uintptr_t)r);
    double total = 0;
    int ranges = ebb__threads_ranges(ebb__call_threads(r->call), r->rows, row_grain(r));
    for (int k = 0; k < ranges; k++) total += r->partial[k];
    return total;
}

void ebb__loss_backward(const ebb__loss_rows *r)
{
    ebb_parallel(r->call, r->rows, row_grain(r), r->dtype == EBB_F64 ? grad_rows_f64 : grad_rows_f32,
                 (void *)(uintptr_t)r);
}
