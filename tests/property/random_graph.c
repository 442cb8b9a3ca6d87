#include "random_graph.h"

#include <string.h>

#include "draw.h"
#include "support/support.h"

/* Every tensor of the pool is [rows, cols]; ops in between may have other shapes. */
enum { N_LIVE = 10, N_WEIGHTS = 3, N_ROWS = 4, N_INPUTS = 3, MAX_DEPTH = 4, VOCAB = 7 };

typedef struct graph {
    ebb_context *ctx;
    draw ops, saving;
    bool recompute;               /* segments are made at all */
    double segment_chance;
    int depth;                    /* of open segments */
    ebb_dtype dtype;
    int64_t rows, cols;           /* cols: a multiple of 4 */
    ebb_tensor *live[N_LIVE];     /* NULL: an empty place */
    ebb_tensor *input[N_INPUTS];  /* leaves that were in the pool first */
    ebb_tensor *weight[N_WEIGHTS]; /* [cols, cols], used many times */
    ebb_tensor *row[N_ROWS];      /* [cols] */
    ebb_tensor *table, *index, *label; /* [VOCAB, cols]; i32 [rows], below VOCAB; i32 [rows], -1..3 */
    bool retain;                  /* backward runs twice */
} graph;

/* ---- memory -------------------------------------------------------------------------------- */

void check_memory_sums(const ebb_context *ctx)
{
    ebb_memory_stats m;
    ebb_memory_stats_get(ctx, &m);
    size_t now = 0, peak = 0;
    for (int c = 0; c < EBB_N_CATEGORIES; c++) {
        now += m.by_category[c];
        peak += m.by_category_at_peak[c];
    }
    cr_assert(now == m.allocated_bytes, "categories sum to %zu, allocated is %zu", now, m.allocated_bytes);
    cr_assert(peak == m.peak_allocated_bytes, "categories at the peak sum to %zu, the peak is %zu", peak,
              m.peak_allocated_bytes);
}

static ebb_status look_on_grad(void *user, ebb_tensor *t, ebb_tensor **grad)
{
    (void)t, (void)grad;
    check_memory_sums(user);
    return EBB_OK;
}

/* ---- one op -------------------------------------------------------------------------------- */

static ebb_tensor *any_live(graph *g)
{
    int at = draw_int(&g->ops, N_LIVE);
    while (!g->live[at]) at = (at + 1) % N_LIVE; /* place 0 is never emptied */
    return g->live[at];
}

static ebb_status reshape2(graph *g, ebb_tensor **out, ebb_tensor *x)
{
    return ebb_reshape(out, x, 2, (int64_t[]){ g->rows, g->cols });
}

static ebb_status reshape3(graph *g, ebb_tensor **out, ebb_tensor *x)
{
    return ebb_reshape(out, x, 3, (int64_t[]){ 1, g->rows, g->cols });
}

static ebb_status unary(graph *g, ebb_tensor **out, ebb_tensor *x)
{
    draw *d = &g->ops;
    switch (draw_int(d, 11)) {
    case 0: return ebb_tanh(out, x);
    case 1: return ebb_sigmoid(out, x);
    case 2: return ebb_relu(out, x);
    case 3: return ebb_silu(out, x);
    case 4: return ebb_neg(out, x);
    case 5: return ebb_gelu(out, x, draw_int(d, 2) ? EBB_GELU_ERF : EBB_GELU_TANH);
    case 6: return ebb_scale(out, x, draw_unit(d) * 2 - 1);
    case 7: return ebb_dropout(out, x, (double[]){ 0, 0.1, 0.5, 0.9 }[draw_int(d, 4)]);
    case 8: return ebb_softmax(out, x, draw_int(d, 2));
    case 9: return ebb_log_softmax(out, x, draw_int(d, 2));
    default: return ebb_contiguous(out, x);
    }
}

static ebb_status binary(graph *g, ebb_tensor **out, ebb_tensor *x)
{
    EBB_LOCAL(h);
    ebb_tensor *y = any_live(g);
    switch (draw_int(&g->ops, 5)) {
    case 0: return ebb_add(out, x, y);
    case 1: return ebb_sub(out, x, y);
    case 2:
        EBB_TRY(ebb_tanh(&h, y)); /* keeps products of products small */
        return ebb_mul(out, x, h);
    case 3:
        EBB_TRY(ebb_tanh(&h, y));
        EBB_TRY(ebb_exp(&h, h));
        return ebb_div(out, x, h);
    default:
        EBB_TRY(ebb_tanh(&h, y));
        return ebb_swiglu(out, x, h);
    }
}

