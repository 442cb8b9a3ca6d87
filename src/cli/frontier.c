/* Peak against time, with the usual settings of memory.checkpoint beside the plans. */
#include <string.h>

#include "cli.h"

static bool same_figures(const ebb_plan_info *a, const ebb_plan_info *b)
{
    return a->peak_reserved_bytes == b->peak_reserved_bytes && a->peak_allocated_bytes == b->peak_allocated_bytes &&
           a->overhead == b->overhead;
}

ebb_status cli_frontier_mark(cli_frontier *f, const char *name, const ebb_config *config,
                             const ebb_train_options *options, bool own)
{
    if (f->n_marks == CLI_FRONTIER_MARKS) return EBB_OK;
    ebb_frontier_mark *mark = &f->marks[f->n_marks];
    ebb_status st = ebb_plan_price(&mark->info, config, f->config, options);
    if (st != EBB_OK) return st;
    for (int i = 0; i < f->n_marks; i++)
        if (same_figures(&f->marks[i].info, &mark->info)) {
            f->marks[i].own |= own; /* one mark there, not two names over one another */
            return EBB_OK;
        }
    snprintf(f->names[f->n_marks], sizeof(f->names[0]), "%s", name);
    mark->name = f->names[f->n_marks++];
    mark->own = own;
    return EBB_OK;
}

/* memory.limit is of a run: a setting beyond it is shown all the same. */
static ebb_status mark_setting(cli_frontier *f, const char *value, const ebb_config *config,
                               const ebb_train_options *options)
{
    char set[64];
    ebb_config *copy = NULL;
    snprintf(set, sizeof(set), "memory.checkpoint=%s", value);
    const char *const sets[] = { set, "memory.limit=null" };
    ebb_status st = ebb_config_copy(&copy, config, sets, 2);
    if (st == EBB_OK) st = cli_frontier_mark(f, value, copy, options, false);
    ebb_config_free(copy);
    return st;
}

ebb_status cli_frontier_make(cli_frontier *f, const ebb_config *config, const ebb_train_options *options,
                             bool allocated)
{
    static const char *const settings[] = { "none", "every:1", "sqrt" };
    *f = (cli_frontier){ .config = config, .allocated = allocated };
    ebb_status st = ebb_plan_frontier(f->plans, CLI_FRONTIER_POINTS, &f->n, config, options, allocated);
    for (int i = 0; i < 3 && st == EBB_OK; i++) st = mark_setting(f, settings[i], config, options);
    return st;
}

ebb_frontier cli_frontier_page(const cli_frontier *f, const char *name)
{
    return (ebb_frontier){ .name = name,
                           .plans = (const ebb_plan *const *)f->plans,
                           .n_plans = f->n,
                           .marks = f->marks,
                           .n_marks = f->n_marks,
                           .allocated = f->allocated };
}

void cli_frontier_free(cli_frontier *f)
{
    for (int i = 0; i < f->n; i++) ebb_plan_free(f->plans[i]);
    f->n = 0;
}
