/* A program that knows ebb only as it is installed: d(x * x)/dx at 3 is 6. */
#include <ebb/ebb.h>
#include <stdio.h>

static ebb_status slope(double *out, ebb_context *ctx)
{
    EBB_LOCAL(x);
    EBB_LOCAL(y);
    EBB_TRY(ebb_full(&x, ctx, EBB_F32, 0, NULL, 3.0));
    EBB_TRY(ebb_set_requires_grad(x, true));
    EBB_TRY(ebb_mul(&y, x, x));
    EBB_TRY(ebb_backward(y));
    return ebb_item(ebb_grad(x), out);
}

int main(void)
{
    ebb_context *ctx = NULL;
    double dx = 0;
    ebb_status st = ebb_context_new(&ctx, NULL);
    if (st == EBB_OK) st = slope(&dx, ctx);
    ebb_context_free(ctx);
    if (st != EBB_OK) {
        fprintf(stderr, "%s: %s\n", ebb_status_name(st), ebb_message());
        return 1;
    }
    printf("slope %g\n", dx);
    return dx == 6.0 ? 0 : 1;
}
