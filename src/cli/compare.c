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
    cli_warnings warnings;
    cli_collect_warnings(&options, &warnings);
    st = ebb_train(&c->measured[i], config, &options);
    ebb_progress_clear(line);
    cli_recipes_end(&recipes, st == EBB_OK);
    if (warnings.n && !c->args->quiet) fprintf(stderr, "%s:\n", c->variants[i].set);
    cli_print_warnings(&warnings, c->args);
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
    }
    if (cli_interrupted()) cli_put_bool(&json, NULL, "interrupted", true);
    return cli_json_end(&json, c->args, CLI_DONE);
}

static size_t saved_bytes(const ebb_memory_stats *m)
{
    return m->by_category_at_peak[EBB_CAT_ACTIVATION] + m->by_category_at_peak[EBB_CAT_RECOMPUTED];
}

/* With names of this length the table fits 100 columns. */
enum { NAME_BYTES = 25 };

static const char *shorten(char out[NAME_BYTES], const char *name)
{
    bool fits = strlen(name) < NAME_BYTES;
    snprintf(out, NAME_BYTES, fits ? "%s" : "%.21s...", name);
    return out;
}

static bool offloads(const comparison *c)
{
    for (int i = 0; i < c->n_done; i++)
        if (c->measured[i].host_memory.peak_allocated_bytes > 0) return true;
    return false;
}

/* The dry run gave the peaks of both pools. */
static bool is_exact(const ebb_train_result *predicted, const ebb_train_result *measured)
{
    const ebb_memory_stats *p = &predicted->memory, *m = &measured->memory;
    const ebb_memory_stats *hp = &predicted->host_memory, *hm = &measured->host_memory;
    return p->peak_allocated_bytes == m->peak_allocated_bytes && p->peak_reserved_bytes == m->peak_reserved_bytes &&
           hp->peak_allocated_bytes == hm->peak_allocated_bytes && hp->peak_reserved_bytes == hm->peak_reserved_bytes;
}

static ebb_status add_row(ebb_table *table, const comparison *c, int i)
{
    const ebb_train_result *m = &c->measured[i], *first = &c->measured[0];
    const ebb_memory_stats *p = &c->predicted[i].memory;
    char text[9][32], name[NAME_BYTES];
    const char *cells[9];
    for (int k = 0; k < 9; k++) cells[k] = text[k];
    cells[0] = shorten(name, c->variants[i].value);
    ebb_size_format(m->memory.peak_allocated_bytes, text[1], sizeof(text[1]));
    ebb_size_format(m->memory.peak_reserved_bytes, text[2], sizeof(text[2]));
    ebb_size_format(saved_bytes(&m->memory), text[3], sizeof(text[3]));
    snprintf(text[4], sizeof(text[4]), "%.4g", m->step_ms);
    snprintf(text[5], sizeof(text[5]), "%.2f",
             first->step_ms > 0 ? m->step_ms / first->step_ms : 0);
    double off = 100 * ((double)p->peak_allocated_bytes / (double)m->memory.peak_allocated_bytes - 1);
    snprintf(text[6], sizeof(text[6]), is_exact(&c->predicted[i], m) ? "exact" : "%+.2f %%", off);
    snprintf(text[7], sizeof(text[7]), "%.8s", has_hash(m) ? m->gradients_sha256 : "-");
    ebb_size_format(m->host_memory.peak_allocated_bytes, text[8], sizeof(text[8]));
    return ebb_table_row(table, cells);
}

static void print_verdict(const comparison *c)
{
    bool same = true;
    for (int i = 1; i < c->n_done; i++)
        same =
            same && strcmp(c->measured[i].gradients_sha256, c->measured[0].gradients_sha256) == 0;
    if (c->n_done < 2 || !has_hash(&c->measured[0])) return;
    if (same)
        printf("\nThe gradients of all steps are the same, bit for bit, in all runs.\n");
    else if (strncmp(c->variants[0].set, "memory.", 7) == 0) /* none of these may change a result */
        printf("\nThe gradients of all steps are NOT the same in all runs.\n");
    else
        printf("\nThe gradients differ between runs.\n");
}

static int print_table(const comparison *c)
{
    static const char *const titles[] = { "",       ">peak",      ">reserved", ">activations", ">step ms",
                                          ">ratio", ">predicted", "gradients", ">host" };
    const char *named[9];
    char path[CLI_VARIANT_BYTES], name[NAME_BYTES];
    memcpy(named, titles, sizeof(named));
    snprintf(path, sizeof(path), "%.*s", (int)(c->variants[0].value - c->variants[0].set - 1),
             c->variants[0].set);
    named[0] = shorten(name, path);
    ebb_table *table = NULL;
    ebb_status st = ebb_table_new(&table, offloads(c) ? 9 : 8, named);
    for (int i = 0; i < c->n_done && st == EBB_OK; i++) st = add_row(table, c, i);
    if (st == EBB_OK) {
        ebb_table_print(table, stdout);
        print_verdict(c);
    }
    ebb_table_free(table);
    return st == EBB_OK ? CLI_DONE : cli_fail(c->args, st);
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
    if (status != CLI_DONE) return status;
    if (args->json)
        status = print_json(&c);
    else if (!args->quiet && c.n_done > 0)
        status = print_table(&c);
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
               "those that a recompute refilled, at the instant of the peak.  \"predicted\" tells\n"
               "whether the dry run beforehand gave the measured peak, allocated and reserved.\n"
               "Equal gradients have equal hashes.\n",
    .options = options,
    .n_options = sizeof(options) / sizeof(options[0]),
    .run = run,
};
