/* info: what this ebb is, which devices there are and what they can; and how fast ops are here. */
#include <string.h>

#include "cli.h"

static int calibrate(const cli_args *args)
{
    ebb_calibration c;
    ebb_config *config = NULL;
    if (args->device && strcmp(args->device, "cpu") != 0)
        return cli_usage(args, "info: --calibrate measures the CPU; --device may only be cpu");
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
        printf("%s: %d ops on %d threads; gemm %.1f GFLOP/s, add %.1f GB/s, offload %.1f GB/s\n", c.path, c.n_ops,
               c.threads, c.gemm_gflops, c.bandwidth_gb_s, c.copy_gb_s);
    return CLI_DONE;
}

/* ---- devices ------------------------------------------------------------------------------ */

static bool is_dry(const ebb_device_info *d) { return strncmp(d->name, "dry:", 4) == 0; }
/* "h100-80gb" of "dry:cuda:h100-80gb"; NULL: it has none. */
static const char *profile_of(const ebb_device_info *d)
{
    const char *colon = is_dry(d) ? strchr(d->name + 4, ':') : NULL;
    return colon ? colon + 1 : NULL;
}
static bool is_accelerator(const ebb_device_info *d) { return d->memory_bytes > 0 || !d->available; }

static void put_devices(cli_json *json)
{
    ebb_device_info d;
    cJSON *names = cli_put_array(json, NULL, "devices"), *accelerators = cli_put_array(json, NULL, "accelerators");
    for (int i = 0; ebb_device_info_get(&d, i); i++) {
        cJSON *name = d.available ? cJSON_CreateString(d.name) : NULL;
        if (d.available && (!name || !cJSON_AddItemToArray(names, name))) json->failed = true;
        if (!is_accelerator(&d)) continue;
        cJSON *one = cli_add_object(json, accelerators);
        cli_put_text(json, one, "name", d.name);
        cli_put_bool(json, one, "available", d.available);
        cli_put_text(json, one, "reason", d.available ? NULL : d.reason);
        cli_put_text(json, one, "description", d.available ? d.description : NULL);
        cli_put_bytes(json, one, "memory_bytes", d.memory_bytes);
        cli_put_bytes(json, one, "lent_bytes", d.lent_bytes);
    }
}

/* Whether it is a dry one of that kind, with a profile. */
static bool is_profile_of(const ebb_device_info *d, const char *kind)
{
    size_t n = strlen(kind);
    return profile_of(d) && strncmp(d->name + 4, kind, n) == 0 && d->name[4 + n] == ':';
}

/* A line, or nothing where there are none. */
static void print_profiles(const char *kind)
{
    ebb_device_info d;
    bool any = false;
    for (int i = 0; ebb_device_info_get(&d, i); i++) {
        if (!is_profile_of(&d, kind)) continue;
        if (any) printf(", %s", profile_of(&d));
        else printf("profiles  of dry:%s: %s", kind, profile_of(&d));
        any = true;
    }
    if (any) printf("\n");
}

static void print_devices(void)
{
    ebb_device_info d;
    char size[32];
    const char *before = "devices   ";
    for (int i = 0; ebb_device_info_get(&d, i); i++) {
        if (!d.available || profile_of(&d)) continue;
        printf("%s%s", before, d.name);
        before = ", ";
    }
    for (int k = 1; ebb_device_kind(k); k++) printf("%sdry:%s", before, ebb_device_kind(k));
    printf("\n");
    for (int k = 1; ebb_device_kind(k); k++) print_profiles(ebb_device_kind(k));
    for (int i = 0; ebb_device_info_get(&d, i); i++) {
        if (is_dry(&d) || !is_accelerator(&d)) continue;
        if (d.available)
            printf("%-9s %s; %s\n", d.name, d.description, ebb_size_format(d.memory_bytes, size, sizeof(size)));
        else
            printf("%-9s not available: %s\n", d.name, d.reason);
    }
}

/* ---- what they can ------------------------------------------------------------------------ */

