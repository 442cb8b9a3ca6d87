/* Segments that free nothing: what a user would not see otherwise. */
#include "cli.h"

enum { MOST_SHOWN = sizeof(((cli_warnings *)0)->text) / sizeof(((cli_warnings *)0)->text[0]) };

static void add(void *user, const ebb_segment_report *report)
{
    cli_warnings *w = user;
    if (!report->warning) return;
    if (w->n++ >= MOST_SHOWN) return;
    snprintf(w->text[w->n_shown++], sizeof(w->text[0]), "segment '%s' frees nothing: %s", report->name,
             report->warning);
}

void cli_collect_warnings(ebb_train_options *options, cli_warnings *warnings)
{
    *warnings = (cli_warnings){ .n = 0 };
    options->on_segment = add;
    options->segment_user = warnings;
}

void cli_print_warnings(const cli_warnings *w, const cli_args *args)
{
    if (args->quiet) return;
    for (int i = 0; i < w->n_shown; i++) fprintf(stderr, "ebb: warning: %s\n", w->text[i]);
    if (w->n > w->n_shown) fprintf(stderr, "ebb: warning: and %d more segments\n", w->n - w->n_shown);
}
