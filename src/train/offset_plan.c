/* train/offset_plan.c: one dry run before the run. */
#include "train/offset_plan.h"

#include "alloc/plan.h"
#include "tensor/context.h"

static ebb_status make_plan(ebb__plan **out, const ebb__run *run, const char *device)
{
    char dry[EBB__DEVICE_NAME_BYTES];
    ebb__device_dry_name(dry, device);
    ebb_train_options options = { .struct_bytes = sizeof(options),
                                  .threads = run->options->threads,
                                  .steps = run->steps };
    ebb__run rehearsal = { 0 };
    ebb_status st = ebb__run_open_recorded(&rehearsal, run->config, &options, dry);
    if (st == EBB_OK) st = ebb__train_cut_short(&rehearsal);
    if (st == EBB_OK) st = ebb__plan_from_trace(out, ebb__context_pool(rehearsal.ctx));
    ebb__run_close(&rehearsal);
    return st;
}

bool ebb__offset_plan_wanted(const ebb__run *run) { return run->config->memory.offset_plan || run->ctx->offset_plan; }

ebb_status ebb__offset_plan_follow(ebb__run *run, const char *device)
{
    ebb__plan *plan = NULL;
    if (!ebb__offset_plan_wanted(run)) return EBB_OK;
    EBB_TRY(make_plan(&plan, run, device));
    return ebb__pool_follow_plan(ebb__context_pool(run->ctx), plan);
}
