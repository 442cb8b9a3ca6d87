/* ebb: the command. */
#include <stdlib.h>
#include <unistd.h>

#include "cli.h"

const cli_command *const cli_commands[] = { &cli_train, &cli_compare,   &cli_estimate, &cli_plan,
                                            &cli_max_batch, &cli_trace, &cli_grads,    &cli_eval,
                                            &cli_sample, &cli_lesson, &cli_gradcheck, &cli_info };
const int cli_n_commands = sizeof(cli_commands) / sizeof(cli_commands[0]);

#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
#define SANITIZED 1
#elif defined(__has_feature)
#if __has_feature(address_sanitizer) || __has_feature(thread_sanitizer)
#define SANITIZED 1
#endif
#endif
#ifndef SANITIZED
#define SANITIZED 0
#endif

/* What was printed must have reached its file: a full disk is a failure. */
static int flush(int status)
{
    bool bad = fflush(stdout) != 0 || ferror(stdout);
    if (!bad) return status;
    fprintf(stderr, "ebb: standard output cannot be written\n");
    return status == CLI_DONE ? CLI_FAILED : status;
}

/* Past the libraries' exit handlers: OpenBLAS's waits for ever for threads that it could not start
 * (RLIMIT_AS, RLIMIT_NPROC).  Sanitizers look for leaks in a handler of theirs. */
static _Noreturn void leave(int status)
{
    status = flush(status);
    fflush(NULL);
    if (SANITIZED) exit(status);
    _exit(status);
}

static int run(const cli_args *args)
{
    if (!args->command)
        cli_help(stdout);
    else if (args->help)
        cli_command_help(stdout, args->command);
    else
        return args->command->run(args);
    return CLI_DONE;
}

int main(int argc, char **argv)
{
    static cli_args args;
    int status = cli_parse(&args, argc, argv);
    leave(status == CLI_DONE ? run(&args) : status);
}
