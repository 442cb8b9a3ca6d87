/* ops/reduce.c: sums over dims.
 * The space is parted into kept dims (those of out) and reduced dims.  Either each thread owns some
 * kept elements and sums them whole, or it sums a part of the reduced space into its own row of
 * partial sums, and the rows are added in order. */
#include "ops/reduce.h"

#include "ops/kernels.h"
#include <string.h>

enum {
    WORK_PER_THREAD = 16384, /* elements of the space */
    TILE = 2048,             /* kept elements that are summed side by side (16 KiB of f64) */
    KEPT_MOST = 8192         /* of a split of the reduced dims: 64 KiB of partial sums per thread */
};

typedef struct plan {
    const ebb__reduction *job;
    ebb__walk kept, reduced; /* operand 0: out (kept only); then the inputs */
    bool rows;               /* the innermost dim is a reduced one: each sum runs along memory */
    ebb__lanes_fn *fn;
    double *partials; /* [ranges, kept.elems], or NULL */
} plan;

/* One run of kept elements being summed over reduced elements [begin, end). */
typedef struct piece {
    const plan *plan;
    int64_t begin, end;
    double *partial;                  /* this range's row; NULL: finish into out */
    int64_t base[EBB__WALK_OPERANDS]; /* offsets of the first kept element */
    int64_t n;                        /* kept elements in the run */
    double *sums;
} piece;

/* Whether the innermost dim is summed: then each sum runs along memory. */
static bool sums_rows(const ebb_arg *out, const ebb_arg *space)
{
    for (int r = 1; r <= space->ndim; r++) { /* from the right */
        if (space->dims[space->ndim - r] != 1)
            return r > out->ndim || out->dims[out->ndim - r] == 1;
    }
    return false;
}

/* Rows: threads share the reduced dims only where there are too few sums to share.  Columns: they
 * do as long as the partial sums stay small, since each then reads a contiguous part of memory
 * (half as fast otherwise, on [2048, 1536]). */
static bool splits_reduced(const ebb_arg *out, const ebb_arg *space, int threads)
{
    if (threads == 1 || space->elems <= WORK_PER_THREAD || out->elems > KEPT_MOST) return false;
    if (sums_rows(out, space)) return out->elems < 8 * threads;
    return space->elems / out->elems >= 4 * threads;
}

size_t ebb__reduction_workspace(const ebb_arg *out, const ebb_arg *space, int threads)
{
    if (!splits_reduced(out, space, threads)) return 0;
    return (size_t)out->elems * (size_t)threads * sizeof(double);
}

/* The lanes to be summed, n of them from `offsets` on with each input's `stride`. */
static const void *evaluate(const plan *p, const int64_t *offsets, const ebb__walk *along,
                            int64_t n, ebb__lanes *bufs, ebb__lanes *result)
{
    const ebb__reduction *job = p->job;
    const void *in[EBB__WALK_OPERANDS - 1];
    for (int k = 0; k < job->n_in; k++) {
        const ebb_arg *arg = job->in[k];
        in[k] = ebb__lanes_read(arg->dtype, arg->data, offsets[k + 1],
                                ebb__walk_stride(along, k + 1), n, &bufs[k]);
    }
    if (!p->fn) return in[0];
    p->fn(result, in, n, false, job->params);
    return result;
}

/* Rows: a run along the reduced inner dim goes into one sum. */
static void sum_run(void *arg, const int64_t *offsets, int64_t n)
{
    piece *run = arg;
    const plan *p = run->plan;
    int64_t at[EBB__WALK_OPERANDS];
    ebb__lanes bufs[EBB__WALK_OPERANDS - 1], result;
    for (int k = 1; k <= p->job->n_in; k++) at[k] = run->base[k] + offsets[k];
    const void *lanes = evaluate(p, at, &p->reduced, n, bufs, &result);
    run->sums[0] += ebb__lanes_sum(p->job->in[0]->dtype, lanes, n);
}

/* Columns: one reduced element adds a run of kept elements, each to its own sum. */
static void sum_columns(void *arg, const int64_t *offsets, int64_t one)
{
    (void)one;
    piece *run = arg;
    const plan *p = run->plan;
    const ebb__reduction *job = p->job;
    ebb__lanes bufs[EBB__WALK_OPERANDS - 1], result;
    bool whole =
        !p->fn && ebb__is_compute_dtype(job->in[0]->dtype) && ebb__walk_stride(&p->kept, 1) == 1;
    int64_t longest = whole ? run->n : EBB__LANES;
    for (int64_t done = 0; done < run->n; done += longest) {
        int64_t n = run->n - done < longest ? run->n - done : longest;
        int64_t at[EBB__WALK_OPERANDS];
        for (int k = 1; k <= job->n_in; k++) {
            at[k] = run->base[k] + offsets[k] + done * ebb__walk_stride(&p->kept, k);
        }
        const void *lanes = evaluate(p, at, &p->kept, n, bufs, &result);
        ebb__lanes_add(run->sums + done, job->in[0]->dtype, lanes, n);
    }
}

