/* trace: training steps, and where their memory went. */
#include "cli.h"

#include <string.h>

enum { MAX_RUNS = 2, DEFAULT_STEPS = 2, SHOWN_ROWS = 15, NAME_BYTES = CLI_VARIANT_BYTES };

typedef struct traced {
    char set[CLI_VARIANT_BYTES];
    bool has_set;
    const char *name;
    ebb_trace *trace;
} traced;

/* ---- running ------------------------------------------------------------------------------ */

static ebb_status run_one(traced *t, const cli_args *args, const ebb_config *config)
{
    static ebb_train_result result;
    ebb_progress_line line;
    ebb_train_options train = cli_train_options(args);
    ebb_trace_options options = { .struct_bytes = sizeof(options),
                                  .name = t->name,
                                  .first_step = args->from,
                                  .max_events = (size_t)args->events };
    if (train.steps == 0) train.steps = DEFAULT_STEPS;
    cli_watch(&train, args, &line);
    ebb_status st = ebb_trace_train(&t->trace, &result, config, &train, &options);
    ebb_progress_clear(&line);
    return st;
}

/* The variants' configs are read before the first run: a wrong value costs no time. */
static int run_all(traced runs[], int n, const cli_args *args, const ebb_config *config)
{
    ebb_config *configs[MAX_RUNS] = { NULL };
    int status = CLI_DONE;
    for (int i = 0; i < n && status == CLI_DONE; i++) {
        const char *set = runs[i].set;
        ebb_status st = ebb_config_copy(&configs[i], config, &set, runs[i].has_set ? 1 : 0);
        if (st != EBB_OK) status = cli_fail_config(args, st);
    }
    for (int i = 0; i < n && status == CLI_DONE; i++) {
        ebb_status st = run_one(&runs[i], args, configs[i]);
        if (st != EBB_OK) status = cli_fail(args, st);
    }
    for (int i = 0; i < n; i++) ebb_config_free(configs[i]);
    return status;
}

/* ---- files -------------------------------------------------------------------------------- */

static bool ends_with(const char *text, const char *end)
{
    size_t n = strlen(text), m = strlen(end);
    return n >= m && strcmp(text + n - m, end) == 0;
}

/* What can be seen to go wrong is said before anything is trained. */
static int check_files(const cli_args *args)
{
    const char *const files[] = { args->html, args->snapshot, args->perfetto };
    for (int i = 0; i < 3; i++) {
        for (int k = 0; k < i; k++)
            if (files[i] && files[k] && strcmp(files[i], files[k]) == 0)
                return cli_usage(args, "%s: is asked for twice", files[i]);
        if (cli_check_writable(args, files[i]) != CLI_DONE) return CLI_USAGE;
    }
    if (args->frontier && !args->html) return cli_usage(args, "--frontier goes with --html");
    if (args->snapshot && !ends_with(args->snapshot, ".pickle") && !ends_with(args->snapshot, ".json"))
        return cli_usage(args, "--snapshot: %s: the name must end in .pickle or .json", args->snapshot);
    return CLI_DONE;
}

/* Of the first run's config, with the runs themselves on it; one that differs in more than memory is of
 * another frontier. */
static ebb_status make_frontier(cli_frontier *f, const traced runs[], int n, const cli_args *args,
                                const ebb_config *config)
{
    ebb_train_options options = cli_train_options(args);
    if (options.steps == 0) options.steps = DEFAULT_STEPS;
    EBB_TRY(cli_frontier_make(f, config, &options, false));
    for (int i = 0; i < n; i++) {
        ebb_config *own = NULL;
        const char *set = runs[i].set;
        if (runs[i].has_set && strncmp(set, "memory.", 7) != 0) continue;
        ebb_status st = ebb_config_copy(&own, config, &set, runs[i].has_set ? 1 : 0);
        if (st == EBB_OK) st = cli_frontier_mark(f, ebb_trace_summary_get(runs[i].trace)->name, own, &options, true);
        ebb_config_free(own);
        EBB_TRY(st);
    }
    return EBB_OK;
}

static ebb_status write_html(const traced runs[], int n, const cli_args *args, const ebb_config *config)
{
    const ebb_trace *traces[MAX_RUNS];
    cli_frontier frontier = { .n = 0 };
    for (int i = 0; i < n; i++) traces[i] = runs[i].trace;
    ebb_status st = args->frontier ? make_frontier(&frontier, runs, n, args, config) : EBB_OK;
    ebb_frontier page = cli_frontier_page(&frontier, ebb_trace_summary_get(traces[0])->name);
    if (st == EBB_OK) st = ebb_trace_write_html(args->html, traces, n, args->frontier ? &page : NULL);
    cli_frontier_free(&frontier);
    return st;
}

