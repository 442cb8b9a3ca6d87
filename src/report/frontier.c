/* report/frontier.c: peak against time, for a page of its own or a part of another. */
#include <stdlib.h>

#include "checkpoint/plan.h"
#include "report/page.h"

static void write_figures(ebb__out *out, const ebb_plan_info *info)
{
    ebb__out_printf(out, "\"reserved\":%zu,\"allocated\":%zu,\"host\":%zu,\"overhead\":%.9g,\"recompute_flops\":%.9g",
                    info->peak_reserved_bytes, info->peak_allocated_bytes, info->peak_host_bytes, info->overhead,
                    info->recompute_flops);
}

/* "plan" is what stands in a plan's file. */
static void write_point(ebb__out *out, const ebb_plan *plan)
{
    char *words = ebb_plan_describe(plan), *text = ebb_plan_print(plan);
    if (!words || !text) {
        if (out->status == EBB_OK) out->status = ebb_fail(EBB_ENOMEM, "frontier: no memory for a plan's text");
    } else {
        ebb__out_text(out, "{");
        write_figures(out, &plan->info);
        ebb__out_text(out, ",\"words\":");
        ebb__out_json(out, words);
        ebb__out_text(out, ",\"plan\":");
        ebb__out_text(out, text);
        ebb__out_text(out, "}");
    }
    free(words);
    free(text);
}

static void write_mark(ebb__out *out, const ebb_frontier_mark *mark)
{
    ebb__out_text(out, "{\"name\":");
    ebb__out_json(out, mark->name);
    ebb__out_printf(out, ",\"own\":%s,", mark->own ? "true" : "false");
    write_figures(out, &mark->info);
    ebb__out_text(out, "}");
}

void ebb__page_frontier(ebb__out *out, const ebb_frontier *f)
{
    if (!f) return;
    ebb__out_text(out, ",\n\"frontier\":{\"name\":");
    ebb__out_json(out, f->name);
    ebb__out_printf(out, ",\"peak\":\"%s\",\"blocks\":%d,\"points\":[\n", f->allocated ? "allocated" : "reserved",
                    f->plans[0]->n_blocks);
    for (int i = 0; i < f->n_plans; i++) {
        if (i) ebb__out_text(out, ",\n");
        write_point(out, f->plans[i]);
    }
    ebb__out_text(out, "],\n\"marks\":[");
    for (int i = 0; i < f->n_marks; i++) {
        if (i) ebb__out_text(out, ",\n");
        write_mark(out, &f->marks[i]);
    }
    ebb__out_text(out, "]}");
}

ebb_status ebb_frontier_write_html(const char *path, const ebb_frontier *frontier)
{
    if (frontier->n_plans < 1) return ebb_fail(EBB_EINVAL, "frontier page: no plan");
    EBB_TRY(ebb_page_check());
    ebb__out out = ebb__out_begin(path);
    ebb__page_begin(&out, "ebb frontier", &ebb__page_plan_body);
    ebb__page_frontier(&out, frontier);
    ebb__page_end(&out, &ebb__page_plan_js);
    return ebb__out_end(&out);
}
