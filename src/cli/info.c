#include "cli.h"

static int calibrate(const cli_args *args)
{
    ebb_calibration c;
    ebb_config *config = NULL;
    int status = args->n_operands ? cli_load_config(&config, args) : CLI_DONE;
    if (status != CLI_DONE) return status;
    ebb_train_options options = cli_train_options(args);
    ebb_status st = ebb_calibrate(&c, config, &options);
    ebb_config_free(config);
    if (st != EBB_OK) return cli_fail(args, st);
    if (args->json) {
        cli_json json = cli_json_begin();
        cli_put_text(&json, NULL, "calibration", c.path);
        cli_put_number(&json, NULL, "threads", c.threads);
        cli_put_number(&json, NULL, "ops", c.n_ops);
        cli_put_number(&json, NULL, "gemm_gflops", c.gemm_gflops);
        cli_put_number(&json, NULL, "bandwidth_gb_s", c.bandwidth_gb_s);
        cli_put_number(&json, NULL, "copy_gb_s", c.copy_gb_s);
        return cli_json_end(&json, args, CLI_DONE);
    }
    if (!args->quiet)
        printf("%s: %d ops on %d threads; gemm %.1f GFLOP/s, add %.1f GB/s, offload %.1f GB/s\n", c.path, c.n_ops, c.threads,
               c.gemm_gflops, c.bandwidth_gb_s, c.copy_gb_s);
    return CLI_DONE;
}

static int run(const cli_args *args)
{
    if (args->calibrate) return calibrate(args);
    if (args->n_operands) return cli_usage(args, "info: a config goes with --calibrate");
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

static const cli_option options[] = {
    { "--calibrate", NULL, CLI_FLAG, offsetof(cli_args, calibrate), "measure how long ops take, for ebb plan", false },
};

const cli_command cli_info = {
    .name = "info",
    .operands = "[CONFIG]",
    .min_operands = 0,
    .max_operands = 1,
    .summary = "Tells version, devices, libraries and threads",
    .details = "--calibrate trains a few steps of small models, or of CONFIG, and writes what every op\n"
               "took, as it is and made again, to $EBB_CALIBRATION, else to ebb/calibration.json in $XDG_CACHE_HOME or ~/.cache.\n",
    .options = options,
    .n_options = sizeof(options) / sizeof(options[0]),
    .run = run,
};
