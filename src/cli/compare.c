/* compare: the same training under variants of one setting, each from an empty pool. */
#include <stdlib.h>
#include <string.h>

#include "cli.h"

enum { WHY_BYTES = 1024 };

typedef struct comparison {
    const cli_args *args;
    ebb_config *config;
    int n, n_done;
    cli_variant variants[CLI_MAX_VARIANTS];
    ebb_train_result measured[CLI_MAX_VARIANTS], predicted[CLI_MAX_VARIANTS];
    cli_segments segments[CLI_MAX_VARIANTS];
    ebb_status failed[CLI_MAX_VARIANTS]; /* EBB_OK: it ran */
    char why[CLI_MAX_VARIANTS][WHY_BYTES];
} comparison;

static bool ran(const comparison *c, int i) { return c->failed[i] == EBB_OK; }

static int n_ran(const comparison *c)
{
    int n = 0;
    for (int i = 0; i < c->n_done; i++) n += ran(c, i);
    return n;
}

/* What the others are compared with; there is one. */
static int first_ran(const comparison *c)
{
    int i = 0;
    while (i < c->n_done - 1 && !ran(c, i)) i++;
    return i;
}

/* ---- running ------------------------------------------------------------------------------ */

static ebb_status on_backward(void *user, ebb_context *ctx)
{
    cli_recipes_look(user, ctx);
    return EBB_OK;
}

static ebb_status on_end(void *user, ebb_context *ctx)
{
    cli_recipes_count(user, ctx);
    return EBB_OK;
}

static ebb_status run_variant(comparison *c, int i, const ebb_config *config,
                              ebb_progress_line *line)
{
    ebb_train_options options = cli_train_options(c->args);
    cli_recipes recipes;
    ebb_observer observer = { .user = &recipes, .on_backward = on_backward, .on_end = on_end };
    options.hash_gradients = true;
    ebb_status st = ebb_estimate(&c->predicted[i], config, &options);
    if (st != EBB_OK) return st;
    cli_watch(&options, c->args, line);
    if (line->file) fprintf(stderr, "%s\n", c->variants[i].set);
    options.observer = &observer;
    cli_recipes_begin(&recipes, config);
    cli_segments_collect(&options, &c->segments[i]);
    st = ebb_train(&c->measured[i], config, &options);
    ebb_progress_clear(line);
    cli_recipes_end(&recipes, st == EBB_OK);
    if (cli_segments_free_nothing(&c->segments[i]) && !c->args->quiet) fprintf(stderr, "%s:\n", c->variants[i].set);
    cli_segments_warn(&c->segments[i], c->args);
    return st;
}

/* Its row says why; the others stand.  Files that cannot be read are every row's. */
static int note_failure(comparison *c, int i, ebb_status st, const ebb_config *config)
{
    if (st == EBB_EIO) return cli_fail_run(c->args, st, config);
    c->failed[i] = st;
    snprintf(c->why[i], WHY_BYTES, "%s", ebb_message());
    return CLI_DONE;
}

/* Every config is read before the first run: a wrong value costs no time. */
static int run_all(comparison *c)
{
    ebb_config *configs[CLI_MAX_VARIANTS] = { NULL };
    int status = CLI_DONE;
    for (int i = 0; i < c->n && status == CLI_DONE; i++) {
        const char *set = c->variants[i].set;
        ebb_status st = ebb_config_copy(&configs[i], c->config, &set, 1);
        if (st != EBB_OK) status = cli_fail_config(c->args, st);
    }
    for (int i = 0; i < c->n && status == CLI_DONE && !cli_interrupted(); i++) {
        ebb_progress_line line;
        ebb_status st = run_variant(c, i, configs[i], &line);
        if (st != EBB_OK) status = note_failure(c, i, st, configs[i]);
        if (!cli_interrupted()) c->n_done = i + 1; /* one that was cut short compares with none */
    }
    for (int i = 0; i < c->n; i++) ebb_config_free(configs[i]);
    return status;
}

