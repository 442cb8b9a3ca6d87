#include <math.h>
#include <stdlib.h>
#include <string.h>

#include <ebb/memory.h>

#include "draw.h"
#include "random_graph.h"
#include "support/support.h"

enum { N_SAVINGS = 3 };

void check_same_graph(const graph_result *a, const graph_result *b, uint64_t seed, uint64_t saving)
{
    cr_assert(memcmp(&a->loss, &b->loss, sizeof(a->loss)) == 0,
              "graph %llu, saving %llu: loss %.17g, not %.17g", (unsigned long long)seed,
              (unsigned long long)saving, b->loss, a->loss);
    cr_assert(a->n_grads == b->n_grads && a->trained == b->trained);
    for (int i = 0; i < a->n_grads; i++) {
        cr_assert(a->has_grad[i] == b->has_grad[i], "graph %llu, saving %llu: leaf %d: gradient %s",
                  (unsigned long long)seed, (unsigned long long)saving, i, a->has_grad[i] ? "gone" : "new");
        cr_assert(a->bytes[i] == b->bytes[i] && memcmp(a->grads[i], b->grads[i], a->bytes[i]) == 0,
                  "graph %llu, saving %llu: leaf %d: other bits", (unsigned long long)seed,
                  (unsigned long long)saving, i);
    }
}

static void check_all_gone(const ebb_context *ctx, uint64_t seed, uint64_t saving)
{
    ebb_memory_stats m, host;
    ebb_memory_stats_get(ctx, &m);
    ebb_host_memory_stats_get(ctx, &host);
    cr_assert(m.allocated_bytes == 0 && host.allocated_bytes == 0 && ebb_live_nodes(ctx) == 0 &&
                  random_graph_packed() == 0,
              "graph %llu, saving %llu: %zu bytes, %zu on the host, %zu nodes, %d packed are alive",
              (unsigned long long)seed, (unsigned long long)saving, m.allocated_bytes, host.allocated_bytes,
              ebb_live_nodes(ctx), random_graph_packed());
}

void check_graphs(uint64_t first, int n)
{
    static graph_result plain, other;
    int n_finite = 0, n_trained = 0;
    with_context(ctx) {
        for (uint64_t seed = first; seed < first + (uint64_t)n; seed++) {
            check_ok(random_graph_run(&plain, ctx, seed, 0));
            check_all_gone(ctx, seed, 0);
            n_finite += isfinite(plain.loss);
            n_trained += plain.trained;
            for (uint64_t saving = 1; saving <= N_SAVINGS; saving++) {
                check_ok(random_graph_run(&other, ctx, seed, saving));
                check_all_gone(ctx, seed, saving);
                check_same_graph(&plain, &other, seed, saving);
            }
        }
        ebb_recompute_stats stats;
        ebb_recompute_stats_get(ctx, &stats);
        cr_assert(stats.segments > (uint64_t)n && stats.recomputed_ops > (uint64_t)n,
                  "too little was recomputed");
        cr_assert(stats.offloaded_bytes > 1000 * (uint64_t)n && stats.fetched_bytes > 100 * (uint64_t)n &&
                      stats.packed_bytes > 100 * (uint64_t)n,
                  "too little was packed: %llu offloaded, %llu back, %llu packed",
                  (unsigned long long)stats.offloaded_bytes, (unsigned long long)stats.fetched_bytes,
                  (unsigned long long)stats.packed_bytes);
    }
    cr_assert(n_finite * 10 > n * 9 && n_trained * 10 > n * 9, "%d of %d finite, %d trained: a weak test",
              n_finite, n, n_trained);
}

typedef struct peaks {
    ebb_memory_stats device, host;
    uint64_t offloaded, fetched;
} peaks;

