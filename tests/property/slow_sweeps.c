/* The properties of the other tests here over many more draws. */
#include "estimate_check.h"
#include "random_graph.h"
#include "support/support.h"

Test(slow_sweeps, many_random_graphs_have_the_same_gradients) { check_graphs(10000, 6000); }

Test(slow_sweeps, many_failed_allocations_in_random_graphs_leave_nothing) { check_graph_faults(20000, 2000); }

Test(slow_sweeps, many_dry_graphs_have_the_peaks_of_the_real_ones) { check_graph_peaks(30000, 2000); }

Test(slow_sweeps, many_drawn_configs_use_what_was_said) { check_drawn_estimates(1000, 200); }
