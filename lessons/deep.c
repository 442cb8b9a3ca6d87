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

static ebb_status estimate(ebb_train_result *result, const char *set)
{
    const ebb_train_options options = { .struct_bytes = sizeof(options), .threads = 1 };
    ebb_config *config = NULL;
    EBB_TRY(ebb_config_parse(&config, gpt72, &set, 1));
    ebb_status st = ebb_estimate(result, config, &options);
    ebb_config_free(config);
    return st;
}

LESSON(deep, "72 layers: far below 18 of 32 GB, at about the same price")
{
    static const char *const sets[] = { "memory.checkpoint=none", "memory.checkpoint=sqrt",
                                        "memory.checkpoint=every:1",
                                        "memory.recompute=[\"gelu\", \"layernorm\"]" };
    static ebb_train_result none, r;
    double best = 1, flops = 0;
    STEP(estimate(&none, sets[0]));
    const double base = (double)none.memory.peak_allocated_bytes;
    TITLES("config", ">peak", ">of none", ">FLOPs more");
    for (int i = 0; i < 4; i++) {
        STEP(estimate(&r, sets[i]));
        const double part = (double)r.memory.peak_allocated_bytes / base;
        ROW(sets[i] + 7, size(r.memory.peak_allocated_bytes), percent(part, 1),
            percent(r.recompute_flops, none.flops));
        if (part < best) { best = part; flops = r.recompute_flops / none.flops; }
    }
    END_TABLE();
    CHECK(base > 29.8e9 && base < 34.4e9, "As it is: %s.", size(none.memory.peak_allocated_bytes));
    CHECK(best < 18.0 / 32, "18 of 32 GB are %s. One segment per layer needs %s, for %s more FLOPs.",
          percent(18, 32), percent(best, 1), percent(flops, 1));
    SAY("Between those, `ebb plan --budget` finds the fastest mixture that fits: docs/planning.md.");
    return EBB_OK;
}
