#include <errno.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "cli.h"

/* JSON text is UTF-8: "text" has what is readable, "tokens" every byte. */
static int report_json(const cli_args *args, const char *text, size_t bytes, size_t prompt_bytes)
{
    cli_json json = cli_json_begin();
    char *readable = malloc(3 * bytes + 1);
    if (!readable) json.failed = true;
    cli_put_text(&json, NULL, "text", readable ? ebb_utf8_text(readable, text, bytes) : "");
    free(readable);
    cJSON *tokens = cli_put_array(&json, NULL, "tokens");
    for (size_t i = prompt_bytes; i < bytes; i++)
        if (!cJSON_AddItemToArray(tokens, cJSON_CreateNumber((unsigned char)text[i]))) json.failed = true;
    return cli_json_end(&json, args, CLI_DONE);
}

/* The bytes as they are; a terminal gets a line end. */
static int report(const cli_args *args, const char *text, size_t bytes, size_t prompt_bytes)
{
    if (args->json) return report_json(args, text, bytes, prompt_bytes);
    fwrite(text, 1, bytes, stdout);
    if (isatty(STDOUT_FILENO)) putchar('\n');
    return CLI_DONE;
}

static int read_numbers(const cli_args *args, ebb_sample_options *o)
{
    char *end = NULL;
    if (args->temperature) {
        o->temperature = strtod(args->temperature, &end);
        if (end == args->temperature || *end || !(o->temperature >= 0) || isinf(o->temperature))
            return cli_usage(args, "--temperature: \"%s\" is not a number from 0", args->temperature);
    }
    if (args->seed) {
        errno = 0;
        o->seed = strtoull(args->seed, &end, 10);
        if (args->seed[0] < '0' || args->seed[0] > '9' || *end || errno)
            return cli_usage(args, "--seed: \"%s\" is not a whole number from 0", args->seed);
    }
    return CLI_DONE;
}

static int run(const cli_args *args)
{
    if (args->n_sets > 0)
        return cli_usage(args, "--set: sample takes the run folder's config as it is");
    ebb_sample_options o = { .struct_bytes = sizeof(o), .device = args->device, .threads = (int)args->threads,
                             .prompt = args->prompt, .prompt_bytes = strlen(args->prompt),
                             .tokens = args->tokens ? args->tokens : 200, .temperature = 1, .seed = 1 };
    int status = read_numbers(args, &o);
    if (status != CLI_DONE) return status;
    char *text = malloc(o.prompt_bytes + (size_t)o.tokens);
    if (!text) return cli_fail(args, ebb_fail(EBB_ENOMEM, "sample: no memory for %lld tokens", (long long)o.tokens));
    memcpy(text, o.prompt, o.prompt_bytes);
    ebb_status st = ebb_sample((unsigned char *)text + o.prompt_bytes, args->operands[0], &o);
    status = st == EBB_OK ? report(args, text, o.prompt_bytes + (size_t)o.tokens, o.prompt_bytes)
                          : cli_fail(args, st);
    free(text);
    return status;
}

static const cli_option options[] = {
    { "--prompt", "TEXT", CLI_TEXT, offsetof(cli_args, prompt), "what the text begins with", true },
    { "--tokens", "N", CLI_COUNT, offsetof(cli_args, tokens), "bytes to draw (200)", false },
    { "--temperature", "T", CLI_TEXT, offsetof(cli_args, temperature),
      "divides the logits (1); 0: always the likeliest byte", false },
    { "--seed", "N", CLI_TEXT, offsetof(cli_args, seed), "of the draws (1)", false },
};

const cli_command cli_sample = {
    .name = "sample",
    .operands = "RUN",
    .min_operands = 1,
    .max_operands = 1,
    .summary = "Lets a trained gpt go on from a prompt, byte by byte",
    .details = "Prints the prompt and what follows, byte for byte.  With --json, \"tokens\" are the\n"
               "bytes drawn and \"text\" is the whole, with U+FFFD where it is not UTF-8.\n",
    .options = options,
    .n_options = sizeof(options) / sizeof(options[0]),
    .run = run,
};
