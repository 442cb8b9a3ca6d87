/* cudnn_attention.c: attention as a graph of cuDNN's operations, which it recognises and runs as one kernel that
 * keeps no scores (NVIDIA cuDNN, "Graph API", attention).
 *
 * [B, H, Tq, Tk] scores S = q k^T * scale, masked; P = exp(S - lse); D = rowsum(dout * out):
 *   forward   lse = max + log(sum exp(S - max)),  out = exp(S - max) / sum v
 *   backward  dv = P^T dout,  dS = P * (dout v^T - D) * scale,  dk = dS^T q,  dq = dS k */
#if __has_include(<cudnn.h>)
#include "device/cuda/cudnn_api.h"

typedef ebb__cudnn_value value;
typedef const ebb__cudnn_attention_shape shape;

static cudnnDataType_t io_type(shape *s) { return s->bf16 ? CUDNN_DATA_BFLOAT16 : CUDNN_DATA_HALF; }

/* ---- tensors -------------------------------------------------------------------------------------- */

/* Heads as they lie: [B, heads, T, D], rows row_stride apart. */
static value heads(ebb__cudnn_graph *g, shape *s, int64_t id, int64_t n_heads, int64_t rows, int64_t row_stride)
{
    return ebb__cudnn_add_tensor(g, &(ebb__cudnn_tensor){
        .id = id, .type = io_type(s), .dims = { s->batch, n_heads, rows, s->head_dim },
        .strides = { rows * row_stride, s->head_dim, row_stride, 1 } });
}

/* The same bytes as [B, heads, D, T]. */
static value turned(ebb__cudnn_graph *g, shape *s, int64_t id, int64_t row_stride)
{
    return ebb__cudnn_add_tensor(g, &(ebb__cudnn_tensor){
        .id = id, .type = io_type(s), .dims = { s->batch, s->kv_heads, s->head_dim, s->t_k },
        .strides = { s->t_k * row_stride, s->head_dim, 1, row_stride } });
}

static value scores(ebb__cudnn_graph *g, shape *s, cudnnDataType_t type)
{
    return ebb__cudnn_add_tensor(g, &(ebb__cudnn_tensor){
        .type = type, .dims = { s->batch, s->heads, s->t_q, s->t_k }, .place = EBB__CUDNN_VIRTUAL });
}

/* Scores as [B, H, Tk, Tq], without moving them. */
static value turned_scores(ebb__cudnn_graph *g, shape *s)
{
    int64_t head = s->t_q * s->t_k;
    return ebb__cudnn_add_tensor(g, &(ebb__cudnn_tensor){
        .type = io_type(s), .dims = { s->batch, s->heads, s->t_k, s->t_q },
        .strides = { s->heads * head, head, 1, s->t_k }, .place = EBB__CUDNN_VIRTUAL });
}

/* f32 [B, H, Tq, 1]: in memory where it has an id. */
static value rows(ebb__cudnn_graph *g, shape *s, int64_t id)
{
    return ebb__cudnn_add_tensor(g, &(ebb__cudnn_tensor){
        .id = id, .type = CUDNN_DATA_FLOAT, .dims = { s->batch, s->heads, s->t_q, 1 },
        .place = id ? EBB__CUDNN_MEMORY : EBB__CUDNN_VIRTUAL });
}

static value number(ebb__cudnn_graph *g, int64_t id)
{
    return ebb__cudnn_add_tensor(g, &(ebb__cudnn_tensor){
        .id = id, .type = CUDNN_DATA_FLOAT, .dims = { 1, 1, 1, 1 }, .place = EBB__CUDNN_HOST });
}

/* ---- parts ------------------------------------------------------------------------------------------ */

static value unary(ebb__cudnn_graph *g, cudnnPointwiseMode_t f, value x, value y)
{
    ebb__cudnn_pointwise(g, f, x, NULL, NULL, y, -1);
    return y;
}

static value binary(ebb__cudnn_graph *g, cudnnPointwiseMode_t f, value x, value b, value y)
{
    ebb__cudnn_pointwise(g, f, x, b, NULL, y, -1);
    return y;
}

static value reduced(ebb__cudnn_graph *g, cudnnReduceTensorOp_t how, value x, value y)
{
    ebb__cudnn_reduce(g, how, x, y);
    return y;
}

