/* Fills, tails and poison: wrong uses of the pool's memory are seen. */
#include <math.h>
#include <signal.h>
#include <string.h>

#include "pool_rig.h"

#if defined(__SANITIZE_ADDRESS__)
#include <sanitizer/asan_interface.h>
#define UNSEEN __attribute__((no_sanitize("address")))
#else
#define UNSEEN
#endif

/* A write that AddressSanitizer does not see, as one by assembly or a library would be. */
UNSEEN static void poke(ebb__block *block, size_t at, unsigned char value)
{
    ((volatile unsigned char *)ebb__block_data(block))[at] = value;
}

UNSEEN static unsigned char peek(const unsigned char *p)
{
    return *(const volatile unsigned char *)p;
}

Test(guard, memory_is_NaN_when_handed_out_first_and_after_release)
{
    pool_rig rig;
    rig_init(&rig, RIG_HOST, 0, 2);
    for (int round = 0; round < 2; round++) {
        ebb__block *block = rig_take(&rig, 1000 * sizeof(float));
        float *x = ebb__block_data(block);
        for (int i = 0; i < 1000; i++) cr_assert(isnan(x[i]), "round %d, element %d", round, i);
        memset(x, 0, 1000 * sizeof(float));
        rig_give(&rig, block);
        cr_assert(peek((unsigned char *)x + 17) == 0xFF);
    }
    rig_end(&rig);
}

Test(guard, a_write_inside_the_requested_bytes_is_fine)
{
    static const size_t sizes[] = { 1, 7, 511, 512, 513, 5000, MIB, 3 * MIB, 11 * MIB + 3 };
    pool_rig rig;
    rig_init(&rig, RIG_HOST, 0, 3);
    for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++) {
        ebb__block *block = rig_take(&rig, sizes[i]);
        memset(ebb__block_data(block), 0, sizes[i]);
        rig_give(&rig, block);
    }
    cr_assert(rig_stats(&rig).n_frees == 9);
    rig_end(&rig);
}

Test(guard, a_write_just_past_the_end_stops_the_program_at_release, .signal = SIGABRT)
{
    pool_rig rig;
    rig_init(&rig, RIG_HOST, 0, 2);
    ebb__block *block = rig_take_as(&rig, 1001, EBB_CAT_ACTIVATION, "gelu");
    poke(block, 1001, 1);
    rig_give(&rig, block);
}

Test(guard, a_write_at_the_last_byte_of_the_tail_stops_the_program_at_release, .signal = SIGABRT)
{
    pool_rig rig;
    rig_init(&rig, RIG_HOST, 0, 2);
    ebb__block *block = rig_take(&rig, 1001);
    poke(block, 1023, 0xFF);
    rig_give(&rig, block);
}

Test(guard, a_write_after_release_stops_the_program_at_level_3, .signal = SIGABRT)
{
    pool_rig rig;
    rig_init(&rig, RIG_HOST, 0, 3);
    ebb__block *block = rig_take(&rig, 1000);
    rig_give(&rig, block);
    poke(block, 300, 0);
    (void)rig_take(&rig, 1000);
}

Test(guard, the_level_changes_nothing_about_the_layout)
{
    uint64_t hashes[4];
    for (int checks = 0; checks < 4; checks++) {
        pool_rig rig;
        rig_init(&rig, RIG_HOST, 0, checks);
        ebb__block *a = rig_take(&rig, 1001), *b = rig_take(&rig, 3 * MIB), *c = rig_take(&rig, 77);
        rig_give(&rig, a);
        hashes[checks] = ebb__pool_fingerprint(rig.pool);
        rig_give(&rig, b);
        rig_give(&rig, c);
        rig_end(&rig);
    }
    for (int i = 1; i < 4; i++) cr_assert(hashes[i] == hashes[0]);
}

Test(guard, a_dry_pool_is_never_touched)
{
    pool_rig rig;
    rig_init(&rig, RIG_DRY, 0, 3); /* a touched address would end the test by a signal */
    ebb__block *a = rig_take(&rig, 1001);
    rig_give(&rig, a);
    a = rig_take(&rig, 1001);
    cr_assert(ebb__block_data(a) != NULL);
    rig_give(&rig, a);
    rig_end(&rig);
}

#if defined(__SANITIZE_ADDRESS__)
Test(guard, AddressSanitizer_sees_tails_and_free_blocks)
{
    for (int checks = 0; checks < 4; checks++) {
        pool_rig rig;
        rig_init(&rig, RIG_HOST, 0, checks);
        ebb__block *a = rig_take(&rig, 1001), *b = rig_take(&rig, 1024);
        unsigned char *p = ebb__block_data(a), *q = ebb__block_data(b);
        cr_assert_not(__asan_region_is_poisoned(p, 1001));
        cr_assert_not(__asan_region_is_poisoned(q, 1024));
        cr_assert(__asan_address_is_poisoned(p + 1001));
        cr_assert(__asan_address_is_poisoned(p + 1023));
        cr_assert(__asan_address_is_poisoned(q + 1024), "free memory behind the last block");
        rig_give(&rig, a);
        cr_assert(__asan_address_is_poisoned(p) && __asan_address_is_poisoned(p + 1000));
        rig_give(&rig, b);
        ebb__pool_empty_cache(rig.pool);
        cr_assert_not(__asan_address_is_poisoned(p), "a returned segment keeps no poison");
        rig_end(&rig);
    }
}
#endif
