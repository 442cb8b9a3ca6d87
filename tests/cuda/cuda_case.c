/* cuda/cuda_case.c: passes of a case, run and compared. */
#include "cuda/cuda_case.h"

#include <criterion/criterion.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "ops/table.h"

/* Sanitizers look at addresses and at what nothing orders, which one order of threads shows as well as three. */
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
enum { ALL_ORDERS = 0 };
#else
enum { ALL_ORDERS = 1 };
#endif

/* Addresses decide how a kernel reads, not what it does with the gradient: to ThreadSanitizer, under which a pass takes
 * ten times as long, forward passes and whole gradients that are added show both ways. */
#ifdef __SANITIZE_THREAD__
enum { ALL_ADDRESSES = 0 };
#else
enum { ALL_ADDRESSES = 1 };
#endif

/* Gradients are added onto this. */
#define START 0.75

const ebb__accel_op *cuda_row(const ebb_op *op)
{
#define EBB_OP(id) if (op == &ebb_op_##id) return &ebb_cuda_##id;
#include "ops/ops.def"
#undef EBB_OP
    return NULL;
}

/* ---- passes ---------------------------------------------------------------------------------- */

typedef enum over { OVER_NOTHING, OVER_DOUT, OVER_IN } over;

typedef struct pass {
    const char *what;
    int direction;             /* EBB_FORWARD, EBB_BACKWARD */
    bool no_aux;
    unsigned want, accumulate; /* EBB_IN masks */
    over over;                 /* out[0] (forward) or din[0] (backward) is written over that */
} pass;

enum { MOST_PASSES = 64 };

typedef struct pass_list {
    pass at[MOST_PASSES];
    int n;
} pass_list;

static void add_pass(pass_list *list, pass p)
{
    cr_assert(list->n < MOST_PASSES, "more than %d passes", MOST_PASSES);
    list->at[list->n++] = p;
}

static bool same_kind(const ebb_arg *a, const ebb_arg *b)
{
    return a->dtype == b->dtype && a->ndim == b->ndim &&
           memcmp(a->dims, b->dims, (size_t)a->ndim * sizeof a->dims[0]) == 0;
}

/* The same tensor, contiguous and without data. */
static void lay_out(ebb_arg *arg, const ebb_arg *like)
{
    ebb_status st = ebb_arg_set(arg, like->dtype, like->ndim, like->dims);
    cr_assert(st == EBB_OK, "%s", ebb_message());
}

/* Masks of inputs whose gradients one call computes: each alone, or each subset; those of a joint op are added
 * where all are wanted, once all of them, once every other. */
static void add_backward(pass_list *list, const case_call *t, unsigned with_gradient)
{
    enum { ALTERNATE = 0x55 };
    const ebb_op *op = t->call.op;
    bool joint = op->flags & EBB_OP_JOINT;
    for (unsigned want = 1; want <= with_gradient; want++) {
        bool alone = (want & (want - 1)) == 0;
        if (want & ~with_gradient || (!joint && !alone)) continue;
        add_pass(list, (pass){ .what = "gradient", .direction = EBB_BACKWARD, .want = want });
        if (joint && want != with_gradient) continue;
        add_pass(list, (pass){ .what = "added gradient", .direction = EBB_BACKWARD, .want = want, .accumulate = want });
        if (!alone) add_pass(list, (pass){ .what = "partly added gradient", .direction = EBB_BACKWARD, .want = want,
                                           .accumulate = want & ALTERNATE });
    }
    bool like_dout = same_kind(&t->call.in[0], &t->call.out[0]);
    unsigned all = joint ? with_gradient : EBB_IN(0);
    if (!(with_gradient & EBB_IN(0))) return;
    if (op->flags & EBB_OP_GRAD_OVER_DOUT && like_dout)
        add_pass(list, (pass){ .what = "gradient over dout", .direction = EBB_BACKWARD, .want = all,
                               .over = OVER_DOUT });
    if (op->flags & EBB_OP_GRAD_OVER_IN)
        add_pass(list, (pass){ .what = "gradient over the input", .direction = EBB_BACKWARD, .want = all,
                               .over = OVER_IN });
}

