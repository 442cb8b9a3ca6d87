#include "random_run.h"

#include <stdlib.h>
#include <string.h>

#include "core/rng.h"

static uint32_t draw(random_run *run)
{
    uint32_t word[4];
    ebb__philox(run->seed, run->step++, word);
    return word[0];
}

/* Sizes of all magnitudes from 0 to 32 MiB; some repeat, so that exact fits occur. */
static size_t draw_bytes(random_run *run)
{
    static const size_t common[] = { 0,   1,       4 * KIB, 12345,   300 * KIB,
                                     MIB, MIB + 1, 5 * MIB, 10 * MIB };
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
    int stream =
        draw(run) % 8 == 0 ? (int)(draw(run) % (run->n_streams ? (uint32_t)run->n_streams : 2)) : 0;
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

static void random_record(random_run *run)
{
    ebb__block *block = run->live[draw(run) % (uint32_t)run->n_live];
    int stream = (int)(draw(run) % (uint32_t)run->n_streams);
    if (ebb__block_bytes(block) == 0) return;
    check_ok(ebb__pool_record_stream(run->rig.pool, block, stream));
    if (run->naive) naive_record_stream(run->naive, block->segment_number, block->offset, stream);
}

/* A stream comes some way on. */
static void random_progress(random_run *run)
{
    uint32_t stream = draw(run) % (uint32_t)run->n_streams;
    fake_fences *f = &run->fences;
    uint64_t left = f->given[stream] - f->finished[stream];
    f->finished[stream] += left ? draw(run) % (left + 1) : 0;
    if (run->naive) run->naive->fences.finished[stream] = f->finished[stream];
}

void random_step(random_run *run)
{
    uint32_t what = draw(run) % 1000;
    if (what == 0) {
        ebb__pool_empty_cache(run->rig.pool);
        if (run->naive) naive_empty_cache(run->naive);
    } else if (what < 10) {
        run->target = (int)(draw(run) % MAX_LIVE);
    } else if (what < 100 && run->n_live > 0) {
        random_category(run);
    } else if (what < 180 && run->n_streams && run->n_live > 0) {
        if (what % 2)
            random_record(run);
        else
            random_progress(run);
    } else {
        int chance = run->n_live < run->target ? 700 : 300; /* of 1000, to take */
        bool wanted = (int)(draw(run) % 1000) < chance;
        bool take = run->n_live == 0 || (run->n_live < MAX_LIVE && wanted);
        if (take)
            random_take(run);
        else
            random_give(run);
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
    cr_assert(rig_stat(&run->rig, "active_bytes.all.current") == sums.active);
    cr_assert(rig_stat(&run->rig, "active_bytes.all.peak") == run->naive->peak_active);
    cr_assert(rig_stat(&run->rig, "inactive_split_bytes.all.current") == sums.inactive_split);
}

random_run *random_run_new(rig_kind kind, size_t limit_bytes, int checks, uint64_t seed,
                           const char *conf)
{
    random_run *run = calloc(1, sizeof *run);
    cr_assert(run != NULL);
    run->seed = seed;
    run->target = MAX_LIVE / 2;
    ebb__alloc_options alloc = ebb__alloc_options_default();
    check_ok(ebb__alloc_options_parse(&alloc, conf, "test"));
    ebb__pool_options options = { .limit_bytes = limit_bytes,
                                  .checks = checks,
                                  .alloc = &alloc,
                                  .fences = fake_fences_of(&run->fences) };
    rig_init_with(&run->rig, kind, &options);
    return run;
}

void random_run_end(random_run *run)
{
    while (run->n_live > 0) random_give(run);
    rig_end(&run->rig);
    free(run->naive);
    free(run);
}

void compare_with_naive(size_t limit_bytes, int n_steps, uint64_t seed, const char *conf,
                        int n_streams)
{
    random_run *run = random_run_new(RIG_DRY, limit_bytes, 1, seed, conf);
    run->n_streams = n_streams;
    run->naive = calloc(1, sizeof *run->naive);
    cr_assert(run->naive != NULL);
    run->naive->limit_bytes = limit_bytes;
    run->naive->options = run->rig.pool->options;
    for (int i = 0; i < n_steps; i++) {
        random_step(run);
        if (i % 128 == 0) check_stats(run);
        if (i % 512 == 0) cr_assert(ebb__pool_check(run->rig.pool), "%s", ebb_message());
    }
    if (limit_bytes) cr_assert(rig_stats(&run->rig).n_ooms > 0, "the limit was never met");
    random_run_end(run);
}

const random_case random_cases[] = {
    { "", 0, 4 },
    { "", 200, 4 },
    { "roundup_power2_divisions:4", 0, 0 },
    { "roundup_power2_divisions:[1:2,4:8,>:16]", 300, 2 },
    { "max_split_size_mb:21", 300, 0 },
    { "max_split_size_mb:24,max_non_split_rounding_mb:2", 250, 4 },
    { "garbage_collection_threshold:0.6", 300, 0 },
    { "garbage_collection_threshold:0.3,max_split_size_mb:22", 300, 3 },
    { "deferred_release_mb:16", 0, 0 },
    { "deferred_release_mb:40", 250, 4 },
    { "expandable_segments:True", 0, 0 },
    { "expandable_segments:True", 0, 4 },
    { "expandable_segments:True", 180, 4 },
    { "expandable_segments:True,max_split_size_mb:21,deferred_release_mb:8", 220, 2 },
    { "expandable_segments:True,roundup_power2_divisions:8,garbage_collection_threshold:0.5", 200,
      0 },
};
const int n_random_cases = sizeof random_cases / sizeof *random_cases;
