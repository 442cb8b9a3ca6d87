/* max-batch: the largest batch that fits, found by dry runs. */
#include <stdlib.h>
#include <string.h>

#include "cli.h"

/* The two differ: where two decimals do not show it, their bytes do. */
static void print_next(size_t peak, size_t next)
{
    char a[32], b[32];
    bool alike = strcmp(ebb_size_format(peak, a, sizeof(a)), ebb_size_format(next, b, sizeof(b))) == 0;
    if (alike) printf("peak %s reserved (%zu bytes); one more: %s (%zu bytes)\n", a, peak, b, next);
    else printf("peak %s reserved; one more: %s\n", a, b);
}

static int report(const cli_args *args, const ebb_max_batch_result *r)
{
    char peak[32];
    if (args->json) {
        cli_json json = cli_json_begin();
        cli_put_number(&json, NULL, "batch", (double)r->batch);
        cli_put_bytes(&json, NULL, "peak_reserved_bytes", r->peak_reserved_bytes);
        if (r->stopped_by == EBB_BATCH_LIMIT)
            cli_put_bytes(&json, NULL, "next_batch_peak_reserved_bytes", r->next_batch_peak_reserved_bytes);
        else
            cli_put_null(&json, NULL, "next_batch_peak_reserved_bytes");
        cli_put_text(&json, NULL, "stopped_by", ebb_batch_stop_text(r->stopped_by));
        return cli_json_end(&json, args, CLI_DONE);
    }
    if (args->quiet) return CLI_DONE;
    printf("batch %lld: ", (long long)r->batch);
    if (r->stopped_by == EBB_BATCH_LIMIT)
        print_next(r->peak_reserved_bytes, r->next_batch_peak_reserved_bytes);
    else
        printf("peak %s reserved; what stops it is %s\n", ebb_size_format(r->peak_reserved_bytes, peak, sizeof(peak)),
               ebb_batch_stop_text(r->stopped_by));
    return CLI_DONE;
}

static bool is_accelerator(const char *device)
{
    return device && strcmp(device, "cpu") != 0 && strcmp(device, "dry:cpu") != 0;
}

static int run(const cli_args *args)
{
    size_t limit = 0;
    if (args->limit && ebb_size_parse(&limit, args->limit) != EBB_OK)
        return cli_usage(args, "--limit: %s", ebb_message());
    if (!args->limit && !is_accelerator(args->device))
        return cli_usage(args, "max-batch: --limit SIZE is needed; only an accelerator has a memory of its own");
    ebb_config *config = NULL;
    int status = cli_load_config(&config, args);
    if (status != CLI_DONE) return status;
    ebb_max_batch_result result;
    ebb_train_options options = cli_train_options(args);
    ebb_status st = ebb_max_batch(&result, config, &options, limit);
    status = st == EBB_OK ? report(args, &result) : cli_fail(args, st);
    ebb_config_free(config);
    return status;
}

static const cli_option options[] = {
    { "--limit", "SIZE", CLI_TEXT, offsetof(cli_args, limit),
      "of the peak of reserved bytes; default: an accelerator's memory", false },
};

const cli_command cli_max_batch = {
    .name = "max-batch",
    .operands = "CONFIG",
    .min_operands = 1,
    .max_operands = 1,
    .summary = "Finds the largest batch whose peak fits a limit, by dry runs",
    .details = "",
    .options = options,
    .n_options = sizeof(options) / sizeof(options[0]),
    .run = run,
};