static ebb_status with_parameter(graph *g, ebb_tensor **out, ebb_tensor *x)
{
    draw *d = &g->ops;
    EBB_LOCAL(h);
    ebb_tensor *w = g->weight[draw_int(d, N_WEIGHTS)], *row = g->row[draw_int(d, N_ROWS)];
    ebb_tensor *bias = draw_int(d, 2) ? g->row[draw_int(d, N_ROWS)] : NULL;
    switch (draw_int(d, 7)) {
    case 0: return ebb_linear(out, x, w, bias);
    case 1: return ebb_matmul_ex(out, x, w, false, draw_int(d, 2));
    case 2: return ebb_layernorm(out, x, row, bias, 1e-5);
    case 3: return ebb_rmsnorm(out, x, row, 1e-5);
    case 4: return ebb_add(out, row, x);
    case 5: return ebb_mul(out, x, row);
    default:
        EBB_TRY(ebb_embedding(&h, g->table, g->index));
        return ebb_add(out, h, x);
    }
}

static ebb_status attention(graph *g, ebb_tensor **out, ebb_tensor *x)
{
    EBB_LOCAL(q);
    EBB_LOCAL(k);
    ebb_tensor *y = any_live(g);
    ebb_attention_options o = { .heads = 2, .causal = draw_int(&g->ops, 2) };
    if (draw_int(&g->ops, 2)) { /* on three tensors */
        EBB_TRY(reshape3(g, &q, x));
        EBB_TRY(reshape3(g, &k, y));
        EBB_TRY(ebb_rope(&q, q, &(ebb_rope_options){ .head_dim = g->cols / 2, .base = 100 }));
        EBB_TRY(ebb_attention(&q, q, k, k, NULL, &o));
        return reshape2(g, out, q);
    }
    EBB_TRY(ebb_cat(&q, 3, (ebb_tensor *[]){ x, y, x }, 1)); /* packed */
    EBB_TRY(ebb_reshape(&q, q, 3, (int64_t[]){ 1, g->rows, 3 * g->cols }));
    EBB_TRY(ebb_attention_packed(&q, q, &o));
    return reshape2(g, out, q);
}

static ebb_status shape(graph *g, ebb_tensor **out, ebb_tensor *x)
{
    draw *d = &g->ops;
    EBB_LOCAL(h);
    EBB_LOCAL(k);
    switch (draw_int(d, 5)) {
    case 0: /* halves change places */
        EBB_TRY(ebb_narrow(&h, x, 1, 0, g->cols / 2));
        EBB_TRY(ebb_narrow(&k, x, 1, g->cols / 2, g->cols / 2));
        return ebb_cat(out, 2, (ebb_tensor *[]){ k, h }, 1);
    case 1: /* a view with other strides */
        EBB_TRY(ebb_reshape(&h, x, 2, (int64_t[]){ g->cols, g->rows }));
        return ebb_transpose(out, h, 0, 1);
    case 2:
        EBB_TRY(ebb_reshape(&h, x, 3, (int64_t[]){ g->rows, g->cols / 2, 2 }));
        EBB_TRY(ebb_permute(&h, h, 3, (int[]){ 0, 2, 1 }));
        return reshape2(g, out, h);
    case 3: /* minus the mean of its rows */
        EBB_TRY(ebb_mean(&h, x, 1, (int[]){ draw_int(d, 2) }, true));
        return ebb_sub(out, x, h);
    default: /* there and back, with rounding where the graph is in f64 */
        EBB_TRY(ebb_cast(&h, x, g->dtype == EBB_F64 ? EBB_F32 : EBB_F64));
        return ebb_cast(out, h, g->dtype);
    }
}

/* Binds *out from x and, sometimes, from other tensors of the pool. */
static ebb_status any_op(graph *g, ebb_tensor **out, ebb_tensor *x)
{
    EBB_LOCAL(h);
    double kind = draw_unit(&g->ops);
    if (kind < 0.35) return unary(g, out, x);
    if (kind < 0.55) return binary(g, out, x);
    if (kind < 0.78) return with_parameter(g, out, x);
    if (kind < 0.87) return shape(g, out, x);
    if (kind < 0.94) return attention(g, out, x);
    if (kind < 0.98) { /* scores that are not fused: products of tensors of the pool */
        EBB_TRY(ebb_matmul_ex(&h, x, any_live(g), false, true));
        EBB_TRY(ebb_softmax(&h, h, 1));
        return ebb_matmul(out, h, any_live(g));
    }
    return ebb_detach(out, x);
}