/* out[at...] (+)= scale * sums */
static void finish(const ebb__reduction *job, int64_t at, int64_t n, const double *sums)
{
    const ebb_arg *out = &job->out;
    ebb__lanes buf;
    for (int64_t done = 0; done < n; done += EBB__LANES) {
        int64_t m = n - done < EBB__LANES ? n - done : EBB__LANES;
        const void *old =
            job->accumulate ? ebb__lanes_read(out->dtype, out->data, at + done, 1, m, &buf) : NULL;
        if (out->dtype == EBB_F64) {
            const double *before = old;
            for (int64_t i = 0; i < m; i++)
                buf.f64[i] = (before ? before[i] : 0) + job->scale * sums[done + i];
        } else {
            const float *before = old;
            for (int64_t i = 0; i < m; i++) {
                buf.f32[i] =
                    (float)((before ? (double)before[i] : 0) + job->scale * sums[done + i]);
            }
        }
        ebb__lanes_write(out->dtype, out->data, at + done, 1, m, &buf);
    }
}

/* A run of at most TILE kept elements: summed over the piece's reduced range. */
static void kept_run(void *arg, const int64_t *offsets, int64_t n)
{
    piece *outer = arg;
    const plan *p = outer->plan;
    double tile[TILE];
    double *sums = outer->partial ? outer->partial + offsets[0] : tile;
    memset(sums, 0, (size_t)n * sizeof *sums);
    piece inner = { .plan = p, .n = p->rows ? 1 : n, .sums = sums };
    memcpy(inner.base, offsets, sizeof inner.base);
    if (!p->rows) {
        ebb__walk_range(&p->reduced, outer->begin, outer->end, 1, sum_columns, &inner);
    } else {
        bool whole = !p->fn && ebb__is_compute_dtype(p->job->in[0]->dtype) &&
                     ebb__walk_stride(&p->reduced, 1) == 1;
        for (int64_t i = 0; i < n; i++) {
            inner.sums = sums + i;
            ebb__walk_range(&p->reduced, outer->begin, outer->end, whole ? INT64_MAX : EBB__LANES,
                            sum_run, &inner);
            for (int k = 1; k <= p->job->n_in; k++) inner.base[k] += ebb__walk_stride(&p->kept, k);
        }
    }
    if (!outer->partial) finish(p->job, offsets[0], n, sums);
}

/* A thread owns kept elements. */
static void kept_range(void *arg, int64_t begin, int64_t end, int thread)
{
    (void)thread;
    const plan *p = arg;
    piece all = { .plan = p, .begin = 0, .end = p->reduced.elems };
    ebb__walk_range(&p->kept, begin, end, TILE, kept_run, &all);
}

/* A thread owns reduced elements. */
static void reduced_range(void *arg, int64_t begin, int64_t end, int thread)
{
    const plan *p = arg;
    piece part = {
        .plan = p, .begin = begin, .end = end, .partial = p->partials + thread * p->kept.elems
    };
    ebb__walk_range(&p->kept, 0, p->kept.elems, TILE, kept_run, &part);
}

/* Parts the merged walk of (out, inputs...) into kept and reduced dims. */
static void split(plan *p, const ebb__walk *whole)
{
    ebb__walk *parts[2] = { &p->kept, &p->reduced };
    for (int i = 0; i < 2; i++) {
        *parts[i] = (ebb__walk){ .n_operands = whole->n_operands, .elems = 1 };
    }
    for (int d = 0; d < whole->ndim; d++) {
        ebb__walk *part = parts[whole->strides[0][d] == 0];
        for (int k = 0; k < whole->n_operands; k++)
            part->strides[k][part->ndim] = whole->strides[k][d];
        part->dims[part->ndim++] = whole->dims[d];
        part->elems *= whole->dims[d];
    }
    p->rows = whole->strides[0][whole->ndim - 1] == 0;
    ebb__walk_merge(&p->kept);
    ebb__walk_merge(&p->reduced);
}

static void add_partials(const plan *p, int ranges)
{
    int64_t kept = p->kept.elems;
    for (int r = 1; r < ranges; r++) {
        for (int64_t i = 0; i < kept; i++) p->partials[i] += p->partials[r * kept + i];
    }
    finish(p->job, 0, kept, p->partials);
}

void ebb__run_reduction(const ebb_call *call, const ebb__reduction *job)
{
    plan p = { .job = job };
    p.fn = job->in[0]->dtype == EBB_F64 ? job->f64 : job->f32;
    ebb__walk whole;
    ebb__walk_init(&whole, job->space->ndim, job->space->dims);
    ebb__walk_add(&whole, job->out.ndim, job->out.dims, job->out.strides);
    for (int k = 0; k < job->n_in; k++) {
        ebb__walk_add(&whole, job->in[k]->ndim, job->in[k]->dims, job->in[k]->strides);
    }
    ebb__walk_merge(&whole);
    split(&p, &whole);
    int threads = ebb__threads_count(ebb__call_threads(call));
    if (splits_reduced(&job->out, job->space, threads)) {
        EBB_ASSERT(call->workspace_bytes >=
                   ebb__reduction_workspace(&job->out, job->space, threads));
        p.partials = call->workspace;
        int64_t grain = WORK_PER_THREAD / p.kept.elems + 1;
        ebb_parallel(call, p.reduced.elems, grain, reduced_range, &p);
        add_partials(&p, ebb__threads_ranges(ebb__call_threads(call), p.reduced.elems, grain));
    } else {
        ebb_parallel(call, p.kept.elems, WORK_PER_THREAD / (p.reduced.elems + 1) + 1, kept_range,
                     &p);
    }
}
