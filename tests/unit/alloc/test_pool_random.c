/* Random operations: the pool against a naive one, overlap in real memory, dry against host. */
#include <stdlib.h>
#include <string.h>

#include "core/rng.h"
#include "naive_pool.h"
#include "pool_rig.h"

enum { MAX_LIVE = 300 };

typedef struct random_run {
    pool_rig rig;
    naive_pool *naive;      /* NULL: no comparison */
    ebb__block *live[MAX_LIVE];
    unsigned char mark[MAX_LIVE];
    int n_live, target;     /* the number of live blocks wanders towards target */
    bool fill;              /* write to the memory and verify it at release */
    uint64_t seed, step;
} random_run;

static uint32_t draw(random_run *run)
{
    uint32_t word[4];
    ebb__philox(run->seed, run->step++, word);
    return word[0];
}

/* Sizes of all magnitudes from 0 to 32 MiB; some repeat, so that exact fits occur. */
static size_t draw_bytes(random_run *run)
{
    static const size_t common[] = { 0, 1, 4 * KIB, 12345, 300 * KIB, MIB, MIB + 1, 5 * MIB,
                                     10 * MIB };
    uint32_t kind = draw(run) % 4;
    if (kind == 0) return common[draw(run) % (sizeof common / sizeof *common)];
    unsigned bits = kind == 1 ? 1 + draw(run) % 25 : 1 + draw(run) % 20;
    return draw(run) & (((uint32_t)1 << bits) - 1);
}

static void check_like_naive(const random_run *run, const ebb__block *block,
                             const naive_piece *piece)
{
    if (!run->naive || !ebb__block_requested(block)) return;
    cr_assert(piece != NULL, "step %llu: only the pool had room", (unsigned long long)run->step);
    cr_assert(block->segment_number == piece->segment && block->offset == piece->offset &&
                  block->bytes == piece->bytes,
              "step %llu: segment %llu offset %zu, the naive pool has segment %llu offset %zu",
              (unsigned long long)run->step, (unsigned long long)block->segment_number,
              block->offset, (unsigned long long)piece->segment, piece->offset);
}

static void random_take(random_run *run)
{
    size_t bytes = draw_bytes(run);
    int stream = draw(run) % 8 == 0;
    ebb_category category = (ebb_category)(draw(run) % EBB_N_CATEGORIES);
    ebb__owner owner = { .category = category };
    ebb__block *block = NULL;
    ebb_status status = ebb__pool_alloc(run->rig.pool, &block, bytes, stream, &owner);
    const naive_piece *piece = NULL;
    if (run->naive && bytes) piece = naive_take(run->naive, bytes, stream, (int)category);
    if (status != EBB_OK) {
        cr_assert(status == EBB_ENOMEM && (!run->naive || !piece), "step %llu: %s",
                  (unsigned long long)run->step, ebb_message());
        return;
    }
    check_like_naive(run, block, piece);
    unsigned char mark = (unsigned char)draw(run);
    if (run->fill && bytes) memset(ebb__block_data(block), mark, bytes);
    run->live[run->n_live] = block;
    run->mark[run->n_live++] = mark;
}

static void random_give(random_run *run)
{
    int i = (int)(draw(run) % (uint32_t)run->n_live);
    ebb__block *block = run->live[i];
    size_t bytes = ebb__block_requested(block);
    const unsigned char *data = ebb__block_data(block);
    if (run->fill && bytes)
        cr_assert(data[0] == run->mark[i] && memcmp(data, data + 1, bytes - 1) == 0,
                  "step %llu: another block was written over this one",
                  (unsigned long long)run->step);
    if (run->naive && bytes) naive_give(run->naive, block->segment_number, block->offset);
    rig_give(&run->rig, block);
    run->live[i] = run->live[--run->n_live];
    run->mark[i] = run->mark[run->n_live];
}

static void random_category(random_run *run)
{
    ebb__block *block = run->live[draw(run) % (uint32_t)run->n_live];
    ebb_category category = (ebb_category)(draw(run) % EBB_N_CATEGORIES);
    ebb__block_set_category(run->rig.pool, block, category);
    if (run->naive && ebb__block_bytes(block))
        naive_set_category(run->naive, block->segment_number, block->offset, (int)category);
}

static void random_step(random_run *run)
{
    uint32_t what = draw(run) % 1000;
    if (what == 0) {
        ebb__pool_empty_cache(run->rig.pool);
        if (run->naive) naive_empty_cache(run->naive);
    } else if (what < 10) {
        run->target = (int)(draw(run) % MAX_LIVE);
    } else if (what < 100 && run->n_live > 0) {
        random_category(run);
    } else {
        int chance = run->n_live < run->target ? 700 : 300; /* of 1000, to take */
        bool wanted = (int)(draw(run) % 1000) < chance;
        bool take = run->n_live == 0 || (run->n_live < MAX_LIVE && wanted);
        if (take) random_take(run);
        else random_give(run);
    }
}

