/* The loader: order, partial batches, the ring, workers, errors. */
#include "support/support.h"

#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <ebb/autograd.h>
#include <ebb/data.h>
#include <ebb/ops.h>

#include "core/rng.h"
#include "data/dataset.h"

/* ---- a dataset whose samples are their own index ----------------------------------------- */

/* Input [item, item + 0.5], target item % classes, or -1 (ignored) for items that 7 divides when
 * `state` says so; item `seed` cannot be read. */
static ebb_status fill_index(const ebb_dataset *data, bool eval, int64_t item, void *input,
                             ebb_dtype dtype, int32_t *targets)
{
    (void)eval;
    if (item == (int64_t)data->seed)
        return ebb_fail(EBB_EIO, "item %lld cannot be read", (long long)item);
    for (int i = 0; i < 2; i++) {
        double value = (double)item + 0.5 * i;
        if (dtype == EBB_F32) ((float *)input)[i] = (float)value;
        else ((double *)input)[i] = value;
    }
    targets[0] = data->state && item % 7 == 0 ? -1 : (int32_t)(item % data->info.classes);
    return EBB_OK;
}

static const ebb__dataset_kind index_kind = { .name = "index",
                                              .gives_samples = true,
                                              .fill = fill_index };

static ebb_dataset index_data(int64_t n_train, int64_t n_eval)
{
    ebb_dataset_info info = { .n_train = n_train, .n_eval = n_eval, .width = 2, .classes = 10 };
    return (ebb_dataset){ .kind = &index_kind, .loaded = true, .seed = UINT64_MAX, .info = info };
}

static ebb_loader_options options_of(int64_t batch, int workers, int prefetch)
{
    return (ebb_loader_options){ .struct_bytes = sizeof(ebb_loader_options),
                                 .batch = batch,
                                 .workers = workers,
                                 .prefetch = prefetch,
                                 .seed = 7,
                                 .dtype = EBB_F32 };
}

/* The items of the next batch. */
static int64_t next_items(ebb_loader *loader, int64_t *items)
{
    ebb_tensor *inputs = NULL, *targets = NULL;
    int64_t n, counted;
    check_ok(ebb_loader_next(loader, &inputs, &targets, &n, &counted));
    if (!n) return 0;
    cr_assert(ebb_tensor_dim(inputs, 0) == n && ebb_tensor_dim(inputs, 1) == 2);
    cr_assert(ebb_tensor_dim(targets, 0) == n && ebb_tensor_ndim(targets) == 1);
    cr_assert(ebb_tensor_is_contiguous(inputs));
    const float *x = ebb_tensor_data(inputs);
    const int32_t *y = ebb_tensor_data(targets);
    for (int64_t i = 0; i < n; i++) {
        items[i] = (int64_t)x[2 * i];
        cr_assert(x[2 * i + 1] == x[2 * i] + 0.5f && (y[i] == items[i] % 10 || y[i] == -1));
    }
    return n;
}

enum { ITEMS = 1000, EPOCHS = 3 };

/* Three epochs of 1000 items, batches of 64: 15 whole ones and one of 40. */
static void three_epochs(ebb_context *ctx, int64_t order[EPOCHS][ITEMS], int workers, int prefetch,
                         uint64_t seed)
{
    ebb_dataset data = index_data(ITEMS, 0);
    ebb_loader *loader = NULL;
    ebb_loader_options options = options_of(64, workers, prefetch);
    options.seed = seed;
    check_ok(ebb_loader_new(&loader, ctx, &data, &options));
    cr_assert(ebb_loader_batches(loader) == 16);
    for (int e = 0; e < EPOCHS; e++)
        for (int64_t b = 0, at = 0; b < 16; b++) {
            int64_t items[64], n = next_items(loader, items);
            cr_assert(n == (b < 15 ? 64 : 40));
            memcpy(&order[e][at], items, (size_t)n * sizeof *items);
            at += n;
            cr_assert(ebb_loader_position(loader) == e * 16 + b + 1);
        }
    ebb_loader_free(loader);
}

static bool is_permutation(const int64_t *order)
{
    bool seen[ITEMS] = { false };
    for (int i = 0; i < ITEMS; i++) {
        if (order[i] < 0 || order[i] >= ITEMS || seen[order[i]]) return false;
        seen[order[i]] = true;
    }
    return true;
}

