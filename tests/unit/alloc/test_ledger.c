/* Statistics, categories, peaks, owners, fingerprint. */
#include <signal.h>
#include <string.h>

#include "pool_rig.h"

Test(ledger, categories_have_the_names_of_the_reports)
{
    static const char *const names[] = { "parameters",  "optimizer",  "gradients", "input",
                                         "activations", "recomputed", "workspace", "temporary" };
    for (int i = 0; i < EBB_N_CATEGORIES; i++)
        cr_expect_str_eq(ebb_category_name((ebb_category)i), names[i]);
    cr_expect_str_eq(ebb_category_name(EBB_N_CATEGORIES), "unknown");
    cr_expect_str_eq(ebb_category_name((ebb_category)-1), "unknown");
}

Test(ledger, a_block_keeps_its_owner)
{
    pool_rig rig;
    rig_init(&rig, RIG_DRY, 0, 3);
    ebb__owner owner = { .category = EBB_CAT_ACTIVATION,
                         .op = "gelu",
                         .scope = "blocks.3",
                         .node = 17,
                         .segment = 2,
                         .phase = EBB__PHASE_RECOMPUTE,
                         .file = "model.c",
                         .line = 40 };
    ebb__block *block = NULL;
    check_ok(ebb__pool_alloc(rig.pool, &block, 100, 0, &owner));
    const ebb__owner *got = ebb__block_owner(block);
    cr_assert_str_eq(got->op, "gelu");
    cr_assert_str_eq(got->scope, "blocks.3");
    cr_assert(got->category == EBB_CAT_ACTIVATION && got->node == 17 && got->segment == 2);
    cr_assert(got->phase == EBB__PHASE_RECOMPUTE && got->line == 40);
    ebb__block_set_category(rig.pool, block, EBB_CAT_TEMPORARY);
    cr_assert(got->category == EBB_CAT_TEMPORARY && got->node == 17);
    cr_assert_str_eq(got->op, "gelu");
    rig_give(&rig, block);
    rig_end(&rig);
}

Test(ledger, categories_sum_to_allocated_and_follow_a_change)
{
    pool_rig rig;
    rig_init(&rig, RIG_DRY, 0, 3);
    ebb__block *p = rig_take_as(&rig, 1000, EBB_CAT_PARAMETER, NULL);
    ebb__block *t = rig_take_as(&rig, 2000, EBB_CAT_TEMPORARY, "gelu");
    ebb__block_set_category(rig.pool, t, EBB_CAT_ACTIVATION);
    ebb_memory_stats stats = rig_stats(&rig);
    cr_assert(stats.allocated_bytes == 3072 && stats.requested_bytes == 3000);
    cr_assert(stats.by_category[EBB_CAT_PARAMETER] == 1024);
    cr_assert(stats.by_category[EBB_CAT_ACTIVATION] == 2048);
    cr_assert(stats.by_category[EBB_CAT_TEMPORARY] == 0);
    rig_give(&rig, t);
    stats = rig_stats(&rig);
    cr_assert(stats.by_category[EBB_CAT_ACTIVATION] == 0 && stats.allocated_bytes == 1024);
    rig_give(&rig, p);
    rig_end(&rig);
}

Test(ledger, the_peak_keeps_its_first_instant)
{
    pool_rig rig;
    rig_init(&rig, RIG_DRY, 0, 3);
    ebb__block *p = rig_take_as(&rig, 1024, EBB_CAT_PARAMETER, NULL);
    ebb__block *a = rig_take_as(&rig, 2048, EBB_CAT_TEMPORARY, NULL);
    ebb__block_set_category(rig.pool, a, EBB_CAT_ACTIVATION); /* after the instant */
    rig_give(&rig, a);
    /* As high again, not higher. */
    ebb__block *w = rig_take_as(&rig, 2048, EBB_CAT_WORKSPACE, NULL);
    ebb_memory_stats stats = rig_stats(&rig);
    cr_assert(stats.peak_allocated_bytes == 3072);
    cr_assert(stats.by_category_at_peak[EBB_CAT_PARAMETER] == 1024);
    cr_assert(stats.by_category_at_peak[EBB_CAT_TEMPORARY] == 2048);
    cr_assert(stats.by_category_at_peak[EBB_CAT_ACTIVATION] == 0);
    cr_assert(stats.by_category_at_peak[EBB_CAT_WORKSPACE] == 0);
    ebb__block *more = rig_take_as(&rig, 1, EBB_CAT_GRADIENT, NULL);
    stats = rig_stats(&rig);
    cr_assert(stats.peak_allocated_bytes == 3584);
    cr_assert(stats.by_category_at_peak[EBB_CAT_WORKSPACE] == 2048);
    cr_assert(stats.by_category_at_peak[EBB_CAT_GRADIENT] == 512);
    cr_assert(stats.by_category_at_peak[EBB_CAT_TEMPORARY] == 0);
    rig_give(&rig, p);
    rig_give(&rig, w);
    rig_give(&rig, more);
    rig_end(&rig);
}

