/* plan: the fastest way to fit a step into a budget, or the whole frontier. */
#include <stdlib.h>
#include <string.h>

#include "cli.h"

enum { MAX_POINTS = 48 };

/* The plan's own JSON carries "segments", "recompute" and "offload". */
static void put_plan(cli_json *json, cJSON *object, const ebb_plan *plan)
{
    ebb_plan_info info = ebb_plan_info_get(plan);
    cli_put_bytes(json, object, "predicted_peak_reserved_bytes", info.peak_reserved_bytes);
    cli_put_bytes(json, object, "predicted_peak_allocated_bytes", info.peak_allocated_bytes);
    cli_put_bytes(json, object, "predicted_peak_host_bytes", info.peak_host_bytes);
    cli_put_number(json, object, "predicted_overhead", info.overhead);
    cli_put_number(json, object, "recompute_flops", info.recompute_flops);
    char *text = ebb_plan_print(plan);
    cJSON *whole = text ? cJSON_Parse(text) : NULL;
    static const char *const keys[] = { "segments", "recompute", "offload" };
    for (int i = 0; i < 3; i++) {
        cJSON *part = cJSON_DetachItemFromObjectCaseSensitive(whole, keys[i]);
        if (!part || !cJSON_AddItemToObject(object ? object : json->root, keys[i], part)) json->failed = true;
    }
    cJSON_Delete(whole);
    free(text);
}

/* At a word's end, so that a row of the table is 100 columns at most. */
static void shorten(char *words, size_t columns)
{
    static const char dots[] = " ...";
    if (strlen(words) <= columns) return;
    size_t end = columns - strlen(dots);
    while (end > 0 && words[end] != ' ') end--;
    while (end > 0 && strchr(" ,;", words[end - 1])) end--;
    memcpy(words + end, dots, sizeof(dots));
}

enum { PLAN_COLUMNS = 57, HOST_COLUMNS = 12 };

static ebb_status add_row(ebb_table *table, const ebb_plan *plan, const ebb_plan *first, bool host)
{
    ebb_plan_info info = ebb_plan_info_get(plan), all = ebb_plan_info_get(first);
    char text[5][32];
    char *words = ebb_plan_describe(plan);
    if (words) shorten(words, host ? PLAN_COLUMNS - HOST_COLUMNS : PLAN_COLUMNS);
    ebb_size_format(info.peak_reserved_bytes, text[0], sizeof(text[0]));
    ebb_size_format(info.peak_allocated_bytes, text[1], sizeof(text[1]));
    snprintf(text[2], sizeof(text[2]), "%.3f", (double)info.peak_reserved_bytes / (double)all.peak_reserved_bytes);
    snprintf(text[3], sizeof(text[3]), "%+.1f%%", info.overhead * 100);
    ebb_size_format(info.peak_host_bytes, text[4], sizeof(text[4]));
    ebb_status st = host ? ebb_table_row(table, (const char *const[]){ text[0], text[1], text[2], text[3], text[4],
                                                                       words ? words : "" })
                         : ebb_table_row(table, (const char *const[]){ text[0], text[1], text[2], text[3],
                                                                       words ? words : "" });
    free(words);
    return st;
}

static ebb_status print_table(ebb_plan *const plans[], int n)
{
    static const char *const titles[] = { ">reserved", ">allocated", ">ratio", ">time", "plan" };
    static const char *const with_host[] = { ">reserved", ">allocated", ">ratio", ">time", ">host", "plan" };
    bool host = false;
    for (int i = 0; i < n; i++) host = host || ebb_plan_info_get(plans[i]).peak_host_bytes > 0;
    ebb_table *table = NULL;
    ebb_status st = ebb_table_new(&table, host ? 6 : 5, host ? with_host : titles);
    for (int i = 0; i < n && st == EBB_OK; i++) st = add_row(table, plans[i], plans[0], host);
    if (st == EBB_OK) ebb_table_print(table, stdout);
    ebb_table_free(table);
    return st;
}

/* memory.limit is of a run: the frontier goes beyond it. */
static void print_limit(ebb_plan *const plans[], int n, size_t limit)
{
    int beyond = 0;
    char text[32];
    for (int i = 0; i < n; i++) beyond += limit && ebb_plan_info_get(plans[i]).peak_reserved_bytes > limit;
    if (beyond)
        printf("%d of %d are beyond memory.limit, %s reserved\n", beyond, n,
               ebb_size_format(limit, text, sizeof(text)));
}

static int report_frontier(const cli_args *args, const ebb_config *config, ebb_plan *const plans[], int n)
{
    if (!args->json) {
        ebb_status st = args->quiet ? EBB_OK : print_table(plans, n);
        if (st == EBB_OK && !args->quiet) print_limit(plans, n, ebb_config_memory_limit(config));
        return st == EBB_OK ? CLI_DONE : cli_fail(args, st);
    }
    cli_json json = cli_json_begin();
    cJSON *points = cli_put_array(&json, NULL, "points");
    for (int i = 0; i < n; i++) put_plan(&json, cli_add_object(&json, points), plans[i]);
    return cli_json_end(&json, args, CLI_DONE);
}

static int run_frontier(const cli_args *args, const ebb_config *config)
{
    ebb_plan *plans[MAX_POINTS];
    int n = 0;
    ebb_train_options options = cli_train_options(args);
    ebb_status st = ebb_plan_frontier(plans, MAX_POINTS, &n, config, &options, args->allocated);
    int status = st == EBB_OK ? report_frontier(args, config, plans, n) : cli_fail(args, st);
    for (int i = 0; i < n; i++) ebb_plan_free(plans[i]);
    return status;
}