/* B78 */
Test(loader, epochs_are_different_permutations_that_depend_on_seed_and_epoch_only)
{
    static int64_t one[EPOCHS][ITEMS], four[EPOCHS][ITEMS], none[EPOCHS][ITEMS],
        other[EPOCHS][ITEMS];
    with_context(ctx) {
        three_epochs(ctx, one, 1, 2, 7);
        three_epochs(ctx, four, 4, 5, 7);
        three_epochs(ctx, none, 0, 0, 7);
        three_epochs(ctx, other, 1, 0, 8);
    }
    for (int e = 0; e < EPOCHS; e++) {
        int64_t expected[ITEMS];
        cr_assert(is_permutation(one[e]));
        ebb__permutation(7, (uint64_t)e, expected, ITEMS);
        cr_assert(!memcmp(one[e], expected, sizeof expected),
                  "not the permutation of (seed, epoch %d)", e);
    }
    cr_assert(memcmp(one[0], one[1], sizeof one[0]) && memcmp(one[1], one[2], sizeof one[0]) &&
              memcmp(one[0], one[2], sizeof one[0]));
    cr_assert(!memcmp(one, four, sizeof one) && !memcmp(one, none, sizeof one));
    cr_assert(memcmp(one[0], other[0], sizeof one[0]));
}

Test(loader, first_batch_and_skip_give_the_batches_of_a_straight_run)
{
    static int64_t straight[EPOCHS][ITEMS];
    with_context(ctx) {
        ebb_dataset data = index_data(ITEMS, 0);
        int64_t items[64];
        three_epochs(ctx, straight, 0, 0, 7);
        for (int workers = 0; workers <= 3; workers += 3) {
            ebb_loader *loader = NULL;
            ebb_loader_options options = options_of(64, workers, 3);
            options.first_batch = 17;
            check_ok(ebb_loader_new(&loader, ctx, &data, &options));
            cr_assert(ebb_loader_position(loader) == 17);
            cr_assert(next_items(loader, items) == 64 &&
                      !memcmp(items, &straight[1][64], sizeof items));
            ebb_loader_skip(loader, 13);
            cr_assert(ebb_loader_position(loader) == 31);
            cr_assert(next_items(loader, items) == 40 &&
                      !memcmp(items, &straight[1][960], 40 * sizeof *items));
            ebb_loader_skip(loader, 0);
            cr_assert(next_items(loader, items) == 64 &&
                      !memcmp(items, &straight[2][0], sizeof items));
            ebb_loader_skip(loader, INT64_MAX);
            cr_assert(ebb_loader_position(loader) > INT64_MAX / 4);
            cr_assert(next_items(loader, items) > 0);
            ebb_loader_free(loader);
        }
    }
}

Test(loader, evaluation_goes_in_order_ends_with_a_partial_batch_and_rewinds)
{
    with_context(ctx) {
        ebb_dataset data = index_data(1, 10);
        for (int workers = 0; workers <= 2; workers++) {
            ebb_loader *loader = NULL;
            ebb_loader_options options = options_of(4, workers, 1);
            int64_t items[4];
            options.eval = true;
            check_ok(ebb_loader_new(&loader, ctx, &data, &options));
            cr_assert(ebb_loader_batches(loader) == 3);
            for (int pass = 0; pass < 3; pass++) {
                int64_t stop = pass == 1 ? 1 : 3; /* the second pass is left early */
                for (int64_t b = 0; b < stop; b++) {
                    int64_t n = next_items(loader, items);
                    cr_assert(n == (b < 2 ? 4 : 2));
                    for (int64_t i = 0; i < n; i++) cr_assert(items[i] == 4 * b + i);
                }
                if (stop == 3)
                    cr_assert(next_items(loader, items) == 0 && next_items(loader, items) == 0);
                ebb_loader_rewind(loader);
                cr_assert(ebb_loader_position(loader) == 0);
            }
            ebb_loader_skip(loader, 99);
            cr_assert(ebb_loader_position(loader) == 3 && next_items(loader, items) == 0);
            ebb_loader_free(loader);
        }
    }
}

Test(loader, an_evaluation_split_without_items_ends_at_once)
{
    with_context(ctx) {
        ebb_dataset data = index_data(5, 0);
        ebb_loader *loader = NULL;
        ebb_loader_options options = options_of(4, 2, 1);
        int64_t items[4];
        options.eval = true;
        check_ok(ebb_loader_new(&loader, ctx, &data, &options));
        cr_assert(ebb_loader_batches(loader) == 0);
        cr_assert(next_items(loader, items) == 0);
        ebb_loader_rewind(loader);
        cr_assert(next_items(loader, items) == 0);
        ebb_loader_free(loader);
    }
}