static ebb_status write_files(const traced runs[], int n, const cli_args *args, const ebb_config *config)
{
    if (args->html) EBB_TRY(write_html(runs, n, args, config));
    if (args->snapshot) EBB_TRY(ebb_trace_write_snapshot(args->snapshot, runs[0].trace));
    if (args->perfetto) EBB_TRY(ebb_trace_write_perfetto(args->perfetto, runs[0].trace));
    return EBB_OK;
}

/* ---- reporting ---------------------------------------------------------------------------- */

static double fragmentation(const ebb_trace_summary *s)
{
    return s->memory.peak_reserved_bytes
               ? 1 - (double)s->peak_active_bytes / (double)s->memory.peak_reserved_bytes
               : 0;
}

static void put_rows(cli_json *json, cJSON *object, const ebb_trace_summary *s)
{
    cJSON *rows = cli_put_array(json, object, "peak");
    for (size_t i = 0; i < s->n_rows; i++) {
        const ebb_trace_row *r = &s->rows[i];
        cJSON *row = cli_add_object(json, rows);
        cli_put_text(json, row, "category", ebb_category_name(r->category));
        cli_put_text(json, row, "op", r->op);
        cli_put_text(json, row, "scope", r->scope);
        cli_put_bytes(json, row, "bytes", r->bytes);
        cli_put_number(json, row, "blocks", (double)r->n_blocks);
        cli_put_number(json, row, "freed_by_node", (double)r->freed_by_node);
        cli_put_text(json, row, "freed_by_op", r->freed_by_op);
    }
}

static int print_json(const traced runs[], int n, const cli_args *args)
{
    cli_json json = cli_json_begin();
    cJSON *array = cli_put_array(&json, NULL, "runs");
    for (int i = 0; i < n; i++) {
        const ebb_trace_summary *s = ebb_trace_summary_get(runs[i].trace);
        cJSON *run = cli_add_object(&json, array);
        cli_put_text(&json, run, "name", s->name);
        cli_put_text(&json, run, "device", s->device);
        cli_put_number(&json, run, "first_step", (double)s->first_step);
        cli_put_number(&json, run, "last_step", (double)s->last_step);
        cli_put_memory(&json, run, &s->memory);
        cli_put_host(&json, run, &s->host_memory);
        cli_put_bytes(&json, run, "peak_active_bytes", s->peak_active_bytes);
        cli_put_number(&json, run, "fragmentation", fragmentation(s));
        cli_put_text(&json, run, "peak_phase", s->peak_phase);
        cli_put_number(&json, run, "events", (double)s->n_events);
        cli_put_number(&json, run, "blocks", (double)s->n_blocks);
        cli_put_number(&json, run, "nodes", (double)s->n_nodes);
        put_rows(&json, run, s);
    }
    return cli_json_end(&json, args, CLI_DONE);
}

static ebb_status add_row(ebb_table *table, const ebb_trace_row *r)
{
    char bytes[32], blocks[24], freed[EBB_TABLE_CELL_BYTES] = "";
    snprintf(blocks, sizeof(blocks), "%zu", r->n_blocks);
    if (r->freed_by_node)
        snprintf(freed, sizeof(freed), "%s #%llu", r->freed_by_op,
                 (unsigned long long)r->freed_by_node);
    const char *cells[] = { ebb_category_name(r->category),
                            r->op,
                            r->scope,
                            blocks,
                            ebb_size_format(r->bytes, bytes, sizeof(bytes)),
                            freed };
    return ebb_table_row(table, cells);
}

static ebb_status print_run(const ebb_trace_summary *s)
{
    static const char *const titles[] = { "category", "op",     "layer",
                                          ">blocks",  ">bytes", "freed by backward of" };
    char peak[32], reserved[32];
    ebb_table *table = NULL;
    printf("%s on %s: the peak of step%s %lld", s->name, s->device,
           s->first_step == s->last_step ? "" : "s", (long long)s->first_step);
    if (s->first_step != s->last_step) printf(" to %lld", (long long)s->last_step);
    printf(" is %s, in %s%s%s%s%s; %s reserved, fragmentation %.1f %%\n",
           ebb_size_format(s->memory.peak_allocated_bytes, peak, sizeof(peak)), s->peak_phase,
           s->peak_op[0] ? ", by " : "", s->peak_op, s->peak_scope[0] ? " in " : "", s->peak_scope,
           ebb_size_format(s->memory.peak_reserved_bytes, reserved, sizeof(reserved)),
           100 * fragmentation(s));
    ebb_status st = ebb_table_new(&table, 6, titles);
    size_t shown = s->n_rows < SHOWN_ROWS ? s->n_rows : SHOWN_ROWS;
    for (size_t i = 0; i < shown && st == EBB_OK; i++) st = add_row(table, &s->rows[i]);
    if (st == EBB_OK) ebb_table_print(table, stdout);
    if (st == EBB_OK && shown < s->n_rows) printf("and %zu more\n", s->n_rows - shown);
    ebb_table_free(table);
    cli_print_host(&s->host_memory, stdout);
    return st;
}