static pass_list list_passes(const case_call *t)
{
    const ebb_op *op = t->call.op;
    pass_list list = { .n = 0 };
    unsigned with_gradient = 0;
    add_pass(&list, (pass){ .what = "forward", .direction = EBB_FORWARD });
    if (op->n_aux)
        add_pass(&list, (pass){ .what = "forward without auxiliary outputs", .direction = EBB_FORWARD, .no_aux = true });
    if (op->flags & EBB_OP_INPLACE_OK && same_kind(&t->call.in[0], &t->call.out[0]))
        add_pass(&list, (pass){ .what = "forward over its input", .direction = EBB_FORWARD, .over = OVER_IN });
    for (int i = 0; i < t->call.n_in; i++)
        if (case_has_gradient(t, i)) with_gradient |= EBB_IN(i);
    add_backward(&list, t, with_gradient);
    return list;
}

/* ---- buffers of exactly the size, so that AddressSanitizer sees each step outside -------------------- */

static size_t span_bytes(const ebb_arg *arg)
{
    int64_t last = 0;
    for (int d = 0; d < arg->ndim; d++) last += (arg->dims[d] - 1) * arg->strides[d];
    return arg->elems ? (size_t)(last + 1) * ebb_dtype_bytes(arg->dtype) : 0;
}

typedef struct buffers {
    void *base[2 * (EBB_MAX_IN + EBB_MAX_OUT)];
    int n;
} buffers;

/* `shift` elements behind an address aligned for everything; poisoned where `from` is NULL. */
static void *take(buffers *b, const ebb_arg *like, const void *from, int64_t shift)
{
    size_t bytes = span_bytes(like), skipped = (size_t)shift * ebb_dtype_bytes(like->dtype);
    char *base = malloc(skipped + bytes);
    memset(base, 0xFF, skipped + bytes); /* NaN in every float dtype */
    if (from) memcpy(base + skipped, from, bytes);
    b->base[b->n++] = base;
    return base + skipped;
}

static void give_back(buffers *b)
{
    while (b->n > 0) free(b->base[--b->n]);
}

static void copy_values(const ebb_arg *to, const ebb_arg *from)
{
    for (int64_t i = 0; i < to->elems; i++) case_set(to, i, case_get(from, i));
}

/* ---- one pass on one device ---------------------------------------------------------------------- */

/* What a pass wrote; args are contiguous.  Owner: whoever asked; outcome_free(). */
typedef struct outcome {
    ebb_arg out[EBB_MAX_OUT], din[EBB_MAX_IN]; /* data NULL: not written in this pass */
} outcome;

static void outcome_free(outcome *o)
{
    for (int j = 0; j < EBB_MAX_OUT; j++) free(o->out[j].data);
    for (int i = 0; i < EBB_MAX_IN; i++) free(o->din[i].data);
}

static ebb_arg keep(const ebb_arg *arg)
{
    ebb_arg kept = *arg;
    if (!arg->data) return kept;
    kept.data = malloc(span_bytes(arg) + 1);
    memcpy(kept.data, arg->data, span_bytes(arg));
    return kept;
}

static void run_kernel(ebb_call *c, const pass *p, ebb__cuda *cuda)
{
    const ebb_op *op = c->op;
    size_t bytes = 0;
    if (cuda && op->cuda_workspace) bytes = op->cuda_workspace(c, p->direction);
    if (!cuda && op->cpu.workspace) bytes = op->cpu.workspace(c, p->direction, ebb_context_threads(c->ctx));
    void *scratch = NULL;
    cr_assert(bytes == 0 || posix_memalign(&scratch, 64, bytes) == 0);
    if (bytes) memset(scratch, 0xFF, bytes);
    c->workspace = scratch;
    c->workspace_bytes = bytes;
    ebb_status st;
    if (cuda) {
        const ebb__accel_op *row = cuda_row(op);
        cuda->op = op->name;
        c->ctx = NULL; /* the plugin cannot look into it */
        st = (p->direction == EBB_FORWARD ? row->forward : row->backward)(cuda, c);
        cr_assert(*cuda->error == 0, "%s: %s reports bad data: %#x", op->name, p->what, *cuda->error);
    } else {
        st = (p->direction == EBB_FORWARD ? op->cpu.forward : op->cpu.backward)(c);
    }
    cr_assert(st == EBB_OK, "%s: %s: %s", op->name, p->what, ebb_message());
    free(scratch);
}

