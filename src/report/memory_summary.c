/* report/memory_summary.c: every statistic of a pool in one table. */
#include <ebb/report.h>
#include <stdio.h>
#include <string.h>

enum { N_COLUMNS = 5, N_SHARES = 3 };

typedef struct metric {
    const char *title, *key;
    bool bytes, shares;
} metric;

static const metric metrics[] = {
    { "Allocated memory", "allocated_bytes", true, true },
    { "Active memory", "active_bytes", true, true },
    { "Requested memory", "requested_bytes", true, true },
    { "Reserved memory", "reserved_bytes", true, true },
    { "Inactive split memory", "inactive_split_bytes", true, true },
    { "Allocations", "allocation", false, true },
    { "Active blocks", "active", false, true },
    { "Segments", "segment", false, true },
    { "Inactive split blocks", "inactive_split", false, true },
    { "Oversize allocations", "oversize_allocations", false, false },
    { "Oversize segments", "oversize_segments", false, false },
};
static const char *const values[N_COLUMNS - 1] = { "current", "peak", "allocated", "freed" };
static const char *const shares[N_SHARES] = { "all", "large_pool", "small_pool" };
static const char *const share_titles[N_SHARES] = { NULL, "  of the large pool",
                                                    "  of the small pool" };
static const char *const counts[][2] = {
    { "num_alloc_retries", "retries after a failure" },
    { "num_ooms", "out of memory" },
    { "num_sync_all_streams", "waits for all streams" },
    { "num_device_alloc", "requests to the system" },
    { "num_device_free", "returns to the system" },
};

typedef struct wanted {
    const char *key;
    uint64_t value;
} wanted;

static void pick(void *user, const char *key, uint64_t value)
{
    wanted *w = user;
    if (strcmp(key, w->key) == 0) w->value = value;
}

static uint64_t stat(const ebb_context *ctx, const char *key)
{
    wanted w = { .key = key };
    ebb_memory_each_stat(ctx, pick, &w);
    return w.value;
}

static ebb_status add_row(ebb_table *table, const ebb_context *ctx, const metric *m, int share)
{
    char texts[N_COLUMNS][32], key[96];
    const char *cells[N_COLUMNS];
    cells[0] = share_titles[share] ? share_titles[share] : m->title;
    for (int i = 1; i < N_COLUMNS; i++) {
        if (m->shares)
            snprintf(key, sizeof key, "%s.%s.%s", m->key, shares[share], values[i - 1]);
        else
            snprintf(key, sizeof key, "%s.%s", m->key, values[i - 1]);
        uint64_t value = stat(ctx, key);
        if (m->bytes)
            ebb_size_format((size_t)value, texts[i], sizeof texts[i]);
        else
            snprintf(texts[i], sizeof texts[i], "%llu", (unsigned long long)value);
        cells[i] = texts[i];
    }
    return ebb_table_row(table, cells);
}

static ebb_status add_rows(ebb_table *table, const ebb_context *ctx)
{
    for (size_t i = 0; i < sizeof metrics / sizeof metrics[0]; i++)
        for (int share = 0; share < (metrics[i].shares ? N_SHARES : 1); share++)
            EBB_TRY(add_row(table, ctx, &metrics[i], share));
    return EBB_OK;
}

static void print_counts(const ebb_context *ctx, FILE *file)
{
    for (size_t i = 0; i < sizeof counts / sizeof counts[0]; i++)
        fprintf(file, "%s%s: %llu", i ? "; " : "", counts[i][1],
                (unsigned long long)stat(ctx, counts[i][0]));
    fputc('\n', file);
}

void ebb_memory_summary_print(const ebb_context *ctx, void *file)
{
    static const char *const titles[N_COLUMNS] = { "Metric", ">now", ">peak", ">allocated in all",
                                                   ">freed in all" };
    ebb_memory_stats stats;
    ebb_table *table = NULL;
    ebb_memory_stats_get(ctx, &stats);
    if (ebb_table_new(&table, N_COLUMNS, titles) == EBB_OK && add_rows(table, ctx) == EBB_OK) {
        fprintf(file, "memory of the pool on %s\n", ebb_context_device(ctx));
        ebb_table_print(table, file);
        print_counts(ctx, file);
    }
    ebb_table_free(table);
}
