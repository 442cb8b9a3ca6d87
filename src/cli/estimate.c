#include "cli.h"

static int report(const cli_args *args, const ebb_train_result *r)
{
    char count[32], flops[32];
    if (args->json) {
        cli_json json = cli_json_begin();
        cli_put_memory(&json, NULL, &r->memory);
        cli_put_number(&json, NULL, "flops", r->flops);
        cli_put_number(&json, NULL, "recompute_flops", r->recompute_flops);
        cli_put_number(&json, NULL, "parameters", (double)r->parameters);
        return cli_json_end(&json, args, CLI_DONE);
    }
    if (args->quiet) return CLI_DONE;
    printf("%s parameters; %s floating-point operations per step",
           ebb_count_format((double)r->parameters, count, sizeof(count)),
           ebb_count_format(r->flops, flops, sizeof(flops)));
    if (r->recompute_flops > 0)
        printf(", %s of them recomputed",
               ebb_count_format(r->recompute_flops, flops, sizeof(flops)));
    printf("\n");
    ebb_memory_print(&r->memory, stdout);
    return CLI_DONE;
}

static int run(const cli_args *args)
{
    ebb_config *config = NULL;
    int status = cli_load_config(&config, args);
    if (status != CLI_DONE) return status;
    static ebb_train_result result;
    ebb_train_options options = cli_train_options(args);
    ebb_status st = ebb_estimate(&result, config, &options);
    status = st == EBB_OK ? report(args, &result) : cli_fail(args, st);
    ebb_config_free(config);
    return status;
}

static const cli_option options[] = {
    { "--steps", "N", CLI_COUNT, offsetof(cli_args, steps), "instead of train.steps", false },
};

const cli_command cli_estimate = {
    .name = "estimate",
    .operands = "CONFIG",
    .min_operands = 1,
    .max_operands = 1,
    .summary = "Tells what a run will need, from a dry run; nothing is trained",
    .details = "The training loop runs with kernels that do nothing, so the peak equals the\n"
               "one that `ebb train` measures, to the byte.\n",
    .options = options,
    .n_options = sizeof(options) / sizeof(options[0]),
    .run = run,
};