/* What lies an element behind an address aligned for everything. */
typedef enum odd_place { ODD_NOTHING, ODD_INPUTS, ODD_RESULTS } odd_place;

static void run_forward(outcome *o, const case_call *t, const pass *p, ebb__cuda *cuda, odd_place odd)
{
    const int64_t shift = odd == ODD_INPUTS, results = odd == ODD_RESULTS;
    buffers b = { .n = 0 };
    ebb_call c = t->call;
    bool in_place = p->over == OVER_IN;
    for (int i = 0; i < c.n_in; i++) {
        c.in[i].data = take(&b, &c.in[i], t->call.in[i].data, shift);
        if (i > 0 || !in_place || ebb_arg_is_contiguous(&c.in[0])) continue;
        lay_out(&c.in[0], &t->call.in[0]); /* in place: contiguous */
        c.in[0].data = take(&b, &c.in[0], NULL, shift);
        copy_values(&c.in[0], &t->call.in[0]);
    }
    for (int j = 0; j < c.n_out; j++) {
        bool aux = j >= c.n_out - c.op->n_aux;
        c.out[j].data = aux && p->no_aux ? NULL : in_place && j == 0 ? c.in[0].data : take(&b, &c.out[j], NULL, results);
    }
    run_kernel(&c, p, cuda);
    for (int j = 0; j < c.n_out; j++) o->out[j] = keep(&c.out[j]);
    give_back(&b);
}

static uint32_t needed(const case_call *t, unsigned want)
{
    uint32_t needs = 0;
    for (int i = 0; i < t->call.n_in; i++)
        if (want & EBB_IN(i)) needs |= t->call.op->needs[i];
    return needs;
}

/* `saved`: what forward gave on the same device. */
static void run_backward(outcome *o, const case_call *t, const outcome *saved, const pass *p, ebb__cuda *cuda, odd_place odd)
{
    const int64_t shift = odd == ODD_INPUTS, results = odd == ODD_RESULTS;
    buffers b = { .n = 0 };
    ebb_call c = t->call;
    uint32_t needs = needed(t, p->want);
    for (int i = 0; i < c.n_in; i++)
        c.in[i].data = needs & EBB_IN(i) ? take(&b, &c.in[i], t->call.in[i].data, shift) : NULL;
    for (int j = 0; j < c.n_out; j++) {
        bool view = c.op->flags & EBB_OP_VIEW;
        c.out[j].data = needs & EBB_OUT(j) && !view ? take(&b, &c.out[j], saved->out[j].data, 0) : NULL;
        if (t->call.dout[j].data) c.dout[j].data = take(&b, &c.dout[j], t->call.dout[j].data, shift);
    }
    for (int i = 0; i < c.n_in; i++) {
        c.want[i] = p->want & EBB_IN(i);
        c.accumulate[i] = p->accumulate & EBB_IN(i);
        if (!c.want[i]) continue;
        lay_out(&c.din[i], &t->call.in[i]);
        if (i == 0 && p->over == OVER_DOUT && ebb_arg_is_contiguous(&c.dout[0])) c.din[0].data = c.dout[0].data;
        else if (i == 0 && p->over == OVER_IN && c.in[0].data) c.din[0].data = c.in[0].data;
        else c.din[i].data = take(&b, &c.din[i], NULL, results);
        for (int64_t k = 0; k < c.din[i].elems && c.accumulate[i]; k++) case_set(&c.din[i], k, START);
    }
    run_kernel(&c, p, cuda);
    for (int i = 0; i < c.n_in; i++)
        if (c.want[i]) o->din[i] = keep(&c.din[i]);
    give_back(&b);
}

