#include <ebb/report.h>
#include <stdio.h>

static void print_line(FILE *file, const char *name, size_t bytes, size_t of)
{
    char text[32];
    ebb_size_format(bytes, text, sizeof(text));
    fprintf(file, "  %-16s %12s", name, text);
    if (of > 0) fprintf(file, "  %5.1f %%", 100.0 * (double)bytes / (double)of);
    fputc('\n', file);
}

/* The largest category that is not done; -1: none with bytes is left. */
static int next_largest(const ebb_memory_stats *stats, const bool done[EBB_N_CATEGORIES])
{
    int best = -1;
    for (int i = 0; i < EBB_N_CATEGORIES; i++) {
        size_t bytes = stats->by_category_at_peak[i];
        if (!done[i] && bytes > 0 && (best < 0 || bytes > stats->by_category_at_peak[best]))
            best = i;
    }
    return best;
}

void ebb_memory_print(const ebb_memory_stats *stats, void *file)
{
    bool done[EBB_N_CATEGORIES] = { false };
    fprintf(file, "memory at the peak:\n");
    for (int at = next_largest(stats, done); at >= 0; at = next_largest(stats, done)) {
        done[at] = true;
        print_line(file, ebb_category_name((ebb_category)at), stats->by_category_at_peak[at],
                   stats->peak_allocated_bytes);
    }
    print_line(file, "allocated", stats->peak_allocated_bytes, 0);
    print_line(file, "reserved", stats->peak_reserved_bytes, 0);
}
