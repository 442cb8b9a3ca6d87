/* report/trace_run.c: a training run under observation, and its peak. */
#include <string.h>

#include "alloc/peak.h"
#include "core/mem.h"
#include "report/capture.h"
#include "tensor/context.h"
#include "train/config.h"

typedef struct observation {
    ebb_trace *trace;
    const ebb_observer *also; /* the caller's; NULL: none */
    size_t max_events;
    int64_t first_step, last_step;
    bool runs, done;
} observation;

/* ---- the peak ----------------------------------------------------------------------------- */

static ebb_status add_rows(ebb_trace *trace, const ebb__peak_table *table)
{
    trace->rows = ebb__calloc(table->n_rows, sizeof *trace->rows);
    if (!trace->rows) return EBB_ENOMEM;
    for (size_t i = 0; i < table->n_rows; i++) {
        const ebb__peak_row *from = &table->rows[i];
        uint32_t op, scope, by;
        EBB_TRY(ebb__strings_add(&trace->strings, &op, from->op));
        EBB_TRY(ebb__strings_add(&trace->strings, &scope, from->scope));
        EBB_TRY(ebb__strings_add(&trace->strings, &by,
                                 from->freed && from->freed_by_node ? from->freed_by_op : NULL));
        trace->rows[i] = (ebb_trace_row){
            .category = from->category,
            .op = ebb__traced_text(trace, op),
            .scope = ebb__traced_text(trace, scope),
            .bytes = from->bytes,
            .n_blocks = from->n_blocks,
            .freed_by_op = ebb__traced_text(trace, by),
            .freed_by_node = from->freed ? from->freed_by_node : 0,
        };
    }
    trace->summary.rows = trace->rows;
    trace->summary.n_rows = table->n_rows;
    return EBB_OK;
}

static const char *const phase_names[EBB__N_PHASES] = {
    [EBB__PHASE_NONE] = "none",           [EBB__PHASE_FORWARD] = "forward",
    [EBB__PHASE_BACKWARD] = "backward",   [EBB__PHASE_RECOMPUTE] = "recompute",
    [EBB__PHASE_OPTIMIZER] = "optimizer", [EBB__PHASE_EVAL] = "evaluation",
};

const char *ebb__phase_name(ebb__phase phase)
{
    return (unsigned)phase < EBB__N_PHASES ? phase_names[phase] : "unknown";
}

static size_t peak_active(const ebb_trace *trace)
{
    size_t active = 0, peak = 0;
    for (size_t i = 0; i < trace->n_events; i++) {
        const ebb__traced_event *e = &trace->events[i];
        if (e->action == EBB__ACT_ALLOC) active += e->bytes;
        if (e->action == EBB__ACT_FREE_COMPLETED) active -= e->bytes;
        if (active > peak) peak = active;
    }
    return peak;
}

static ebb_status summarize(ebb_trace *trace, const ebb__pool *pool)
{
    ebb_trace_summary *s = &trace->summary;
    ebb__peak_table table = { 0 };
    EBB_TRY(ebb__peak_table_new(&table, pool));
    ebb_status st = add_rows(trace, &table);
    const ebb__traced_owner *by = &trace->owners[trace->events[table.event].owner];
    ebb__pool_stats(pool, &s->memory);
    s->peak_active_bytes = peak_active(trace);
    s->peak_phase = ebb__phase_name(by->phase);
    s->peak_op = ebb__traced_text(trace, by->op);
    s->peak_scope = ebb__traced_text(trace, by->scope);
    s->n_events = trace->n_events;
    s->n_blocks = trace->n_blocks;
    for (size_t i = 0; i < trace->n_events; i++)
        s->n_nodes += trace->events[i].action == EBB__ACT_NODE;
    ebb__peak_table_deinit(&table);
    return st;
}

/* ---- the observer ------------------------------------------------------------------------- */

static ebb_status on_step_begin(void *user, ebb_context *ctx, int64_t step)
{
    observation *o = user;
    if (o->also && o->also->on_step_begin)
        EBB_TRY(o->also->on_step_begin(o->also->user, ctx, step));
    if (step != o->first_step) return EBB_OK;
    EBB_TRY(ebb__trace_start(ebb__context_pool(ctx), o->max_events));
    o->runs = true;
    ebb_memory_reset_peak(ctx);
    ebb_host_memory_reset_peak(ctx);
    return EBB_OK;
}