Test(loader, a_batch_larger_than_the_data_is_one_partial_batch)
{
    with_context(ctx) {
        ebb_dataset data = index_data(5, 0);
        ebb_loader *loader = NULL;
        ebb_loader_options options = options_of(8, 1, 2);
        int64_t items[8];
        check_ok(ebb_loader_new(&loader, ctx, &data, &options));
        for (int i = 0; i < 9; i++) cr_assert(next_items(loader, items) == 5);
        ebb_loader_free(loader);
    }
}

Test(loader, targets_that_are_ignored_do_not_count)
{
    with_context(ctx) {
        ebb_dataset data = index_data(1, 16);
        ebb_loader *loader = NULL;
        ebb_loader_options options = options_of(10, 1, 0);
        ebb_tensor *inputs = NULL, *targets = NULL;
        int64_t n, counted;
        data.state = &data;
        options.eval = true;
        options.dtype = EBB_F64;
        check_ok(ebb_loader_new(&loader, ctx, &data, &options));
        check_ok(ebb_loader_next(loader, &inputs, &targets, &n, &counted));
        cr_assert(n == 10 && counted == 8);
        cr_assert(ebb_tensor_dtype(inputs) == EBB_F64 &&
                  ((double *)ebb_tensor_data(inputs))[3] == 1.5);
        check_ok(ebb_loader_next(loader, &inputs, &targets, &n, &counted));
        cr_assert(n == 6 && counted == 5);
        ebb_loader_free(loader);
    }
}

Test(loader, the_held_batch_stays_as_it_is_until_the_next_call)
{
    with_context(ctx) {
        ebb_dataset data = index_data(1, 64);
        ebb_loader *loader = NULL;
        ebb_loader_options options = options_of(1, 4, 2);
        options.eval = true;
        check_ok(ebb_loader_new(&loader, ctx, &data, &options));
        for (int64_t b = 0; b < 64; b++) {
            ebb_tensor *inputs = NULL, *targets = NULL;
            int64_t n, counted;
            check_ok(ebb_loader_next(loader, &inputs, &targets, &n, &counted));
            if (b % 16 == 0) usleep(2000); /* time for workers to run too far, if they could */
            cr_assert(((float *)ebb_tensor_data(inputs))[0] == (float)b);
        }
        ebb_loader_free(loader);
    }
}

Test(loader, a_slot_that_is_refilled_has_a_new_version)
{
    with_context(ctx) {
        ebb_dataset data = index_data(1, 4);
        ebb_loader *loader = NULL;
        ebb_loader_options options = options_of(2, 0, 0);
        ebb_tensor *inputs = NULL, *targets = NULL;
        int64_t n, counted;
        options.eval = true;
        check_ok(ebb_loader_new(&loader, ctx, &data, &options));
        check_ok(ebb_loader_next(loader, &inputs, &targets, &n, &counted));
        uint32_t before = ebb_storage_version(ebb_tensor_storage(inputs));
        check_ok(ebb_loader_next(loader, &inputs, &targets, &n, &counted));
        cr_assert(ebb_storage_version(ebb_tensor_storage(inputs)) > before);
        ebb_loader_free(loader);
    }
}

Test(loader, the_ring_is_allocated_up_front_and_is_the_same_on_a_dry_device)
{
    static const char *const devices[] = { "cpu", "dry:cpu" };
    ebb_memory_stats stats[2], later;
    for (int d = 0; d < 2; d++) {
        with_device(ctx, devices[d]) {
            ebb_dataset *data = NULL;
            ebb_loader *loader = NULL;
            ebb_loader_options options = options_of(3, 2, 4);
            check_ok(
                ebb_dataset_open(&data, "{\"type\":\"synthetic\",\"items\":10}", true, 128, 50, 1));
            if (d == 0) check_ok(ebb_dataset_load(data));
            check_ok(ebb_loader_new(&loader, ctx, data, &options));
            ebb_memory_stats_get(ctx, &stats[d]);
            for (int64_t b = 0; b < 9; b++) {
                ebb_tensor *inputs = NULL, *targets = NULL;
                int64_t n, counted;
                check_ok(ebb_loader_next(loader, &inputs, &targets, &n, &counted));
                cr_assert(n == (b % 4 == 3 ? 1 : 3) && counted == n * 128);
                cr_assert(ebb_tensor_dim(targets, 0) == n && ebb_tensor_dim(targets, 1) == 128);
                cr_assert(ebb_storage_category(ebb_tensor_storage(inputs)) == EBB_CAT_INPUT);
            }
            ebb_memory_stats_get(ctx, &later);
            cr_assert(later.n_allocs == stats[d].n_allocs);
            ebb_loader_free(loader);
            ebb_dataset_close(data);
        }
    }
    cr_assert(stats[0].by_category[EBB_CAT_INPUT] == 5 * 2 * 1536, "%zu",
              stats[0].by_category[EBB_CAT_INPUT]);
    cr_assert(stats[0].allocated_bytes == stats[1].allocated_bytes &&
              stats[0].n_allocs == stats[1].n_allocs);
}

