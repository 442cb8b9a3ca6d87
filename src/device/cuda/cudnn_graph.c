/* cudnn_graph.c: graphs of cuDNN's operations, and execution plans for them. */
#if __has_include(<cudnn.h>)
#include <string.h>
#include "device/cuda/cudnn_api.h"

enum { MAX_CONFIGS = 16, ALIGNMENT = 16 };

typedef cudnnBackendDescriptor_t descriptor;

/* ---- descriptors ---------------------------------------------------------------------------------- */

static descriptor make(ebb__cudnn_graph *graph, cudnnBackendDescriptorType_t type)
{
    descriptor made = NULL;
    if (!graph->failed && graph->n_descriptors < EBB__CUDNN_MAX_DESCRIPTORS &&
        graph->api->BackendCreateDescriptor(type, &made) == CUDNN_STATUS_SUCCESS) {
        graph->descriptors[graph->n_descriptors++] = made;
        return made;
    }
    graph->failed = true;
    return NULL;
}

static void set(ebb__cudnn_graph *graph, descriptor d, cudnnBackendAttributeName_t name,
                cudnnBackendAttributeType_t type, int64_t n, const void *values)
{
    if (graph->failed) return;
    graph->failed = graph->api->BackendSetAttribute(d, name, type, n, values) != CUDNN_STATUS_SUCCESS;
}

static void set_int(ebb__cudnn_graph *graph, descriptor d, cudnnBackendAttributeName_t name, int64_t value)
{
    set(graph, d, name, CUDNN_TYPE_INT64, 1, &value);
}

static void set_bool(ebb__cudnn_graph *graph, descriptor d, cudnnBackendAttributeName_t name, bool value)
{
    set(graph, d, name, CUDNN_TYPE_BOOLEAN, 1, &value);
}

static void set_type(ebb__cudnn_graph *graph, descriptor d, cudnnBackendAttributeName_t name, cudnnDataType_t type)
{
    set(graph, d, name, CUDNN_TYPE_DATA_TYPE, 1, &type);
}

static void set_descriptor(ebb__cudnn_graph *graph, descriptor d, cudnnBackendAttributeName_t name, descriptor value)
{
    set(graph, d, name, CUDNN_TYPE_BACKEND_DESCRIPTOR, 1, &value);
}

static void finalize(ebb__cudnn_graph *graph, descriptor d)
{
    if (!graph->failed) graph->failed = graph->api->BackendFinalize(d) != CUDNN_STATUS_SUCCESS;
}

static void add_operation(ebb__cudnn_graph *graph, descriptor operation)
{
    finalize(graph, operation);
    if (graph->n_operations == EBB__CUDNN_MAX_OPERATIONS) graph->failed = true;
    if (!graph->failed) graph->operations[graph->n_operations++] = operation;
}

/* ---- tensors and operations ------------------------------------------------------------------------ */

ebb__cudnn_value ebb__cudnn_add_tensor(ebb__cudnn_graph *graph, const ebb__cudnn_tensor *t)
{
    const int64_t *d = t->dims;
    int64_t dense[4] = { d[1] * d[2] * d[3], d[2] * d[3], d[3], 1 };
    int64_t id = t->place == EBB__CUDNN_VIRTUAL ? graph->next_virtual++ : t->id;
    bool contiguous = t->strides[0] == 0 && t->strides[3] == 0;
    descriptor made = make(graph, CUDNN_BACKEND_TENSOR_DESCRIPTOR);
    set_type(graph, made, CUDNN_ATTR_TENSOR_DATA_TYPE, t->type);
    set(graph, made, CUDNN_ATTR_TENSOR_DIMENSIONS, CUDNN_TYPE_INT64, 4, t->dims);
    set(graph, made, CUDNN_ATTR_TENSOR_STRIDES, CUDNN_TYPE_INT64, 4, contiguous ? dense : t->strides);
    set_int(graph, made, CUDNN_ATTR_TENSOR_UNIQUE_ID, id);
    set_int(graph, made, CUDNN_ATTR_TENSOR_BYTE_ALIGNMENT, ALIGNMENT);
    set_bool(graph, made, CUDNN_ATTR_TENSOR_IS_VIRTUAL, t->place == EBB__CUDNN_VIRTUAL);
    set_bool(graph, made, CUDNN_ATTR_TENSOR_IS_BY_VALUE, t->place == EBB__CUDNN_HOST);
    finalize(graph, made);
    return made;
}

