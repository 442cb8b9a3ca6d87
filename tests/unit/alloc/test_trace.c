/* The ring of events, and the table of the peak that is read from it. */
#include <stdio.h>
#include <string.h>

#include "alloc/peak.h"
#include "pool_rig.h"

/* The actions of all kept events as words. */
static const char *actions(const pool_rig *rig, char *buf, size_t bytes)
{
    ebb__event e;
    buf[0] = '\0';
    for (size_t i = 0; ebb__trace_get(rig->pool, i, &e); i++) {
        size_t used = strlen(buf);
        snprintf(buf + used, bytes - used, "%s%s", i ? " " : "", ebb__action_name(e.action));
    }
    return buf;
}

static ebb__event event_at(const pool_rig *rig, size_t i)
{
    ebb__event e;
    cr_assert(ebb__trace_get(rig->pool, i, &e), "there is no event %zu", i);
    return e;
}

Test(trace, events_carry_place_sizes_owner_and_time)
{
    pool_rig rig;
    char buf[512];
    rig_init(&rig, RIG_DRY, 0, 3);
    check_ok(ebb__trace_start(rig.pool, 100));
    ebb__block *a = rig_take_as(&rig, 1000, EBB_CAT_ACTIVATION, "gelu");
    ebb__block_set_category(rig.pool, a, EBB_CAT_GRADIENT);
    uintptr_t address = (uintptr_t)ebb__block_data(a);
    rig_give(&rig, a);
    ebb__pool_empty_cache(rig.pool);
    cr_assert_str_eq(actions(&rig, buf, sizeof buf),
                     "segment_alloc alloc category free_requested free_completed segment_free");
    ebb__event e = event_at(&rig, 1);
    cr_assert(e.segment == 1 && e.offset == 0 && e.address == address && e.bytes == 1024 &&
              e.requested == 1000);
    cr_assert(e.owner.category == EBB_CAT_ACTIVATION && strcmp(e.owner.op, "gelu") == 0 &&
              e.stream == 0);
    cr_assert(event_at(&rig, 2).owner.category == EBB_CAT_GRADIENT);
    cr_assert(event_at(&rig, 0).bytes == 2 * MIB && event_at(&rig, 5).bytes == 2 * MIB);
    for (size_t i = 1; i < 6; i++)
        cr_assert(event_at(&rig, i).time_ns >= event_at(&rig, i - 1).time_ns);
    ebb__trace_stop(rig.pool);
    rig_end(&rig);
}

Test(trace, what_is_there_already_comes_first)
{
    pool_rig rig;
    char buf[512];
    rig_init(&rig, RIG_DRY, 0, 3);
    ebb__block *a = rig_take(&rig, 1000);
    check_ok(ebb__trace_start(rig.pool, 100));
    check_fails(ebb__trace_start(rig.pool, 100), EBB_ESTATE);
    rig_give(&rig, a);
    cr_assert_str_eq(actions(&rig, buf, sizeof buf),
                     "segment_alloc alloc free_requested free_completed");
    rig_end(&rig); /* a trace that runs ends with its pool */
}

Test(trace, a_full_ring_forgets_the_oldest_events_and_counts_them)
{
    pool_rig rig;
    uint64_t dropped;
    rig_init(&rig, RIG_DRY, 0, 3);
    check_ok(ebb__trace_start(rig.pool, 10));
    for (size_t i = 0; i < 8; i++) rig_give(&rig, rig_take(&rig, 512 * (i + 1)));
    cr_assert(ebb__trace_count(rig.pool, &dropped) == 10 && dropped == 1 + 3 * 8 - 10);
    cr_assert(event_at(&rig, 9).action == EBB__ACT_FREE_COMPLETED &&
              event_at(&rig, 9).bytes == 8 * 512);
    ebb__event e;
    cr_assert_not(ebb__trace_get(rig.pool, 10, &e));
    ebb__peak_table table;
    check_fails(ebb__peak_table_new(&table, rig.pool), EBB_ESTATE);
    check_message("15 events were dropped");
    rig_end(&rig);
}

