/* train.fuse_optimizer: the optimizer inside the last backward of a step.  Each gradient is consumed and
 * freed when it is complete, so never are all of them alive. */
#include "tensor/context.h"
#include "train/run.h"

static ebb_status consume(ebb__run *run, ebb_tensor *param)
{
    double start = ebb__now_ms();
    if (run->hash) EBB_TRY(ebb__gradient_hash_one(run->hash, param));
    run->hash_ms += ebb__now_ms() - start;
    EBB_TRY(ebb_optim_step_one(run->optim, param));
    ebb_drop_grad(param);
    return EBB_OK;
}

static ebb_status on_accumulated(void *user, ebb_tensor *param)
{
    ebb__run *run = user;
    if (!run->fusing) return EBB_OK; /* an earlier micro-batch */
    ebb__phase before = ebb__phase_set(run->ctx, EBB__PHASE_OPTIMIZER);
    ebb_status st = consume(run, param);
    ebb__phase_set(run->ctx, before);
    return st;
}

ebb_status ebb__fused_open(ebb__run *run)
{
    const ebb_named_tensor *params = NULL;
    int n = ebb_model_params(run->model, &params);
    ebb_hook hook = { .user = run, .on_accumulated = on_accumulated };
    for (int i = 0; i < n; i++)
        if (ebb_requires_grad(params[i].tensor)) EBB_TRY(ebb_hook_add(params[i].tensor, &hook, NULL));
    return EBB_OK;
}

ebb_status ebb__fused_backward(ebb__run *run, ebb_tensor *loss, double lr)
{
    EBB_TRY(ebb_optim_step_begin(run->optim, lr));
    run->fusing = true;
    ebb_status st = ebb_backward(loss);
    run->fusing = false;
    return st;
}

ebb_status ebb__fused_finish(ebb__run *run)
{
    const ebb_named_tensor *params = NULL;
    int n = ebb_model_params(run->model, &params);
    for (int i = 0; i < n; i++) EBB_TRY(ebb_optim_step_one(run->optim, params[i].tensor));
    return EBB_OK;
}
