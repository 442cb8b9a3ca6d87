/* Offloaded bytes whose handles are dropped, and whose memory is asked for again, while the copy to the
 * host may still read them (field case B39).  Each vector holds one value; its gradient tells whether
 * that value, or another that came into the same memory, is what was copied. */
#include <stdio.h>

#include <ebb/ebb.h>

#ifdef __SANITIZE_THREAD__ /* twenty times slower; each kind of round is there twice */
enum { N_ROUNDS = 6 };
#else
enum { N_ROUNDS = 12 };
#endif
enum { DEPTH = 5 };

static int64_t n_wrong, n_checked;

/* Binds *out to the sum of w * c over DEPTH vectors of c = 1, 2, ..., each made by an op and dropped. */
static ebb_status forward(ebb_tensor **out, ebb_context *ctx, ebb_tensor *const w[DEPTH], int64_t n)
{
    for (int i = 0; i < DEPTH; i++) {
        EBB_LOCAL(c);
        EBB_LOCAL(y);
        EBB_LOCAL(again);
        EBB_TRY(ebb_full(&c, ctx, EBB_F32, 1, &n, 1));
        EBB_TRY(ebb_scale(&c, c, i + 1));
        EBB_TRY(ebb_mul(&y, c, w[i]));
        if (i % 2) EBB_TRY(ebb_fill(c, -7)); /* waits for the copy */
        ebb_drop(&c);
        EBB_TRY(ebb_full(&again, ctx, EBB_F32, 1, &n, -7)); /* as large as c */
        EBB_TRY(ebb_sum(&y, y, 0, NULL, false));
        if (*out) EBB_TRY(ebb_add(out, *out, y));
        else ebb_move(out, &y);
    }
    return EBB_OK;
}

static ebb_status check(ebb_tensor *const w[DEPTH])
{
    for (int i = 0; i < DEPTH; i++) {
        const float *grad = ebb_tensor_data(ebb_grad(w[i]));
        for (int64_t k = 0; k < ebb_tensor_elems(w[i]); k += 7, n_checked++) n_wrong += grad[k] != (float)(i + 1);
        ebb_drop_grad(w[i]);
    }
    return EBB_OK;
}

static ebb_status run(ebb_context *ctx, ebb_tensor *w[DEPTH], int64_t n)
{
    for (int i = 0; i < DEPTH; i++) {
        EBB_TRY(ebb_full(&w[i], ctx, EBB_F32, 1, &n, 0.5));
        EBB_TRY(ebb_set_requires_grad(w[i], true));
    }
    for (int round = 0; round < N_ROUNDS; round++) {
        EBB_LOCAL(loss);
        ebb_backward_options retain = { .struct_bytes = sizeof retain, .retain_graph = round % 3 == 1 };
        EBB_TRY(forward(&loss, ctx, w, n));
        if (round % 3 == 2) continue; /* dropped with copies under way */
        EBB_TRY(ebb_backward_ex(&loss, 1, &retain));
        EBB_TRY(check(w));
        if (!retain.retain_graph) continue;
        EBB_TRY(ebb_backward(loss)); /* from the host once more */
        EBB_TRY(check(w));
    }
    return EBB_OK;
}

int main(void)
{
    static const int64_t sizes[] = { 1000, 60000, 400000 };
    ebb_status st = EBB_OK;
    for (int k = 0; k < 3 && st == EBB_OK; k++) {
        ebb_context *ctx = NULL;
        ebb_tensor *w[DEPTH] = { NULL };
        ebb_context_options o = { .struct_bytes = sizeof o, .threads = 2, .checks = -1 };
        st = ebb_context_new(&ctx, &o);
        if (st != EBB_OK) break;
        st = ebb_op_saver(ctx, "scale", EBB_SAVER_OFFLOAD, NULL);
        if (st == EBB_OK) st = run(ctx, w, sizes[k]);
        for (int i = 0; i < DEPTH; i++) ebb_drop(&w[i]);
        ebb_context_free(ctx);
    }
    printf("%lld values, %lld wrong, %lld host blocks alive; %s\n", (long long)n_checked, (long long)n_wrong,
           (long long)ebb_host_live_blocks(), st == EBB_OK ? "done" : ebb_message());
    return st == EBB_OK && n_wrong == 0 && n_checked > 0 && ebb_host_live_blocks() == 0 ? 0 : 1;
}
