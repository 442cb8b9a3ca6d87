/* ops/cuda/optim.cu: optimizer steps, sum of squares and scaling over many tensors in few launches.  A
 * launch takes up to BATCH tensors by value; each is cut into chunks, and a block finds its chunk's tensor. */
#include "ops/cuda/elementwise.h"

enum {
    BATCH = 48,    /* so that all arguments fit the 4 KiB that a launch may have */
    CHUNK = 8192   /* elements of a block */
};

/* Which tensor a chunk belongs to.  first[i]: tensor i's first chunk; first[n]: how many there are. */
typedef struct chunks {
    int n;
    int64_t first[BATCH + 1];
} chunks;

static void add_chunks(chunks *c, int64_t elems)
{
    if (c->n == 0) c->first[0] = 0;
    c->first[c->n + 1] = c->first[c->n] + ebb__ceil_div(elems, CHUNK);
    c->n++;
}

EBB_DEVICE int tensor_of(const chunks &c, int64_t chunk)
{
    int low = 0, high = c.n; /* first[low] <= chunk < first[high] */
    while (high - low > 1) {
        int middle = (low + high) / 2;
        if (c.first[middle] <= chunk)
            low = middle;
        else
            high = middle;
    }
    return low;
}

/* ---- optimizer steps ----------------------------------------------------------------------- */

typedef struct parameter {
    void *w;
    const void *g;
    void *s0, *s1;
    int64_t n;
    bool wide;   /* all four aligned to 16 bytes */
    bool decays;
} parameter;

typedef struct parameters {
    chunks cut;
    parameter at[BATCH];
} parameters;

/* The numbers of a step in the parameters' type, as optim/sgd.c and optim/adamw.c make them. */
template <class R>
struct numbers {
    R lr, momentum;                              /* sgd */
    R rate, take1, beta2, take2, eps, root_scale; /* adamw */
    bool nesterov;
};

template <class R>
static numbers<R> numbers_of(const ebb__accel_step *step)
{
    numbers<R> x = {};
    x.lr = (R)step->lr;
    x.momentum = (R)step->momentum;
    x.nesterov = step->nesterov;
    if (step->kind == EBB__ACCEL_SGD) return x;
    x.rate = (R)(step->lr / step->correction1);
    x.take1 = (R)(1 - step->beta1);
    x.beta2 = (R)step->beta2;
    x.take2 = (R)(1 - step->beta2);
    x.eps = (R)step->eps;
    x.root_scale = (R)(1 / step->root_correction2);
    return x;
}

/* What the steps of a captured graph read in place of arguments, as ebb__cuda_give() writes it to cuda->given. */
typedef struct given {
    uint64_t rng_ahead; /* first: op_dropout.cu reads it */
    numbers<double> f64;
    double keep_f64;
    numbers<float> f32;
    float keep_f32;
} given;
static_assert(sizeof(given) <= EBB__CUDA_ERROR_BYTES - EBB__CUDA_GIVEN_AT, "its place in the lent memory");

EBB_DEVICE const numbers<float> &numbers_in(const given *g, float) { return g->f32; }
EBB_DEVICE const numbers<double> &numbers_in(const given *g, double) { return g->f64; }
EBB_DEVICE float keep_in(const given *g, float) { return g->keep_f32; }
EBB_DEVICE double keep_in(const given *g, double) { return g->keep_f64; }

EBB_KERNEL void give_f64(given *to, given value)
{
    if (threadIdx.x == 0) *to = value;
}

ebb_status ebb__cuda_give(ebb__cuda *cuda, const ebb__accel_numbers *numbers)
{
    given value = {};
    value.rng_ahead = numbers->rng_ahead;
    value.f64 = numbers_of<double>(&numbers->step);
    value.f32 = numbers_of<float>(&numbers->step);
    value.keep_f64 = numbers->keep;
    value.keep_f32 = (float)numbers->keep;
    EBB_LAUNCH(cuda, give_f64, 1, 1, 0, (given *)cuda->given, value);
    return EBB_OK;
}

EBB_DEVICE float root(float x) { return sqrtf(x); }
EBB_DEVICE double root(double x) { return sqrt(x); }

