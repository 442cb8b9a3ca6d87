/* cudnn.c: which attention calls cuDNN takes, and running them.  Graphs are in cudnn_attention.c. */
#include "device/cuda/cudnn.h"
#include <stdlib.h>
#include <string.h>
#include "device/cuda/table.h"

enum { TILE_ROWS = 128, PLAN_BYTES = 4096, PART_ALIGNMENT = 256 };

static size_t rounded(int64_t n, int64_t to) { return (size_t)((n + to - 1) / to * to); }

static size_t row_sum_bytes(const ebb__cuda_attention_call *call)
{
    return rounded(call->batch * call->heads * call->t_q * (int64_t)sizeof(float), PART_ALIGNMENT);
}

static size_t dq_sum_bytes(const ebb__cuda_attention_call *call)
{
    return rounded(call->batch * call->heads * call->t_q * call->head_dim * (int64_t)sizeof(float), PART_ALIGNMENT);
}

/* What plans were seen to ask for: dq sums once more, of whole tiles, and dk and dv in two bytes before heads that
 * share them are added up. */
static size_t plan_bytes(const ebb__cuda_attention_call *call)
{
    size_t row = (size_t)(call->batch * call->heads * call->head_dim);
    size_t keys = call->heads == call->kv_heads ? 0 : rounded(call->t_k, TILE_ROWS);
    return row * (rounded(call->t_q, TILE_ROWS) * sizeof(float) + 2 * keys * 2) + PLAN_BYTES;
}

size_t ebb__cuda_attention_workspace(const ebb__cuda_attention_call *call)
{
    return row_sum_bytes(call) + dq_sum_bytes(call) + plan_bytes(call);
}

#if __has_include(<cudnn.h>)
#include <float.h>
#include "device/cuda/cudnn_api.h"

enum { MAX_HEAD_DIM = 128, VECTOR = 8, VECTOR_BYTES = 16 };

/* A shape that was asked for; graph.plan NULL: own kernels do it. */
typedef struct attention_plan {
    struct attention_plan *next;
    ebb__cudnn_attention_shape shape;
    ebb__cudnn_graph graph;
} attention_plan;

struct ebb__cuda_attention {
    ebb__cudnn_api api;
    cudnnHandle_t handle;
    bool any_order; /* EBB_CUDA_ATTENTION=fast: also engines whose results differ from run to run */
    attention_plan *plans;
};

/* ---- what is taken ------------------------------------------------------------------------------------ */

static bool lies_well(const ebb__cuda_heads *heads)
{
    return heads->data && (uintptr_t)heads->data % VECTOR_BYTES == 0 && heads->row_stride % VECTOR == 0;
}

static bool suits(const ebb__cuda_attention_call *call)
{
    bool some = call->batch > 0 && call->t_q > 0 && call->t_k > 0 && call->heads > 0 && call->kv_heads > 0;
    bool type = call->dtype == EBB_F16 || call->dtype == EBB_BF16;
    bool width = call->head_dim > 0 && call->head_dim <= MAX_HEAD_DIM && call->head_dim % VECTOR == 0;
    bool square = !call->causal || call->t_q == call->t_k;
    return some && type && width && square && lies_well(&call->q) && lies_well(&call->k) && lies_well(&call->v) &&
           lies_well(&call->out);
}

/* cuDNN writes all three gradients, and reads dout after it has begun to write.  Its engines do not say so in
 * their numerical notes, but they add up dq in no fixed order. */
static bool suits_backward(const ebb__cuda_attention *attention, const ebb__cuda_attention_call *call)
{
    bool fits = call->workspace && call->workspace_bytes >= ebb__cuda_attention_workspace(call);
    return attention->any_order && suits(call) && !call->accumulate && fits && call->lse && lies_well(&call->dout) &&
           lies_well(&call->dq) && lies_well(&call->dk) && lies_well(&call->dv) && call->dq.data != call->dout.data;
}

static ebb__cudnn_attention_shape shape_of(const ebb__cuda_attention_call *call, bool backward)
{
    ebb__cudnn_attention_shape s;
    memset(&s, 0, sizeof s);
    s.batch = call->batch, s.t_q = call->t_q, s.t_k = call->t_k;
    s.heads = call->heads, s.kv_heads = call->kv_heads, s.head_dim = call->head_dim;
    s.row_q = call->q.row_stride, s.row_k = call->k.row_stride, s.row_v = call->v.row_stride;
    s.row_out = call->out.row_stride;
    s.bf16 = call->dtype == EBB_BF16, s.causal = call->causal, s.backward = backward;
    s.stats = !backward && call->lse != NULL;
    if (!backward) return s;
    s.row_dout = call->dout.row_stride, s.row_dq = call->dq.row_stride;
    s.row_dk = call->dk.row_stride, s.row_dv = call->dv.row_stride;
    return s;
}

