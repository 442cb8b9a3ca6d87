/* What the system sees (resident memory here, nvidia-smi there) is what the pool
 * has reserved and touched, and what is outside the pool.
 *
 * In PyTorch:
 *     nvidia-smi                    # reserved, and the CUDA context
 *     torch.cuda.memory_reserved()  # what of it is the pool's */
#include "lesson.h"

#include <stdio.h>
#include <unistd.h>

/* Resident memory of this process, as the system counts it. */
static size_t resident(void)
{
    unsigned long whole = 0, pages = 0;
    FILE *file = fopen("/proc/self/statm", "r");
    if (!file) return 0;
    if (fscanf(file, "%lu %lu", &whole, &pages) != 2) pages = 0;
    fclose(file);
    return pages * (size_t)sysconf(_SC_PAGESIZE);
}

static bool near(size_t a, size_t b) { return a < b + 20 * MiB && b < a + 20 * MiB; }

LESSON(driver, "The system's view: what is reserved, and what is outside")
{
    NAME(x);
    const size_t before = resident(), outside = ebb_memory_outside_bytes(ctx);
    STEP(ebb_full(&x, ctx, EBB_F32, EBB_SHAPE(32, 1024, 1024), 1));
    CHECK(reserved(ctx) == 128 * MiB && near(resident(), before + 128 * MiB),
          "%s reserved and written to: the process grew by as much, within 20 MiB.", size(reserved(ctx)));
    CHECK(near(ebb_memory_outside_bytes(ctx), outside), "What is outside the pool stayed as it was, "
          "within 20 MiB: program, libraries, their buffers.");

    DO(ebb_drop(&x));
    CHECK(allocated(ctx) == 0 && near(resident(), before + 128 * MiB), "Dropped: %s allocated, and the "
          "system sees no change, since the pool keeps the segment.", size(allocated(ctx)));
    DO(ebb_memory_empty_cache(ctx));
    CHECK(near(resident(), before), "Given back: the process is as large as before, within 20 MiB.");
    return EBB_OK;
}
