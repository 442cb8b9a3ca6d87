/* The peak table of a training run, from its dry run's trace. */
#include <string.h>

#include "alloc/peak.h"
#include "allocator_runs.h"
#include "support/support.h"
#include "tensor/context.h"
#include "train/run.h"

static void check_table(const ebb__peak_table *table, const ebb_memory_stats *stats)
{
    size_t by_category[EBB_N_CATEGORIES] = { 0 }, n_saved = 0;
    for (size_t i = 0; i < table->n_rows; i++) {
        const ebb__peak_row *row = &table->rows[i];
        by_category[row->category] += row->bytes;
        cr_assert(i == 0 || row->bytes <= table->rows[i - 1].bytes, "not largest first");
        if (row->category != EBB_CAT_ACTIVATION && row->category != EBB_CAT_RECOMPUTED) continue;
        n_saved++;
        cr_assert(row->freed && row->freed_by_node > 0 && row->freed_by_op &&
                      row->freed_phase == EBB__PHASE_BACKWARD,
                  "%s (%s): nobody frees it", row->op, row->scope ? row->scope : "");
    }
    cr_assert(table->bytes == stats->peak_allocated_bytes);
    cr_assert(memcmp(by_category, stats->by_category_at_peak, sizeof by_category) == 0);
    cr_assert(n_saved > 5);
}

/* Owners of what the trace saw allocated during recomputes. */
static void check_recomputes(const ebb__pool *pool, const char *checkpoint)
{
    ebb__event e;
    size_t n = 0, n_owned = 0;
    for (size_t i = 0; ebb__trace_get(pool, i, &e); i++) {
        if (e.action != EBB__ACT_ALLOC || e.owner.phase != EBB__PHASE_RECOMPUTE) continue;
        n++;
        n_owned += e.owner.segment > 0 && e.owner.op && e.owner.scope;
    }
    cr_assert(n == n_owned && (n > 0) == (strcmp(checkpoint, "none") != 0), "%s: %zu of %zu owned",
              checkpoint, n_owned, n);
}

static void check_run(const char *checkpoint)
{
    ebb_config *config = allocator_config(0, checkpoint, "{}");
    ebb_train_options o = { .struct_bytes = sizeof o, .threads = 2 };
    ebb__run run = { 0 };
    ebb__peak_table table;
    ebb_memory_stats stats;
    check_ok(ebb__run_open_recorded(&run, config, &o, "dry:cpu"));
    check_ok(ebb__train_cut_short(&run));
    check_ok(ebb__peak_table_new(&table, ebb__context_pool(run.ctx)));
    ebb_memory_stats_get(run.ctx, &stats);
    check_table(&table, &stats);
    check_recomputes(ebb__context_pool(run.ctx), checkpoint);
    ebb__peak_table_deinit(&table);
    ebb__run_close(&run);
    ebb_config_free(config);
    check_no_live_blocks();
}

Test(peak_table, it_sums_to_the_peak_by_category_and_backward_frees_all_that_is_saved)
{
    check_run("none");
    check_run("every:1");
}