Test(ledger, peaks_of_allocated_requested_and_reserved_are_independent)
{
    pool_rig rig;
    rig_init(&rig, RIG_DRY, 0, 3);
    ebb__block *many[8]; /* little requested, much charged */
    for (int i = 0; i < 8; i++) many[i] = rig_take(&rig, 1);
    for (int i = 0; i < 8; i++) rig_give(&rig, many[i]);
    rig_give(&rig, rig_take(&rig, 2000));
    ebb__pool_empty_cache(rig.pool);
    ebb_memory_stats stats = rig_stats(&rig);
    cr_assert(stats.peak_allocated_bytes == 4096 && stats.peak_requested_bytes == 2000);
    cr_assert(stats.peak_reserved_bytes == 2 * MIB && stats.reserved_bytes == 0);
    rig_end(&rig);
}

Test(ledger, resetting_the_peak_begins_at_the_present)
{
    pool_rig rig;
    rig_init(&rig, RIG_DRY, 0, 3);
    ebb__block *p = rig_take_as(&rig, 700, EBB_CAT_PARAMETER, NULL);
    rig_give(&rig, rig_take(&rig, 30 * MIB));
    ebb__pool_empty_cache(rig.pool);
    ebb__pool_reset_peak(rig.pool);
    ebb_memory_stats stats = rig_stats(&rig);
    cr_assert(stats.peak_allocated_bytes == 1024 && stats.peak_requested_bytes == 700);
    cr_assert(stats.peak_reserved_bytes == 2 * MIB);
    cr_assert(stats.by_category_at_peak[EBB_CAT_PARAMETER] == 1024);
    cr_assert(stats.by_category_at_peak[EBB_CAT_TEMPORARY] == 0);
    rig_give(&rig, p);
    rig_end(&rig);
}

Test(ledger, the_bytes_of_a_rest_that_is_not_split_off_are_charged)
{
    pool_rig rig;
    rig_init(&rig, RIG_DRY, 0, 3);
    ebb__block *block = rig_take_as(&rig, 11 * MIB, EBB_CAT_GRADIENT, NULL);
    ebb_memory_stats stats = rig_stats(&rig);
    cr_assert(stats.allocated_bytes == 12 * MIB && stats.requested_bytes == 11 * MIB);
    cr_assert(stats.by_category[EBB_CAT_GRADIENT] == 12 * MIB);
    ebb__block_set_category(rig.pool, block, EBB_CAT_INPUT);
    cr_assert(rig_stats(&rig).by_category[EBB_CAT_INPUT] == 12 * MIB);
    rig_give(&rig, block);
    rig_end(&rig);
}

typedef struct live_list {
    const ebb__block *blocks[8];
    int n;
} live_list;

static void collect(void *user, const ebb__block *block)
{
    live_list *list = user;
    list->blocks[list->n++] = block;
}

Test(ledger, each_live_emits_every_block_in_use_once)
{
    pool_rig rig;
    rig_init(&rig, RIG_DRY, 0, 3);
    ebb__block *empty = rig_take(&rig, 0), *a = rig_take(&rig, 100), *b = rig_take(&rig, 100);
    ebb__block *large = rig_take(&rig, 5 * MIB);
    rig_give(&rig, a);
    live_list list = { .n = 0 };
    ebb__pool_each_live(rig.pool, collect, &list);
    cr_assert(list.n == 3);
    cr_assert(list.blocks[0] == b && list.blocks[1] == large && list.blocks[2] == empty);
    rig_give(&rig, b);
    rig_give(&rig, large);
    rig_give(&rig, empty);
    rig_end(&rig);
}

/* ---- fingerprint ------------------------------------------------------------------------- */

Test(fingerprint, repeats_with_the_layout_and_changes_with_it)
{
    pool_rig rig;
    rig_init(&rig, RIG_DRY, 0, 3);
    uint64_t empty = ebb__pool_fingerprint(rig.pool);
    ebb__block *a = rig_take(&rig, 100);
    uint64_t one = ebb__pool_fingerprint(rig.pool);
    ebb__block *b = rig_take(&rig, 5000);
    uint64_t two = ebb__pool_fingerprint(rig.pool);
    cr_assert(empty != one && one != two && two != empty);
    rig_give(&rig, b);
    cr_assert(ebb__pool_fingerprint(rig.pool) == one);
    b = rig_take(&rig, 5000);
    cr_assert(ebb__pool_fingerprint(rig.pool) == two);
    rig_give(&rig, a);
    rig_give(&rig, b);
    uint64_t cached = ebb__pool_fingerprint(rig.pool);
    cr_assert(cached != empty, "a cached segment must show");
    ebb__pool_empty_cache(rig.pool);
    cr_assert(ebb__pool_fingerprint(rig.pool) == empty);
    rig_give(&rig, rig_take(&rig, 100)); /* a segment with another number */
    cr_assert(ebb__pool_fingerprint(rig.pool) == cached);
    rig_end(&rig);
}

Test(fingerprint, tells_which_of_two_equal_holes_is_free)
{
    pool_rig rig;
    rig_init(&rig, RIG_DRY, 0, 3);
    ebb__block *blocks[4];
    for (int i = 0; i < 4; i++) blocks[i] = rig_take(&rig, 512 * KIB);
    rig_give(&rig, blocks[0]);
    uint64_t first = ebb__pool_fingerprint(rig.pool);
    blocks[0] = rig_take(&rig, 512 * KIB);
    rig_give(&rig, blocks[2]);
    cr_assert(ebb__pool_fingerprint(rig.pool) != first);
    rig_give(&rig, blocks[0]);
    rig_give(&rig, blocks[1]);
    rig_give(&rig, blocks[3]);
    rig_end(&rig);
}