static int ops_as_json(const cli_args *args)
{
    cli_json json = cli_json_begin();
    cJSON *list = cli_put_array(&json, NULL, "ops");
    for (int i = 0; i < ebb_op_count(); i++) {
        cJSON *one = cli_add_object(&json, list);
        cli_put_text(&json, one, "op", ebb_op_at(i)->name);
        for (int k = 0; ebb_device_kind(k); k++) {
            bool forward = false, backward = false;
            if (ebb_device_has_op(&forward, ebb_device_kind(k), ebb_op_at(i), EBB_FORWARD) != EBB_OK ||
                ebb_device_has_op(&backward, ebb_device_kind(k), ebb_op_at(i), EBB_BACKWARD) != EBB_OK) {
                cli_put_null(&json, one, ebb_device_kind(k));
                continue;
            }
            cJSON *can = cli_put_object(&json, one, ebb_device_kind(k));
            cli_put_bool(&json, can, "forward", forward);
            cli_put_bool(&json, can, "backward", backward);
        }
    }
    return cli_json_end(&json, args, CLI_DONE);
}

/* "forward backward", "forward -"; "?" where the plugin cannot be asked. */
static void print_support(const char *kind, const ebb_op *op)
{
    bool forward = false, backward = false;
    if (ebb_device_has_op(&forward, kind, op, EBB_FORWARD) != EBB_OK ||
        ebb_device_has_op(&backward, kind, op, EBB_BACKWARD) != EBB_OK)
        printf("  %-17s", "?");
    else
        printf("  %-8s%-9s", forward ? "forward" : "-", backward ? "backward" : "-");
}

static int ops(const cli_args *args)
{
    if (args->json) return ops_as_json(args);
    printf("%-22s", "op");
    for (int k = 0; ebb_device_kind(k); k++) printf("  %-17s", ebb_device_kind(k));
    printf("\n");
    for (int i = 0; i < ebb_op_count(); i++) {
        printf("%-22s", ebb_op_at(i)->name);
        for (int k = 0; ebb_device_kind(k); k++) print_support(ebb_device_kind(k), ebb_op_at(i));
        printf("\n");
    }
    bool has;
    for (int k = 0; ebb_device_kind(k); k++)
        if (ebb_device_has_op(&has, ebb_device_kind(k), ebb_op_at(0), EBB_FORWARD) != EBB_OK)
            printf("?: %s\n", ebb_message());
    return CLI_DONE;
}

/* ---- the command -------------------------------------------------------------------------- */

static int run(const cli_args *args)
{
    if (args->calibrate) return calibrate(args);
    if (args->n_operands) return cli_usage(args, "info: a config goes with --calibrate");
    if (args->ops) return ops(args);
    ebb_build_info b = ebb_build_info_get();
    int threads = args->threads > 0 ? (int)args->threads : b.cores;
    if (args->json) {
        cli_json json = cli_json_begin();
        cli_put_text(&json, NULL, "version", b.version);
        put_devices(&json);
        cli_put_number(&json, NULL, "threads", threads);
        cli_put_number(&json, NULL, "cores", b.cores);
        cli_put_text(&json, NULL, "blas", b.blas);
        cli_put_text(&json, NULL, "compiler", b.compiler);
        cli_put_number(&json, NULL, "checks", b.checks);
        cli_put_number(&json, NULL, "ops", b.n_ops);
        return cli_json_end(&json, args, CLI_DONE);
    }
    printf("ebb       %s\n", b.version);
    print_devices();
    printf("threads   %d (of %d cores)\nblas      %s\ncompiler  %s\nchecks    level %d\nops       %d\n", threads,
           b.cores, b.blas, b.compiler, b.checks, b.n_ops);
    return CLI_DONE;
}

static const cli_option options[] = {
    { "--calibrate", NULL, CLI_FLAG, offsetof(cli_args, calibrate), "measure how long ops take, for ebb plan", false },
    { "--ops", NULL, CLI_FLAG, offsetof(cli_args, ops), "for each op, which devices have kernels for it", false },
};

const cli_command cli_info = {
    .name = "info",
    .operands = "[CONFIG]",
    .min_operands = 0,
    .max_operands = 1,
    .summary = "Tells version, devices, libraries and threads",
    .details = "--calibrate trains a few steps of small models, or of CONFIG, and writes what every op\n"
               "took, as it is and made again, to $EBB_CALIBRATION, else to ebb/calibration.json in $XDG_CACHE_HOME or "
               "~/.cache.\n",
    .options = options,
    .n_options = sizeof(options) / sizeof(options[0]),
    .run = run,
};
