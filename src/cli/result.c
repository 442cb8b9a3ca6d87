/* A result as JSON fields and as text. */
#include <string.h>

#include "cli.h"

bool cli_is_dry(const ebb_train_result *result) { return strncmp(result->device, "dry:", 4) == 0; }

void cli_put_memory(cli_json *json, cJSON *object, const ebb_memory_stats *memory)
{
    cli_put_bytes(json, object, "peak_allocated_bytes", memory->peak_allocated_bytes);
    cli_put_bytes(json, object, "peak_reserved_bytes", memory->peak_reserved_bytes);
    cli_put_bytes(json, object, "peak_requested_bytes", memory->peak_requested_bytes);
    cJSON *by = cli_put_object(json, object, "memory");
    for (int i = 0; i < EBB_N_CATEGORIES; i++)
        cli_put_bytes(json, by, ebb_category_name((ebb_category)i), memory->by_category_at_peak[i]);
}

void cli_put_host(cli_json *json, cJSON *object, const ebb_memory_stats *host)
{
    cli_put_bytes(json, object, "host_peak_allocated_bytes", host->peak_allocated_bytes);
    cli_put_bytes(json, object, "host_peak_reserved_bytes", host->peak_reserved_bytes);
}

void cli_print_host(const ebb_memory_stats *host, FILE *file)
{
    char allocated[32], reserved[32];
    if (host->peak_allocated_bytes == 0) return;
    fprintf(file, "  %-16s %12s  beside (offloaded tensors; %s reserved)\n", "host memory",
            ebb_size_format(host->peak_allocated_bytes, allocated, sizeof(allocated)),
            ebb_size_format(host->peak_reserved_bytes, reserved, sizeof(reserved)));
}

static void put_evaluation(cli_json *json, cJSON *object, const ebb_train_result *r)
{
    bool computed = !cli_is_dry(r);
    cli_put_known(json, object, "eval_loss", r->eval_loss, computed && r->has_eval);
    if (r->has_accuracy)
        cli_put_known(json, object, "eval_accuracy", r->eval_accuracy, computed);
}

void cli_put_result(cli_json *json, cJSON *object, const ebb_train_result *r)
{
    cli_put_text(json, object, "device", r->device);
    cli_put_number(json, object, "threads", r->threads);
    cli_put_number(json, object, "steps", (double)r->steps);
    cli_put_known(json, object, "loss_first", r->loss_first, !cli_is_dry(r));
    cli_put_known(json, object, "loss_last", r->loss_last, !cli_is_dry(r));
    put_evaluation(json, object, r);
    cli_put_known(json, object, "loss_scale", r->loss_scale, r->loss_scale > 0);
    cli_put_number(json, object, "skipped_steps", (double)r->skipped_steps);
    cli_put_known(json, object, "step_ms", r->step_ms, !cli_is_dry(r));
    cli_put_known(json, object, r->tokens ? "tokens_per_s" : "samples_per_s", r->items_per_s, !cli_is_dry(r));
    cli_put_memory(json, object, &r->memory);
    cli_put_host(json, object, &r->host_memory);
    cli_put_known(json, object, "outside_bytes", (double)r->outside_bytes, !cli_is_dry(r));
    cli_put_text(json, object, "run_dir", r->run_dir[0] ? r->run_dir : NULL);
}

/* What a dry run does not compute. */
static void print_computed(const ebb_train_result *r, FILE *file)
{
    char rate[32];
    fprintf(file, "  loss             %.4f at first, %.4f at last\n", r->loss_first, r->loss_last);
    if (r->has_eval) fprintf(file, "  evaluation loss  %.4f\n", r->eval_loss);
    if (r->has_accuracy) fprintf(file, "  accuracy         %.2f %%\n", 100 * r->eval_accuracy);
    if (r->loss_scale > 0)
        fprintf(file, "  loss scale       %g at last, %lld steps skipped\n", r->loss_scale,
                (long long)r->skipped_steps);
    fprintf(file, "  step             %.4g ms (median), %s %s/s\n", r->step_ms,
            ebb_count_format(r->items_per_s, rate, sizeof(rate)), r->tokens ? "tokens" : "samples");
}

void cli_print_result(const ebb_train_result *r, FILE *file)
{
    char count[32], outside[32];
    fprintf(file, "%lld steps on %s with %d thread%s; %s parameters\n", (long long)r->steps,
            r->device, r->threads, r->threads == 1 ? "" : "s",
            ebb_count_format((double)r->parameters, count, sizeof(count)));
    if (!cli_is_dry(r)) print_computed(r, file);
    ebb_memory_print(&r->memory, file);
    cli_print_host(&r->host_memory, file);
    if (!cli_is_dry(r))
        fprintf(file, "  %-16s %12s\n", "outside the pool",
                ebb_size_format(r->outside_bytes, outside, sizeof(outside)));
    if (r->run_dir[0]) fprintf(file, "run folder: %s\n", r->run_dir);
}
