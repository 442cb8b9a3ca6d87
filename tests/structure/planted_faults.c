/* planted_faults.c: faults that the test set-up must notice; CTest expects each to fail. */
#include "support/support.h"

#include <limits.h>
#include <stdlib.h>

static void *volatile lost;
static volatile int largest = INT_MAX;

Test(planted, leak)
{
    lost = malloc(100);
    lost = NULL;
}

Test(planted, overflow)
{
    cr_assert(largest + 1 != 0);
}

Test(planted, read_behind_the_end)
{
    lost = malloc(8);
    char behind = ((volatile char *)lost)[8];
    (void)behind;
    free(lost);
}

Test(planted, live_block)
{
    with_context(ctx) {
        ebb_tensor *kept = NULL;
        check_ok(ebb_zeros(&kept, ctx, EBB_F32, 0, NULL));
    }
}