/* ---- reporting ---------------------------------------------------------------------------- */

static bool has_hash(const ebb_train_result *r) { return r->gradients_sha256[0] != '\0'; }

static int print_json(const comparison *c)
{
    cli_json json = cli_json_begin();
    cJSON *runs = cli_put_array(&json, NULL, "runs");
    for (int i = 0; i < c->n_done; i++) {
        const ebb_train_result *m = &c->measured[i];
        const ebb_memory_stats *p = &c->predicted[i].memory, *host = &c->predicted[i].host_memory;
        cJSON *run = cli_add_object(&json, runs);
        cli_put_text(&json, run, "name", c->variants[i].value);
        if (!ran(c, i)) {
            cJSON *error = cli_put_object(&json, run, "error");
            cli_put_text(&json, error, "code", ebb_status_name(c->failed[i]));
            cli_put_text(&json, error, "message", c->why[i]);
            continue;
        }
        cli_put_result(&json, run, m);
        cli_put_bytes(&json, run, "predicted_peak_allocated_bytes", p->peak_allocated_bytes);
        cli_put_bytes(&json, run, "predicted_peak_reserved_bytes", p->peak_reserved_bytes);
        cli_put_bytes(&json, run, "predicted_host_peak_allocated_bytes", host->peak_allocated_bytes);
        cli_put_number(&json, run, "offloaded_bytes", (double)m->offloaded_bytes);
        cli_put_number(&json, run, "recomputed_ops", (double)m->recomputed_ops);
        cli_put_count(&json, run, "recompute_flops", m->recompute_flops);
        cli_put_text(&json, run, "gradients_sha256", has_hash(m) ? m->gradients_sha256 : NULL);
        cli_put_segments(&json, run, &c->segments[i], true);
    }
    if (cli_interrupted()) cli_put_bool(&json, NULL, "interrupted", true);
    return cli_json_end(&json, c->args, CLI_DONE);
}

static size_t saved_bytes(const ebb_memory_stats *m)
{
    return m->by_category_at_peak[EBB_CAT_ACTIVATION] + m->by_category_at_peak[EBB_CAT_RECOMPUTED];
}

/* ---- the table: at most 100 columns wide --------------------------------------------------- */

enum { WIDTH = 100, MAX_COLUMNS = 9, CELL_BYTES = CLI_NAME_BYTES };

static bool offloads(const comparison *c)
{
    for (int i = 0; i < c->n_done; i++)
        if (c->measured[i].host_memory.peak_allocated_bytes > 0) return true;
    return false;
}

/* Other columns and the gaps take 72 columns, 82 with the host's. */
static int name_room(const comparison *c) { return offloads(c) ? WIDTH - 82 : WIDTH - 72; }

/* Three digits: "259 KiB". */
static void format_bytes(char out[CELL_BYTES], size_t bytes)
{
    static const char *const units[] = { "B", "KiB", "MiB", "GiB", "TiB" };
    double value = (double)bytes;
    int unit = 0;
    while (value >= 999.5 && unit < 4) {
        value /= 1024;
        unit++;
    }
    int decimals = unit == 0 || value >= 99.95 ? 0 : value >= 9.995 ? 1 : 2;
    snprintf(out, CELL_BYTES, "%.*f %s", decimals, value, units[unit]);
}

static ebb_status add_failed(ebb_table *table, const char *name)
{
    return ebb_table_row(table, (const char *const[MAX_COLUMNS]){ name, "-", "-", "-", "-", "-", "-", "-", "-" });
}

