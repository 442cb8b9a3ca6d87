#include "cli.h"

#include <stdlib.h>
#include <string.h>

/* ---- what forward saves, by op -------------------------------------------------------------- */

enum { MAX_OPS = 64 };
typedef struct saved_op { const char *name; size_t tensors, bytes; } saved_op;
typedef struct saved_list { saved_op ops[MAX_OPS]; int n; bool done; } saved_list;

static void add_saved(void *user, const ebb_node *node, const char *slot, const ebb_storage *storage)
{
    (void)slot;
    saved_list *list = user;
    if (ebb_storage_category(storage) != EBB_CAT_ACTIVATION) return;
    const char *name = ebb_node_name(node);
    int i = 0;
    while (i < list->n && strcmp(list->ops[i].name, name) != 0) i++;
    if (i == MAX_OPS) return;
    if (i == list->n) list->ops[list->n++] = (saved_op){ .name = name };
    list->ops[i].tensors++;
    list->ops[i].bytes += ebb_storage_bytes(storage);
}

static ebb_status look_once(void *user, ebb_context *ctx)
{
    saved_list *list = user;
    if (list->done) return EBB_OK;
    list->done = true;
    ebb_each_saved(ctx, add_saved, list);
    return EBB_OK;
}

static int by_bytes(const void *a, const void *b)
{
    size_t x = ((const saved_op *)a)->bytes, y = ((const saved_op *)b)->bytes;
    return x < y ? 1 : x > y ? -1 : 0;
}

static ebb_status print_saved(saved_list *list, int64_t items, const char *item)
{
    const char *titles[] = { "saved by", ">tensors", ">bytes", NULL };
    char per_item[48], cells[3][32];
    ebb_table *table = NULL;
    saved_op total = { .name = "all" };
    snprintf(per_item, sizeof(per_item), ">bytes per %s", item);
    titles[3] = per_item;
    ebb_status st = ebb_table_new(&table, 4, titles);
    qsort(list->ops, (size_t)list->n, sizeof(list->ops[0]), by_bytes);
    for (int i = 0; i <= list->n && st == EBB_OK; i++) {
        const saved_op *op = i < list->n ? &list->ops[i] : &total;
        snprintf(cells[0], sizeof(cells[0]), "%zu", op->tensors);
        ebb_size_format(op->bytes, cells[1], sizeof(cells[1]));
        snprintf(cells[2], sizeof(cells[2]), "%.1f", (double)op->bytes / (double)items);
        st = ebb_table_row(table, (const char *const[]){ op->name, cells[0], cells[1], cells[2] });
        total.tensors += op->tensors;
        total.bytes += op->bytes;
    }
    if (st == EBB_OK) {
        printf("kept by nodes after the forward of one micro-batch, each tensor once:\n");
        ebb_table_print(table, stdout);
    }
    ebb_table_free(table);
    return st;
}

/* ---- the report ------------------------------------------------------------------------------ */

static int report(const cli_args *args, const ebb_train_result *r, const cli_segments *segments)
{
    char count[32], flops[32];
    if (args->json) {
        cli_json json = cli_json_begin();
        cli_put_memory(&json, NULL, &r->memory);
        cli_put_host(&json, NULL, &r->host_memory);
        cli_put_count(&json, NULL, "flops", r->flops);
        cli_put_count(&json, NULL, "recompute_flops", r->recompute_flops);
        cli_put_number(&json, NULL, "parameters", (double)r->parameters);
        cli_put_segments(&json, NULL, segments, false);
        return cli_json_end(&json, args, CLI_DONE);
    }
    if (args->quiet) return CLI_DONE;
    printf("%s parameters; %s floating-point operations per step",
           ebb_count_format((double)r->parameters, count, sizeof(count)),
           ebb_count_format(r->flops, flops, sizeof(flops)));
    if (r->recompute_flops > 0)
        printf(", %s of them recomputed",
               ebb_count_format(r->recompute_flops, flops, sizeof(flops)));
    printf("\n");
    ebb_memory_print(&r->memory, stdout);
    cli_print_host(&r->host_memory, stdout);
    return CLI_DONE;
}

static int run(const cli_args *args)
{
    ebb_config *config = NULL;
    int status = cli_load_config(&config, args);
    if (status != CLI_DONE) return status;
    static ebb_train_result result;
    saved_list saved = { .n = 0 };
    cli_segments segments;
    ebb_train_options options = cli_train_options(args);
    ebb_observer observer = { .user = &saved, .on_backward = look_once };
    if (args->saved) options.observer = &observer;
    cli_segments_collect(&options, &segments);
    ebb_status st = ebb_estimate(&result, config, &options);
    cli_segments_warn(&segments, args);
    status = st == EBB_OK ? report(args, &result, &segments) : cli_fail_run(args, st, config);
    if (st == EBB_OK && !args->json && !args->quiet) {
        const char *item = result.tokens ? "token" : "sample";
        if (args->saved) st = print_saved(&saved, result.micro_batch_items, item);
        if (st == EBB_OK && args->segments) st = cli_print_segments(&segments, false);
        if (st != EBB_OK) status = cli_fail(args, st);
    }
    cli_segments_free(&segments);
    ebb_config_free(config);
    return status;
}

static const cli_option options[] = {
    { "--steps", "N", CLI_COUNT, offsetof(cli_args, steps), "instead of train.steps", false },
    { "--saved", NULL, CLI_FLAG, offsetof(cli_args, saved), "also a table of what forward saves, by op", false },
    { "--segments", NULL, CLI_FLAG, offsetof(cli_args, segments),
      "also a table of what each checkpoint segment promises and frees", false },
};

const cli_command cli_estimate = {
    .name = "estimate",
    .operands = "CONFIG",
    .min_operands = 1,
    .max_operands = 1,
    .summary = "Tells what a run will need, from a dry run; nothing is trained",
    .details = "The training loop runs with kernels that do nothing, so the peak equals the\n"
               "one that `ebb train` measures, to the byte.\n",
    .options = options,
    .n_options = sizeof(options) / sizeof(options[0]),
    .run = run,
};
