/* block.h: one block of threads, run by one worker.  Between launch.cpp and block.cpp. */
#ifndef EBB_TESTS_EMU_BLOCK_H
#define EBB_TESTS_EMU_BLOCK_H

#include <functional>

#include "cuda_emu.h"
#include "emu_control.h"
#undef threadIdx
#undef blockIdx
#undef blockDim
#undef gridDim

struct emu_grid {
    const char *kernel;
    dim3 grid, block;
    size_t shared_bytes;
    const std::function<void()> *body;
    emu_order order;
    unsigned seed;
    char begun, done; /* for emu_acquire and emu_release */
};

/* Runs all threads of block `number` to their end, on the calling host thread. */
void emu_run_block(emu_grid *grid, long number);
/* Frees what the calling host thread keeps for its next block. */
void emu_worker_free();
unsigned emu_random(unsigned *state);

#endif
