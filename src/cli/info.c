#include "cli.h"

static int run(const cli_args *args)
{
    static const char *const devices[] = { "cpu", "dry:cpu" };
    ebb_build_info b = ebb_build_info_get();
    int threads = args->threads > 0 ? (int)args->threads : b.cores;
    if (args->json) {
        cli_json json = cli_json_begin();
        cli_put_text(&json, NULL, "version", b.version);
        cJSON *list = cli_put_array(&json, NULL, "devices");
        for (int i = 0; i < 2; i++) {
            cJSON *name = cJSON_CreateString(devices[i]);
            if (!name || !cJSON_AddItemToArray(list, name)) json.failed = true;
        }
        cli_put_number(&json, NULL, "threads", threads);
        cli_put_number(&json, NULL, "cores", b.cores);
        cli_put_text(&json, NULL, "blas", b.blas);
        cli_put_text(&json, NULL, "compiler", b.compiler);
        cli_put_number(&json, NULL, "checks", b.checks);
        cli_put_number(&json, NULL, "ops", b.n_ops);
        return cli_json_end(&json, args, CLI_DONE);
    }
    printf("ebb       %s\ndevices   cpu, dry:cpu\nthreads   %d (of %d cores)\nblas      "
           "%s\ncompiler  %s\n"
           "checks    level %d\nops       %d\n",
           b.version, threads, b.cores, b.blas, b.compiler, b.checks, b.n_ops);
    return CLI_DONE;
}

const cli_command cli_info = {
    .name = "info",
    .operands = "",
    .min_operands = 0,
    .max_operands = 0,
    .summary = "Tells version, devices, libraries and threads",
    .details = "",
    .run = run,
};