static ebb_status on_backward(void *user, ebb_context *ctx)
{
    observation *o = user;
    if (o->also && o->also->on_backward) EBB_TRY(o->also->on_backward(o->also->user, ctx));
    return o->runs ? ebb__capture_graph(o->trace, ctx) : EBB_OK;
}

static ebb_status finish(observation *o, ebb_context *ctx)
{
    ebb__pool *pool = ebb__context_pool(ctx);
    ebb_status st = ebb__capture_events(o->trace, pool);
    if (st == EBB_OK) st = ebb__capture_blocks(o->trace);
    if (st == EBB_OK) st = summarize(o->trace, pool);
    ebb_host_memory_stats_get(ctx, &o->trace->summary.host_memory);
    ebb__trace_stop(pool);
    o->runs = false;
    o->done = st == EBB_OK;
    return st;
}

static ebb_status on_step_end(void *user, ebb_context *ctx, int64_t step)
{
    observation *o = user;
    if (o->also && o->also->on_step_end) EBB_TRY(o->also->on_step_end(o->also->user, ctx, step));
    if (o->runs) o->trace->summary.last_step = step;
    return o->runs && step == o->last_step ? finish(o, ctx) : EBB_OK;
}

static ebb_status on_end(void *user, ebb_context *ctx)
{
    observation *o = user;
    if (o->also && o->also->on_end) EBB_TRY(o->also->on_end(o->also->user, ctx));
    return o->runs ? finish(o, ctx) : EBB_OK; /* the run was stopped early */
}

/* ---- the run ------------------------------------------------------------------------------ */

static ebb_status prepare(observation *o, const ebb_config *config, const ebb_train_options *train,
                          const ebb_trace_options *options)
{
    if (!options || options->struct_bytes != sizeof *options)
        return ebb_fail(EBB_EINVAL,
                        "trace options: struct_bytes must be sizeof(ebb_trace_options), %zu",
                        sizeof *options);
    int64_t last = train && train->steps > 0 ? train->steps : config->train.steps;
    int64_t first = options->first_step ? options->first_step : last;
    if (first < 1 || first > last)
        return ebb_fail(EBB_EINVAL, "trace: first step %lld; 1 to %lld", (long long)first,
                        (long long)last);
    if (config->train.capture)
        return ebb_fail(EBB_EINVAL,
                        "trace: train.capture: a step that is launched asks for no memory, so there is nothing "
                        "to trace; set it to false");
    o->first_step = first;
    o->last_step = last;
    o->max_events = options->max_events ? options->max_events : EBB_TRACE_EVENTS;
    o->trace = ebb__calloc(1, sizeof *o->trace);
    if (!o->trace) return EBB_ENOMEM;
    uint32_t name;
    EBB_TRY(ebb__strings_add(&o->trace->strings, &name,
                             options->name ? options->name : config->top.name));
    o->trace->summary.name = ebb__traced_text(o->trace, name);
    o->trace->summary.first_step = first;
    return EBB_OK;
}

static ebb_status train_observed(observation *o, ebb_train_result *result, const ebb_config *config,
                                 const ebb_train_options *train)
{
    const ebb_observer observer = { .user = o,
                                    .on_step_begin = on_step_begin,
                                    .on_backward = on_backward,
                                    .on_step_end = on_step_end,
                                    .on_end = on_end };
    if (!train) return ebb_fail(EBB_EINVAL, "trace: no training options");
    ebb_train_options options = *train;
    o->also = train->observer;
    options.observer = &observer;
    options.skip_eval = true;
    EBB_TRY(ebb_train(result, config, &options));
    if (!o->done)
        return ebb_fail(EBB_ESTATE, "trace: the run ended before step %lld",
                        (long long)o->first_step);
    memcpy(o->trace->device, result->device, sizeof o->trace->device);
    o->trace->summary.device = o->trace->device;
    return EBB_OK;
}

ebb_status ebb_trace_train(ebb_trace **out, ebb_train_result *result, const ebb_config *config,
                           const ebb_train_options *train, const ebb_trace_options *options)
{
    observation o = { 0 };
    ebb_train_result own;
    ebb_status st = prepare(&o, config, train, options);
    if (st == EBB_OK) st = train_observed(&o, result ? result : &own, config, train);
    if (st == EBB_OK)
        *out = o.trace;
    else
        ebb_trace_free(o.trace);
    return st;
}
