#include "cli.h"

static int report(const cli_args *args, const ebb_train_result *r)
{
    if (args->json) {
        cli_json json = cli_json_begin();
        cli_put_text(&json, NULL, "device", r->device);
        cli_put_number(&json, NULL, "threads", r->threads);
        bool computed = !cli_is_dry(r);
        cli_put_known(&json, NULL, "eval_loss", r->eval_loss, computed);
        if (r->has_accuracy)
            cli_put_known(&json, NULL, "eval_accuracy", r->eval_accuracy, computed);
        cli_put_memory(&json, NULL, &r->memory);
        cli_put_text(&json, NULL, "run_dir", r->run_dir);
        return cli_json_end(&json, args, CLI_DONE);
    }
    if (args->quiet) return CLI_DONE;
    if (cli_is_dry(r)) {
        ebb_memory_print(&r->memory, stdout);
        return CLI_DONE;
    }
    printf("evaluation loss %.4f\n", r->eval_loss);
    if (r->has_accuracy) printf("accuracy %.2f %%\n", 100 * r->eval_accuracy);
    return CLI_DONE;
}

static int run(const cli_args *args)
{
    static ebb_train_result result;
    ebb_progress_line line;
    ebb_train_options options = cli_train_options(args);
    options.sets = args->sets;
    options.n_sets = args->n_sets;
    cli_watch(&options, args, &line);
    ebb_status st = ebb_evaluate(&result, args->operands[0], &options);
    ebb_progress_clear(&line);
    return st == EBB_OK ? report(args, &result) : cli_fail(args, st);
}

const cli_command cli_eval = {
    .name = "eval",
    .operands = "RUN",
    .min_operands = 1,
    .max_operands = 1,
    .summary = "Evaluates a run folder's weights on its evaluation data",
    .details = "Means are over all items of the split, whatever the batches' sizes.\n",
    .run = run,
};
