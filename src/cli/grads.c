#include <string.h>

#include "cli.h"

/* The values that an op refuses come from the batch file: it is named where an op's message is. */
static int fail(const cli_args *args, ebb_status st, const ebb_config *config)
{
    char name[32];
    snprintf(name, sizeof(name), "%.*s", (int)strcspn(ebb_message(), ":"), ebb_message());
    return ebb_op_find(name) ? cli_fail_about(args, st, args->batch) : cli_fail_run(args, st, config);
}

static int run(const cli_args *args)
{
    ebb_config *config = NULL;
    if (cli_check_writable(args, args->out) != CLI_DONE) return CLI_USAGE;
    int status = cli_load_config(&config, args);
    if (status != CLI_DONE) return status;
    double loss = 0;
    size_t peak = 0;
    ebb_train_options options = cli_train_options(args);
    options.out_dir = NULL; /* --out names a file here */
    ebb_status st =
        ebb_grads(&loss, &peak, config, &options, args->weights, args->batch, args->out);
    if (st != EBB_OK) status = fail(args, st, config);
    ebb_config_free(config);
    if (st != EBB_OK) return status;
    if (args->json) {
        cli_json json = cli_json_begin();
        cli_put_number(&json, NULL, "loss", loss);
        cli_put_bytes(&json, NULL, "peak_allocated_bytes", peak);
        return cli_json_end(&json, args, CLI_DONE);
    }
    char text[32];
    if (!args->quiet)
        printf("loss %.9g, peak %s; gradients in %s\n", loss,
               ebb_size_format(peak, text, sizeof(text)), args->out);
    return CLI_DONE;
}

static const cli_option options[] = {
    { "--weights", "FILE", CLI_TEXT, offsetof(cli_args, weights), "parameters (safetensors)",
      true },
    { "--batch", "FILE", CLI_TEXT, offsetof(cli_args, batch),
      "tokens or inputs, and targets (safetensors)", true },
    { "--out", "FILE", CLI_TEXT, offsetof(cli_args, out), "where the gradients go (safetensors)",
      true },
};

const cli_command cli_grads = {
    .name = "grads",
    .operands = "CONFIG",
    .min_operands = 1,
    .max_operands = 1,
    .summary = "Computes the gradients of given weights on a given batch",
    .details = "One forward and backward, dropout off.  The loss is the mean over targets that\n"
               "are not -1.\n",
    .options = options,
    .n_options = sizeof(options) / sizeof(options[0]),
    .run = run,
};
