/* train --leak-check: what steps leave behind. */
#include <stdlib.h>

#include "cli.h"

ebb_status cli_leak_begin(cli_leak *leak, ebb_context *ctx)
{
    return leak->on && !leak->watch ? ebb_leak_watch_new(&leak->watch, ctx) : EBB_OK;
}

/* Memory may run out before the end, so growth is told once when it has gone on for a while: a list that is
 * still filling up then looks like one, and the end says so where it has stopped. */
enum { FIRST_LOOK = 2 * EBB_LEAK_STEPS };

void cli_leak_step(cli_leak *leak)
{
    if (!leak->watch) return;
    ebb_leak_watch_step(leak->watch);
    if (++leak->steps < FIRST_LOOK || leak->told_at || !ebb_leak_grows(leak->watch)) return;
    ebb_leak_report_get(&leak->report, leak->watch);
    leak->told_at = leak->steps;
    if (leak->line) ebb_progress_clear(leak->line);
    fprintf(stderr, "ebb: warning: step %lld: ", (long long)leak->steps);
    ebb_leak_print(&leak->report, stderr);
}

static const char *verdict(const ebb_leak_report *r)
{
    return r->steps < r->steps_needed ? "too few steps" : r->grows ? "leak" : "none";
}

static void put_report(cli_json *json, const cli_leak *leak)
{
    const ebb_leak_report *r = &leak->report;
    cli_put_text(json, NULL, "verdict", verdict(r));
    cli_put_bool(json, NULL, "grows", r->grows);
    cli_put_number(json, NULL, "steps", (double)r->steps);
    cli_put_number(json, NULL, "steps_needed", (double)r->steps_needed);
    if (leak->told_at) cli_put_number(json, NULL, "warned_at_step", (double)leak->told_at);
    cli_put_number(json, NULL, "since_step", (double)r->since);
    cli_put_bytes(json, NULL, "bytes_per_step", r->bytes_per_step);
    cli_put_bytes(json, NULL, "bytes", r->bytes);
    cli_put_bytes(json, NULL, "graph_bytes", r->graph_bytes);
    cli_put_number(json, NULL, "storages", (double)r->storages);
    cli_put_number(json, NULL, "nodes", (double)r->nodes);
    cli_put_number(json, NULL, "hooks", (double)r->hooks);
    cli_put_number(json, NULL, "cyclic", (double)r->cyclic);
    cJSON *holders = cli_put_array(json, NULL, "holders");
    for (int i = 0; i < r->n_holders; i++) {
        const ebb_leak_holder *h = &r->holders[i];
        cJSON *holder = cli_add_object(json, holders);
        cli_put_text(json, holder, "op", h->op);
        cli_put_text(json, holder, "scope", h->scope);
        cli_put_text(json, holder, "file", h->file);
        cli_put_number(json, holder, "line", h->line);
        cli_put_bytes(json, holder, "bytes", h->bytes);
        cli_put_number(json, holder, "storages", (double)h->storages);
        cli_put_number(json, holder, "nodes", (double)h->nodes);
        cli_put_number(json, holder, "hooks", (double)h->hooks);
        cli_put_text(json, holder, "why", h->why);
    }
}

static void print_verdict(FILE *file, const cli_leak *leak)
{
    ebb_leak_print(&leak->report, file);
    if (leak->told_at && !leak->report.grows)
        fprintf(file, "  what grew at step %lld, as a warning told, has stopped growing since\n",
                (long long)leak->told_at);
}

/* While the model is there: scopes are its names. */
void cli_leak_end(cli_leak *leak)
{
    if (!leak->watch) return;
    ebb_leak_report_get(&leak->report, leak->watch);
    leak->json = (cli_json){ .root = cJSON_CreateObject() };
    leak->json.failed = !leak->json.root;
    put_report(&leak->json, leak);
    FILE *file = open_memstream(&leak->text, &leak->bytes);
    if (!file) return;
    print_verdict(file, leak);
    fclose(file);
}

void cli_put_leak(cli_json *json, cli_leak *leak)
{
    if (!leak->on) return;
    json->failed = json->failed || leak->json.failed ||
                   !cJSON_AddItemToObject(json->root, "leak_check", leak->json.root);
    if (!json->failed) leak->json.root = NULL;
}

void cli_leak_free(cli_leak *leak)
{
    cJSON_Delete(leak->json.root);
    free(leak->text);
    ebb_leak_watch_free(leak->watch);
}