/* One element each: w keeps, m and v the states, g the gradient.  sgd without momentum has no m. */
namespace {

struct sgd {
    static constexpr int states = 0;
    template <class R>
    static __device__ __forceinline__ void step(R &w, R g, R &, R &, R keep, const numbers<R> &x)
    {
        w = w * keep - x.lr * g;
    }
};

struct sgd_momentum {
    static constexpr int states = 1;
    template <class R>
    static __device__ __forceinline__ void step(R &w, R g, R &m, R &, R keep, const numbers<R> &x)
    {
        m = x.momentum * m + g;
        w = w * keep - x.lr * (x.nesterov ? g + x.momentum * m : m);
    }
};

struct adamw {
    static constexpr int states = 2;
    template <class R>
    static __device__ __forceinline__ void step(R &w, R g, R &m, R &v, R keep, const numbers<R> &x)
    {
        m += x.take1 * (g - m);
        v = x.beta2 * v + x.take2 * g * g;
        w = w * keep - x.rate * m / (root(v) * x.root_scale + x.eps);
    }
};

} // namespace

/* V elements of a parameter from `at` on. */
template <class Rule, class R, int V>
EBB_DEVICE void step_elements(const parameter &p, int64_t at, R keep, const numbers<R> &x)
{
    typedef ebb__cuda_pack<R, V> pack;
    pack w = *reinterpret_cast<pack *>((R *)p.w + at), g = *reinterpret_cast<const pack *>((const R *)p.g + at);
    pack m = {}, v = {};
    if (Rule::states > 0) m = *reinterpret_cast<pack *>((R *)p.s0 + at);
    if (Rule::states > 1) v = *reinterpret_cast<pack *>((R *)p.s1 + at);
#pragma unroll
    for (int i = 0; i < V; i++) Rule::step(w.at[i], g.at[i], m.at[i], v.at[i], keep, x);
    *reinterpret_cast<pack *>((R *)p.w + at) = w;
    if (Rule::states > 0) *reinterpret_cast<pack *>((R *)p.s0 + at) = m;
    if (Rule::states > 1) *reinterpret_cast<pack *>((R *)p.s1 + at) = v;
}

/* keeps: of each parameter, in its own type.  from: NULL, or where the numbers are in place of `keep` and `passed`. */
template <class R>
struct keeps {
    R at[BATCH];
};

template <class Rule, class R>
EBB_KERNEL void __launch_bounds__(EBB__CUDA_THREADS)
update(parameters params, keeps<R> keep, numbers<R> passed, const given *from)
{
    constexpr int V = ebb__cuda_width<R>;
    const int i = tensor_of(params.cut, blockIdx.x);
    const parameter &p = params.at[i];
    const numbers<R> x = from ? numbers_in(from, R()) : passed;
    const R kept = !from ? keep.at[i] : p.decays ? keep_in(from, R()) : R(1);
    const int64_t begin = (blockIdx.x - params.cut.first[i]) * CHUNK;
    const int64_t end = p.n - begin < CHUNK ? p.n : begin + CHUNK;
    for (int64_t at = begin + threadIdx.x * V; at < end; at += EBB__CUDA_THREADS * V) {
        if (p.wide && at + V <= end)
            step_elements<Rule, R, V>(p, at, kept, x);
        else
            for (int64_t one = at; one < at + V && one < end; one++)
                step_elements<Rule, R, 1>(p, one, kept, x);
    }
}

static bool is_wide(const void *a, const void *b, const void *c, const void *d)
{
    return ((uintptr_t)a | (uintptr_t)b | (uintptr_t)c | (uintptr_t)d) % 16 == 0;
}

/* Takes parameters of R's dtype from params[*from] on, as many as one launch holds, and moves *from on. */
template <class Rule, class R>
static ebb_status update_batch(ebb__cuda *cuda, const ebb__accel_step *step, const ebb__accel_param *params, int n,
                               int *from)
{
    parameters batch = {};
    keeps<R> keep = {};
    const ebb_dtype dtype = params[*from].dtype;
    int i = *from;
    for (; i < n && params[i].dtype == dtype && batch.cut.n < BATCH; i++) {
        const ebb__accel_param *p = &params[i];
        if (p->n == 0) continue;
        keep.at[batch.cut.n] = (R)p->keep;
        batch.at[batch.cut.n] = { p->w, p->g, p->s0, p->s1, p->n, is_wide(p->w, p->g, p->s0, p->s1),
                                   p->decays };
        add_chunks(&batch.cut, p->n);
    }
    *from = i;
    const unsigned blocks = (unsigned)batch.cut.first[batch.cut.n];
    const numbers<R> x = numbers_of<R>(step);
    const given *numbers_from = cuda->varies ? (const given *)cuda->given : NULL;
    EBB_LAUNCH(cuda, (update<Rule, R>), blocks, EBB__CUDA_THREADS, 0, batch, keep, x, numbers_from);
    return EBB_OK;
}

