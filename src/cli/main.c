/* ebb: the command. */
#include <stdlib.h>
#include <string.h>

#include "cli.h"

const cli_command *const cli_commands[] = { &cli_train,     &cli_compare, &cli_estimate,
                                            &cli_plan,      &cli_max_batch, &cli_grads,
                                            &cli_eval,      &cli_gradcheck, &cli_info };
const int cli_n_commands = sizeof(cli_commands) / sizeof(cli_commands[0]);

/* What was printed must have reached its file: a full disk is a failure. */
static int flush(int status)
{
    bool bad = fflush(stdout) != 0 || ferror(stdout);
    if (!bad) return status;
    fprintf(stderr, "ebb: standard output cannot be written\n");
    return status == CLI_DONE ? CLI_FAILED : status;
}

int main(int argc, char **argv)
{
    static cli_args args;
    int status = cli_parse(&args, argc, argv);
    if (status != CLI_DONE) return flush(status);
    if (!args.command) {
        cli_help(stdout);
        return flush(CLI_DONE);
    }
    if (args.help) {
        cli_command_help(stdout, args.command);
        return flush(CLI_DONE);
    }
    return flush(args.command->run(&args));
}
