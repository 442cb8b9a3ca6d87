#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "cli.h"

#define AT(member) offsetof(cli_args, member)
const cli_option cli_common_options[] = {
    { "--set", "PATH=VALUE", CLI_SET, 0, "changes one value of the config; may be repeated", false },
    { "--device", "NAME", CLI_TEXT, AT(device), "cpu (default), cuda[:N], dry:cpu, dry:cuda[:PROFILE or FILE.json]",
      false },
    { "--threads", "N", CLI_COUNT, AT(threads), "compute threads; default: all cores", false },
    { "--json", NULL, CLI_FLAG, AT(json), "exactly one JSON object on standard output", false },
    { "--quiet", NULL, CLI_FLAG, AT(quiet), "no progress line and no summary", false },
    { "--help", NULL, CLI_FLAG, AT(help), "this text", false },
};
#undef AT
const int cli_n_common_options = sizeof(cli_common_options) / sizeof(cli_common_options[0]);

bool cli_option_applies(const cli_option *o, const cli_command *command)
{
    static const char *const of_config[] = { "--set", "--device", "--threads" };
    for (int i = 0; i < 3; i++)
        if (command->no_config && strcmp(o->name, of_config[i]) == 0) return false;
    return true;
}

/* ---- looking up --------------------------------------------------------------------------- */

static const cli_option *find_in(const cli_option *options, int n, const char *name, size_t length)
{
    for (int i = 0; i < n; i++)
        if (strlen(options[i].name) == length && memcmp(options[i].name, name, length) == 0)
            return &options[i];
    return NULL;
}

static const cli_option *find_option(const cli_args *args, const char *text, size_t length)
{
    const cli_option *o = find_in(cli_common_options, cli_n_common_options, text, length);
    const cli_command *c = args->command;
    return o || !c ? o : find_in(c->options, c->n_options, text, length);
}

static int unknown_option(const cli_args *args, const char *text)
{
    const char *names[64];
    const cli_command *c = args->command;
    int n = 0;
    for (int i = 0; i < cli_n_common_options; i++) names[n++] = cli_common_options[i].name;
    for (int i = 0; c && i < c->n_options; i++) names[n++] = c->options[i].name;
    const char *near = ebb_nearest_word(text, names, n);
    return cli_usage(args, "unknown option \"%s\"%s%s%s", text, near ? "; did you mean \"" : "",
                     near ? near : "", near ? "\"?" : "");
}

static int set_command(cli_args *args, const char *name)
{
    const char *names[32];
    for (int i = 0; i < cli_n_commands; i++) {
        names[i] = cli_commands[i]->name;
        if (strcmp(names[i], name) != 0) continue;
        args->command = cli_commands[i];
        return CLI_DONE;
    }
    const char *near = ebb_nearest_word(name, names, cli_n_commands);
    return cli_usage(args, "unknown command \"%s\"%s%s%s", name, near ? "; did you mean \"" : "",
                     near ? near : "", near ? "\"?" : "");
}

/* ---- values ------------------------------------------------------------------------------- */

static int set_count(cli_args *args, const cli_option *o, const char *text)
{
    char *end = NULL;
    errno = 0;
    long long value = text[0] >= '0' && text[0] <= '9' ? strtoll(text, &end, 10) : 0;
    if (!end || *end != '\0' || errno != 0 || value < 1)
        return cli_usage(args, "%s: \"%s\" is not a whole number from 1", o->name, text);
    *(int64_t *)(void *)((char *)args + o->offset) = value;
    return CLI_DONE;
}

static int set_value(cli_args *args, const cli_option *o, const char *text)
{
    switch (o->kind) {
    case CLI_COUNT: return set_count(args, o, text);
    case CLI_TEXT: *(const char **)(void *)((char *)args + o->offset) = text; return CLI_DONE;
    case CLI_FLAG: *(bool *)(void *)((char *)args + o->offset) = true; return CLI_DONE;
    case CLI_SET: break;
    }
    if (!strchr(text, '='))
        return cli_usage(args, "--set: \"%s\": expected PATH=VALUE, such as train.batch=32", text);
    if (args->n_sets == CLI_MAX_SETS) return cli_usage(args, "--set: more than %d", CLI_MAX_SETS);
    args->sets[args->n_sets++] = text;
    return CLI_DONE;
}

/* "--name value" or "--name=value"; *used is how many arguments it takes. */
static int take_option(cli_args *args, int left, char **argv, int *used)
{
    const char *text = argv[0], *equals = strchr(text, '=');
    size_t length = equals ? (size_t)(equals - text) : strlen(text);
    const cli_option *o = find_option(args, text, length);
    *used = 1;
    if (!o) return unknown_option(args, text);
    if (args->command && !cli_option_applies(o, args->command))
        return cli_usage(args, "%s: ebb %s reads no config, so it would do nothing", o->name, args->command->name);
    if (!o->value) {
        if (equals) return cli_usage(args, "%s takes no value", o->name);
        return set_value(args, o, "");
    }
    if (equals) return set_value(args, o, equals + 1);
    if (left < 2)
        return cli_usage(args, "%s: a value is missing: %s %s", o->name, o->name, o->value);
    *used = 2;
    return set_value(args, o, argv[1]);
}

static int take_operand(cli_args *args, const char *text)
{
    if (!args->command) return set_command(args, text);
    if (args->n_operands == args->command->max_operands)
        return cli_usage(args, "\"%s\" is one argument too many", text);
    args->operands[args->n_operands++] = text;
    return CLI_DONE;
}

/* ---- the line ----------------------------------------------------------------------------- */

static int check_complete(const cli_args *args)
{
    const cli_command *c = args->command;
    if (args->help) return CLI_DONE;
    if (args->n_operands < c->min_operands) return cli_usage(args, "%s is missing", c->operands);
    if (args->threads > 1024) return cli_usage(args, "--threads: at most 1024");
    for (int i = 0; i < c->n_options; i++) {
        const void *at = (const char *)args + c->options[i].offset;
        if (c->options[i].required && !*(const char *const *)at)
            return cli_usage(args, "%s %s is missing", c->options[i].name, c->options[i].value);
    }
    return CLI_DONE;
}

/* The command comes first, so that its options are known wherever they stand; --json before the
 * first error, so that the error is told as JSON. */
static int find_command(cli_args *args, int argc, char **argv)
{
    for (int i = 1; i < argc; i++)
        if (strcmp(argv[i], "--json") == 0) args->json = true;
    for (int i = 1; i < argc; i++) {
        if (argv[i][0] == '-') {
            const cli_option *o = find_option(args, argv[i], strlen(argv[i]));
            if (o && o->value) i++;
            continue;
        }
        return set_command(args, argv[i]);
    }
    return CLI_DONE;
}

int cli_parse(cli_args *args, int argc, char **argv)
{
    bool command_seen = false;
    int status = find_command(args, argc, argv);
    for (int i = 1; i < argc && status == CLI_DONE;) {
        int used = 1;
        if (argv[i][0] == '-' && argv[i][1] != '\0') {
            status = take_option(args, argc - i, argv + i, &used);
        } else if (!command_seen) {
            command_seen = true;
        } else {
            status = take_operand(args, argv[i]);
        }
        i += used;
    }
    if (status == CLI_DONE && !args->command && !args->help)
        return cli_usage(args, "a command is missing");
    return status == CLI_DONE && args->command ? check_complete(args) : status;
}