static int report_plan(const cli_args *args, const ebb_plan *plan, size_t budget)
{
    if (args->json) {
        cli_json json = cli_json_begin();
        cli_put_bytes(&json, NULL, "budget_bytes", budget);
        cli_put_bool(&json, NULL, "fits", true);
        put_plan(&json, NULL, plan);
        return cli_json_end(&json, args, CLI_DONE);
    }
    if (args->quiet) return CLI_DONE;
    ebb_plan_info info = ebb_plan_info_get(plan);
    char text[3][32], beside[64] = "", *words = ebb_plan_describe(plan);
    if (info.peak_host_bytes)
        snprintf(beside, sizeof(beside), ", %s of host memory beside",
                 ebb_size_format(info.peak_host_bytes, text[0], sizeof(text[0])));
    printf("fits %s: peak %s reserved, %s allocated%s; a step takes %+.1f%% time\n%s\n",
           ebb_size_format(budget, text[0], sizeof(text[0])),
           ebb_size_format(info.peak_reserved_bytes, text[1], sizeof(text[1])),
           ebb_size_format(info.peak_allocated_bytes, text[2], sizeof(text[2])), beside, info.overhead * 100,
           words ? words : "");
    free(words);
    return CLI_DONE;
}

/* The same as a page, with the config's own setting marked on it. */
static int write_page(const cli_args *args, const ebb_config *config)
{
    static cli_frontier f;
    ebb_train_options options = cli_train_options(args);
    ebb_status st = cli_frontier_make(&f, config, &options, args->allocated);
    if (st == EBB_OK) st = cli_frontier_mark(&f, "this config", config, &options, true);
    ebb_frontier page = cli_frontier_page(&f, args->operands[0]);
    if (st == EBB_OK) st = ebb_frontier_write_html(args->html, &page);
    int status = st == EBB_OK ? report_frontier(args, config, f.plans, f.n) : cli_fail(args, st);
    if (st == EBB_OK) cli_say_wrote(args, args->html);
    cli_frontier_free(&f);
    return status;
}

static int run_budget(const cli_args *args, const ebb_config *config)
{
    size_t budget = 0;
    if (ebb_size_parse(&budget, args->budget) != EBB_OK) return cli_usage(args, "--budget: %s", ebb_message());
    ebb_plan *plan = NULL;
    ebb_train_options options = cli_train_options(args);
    ebb_status st = ebb_plan_make(&plan, config, &options, budget, args->allocated);
    if (st == EBB_OK && args->write) st = ebb_plan_save(plan, args->write);
    int status = st == EBB_OK ? report_plan(args, plan, budget) : cli_fail(args, st);
    ebb_plan_free(plan);
    return status;
}

static int allow_offload(ebb_config **config, const cli_args *args)
{
    static const char *const sets[] = { "memory.offload=auto" };
    ebb_config *allowed = NULL;
    ebb_status st = ebb_config_copy(&allowed, *config, sets, 1);
    ebb_config_free(*config);
    *config = allowed;
    return st == EBB_OK ? CLI_DONE : cli_fail(args, st);
}

static int run(const cli_args *args)
{
    if (!args->budget == !args->frontier) return cli_usage(args, "plan: give one of --budget SIZE and --frontier");
    if (args->frontier && args->write) return cli_usage(args, "--write goes with --budget");
    if (args->html && !args->frontier) return cli_usage(args, "--html goes with --frontier");
    if (cli_check_writable(args, args->html) != CLI_DONE) return CLI_USAGE;
    if (cli_check_writable(args, args->write) != CLI_DONE) return CLI_USAGE;
    ebb_status page = args->html ? ebb_page_check() : EBB_OK;
    if (page != EBB_OK) return cli_fail(args, page);
    ebb_config *config = NULL;
    int status = cli_load_config(&config, args);
    if (status == CLI_DONE && args->offload) status = allow_offload(&config, args);
    if (status != CLI_DONE) return status;
    if (args->html) status = write_page(args, config);
    else status = args->frontier ? run_frontier(args, config) : run_budget(args, config);
    ebb_config_free(config);
    return status;
}

static const cli_option options[] = {
    { "--budget", "SIZE", CLI_TEXT, offsetof(cli_args, budget), "the peak must be at most this (512MiB, 2GiB)", false },
    { "--frontier", NULL, CLI_FLAG, offsetof(cli_args, frontier), "all of it: peak against time", false },
    { "--html", "FILE", CLI_TEXT, offsetof(cli_args, html), "the frontier as a page, for a browser; needs no network",
      false },
    { "--allocated", NULL, CLI_FLAG, offsetof(cli_args, allocated), "the peak of allocated bytes, not of reserved",
      false },
    { "--offload", NULL, CLI_FLAG, offsetof(cli_args, offload), "may use host memory (memory.offload auto)", false },
    { "--write", "FILE", CLI_TEXT, offsetof(cli_args, write), "the plan, for memory.checkpoint=plan:FILE", false },
    { "--steps", "N", CLI_COUNT, offsetof(cli_args, steps), "instead of train.steps", false },
};

const cli_command cli_plan = {
    .name = "plan",
    .operands = "CONFIG",
    .min_operands = 1,
    .max_operands = 1,
    .summary = "Finds the fastest checkpointing whose peak fits a budget",
    .details = "Every plan is confirmed by a dry run, so its peaks are those of `ebb train`, to\n"
               "the byte.  Times come from `ebb info --calibrate`, or from built-in figures.\n",
    .options = options,
    .n_options = sizeof(options) / sizeof(options[0]),
    .run = run,
};
