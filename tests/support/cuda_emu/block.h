/* block.h: one block of threads, run by one worker.  Between launch.cpp and block.cpp. */
#ifndef EBB_TESTS_EMU_BLOCK_H
#define EBB_TESTS_EMU_BLOCK_H

#include "cuda_emu.h"
#include "emu_control.h"
#undef threadIdx
#undef blockIdx
#undef blockDim
#undef gridDim

struct emu_grid {
    const char *kernel;
    emu_span shared; /* what the kernel's file declares */
    dim3 grid, block;
    size_t shared_bytes;
    void (*call)(const void *arguments);
    const void *arguments;
    emu_order order;
    unsigned seed;
};

/* The stacks and shared memory that blocks run with, one after the other; used by one host thread at a time, and
 * kept until the program ends: for ThreadSanitizer a stack costs a millisecond to make. */
struct emu_worker;
emu_worker *emu_worker_new();
/* Runs all threads of block `number` to their end, on the calling host thread. */
void emu_run_block(emu_worker *worker, emu_grid *grid, long number);
unsigned emu_random(unsigned *state);

#endif
