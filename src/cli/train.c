#include <stdlib.h>

#include "cli.h"

/* What is looked at while the context is there: the pool's statistics, as a table to be printed with
 * the rest, and memory.recompute. */
typedef struct summary {
    FILE *file; /* NULL: no table */
    char *text;
    size_t bytes;
    cli_recipes recipes;
    cli_leak leak;
} summary;

static int report(const cli_args *args, const ebb_train_result *result, const cli_segments *segments, cli_leak *leak)
{
    const int good = leak->report.grows ? CLI_FAILED : CLI_DONE;
    if (args->json) {
        cli_json json = cli_json_begin();
        cli_put_result(&json, NULL, result);
        cli_put_segments(&json, NULL, segments, true);
        cli_put_leak(&json, leak);
        return cli_json_end(&json, args, good);
    }
    if (!args->quiet) cli_print_result(result, stdout);
    if (leak->text && (!args->quiet || leak->report.grows)) fputs(leak->text, stdout);
    bool table = args->segments && !args->quiet;
    ebb_status st = table ? cli_print_segments(segments, true) : EBB_OK;
    return st == EBB_OK ? good : cli_fail(args, st);
}

static ebb_status on_step_begin(void *user, ebb_context *ctx, int64_t step)
{
    summary *s = user;
    (void)step;
    return cli_leak_begin(&s->leak, ctx);
}

static ebb_status on_step_end(void *user, ebb_context *ctx, int64_t step)
{
    summary *s = user;
    (void)ctx;
    (void)step;
    cli_leak_step(&s->leak);
    return EBB_OK;
}

static ebb_status on_backward(void *user, ebb_context *ctx)
{
    summary *s = user;
    cli_recipes_look(&s->recipes, ctx);
    return EBB_OK;
}

static ebb_status on_end(void *user, ebb_context *ctx)
{
    summary *s = user;
    if (s->file) ebb_memory_summary_print(ctx, s->file);
    cli_recipes_count(&s->recipes, ctx);
    cli_leak_end(&s->leak);
    return EBB_OK;
}

static void print_summary(summary *s, const cli_args *args)
{
    if (!s->file) return;
    fclose(s->file);
    if (s->text) fputs(s->text, args->json ? stderr : stdout);
    free(s->text);
}

static int run(const cli_args *args)
{
    ebb_config *config = NULL;
    int status = cli_load_config(&config, args);
    if (status != CLI_DONE) return status;
    static ebb_train_result result;
    ebb_progress_line line;
    ebb_train_options options = cli_train_options(args);
    cli_segments segments;
    static summary table;
    table.leak = (cli_leak){ .on = args->leak_check, .line = &line };
    if (args->memory_summary) table.file = open_memstream(&table.text, &table.bytes);
    ebb_observer observer = { .user = &table, .on_backward = on_backward, .on_end = on_end };
    if (args->leak_check) {
        observer.on_step_begin = on_step_begin;
        observer.on_step_end = on_step_end;
    }
    options.observer = &observer;
    cli_recipes_begin(&table.recipes, config);
    cli_watch(&options, args, &line);
    cli_segments_collect(&options, &segments);
    ebb_status st = ebb_train(&result, config, &options);
    ebb_progress_clear(&line);
    cli_segments_warn(&segments, args);
    status = st == EBB_OK ? report(args, &result, &segments, &table.leak) : cli_fail_run(args, st, config);
    cli_recipes_end(&table.recipes, st == EBB_OK);
    print_summary(&table, args);
    cli_segments_free(&segments);
    cli_leak_free(&table.leak);
    ebb_config_free(config);
    return status;
}

static const cli_option options[] = {
    { "--steps", "N", CLI_COUNT, offsetof(cli_args, steps), "instead of train.steps", false },
    { "--out", "DIR", CLI_TEXT, offsetof(cli_args, out),
      "run folder: config, weights, optimizer, metrics", false },
    { "--resume", "DIR", CLI_TEXT, offsetof(cli_args, resume),
      "goes on from a run folder, in it unless --out is given", false },
    { "--check-recompute", NULL, CLI_FLAG, offsetof(cli_args, check_recompute),
      "compares what is recomputed with the first run, bit by bit", false },
    { "--segments", NULL, CLI_FLAG, offsetof(cli_args, segments),
      "also a table of what each checkpoint segment promised, freed and cost", false },
    { "--leak-check", NULL, CLI_FLAG, offsetof(cli_args, leak_check),
      "reports what steps leave behind, and who holds it; exit status 1 where it grows", false },
    { "--memory-summary", NULL, CLI_FLAG, offsetof(cli_args, memory_summary),
      "prints the pool's statistics at the end", false },
};

const cli_command cli_train = {
    .name = "train",
    .operands = "CONFIG",
    .min_operands = 1,
    .max_operands = 1,
    .summary = "Trains a model from a JSON config",
    .details = "Prints losses, speed, and what memory was used for at the peak.  Ctrl-C ends\n"
               "after the step that runs, with evaluation and saving.\n",
    .options = options,
    .n_options = sizeof(options) / sizeof(options[0]),
    .run = run,
};
