/* However a graph's saved tensors are kept, its gradients are the same bits. */
#include "random_graph.h"
#include "support/cases.h"
#include "support/support.h"

Test(checkpoint_bits, random_graphs_have_the_same_gradients_however_they_are_saved)
{
    check_graphs(1, CASES(600, 150));
}

Test(checkpoint_bits, a_graph_repeats_its_bits)
{
    static graph_result a, b;
    with_context(ctx) {
        for (uint64_t seed = 1000; seed < 1010; seed++) {
            check_ok(random_graph_run(&a, ctx, seed, 1));
            check_ok(random_graph_run(&b, ctx, seed, 1));
            check_same_graph(&a, &b, seed, 1);
        }
    }
}

Test(checkpoint_bits, a_dry_graph_has_the_peaks_of_both_pools_that_the_real_one_has)
{
    check_graph_peaks(2000, CASES(200, 50));
}

Test(checkpoint_bits, a_failed_allocation_anywhere_in_a_random_graph_leaves_nothing)
{
    check_graph_faults(1, CASES(150, 75));
}