template <class Rule>
static ebb_status update_all(ebb__cuda *cuda, const ebb__accel_step *step, const ebb__accel_param *params, int n)
{
    ebb_status st = EBB_OK;
    for (int i = 0; i < n && st == EBB_OK;)
        st = params[i].dtype == EBB_F64 ? update_batch<Rule, double>(cuda, step, params, n, &i)
                                        : update_batch<Rule, float>(cuda, step, params, n, &i);
    return st;
}

ebb_status ebb__cuda_update(ebb__cuda *cuda, const ebb__accel_step *step, const ebb__accel_param *params, int n)
{
    if (n == 0) return EBB_OK;
    if (step->kind == EBB__ACCEL_ADAMW) return update_all<adamw>(cuda, step, params, n);
    if (params[0].s0) return update_all<sgd_momentum>(cuda, step, params, n);
    return update_all<sgd>(cuda, step, params, n);
}

/* ---- sum of squares, scaling --------------------------------------------------------------- */

typedef struct vector {
    void *data;
    int64_t n;
    bool f64, wide;
} vector;

typedef struct vectors {
    chunks cut;
    vector at[BATCH];
} vectors;

/* Takes args from args[*from] on, as many as one launch holds. */
static vectors next_vectors(const ebb_arg *args, int n, int *from)
{
    vectors batch = {};
    int i = *from;
    for (; i < n && batch.cut.n < BATCH; i++) {
        if (args[i].elems == 0) continue;
        batch.at[batch.cut.n] = { args[i].data, args[i].elems, args[i].dtype == EBB_F64,
                                     (uintptr_t)args[i].data % 16 == 0 };
        add_chunks(&batch.cut, args[i].elems);
    }
    *from = i;
    return batch;
}

/* This thread's share of the squares of elements [begin, end), in an order that does not depend on where
 * they lie. */
template <class R>
EBB_DEVICE double squares_f64(const vector &x, int64_t begin, int64_t end)
{
    constexpr int V = ebb__cuda_width<R>;
    const R *data = (const R *)x.data;
    double sum = 0;
    for (int64_t at = begin + threadIdx.x * V; at < end; at += EBB__CUDA_THREADS * V) {
        if (x.wide && at + V <= end) {
            ebb__cuda_pack<R, V> values = *reinterpret_cast<const ebb__cuda_pack<R, V> *>(data + at);
#pragma unroll
            for (int v = 0; v < V; v++) sum += (double)values.at[v] * (double)values.at[v];
        } else {
            for (int64_t one = at; one < at + V && one < end; one++) sum += (double)data[one] * (double)data[one];
        }
    }
    return sum;
}

/* Block b adds the squares of chunks b, b + gridDim.x, ... onto partials[b], or writes it where none before had a block
 * b: partials from `written` on.  The grid is the same on any device, so the bits are too. */
EBB_KERNEL void __launch_bounds__(EBB__CUDA_THREADS)
sum_squares_f64(double *partials, vectors batch, unsigned written)
{
    double sum = 0;
    for (int64_t chunk = blockIdx.x; chunk < batch.cut.first[batch.cut.n]; chunk += gridDim.x) {
        const int i = tensor_of(batch.cut, chunk);
        const vector &x = batch.at[i];
        const int64_t begin = (chunk - batch.cut.first[i]) * CHUNK;
        const int64_t end = x.n - begin < CHUNK ? x.n : begin + CHUNK;
        sum += x.f64 ? squares_f64<double>(x, begin, end) : squares_f64<float>(x, begin, end);
    }
    sum = ebb__block_sum<EBB__CUDA_THREADS>(sum);
    if (threadIdx.x == 0) partials[blockIdx.x] = blockIdx.x < written ? partials[blockIdx.x] + sum : sum;
}

