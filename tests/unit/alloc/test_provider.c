/* Where segments come from, and what the system says about them. */
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "pool_rig.h"

Test(provider, host_segments_are_aligned_zeroed_and_writable)
{
    ebb__provider host = ebb__host_provider();
    cr_assert(host.touchable);
    unsigned char *p[3];
    size_t bytes[3] = { 2 * MIB, 20 * MIB, 6 * MIB };
    for (int i = 0; i < 3; i++) {
        p[i] = host.alloc(host.self, bytes[i]);
        cr_assert(p[i] != NULL && (uintptr_t)p[i] % (2 * MIB) == 0);
        cr_assert(p[i][0] == 0 && p[i][bytes[i] - 1] == 0);
        memset(p[i], 1 + i, bytes[i]);
    }
    for (int i = 0; i < 3; i++) {
        cr_assert(p[i][0] == 1 + i && p[i][bytes[i] - 1] == 1 + i);
        host.free(host.self, p[i], bytes[i]);
    }
}

static size_t mapped_bytes(void)
{
    FILE *file = fopen("/proc/self/statm", "r");
    size_t pages = 0;
    if (!file) return 0;
    int n = fscanf(file, "%zu", &pages);
    fclose(file);
    return n == 1 ? pages * (size_t)sysconf(_SC_PAGESIZE) : 0;
}

Test(provider, host_segments_leave_no_mapping_behind)
{
    enum { N = 64 };
    ebb__provider host = ebb__host_provider();
    void *p[N];
    size_t before = mapped_bytes();
    if (before == 0) cr_skip("the system does not tell what is mapped");
    for (int i = 0; i < N; i++) cr_assert((p[i] = host.alloc(host.self, 2 * MIB)) != NULL);
    size_t between = mapped_bytes();
    cr_assert(between <= before + (N + 8) * 2 * MIB, "%zu bytes mapped for 128 MiB",
              between - before);
    for (int i = 0; i < N; i++) host.free(host.self, p[i], 2 * MIB);
    cr_assert(mapped_bytes() <= before + 16 * MIB);
}

Test(provider, the_host_says_no_to_what_it_cannot_map)
{
    ebb__provider host = ebb__host_provider();
    cr_assert(host.alloc(host.self, (size_t)1 << 62) == NULL);
    cr_assert(host.alloc(host.self, SIZE_MAX - 2 * MIB + 1) == NULL);
    cr_assert(host.alloc(host.self, SIZE_MAX) == NULL);
    cr_assert(host.alloc(host.self, 0) == NULL);
}

Test(provider, dry_addresses_are_aligned_increase_and_do_not_overlap)
{
    ebb__provider dry;
    check_ok(ebb__dry_provider_new(&dry));
    cr_assert_not(dry.touchable);
    uintptr_t end = 0;
    for (size_t i = 1; i <= 50; i++) {
        size_t bytes = i * 2 * MIB;
        uintptr_t at = (uintptr_t)dry.alloc(dry.self, bytes);
        cr_assert(at != 0 && at % (2 * MIB) == 0 && at >= end);
        end = at + bytes;
    }
    ebb__dry_provider_free(&dry);
    check_no_live_blocks();
}

Test(provider, the_same_requests_get_the_same_dry_addresses)
{
    ebb__provider a, b;
    check_ok(ebb__dry_provider_new(&a));
    check_ok(ebb__dry_provider_new(&b));
    for (int i = 0; i < 5; i++) cr_assert(a.alloc(a.self, 4 * MIB) == b.alloc(b.self, 4 * MIB));
    ebb__dry_provider_free(&a);
    ebb__dry_provider_free(&b);
    ebb__dry_provider_free(NULL);
}

Test(provider, dry_addresses_end_rather_than_wrap)
{
    ebb__provider dry;
    check_ok(ebb__dry_provider_new(&dry));
    size_t bytes = (size_t)1 << 61;
    int n = 0;
    while (n < 100 && dry.alloc(dry.self, bytes)) n++;
    cr_assert(n == 3, "%d segments of 2 EiB", n);
    cr_assert(dry.alloc(dry.self, SIZE_MAX - 2 * MIB) == NULL);
    ebb__dry_provider_free(&dry);
}

Test(provider, resident_bytes_are_those_that_were_touched)
{
    pool_rig rig;
    rig_init(&rig, RIG_HOST, 0, 0); /* higher levels fill segments, which touches them */
    ebb__block *block = rig_take(&rig, 16 * MIB);
    cr_assert(ebb__pool_resident_bytes(rig.pool) == 0);
    memset(ebb__block_data(block), 1, 5 * MIB);
    size_t resident = ebb__pool_resident_bytes(rig.pool);
    cr_assert(resident >= 5 * MIB && resident <= 6 * MIB, "%zu resident", resident);
    memset(ebb__block_data(block), 1, 16 * MIB);
    cr_assert(ebb__pool_resident_bytes(rig.pool) == 16 * MIB);
    rig_give(&rig, block);
    rig_end(&rig);
}

Test(provider, a_dry_pool_has_no_resident_bytes)
{
    pool_rig rig;
    rig_init(&rig, RIG_DRY, 0, 3);
    ebb__block *block = rig_take(&rig, (size_t)1 << 45); /* 32 TiB */
    cr_assert(ebb__pool_resident_bytes(rig.pool) == 0);
    cr_assert(rig_stats(&rig).reserved_bytes == (size_t)1 << 45);
    rig_give(&rig, block);
    rig_end(&rig);
}