/* ---- savers -------------------------------------------------------------------------------- */

static ebb_saver any_saver(void *user, const ebb_op *op, const ebb_call *call)
{
    (void)op, (void)call;
    static const ebb_saver savers[] = { EBB_SAVER_RECOMPUTE, EBB_SAVER_RECOMPUTE, EBB_SAVER_KEEP, EBB_SAVER_OFFLOAD,
                                        EBB_SAVER_CUSTOM };
    return savers[draw_int(user, sizeof savers / sizeof *savers)];
}

/* A saver of the user's that keeps each byte turned over, and counts what it holds. */
static int n_packed;

static size_t turned_bytes(void *user, const ebb_arg *x)
{
    (void)user;
    size_t n = (size_t)x->elems * ebb_dtype_bytes(x->dtype);
    return n % 3 ? n : SIZE_MAX; /* some it leaves alone */
}

static bool turn(void *user, const ebb_arg *x, void *packed)
{
    const unsigned char *from = x->data;
    unsigned char *to = packed;
    size_t n = turned_bytes(user, x);
    for (size_t i = 0; i < n; i++) to[i] = from[i] ^ 0x5A;
    n_packed++;
    return true;
}

static ebb_status turn_back(void *user, const ebb_arg *x, const void *packed)
{
    const unsigned char *from = packed;
    unsigned char *to = x->data;
    for (size_t i = 0; i < turned_bytes(user, x); i++) to[i] = from[i] ^ 0x5A;
    return EBB_OK;
}

static void drop_turned(void *user, void *packed)
{
    (void)user, (void)packed;
    n_packed--;
}

static const ebb_packer turner = { .name = "turner", .packed_bytes = turned_bytes, .pack = turn,
                                   .unpack = turn_back, .drop = drop_turned };

int random_graph_packed(void) { return n_packed; }

static ebb_checkpoint_options segment_options(graph *g)
{
    ebb_checkpoint_options o = { .struct_bytes = sizeof(o), .name = "drawn", .user = &g->saving,
                                 .custom = &turner };
    if (draw_int(&g->saving, 3) == 0) o.policy = any_saver;
    return o;
}

static ebb_status few_ops(void *user, ebb_tensor **out, ebb_tensor *x);

/* A function that runs as a segment when segments are made. */
static ebb_status call(graph *g, ebb_tensor **out, ebb_tensor *x)
{
    if (!g->recompute || g->depth >= MAX_DEPTH) return few_ops(g, out, x);
    ebb_checkpoint_options o = segment_options(g);
    g->depth++;
    ebb_status st = ebb_checkpoint(out, x, few_ops, g, &o);
    g->depth--;
    return st;
}

static ebb_status few_ops(void *user, ebb_tensor **out, ebb_tensor *x)
{
    graph *g = user;
    EBB_LOCAL(h);
    ebb_bind(&h, x);
    for (int n = 1 + draw_int(&g->ops, 3); n > 0; n--) {
        if (draw_chance(&g->ops, 0.2)) EBB_TRY(call(g, &h, h));
        else EBB_TRY(any_op(g, &h, h));
    }
    ebb_move(out, &h);
    return EBB_OK;
}

/* Borders of segments that have many inputs and outputs. */
static ebb_status move_borders(graph *g)
{
    if (!g->recompute) return EBB_OK;
    if (g->depth > 0 && draw_chance(&g->saving, g->segment_chance)) {
        ebb_segment_end(g->ctx);
        g->depth--;
    }
    if (g->depth < MAX_DEPTH && draw_chance(&g->saving, g->segment_chance)) {
        ebb_checkpoint_options o = segment_options(g);
        EBB_TRY(ebb_segment_begin(g->ctx, &o));
        g->depth++;
    }
    return EBB_OK;
}

static void end_segments(graph *g)
{
    for (; g->depth > 0; g->depth--) ebb_segment_end(g->ctx);
}