/* ---- plans ---------------------------------------------------------------------------------------------- */

static ebb_status plan_for(ebb__cuda *cuda, const ebb__cuda_attention_call *call, bool backward, attention_plan **out)
{
    ebb__cuda_attention *attention = cuda->attention;
    ebb__cudnn_attention_shape shape = shape_of(call, backward);
    for (attention_plan *plan = attention->plans; plan; plan = plan->next) {
        if (memcmp(&plan->shape, &shape, sizeof shape) != 0) continue;
        *out = plan;
        return EBB_OK;
    }
    attention_plan *plan = calloc(1, sizeof *plan);
    if (!plan) return EBB__CUDA_FAIL(cuda, EBB_ENOMEM, "cuda: no host memory for a plan of attention");
    size_t scratch = backward ? plan_bytes(call) : cuda->gemm_workspace_bytes;
    plan->shape = shape;
    plan->graph.api = &attention->api;
    ebb__cudnn_attention_graph(&plan->graph, &shape);
    ebb__cudnn_target target = { .handle = attention->handle };
    if (!ebb__cudnn_plan(&plan->graph, &target, scratch, attention->any_order)) ebb__cudnn_graph_free(&plan->graph);
    plan->next = attention->plans;
    attention->plans = *out = plan;
    return EBB_OK;
}

static ebb_status cudnn_fail(const ebb__cuda *cuda, cudnnStatus_t status, const char *call)
{
    char why[256] = "";
    cuda->attention->api.GetLastErrorString(why, sizeof why);
    return EBB__CUDA_FAIL(cuda, EBB_EDEVICE, "cuda:%d: %s failed in op %s: status %d: %s", cuda->ordinal, call,
                          cuda->op ? cuda->op : "attention", (int)status, why);
}

typedef struct binding {
    int n;
    int64_t ids[EBB__CUDNN_FIRST_VIRTUAL];
    void *pointers[EBB__CUDNN_FIRST_VIRTUAL];
} binding;

static void bind(binding *b, int64_t id, void *pointer)
{
    b->ids[b->n] = id;
    b->pointers[b->n++] = pointer;
}

static ebb_status run(ebb__cuda *cuda, attention_plan *plan, const binding *b, void *workspace)
{
    cudnnStatus_t status = ebb__cudnn_run(&plan->graph, cuda->attention->handle, b->n, b->ids, b->pointers,
                                          plan->graph.workspace_bytes ? workspace : NULL);
    return status == CUDNN_STATUS_SUCCESS ? EBB_OK : cudnn_fail(cuda, status, "cudnnBackendExecute");
}

/* ---- passes ---------------------------------------------------------------------------------------------- */

/* Numbers that the graph reads from the host, while it is queued. */
typedef struct numbers {
    float scale, lowest, one;
} numbers;

static void bind_common(binding *b, const ebb__cuda_attention_call *call, numbers *n)
{
    *n = (numbers){ (float)call->scale, -FLT_MAX, 1 };
    bind(b, EBB__CUDNN_Q, call->q.data);
    bind(b, EBB__CUDNN_K, call->k.data);
    bind(b, EBB__CUDNN_V, call->v.data);
    bind(b, EBB__CUDNN_OUT, call->out.data);
    bind(b, EBB__CUDNN_SCALE, &n->scale);
    if (call->causal) bind(b, EBB__CUDNN_LOWEST, &n->lowest);
    if (call->lse) bind(b, EBB__CUDNN_LSE, call->lse);
}

ebb_status ebb__cuda_attention_forward(ebb__cuda *cuda, const ebb__cuda_attention_call *call, bool *taken)
{
    attention_plan *plan;
    *taken = false;
    if (!cuda->attention || !suits(call)) return EBB_OK;
    ebb_status st = plan_for(cuda, call, false, &plan);
    if (st != EBB_OK || !plan->graph.plan) return st;
    binding b = { 0 };
    numbers n;
    bind_common(&b, call, &n);
    *taken = true;
    return run(cuda, plan, &b, cuda->gemm_workspace); /* products before and after it are in the same stream */
}