void ebb__cudnn_pointwise(ebb__cudnn_graph *graph, cudnnPointwiseMode_t f, ebb__cudnn_value x, ebb__cudnn_value b,
                          ebb__cudnn_value t, ebb__cudnn_value y, int64_t axis)
{
    descriptor how = make(graph, CUDNN_BACKEND_POINTWISE_DESCRIPTOR);
    set(graph, how, CUDNN_ATTR_POINTWISE_MODE, CUDNN_TYPE_POINTWISE_MODE, 1, &f);
    set_type(graph, how, CUDNN_ATTR_POINTWISE_MATH_PREC, CUDNN_DATA_FLOAT);
    if (axis >= 0) set_int(graph, how, CUDNN_ATTR_POINTWISE_AXIS, axis);
    finalize(graph, how);
    descriptor operation = make(graph, CUDNN_BACKEND_OPERATION_POINTWISE_DESCRIPTOR);
    set_descriptor(graph, operation, CUDNN_ATTR_OPERATION_POINTWISE_PW_DESCRIPTOR, how);
    set_descriptor(graph, operation, CUDNN_ATTR_OPERATION_POINTWISE_XDESC, x);
    if (b) set_descriptor(graph, operation, CUDNN_ATTR_OPERATION_POINTWISE_BDESC, b);
    if (t) set_descriptor(graph, operation, CUDNN_ATTR_OPERATION_POINTWISE_TDESC, t);
    set_descriptor(graph, operation, CUDNN_ATTR_OPERATION_POINTWISE_YDESC, y);
    add_operation(graph, operation);
}

void ebb__cudnn_matmul(ebb__cudnn_graph *graph, ebb__cudnn_value a, ebb__cudnn_value b, ebb__cudnn_value c)
{
    descriptor how = make(graph, CUDNN_BACKEND_MATMUL_DESCRIPTOR);
    set_type(graph, how, CUDNN_ATTR_MATMUL_COMP_TYPE, CUDNN_DATA_FLOAT);
    finalize(graph, how);
    descriptor operation = make(graph, CUDNN_BACKEND_OPERATION_MATMUL_DESCRIPTOR);
    set_descriptor(graph, operation, CUDNN_ATTR_OPERATION_MATMUL_ADESC, a);
    set_descriptor(graph, operation, CUDNN_ATTR_OPERATION_MATMUL_BDESC, b);
    set_descriptor(graph, operation, CUDNN_ATTR_OPERATION_MATMUL_CDESC, c);
    set_descriptor(graph, operation, CUDNN_ATTR_OPERATION_MATMUL_DESC, how);
    add_operation(graph, operation);
}

void ebb__cudnn_reduce(ebb__cudnn_graph *graph, cudnnReduceTensorOp_t reduction, ebb__cudnn_value x,
                       ebb__cudnn_value y)
{
    descriptor how = make(graph, CUDNN_BACKEND_REDUCTION_DESCRIPTOR);
    set(graph, how, CUDNN_ATTR_REDUCTION_OPERATOR, CUDNN_TYPE_REDUCTION_OPERATOR_TYPE, 1, &reduction);
    set_type(graph, how, CUDNN_ATTR_REDUCTION_COMP_TYPE, CUDNN_DATA_FLOAT);
    finalize(graph, how);
    descriptor operation = make(graph, CUDNN_BACKEND_OPERATION_REDUCTION_DESCRIPTOR);
    set_descriptor(graph, operation, CUDNN_ATTR_OPERATION_REDUCTION_XDESC, x);
    set_descriptor(graph, operation, CUDNN_ATTR_OPERATION_REDUCTION_YDESC, y);
    set_descriptor(graph, operation, CUDNN_ATTR_OPERATION_REDUCTION_DESC, how);
    add_operation(graph, operation);
}

