/* train --leak-check: what steps leave behind. */
#include <stdlib.h>

#include "cli.h"

ebb_status cli_leak_begin(cli_leak *leak, ebb_context *ctx)
{
    return leak->on && !leak->watch ? ebb_leak_watch_new(&leak->watch, ctx) : EBB_OK;
}

/* Told once, when it is seen: memory may run out before the end. */
void cli_leak_step(cli_leak *leak)
{
    if (!leak->watch) return;
    ebb_leak_watch_step(leak->watch);
    if (leak->told || ++leak->steps % EBB_LEAK_WINDOW != 0) return;
    ebb_leak_report_get(&leak->report, leak->watch);
    if (!leak->report.grows) return;
    leak->told = true;
    if (leak->line) ebb_progress_clear(leak->line);
    fputs("ebb: warning: ", stderr);
    ebb_leak_print(&leak->report, stderr);
}

static void put_report(cli_json *json, const ebb_leak_report *r)
{
    cli_put_bool(json, NULL, "grows", r->grows);
    cli_put_number(json, NULL, "steps", (double)r->steps);
    cli_put_bytes(json, NULL, "bytes_per_step", r->bytes_per_step);
    cli_put_bytes(json, NULL, "bytes", r->bytes);
    cli_put_bytes(json, NULL, "graph_bytes", r->graph_bytes);
    cli_put_number(json, NULL, "nodes", (double)r->nodes);
    cli_put_number(json, NULL, "cyclic", (double)r->cyclic);
    cJSON *holders = cli_put_array(json, NULL, "holders");
    for (int i = 0; i < r->n_holders; i++) {
        const ebb_leak_holder *h = &r->holders[i];
        cJSON *holder = cli_add_object(json, holders);
        cli_put_text(json, holder, "op", h->op);
        cli_put_text(json, holder, "scope", h->scope);
        cli_put_text(json, holder, "file", h->file);
        cli_put_number(json, holder, "line", h->line);
        cli_put_number(json, holder, "storages", (double)h->n);
        cli_put_bytes(json, holder, "bytes", h->bytes);
        cli_put_text(json, holder, "why", h->why);
    }
}

/* While the model is there: scopes are its names. */
void cli_leak_end(cli_leak *leak)
{
    if (!leak->watch) return;
    ebb_leak_report_get(&leak->report, leak->watch);
    leak->json = (cli_json){ .root = cJSON_CreateObject() };
    leak->json.failed = !leak->json.root;
    put_report(&leak->json, &leak->report);
    FILE *file = open_memstream(&leak->text, &leak->bytes);
    if (!file) return;
    ebb_leak_print(&leak->report, file);
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
