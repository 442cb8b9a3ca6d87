/* Millions of random operations with every option, compared with the naive pool one by one. */
#include "random_run.h"

Test(pool_random_slow, millions_of_operations_agree_with_a_naive_pool)
{
    for (int i = 0; i < n_random_cases; i++) {
        const random_case *c = &random_cases[i];
        compare_with_naive(c->limit_mib * MIB, 200000, 1000 + (uint64_t)i, c->conf, c->n_streams);
    }
}