void ebb__cudnn_reshape(ebb__cudnn_graph *graph, ebb__cudnn_value x, ebb__cudnn_value y)
{
    descriptor operation = make(graph, CUDNN_BACKEND_OPERATION_RESHAPE_DESCRIPTOR);
    set_descriptor(graph, operation, CUDNN_ATTR_OPERATION_RESHAPE_XDESC, x);
    set_descriptor(graph, operation, CUDNN_ATTR_OPERATION_RESHAPE_YDESC, y);
    add_operation(graph, operation);
}

/* ---- plans ------------------------------------------------------------------------------------------ */

static descriptor operation_graph(ebb__cudnn_graph *graph, const ebb__cudnn_target *target)
{
    descriptor all = make(graph, CUDNN_BACKEND_OPERATIONGRAPH_DESCRIPTOR);
    set(graph, all, CUDNN_ATTR_OPERATIONGRAPH_OPS, CUDNN_TYPE_BACKEND_DESCRIPTOR, graph->n_operations,
        graph->operations);
    if (target->handle) set(graph, all, CUDNN_ATTR_OPERATIONGRAPH_HANDLE, CUDNN_TYPE_HANDLE, 1, &target->handle);
    finalize(graph, all);
    return all;
}

static descriptor device_properties(ebb__cudnn_graph *graph, const ebb__cudnn_target *target)
{
    if (target->handle) return NULL;
    descriptor properties = make(graph, CUDNN_BACKEND_DEVICEPROP_DESCRIPTOR);
    set(graph, properties, CUDNN_ATTR_DEVICEPROP_JSON_REPRESENTATION, CUDNN_TYPE_CHAR,
        (int64_t)strlen(target->properties), target->properties);
    finalize(graph, properties);
    return properties;
}

/* What cuDNN would take for the graph, best first; *n of them. */
static void ask(ebb__cudnn_graph *graph, descriptor all, descriptor properties, descriptor *configs, int64_t *n)
{
    cudnnBackendHeurMode_t mode = CUDNN_HEUR_MODE_A;
    descriptor heuristic = make(graph, CUDNN_BACKEND_ENGINEHEUR_DESCRIPTOR);
    *n = 0;
    set_descriptor(graph, heuristic, CUDNN_ATTR_ENGINEHEUR_OPERATION_GRAPH, all);
    set(graph, heuristic, CUDNN_ATTR_ENGINEHEUR_MODE, CUDNN_TYPE_HEUR_MODE, 1, &mode);
    if (properties) set_descriptor(graph, heuristic, CUDNN_ATTR_ENGINEHEUR_DEVICEPROP, properties);
    finalize(graph, heuristic);
    for (int i = 0; i < MAX_CONFIGS; i++) configs[i] = make(graph, CUDNN_BACKEND_ENGINECFG_DESCRIPTOR);
    if (graph->failed) return;
    graph->failed = graph->api->BackendGetAttribute(heuristic, CUDNN_ATTR_ENGINEHEUR_RESULTS,
                                                         CUDNN_TYPE_BACKEND_DESCRIPTOR, MAX_CONFIGS, n, configs) !=
                    CUDNN_STATUS_SUCCESS;
    if (*n > MAX_CONFIGS) *n = MAX_CONFIGS;
}

/* Does the engine say that its sums depend on the order in which things run? */
static bool is_unordered(ebb__cudnn_graph *graph, descriptor config)
{
    cudnnBackendNumericalNote_t notes[CUDNN_NUMERICAL_NOTE_TYPE_COUNT];
    int64_t n = 0;
    descriptor engine = make(graph, CUDNN_BACKEND_ENGINE_DESCRIPTOR);
    if (!engine) return true;
    if (graph->api->BackendGetAttribute(config, CUDNN_ATTR_ENGINECFG_ENGINE, CUDNN_TYPE_BACKEND_DESCRIPTOR, 1,
                                             &n, &engine) != CUDNN_STATUS_SUCCESS) return true;
    if (graph->api->BackendGetAttribute(engine, CUDNN_ATTR_ENGINE_NUMERICAL_NOTE, CUDNN_TYPE_NUMERICAL_NOTE,
                                             CUDNN_NUMERICAL_NOTE_TYPE_COUNT, &n, notes) != CUDNN_STATUS_SUCCESS) {
        return true;
    }
    for (int64_t i = 0; i < n && i < CUDNN_NUMERICAL_NOTE_TYPE_COUNT; i++) {
        if (notes[i] == CUDNN_NUMERICAL_NOTE_NONDETERMINISTIC) return true;
    }
    return false;
}