Test(loader, an_error_in_a_worker_arrives_with_its_message_at_its_batch)
{
    with_context(ctx) {
        ebb_dataset data = index_data(1, 20);
        data.seed = 9;
        for (int workers = 0; workers <= 3; workers += 3) {
            ebb_loader *loader = NULL;
            ebb_loader_options options = options_of(4, workers, 6);
            ebb_tensor *inputs = NULL, *targets = NULL;
            int64_t items[4], n, counted;
            options.eval = true;
            check_ok(ebb_loader_new(&loader, ctx, &data, &options));
            cr_assert(next_items(loader, items) == 4 && next_items(loader, items) == 4);
            for (int i = 0; i < 2; i++) {
                check_fails(ebb_loader_next(loader, &inputs, &targets, &n, &counted), EBB_EIO);
                check_message("item 9 cannot be read");
                cr_assert(n == 0 && ebb_loader_position(loader) == 2);
            }
            ebb_loader_skip(loader, 1);
            cr_assert(next_items(loader, items) == 4 && items[0] == 12);
            ebb_loader_free(loader);
        }
    }
}

Test(loader, loaders_that_are_freed_at_any_moment_join_their_threads)
{
    with_context(ctx) {
        ebb_dataset data = index_data(100, 0);
        ebb_loader_options options = options_of(7, 4, 3);
        for (int taken = 0; taken < 12; taken++) {
            ebb_loader *loader = NULL;
            int64_t items[7];
            check_ok(ebb_loader_new(&loader, ctx, &data, &options));
            for (int i = 0; i < taken; i++) cr_assert(next_items(loader, items) > 0);
            ebb_loader_free(loader);
        }
        ebb_loader_free(NULL);
    }
}

Test(loader, options_out_of_range_are_refused)
{
    with_context(ctx) {
        ebb_dataset data = index_data(4, 0), empty = index_data(0, 0);
        ebb_loader *loader = NULL;
        ebb_loader_options o = options_of(4, 0, 0);
        check_fails(ebb_loader_new(&loader, ctx, &data, NULL), EBB_EINVAL);
        o.batch = 0;
        check_fails(ebb_loader_new(&loader, ctx, &data, &o), EBB_EINVAL);
        o = options_of(4, 65, 0);
        check_fails(ebb_loader_new(&loader, ctx, &data, &o), EBB_EINVAL);
        o = options_of(4, 0, -1);
        check_fails(ebb_loader_new(&loader, ctx, &data, &o), EBB_EINVAL);
        o = options_of(4, 0, 0);
        o.first_batch = -1;
        check_fails(ebb_loader_new(&loader, ctx, &data, &o), EBB_EINVAL);
        o = options_of(4, 0, 0);
        o.dtype = EBB_I32;
        check_fails(ebb_loader_new(&loader, ctx, &data, &o), EBB_EDTYPE);
        o = options_of(4, 0, 0);
        check_fails(ebb_loader_new(&loader, ctx, &empty, &o), EBB_EINVAL);
        data.loaded = false;
        check_fails(ebb_loader_new(&loader, ctx, &data, &o), EBB_ESTATE);
        check_message("ebb_dataset_load");
        data.loaded = true;
        o = options_of(INT64_MAX / 2, 0, 0);
        ebb_status st = ebb_loader_new(&loader, ctx, &data, &o);
        cr_assert(st == EBB_ESHAPE || st == EBB_ENOMEM, "%s", ebb_message());
        cr_assert(loader == NULL);
    }
}

Test(loader, every_failed_allocation_of_new_is_enomem_and_leaks_nothing)
{
    with_context(ctx) {
        ebb_dataset data = index_data(10, 0);
        ebb_loader_options options = options_of(4, 2, 1);
        uint64_t n = 0;
        EBB_LOCAL(warm); /* the pool keeps its own bookkeeping from now on */
        check_ok(ebb_zeros(&warm, ctx, EBB_F32, 0, NULL));
        for (bool fired = true; fired;) {
            ebb_loader *loader = NULL;
            int64_t live = ebb_host_live_blocks();
            ebb_fault_arm(++n);
            ebb_status st = ebb_loader_new(&loader, ctx, &data, &options);
            fired = ebb_fault_fired();
            ebb_fault_arm(0);
            cr_assert(st == (fired ? EBB_ENOMEM : EBB_OK), "%llu: %s", (unsigned long long)n,
                      ebb_message());
            cr_assert(fired == (loader == NULL));
            ebb_loader_free(loader);
            cr_assert(ebb_host_live_blocks() == live, "allocation %llu leaks",
                      (unsigned long long)n);
        }
        cr_assert(n > 15);
    }
}

