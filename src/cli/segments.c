/* What segments promised and freed, and what that cost: as JSON, as a table, and as warnings of those that
 * free nothing, which a user would not see otherwise. */
#include <stdlib.h>
#include <string.h>

#include "cli.h"

enum { MOST_WARNINGS = 3 };

/* Reports are of the context, which is gone when they are shown: names are copied. */
static void add(void *user, const ebb_segment_report *report)
{
    cli_segments *s = user;
    cli_segment *grown = realloc(s->all, (size_t)(s->n + 1) * sizeof(*grown));
    if (!grown) {
        s->failed = true;
        return;
    }
    s->all = grown;
    cli_segment *new = &s->all[s->n++];
    new->report = *report;
    snprintf(new->name, sizeof(new->name), "%s", report->name);
}

void cli_segments_collect(ebb_train_options *options, cli_segments *segments)
{
    *segments = (cli_segments){ .n = 0 };
    options->on_segment = add;
    options->segment_user = segments;
}

void cli_segments_free(cli_segments *segments)
{
    free(segments->all);
    *segments = (cli_segments){ .n = 0 };
}

bool cli_segments_free_nothing(const cli_segments *segments)
{
    for (int i = 0; i < segments->n; i++)
        if (segments->all[i].report.warning) return true;
    return false;
}

void cli_segments_warn(const cli_segments *segments, const cli_args *args)
{
    int n = 0;
    if (args->quiet) return;
    for (int i = 0; i < segments->n; i++) {
        const char *why = segments->all[i].report.warning;
        if (why && n++ < MOST_WARNINGS)
            fprintf(stderr, "ebb: warning: segment '%s' frees nothing: %s\n", segments->all[i].name, why);
    }
    if (n > MOST_WARNINGS) fprintf(stderr, "ebb: warning: and %d more segments\n", n - MOST_WARNINGS);
}

void cli_put_segments(cli_json *json, cJSON *object, const cli_segments *segments, bool trained)
{
    cJSON *array = cli_put_array(json, object, "segments");
    for (int i = 0; i < segments->n; i++) {
        const ebb_segment_report *r = &segments->all[i].report;
        cJSON *one = cli_add_object(json, array);
        cli_put_text(json, one, "name", segments->all[i].name);
        cli_put_bytes(json, one, "promised_bytes", r->promised_bytes);
        cli_put_bytes(json, one, "freed_bytes", r->freed_bytes);
        cli_put_bytes(json, one, "input_bytes", r->input_bytes);
        cli_put_text(json, one, "warning", r->warning);
        if (!trained) continue;
        cli_put_number(json, one, "recomputed", (double)r->recomputed);
        cli_put_number(json, one, "recompute_ms", r->recompute_ms);
    }
    if (segments->failed) json->failed = true;
}

static ebb_status add_row(ebb_table *table, const char *name, const ebb_segment_report *r)
{
    char text[5][32];
    ebb_size_format(r->promised_bytes, text[0], sizeof(text[0]));
    ebb_size_format(r->freed_bytes, text[1], sizeof(text[1]));
    ebb_size_format(r->input_bytes, text[2], sizeof(text[2]));
    snprintf(text[3], sizeof(text[3]), "%llu", (unsigned long long)r->recomputed);
    snprintf(text[4], sizeof(text[4]), "%.2f", r->recompute_ms);
    return ebb_table_row(table, (const char *const[]){ name, text[0], text[1], text[2], text[3], text[4] });
}

ebb_status cli_print_segments(const cli_segments *segments, bool trained)
{
    static const char *const titles[] = {
        "segment", ">promised", ">freed", ">inputs kept", ">recomputed", ">extra ms"
    };
    ebb_segment_report all = { 0 };
    ebb_table *table = NULL;
    if (segments->n == 0) {
        printf("no segments: memory.checkpoint is \"none\"\n");
        return EBB_OK;
    }
    ebb_status st = ebb_table_new(&table, trained ? 6 : 4, titles);
    for (int i = 0; i < segments->n && st == EBB_OK; i++) {
        const ebb_segment_report *r = &segments->all[i].report;
        st = add_row(table, segments->all[i].name, r);
        all.promised_bytes += r->promised_bytes;
        all.freed_bytes += r->freed_bytes;
        all.input_bytes += r->input_bytes;
        all.recomputed += r->recomputed;
        all.recompute_ms += r->recompute_ms;
    }
    if (st == EBB_OK) st = add_row(table, "all", &all);
    if (st == EBB_OK) {
        printf("segments, bytes of one micro-batch%s:\n", trained ? ", times of the whole run" : "");
        ebb_table_print(table, stdout);
    }
    ebb_table_free(table);
    return st;
}
