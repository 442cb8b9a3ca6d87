/* Memory runs out at every allocation of a training step, one after another. */
#include <ebb/train.h>

#include "support/support.h"

static const char model_json[] =
    "{\"type\":\"gpt\",\"layers\":2,\"heads\":2,\"width\":8,\"context\":4,\"vocab\":12,\"dropout\":0.1}";
static const char data_json[] =
    "{\"type\":\"synthetic\",\"kind\":\"tokens\",\"items\":4,\"eval_items\":2,\"seed\":1}";

typedef struct parts {
    ebb_model *model;
    ebb_dataset *data;
    ebb_loader *train, *eval;
    ebb_optim *optim;
} parts;

static ebb_status build(parts *p, ebb_context *ctx)
{
    const ebb_named_tensor *params = NULL;
    ebb_optim_options optim = { .struct_bytes = sizeof(optim) };
    ebb_loader_options loader = { .struct_bytes = sizeof(loader), .batch = 2, .seed = 1, .dtype = EBB_F32 };
    EBB_TRY(ebb_model_new(&p->model, ctx, model_json, EBB_F32, 1));
    EBB_TRY(ebb_model_set_checkpoint(p->model, &(ebb_block_range){ 0, 0 }, 1));
    EBB_TRY(ebb_recompute_ops(ctx, (const char *const[]){ "gelu", "layernorm" }, 2));
    EBB_TRY(ebb_op_saver(ctx, "*", EBB_SAVER_OFFLOAD, NULL));
    EBB_TRY(ebb_op_saver(ctx, "add", EBB_SAVER_INT8, NULL));
    EBB_TRY(ebb_dataset_open(&p->data, data_json, true, 4, 12, 1));
    EBB_TRY(ebb_dataset_load(p->data));
    EBB_TRY(ebb_optim_options_parse(&optim, "{\"type\":\"adamw\",\"lr\":1e-3}", "optimizer"));
    int n = ebb_model_params(p->model, &params);
    EBB_TRY(ebb_optim_new(&p->optim, ctx, params, n, &optim));
    EBB_TRY(ebb_loader_new(&p->train, ctx, p->data, &loader));
    loader.eval = true;
    return ebb_loader_new(&p->eval, ctx, p->data, &loader);
}

static ebb_status forward(ebb_tensor **loss, parts *p, ebb_loader *loader)
{
    ebb_tensor *inputs = NULL, *targets = NULL;
    int64_t items, counted;
    EBB_TRY(ebb_loader_next(loader, &inputs, &targets, &items, &counted));
    return ebb_model_loss(loss, p->model, inputs, targets, 0);
}

static ebb_status train_once(parts *p)
{
    EBB_LOCAL(loss);
    double norm;
    EBB_TRY(forward(&loss, p, p->train));
    EBB_TRY(ebb_backward(loss));
    EBB_TRY(ebb_optim_clip(p->optim, 0.1, &norm));
    EBB_TRY(ebb_optim_step(p->optim, 1e-3));
    ebb_optim_drop_grads(p->optim);
    return EBB_OK;
}

static ebb_status evaluate_once(parts *p)
{
    EBB_LOCAL(loss);
    EBB_WITH_MODE(EBB_NO_GRAD);
    ebb_model_train_mode(p->model, false);
    ebb_loader_rewind(p->eval);
    return forward(&loss, p, p->eval);
}

static void close_parts(parts *p)
{
    ebb_loader_free(p->train);
    ebb_loader_free(p->eval);
    ebb_optim_free(p->optim);
    ebb_dataset_close(p->data);
    ebb_model_free(p->model);
}

static ebb_status whole_step(void)
{
    ebb_context *ctx = NULL;
    ebb_context_options o = { .struct_bytes = sizeof(o), .threads = 1, .seed = 1, .checks = -1 };
    parts p = { 0 };
    EBB_TRY(ebb_context_new(&ctx, &o));
    ebb_status st = build(&p, ctx);
    if (st == EBB_OK) st = train_once(&p);
    if (st == EBB_OK) st = evaluate_once(&p);
    close_parts(&p);
    ebb_memory_stats m;
    ebb_memory_stats_get(ctx, &m);
    cr_assert(m.allocated_bytes == 0, "%zu bytes of the pool are alive", m.allocated_bytes);
    ebb_host_memory_stats_get(ctx, &m);
    cr_assert(m.allocated_bytes == 0, "%zu bytes of the host pool are alive", m.allocated_bytes);
    cr_assert_eq(ebb_live_nodes(ctx), 0);
    ebb_context_free(ctx);
    return st;
}

Test(training_faults, every_allocation_of_a_step_may_fail)
{
    check_ok(whole_step()); /* what libraries allocate once is allocated */
    int64_t live = ebb_host_live_blocks();
    uint64_t n = 0;
    bool fired = true;
    while (fired) {
        ebb_fault_arm(++n);
        ebb_status st = whole_step();
        fired = ebb_fault_fired();
        ebb_fault_arm(0);
        cr_assert(st == (fired ? EBB_ENOMEM : EBB_OK), "allocation %llu: %s: %s", (unsigned long long)n,
                  ebb_status_name(st), ebb_message());
        cr_assert(ebb_host_live_blocks() == live, "allocation %llu: %lld host blocks are alive, %lld before",
                  (unsigned long long)n, (long long)ebb_host_live_blocks(), (long long)live);
    }
    cr_assert(n > 300, "a step makes more than %llu allocations", (unsigned long long)n);
}

/* A step that failed midway leaves the model usable: the same step again gives what it would have
 * given. */
Test(training_faults, a_step_that_failed_can_be_done_again)
{
    with_options(ctx, ((ebb_context_options){ .threads = 1 })) {
        parts p = { 0 };
        check_ok(build(&p, ctx));
        for (uint64_t n = 1;; n++) {
            ebb_memory_stats before, after;
            ebb_memory_stats_get(ctx, &before);
            ebb_fault_arm(n);
            ebb_status st = train_once(&p);
            bool fired = ebb_fault_fired();
            ebb_fault_arm(0);
            check_status(st, fired ? EBB_ENOMEM : EBB_OK);
            ebb_gradients_reset(ctx);
            ebb_optim_drop_grads(p.optim);
            ebb_memory_stats_get(ctx, &after);
            cr_assert(after.allocated_bytes == before.allocated_bytes,
                      "allocation %llu: %zu bytes, %zu before",
                      (unsigned long long)n, after.allocated_bytes, before.allocated_bytes);
            cr_assert_eq(ebb_live_nodes(ctx), 0);
            if (!fired) break;
        }
        cr_assert_eq(ebb_optim_steps(p.optim), 1, "steps that failed do not count");
        close_parts(&p);
    }
}
