/* cuda_fake/absorbed.h: the calls of CUDA whose failure nobody needs to be told, and why.  Where any other fails,
 * somebody gets an error. */
#ifndef EBB_TESTS_ABSORBED_H
#define EBB_TESTS_ABSORBED_H

#include <stdbool.h>
#include <stddef.h>
#include <string.h>

typedef enum fake_absorbed_when {
    ANY_TIME,
    CLOSING /* results have been read, and who closes has nobody to tell */
} fake_absorbed_when;

#define NO_PAGES "no mapped pages: segments that need none, or the pool has no memory, which it tells"
#define NO_PLAN "no plan of cuDNN: attention by our own kernels"

static const struct { const char *call; fake_absorbed_when when; const char *why; } fake_absorbed[] = {
    { "cudaEventQuery", ANY_TIME, "not known to be done: asked again, or waited for" },
    { "cudaDeviceSynchronize", ANY_TIME, "before memory goes: it has waited, and a real error comes again" },
    { "cudaMalloc", ANY_TIME, "the pool returns what it caches, and asks again" },
    { "cudaGetDriverEntryPointByVersion", ANY_TIME, NO_PAGES },
    { "cuMemGetAllocationGranularity", ANY_TIME, NO_PAGES },
    { "cuMemAddressReserve", ANY_TIME, NO_PAGES },
    { "cuMemCreate", ANY_TIME, NO_PAGES },
    { "cuMemMap", ANY_TIME, NO_PAGES },
    { "cuMemSetAccess", ANY_TIME, NO_PAGES },
    { "cuMemUnmap", ANY_TIME, "the page stays, and is taken away with its range; one that was to move tells the pool" },
    { "cudnnCreate", ANY_TIME, NO_PLAN },
    { "cudnnBackendCreateDescriptor", ANY_TIME, NO_PLAN },
    { "cudnnBackendSetAttribute", ANY_TIME, NO_PLAN },
    { "cudnnBackendGetAttribute", ANY_TIME, NO_PLAN },
    { "cudnnBackendFinalize", ANY_TIME, NO_PLAN },
    { "cudaStreamSynchronize", CLOSING, "a stream that is closed, a last wait of the device" },
    { "cudaEventRecord", CLOSING, "a stream that is closed" },
    { "cudaEventSynchronize", CLOSING, "a stream that is closed, a batch that nobody takes any more" },
    { "cudaMemcpyAsync", CLOSING, "a last look at the error word" },
};

/* `call` failed, and nobody was told. */
static inline bool fake_may_be_absorbed(const char *call, bool closing)
{
    for (size_t i = 0; i < sizeof fake_absorbed / sizeof *fake_absorbed; i++)
        if (strcmp(fake_absorbed[i].call, call) == 0) return closing || fake_absorbed[i].when == ANY_TIME;
    return false;
}

#endif
