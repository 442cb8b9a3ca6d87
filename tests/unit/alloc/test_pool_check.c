/* The checker finds what is broken on purpose.  Each test repairs the pool before it ends. */
#include "pool_rig.h"

#define check_finds(rig, text)                                                                     \
    do {                                                                                           \
        cr_assert_not(ebb__pool_check((rig).pool), "nothing was found");                           \
        check_message(text);                                                                       \
    } while (0)

/* Breaks one field, sees that it is found, and puts it right again. */
#define check_field(rig, field, wrong, text)                                                       \
    do {                                                                                           \
        __typeof__(field) kept_ = (field);                                                         \
        (field) = (wrong);                                                                         \
        check_finds(rig, text);                                                                    \
        (field) = kept_;                                                                           \
    } while (0)

Test(pool_check, wrong_blocks_are_found)
{
    pool_rig rig;
    rig_init(&rig, RIG_DRY, 0, 1);
    ebb__block *a = rig_take(&rig, 1000), *b = rig_take(&rig, 1000), *c = rig_take(&rig, 1000);
    rig_give(&rig, b);
    cr_assert(ebb__pool_check(rig.pool), "%s", ebb_message());
    check_field(rig, a->bytes, 1536, "do not tile");
    check_field(rig, a->bytes, 1000, "not rounded");
    check_field(rig, c->offset, 512, "do not tile");
    check_field(rig, c->prev, a, "not linked both ways");
    check_field(rig, a->requested, 1025, "wrong requested size");
    check_field(rig, a->used, false, "not merged");
    check_field(rig, a->stream, 3, "another stream");
    check_field(rig, a->segment_number, 9, "another segment");
    check_field(rig, a->owner.category, EBB_N_CATEGORIES, "no such category");
    check_field(rig, a->owner.category, EBB_CAT_INPUT, "input: 0 kept, 1024 counted");
    rig_give(&rig, a);
    rig_give(&rig, c);
    rig_end(&rig);
}

Test(pool_check, wrong_trees_and_segments_are_found)
{
    pool_rig rig;
    rig_init(&rig, RIG_DRY, 0, 1);
    ebb__block *a = rig_take(&rig, 1000), *b = rig_take(&rig, 1000), *c = rig_take(&rig, 1000);
    ebb__block *large = rig_take(&rig, 20 * MIB);
    rig_give(&rig, b);
    ebb__free_tree *small = &rig.pool->free[EBB__POOL_SMALL];
    ebb__free_tree_remove(small, b);
    check_finds(rig, "free blocks: 1 kept, 2 counted");
    ebb__free_tree_insert(small, b);
    ebb__free_tree_insert(small, large);
    check_finds(rig, "wrong free tree");
    ebb__free_tree_remove(small, large);
    check_field(rig, ebb__free_tree_first(small)->height, 7, "free tree is not in order");
    check_field(rig, rig.pool->first_segment->bytes, 4 * MIB, "do not fill the segment");
    check_field(rig, rig.pool->first_segment->bytes, 2 * MIB + 512, "not sound");
    check_field(rig, rig.pool->last_segment->number, 1, "not in order");
    cr_assert(ebb__pool_check(rig.pool), "%s", ebb_message());
    rig_give(&rig, a);
    rig_give(&rig, c);
    rig_give(&rig, large);
    rig_end(&rig);
}

Test(pool_check, wrong_statistics_are_found)
{
    pool_rig rig;
    rig_init(&rig, RIG_DRY, 0, 1);
    ebb__block *a = rig_take(&rig, 1000), *empty = rig_take(&rig, 0);
    ebb_memory_stats *stats = &rig.pool->stats;
    check_field(rig, stats->allocated_bytes, 512, "allocated bytes: 512 kept, 1024 counted");
    check_field(rig, stats->requested_bytes, 999, "requested bytes: 999 kept, 1000 counted");
    check_field(rig, stats->reserved_bytes, 0, "reserved bytes");
    check_field(rig, stats->n_allocs, 7, "live blocks: 7 kept, 2 counted");
    check_field(rig, stats->n_segment_frees, 1, "segments");
    check_field(rig, stats->peak_allocated_bytes, 512, "below the present");
    check_field(rig, stats->peak_allocated_bytes, 4096, "sum of categories at the peak");
    check_field(rig, rig.pool->store.n_spare, 3, "block structs");
    check_field(rig, empty->requested, 1, "block of 0 bytes");
    cr_assert(ebb__pool_check(rig.pool), "%s", ebb_message());
    rig_give(&rig, a);
    rig_give(&rig, empty);
    rig_end(&rig);
}
