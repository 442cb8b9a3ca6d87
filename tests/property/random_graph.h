/* property/random_graph.h: graphs on the public API, drawn from a seed.
 * What is computed depends on the seed alone; what is kept for backward depends on `saving` too, and
 * must not change a bit of the gradients. */
#ifndef EBB_TESTS_RANDOM_GRAPH_H
#define EBB_TESTS_RANDOM_GRAPH_H

#include <ebb/checkpoint.h>

enum { GRAPH_MAX_GRADS = 32, GRAPH_MAX_BYTES = 4096 };

typedef struct graph_result {
    int n_grads;
    bool has_grad[GRAPH_MAX_GRADS]; /* by leaf, in a fixed order */
    size_t bytes[GRAPH_MAX_GRADS];
    unsigned char grads[GRAPH_MAX_GRADS][GRAPH_MAX_BYTES];
    double loss;
    bool trained;                   /* some leaf could have a gradient */
} graph_result;

/* saving 0: everything is kept.  Else: segments, their nesting, policies, savers of ops and the list of
 * recomputed ops are drawn from it; none that rounds.  All that was made is dropped before it returns.  Errors: ENOMEM. */
ebb_status random_graph_run(graph_result *out, ebb_context *ctx, uint64_t seed, uint64_t saving);

int random_graph_packed(void); /* storages that the graphs' own saver holds; 0 when all are gone */

/* The same loss, the same leaves with a gradient, the same bits. */
void check_same_graph(const graph_result *a, const graph_result *b, uint64_t seed, uint64_t saving);
/* Graphs first..first + n - 1, each with everything kept and then in several other ways. */
void check_graphs(uint64_t first, int n);
/* The same graphs in a real and in a dry context: the same peaks of both pools, to the byte. */
void check_graph_peaks(uint64_t first, int n);
/* In each graph a few drawn allocations fail, one per run: ENOMEM and nothing left; afterwards the graph
 * gives the bits that it gave before. */
void check_graph_faults(uint64_t first, int n);

/* `by_category` sums to `allocated_bytes`, now and at the peak. */
void check_memory_sums(const ebb_context *ctx);

#endif