static ebb_status add_row(ebb_table *table, const comparison *c, int i, const char *name)
{
    const ebb_train_result *m = &c->measured[i], *first = &c->measured[first_ran(c)];
    const ebb_memory_stats *p = &c->predicted[i].memory;
    const size_t bytes[] = { m->memory.peak_allocated_bytes, p->peak_allocated_bytes, m->memory.peak_reserved_bytes,
                             p->peak_reserved_bytes, saved_bytes(&m->memory), m->host_memory.peak_allocated_bytes };
    char text[MAX_COLUMNS][CELL_BYTES];
    const char *cells[MAX_COLUMNS];
    for (int k = 0; k < MAX_COLUMNS; k++) cells[k] = text[k];
    cells[0] = name;
    if (cli_is_dry(m)) {
        strcpy(text[6], "-");
        strcpy(text[7], "-");
    } else {
        snprintf(text[6], CELL_BYTES, m->step_ms < 1000 ? "%.4g" : "%.0f", m->step_ms);
        snprintf(text[7], CELL_BYTES, "%.2f", first->step_ms > 0 ? m->step_ms / first->step_ms : 0);
    }
    for (int k = 0; k < 5; k++) format_bytes(text[1 + k], bytes[k]);
    format_bytes(text[8], bytes[5]);
    return ebb_table_row(table, cells);
}

static void print_values(const comparison *c)
{
    printf("\nThe rows' values:\n");
    for (int i = 0; i < c->n_done; i++) printf("  %d: %s\n", i + 1, c->variants[i].value);
}

static ebb_status print_rows(const comparison *c)
{
    char path[1][CELL_BYTES], names[CLI_MAX_VARIANTS][CELL_BYTES];
    cli_variant title = c->variants[0];
    title.set[c->variants[0].value - c->variants[0].set - 1] = '\0';
    title.value = title.set;
    cli_variant_names(path, &title, 1, name_room(c));
    bool numbered = cli_variant_names(names, c->variants, c->n_done, name_room(c));
    const char *const titles[] = { path[0], ">peak", ">predicted", ">reserved", ">predicted",
                                   ">activations", ">step ms", ">ratio", ">host" };
    ebb_table *table = NULL;
    ebb_status st = ebb_table_new(&table, offloads(c) ? MAX_COLUMNS : MAX_COLUMNS - 1, titles);
    for (int i = 0; i < c->n_done && st == EBB_OK; i++)
        st = ran(c, i) ? add_row(table, c, i, names[i]) : add_failed(table, names[i]);
    if (st == EBB_OK) ebb_table_print(table, stdout);
    if (st == EBB_OK && numbered) print_values(c);
    ebb_table_free(table);
    return st;
}

/* ---- what the table says in words ----------------------------------------------------------- */

/* The dry run gave the peaks of both pools. */
static bool is_exact(const ebb_train_result *predicted, const ebb_train_result *measured)
{
    const ebb_memory_stats *p = &predicted->memory, *m = &measured->memory;
    const ebb_memory_stats *hp = &predicted->host_memory, *hm = &measured->host_memory;
    return p->peak_allocated_bytes == m->peak_allocated_bytes && p->peak_reserved_bytes == m->peak_reserved_bytes &&
           hp->peak_allocated_bytes == hm->peak_allocated_bytes && hp->peak_reserved_bytes == hm->peak_reserved_bytes;
}

static void print_exactness(const comparison *c)
{
    int n = 0;
    for (int i = 0; i < c->n_done; i++) n += ran(c, i) && is_exact(&c->predicted[i], &c->measured[i]);
    if (n == n_ran(c))
        printf("\nThe peaks that dry runs predicted are exact, to the byte.\n");
    else
        printf("\nThe peaks that dry runs predicted are exact in %d of %d runs.\n", n, n_ran(c));
}

/* No key of memory but compress may change a result. */
static bool may_differ(const comparison *c)
{
    bool rounds = false;
    for (int i = 0; i < c->n_done; i++) rounds = rounds || c->measured[i].rounds;
    return rounds || strncmp(c->variants[0].set, "memory.", 7) != 0;
}

