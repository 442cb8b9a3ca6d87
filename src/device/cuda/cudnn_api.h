/* device/cuda/cudnn_api.h: cuDNN's functions, loaded at run time, and graphs of operations built of them. */
#ifndef EBB_DEVICE_CUDA_CUDNN_API_H
#define EBB_DEVICE_CUDA_CUDNN_API_H

#include <cudnn.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

#define EBB__CUDNN_FUNCTIONS(X)                                                                         \
    X(GetVersion) X(GetLastErrorString) X(Create) X(Destroy) X(SetStream) X(BackendCreateDescriptor)    \
    X(BackendDestroyDescriptor) X(BackendSetAttribute) X(BackendGetAttribute) X(BackendFinalize)        \
    X(BackendExecute)

/* api->Create(&handle) is cudnnCreate(&handle), and so on. */
typedef struct ebb__cudnn_api {
    void *library;
#define EBB__CUDNN_FIELD(name) __typeof__(cudnn##name) *name;
    EBB__CUDNN_FUNCTIONS(EBB__CUDNN_FIELD)
#undef EBB__CUDNN_FIELD
} ebb__cudnn_api;

/* cudnn_load.c.  False: there is no cuDNN 9 here. */
bool ebb__cudnn_load(ebb__cudnn_api *api);
void ebb__cudnn_unload(ebb__cudnn_api *api);

/* ---- graphs: cudnn_graph.c ------------------------------------------------------------------------
 * Functions that make something return NULL once anything has failed, and take NULL: only the end is checked. */

enum { EBB__CUDNN_MAX_DESCRIPTORS = 160, EBB__CUDNN_MAX_OPERATIONS = 40 };

typedef struct ebb__cudnn_graph {
    const ebb__cudnn_api *api;
    bool failed;
    cudnnBackendDescriptor_t descriptors[EBB__CUDNN_MAX_DESCRIPTORS]; /* all that were made */
    int n_descriptors;
    cudnnBackendDescriptor_t operations[EBB__CUDNN_MAX_OPERATIONS];
    int n_operations;
    int64_t next_virtual; /* id of the next tensor that has none of its own */
    cudnnBackendDescriptor_t plan;
    size_t workspace_bytes;
} ebb__cudnn_graph;

typedef enum ebb__cudnn_place {
    EBB__CUDNN_MEMORY,  /* in device memory, by its id */
    EBB__CUDNN_VIRTUAL, /* between operations only; the id is 0 */
    EBB__CUDNN_HOST     /* a number that the caller gives at each run, by its id */
} ebb__cudnn_place;

typedef struct ebb__cudnn_tensor {
    int64_t id;
    cudnnDataType_t type;
    int64_t dims[4], strides[4]; /* strides[3] 0: contiguous */
    ebb__cudnn_place place;
} ebb__cudnn_tensor;

typedef cudnnBackendDescriptor_t ebb__cudnn_value; /* a tensor's descriptor */

ebb__cudnn_value ebb__cudnn_add_tensor(ebb__cudnn_graph *graph, const ebb__cudnn_tensor *tensor);
/* y = f(x, b, t); b and t NULL where f has fewer operands; axis for CUDNN_POINTWISE_GEN_INDEX, else -1. */
void ebb__cudnn_pointwise(ebb__cudnn_graph *graph, cudnnPointwiseMode_t f, ebb__cudnn_value x, ebb__cudnn_value b,
                          ebb__cudnn_value t, ebb__cudnn_value y, int64_t axis);
void ebb__cudnn_matmul(ebb__cudnn_graph *graph, ebb__cudnn_value a, ebb__cudnn_value b, ebb__cudnn_value c);
void ebb__cudnn_reduce(ebb__cudnn_graph *graph, cudnnReduceTensorOp_t how, ebb__cudnn_value x, ebb__cudnn_value y);
void ebb__cudnn_reshape(ebb__cudnn_graph *graph, ebb__cudnn_value x, ebb__cudnn_value y);

/* What plans are for: a device by its handle, or without one by its properties (JSON, as cuDNN documents them). */
typedef struct ebb__cudnn_target {
    cudnnHandle_t handle;   /* NULL: properties */
    const char *properties;
} ebb__cudnn_target;

/* Finds an engine for the whole graph that needs at most so much workspace and, unless `any_order`, adds up in a
 * fixed order.  False: there is none.  The graph keeps the plan; forget it with ebb__cudnn_graph_free(). */
bool ebb__cudnn_plan(ebb__cudnn_graph *graph, const ebb__cudnn_target *target, size_t most_workspace_bytes,
                     bool any_order);
/* pointers[i] is of the tensor ids[i]. */
cudnnStatus_t ebb__cudnn_run(ebb__cudnn_graph *graph, cudnnHandle_t handle, int n, const int64_t *ids,
                             void *const *pointers, void *workspace);
void ebb__cudnn_graph_free(ebb__cudnn_graph *graph); /* what it holds, not itself */

/* ---- attention as a graph: cudnn_attention.c -------------------------------------------------------- */

typedef struct ebb__cudnn_attention_shape {
    int64_t batch, t_q, t_k, heads, kv_heads, head_dim;
    int64_t row_q, row_k, row_v, row_out, row_dout, row_dq, row_dk, row_dv; /* strides of rows, elements */
    uint8_t bf16, causal, backward, stats; /* stats: forward gives the log-sum-exp */
    uint8_t zeros[4];                      /* no padding: compared as bytes */
} ebb__cudnn_attention_shape;

/* Ids of what lies in memory, or comes from the host. */
enum {
    EBB__CUDNN_Q = 1, EBB__CUDNN_K, EBB__CUDNN_V, EBB__CUDNN_OUT, EBB__CUDNN_LSE, EBB__CUDNN_DOUT, EBB__CUDNN_DQ,
    EBB__CUDNN_DK, EBB__CUDNN_DV, EBB__CUDNN_ROW_SUMS, EBB__CUDNN_DQ_SUMS, EBB__CUDNN_SCALE, EBB__CUDNN_LOWEST,
    EBB__CUDNN_ONE, EBB__CUDNN_FIRST_VIRTUAL
};

/* Fills the graph with the operations; it may have failed. */
void ebb__cudnn_attention_graph(ebb__cudnn_graph *graph, const ebb__cudnn_attention_shape *shape);

#ifdef __cplusplus
}
#endif
#endif
