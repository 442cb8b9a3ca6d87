/* fail.c: a CUDA error as the library's message. */
#include "device/cuda/table.h"

/* The function's name out of "cudaMalloc(&p, bytes)". */
static int name_length(const char *call)
{
    int n = 0;
    while (call[n] && call[n] != '(') n++;
    return n;
}

ebb_status ebb__cuda_fail(const ebb__cuda *cuda, cudaError_t error, const char *what)
{
    ebb_status code = error == cudaErrorMemoryAllocation ? EBB_ENOMEM : EBB_EDEVICE;
    const char *op = cuda->op;
    (void)cudaGetLastError(); /* reported here; the next call is not to find it again */
    return EBB__CUDA_FAIL(cuda, code, "cuda:%d: %.*s failed%s%s: %s (%s)", cuda->ordinal, name_length(what), what,
                          op ? " in op " : "", op ? op : "", cudaGetErrorString(error), cudaGetErrorName(error));
}
