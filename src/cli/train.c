#include "cli.h"

static int report(const cli_args *args, const ebb_train_result *result)
{
    if (args->json) {
        cli_json json = cli_json_begin();
        cli_put_result(&json, NULL, result);
        return cli_json_end(&json, args, CLI_DONE);
    }
    if (!args->quiet) cli_print_result(result, stdout);
    return CLI_DONE;
}

static int run(const cli_args *args)
{
    ebb_config *config = NULL;
    int status = cli_load_config(&config, args);
    if (status != CLI_DONE) return status;
    static ebb_train_result result;
    ebb_progress_line line;
    ebb_train_options options = cli_train_options(args);
    cli_warnings warnings;
    cli_watch(&options, args, &line);
    cli_collect_warnings(&options, &warnings);
    ebb_status st = ebb_train(&result, config, &options);
    ebb_progress_clear(&line);
    cli_print_warnings(&warnings, args);
    status = st == EBB_OK ? report(args, &result) : cli_fail(args, st);
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