/* NULL: this configuration does not do; another may. */
static descriptor plan_of(ebb__cudnn_graph *graph, const ebb__cudnn_target *target, descriptor properties,
                          descriptor config, size_t *workspace_bytes)
{
    int64_t n = 0, bytes = 0;
    descriptor plan = make(graph, CUDNN_BACKEND_EXECUTION_PLAN_DESCRIPTOR);
    set_descriptor(graph, plan, CUDNN_ATTR_EXECUTION_PLAN_ENGINE_CONFIG, config);
    if (properties) set_descriptor(graph, plan, CUDNN_ATTR_EXECUTION_PLAN_DEVICEPROP, properties);
    if (target->handle) set(graph, plan, CUDNN_ATTR_EXECUTION_PLAN_HANDLE, CUDNN_TYPE_HANDLE, 1, &target->handle);
    if (graph->failed || graph->api->BackendFinalize(plan) != CUDNN_STATUS_SUCCESS) return NULL;
    if (graph->api->BackendGetAttribute(plan, CUDNN_ATTR_EXECUTION_PLAN_WORKSPACE_SIZE, CUDNN_TYPE_INT64, 1, &n,
                                             &bytes) != CUDNN_STATUS_SUCCESS) return NULL;
    *workspace_bytes = (size_t)bytes;
    return plan;
}

bool ebb__cudnn_plan(ebb__cudnn_graph *graph, const ebb__cudnn_target *target, size_t most_workspace_bytes,
                     bool any_order)
{
    descriptor configs[MAX_CONFIGS];
    int64_t n = 0;
    descriptor properties = device_properties(graph, target), all = operation_graph(graph, target);
    ask(graph, all, properties, configs, &n);
    for (int64_t i = 0; i < n && !graph->plan && !graph->failed; i++) {
        size_t bytes = 0;
        if (!any_order && is_unordered(graph, configs[i])) continue;
        descriptor plan = plan_of(graph, target, properties, configs[i], &bytes);
        if (!plan || bytes > most_workspace_bytes) continue;
        graph->plan = plan;
        graph->workspace_bytes = bytes;
    }
    return graph->plan != NULL;
}

cudnnStatus_t ebb__cudnn_run(ebb__cudnn_graph *graph, cudnnHandle_t handle, int n, const int64_t *ids,
                             void *const *pointers, void *workspace)
{
    const ebb__cudnn_api *api = graph->api;
    descriptor pack = NULL;
    cudnnStatus_t status = api->BackendCreateDescriptor(CUDNN_BACKEND_VARIANT_PACK_DESCRIPTOR, &pack);
    if (status != CUDNN_STATUS_SUCCESS) return status;
    status = api->BackendSetAttribute(pack, CUDNN_ATTR_VARIANT_PACK_UNIQUE_IDS, CUDNN_TYPE_INT64, n, ids);
    if (status == CUDNN_STATUS_SUCCESS) {
        status = api->BackendSetAttribute(pack, CUDNN_ATTR_VARIANT_PACK_DATA_POINTERS, CUDNN_TYPE_VOID_PTR, n,
                                               pointers);
    }
    if (status == CUDNN_STATUS_SUCCESS) {
        status = api->BackendSetAttribute(pack, CUDNN_ATTR_VARIANT_PACK_WORKSPACE, CUDNN_TYPE_VOID_PTR, 1,
                                               &workspace);
    }
    if (status == CUDNN_STATUS_SUCCESS) status = api->BackendFinalize(pack);
    if (status == CUDNN_STATUS_SUCCESS) status = api->BackendExecute(handle, graph->plan, pack);
    (void)api->BackendDestroyDescriptor(pack);
    return status;
}

void ebb__cudnn_graph_free(ebb__cudnn_graph *graph)
{
    while (graph->n_descriptors > 0) {
        (void)graph->api->BackendDestroyDescriptor(graph->descriptors[--graph->n_descriptors]);
    }
    graph->plan = NULL;
}
#else
typedef int ebb__no_cudnn_headers; /* a translation unit is not empty */
#endif