ebb_status ebb__cuda_attention_backward(ebb__cuda *cuda, const ebb__cuda_attention_call *call, bool *taken)
{
    attention_plan *plan;
    *taken = false;
    if (!cuda->attention || !suits_backward(cuda->attention, call)) return EBB_OK;
    ebb_status st = plan_for(cuda, call, true, &plan);
    if (st != EBB_OK || !plan->graph.plan) return st;
    char *sums = (char *)call->workspace, *dq_sums = sums + row_sum_bytes(call),
         *scratch = dq_sums + dq_sum_bytes(call);
    binding b = { 0 };
    numbers n;
    bind_common(&b, call, &n);
    bind(&b, EBB__CUDNN_DOUT, call->dout.data);
    bind(&b, EBB__CUDNN_DQ, call->dq.data);
    bind(&b, EBB__CUDNN_DK, call->dk.data);
    bind(&b, EBB__CUDNN_DV, call->dv.data);
    bind(&b, EBB__CUDNN_ROW_SUMS, sums);
    bind(&b, EBB__CUDNN_DQ_SUMS, dq_sums);
    bind(&b, EBB__CUDNN_ONE, &n.one);
    EBB__CUDA_TRY(cuda, cudaMemsetAsync(dq_sums, 0, dq_sum_bytes(call), cuda->stream));
    *taken = true;
    return run(cuda, plan, &b, scratch);
}

/* ---- opening --------------------------------------------------------------------------------------------- */

static ebb_status open_handle(ebb__cuda *cuda, ebb__cuda_attention *attention)
{
    cudnnStatus_t status = attention->api.Create(&attention->handle);
    if (status != CUDNN_STATUS_SUCCESS) {
        attention->handle = NULL;
        return EBB__CUDA_FAIL(cuda, EBB_EDEVICE, "cuda:%d: cudnnCreate failed: status %d; EBB_CUDA_ATTENTION=own does "
                              "without cuDNN", cuda->ordinal, (int)status);
    }
    status = attention->api.SetStream(attention->handle, cuda->stream);
    if (status == CUDNN_STATUS_SUCCESS) return EBB_OK;
    return EBB__CUDA_FAIL(cuda, EBB_EDEVICE, "cuda:%d: cudnnSetStream failed: status %d", cuda->ordinal, (int)status);
}

ebb_status ebb__cuda_attention_open(ebb__cuda *cuda, ebb__cuda_attention **out)
{
    const char *wish = getenv("EBB_CUDA_ATTENTION");
    *out = NULL;
    if (wish && strcmp(wish, "own") == 0) return EBB_OK;
    ebb__cuda_attention *attention = calloc(1, sizeof *attention);
    if (!attention) return EBB__CUDA_FAIL(cuda, EBB_ENOMEM, "cuda: no host memory for cuDNN");
    if (!ebb__cudnn_load(&attention->api)) {
        free(attention);
        return EBB_OK;
    }
    attention->any_order = wish && strcmp(wish, "fast") == 0;
    ebb_status st = open_handle(cuda, attention);
    if (st == EBB_OK) *out = attention;
    else ebb__cuda_attention_close(attention);
    return st;
}

void ebb__cuda_attention_close(ebb__cuda_attention *attention)
{
    if (!attention) return;
    while (attention->plans) {
        attention_plan *plan = attention->plans;
        attention->plans = plan->next;
        ebb__cudnn_graph_free(&plan->graph);
        free(plan);
    }
    if (attention->handle) (void)attention->api.Destroy(attention->handle);
    ebb__cudnn_unload(&attention->api);
    free(attention);
}

int ebb__cuda_attention_version(const ebb__cuda_attention *attention)
{
    return attention ? (int)attention->api.GetVersion() : 0;
}

#else /* built without cuDNN's headers: own kernels do all attention */

ebb_status ebb__cuda_attention_forward(ebb__cuda *cuda, const ebb__cuda_attention_call *call, bool *taken)
{
    (void)cuda, (void)call;
    *taken = false;
    return EBB_OK;
}

ebb_status ebb__cuda_attention_backward(ebb__cuda *cuda, const ebb__cuda_attention_call *call, bool *taken)
{
    (void)cuda, (void)call;
    *taken = false;
    return EBB_OK;
}

ebb_status ebb__cuda_attention_open(ebb__cuda *cuda, ebb__cuda_attention **out)
{
    (void)cuda;
    *out = NULL;
    return EBB_OK;
}

void ebb__cuda_attention_close(ebb__cuda_attention *attention) { (void)attention; }

int ebb__cuda_attention_version(const ebb__cuda_attention *attention)
{
    (void)attention;
    return 0;
}
#endif
