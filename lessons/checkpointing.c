/* A checkpointed segment keeps its input and makes the rest again in backward.
 * The notes say: it saves 1 - 1/N, for 20 to 30 % more time, 40 to 50 % of the
 * activations.  Measured on 8 blocks: it depends on how they are cut.
 *
 * In PyTorch:
 *     h = torch.utils.checkpoint.checkpoint(block, h, use_reentrant=False)
 *     h = torch.utils.checkpoint.checkpoint_sequential(blocks, 4, h) */
#include "lesson.h"

#include <string.h>

enum { BLOCKS = 8, WIDTH = 128, ROWS = 1024 };
typedef struct net { ebb_tensor *w; int per_segment; } net;
typedef struct result { size_t kept, peak; double flops; float grad[WIDTH * WIDTH]; } result;

static ebb_status blocks(void *user, ebb_tensor **out, ebb_tensor *x)
{
    const net *n = user;
    EBB_LOCAL(h); EBB_LOCAL(y);
    ebb_bind(&h, x);
    for (int i = 0; i < n->per_segment; i++) { /* keeps h, the input of gelu and its output */
        EBB_TRY(ebb_linear(&y, h, n->w, NULL));
        EBB_TRY(ebb_gelu(&y, y, EBB_GELU_TANH));
        EBB_TRY(ebb_linear(&y, y, n->w, NULL));
        EBB_TRY(ebb_add(&h, h, y));
    }
    ebb_move(out, &h);
    return EBB_OK;
}

static ebb_status step(result *r, ebb_context *ctx, net *n, bool checkpointed)
{
    EBB_LOCAL(h);
    double flops = ebb_flops(ctx);
    ebb_seed(ctx, 1);
    EBB_TRY(ebb_normal(&h, ctx, EBB_F32, EBB_SHAPE(ROWS, WIDTH), 0, 1));
    ebb_memory_reset_peak(ctx);
    for (int i = 0; i < BLOCKS; i += n->per_segment)
        EBB_TRY(checkpointed ? ebb_checkpoint(&h, h, blocks, n, NULL) : blocks(n, &h, h));
    EBB_TRY(ebb_mean(&h, h, EBB_ALL_AXES, false));
    r->kept = allocated(ctx) - ebb_storage_bytes(ebb_tensor_storage(n->w));
    EBB_TRY(ebb_backward(h));
    r->peak = ebb_memory_peak_allocated_bytes(ctx);
    r->flops = ebb_flops(ctx) - flops;
    EBB_TRY(ebb_read(ebb_grad(n->w), r->grad, sizeof(r->grad)));
    ebb_drop_grad(n->w);
    return EBB_OK;
}

LESSON(checkpointing, "Checkpointing trades kept bytes for FLOPs, bit for bit")
{
    static result none, r[4];
    bool same = true;
    NAME(w);
    STEP(parameter(&w, ctx, WIDTH, WIDTH));
    STEP(step(&none, ctx, &(net){ w, 1 }, false));
    STEP(step(&r[0], ctx, &(net){ w, 1 }, true));
    STEP(step(&r[1], ctx, &(net){ w, 2 }, true));
    STEP(step(&r[2], ctx, &(net){ w, 4 }, true));
    STEP(step(&r[3], ctx, &(net){ w, 8 }, true));
    TITLES("segments", ">kept", ">of none", ">peak", ">of none", ">FLOPs more");
    ROW("none", size(none.kept), "", size(none.peak), "", "");
    for (int i = 0; i < 4; i++) {
        ROW(number(BLOCKS >> i), size(r[i].kept), percent((double)r[i].kept, (double)none.kept), size(r[i].peak),
            percent((double)r[i].peak, (double)none.peak), percent(r[i].flops - none.flops, none.flops));
        same = same && memcmp(r[i].grad, none.grad, sizeof(none.grad)) == 0;
    }
    END_TABLE();
    CHECK(r[0].kept > r[1].kept && r[1].kept > r[3].kept && r[1].peak < r[0].peak && r[1].peak < r[2].peak,
          "Fewer segments keep less and make more again at once, so the peak is lowest in between.");
    CHECK(r[3].flops > r[0].flops && r[3].peak > none.peak * 9 / 10, "1 - 1/N is neither what is kept nor the peak: "
          "one segment has %s of the peak, for the most FLOPs.", percent((double)r[3].peak, (double)none.peak));
    CHECK(same, "Every gradient is that of the first row, bit for bit.");
    return EBB_OK;
}