/* Scores where column > row become the lowest number. */
static value masked(ebb__cudnn_graph *g, shape *s, value in)
{
    value row = scores(g, s, CUDNN_DATA_INT32), column = scores(g, s, CUDNN_DATA_INT32);
    value seen = scores(g, s, CUDNN_DATA_BOOLEAN), out = scores(g, s, CUDNN_DATA_FLOAT);
    ebb__cudnn_pointwise(g, CUDNN_POINTWISE_GEN_INDEX, in, NULL, NULL, row, 2);
    ebb__cudnn_pointwise(g, CUDNN_POINTWISE_GEN_INDEX, in, NULL, NULL, column, 3);
    ebb__cudnn_pointwise(g, CUDNN_POINTWISE_CMP_GE, row, column, NULL, seen, -1);
    ebb__cudnn_pointwise(g, CUDNN_POINTWISE_BINARY_SELECT, in, number(g, EBB__CUDNN_LOWEST), seen, out, -1);
    return out;
}

static value scaled_scores(ebb__cudnn_graph *g, shape *s, value q, value k_turned, value scale)
{
    value raw = scores(g, s, CUDNN_DATA_FLOAT);
    ebb__cudnn_matmul(g, q, k_turned, raw);
    value scaled = binary(g, CUDNN_POINTWISE_MUL, raw, scale, scores(g, s, CUDNN_DATA_FLOAT));
    return s->causal ? masked(g, s, scaled) : scaled;
}

/* ---- forward ---------------------------------------------------------------------------------------- */

static void forward(ebb__cudnn_graph *g, shape *s)
{
    value q = heads(g, s, EBB__CUDNN_Q, s->heads, s->t_q, s->row_q), k = turned(g, s, EBB__CUDNN_K, s->row_k);
    value v = heads(g, s, EBB__CUDNN_V, s->kv_heads, s->t_k, s->row_v);
    value out = heads(g, s, EBB__CUDNN_OUT, s->heads, s->t_q, s->row_out);
    value s_scaled = scaled_scores(g, s, q, k, number(g, EBB__CUDNN_SCALE));
    value most = reduced(g, CUDNN_REDUCE_TENSOR_MAX, s_scaled, rows(g, s, 0));
    value below = binary(g, CUDNN_POINTWISE_SUB, s_scaled, most, scores(g, s, CUDNN_DATA_FLOAT));
    value e = unary(g, CUDNN_POINTWISE_EXP, below, scores(g, s, CUDNN_DATA_FLOAT));
    value sum = reduced(g, CUDNN_REDUCE_TENSOR_ADD, e, rows(g, s, 0));
    /* Also where nobody reads it: cuDNN knows the whole pattern only. */
    value log_sum = unary(g, CUDNN_POINTWISE_LOG, sum, rows(g, s, 0));
    (void)binary(g, CUDNN_POINTWISE_ADD, most, log_sum, rows(g, s, s->stats ? EBB__CUDNN_LSE : 0));
    value p = binary(g, CUDNN_POINTWISE_DIV, e, sum, scores(g, s, io_type(s)));
    ebb__cudnn_matmul(g, p, v, out);
}

/* ---- backward --------------------------------------------------------------------------------------- */

/* Rows of dout * out, summed, in memory: cuDNN runs it as a kernel of its own. */
static value row_sums(ebb__cudnn_graph *g, shape *s, value dout, value out)
{
    value product = ebb__cudnn_add_tensor(g, &(ebb__cudnn_tensor){
        .type = CUDNN_DATA_FLOAT, .dims = { s->batch, s->heads, s->t_q, s->head_dim }, .place = EBB__CUDNN_VIRTUAL });
    (void)binary(g, CUDNN_POINTWISE_MUL, dout, out, product);
    value sum = reduced(g, CUDNN_REDUCE_TENSOR_ADD, product, rows(g, s, 0));
    return binary(g, CUDNN_POINTWISE_MUL, sum, number(g, EBB__CUDNN_ONE), rows(g, s, EBB__CUDNN_ROW_SUMS));
}