static peaks peaks_of(ebb_context *ctx, uint64_t seed, uint64_t saving)
{
    static graph_result result;
    peaks p;
    ebb_recompute_stats before, after;
    ebb_memory_reset_peak(ctx);
    ebb_host_memory_reset_peak(ctx);
    ebb_recompute_stats_get(ctx, &before);
    check_ok(random_graph_run(&result, ctx, seed, saving));
    ebb_recompute_stats_get(ctx, &after);
    ebb_memory_stats_get(ctx, &p.device);
    ebb_host_memory_stats_get(ctx, &p.host);
    p.offloaded = after.offloaded_bytes - before.offloaded_bytes;
    p.fetched = after.fetched_bytes - before.fetched_bytes;
    return p;
}

static bool same_peaks(const ebb_memory_stats *a, const ebb_memory_stats *b)
{
    return a->peak_allocated_bytes == b->peak_allocated_bytes && a->peak_reserved_bytes == b->peak_reserved_bytes &&
           a->peak_requested_bytes == b->peak_requested_bytes && a->n_allocs == b->n_allocs &&
           memcmp(a->by_category_at_peak, b->by_category_at_peak, sizeof a->by_category_at_peak) == 0;
}

/* peaks: [n][1 + N_SAVINGS], of a new context. */
static void peaks_on(const char *device, peaks *all, uint64_t first, int n)
{
    with_device(ctx, device) {
        for (uint64_t seed = first; seed < first + (uint64_t)n; seed++)
            for (uint64_t saving = 0; saving <= N_SAVINGS; saving++) *all++ = peaks_of(ctx, seed, saving);
    }
}

void check_graph_peaks(uint64_t first, int n)
{
    size_t n_runs = (size_t)n * (1 + N_SAVINGS);
    peaks *real = calloc(n_runs, sizeof *real), *dry = calloc(n_runs, sizeof *dry);
    int n_host = 0;
    cr_assert(real && dry);
    peaks_on("cpu", real, first, n);
    peaks_on("dry:cpu", dry, first, n);
    for (size_t i = 0; i < n_runs; i++) {
        const peaks *a = &real[i], *b = &dry[i];
        unsigned long long seed = first + i / (1 + N_SAVINGS), saving = i % (1 + N_SAVINGS);
        cr_assert(same_peaks(&a->device, &b->device), "graph %llu, saving %llu: peak %zu real, %zu dry", seed, saving,
                  a->device.peak_allocated_bytes, b->device.peak_allocated_bytes);
        cr_assert(same_peaks(&a->host, &b->host), "graph %llu, saving %llu: host peak %zu real, %zu dry", seed,
                  saving, a->host.peak_allocated_bytes, b->host.peak_allocated_bytes);
        cr_assert(a->offloaded == b->offloaded && a->fetched == b->fetched);
        n_host += a->host.peak_allocated_bytes > 0;
    }
    cr_assert_gt(n_host, n, "too little was offloaded");
    free(real);
    free(dry);
}

void check_graph_faults(uint64_t first, int n)
{
    enum { N_FAULTS = 10 };
    static graph_result before, failed, after;
    with_options(ctx, ((ebb_context_options){ .threads = 1 })) {
        for (uint64_t seed = first; seed < first + (uint64_t)n; seed++) {
            draw d = { seed };
            ebb_fault_arm(0);
            check_ok(random_graph_run(&before, ctx, seed, 1));
            int total = (int)ebb_fault_count();
            for (int f = 0; f < N_FAULTS; f++) {
                int at = 1 + draw_int(&d, total);
                ebb_fault_arm((uint64_t)at);
                ebb_status st = random_graph_run(&failed, ctx, seed, 1);
                bool fired = ebb_fault_fired();
                ebb_fault_arm(0);
                cr_assert(st == (fired ? EBB_ENOMEM : EBB_OK), "graph %llu, allocation %d: %s, %s",
                          (unsigned long long)seed, at, ebb_status_name(st), ebb_message());
                check_all_gone(ctx, seed, 1);
                ebb_gradients_reset(ctx);
            }
            check_ok(random_graph_run(&after, ctx, seed, 1));
            check_same_graph(&before, &after, seed, 1);
        }
    }
}
