/* Blocks that other streams work with. */
#include "fake_fences.h"
#include "pool_rig.h"

static void rig_with(pool_rig *rig, fake_fences *fences, size_t limit_bytes)
{
    *fences = (fake_fences){ 0 };
    rig_init_with(rig, RIG_DRY,
                  &(ebb__pool_options){
                      .limit_bytes = limit_bytes, .checks = 3, .fences = fake_fences_of(fences) });
}

static ebb__block *used_on(pool_rig *rig, size_t bytes, int stream)
{
    ebb__block *block = rig_take(rig, bytes);
    check_ok(ebb__pool_record_stream(rig->pool, block, stream));
    return block;
}

Test(stream_use, a_block_is_not_reused_before_its_other_stream_is_done)
{
    pool_rig rig;
    fake_fences fences;
    rig_with(&rig, &fences, 0);
    ebb__block *a = used_on(&rig, 64 * MIB, 1);
    const void *place = ebb__block_data(a);
    rig_give(&rig, a);
    cr_assert(rig_stats(&rig).allocated_bytes == 0 &&
              rig_stat(&rig, "active_bytes.all.current") == 64 * MIB);
    ebb__block *b = rig_take(&rig, 64 * MIB);
    cr_assert(ebb__block_data(b) != place);
    fences.finished[1] = 1;
    ebb__block *c = rig_take(&rig, 64 * MIB);
    cr_assert(ebb__block_data(c) == place && fences.n_waits == 0);
    rig_give(&rig, b);
    rig_give(&rig, c);
    rig_end(&rig);
}

Test(stream_use, a_block_waits_for_all_of_its_streams)
{
    pool_rig rig;
    fake_fences fences;
    rig_with(&rig, &fences, 0);
    ebb__block *a = used_on(&rig, 4 * MIB, 1);
    check_ok(ebb__pool_record_stream(rig.pool, a, 2));
    check_ok(ebb__pool_record_stream(rig.pool, a, 2)); /* twice is once */
    rig_give(&rig, a);
    cr_assert(fences.given[1] == 1 && fences.given[2] == 1);
    fences.finished[1] = 1;
    rig_give(&rig, rig_take(&rig, 1000));
    cr_assert(rig_stat(&rig, "active_bytes.all.current") == 4 * MIB);
    fences.finished[2] = 1;
    rig_give(&rig, rig_take(&rig, 1000));
    cr_assert(rig_stat(&rig, "active_bytes.all.current") == 0);
    rig_end(&rig);
}

Test(stream_use, its_own_stream_is_not_waited_for)
{
    pool_rig rig;
    fake_fences fences;
    rig_with(&rig, &fences, 0);
    ebb__block *a = rig_take_on(&rig, 4 * MIB, 1);
    check_ok(ebb__pool_record_stream(rig.pool, a, 1));
    cr_assert(ebb__pool_is_exact(rig.pool));
    rig_give(&rig, a);
    cr_assert(fences.given[1] == 0 && rig_stat(&rig, "active_bytes.all.current") == 0);
    ebb__block *b = used_on(&rig, 100, 2);
    cr_assert_not(ebb__pool_is_exact(rig.pool));
    rig_give(&rig, b);
    rig_end(&rig);
    cr_assert(fences.finished[2] == 1, "the pool ended without waiting");
}

Test(stream_use, without_memory_the_pool_waits_for_the_streams)
{
    pool_rig rig;
    fake_fences fences;
    rig_with(&rig, &fences, 70 * MIB);
    rig_give(&rig, used_on(&rig, 64 * MIB, 1));
    ebb__block *b = rig_take(&rig, 60 * MIB);
    cr_assert(fences.n_waits == 1 && fences.finished[1] == 1);
    /* What the stream held back serves: no memory has to be given back or asked for. */
    cr_assert(rig_stat(&rig, "num_sync_all_streams") == 1 &&
              rig_stat(&rig, "num_alloc_retries") == 0);
    rig_give(&rig, b);
    rig_end(&rig);
}

Test(stream_use, emptying_the_cache_waits_too)
{
    pool_rig rig;
    fake_fences fences;
    rig_with(&rig, &fences, 0);
    rig_give(&rig, used_on(&rig, 64 * MIB, 3));
    ebb__pool_empty_cache(rig.pool);
    cr_assert(rig_stats(&rig).reserved_bytes == 0 && fences.finished[3] == 1);
    rig_end(&rig);
}

Test(stream_use, an_out_of_memory_message_names_what_other_streams_hold)
{
    pool_rig rig;
    fake_fences fences;
    rig_with(&rig, &fences, 0);
    ebb__block *none = NULL;
    rig_give(&rig, used_on(&rig, 4 * MIB, 1));
    check_fails(ebb__pool_alloc(rig.pool, &none, SIZE_MAX - 4096, 0, NULL), EBB_ENOMEM);
    check_message("released but still worked with 4.00 MiB");
    rig_end(&rig);
}
