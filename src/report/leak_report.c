#include <ebb/report.h>
#include <stdio.h>
#include <string.h>

static const char *plural(size_t n) { return n == 1 ? "" : "s"; }

/* "4.00 MiB in 4 storages, by linear in blocks.3 at train.c:20; the newest is kept by", and the lines of why. */
static void print_holder(FILE *file, const ebb_leak_holder *h)
{
    char bytes[32];
    const char *slash = strrchr(h->file, '/');
    fprintf(file, "  %s in %zu storage%s", ebb_size_format(h->bytes, bytes, sizeof(bytes)), h->n, plural(h->n));
    if (h->op[0]) fprintf(file, ", by %s", h->op);
    if (h->scope[0]) fprintf(file, " in %s", h->scope);
    if (h->line) fprintf(file, " at %s:%d", slash ? slash + 1 : h->file, h->line);
    fprintf(file, "%s\n", h->n == 1 ? "; it is kept by" : "; the newest is kept by");
    for (const char *line = h->why; *line;) {
        int n = (int)strcspn(line, "\n");
        fprintf(file, "    %.*s\n", n, line);
        line += n + (line[n] == '\n');
    }
}

void ebb_leak_print(const ebb_leak_report *r, void *file)
{
    char all[32], graph[32], step[32];
    if (!r->grows) {
        fprintf(file, "no leak: over %lld steps nothing piles up\n", (long long)r->steps);
        return;
    }
    fprintf(file, "leak: each step leaves %s behind; after %lld steps %s in %zu storage%s\n",
            ebb_size_format(r->bytes_per_step, step, sizeof(step)), (long long)r->steps,
            ebb_size_format(r->bytes, all, sizeof(all)), r->n, plural(r->n));
    if (r->nodes > 0)
        fprintf(file, "  %zu node%s of the graph, which keep %s of it\n", r->nodes, plural(r->nodes),
                ebb_size_format(r->graph_bytes, graph, sizeof(graph)));
    for (int i = 0; i < r->n_holders; i++) print_holder(file, &r->holders[i]);
    if (r->cyclic > 0)
        fprintf(file, "  %zu tensor%s in cycles that nothing outside reaches: ebb_collect() frees them\n", r->cyclic, plural(r->cyclic));
}