/* Each op one of the savers that change no bit, or all of them, or none. */
static ebb_status set_op_savers(graph *g)
{
    static const ebb_saver savers[] = { EBB_SAVER_KEEP, EBB_SAVER_OFFLOAD, EBB_SAVER_OFFLOAD, EBB_SAVER_CUSTOM };
    int how = g->recompute ? draw_int(&g->saving, 4) : 0; /* 0, 1: keep; 2: one for all; 3: each its own */
    EBB_TRY(ebb_op_saver(g->ctx, "*", how == 2 ? EBB_SAVER_OFFLOAD : EBB_SAVER_KEEP, NULL));
    for (int i = 0; i < ebb_op_count(); i++) {
        ebb_saver saver = how == 3 ? savers[draw_int(&g->saving, 4)] : how == 2 ? EBB_SAVER_OFFLOAD : EBB_SAVER_KEEP;
        EBB_TRY(ebb_op_saver(g->ctx, ebb_op_at(i)->name, saver, saver == EBB_SAVER_CUSTOM ? &turner : NULL));
    }
    return EBB_OK;
}

static ebb_status set_recomputed_ops(graph *g)
{
    const char *names[64];
    int n = 0;
    if (g->recompute && draw_int(&g->saving, 2))
        for (int i = 0; i < ebb_op_count() && n < 64; i++)
            if (draw_int(&g->saving, 2)) names[n++] = ebb_op_at(i)->name;
    return ebb_recompute_ops(g->ctx, names, n);
}

/* ---- the graph ----------------------------------------------------------------------------- */

static ebb_status make_leaf(graph *g, ebb_tensor **out, int ndim, const int64_t *dims, double mean, double std)
{
    EBB_TRY(ebb_normal(out, g->ctx, g->dtype, ndim, dims, mean, std));
    ebb_tensor_set_category(*out, EBB_CAT_PARAMETER);
    return ebb_set_requires_grad(*out, draw_chance(&g->ops, 0.8));
}

static ebb_status make_leaves(graph *g)
{
    int64_t C = g->cols, mat[] = { C, C }, xs[] = { g->rows, C }, table[] = { VOCAB, C };
    int32_t index[16], label[16];
    for (int i = 0; i < N_WEIGHTS; i++) EBB_TRY(make_leaf(g, &g->weight[i], 2, mat, 0, 0.4));
    for (int i = 0; i < N_ROWS; i++) EBB_TRY(make_leaf(g, &g->row[i], 1, &C, 0.5, 0.5));
    EBB_TRY(make_leaf(g, &g->table, 2, table, 0, 1));
    for (int i = 0; i < g->rows; i++) index[i] = draw_int(&g->ops, VOCAB);
    for (int i = 0; i < g->rows; i++) label[i] = draw_int(&g->ops, 5) - 1;
    EBB_TRY(ebb_from_data(&g->index, g->ctx, EBB_I32, 1, &g->rows, index));
    EBB_TRY(ebb_from_data(&g->label, g->ctx, EBB_I32, 1, &g->rows, label));
    for (int i = 0; i < N_INPUTS; i++) {
        EBB_TRY(make_leaf(g, &g->input[i], 2, xs, 0, 1));
        ebb_bind(&g->live[i], g->input[i]);
    }
    return EBB_OK;
}

static ebb_status one_step(graph *g)
{
    draw *d = &g->ops;
    EBB_LOCAL(y);
    EBB_TRY(move_borders(g));
    int to = draw_int(d, N_LIVE);
    bool rebind = draw_chance(d, 0.4) && g->live[to]; /* the op may then write over its input */
    if (draw_chance(d, 0.15)) EBB_TRY(call(g, &y, any_live(g)));
    else if (rebind) EBB_TRY(any_op(g, &g->live[to], g->live[to]));
    else EBB_TRY(any_op(g, &y, any_live(g)));
    if (y) ebb_move(&g->live[to], &y);
    if (to > 0 && draw_chance(d, 0.15)) ebb_drop(&g->live[to]);
    if (draw_chance(d, 0.1) && g->live[to] && ebb_requires_grad(g->live[to])) {
        ebb_hook look = { .user = g->ctx, .on_grad = look_on_grad };
        EBB_TRY(ebb_hook_add(g->live[to], &look, NULL));
    }
    if (draw_chance(d, 0.2)) check_memory_sums(g->ctx);
    return EBB_OK;
}

/* A scalar from a live tensor.  What cross-entropy reads may be a leaf, a view, or held by others. */
static ebb_status loss_part(graph *g, ebb_tensor **out)
{
    EBB_LOCAL(h);
    ebb_tensor *x = any_live(g);
    switch (draw_int(&g->ops, 3)) {
    case 0:
        EBB_TRY(ebb_mul(&h, x, x));
        return ebb_mean(out, h, 0, NULL, false);
    case 1: return ebb_cross_entropy(out, x, g->label, draw_int(&g->ops, 2) ? 3 : 0);
    default: /* of logits that nobody else holds */
        EBB_TRY(any_op(g, &h, x));
        return ebb_cross_entropy(out, h, g->label, 0);
    }
}

