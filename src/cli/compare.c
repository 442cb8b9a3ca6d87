/* compare: the same training under variants of one setting, each from an empty pool. */
#include <stdlib.h>
#include <string.h>

#include "cli.h"

typedef struct comparison {
    const cli_args *args;
    ebb_config *config;
    int n, n_done;
    cli_variant variants[CLI_MAX_VARIANTS];
    ebb_train_result measured[CLI_MAX_VARIANTS], predicted[CLI_MAX_VARIANTS];
    cli_segments segments[CLI_MAX_VARIANTS];
} comparison;

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
        if (st != EBB_OK) status = cli_fail_run(c->args, st, configs[i]);
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

enum { WIDTH = 100, MAX_COLUMNS = 9, CELL_BYTES = 32 };

static bool offloads(const comparison *c)
{
    for (int i = 0; i < c->n_done; i++)
        if (c->measured[i].host_memory.peak_allocated_bytes > 0) return true;
    return false;
}

/* Other columns and the gaps take 72 columns, 82 with the host's; a longer name loses its middle. */
static const char *shorten(char out[CELL_BYTES], const comparison *c, const char *name)
{
    int room = offloads(c) ? WIDTH - 82 : WIDTH - 72, n = (int)strlen(name), head = (room - 3) / 2;
    if (n <= room) snprintf(out, CELL_BYTES, "%s", name);
    else snprintf(out, CELL_BYTES, "%.*s...%s", head, name, name + n - (room - 3 - head));
    return out;
}

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

static ebb_status add_row(ebb_table *table, const comparison *c, int i)
{
    const ebb_train_result *m = &c->measured[i], *first = &c->measured[0];
    const ebb_memory_stats *p = &c->predicted[i].memory;
    const size_t bytes[] = { m->memory.peak_allocated_bytes, p->peak_allocated_bytes, m->memory.peak_reserved_bytes,
                             p->peak_reserved_bytes, saved_bytes(&m->memory), m->host_memory.peak_allocated_bytes };
    char text[MAX_COLUMNS][CELL_BYTES];
    const char *cells[MAX_COLUMNS];
    for (int k = 0; k < MAX_COLUMNS; k++) cells[k] = text[k];
    shorten(text[0], c, c->variants[i].value);
    snprintf(text[6], CELL_BYTES, m->step_ms < 1000 ? "%.4g" : "%.0f", m->step_ms);
    snprintf(text[7], CELL_BYTES, "%.2f", first->step_ms > 0 ? m->step_ms / first->step_ms : 0);
    for (int k = 0; k < 5; k++) format_bytes(text[1 + k], bytes[k]);
    format_bytes(text[8], bytes[5]);
    return ebb_table_row(table, cells);
}

static ebb_status print_rows(const comparison *c)
{
    char path[CLI_VARIANT_BYTES], name[CELL_BYTES];
    const cli_variant *v = &c->variants[0];
    snprintf(path, sizeof(path), "%.*s", (int)(v->value - v->set - 1), v->set);
    const char *const titles[] = { shorten(name, c, path), ">peak", ">predicted", ">reserved", ">predicted",
                                   ">activations", ">step ms", ">ratio", ">host" };
    ebb_table *table = NULL;
    ebb_status st = ebb_table_new(&table, offloads(c) ? MAX_COLUMNS : MAX_COLUMNS - 1, titles);
    for (int i = 0; i < c->n_done && st == EBB_OK; i++) st = add_row(table, c, i);
    if (st == EBB_OK) ebb_table_print(table, stdout);
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
    for (int i = 0; i < c->n_done; i++) n += is_exact(&c->predicted[i], &c->measured[i]);
    if (n == c->n_done)
        printf("\nThe peaks that dry runs predicted are exact, to the byte.\n");
    else
        printf("\nThe peaks that dry runs predicted are exact in %d of %d runs.\n", n, c->n_done);
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
    if (c->n_done < 2 || !has_hash(&c->measured[0])) return;
    for (int i = 1; i < c->n_done; i++)
        same = same && strcmp(c->measured[i].gradients_sha256, c->measured[0].gradients_sha256) == 0;
    if (same) {
        printf("The gradients of all steps are the same, bit for bit, in all runs.\n");
        return;
    }
    printf("The gradients %s between runs; their hashes:\n", may_differ(c) ? "differ" : "of all steps DIFFER");
    for (int i = 0; i < c->n_done; i++)
        printf("  %.8s  %.80s\n", c->measured[i].gradients_sha256, c->variants[i].value);
}

static int print_table(const comparison *c)
{
    ebb_status st = print_rows(c);
    if (st != EBB_OK) return cli_fail(c->args, st);
    print_exactness(c);
    print_gradients(c);
    return CLI_DONE;
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
    if (status == CLI_DONE && args->json) status = print_json(&c);
    else if (status == CLI_DONE && !args->quiet && c.n_done > 0) status = print_table(&c);
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
               "the dry run beforehand said of the column before it.  \"ratio\" is of step times.\n",
    .options = options,
    .n_options = sizeof(options) / sizeof(options[0]),
    .run = run,
};
