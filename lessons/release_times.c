/* When do an input's bytes go?  Two layers, h = x w1^T and y = h w2^T, run in
 * five regimes; after each stage the storages of x and h are looked for.
 *
 * In PyTorch: plain; backward(retain_graph=True); torch.no_grad();
 *     torch.utils.checkpoint.checkpoint(layers, x); h = (x @ w1.T).detach() */
#include "lesson.h"

enum regime { PLAIN, RETAIN_GRAPH, NO_GRAD, CHECKPOINTED, DETACHED, N_REGIMES };
enum stage { IN_FORWARD, NAMES_DROPPED, AFTER_BACKWARD, NEXT_ITERATION, N_STAGES };

typedef struct run {
    enum regime regime;
    ebb_tensor *w1, *w2;
    uint64_t x, h;                 /* the storages that are looked for, */
    const char *seen[2][N_STAGES]; /* and whether they were there */
} run;

static void look(const ebb_context *ctx, run *r, enum stage stage)
{
    r->seen[0][stage] = is_alive(ctx, r->x) ? "alive" : "free";
    r->seen[1][stage] = is_alive(ctx, r->h) ? "alive" : "free";
}

static ebb_status layers(void *user, ebb_tensor **y, ebb_tensor *x)
{
    run *r = user;
    EBB_LOCAL(h); /* a name of this function: dropped when it returns */
    EBB_TRY(ebb_linear(&h, x, r->w1, NULL));
    if (r->regime == DETACHED) EBB_TRY(ebb_detach(&h, h));
    r->h = bytes_of(h);
    EBB_TRY(ebb_linear(y, h, r->w2, NULL));
    look(ebb_tensor_context(x), r, IN_FORWARD);
    return EBB_OK;
}

static ebb_status iteration(run *r, ebb_context *ctx)
{
    EBB_WITH_MODE(r->regime == NO_GRAD ? EBB_NO_GRAD : EBB_GRAD_ON);
    EBB_LOCAL(x); EBB_LOCAL(loss);
    EBB_TRY(ebb_normal(&x, ctx, EBB_F32, EBB_SHAPE(1024, 256), 0, 1));
    r->x = bytes_of(x);
    if (r->regime == CHECKPOINTED) EBB_TRY(ebb_checkpoint(&loss, x, layers, r, NULL));
    else EBB_TRY(layers(r, &loss, x));
    EBB_TRY(ebb_mean(&loss, loss, EBB_ALL_AXES, false));
    ebb_drop(&x);
    look(ctx, r, NAMES_DROPPED);
    const ebb_backward_options how = { sizeof(how), .retain_graph = r->regime == RETAIN_GRAPH };
    if (r->regime != NO_GRAD) EBB_TRY(ebb_backward_ex(&loss, 1, &how));
    look(ctx, r, AFTER_BACKWARD);
    ebb_drop(&loss); /* as the next iteration's `loss = ...` does */
    look(ctx, r, NEXT_ITERATION);
    return EBB_OK;
}

LESSON(release_times, "When an input's bytes go, in five regimes: a measured table")
{
    static const char *const names[] = { "plain", "retain_graph", "no_grad", "checkpointed", "detached" };
    static const int stages_alive[N_REGIMES][2] = { { 2, 2 }, { 3, 3 }, { 1, 1 }, { 2, 1 }, { 1, 2 } };
    NAME(w1); NAME(w2);
    STEP(parameter(&w1, ctx, 256, 256));
    STEP(parameter(&w2, ctx, 256, 256));
    run r = { .w1 = w1, .w2 = w2 };
    bool as_known = true;
    TITLES("regime", "of", "in forward", "names dropped", "after backward", "next step");
    for (r.regime = PLAIN; r.regime < N_REGIMES; r.regime++) {
        STEP(iteration(&r, ctx));
        for (int k = 0; k < 2; k++) {
            const char **see = r.seen[k];
            ROW(k ? "" : names[r.regime], k ? "h" : "x", see[0], see[1], see[2], see[3]);
            for (int s = 0; s < N_STAGES; s++)
                as_known = as_known && (see[s][0] == 'a') == (s < stages_alive[r.regime][k]);
        }
    }
    END_TABLE();
    CHECK(as_known, "In forward a name holds both. Then the tape does: until that node's backward, or with "
          "retain_graph until the graph goes. A checkpoint keeps its input x, not h, which backward "
          "makes again; behind detach() the tape needs h only.");
    return EBB_OK;
}
