/* Progress, and Ctrl-C. */
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "cli.h"

static volatile sig_atomic_t interrupted;

static void on_interrupt(int signal_number)
{
    interrupted = 1;
    signal(signal_number, SIG_DFL); /* a second one ends the process at once */
}

bool cli_interrupted(void) { return interrupted != 0; }

static bool stop(void *user)
{
    (void)user;
    return interrupted != 0;
}

static void show(void *user, const ebb_progress *progress) { ebb_progress_show(user, progress); }

static bool wants_progress(const cli_args *args)
{
    const char *forced = getenv("EBB_PROGRESS");
    if (args->quiet) return false;
    if (forced && *forced) return strcmp(forced, "0") != 0;
    return isatty(STDERR_FILENO) != 0;
}

void cli_watch(ebb_train_options *options, const cli_args *args, ebb_progress_line *line)
{
    *line = (ebb_progress_line){ .file = wants_progress(args) ? stderr : NULL };
    options->on_progress = show;
    options->user = line;
    options->stop = stop;
    signal(SIGINT, on_interrupt);
}