/* Binds *loss to a sum over a few live tensors, and empties most places of the pool. */
static ebb_status make_loss(graph *g, ebb_tensor **loss)
{
    for (int i = 0; i < 3; i++) {
        EBB_LOCAL(part);
        EBB_TRY(loss_part(g, &part));
        if (*loss) EBB_TRY(ebb_add(loss, *loss, part));
        else ebb_move(loss, &part);
    }
    for (int i = 1; i < N_LIVE; i++)
        if (draw_chance(&g->ops, 0.7)) ebb_drop(&g->live[i]);
    return EBB_OK;
}

/* A graph that is retained is not written over, so this also compares kernels in place with others. */
static ebb_status backward(graph *g, ebb_tensor *loss)
{
    ebb_backward_options o = { .struct_bytes = sizeof(o), .retain_graph = true };
    bool keep_last = g->recompute && draw_int(&g->saving, 2);
    if (g->retain) {
        EBB_TRY(ebb_backward_ex(&loss, 1, &o));
        check_memory_sums(g->ctx);
    }
    ebb_status st = keep_last ? ebb_backward_ex(&loss, 1, &o) : ebb_backward(loss);
    check_memory_sums(g->ctx);
    return st;
}

static void read_grad(graph_result *out, const ebb_tensor *leaf)
{
    int i = out->n_grads++;
    ebb_tensor *grad = ebb_grad(leaf);
    cr_assert(i < GRAPH_MAX_GRADS);
    if (!(out->has_grad[i] = grad != NULL)) return;
    out->bytes[i] = (size_t)ebb_tensor_elems(grad) * ebb_dtype_bytes(ebb_tensor_dtype(grad));
    cr_assert(out->bytes[i] <= GRAPH_MAX_BYTES);
    check_ok(ebb_read(grad, out->grads[i], out->bytes[i]));
}

static void read_result(graph_result *out, graph *g, ebb_tensor *loss)
{
    check_ok(ebb_item(loss, &out->loss));
    for (int i = 0; i < N_WEIGHTS; i++) read_grad(out, g->weight[i]);
    for (int i = 0; i < N_ROWS; i++) read_grad(out, g->row[i]);
    for (int i = 0; i < N_INPUTS; i++) read_grad(out, g->input[i]);
    read_grad(out, g->table);
}

static void drop_all(graph *g)
{
    end_segments(g);
    for (int i = 0; i < N_LIVE; i++) ebb_drop(&g->live[i]);
    for (int i = 0; i < N_INPUTS; i++) ebb_drop(&g->input[i]);
    for (int i = 0; i < N_WEIGHTS; i++) ebb_drop(&g->weight[i]);
    for (int i = 0; i < N_ROWS; i++) ebb_drop(&g->row[i]);
    ebb_drop(&g->table);
    ebb_drop(&g->index);
    ebb_drop(&g->label);
}

static ebb_status run(graph_result *out, graph *g)
{
    EBB_LOCAL(loss);
    EBB_TRY(make_leaves(g));
    EBB_TRY(set_recomputed_ops(g));
    EBB_TRY(set_op_savers(g));
    for (int n = 5 + draw_int(&g->ops, 40); n > 0; n--) EBB_TRY(one_step(g));
    if (draw_int(&g->saving, 2)) end_segments(g); /* else the loss is made inside of them */
    EBB_TRY(make_loss(g, &loss));
    end_segments(g);
    out->trained = ebb_requires_grad(loss);
    if (out->trained) EBB_TRY(backward(g, loss));
    read_result(out, g, loss);
    return EBB_OK;
}

ebb_status random_graph_run(graph_result *out, ebb_context *ctx, uint64_t seed, uint64_t saving)
{
    graph g = { .ctx = ctx, .ops = { seed }, .saving = { saving * 7919 + seed }, .recompute = saving != 0 };
    memset(out, 0, sizeof(*out));
    ebb_seed(ctx, seed);
    g.segment_chance = (double[]){ 0.05, 0.2, 0.5 }[draw_int(&g.saving, 3)];
    g.dtype = draw_int(&g.ops, 2) ? EBB_F32 : EBB_F64;
    g.rows = 1 + draw_int(&g.ops, 7);
    g.cols = 4 * (1 + draw_int(&g.ops, 4));
    g.retain = draw_chance(&g.ops, 0.25);
    ebb_status st = run(out, &g);
    drop_all(&g);
    return st;
}
