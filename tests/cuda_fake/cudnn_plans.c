/* cudnn_plans.c: cuDNN itself builds execution plans from the plugin's own graphs, for GPUs that are not here: it
 * is told a device's properties instead (documented since 9.8).  Needs cuDNN and a libcuda.so.1 that loads
 * (dummy_libcuda.py); exit status 77: cuDNN is not there. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include "device/cuda/cudnn.h"
#include "device/cuda/cudnn_api.h"

/* Facts of the devices; cuDNN wants all 23. */
#define LIMITS                                                                                                 \
    "\"warpSize\":32,\"maxSharedMemoryPerBlock\":49152,\"reservedSharedMemoryPerBlock\":1024,"                 \
    "\"maxRegistersPerSM\":65536,\"maxCtasPerSM\":32,\"maxThreadsPerBlock\":1024,\"maxThreadsPerSM\":2048,"    \
    "\"regsPerBlock\":65536,\"totalGlobalMem\":85899345920,\"smClockRateKHz\":1410000,"                        \
    "\"maxBlockSize\":[1024,1024,64],\"memClockRateKHz\":1593000,\"maxGridSize\":[2147483647,65535,65535],"    \
    "\"supportCoopLaunch\":1,\"pciDeviceId\":0,\"isTccDriver\":0,\"cudaDeviceId\":0,\"driverVer\":13000,"
static const struct { const char *name, *properties; } devices[] = {
    { "H100", "{" LIMITS "\"deviceVer\":900,\"multiProcessorCount\":132,\"maxSharedMemoryPerBlockOptin\":232448,"
              "\"l2CacheSize\":52428800,\"deviceName\":\"NVIDIA H100 80GB HBM3\"}" },
    { "A100", "{" LIMITS "\"deviceVer\":800,\"multiProcessorCount\":108,\"maxSharedMemoryPerBlockOptin\":166912,"
              "\"l2CacheSize\":41943040,\"deviceName\":\"NVIDIA A100-SXM4-80GB\"}" },
};

typedef struct plan_case {
    const char *name;
    int64_t batch, t_q, t_k, heads, kv_heads, head_dim;
    bool bf16, causal, packed, stats;
} plan_case;

static const plan_case cases[] = {
    { "causal, packed", 4, 1024, 1024, 12, 12, 64, .bf16 = true, .causal = true, .packed = true, .stats = true },
    { "full, odd length, wide", 2, 500, 500, 8, 8, 128, .bf16 = true, .stats = true },
    { "f16, other keys", 2, 256, 384, 4, 4, 64, .stats = true },
    { "grouped heads, packed", 2, 512, 512, 8, 2, 64, .bf16 = true, .causal = true, .packed = true, .stats = true },
    { "without statistics", 2, 256, 256, 4, 4, 64, .bf16 = true, .causal = true },
};

static ebb__cudnn_attention_shape shape_of(const plan_case *c, bool backward)
{
    ebb__cudnn_attention_shape s;
    int64_t q = c->heads * c->head_dim, kv = c->kv_heads * c->head_dim, all = q + 2 * kv;
    memset(&s, 0, sizeof s);
    s.batch = c->batch, s.t_q = c->t_q, s.t_k = c->t_k, s.heads = c->heads, s.kv_heads = c->kv_heads;
    s.head_dim = c->head_dim, s.bf16 = c->bf16, s.causal = c->causal, s.backward = backward;
    s.stats = c->stats && !backward;
    s.row_out = q;
    s.row_q = c->packed ? all : q, s.row_k = s.row_v = c->packed ? all : kv;
    if (backward) s.row_dout = q, s.row_dq = s.row_q, s.row_dk = s.row_dv = s.row_k;
    return s;
}

/* What the plugin has for a plan's own use: of the op's workspace in backward, of cuBLAS's in forward. */
static size_t scratch_of(const plan_case *c, bool backward)
{
    ebb__cuda_attention_call call = { .batch = c->batch, .t_q = c->t_q, .t_k = c->t_k, .heads = c->heads,
                                      .kv_heads = c->kv_heads, .head_dim = c->head_dim };
    int64_t rows = c->batch * c->heads * c->t_q;
    size_t sums = (size_t)(rows * (c->head_dim + 1)) * sizeof(float);
    return backward ? ebb__cuda_attention_workspace(&call) - sums : 4 << 20;
}

/* Says whether the pass has a plan, and what it needs. */
static bool build(const ebb__cudnn_api *api, int device, const plan_case *c, bool backward)
{
    ebb__cudnn_graph *graph = calloc(1, sizeof *graph);
    ebb__cudnn_attention_shape shape = shape_of(c, backward);
    ebb__cudnn_target target = { .properties = devices[device].properties };
    char why[256] = "";
    if (!graph) return false;
    graph->api = api;
    ebb__cudnn_attention_graph(graph, &shape);
    bool found = ebb__cudnn_plan(graph, &target, scratch_of(c, backward), backward);
    if (!found) api->GetLastErrorString(why, sizeof why);
    printf("%s %-8s %-24s %s, %zu of %zu bytes of scratch %s\n", devices[device].name, backward ? "backward" : "forward",
           c->name, found ? "plan" : "NONE", graph->workspace_bytes, scratch_of(c, backward), why);
    ebb__cudnn_graph_free(graph);
    free(graph);
    return found;
}

int main(void)
{
    ebb__cudnn_api api;
    int missing = 0;
    if (!ebb__cudnn_load(&api)) {
        puts("cuDNN is not there");
        return 77;
    }
    for (size_t d = 0; d < sizeof devices / sizeof *devices; d++) {
        for (size_t c = 0; c < sizeof cases / sizeof *cases; c++) {
            missing += !build(&api, (int)d, &cases[c], false);
            if (cases[c].stats) missing += !build(&api, (int)d, &cases[c], true);
        }
    }
    ebb__cudnn_unload(&api);
    printf("%d missing\n", missing);
    return missing > 0;
}
