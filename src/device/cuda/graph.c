/* graph.c: a run of the compute stream, captured once and launched as a whole. */
#include <stdlib.h>
#include "device/cuda/table.h"

struct ebb__accel_graph {
    cudaGraphExec_t exec;
};

/* Relaxed: the pool may ask the driver for memory while a step is captured. */
ebb_status ebb__cuda_capture_begin(void *self, bool varies)
{
    EBB__CUDA_ENTER(device, self);
    EBB__CUDA_TRY(&device->shared, cudaStreamBeginCapture(device->shared.stream, cudaStreamCaptureModeRelaxed));
    device->shared.varies = varies;
    return EBB_OK;
}

static ebb_status instantiate(ebb__cuda_device *device, cudaGraph_t captured, ebb__accel_graph **out)
{
    ebb__accel_graph *graph = malloc(sizeof *graph);
    if (!graph) return EBB__CUDA_FAIL(&device->shared, EBB_ENOMEM, "cuda: no host memory for a graph");
    cudaError_t error = cudaGraphInstantiate(&graph->exec, captured, 0);
    if (error != cudaSuccess) {
        free(graph);
        return ebb__cuda_fail(&device->shared, error, "cudaGraphInstantiate");
    }
    *out = graph;
    return EBB_OK;
}

ebb_status ebb__cuda_capture_end(void *self, ebb__accel_graph **out)
{
    EBB__CUDA_ENTER(device, self);
    cudaGraph_t captured = NULL;
    device->shared.varies = false;
    cudaError_t error = cudaStreamEndCapture(device->shared.stream, &captured);
    if (error != cudaSuccess || !captured) {
        return ebb__cuda_fail(&device->shared, error != cudaSuccess ? error : cudaErrorStreamCaptureInvalidated,
                              "cudaStreamEndCapture");
    }
    ebb_status st = instantiate(device, captured, out);
    (void)cudaGraphDestroy(captured);
    return st;
}

ebb_status ebb__cuda_graph_launch(void *self, ebb__accel_graph *graph, const ebb__accel_numbers *numbers)
{
    EBB__CUDA_ENTER(device, self);
    ebb_status st = numbers ? ebb__cuda_give(&device->shared, numbers) : EBB_OK;
    if (st != EBB_OK) return st;
    EBB__CUDA_TRY(&device->shared, cudaGraphLaunch(graph->exec, device->shared.stream));
    return EBB_OK;
}

void ebb__cuda_graph_free(void *self, ebb__accel_graph *graph)
{
    ebb__cuda_device *device = self;
    if (!graph) return;
    (void)cudaSetDevice(device->shared.ordinal);
    (void)cudaGraphExecDestroy(graph->exec);
    free(graph);
}
