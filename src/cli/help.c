#include <string.h>

#include "cli.h"

/* Of `command`; NULL: of all. */
static void print_options(FILE *file, const cli_option *options, int n, const cli_command *command)
{
    for (int i = 0; i < n; i++) {
        char left[64];
        if (command && !cli_option_applies(&options[i], command)) continue;
        snprintf(left, sizeof(left), "%s %s", options[i].name,
                 options[i].value ? options[i].value : "");
        fprintf(file, "  %-22s %s\n", left, options[i].help);
    }
}

void cli_help(FILE *file)
{
    fprintf(
        file,
        "ebb %s: trains models from JSON configs, and knows why each byte of memory is alive.\n\n"
        "usage: ebb COMMAND [OPTIONS]\n\n",
        EBB_VERSION);
    for (int i = 0; i < cli_n_commands; i++) {
        char left[64];
        snprintf(left, sizeof(left), "%s %s", cli_commands[i]->name, cli_commands[i]->operands);
        fprintf(file, "  %-18s %s\n", left, cli_commands[i]->summary);
    }
    fprintf(file, "\nOptions of every command:\n");
    print_options(file, cli_common_options, cli_n_common_options, NULL);
    fprintf(file, "\nExit status: 0 done, 1 failed, 2 wrong usage or config, 3 out of memory.\n"
                  "ebb COMMAND --help tells more.\n");
}

void cli_command_help(FILE *file, const cli_command *command)
{
    fprintf(file, "usage: ebb %s %s [OPTIONS]\n\n%s.\n%s", command->name, command->operands,
            command->summary, command->details);
    if (command->n_options > 0) fprintf(file, "\nOptions:\n");
    print_options(file, command->options, command->n_options, command);
    fprintf(file, "\nOptions of every command:\n");
    print_options(file, cli_common_options, cli_n_common_options, command);
}