/* turned(x) y, [B, H, Tk, D]: the gradient of k or v.  Heads that share a kv head are added up. */
static void key_gradient(ebb__cudnn_graph *g, shape *s, value x, value y, int64_t id, int64_t row_stride)
{
    value x_turned = turned_scores(g, s), gradient = heads(g, s, id, s->kv_heads, s->t_k, row_stride);
    ebb__cudnn_reshape(g, x, x_turned);
    if (s->heads == s->kv_heads) {
        ebb__cudnn_matmul(g, x_turned, y, gradient);
        return;
    }
    value of_each = ebb__cudnn_add_tensor(g, &(ebb__cudnn_tensor){
        .type = io_type(s), .dims = { s->batch, s->heads, s->t_k, s->head_dim }, .place = EBB__CUDNN_VIRTUAL });
    ebb__cudnn_matmul(g, x_turned, y, of_each);
    ebb__cudnn_reduce(g, CUDNN_REDUCE_TENSOR_ADD, of_each, gradient);
}

/* ds k by way of sums in memory, f32 and zero at first, which cuDNN adds to by atomics. */
static void query_gradient(ebb__cudnn_graph *g, shape *s, value ds, value k_turned)
{
    value k = ebb__cudnn_add_tensor(g, &(ebb__cudnn_tensor){
        .type = io_type(s), .dims = { s->batch, s->kv_heads, s->t_k, s->head_dim },
        .strides = { s->t_k * s->row_k, s->head_dim, s->row_k, 1 }, .place = EBB__CUDNN_VIRTUAL });
    value sums = ebb__cudnn_add_tensor(g, &(ebb__cudnn_tensor){
        .id = EBB__CUDNN_DQ_SUMS, .type = CUDNN_DATA_FLOAT, .dims = { s->batch, s->heads, s->t_q, s->head_dim } });
    ebb__cudnn_reshape(g, k_turned, k);
    ebb__cudnn_matmul(g, ds, k, sums);
    (void)unary(g, CUDNN_POINTWISE_IDENTITY, sums, heads(g, s, EBB__CUDNN_DQ, s->heads, s->t_q, s->row_dq));
}

static void backward(ebb__cudnn_graph *g, shape *s)
{
    value q = heads(g, s, EBB__CUDNN_Q, s->heads, s->t_q, s->row_q), k = turned(g, s, EBB__CUDNN_K, s->row_k);
    value v = turned(g, s, EBB__CUDNN_V, s->row_v);
    value out = heads(g, s, EBB__CUDNN_OUT, s->heads, s->t_q, s->row_out);
    value dout = heads(g, s, EBB__CUDNN_DOUT, s->heads, s->t_q, s->row_dout);
    value sums = row_sums(g, s, dout, out), lse = rows(g, s, EBB__CUDNN_LSE), scale = number(g, EBB__CUDNN_SCALE);
    value s_scaled = scaled_scores(g, s, q, k, scale);
    value below = binary(g, CUDNN_POINTWISE_SUB, s_scaled, lse, scores(g, s, CUDNN_DATA_FLOAT));
    value p = unary(g, CUDNN_POINTWISE_EXP, below, scores(g, s, CUDNN_DATA_FLOAT));
    key_gradient(g, s, p, dout, EBB__CUDNN_DV, s->row_dv);
    value dp = scores(g, s, CUDNN_DATA_FLOAT);
    ebb__cudnn_matmul(g, dout, v, dp);
    value centred = binary(g, CUDNN_POINTWISE_SUB, dp, sums, scores(g, s, CUDNN_DATA_FLOAT));
    value weighted = binary(g, CUDNN_POINTWISE_MUL, centred, p, scores(g, s, CUDNN_DATA_FLOAT));
    value ds = binary(g, CUDNN_POINTWISE_MUL, weighted, scale, scores(g, s, io_type(s)));
    key_gradient(g, s, ds, q, EBB__CUDNN_DK, s->row_dk);
    query_gradient(g, s, ds, k);
}

void ebb__cudnn_attention_graph(ebb__cudnn_graph *graph, const ebb__cudnn_attention_shape *s)
{
    graph->next_virtual = EBB__CUDNN_FIRST_VIRTUAL;
    if (s->backward) backward(graph, s);
    else forward(graph, s);
}
#else
typedef int ebb__no_cudnn_headers; /* a translation unit is not empty */
#endif
