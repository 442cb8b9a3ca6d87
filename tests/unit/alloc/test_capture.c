/* A pool while a graph is captured: segments of the graph's own, and nothing given back. */
#include "alloc/pool_state.h"
#include "support/support.h"

enum { MIB = 1 << 20 };

static ebb__pool *new_pool(size_t limit_bytes)
{
    ebb__pool *pool = NULL;
    ebb__pool_options o = { .limit_bytes = limit_bytes, .checks = 3 };
    check_ok(ebb__pool_new(&pool, ebb__host_provider(), &o));
    return pool;
}

static ebb__block *take(ebb__pool *pool, size_t bytes)
{
    ebb__block *block = NULL;
    check_ok(ebb__pool_alloc(pool, &block, bytes, 0, NULL));
    return block;
}

static size_t reserved(const ebb__pool *pool)
{
    ebb_memory_stats stats;
    ebb__pool_stats(pool, &stats);
    return stats.reserved_bytes;
}

Test(capture, blocks_of_a_graph_serve_nobody_else)
{
    ebb__pool *pool = new_pool(0);
    int number = 0, second = 0;
    ebb__block *before = take(pool, 1000);
    check_ok(ebb__pool_capture_begin(pool, &number));
    check_fails(ebb__pool_capture_begin(pool, &second), EBB_ESTATE);
    ebb__block *a = take(pool, 1000), *b = NULL;
    cr_assert(number < 0 && a->segment != before->segment && a->segment->held);
    void *at = ebb__block_data(a);
    ebb__pool_release(pool, a);
    b = take(pool, 1000); /* within the capture it is used again */
    cr_assert(ebb__block_data(b) == at);
    ebb__pool_release(pool, b);
    ebb__pool_capture_end(pool);
    a = take(pool, 1000);
    cr_assert(a->segment == before->segment);
    ebb__pool_empty_cache(pool);
    cr_assert(reserved(pool) == 2 * EBB__SMALL_SEGMENT_BYTES, "the graph's segment stays");
    ebb__pool_capture_release(pool, number);
    cr_assert(ebb__pool_check(pool), "%s", ebb_message());
    ebb__pool_empty_cache(pool);
    cr_assert(reserved(pool) == EBB__SMALL_SEGMENT_BYTES);
    ebb__pool_release(pool, a);
    ebb__pool_release(pool, before);
    ebb__pool_free(pool);
    check_no_live_blocks();
}

Test(capture, blocks_that_outlive_the_graph_are_the_pools)
{
    ebb__pool *pool = new_pool(0);
    int number = 0;
    check_ok(ebb__pool_capture_begin(pool, &number));
    ebb__block *block = take(pool, 3 * MIB), *empty = take(pool, 0);
    ebb__pool_capture_end(pool);
    ebb__pool_capture_release(pool, number);
    cr_assert(ebb__pool_check(pool), "%s", ebb_message());
    ebb__pool_release(pool, block);
    ebb__pool_release(pool, empty);
    block = take(pool, 3 * MIB);
    cr_assert(reserved(pool) == EBB__LARGE_SEGMENT_BYTES, "it is used again");
    ebb__pool_release(pool, block);
    ebb__pool_free(pool);
    check_no_live_blocks();
}

Test(capture, a_request_without_room_gives_nothing_back)
{
    ebb__pool *pool = new_pool(24 * MIB);
    int number = 0;
    ebb__block *block = take(pool, 12 * MIB);
    ebb__pool_release(pool, block);
    check_ok(ebb__pool_capture_begin(pool, &number));
    check_fails(ebb__pool_alloc(pool, &block, 14 * MIB, 0, NULL), EBB_ENOMEM);
    check_message("that the capture may not use");
    cr_assert(reserved(pool) == 12 * MIB);
    ebb__pool_capture_end(pool);
    ebb__pool_capture_release(pool, number);
    block = take(pool, 14 * MIB); /* the cached segment goes */
    ebb__pool_release(pool, block);
    ebb__pool_free(pool);
    check_no_live_blocks();
}