static void print_gradients(const comparison *c)
{
    bool same = true;
    const ebb_train_result *first = &c->measured[first_ran(c)];
    if (n_ran(c) < 2 || !has_hash(first)) return;
    for (int i = 0; i < c->n_done; i++)
        same = same && (!ran(c, i) || strcmp(c->measured[i].gradients_sha256, first->gradients_sha256) == 0);
    if (same) {
        printf("The gradients of all steps are the same, bit for bit, in all runs.\n");
        return;
    }
    printf("The gradients %s between runs; their hashes:\n", may_differ(c) ? "differ" : "of all steps DIFFER");
    for (int i = 0; i < c->n_done; i++)
        if (ran(c, i)) printf("  %.8s  %.80s\n", c->measured[i].gradients_sha256, c->variants[i].value);
}

static int print_table(const comparison *c)
{
    ebb_status st = print_rows(c);
    if (st != EBB_OK) return cli_fail(c->args, st);
    print_exactness(c);
    print_gradients(c);
    return CLI_DONE;
}

/* The first one's exit status, after its row's and the others' reasons. */
static int tell_failed(const comparison *c)
{
    int status = CLI_DONE;
    for (int i = 0; i < c->n_done; i++) {
        if (ran(c, i)) continue;
        fprintf(stderr, "ebb: %s: %s\n", c->variants[i].set, c->why[i]);
        if (status == CLI_DONE) status = cli_exit_status(c->failed[i]);
    }
    return status;
}

/* A comparison needs a row; without one it is an error like any other command's. */
static int report(const comparison *c)
{
    if (c->n_done > 0 && n_ran(c) == 0) return cli_fail_text(c->args, c->failed[0], c->why[0]);
    int status = CLI_DONE;
    if (c->args->json) status = print_json(c);
    else if (!c->args->quiet && c->n_done > 0) status = print_table(c);
    return status == CLI_DONE ? tell_failed(c) : status;
}

static int tell_interrupted(const comparison *c)
{
    fprintf(stderr, "ebb: interrupted: %d of %d runs were made\n", c->n_done, c->n);
    return CLI_FAILED;
}

static int run(const cli_args *args)
{
    static comparison c;
    c.args = args;
    c.n = cli_variants(c.variants, args,
                       args->vary ? args->vary : "memory.checkpoint=none,every:1,sqrt");
    if (c.n < 0) return CLI_USAGE;
    int status = cli_load_config(&c.config, args);
    if (status != CLI_DONE) return status;
    status = run_all(&c);
    ebb_config_free(c.config);
    if (status == CLI_DONE) status = report(&c);
    for (int i = 0; i < c.n; i++) cli_segments_free(&c.segments[i]);
    return cli_interrupted() && status == CLI_DONE ? tell_interrupted(&c) : status;
}

static const cli_option options[] = {
    { "--vary", "PATH=V1,V2,...", CLI_TEXT, offsetof(cli_args, vary),
      "default: memory.checkpoint=none,every:1,sqrt", false },
    { "--steps", "N", CLI_COUNT, offsetof(cli_args, steps), "instead of train.steps", false },
    { "--check-recompute", NULL, CLI_FLAG, offsetof(cli_args, check_recompute),
      "compares what is recomputed with the first run, bit by bit", false },
};

const cli_command cli_compare = {
    .name = "compare",
    .operands = "CONFIG",
    .min_operands = 1,
    .max_operands = 1,
    .summary = "Trains under several values of one setting, and compares memory and time",
    .details = "Each run starts from an empty pool.  Activations are those saved for backward and\n"
               "those that a recompute refilled, at the instant of the peak.  \"predicted\" is what\n"
               "the dry run beforehand said of the column before it.  \"ratio\" is of step times.\n"
               "A run that fails has a row of dashes; why is said on stderr, and the exit status is its own.\n",
    .options = options,
    .n_options = sizeof(options) / sizeof(options[0]),
    .run = run,
};
