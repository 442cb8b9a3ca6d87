#include "train/price.h"

#include <stdio.h>
#include <string.h>

#include "core/mem.h"

typedef struct clock_meter {
    ebb__meter meter;
    const ebb__rates *rates;
    double ns;
} clock_meter;

static void on_kernel(ebb__meter *self, const ebb_call *call, int pass, const ebb__owner *owner, const ebb_cost *cost,
                      double unused)
{
    (void)owner;
    (void)unused;
    clock_meter *m = (clock_meter *)(void *)self;
    m->ns += ebb__rates_ns(m->rates, call, ebb__rate_of(call, pass), cost);
}

/* Of the step that has run: kernels, copies to host memory and back, the optimizer. */
static double step_ns_of(const ebb__run *run, const ebb_config *config, const ebb__rates *rates)
{
    double parameters = (double)config->model.parameters * (double)ebb_dtype_bytes(ebb__config_dtype(config));
    double copied = run->step_work.offloaded_bytes + run->step_work.fetched_bytes;
    return run->step_work.ns + copied / rates->copy_bytes_per_ns + parameters / rates->update_bytes_per_ns;
}

ebb_status ebb__price(ebb_train_result *result, double *step_ns, const ebb_config *config,
                      const ebb_train_options *options, const char *device, const ebb__rates *rates)
{
    clock_meter clock = { .meter.kernel = on_kernel, .rates = rates };
    ebb__run run = { 0 };
    ebb_status st = ebb__run_open_planned(&run, config, options, device);
    if (st == EBB_OK) {
        run.ctx->meter = &clock.meter;
        run.meter_ns = &clock.ns;
        st = ebb__train_cut_short(&run);
    }
    if (st == EBB_OK) {
        ebb__run_result(result, &run);
        *step_ns = step_ns_of(&run, config, rates);
    }
    ebb__run_close(&run);
    return st;
}

/* ---- the config's own checkpointing --------------------------------------------------------- */

typedef struct own_price {
    ebb__rates rates;
    ebb_train_result result;
    ebb_config none; /* `than`, without checkpointing */
} own_price;

static ebb_status price_own(own_price *p, ebb_plan_info *out, const ebb_config *config, const ebb_config *than,
                            const ebb_train_options *options)
{
    double none_ns = 0, own_ns = 0;
    char device[64];
    EBB_TRY(ebb__check_options(options));
    bool dry = options->device && strncmp(options->device, "dry:", 4) == 0;
    snprintf(device, sizeof(device), "%s%s", dry ? "" : "dry:", options->device ? options->device : "cpu");
    ebb_train_options o = { .struct_bytes = sizeof(o), .threads = options->threads, .steps = options->steps };
    p->none = *than;
    p->none.plan = NULL;
    p->none.n_ranges = 0;
    p->none.budget_bytes = 0;
    p->none.memory.limit_bytes = SIZE_MAX; /* none, also on an accelerator */
    EBB_TRY(ebb__rates_load(&p->rates));
    EBB_TRY(ebb__price(&p->result, &none_ns, &p->none, &o, device, &p->rates));
    EBB_TRY(ebb__price(&p->result, &own_ns, config, &o, device, &p->rates));
    *out = (ebb_plan_info){ .peak_reserved_bytes = p->result.memory.peak_reserved_bytes,
                            .peak_allocated_bytes = p->result.memory.peak_allocated_bytes,
                            .peak_host_bytes = p->result.host_memory.peak_reserved_bytes,
                            .overhead = own_ns / none_ns - 1,
                            .recompute_flops = p->result.recompute_flops,
                            .memory = p->result.memory };
    return EBB_OK;
}

ebb_status ebb_plan_price(ebb_plan_info *out, const ebb_config *config, const ebb_config *than,
                          const ebb_train_options *options)
{
    own_price *p = ebb__calloc(1, sizeof(*p));
    if (!p) return EBB_ENOMEM;
    ebb_status st = price_own(p, out, config, than, options);
    ebb__free(p);
    return st;
}
