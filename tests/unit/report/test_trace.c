/* Traced runs: what they hold, and what happens when memory is gone. */
#include <string.h>

#include "report/capture.h"
#include "support/support.h"
#include "trace_rig.h"

Test(trace, stands_alone_after_its_run_and_sums_to_the_peak)
{
    ebb_config *config = rig_config();
    ebb_trace *trace = NULL;
    check_ok(rig_trace(&trace, config, "cpu", 2, 2, 0));
    ebb_config_free(config);
    const ebb_trace_summary *s = ebb_trace_summary_get(trace);
    size_t sum = 0, by_category[EBB_N_CATEGORIES] = { 0 };
    for (size_t i = 0; i < s->n_rows; i++) {
        sum += s->rows[i].bytes;
        by_category[s->rows[i].category] += s->rows[i].bytes;
    }
    cr_assert(sum == s->memory.peak_allocated_bytes, "%zu, peak %zu", sum,
              s->memory.peak_allocated_bytes);
    cr_assert(memcmp(by_category, s->memory.by_category_at_peak, sizeof by_category) == 0);
    cr_assert(strcmp(s->name, "rig") == 0 && strcmp(s->device, "cpu") == 0);
    cr_assert(s->first_step == 2 && s->last_step == 2 && s->n_nodes > 2 && s->n_blocks > 10);
    ebb_trace_free(trace);
    check_no_live_blocks();
}

Test(trace, every_slot_that_is_kept_names_a_block_that_its_backward_releases)
{
    ebb_config *config = rig_config();
    ebb_trace *trace = NULL;
    size_t n_kept = 0;
    check_ok(rig_trace(&trace, config, "dry:cpu", 1, 2, 0));
    cr_assert(trace->n_graphs == 2, "%zu graphs", trace->n_graphs);
    for (size_t i = 0; i < trace->n_slots; i++) {
        const ebb__traced_slot *slot = &trace->slots[i];
        if (slot->state != EBB_SLOT_KEPT) continue;
        cr_assert(slot->block != EBB__NO_BLOCK, "slot %s holds no block", slot->name);
        const ebb__traced_block *block = &trace->blocks[slot->block];
        cr_assert(block->requested == slot->bytes, "%zu, slot %zu", block->requested, slot->bytes);
        n_kept++;
    }
    cr_assert(n_kept > 4, "%zu slots are kept", n_kept);
    ebb_trace_free(trace);
    ebb_config_free(config);
    check_no_live_blocks();
}

Test(trace, refuses_what_it_cannot_tell_whole)
{
    ebb_config *config = rig_config();
    ebb_trace *trace = NULL;
    check_fails(rig_trace(&trace, config, "dry:cpu", 1, 2, 20), EBB_ESTATE);
    check_message("events were dropped");
    check_fails(rig_trace(&trace, config, "dry:cpu", 3, 2, 0), EBB_EINVAL);
    cr_assert(trace == NULL);
    ebb_config_free(config);
    check_no_live_blocks();
}

typedef struct calls {
    int begins, backwards, ends, finals;
} calls;
static ebb_status count_begin(void *user, ebb_context *ctx, int64_t step)
{
    (void)ctx;
    (void)step;
    ((calls *)user)->begins++;
    return EBB_OK;
}
static ebb_status count_backward(void *user, ebb_context *ctx)
{
    cr_assert(ebb_live_nodes(ctx) > 0);
    ((calls *)user)->backwards++;
    return EBB_OK;
}
static ebb_status refuse_second(void *user, ebb_context *ctx, int64_t step)
{
    (void)ctx;
    ((calls *)user)->ends++;
    return step == 2 ? ebb_fail(EBB_ESTATE, "enough") : EBB_OK;
}
static ebb_status count_final(void *user, ebb_context *ctx)
{
    (void)ctx;
    ((calls *)user)->finals++;
    return EBB_OK;
}

Test(trace, an_observer_hears_of_each_step_and_its_error_ends_the_run)
{
    ebb_config *config = rig_config();
    calls n = { 0 };
    ebb_observer observer = { .user = &n,
                              .on_step_begin = count_begin,
                              .on_backward = count_backward,
                              .on_step_end = refuse_second,
                              .on_end = count_final };
    ebb_train_options o = {
        .struct_bytes = sizeof o, .threads = 1, .steps = 3, .observer = &observer
    };
    ebb_train_result result;
    check_fails(ebb_train(&result, config, &o), EBB_ESTATE);
    cr_assert(n.begins == 2 && n.backwards == 2 && n.ends == 2 && n.finals == 0);
    observer.on_step_end = NULL;
    check_ok(ebb_train(&result, config, &o));
    cr_assert(n.begins == 5 && n.backwards == 5 && n.finals == 1);
    ebb_config_free(config);
    check_no_live_blocks();
}

/* The n-th allocation fails while a run is traced and written: it says so, and nothing leaks. */
static ebb_status trace_and_write(const ebb_config *config, const temp_folder *folder)
{
    ebb_trace *trace = NULL;
    ebb_status st = rig_trace(&trace, config, "dry:cpu", 1, 2, 4096);
    const ebb_trace *const traces[] = { trace };
    if (st == EBB_OK) st = ebb_trace_write_snapshot(temp_path(folder, "a.pickle"), trace);
    if (st == EBB_OK) st = ebb_trace_write_perfetto(temp_path(folder, "a.json"), trace);
    if (st == EBB_OK && ebb_page_check() == EBB_OK)
        st = ebb_trace_write_html(temp_path(folder, "a.html"), traces, 1, NULL);
    ebb_trace_free(trace);
    return st;
}

Test(trace, any_allocation_may_fail)
{
    ebb_config *config = rig_config();
    temp_folder folder = temp_folder_make();
    int64_t before = ebb_host_live_blocks();
    bool fired = true;
    for (uint64_t n = 1; fired; n += n < 300 ? 11 : 29) {
        ebb_fault_arm(n);
        ebb_status st = trace_and_write(config, &folder);
        fired = ebb_fault_fired();
        ebb_fault_arm(0);
        cr_assert(st == EBB_OK || (fired && st == EBB_ENOMEM), "allocation %llu: %s",
                  (unsigned long long)n, ebb_status_name(st));
        cr_assert(ebb_host_live_blocks() == before, "allocation %llu leaks", (unsigned long long)n);
    }
    temp_folder_remove(&folder);
    ebb_config_free(config);
}