/* partials[0] = the sum of those written; one block. */
EBB_KERNEL void __launch_bounds__(EBB__CUDA_PARTIALS) sum_partials_f64(double *partials, unsigned written)
{
    double sum = ebb__block_sum<EBB__CUDA_PARTIALS>(threadIdx.x < written ? partials[threadIdx.x] : 0);
    if (threadIdx.x == 0) partials[0] = sum;
}

ebb_status ebb__cuda_sum_squares(ebb__cuda *cuda, const ebb_arg *args, int n)
{
    double *partials = cuda->partials;
    unsigned written = 0; /* no elements make 0 */
    for (int from = 0; from < n;) {
        const vectors batch = next_vectors(args, n, &from);
        const int64_t n_chunks = batch.cut.first[batch.cut.n];
        const unsigned blocks = n_chunks < EBB__CUDA_PARTIALS ? (unsigned)n_chunks : EBB__CUDA_PARTIALS;
        EBB_LAUNCH(cuda, sum_squares_f64, blocks, EBB__CUDA_THREADS, 0, partials, batch, written);
        if (blocks > written) written = blocks;
    }
    EBB_LAUNCH(cuda, sum_partials_f64, 1, EBB__CUDA_PARTIALS, 0, partials, written);
    return EBB_OK;
}

template <class R>
EBB_DEVICE void scale_elements(const vector &x, int64_t begin, int64_t end, R factor)
{
    constexpr int V = ebb__cuda_width<R>;
    R *data = (R *)x.data;
    for (int64_t at = begin + threadIdx.x * V; at < end; at += EBB__CUDA_THREADS * V) {
        if (x.wide && at + V <= end) {
            ebb__cuda_pack<R, V> values = *reinterpret_cast<ebb__cuda_pack<R, V> *>(data + at);
#pragma unroll
            for (int v = 0; v < V; v++) values.at[v] *= factor;
            *reinterpret_cast<ebb__cuda_pack<R, V> *>(data + at) = values;
        } else {
            for (int64_t one = at; one < at + V && one < end; one++) data[one] *= factor;
        }
    }
}

/* Block blockIdx.x's chunk times `factor`. */
EBB_DEVICE void scale_chunk_f64(const vectors &batch, double factor)
{
    const int i = tensor_of(batch.cut, blockIdx.x);
    const vector &x = batch.at[i];
    const int64_t begin = (blockIdx.x - batch.cut.first[i]) * CHUNK;
    const int64_t end = x.n - begin < CHUNK ? x.n : begin + CHUNK;
    if (x.f64)
        scale_elements<double>(x, begin, end, factor);
    else
        scale_elements<float>(x, begin, end, (float)factor);
}

EBB_KERNEL void __launch_bounds__(EBB__CUDA_THREADS) scale_f64(vectors batch, double factor)
{
    scale_chunk_f64(batch, factor);
}

/* As optim/clip.c computes the factor, on the host. */
EBB_KERNEL void __launch_bounds__(EBB__CUDA_THREADS) scale_to_f64(vectors batch, const double *sum, double max_norm)
{
    const double factor = max_norm / (sqrt(*sum) + 1e-6);
    if (factor >= 1) return;
    scale_chunk_f64(batch, factor);
}

ebb_status ebb__cuda_scale(ebb__cuda *cuda, const ebb_arg *args, int n, double factor)
{
    for (int from = 0; from < n;) {
        const vectors batch = next_vectors(args, n, &from);
        const unsigned blocks = (unsigned)batch.cut.first[batch.cut.n];
        EBB_LAUNCH(cuda, scale_f64, blocks, EBB__CUDA_THREADS, 0, batch, factor);
    }
    return EBB_OK;
}

ebb_status ebb__cuda_scale_to(ebb__cuda *cuda, const ebb_arg *args, int n, double max_norm)
{
    for (int from = 0; from < n;) {
        const vectors batch = next_vectors(args, n, &from);
        const unsigned blocks = (unsigned)batch.cut.first[batch.cut.n];
        EBB_LAUNCH(cuda, scale_to_f64, blocks, EBB__CUDA_THREADS, 0, batch, (const double *)cuda->partials, max_norm);
    }
    return EBB_OK;
}