/* ---- comparing ----------------------------------------------------------------------------------- */

static double tolerance_of(const case_call *t)
{
    int i = 0;
    while (i < t->call.n_in - 1 && !ebb_dtype_is_float(t->call.in[i].dtype)) i++;
    ebb_dtype dtype = t->call.in[i].dtype;
    return dtype == EBB_F64 ? 1e-12 : dtype == EBB_F32 ? 1e-5 : dtype == EBB_F16 ? 1e-3 : 1e-2;
}

/* By norm; 0.1 an element is the least that differences are measured against. */
static void check_near(const case_call *t, const pass *p, const char *part, int i, const ebb_arg *got,
                       const ebb_arg *want)
{
    const double least = 0.1;
    double difference = 0, norm = 0;
    for (int64_t k = 0; k < want->elems; k++) {
        double a = case_get(got, k), b = case_get(want, k);
        if (a == b || (isnan(a) && isnan(b))) a = b = isfinite(b) ? b : 0;
        difference += (a - b) * (a - b);
        norm += b * b;
    }
    double size = sqrt(norm) + least * sqrt((double)want->elems);
    double tolerance = ebb_dtype_is_float(want->dtype) ? tolerance_of(t) : 0;
    cr_assert(sqrt(difference) <= tolerance * size, "%s in %s, %s: %s: %s %d differs from the CPU's by %g of %g",
              t->call.op->name, ebb_dtype_name(t->call.in[0].dtype), t->c->name, p->what, part, i,
              sqrt(difference), sqrt(norm));
}

static void check_same_bits(const case_call *t, const pass *p, const char *part, int i, const ebb_arg *got,
                            const ebb_arg *want, const char *changed)
{
    cr_assert(memcmp(got->data, want->data, span_bytes(want)) == 0, "%s in %s, %s: %s: %s %d has other bits %s",
              t->call.op->name, ebb_dtype_name(t->call.in[0].dtype), t->c->name, p->what, part, i, changed);
}

/* changed: what was changed since `want`, where that must not change a bit; NULL: `want` is the CPU's. */
static void compare(const case_call *t, const pass *p, const outcome *got, const outcome *want, const char *changed)
{
    for (int k = 0; k < EBB_MAX_OUT + EBB_MAX_IN; k++) {
        bool is_out = k < EBB_MAX_OUT;
        int i = is_out ? k : k - EBB_MAX_OUT;
        const ebb_arg *a = is_out ? &got->out[i] : &got->din[i], *b = is_out ? &want->out[i] : &want->din[i];
        bool aux = is_out && i >= t->call.n_out - t->call.op->n_aux;
        if (!b->data || (aux && !changed)) continue; /* what auxiliary outputs hold is the device's own affair */
        if (changed) check_same_bits(t, p, is_out ? "output" : "gradient", i, a, b, changed);
        else check_near(t, p, is_out ? "output" : "gradient", i, a, b);
    }
}

/* ---- a case ---------------------------------------------------------------------------------------- */

typedef struct checker {
    cuda_case_run *run;
    case_call t;                   /* for CUDA */
    case_call wide, *cpu;          /* for the CPU: &wide, where it has no kernels for the dtype, or &t */
    outcome saved_cpu, saved_cuda; /* of the first pass, forward */
} checker;

static void execute(checker *k, const pass *p, outcome *o, ebb__cuda *cuda, odd_place odd)
{
    memset(o, 0, sizeof *o);
    if (p->direction == EBB_FORWARD && k->t.call.op->flags & EBB_OP_VIEW) return;
    const case_call *t = cuda ? &k->t : k->cpu;
    if (p->direction == EBB_FORWARD) run_forward(o, t, p, cuda, odd);
    else run_backward(o, t, cuda ? &k->saved_cuda : &k->saved_cpu, p, cuda, odd);
    k->run->n_passes++;
}

