/* The out-of-memory sentence. */
#include <stdio.h>
#include <string.h>

#include "pool_rig.h"

static const ebb__owner linear = { .category = EBB_CAT_ACTIVATION,
                                   .op = "linear",
                                   .scope = "blocks.3" };

Test(oom, the_message_names_request_totals_limit_hole_and_owners)
{
    pool_rig rig;
    rig_init(&rig, RIG_DRY, 30 * MIB, 3);
    ebb__block *a = rig_take_as(&rig, 8 * MIB, EBB_CAT_ACTIVATION, "gelu"), *none = NULL;
    ebb__block *p = rig_take_as(&rig, MIB, EBB_CAT_PARAMETER, NULL);
    check_fails(ebb__pool_alloc(rig.pool, &none, 16 * MIB, 0, &linear), EBB_ENOMEM);
    cr_assert_str_eq(ebb_message(),
                     "out of memory: tried to allocate 16.00 MiB for linear (blocks.3); 9.00 MiB "
                     "allocated, 22.00 MiB reserved, limit 30.00 MiB leaves no room for a segment "
                     "of 16.00 MiB; largest free block 12.00 MiB, fragmentation 59.1%; largest "
                     "owners: gelu activations 8.00 MiB, parameters 1.00 MiB");
    rig_give(&rig, a);
    rig_give(&rig, p);
    rig_end(&rig);
}

Test(oom, a_refusal_by_the_system_is_said_to_be_one)
{
    pool_rig rig;
    rig_init(&rig, RIG_DRY, 0, 3);
    ebb__block *none = NULL;
    rig.n_refusals = 2; /* the first try and the retry */
    check_fails(ebb__pool_alloc(rig.pool, &none, 3 * MIB, 0, NULL), EBB_ENOMEM);
    cr_assert_str_eq(ebb_message(),
                     "out of memory: tried to allocate 3.00 MiB for temporary; 0 B allocated, 0 B "
                     "reserved, no limit, the system refused a segment of 20.00 MiB; largest free "
                     "block 0 B, fragmentation 0.0%");
    rig_end(&rig);
}

Test(oom, owners_are_summed_by_op_and_category_and_the_largest_come_first)
{
    static const char *const ops[] = { "add", "gelu", "linear", "softmax", "matmul", "cat" };
    pool_rig rig;
    rig_init(&rig, RIG_DRY, 10 * MIB, 3);
    ebb__block *blocks[12], *none = NULL;
    char copy[12][16]; /* equal names at different addresses are one op */
    for (int i = 0; i < 12; i++) {
        snprintf(copy[i], sizeof copy[i], "%s", ops[i % 6]);
        blocks[i] = rig_take_as(&rig, (1 + (size_t)i % 6) * 64 * KIB, EBB_CAT_ACTIVATION, copy[i]);
    }
    check_fails(ebb__pool_alloc(rig.pool, &none, 30 * MIB, 0, NULL), EBB_ENOMEM);
    check_message("largest owners: cat activations 768.00 KiB, matmul activations 640.00 KiB, "
                  "softmax activations 512.00 KiB, linear activations 384.00 KiB");
    cr_assert(strstr(ebb_message(), "gelu") == NULL);
    for (int i = 0; i < 12; i++) rig_give(&rig, blocks[i]);
    rig_end(&rig);
}

/* A user's ops may be many and their names long; the text is cut, never overrun. */
Test(oom, hundreds_of_owners_with_long_names_are_survived)
{
    enum { N = 600 };
    static char names[N][400];
    static ebb__block *blocks[N];
    pool_rig rig;
    rig_init(&rig, RIG_DRY, 20 * MIB, 2);
    for (int i = 0; i < N; i++) {
        char number[16];
        snprintf(number, sizeof number, "%06d", i);
        memset(names[i], 'x', sizeof names[i] - 1);
        memcpy(names[i], number, 6);
        blocks[i] = rig_take_as(&rig, 512, EBB_CAT_ACTIVATION, names[i]);
    }
    ebb__owner owner = { .category = EBB_CAT_WORKSPACE, .op = names[0], .scope = names[1] };
    ebb__block *none = NULL;
    check_fails(ebb__pool_alloc(rig.pool, &none, 30 * MIB, 0, &owner), EBB_ENOMEM);
    check_message("largest owners: 000000xxx");
    for (int i = 0; i < N; i++) rig_give(&rig, blocks[i]);
    rig_end(&rig);
}

Test(oom, failing_leaves_blocks_and_bytes_as_they_were)
{
    pool_rig rig;
    rig_init(&rig, RIG_DRY, 22 * MIB, 3);
    ebb__block *a = rig_take(&rig, 5 * MIB), *b = rig_take(&rig, 100), *none = NULL;
    uint64_t before = ebb__pool_fingerprint(rig.pool);
    ebb_memory_stats stats = rig_stats(&rig);
    check_fails(ebb__pool_alloc(rig.pool, &none, 16 * MIB, 0, NULL), EBB_ENOMEM);
    cr_assert(ebb__pool_fingerprint(rig.pool) == before);
    stats.n_ooms++;
    stats.n_alloc_retries++;
    ebb_memory_stats after = rig_stats(&rig);
    cr_assert(memcmp(&stats, &after, sizeof stats) == 0);
    rig_give(&rig, a);
    rig_give(&rig, b);
    rig_end(&rig);
}