/* ---- batches that are released ----------------------------------------------------------- */

static size_t allocated(const ebb_context *ctx)
{
    ebb_memory_stats m;
    ebb_memory_stats_get(ctx, &m);
    return m.allocated_bytes;
}

Test(loader, a_released_batch_goes_and_the_next_ones_are_those_that_would_have_come)
{
    for (int workers = 0; workers <= 2; workers++) {
        with_context(ctx) {
            ebb_dataset data = index_data(50, 0);
            ebb_loader *plain = NULL, *released = NULL;
            ebb_loader_options options = options_of(4, workers, 0);
            check_ok(ebb_loader_new(&plain, ctx, &data, &options));
            size_t before = allocated(ctx);
            check_ok(ebb_loader_new(&released, ctx, &data, &options));
            size_t ring = allocated(ctx) - before;
            for (int b = 0; b < 40; b++) {
                int64_t want[4], got[4];
                int64_t n = next_items(plain, want);
                cr_assert(next_items(released, got) == n && memcmp(got, want, (size_t)n * sizeof *got) == 0);
                ebb_loader_release(released);
                ebb_loader_release(released); /* nothing is left to go */
                cr_assert(allocated(ctx) == before && ring > 0);
                if (b % 9 == 5) {
                    ebb_loader_skip(plain, 3);
                    ebb_loader_skip(released, 3);
                }
            }
            ebb_loader_free(plain);
            ebb_loader_free(released);
        }
    }
}

Test(loader, a_released_batch_lives_while_somebody_holds_it)
{
    with_context(ctx) {
        ebb_dataset data = index_data(8, 0);
        ebb_loader *loader = NULL;
        ebb_loader_options options = options_of(4, 1, 0);
        EBB_LOCAL(kept);
        ebb_tensor *inputs = NULL, *targets = NULL;
        int64_t n, counted, items[4];
        check_ok(ebb_loader_new(&loader, ctx, &data, &options));
        check_ok(ebb_loader_next(loader, &inputs, &targets, &n, &counted));
        float first = ((float *)ebb_tensor_data(inputs))[0];
        ebb_bind(&kept, inputs);
        uint32_t version = ebb_storage_version(ebb_tensor_storage(kept));
        ebb_loader_release(loader);
        next_items(loader, items);
        cr_assert(((float *)ebb_tensor_data(kept))[0] == first && (int64_t)first != items[0]);
        cr_assert(ebb_storage_version(ebb_tensor_storage(kept)) == version);
        ebb_loader_free(loader);
    }
}

Test(loader, release_leaves_a_ring_with_prefetch_as_it_is)
{
    with_context(ctx) {
        ebb_dataset data = index_data(50, 0);
        ebb_loader *loader = NULL;
        ebb_loader_options options = options_of(4, 1, 1);
        int64_t items[4];
        check_ok(ebb_loader_new(&loader, ctx, &data, &options));
        size_t ring = allocated(ctx);
        ebb_loader_release(loader); /* before the first batch too */
        next_items(loader, items);
        ebb_loader_release(loader);
        cr_assert(allocated(ctx) == ring);
        ebb_loader_free(loader);
    }
}

Test(loader, a_batch_that_finds_no_memory_can_be_asked_for_again)
{
    with_context(ctx) {
        ebb_dataset data = index_data(50, 0);
        ebb_loader *loader = NULL;
        ebb_loader_options options = options_of(4, 1, 0);
        int64_t items[4], n = 0, failures = 0;
        check_ok(ebb_loader_new(&loader, ctx, &data, &options));
        next_items(loader, items);
        ebb_loader_release(loader);
        size_t empty = allocated(ctx);
        for (bool fired = true; fired; failures++) {
            ebb_tensor *inputs = NULL, *targets = NULL;
            int64_t counted;
            ebb_fault_arm((uint64_t)failures + 1);
            ebb_status st = ebb_loader_next(loader, &inputs, &targets, &n, &counted);
            fired = ebb_fault_fired();
            ebb_fault_arm(0);
            cr_assert(st == (fired ? EBB_ENOMEM : EBB_OK), "%s", ebb_message());
            if (fired) cr_assert(n == 0 && allocated(ctx) == empty);
        }
        cr_assert(failures > 3 && n == 4 && ebb_loader_position(loader) == 2);
        ebb_loader_free(loader);
    }
}
