/* The notes: a transformer of 72 layers went from 32 GB to 18 GB by checkpointing,
 * for 15 % more time.  The same depth, at a batch that needs 32 GB, as dry runs:
 * nothing is computed and nothing allocated, and the bytes are exact.
 *
 * In PyTorch the peak is known after a step ran:
 *     torch.cuda.max_memory_allocated() */
#include "lesson.h"

static const char *const gpt72 =
    "{\"model\": {\"type\": \"gpt\", \"layers\": 72, \"heads\": 4, \"width\": 128, \"context\": 128, \"vocab\": 256},"
    " \"data\": {\"type\": \"synthetic\", \"kind\": \"tokens\", \"items\": 4096},"
    " \"train\": {\"steps\": 2, \"batch\": 418}}";

static const ebb_train_options dry = { .struct_bytes = sizeof(ebb_train_options), .threads = 1 };

static ebb_status estimate(ebb_train_result *result, const char *set)
{
    ebb_config *config = NULL;
    EBB_TRY(ebb_config_parse(&config, gpt72, &set, 1));
    ebb_status st = ebb_estimate(result, config, &dry);
    ebb_config_free(config);
    return st;
}

/* The fastest way to fit into `budget` bytes. */
static ebb_status plan(ebb_plan_info *info, size_t budget)
{
    ebb_config *config = NULL;
    ebb_plan *made = NULL;
    EBB_TRY(ebb_config_parse(&config, gpt72, NULL, 0));
    ebb_status st = ebb_plan_make(&made, config, &dry, budget, true);
    if (st == EBB_OK) *info = ebb_plan_info_get(made);
    ebb_plan_free(made);
    ebb_config_free(config);
    return st;
}

LESSON(deep, "72 layers: 18 of 32 GB for less than the 15 % of the notes")
{
    static const char *const names[] = { "none", "sqrt", "every:1", "gelu, layernorm again" };
    static ebb_train_result r[4];
    static ebb_plan_info fits;
    STEP(estimate(&r[0], "memory.checkpoint=none"));
    STEP(estimate(&r[1], "memory.checkpoint=sqrt"));
    STEP(estimate(&r[2], "memory.checkpoint=every:1"));
    STEP(estimate(&r[3], "memory.recompute=[\"gelu\", \"layernorm\"]"));
    const size_t base = r[0].memory.peak_allocated_bytes;
    STEP(plan(&fits, base / 32 * 18));
    TITLES("checkpoint", ">peak", ">of none", ">FLOPs more", ">time more");
    for (int i = 0; i < 4; i++)
        ROW(names[i], size(r[i].memory.peak_allocated_bytes), percent((double)r[i].memory.peak_allocated_bytes,
            (double)base), percent(r[i].recompute_flops, r[0].flops), "");
    const double more = fits.recompute_flops / r[0].flops;
    ROW("planned for 18/32", size(fits.peak_allocated_bytes), percent((double)fits.peak_allocated_bytes, (double)base),
        percent(more, 1), percent(fits.overhead, 1));
    END_TABLE();
    CHECK(base > 29.8e9 && base < 34.4e9, "As it is: %s.", size(base));
    CHECK(fits.peak_allocated_bytes <= base / 32 * 18 && fits.overhead < 0.15 && more < 0.15, "The fastest plan that "
          "fits into 18/32 of it makes the cheap things again, %s more FLOPs; by ebb's model of time that is %s more.",
          percent(more, 1), percent(fits.overhead, 1));
    CHECK(r[2].memory.peak_allocated_bytes < base / 10 && r[2].recompute_flops > 0.15 * r[0].flops, "Far less is "
          "possible, at a price: a segment per layer needs %s, for %s more FLOPs.",
          percent((double)r[2].memory.peak_allocated_bytes, (double)base), percent(r[2].recompute_flops, r[0].flops));
    SAY("`ebb plan --frontier` tells all that lies between: docs/planning.md.");
    return EBB_OK;
}