static int report(const traced runs[], int n, const cli_args *args)
{
    const char *files[] = { args->html, args->snapshot, args->perfetto };
    if (args->json) return print_json(runs, n, args);
    if (args->quiet) return CLI_DONE;
    for (int i = 0; i < n; i++) {
        if (i) putchar('\n');
        ebb_status st = print_run(ebb_trace_summary_get(runs[i].trace));
        if (st != EBB_OK) return cli_fail(args, st);
    }
    for (int i = 0; i < 3; i++)
        cli_say_wrote(args, files[i]);
    return CLI_DONE;
}

/* ---- the command -------------------------------------------------------------------------- */

/* What runs, from --compare and --against; returns how many, or -1 after a message. */
static int choose_runs(traced runs[MAX_RUNS], const cli_args *args)
{
    static const char checkpoint[] = "memory.checkpoint=";
    if (args->compare && args->against)
        return cli_usage(args, "--compare and --against exclude each other"), -1;
    if (args->compare) {
        for (int i = 0; i < 2; i++) {
            snprintf(runs[i].set, sizeof(runs[i].set), "%s%s", checkpoint, i ? "sqrt" : "none");
            runs[i].has_set = true;
            runs[i].name = i ? "checkpoint sqrt" : "checkpoint none";
        }
        return 2;
    }
    if (!args->against) return 1;
    cli_variant variants[CLI_MAX_VARIANTS];
    if (!strchr(args->against, '='))
        return cli_usage(args, "--against: \"%s\"; expected PATH=VALUE", args->against), -1;
    int n = cli_variants(variants, args, args->against);
    if (n > 1) return cli_usage(args, "--against: \"%s\": one value only", args->against), -1;
    if (n < 0) return -1;
    snprintf(runs[1].set, sizeof(runs[1].set), "%s", variants[0].set);
    runs[1].has_set = true;
    runs[1].name = runs[1].set;
    return 2;
}

static int run(const cli_args *args)
{
    static traced runs[MAX_RUNS];
    ebb_config *config = NULL;
    int n = choose_runs(runs, args);
    if (n < 0 || check_files(args) != CLI_DONE) return CLI_USAGE;
    ebb_status st = args->html ? ebb_page_check() : EBB_OK;
    if (st != EBB_OK) return cli_fail(args, st);
    int status = cli_load_config(&config, args);
    if (status != CLI_DONE) return status;
    status = run_all(runs, n, args, config);
    if (status == CLI_DONE) {
        st = write_files(runs, n, args, config);
        status = st == EBB_OK ? report(runs, n, args) : cli_fail(args, st);
    }
    for (int i = 0; i < n; i++) ebb_trace_free(runs[i].trace);
    ebb_config_free(config);
    return status;
}

#define AT(member) offsetof(cli_args, member)
static const cli_option options[] = {
    { "--html", "FILE", CLI_TEXT, AT(html), "a page with pictures, for a browser; needs no network",
      false },
    { "--frontier", NULL, CLI_FLAG, AT(frontier),
      "with --html: also peak against time (ebb plan), and where the runs are on it", false },
    { "--snapshot", "FILE", CLI_TEXT, AT(snapshot),
      "for PyTorch's memory viewer: FILE.pickle or FILE.json", false },
    { "--perfetto", "FILE", CLI_TEXT, AT(perfetto), "JSON for ui.perfetto.dev", false },
    { "--compare", NULL, CLI_FLAG, AT(compare), "two runs: memory.checkpoint none, and sqrt",
      false },
    { "--against", "PATH=VALUE", CLI_TEXT, AT(against),
      "two runs: the config, and with this change", false },
    { "--steps", "N", CLI_COUNT, AT(steps), "trains N steps; default: 2", false },
    { "--from", "N", CLI_COUNT, AT(from), "traces from step N on; default: only the last", false },
    { "--events", "N", CLI_COUNT, AT(events), "keeps at most N events; default: 1048576", false },
};
#undef AT

const cli_command cli_trace = {
    .name = "trace",
    .operands = "CONFIG",
    .min_operands = 1,
    .max_operands = 1,
    .summary = "Trains a few steps, and shows where their memory went",
    .details = "Prints what was alive at the peak, and whose backward freed it.  Several files may "
               "be asked for at once;\n"
               "with two runs the page shows them side by side, and the snapshot and the Perfetto "
               "trace are of the\n"
               "first.  The first step warms the pool up, so the second is traced.  On --device "
               "dry:cpu nothing is\n"
               "computed, and memory is the same.\n",
    .options = options,
    .n_options = sizeof(options) / sizeof(options[0]),
    .run = run,
};