Test(trace, failures_and_moved_pages_are_events)
{
    pool_rig rig;
    char buf[512];
    ebb__block *none = NULL;
    rig_init_conf(&rig, RIG_DRY, 8 * MIB, 3, "expandable_segments:True");
    check_ok(ebb__trace_start(rig.pool, 100));
    ebb__block *a = rig_take(&rig, 4 * MIB), *b = rig_take(&rig, 2 * MIB);
    rig_give(&rig, a);
    check_fails(ebb__pool_alloc(rig.pool, &none, 9 * MIB, 0, NULL), EBB_ENOMEM);
    actions(&rig, buf, sizeof buf);
    cr_assert(strstr(buf, "segment_unmap segment_map") && strstr(buf, "oom"), "%s", buf);
    rig_give(&rig, b);
    rig_end(&rig);
}

static void mark(pool_rig *rig, ebb__action action, ebb__phase phase, const char *op, uint64_t node)
{
    ebb__trace_mark(rig->pool, action, &(ebb__owner){ .phase = phase, .op = op, .node = node });
}

Test(trace, the_peak_table_says_what_was_alive_and_who_frees_it)
{
    pool_rig rig;
    ebb__peak_table table;
    rig_init(&rig, RIG_DRY, 0, 3);
    ebb__block *weight = rig_take_as(&rig, 2048, EBB_CAT_PARAMETER, NULL);
    check_ok(ebb__trace_start(rig.pool, 1000));
    mark(&rig, EBB__ACT_PHASE, EBB__PHASE_FORWARD, NULL, 0);
    ebb__block *x = rig_take_as(&rig, 4096, EBB_CAT_TEMPORARY, "linear");
    ebb__block *y = rig_take_as(&rig, 8192, EBB_CAT_TEMPORARY, "gelu");
    ebb__block_set_category(rig.pool, x, EBB_CAT_ACTIVATION);
    rig_give(&rig, rig_take_as(&rig, 512, EBB_CAT_WORKSPACE, "gelu"));
    ebb__block *z = rig_take_as(&rig, 8192, EBB_CAT_TEMPORARY, "gelu"); /* the peak */
    ebb__block_set_category(rig.pool, z,
                            EBB_CAT_ACTIVATION); /* after it: the table says temporary */
    mark(&rig, EBB__ACT_PHASE, EBB__PHASE_BACKWARD, NULL, 0);
    mark(&rig, EBB__ACT_NODE, EBB__PHASE_BACKWARD, "gelu", 7);
    rig_give(&rig, z);
    rig_give(&rig, y);
    mark(&rig, EBB__ACT_NODE, EBB__PHASE_BACKWARD, "linear", 3);
    rig_give(&rig, x);
    check_ok(ebb__peak_table_new(&table, rig.pool));
    cr_assert(table.bytes == 2048 + 4096 + 2 * 8192 &&
              table.bytes == rig_stats(&rig).peak_allocated_bytes);
    cr_assert(table.n_rows == 3);
    const ebb__peak_row *row = table.rows;
    cr_assert(row[0].category == EBB_CAT_TEMPORARY && row[0].bytes == 16384 &&
              row[0].n_blocks == 2);
    cr_assert(row[0].freed && row[0].freed_by_node == 7 && strcmp(row[0].freed_by_op, "gelu") == 0);
    cr_assert(row[1].category == EBB_CAT_ACTIVATION && row[1].bytes == 4096 &&
              row[1].freed_by_node == 3);
    cr_assert(row[1].freed_phase == EBB__PHASE_BACKWARD);
    cr_assert(row[2].category == EBB_CAT_PARAMETER && row[2].bytes == 2048 && !row[2].freed);
    size_t sum = 0;
    for (size_t i = 0; i < table.n_rows; i++) sum += row[i].bytes;
    cr_assert(sum == table.bytes);
    ebb__peak_table_deinit(&table);
    rig_give(&rig, weight);
    rig_end(&rig);
}

Test(trace, a_table_that_finds_no_memory_leaves_nothing_behind)
{
    pool_rig rig;
    rig_init(&rig, RIG_DRY, 0, 1);
    check_ok(ebb__trace_start(rig.pool, 100));
    ebb__block *a = rig_take(&rig, 1000);
    int64_t before = ebb_host_live_blocks();
    ebb_status status = EBB_ENOMEM;
    for (uint64_t n = 1; status != EBB_OK && n < 20; n++) {
        ebb__peak_table table;
        ebb_fault_arm(n);
        status = ebb__peak_table_new(&table, rig.pool);
        ebb_fault_arm(0);
        if (status == EBB_OK) ebb__peak_table_deinit(&table);
        cr_assert(ebb_host_live_blocks() == before);
    }
    check_ok(status);
    rig_give(&rig, a);
    rig_end(&rig);
}
