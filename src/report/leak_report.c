#include <ebb/report.h>
#include <stdio.h>
#include <string.h>

static const char *plural(size_t n) { return n == 1 ? "" : "s"; }

enum { AMOUNT_BYTES = 160 };

/* "4.00 MiB in 4 storages, 8 nodes, 1 hook": what is not 0. */
static const char *amount(char text[AMOUNT_BYTES], size_t bytes, size_t storages, size_t nodes, size_t hooks)
{
    const struct {
        const char *name;
        size_t n;
    } parts[] = { { "storage", storages }, { "node", nodes }, { "hook", hooks } };
    char size[32];
    int n = 0;
    text[0] = 0;
    if (bytes > 0) n = snprintf(text, AMOUNT_BYTES, "%s", ebb_size_format(bytes, size, sizeof(size)));
    for (int i = 0; i < 3; i++)
        if (parts[i].n > 0)
            n += snprintf(text + n, (size_t)(AMOUNT_BYTES - n), "%s%zu %s%s", n == 0 ? "" : i == 0 ? " in " : ", ",
                          parts[i].n, parts[i].name, plural(parts[i].n));
    return text;
}

/* "4.00 MiB in 4 storages, by linear in blocks.3 at train.c:20; the newest is kept by", and the lines of why. */
static void print_holder(FILE *file, const ebb_leak_holder *h)
{
    char text[AMOUNT_BYTES];
    const char *slash = strrchr(h->file, '/');
    fprintf(file, "  %s", amount(text, h->bytes, h->storages, h->nodes, h->hooks));
    if (h->op[0]) fprintf(file, ", by %s", h->op);
    if (h->scope[0]) fprintf(file, " in %s", h->scope);
    if (h->line) fprintf(file, " at %s:%d", slash ? slash + 1 : h->file, h->line);
    else fputs(" (line unknown)", file);
    fputs(h->storages + h->nodes + h->hooks > 1 ? "; the newest is kept by\n" : "; kept by\n", file);
    for (const char *line = h->why; *line;) {
        int n = (int)strcspn(line, "\n");
        fprintf(file, "    %.*s\n", n, line);
        line += n + (line[n] == '\n');
    }
}

static void print_growth(FILE *file, const ebb_leak_report *r)
{
    char text[AMOUNT_BYTES], size[32];
    if (r->bytes > 0)
        fprintf(file, "leak: each step leaves %s behind; ", ebb_size_format(r->bytes_per_step, size, sizeof(size)));
    else
        fputs("leak: ", file);
    fprintf(file, "%s more after step %lld than after step %lld\n",
            amount(text, r->bytes, r->storages, r->nodes, r->hooks), (long long)r->steps, (long long)r->since);
    if (r->graph_bytes > 0)
        fprintf(file, "  the graph keeps %s of it\n", ebb_size_format(r->graph_bytes, size, sizeof(size)));
}

void ebb_leak_print(const ebb_leak_report *r, void *file)
{
    if (r->steps < r->steps_needed) {
        fprintf(file, "leak check: too few steps to tell (%lld; at least %lld)\n", (long long)r->steps,
                (long long)r->steps_needed);
        return;
    }
    if (!r->grows) {
        fprintf(file, "no leak: over %lld steps nothing goes on growing\n", (long long)r->steps);
        return;
    }
    print_growth(file, r);
    for (int i = 0; i < r->n_holders; i++) print_holder(file, &r->holders[i]);
    if (r->cyclic > 0)
        fprintf(file, "  %zu tensor%s in cycles that nothing outside reaches: ebb_collect() frees them\n", r->cyclic,
                plural(r->cyclic));
}