/* As it was, but for the order of threads or the addresses of inputs or results. */
static void check_again(checker *k, const pass *p, const outcome *identity, emu_order order, unsigned seed,
                        odd_place odd, const char *changed)
{
    outcome other;
    emu_set_order(order, seed);
    execute(k, p, &other, k->run->cuda, odd);
    compare(&k->t, p, &other, identity, changed);
    outcome_free(&other);
}

static void check_pass(checker *k, const pass *p, bool first)
{
    outcome want, identity;
    emu_set_order(EMU_IDENTITY, 0);
    execute(k, p, &want, NULL, ODD_NOTHING);
    execute(k, p, &identity, k->run->cuda, ODD_NOTHING);
    compare(&k->t, p, &identity, &want, NULL);
    if (ALL_ADDRESSES || p->accumulate == p->want)
        check_again(k, p, &identity, EMU_IDENTITY, 0, ODD_INPUTS, "when inputs lie at odd addresses");
    if (ALL_ADDRESSES) check_again(k, p, &identity, EMU_IDENTITY, 0, ODD_RESULTS, "when results lie at odd addresses");
    if (ALL_ORDERS) {
        check_again(k, p, &identity, EMU_REVERSE, 0, ODD_NOTHING, "when threads run in reverse order");
        for (int seed = 1; seed <= k->run->seeds; seed++)
            check_again(k, p, &identity, EMU_RANDOM, (unsigned)seed, ODD_NOTHING, "when threads run in random order");
    }
    if (first) {
        k->saved_cpu = want;
        k->saved_cuda = identity;
        return;
    }
    outcome_free(&want);
    outcome_free(&identity);
}

static bool is_half(ebb_dtype dtype) { return dtype == EBB_F16 || dtype == EBB_BF16; }

/* An op that the CPU computes in f32 and f64 only: its halves are compared with f32 of the same values.  As infer()
 * does for halves, losses and auxiliary outputs are in f32. */
static bool make_wide(checker *k, const ebb_op *op, const ebb_op_case *c, ebb_dtype dtype)
{
    if (!is_half(dtype) || case_make(&k->wide, op, c, EBB_F32, k->run->ctx) != EBB_OK) return false;
    ebb_call *half = &k->t.call;
    const ebb_call *wide = &k->wide.call;
    for (int i = 0; i < c->n_in; i++) copy_values(&wide->in[i], &half->in[i]);
    case_make_douts(&k->wide);
    memcpy(half->attrs, wide->attrs, sizeof half->attrs);
    for (int j = 0; j < op->n_out; j++) {
        half->out[j] = wide->out[j];
        bool summed = j >= op->n_out - op->n_aux || half->out[j].ndim == 0;
        if (half->out[j].dtype == EBB_F32 && !summed) half->out[j].dtype = dtype;
    }
    case_make_douts(&k->t);
    for (int j = 0; j < op->n_out - op->n_aux; j++) copy_values(&wide->dout[j], &half->dout[j]);
    k->cpu = &k->wide;
    return true;
}

static bool make(checker *k, const ebb_op *op, const ebb_op_case *c, ebb_dtype dtype)
{
    if (case_make(&k->t, op, c, dtype, k->run->ctx) != EBB_OK) return make_wide(k, op, c, dtype);
    case_make_douts(&k->t);
    if (k->run->first_dout != 0) case_set(&k->t.call.dout[0], 0, k->run->first_dout);
    k->cpu = &k->t;
    return true;
}

bool cuda_case_check(cuda_case_run *run, const ebb_op *op, const ebb_op_case *c, ebb_dtype dtype)
{
    checker k = { .run = run };
    bool taken = make(&k, op, c, dtype);
    if (taken) {
        pass_list list = list_passes(&k.t);
        for (int i = 0; i < list.n; i++) check_pass(&k, &list.at[i], i == 0);
        outcome_free(&k.saved_cpu);
        outcome_free(&k.saved_cuda);
    }
    case_free(&k.t);
    case_free(&k.wide);
    return taken;
}