static void check_stats(const random_run *run)
{
    ebb_memory_stats stats = rig_stats(&run->rig);
    naive_sums sums = naive_count(run->naive);
    cr_assert(stats.allocated_bytes == sums.allocated && stats.requested_bytes == sums.requested &&
              stats.reserved_bytes == sums.reserved);
    for (int i = 0; i < EBB_N_CATEGORIES; i++)
        cr_assert(stats.by_category[i] == sums.by_category[i]);
    cr_assert(stats.peak_allocated_bytes == run->naive->peak_allocated);
    cr_assert(stats.peak_requested_bytes == run->naive->peak_requested);
    cr_assert(stats.peak_reserved_bytes == run->naive->peak_reserved);
}

static random_run *run_new(rig_kind kind, size_t limit_bytes, int checks, uint64_t seed)
{
    random_run *run = calloc(1, sizeof *run);
    cr_assert(run != NULL);
    run->seed = seed;
    run->target = MAX_LIVE / 2;
    rig_init(&run->rig, kind, limit_bytes, checks);
    return run;
}

static void run_end(random_run *run)
{
    while (run->n_live > 0) random_give(run);
    rig_end(&run->rig);
    free(run->naive);
    free(run);
}

static void compare_with_naive(size_t limit_bytes, int n_steps, uint64_t seed)
{
    random_run *run = run_new(RIG_DRY, limit_bytes, 1, seed);
    run->naive = calloc(1, sizeof *run->naive);
    cr_assert(run->naive != NULL);
    run->naive->limit_bytes = limit_bytes;
    for (int i = 0; i < n_steps; i++) {
        random_step(run);
        if (i % 128 == 0) check_stats(run);
        if (i % 512 == 0) cr_assert(ebb__pool_check(run->rig.pool), "%s", ebb_message());
    }
    if (limit_bytes) cr_assert(rig_stats(&run->rig).n_ooms > 0, "the limit was never met");
    run_end(run);
}

Test(pool_random, places_blocks_where_a_naive_pool_places_them)
{
    compare_with_naive(0, 150000, 1);
}

Test(pool_random, places_blocks_where_a_naive_pool_places_them_under_a_limit)
{
    compare_with_naive(200 * MIB, 150000, 2);
}

Test(pool_random, blocks_never_overlap_and_keep_what_is_written)
{
    random_run *run = run_new(RIG_HOST, 100 * MIB, 1, 3);
    run->fill = true;
    for (int i = 0; i < 6000; i++) random_step(run);
    cr_assert(ebb__pool_check(run->rig.pool), "%s", ebb_message());
    run_end(run);
}

Test(pool_random, every_invariant_holds_after_every_call)
{
    random_run *run = run_new(RIG_DRY, 300 * MIB, 3, 4); /* level 3 walks everything each time */
    for (int i = 0; i < 10000; i++) random_step(run);
    cr_assert(rig_stats(&run->rig).n_allocs > 3000);
    run_end(run);
}

Test(pool_random, guards_and_fills_stand_random_use)
{
    random_run *run = run_new(RIG_HOST, 30 * MIB, 3, 5);
    run->fill = true;
    for (int i = 0; i < 1500; i++) random_step(run);
    cr_assert(rig_stats(&run->rig).n_frees > 300);
    run_end(run);
}

enum { N_LAYOUTS = 2500, STEPS_PER_LAYOUT = 8 };

static void record_layouts(rig_kind kind, uint64_t hashes[N_LAYOUTS], ebb_memory_stats *stats)
{
    random_run *run = run_new(kind, 250 * MIB, 1, 6);
    for (int i = 0; i < N_LAYOUTS; i++) {
        for (int k = 0; k < STEPS_PER_LAYOUT; k++) random_step(run);
        hashes[i] = ebb__pool_fingerprint(run->rig.pool);
    }
    *stats = rig_stats(&run->rig);
    run_end(run);
}

Test(pool_random, dry_and_host_pools_have_the_same_layout_at_every_step)
{
    static uint64_t dry[N_LAYOUTS], host[N_LAYOUTS];
    ebb_memory_stats dry_stats, host_stats;
    record_layouts(RIG_DRY, dry, &dry_stats);
    record_layouts(RIG_HOST, host, &host_stats);
    for (int i = 0; i < N_LAYOUTS; i++) cr_assert(dry[i] == host[i], "layout %d differs", i);
    cr_assert(memcmp(&dry_stats, &host_stats, sizeof dry_stats) == 0, "the statistics differ");
}

Test(pool_random, a_repeated_step_reaches_a_layout_that_repeats)
{
    pool_rig rig;
    rig_init(&rig, RIG_DRY, 0, 1);
    ebb__block *parameter = rig_take(&rig, 3 * MIB);
    uint64_t last = 0;
    int n_equal = 0;
    for (int step = 0; step < 6; step++) {
        uint64_t hash = ebb__pool_fingerprint(rig.pool);
        n_equal += hash == last;
        last = hash;
        ebb__block *blocks[40];
        for (size_t i = 0; i < 40; i++) blocks[i] = rig_take(&rig, 1000 + i * i * 4000);
        for (int i = 40; i-- > 0;) rig_give(&rig, blocks[i]);
    }
    cr_assert(n_equal == 4, "the layout repeated %d times", n_equal);
    rig_give(&rig, parameter);
    rig_end(&rig);
}
