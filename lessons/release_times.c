/* When do an input's bytes go?  Two layers, h = x w^T and y = h w^T, in five regimes.
 * "In backward" is between its two nodes, when the gradient of h is there.
 *
 * In PyTorch: plain; backward(retain_graph=True); torch.no_grad();
 *     torch.utils.checkpoint.checkpoint(layers, x); h = (x @ w.T).detach() */
#include "lesson.h"

enum regime { PLAIN, RETAIN_GRAPH, NO_GRAD, CHECKPOINTED, DETACHED, N_REGIMES };
enum stage { IN_FORWARD, NAMES_DROPPED, IN_BACKWARD, AFTER_BACKWARD, NEXT_ITERATION, N_STAGES };
typedef struct run {
    enum regime regime;
    ebb_tensor *w;
    uint64_t bytes[2];             /* the storages of x and h that are looked for, */
    const char *seen[2][N_STAGES]; /* and whether they were there */
} run;

static ebb_status look(const ebb_context *ctx, run *r, enum stage stage)
{
    for (int k = 0; k < 2; k++) r->seen[k][stage] = is_alive(ctx, r->bytes[k]) ? "alive" : "free";
    return EBB_OK;
}

static ebb_status on_grad(void *r, ebb_tensor *t, ebb_tensor **grad)
{
    return t ? EBB_OK : look(ebb_tensor_context(*grad), r, IN_BACKWARD);
}

static ebb_status layers(void *user, ebb_tensor **y, ebb_tensor *x)
{
    run *r = user;
    EBB_LOCAL(h); /* a name of this function: dropped when it returns */
    EBB_TRY(ebb_linear(&h, x, r->w, NULL));
    if (r->regime == DETACHED) EBB_TRY(ebb_detach(&h, h));
    else if (r->regime != NO_GRAD) EBB_TRY(ebb_hook_add(h, &(ebb_hook){ .user = r, .on_grad = on_grad }, NULL));
    r->bytes[1] = bytes_of(h);
    EBB_TRY(ebb_linear(y, h, r->w, NULL));
    return look(ebb_tensor_context(x), r, IN_FORWARD);
}

static ebb_status iteration(run *r, ebb_context *ctx)
{
    EBB_WITH_MODE(r->regime == NO_GRAD ? EBB_NO_GRAD : EBB_GRAD_ON);
    EBB_LOCAL(x); EBB_LOCAL(loss);
    EBB_TRY(ebb_normal(&x, ctx, EBB_F32, EBB_SHAPE(1024, 256), 0, 1));
    r->bytes[0] = bytes_of(x);
    EBB_TRY(r->regime == CHECKPOINTED ? ebb_checkpoint(&loss, x, layers, r, NULL) : layers(r, &loss, x));
    EBB_TRY(ebb_mean(&loss, loss, EBB_ALL_AXES, false));
    ebb_drop(&x);
    look(ctx, r, NAMES_DROPPED);
    const ebb_backward_options how = { sizeof(how), .retain_graph = r->regime == RETAIN_GRAPH };
    if (r->regime != NO_GRAD) EBB_TRY(ebb_backward_ex(&loss, 1, &how));
    look(ctx, r, AFTER_BACKWARD);
    ebb_drop(&loss); /* as the next iteration's `loss = ...` does */
    return look(ctx, r, NEXT_ITERATION);
}

LESSON(release_times, "When an input's bytes go, in five regimes: a measured table")
{
    static const char *const names[] = { "plain", "retain_graph", "no_grad", "checkpointed", "detached" };
    static const char *const known[] = { "aaaffaafff", "aaaafaaaaf", "af-ffaf-ff", "aaaffaffff", "af-ffaa-ff" };
    bool as_known = true;
    NAME(w);
    STEP(parameter(&w, ctx, 256, 256));
    TITLES("regime", "of", "in forward", "dropped", "in backward", "after it", "next step");
    for (int i = PLAIN; i < N_REGIMES; i++) {
        SAY("%s:", names[i]);
        run r = { (enum regime)i, w, .seen = { { [IN_BACKWARD] = "-" }, { [IN_BACKWARD] = "-" } } };
        STEP(iteration(&r, ctx));
        for (int k = 0; k < 2; k++) {
            const char **see = r.seen[k];
            ROW(k ? "" : names[i], k ? "h" : "x", see[0], see[1], see[2], see[3], see[4]);
            for (int s = 0; s < N_STAGES; s++) as_known = as_known && see[s][0] == known[i][N_STAGES * k + s];
        }
    }
    END_TABLE();
    CHECK(as_known, "In forward a name holds both. Then the tape: each until its node's backward is done, or the whole "
          "graph goes. A checkpoint keeps x, and makes h again in backward; behind detach() only h is needed.");
    return EBB_OK;
}
